"""Reads a stream in ranges of ids: each with its entries and with what is pending in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from migrator.snapshot.ndjson import Group, Pending, StreamPart

PAGE = 500  # entries, and pending entries of each group

Ask = Callable[..., Any]  # a key and commands, sent in one go; their replies
Id = tuple[int, int]


def stream_parts(ask: Ask, key: bytes) -> Iterator[StreamPart]:
    """The stream as it was when this began, but for what was deleted or acknowledged since."""
    state = _pairs(ask(key, ("XINFO", "STREAM", key))[0])
    groups = tuple(_groups(ask, key))
    last = _id(state[b"last-generated-id"])
    start, done, first = (0, 0), False, True
    while not done:
        entries, pending, end = _range(ask, key, groups, start, last)
        done = end == last
        yield StreamPart(
            entries,
            pending,
            groups if first else (),
            _text(last) if done else None,
            state.get(b"entries-added") if done else None,
            state[b"max-deleted-entry-id"].decode() if done and b"max-deleted-entry-id" in state else None,
        )
        start, first = _after(end), False


def _groups(ask: Ask, key: bytes) -> Iterator[Group]:
    for one in map(_pairs, ask(key, ("XINFO", "GROUPS", key))[0]):
        consumers = map(_pairs, ask(key, ("XINFO", "CONSUMERS", key, one[b"name"]))[0])
        names = tuple(consumer[b"name"] for consumer in consumers)
        yield Group(one[b"name"], one[b"last-delivered-id"].decode(), one.get(b"entries-read"), names)


def _range(
    ask: Ask, key: bytes, groups: tuple[Group, ...], start: Id, last: Id
) -> tuple[tuple[tuple[str, tuple[bytes, ...] | None], ...], tuple[Pending, ...], Id]:
    """The entries from `start`, what is pending among them, and where the range ends: at `last`, or before it."""
    found = ask(key, ("XRANGE", key, _text(start), _text(last), "COUNT", PAGE))[0]
    end = _id(found[-1][0]) if len(found) == PAGE else last
    pending: list[Pending] = []
    for group in groups:
        some = list(_pending(ask, key, group.name, start, end))
        if len(some) == PAGE:
            end = min(end, _id(some[-1].id))
        pending += some
    pending = [one for one in pending if _id(one.id) <= end]
    entries: dict[Id, tuple[bytes, ...] | None] = {_id(one.id): None for one in pending}
    entries |= {_id(id): tuple(fields) for id, fields in found if _id(id) <= end}
    return tuple((_text(id), entries[id]) for id in sorted(entries)), tuple(pending), end


def _pending(ask: Ask, key: bytes, group: bytes, start: Id, end: Id) -> Iterator[Pending]:
    words = ("XPENDING", key, group, _text(start), _text(end), PAGE)
    found, (seconds, micros) = ask(key, words, ("TIME",))  # together: it tells how long each has been idle
    now = int(seconds) * 1000 + int(micros) // 1000
    for id, consumer, idle, deliveries in found:
        yield Pending(group, id.decode(), consumer, max(0, now - idle), deliveries)


def _pairs(flat: list[Any]) -> dict[bytes, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _id(text: bytes | str) -> Id:
    ms, _, number = (text if isinstance(text, str) else text.decode()).partition("-")
    return int(ms), int(number)


def _text(id: Id) -> str:
    return f"{id[0]}-{id[1]}"


def _after(id: Id) -> Id:
    return (id[0], id[1] + 1) if id[1] < 2**64 - 1 else (id[0] + 1, 0)
