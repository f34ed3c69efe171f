"""Reads whole records while an application goes on writing: small ones many at a time, large ones a page at a time.

A key is read as it is at one moment only if it is small, by number and by bytes. Of one that changes while its pages
are read, what is in the file is between before and after; but a list or a long string, whose pages would not fit
together, is watched, and read again if it was written meanwhile: at last in one piece, if it is not too long for that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import starmap
from typing import NamedTuple, cast

from migrator.client import Arg, Command, Node, Reply, ResponseError, checked, slot_moved
from migrator.errors import RefusedError
from migrator.keys import KINDS, Kind
from migrator.moves.values import count_words, read_words, scan_words, weigh_each
from migrator.snapshot.ndjson import Line
from migrator.snapshot.places import Places
from migrator.snapshot.streams import stream_parts

PAGE = 1000  # members
LARGE = 16 * 1024 * 1024  # bytes of a string, or of a list without rest: no larger one is a record of a move
SLICE = 4 * 1024 * 1024  # of a string; a collection of more is read in pages
RESTLESS = 10 * PAGE  # elements of a list that is written again and again: no more are read by one command
_TOGETHER = 2 * 1024 * 1024  # bytes of what is read in one go: the server holds all those replies for us
_ATTEMPTS = 3
_CHANGED = ("WRONGTYPE", "NOGROUP", "ERR no such key")


class ChangedError(Exception):
    """The key is gone, or another one, or in another process, while its pages are read."""


class _Size(NamedTuple):
    """Of a key; a string is one element."""

    elements: int
    bytes: int

    @property
    def page(self) -> int:
        """How many elements are read by one command."""
        return max(1, min(PAGE, self.elements * _TOGETHER // max(1, self.bytes)))


def _at_once(type: str, size: _Size, *, last: bool) -> bool:
    """Whether a key is read whole; `last`: there is no other way to have all of it as it is at one moment."""
    if type == "string":
        return size.bytes <= LARGE
    if type == "list" and last:
        return size.elements <= RESTLESS and size.bytes <= LARGE
    return size.elements <= PAGE and size.bytes <= SLICE


class Reading:
    """Reads keys of one database. `kept`, `vanished` and `changed` count keys, `unknown` those of types not known."""

    def __init__(self, places: Places, db: int) -> None:
        self._client, self._db = places.of(db), db
        self._tells_expiry = places.knows("PEXPIRETIME", "?")
        self._fields_expire = places.knows("HPEXPIRETIME", "?", "FIELDS", "1", "?")
        self.kept = self.vanished = self.changed = 0
        self.unknown: Counter[str] = Counter()
        self._again: list[bytes] = []

    def lines(self, keys: Sequence[bytes]) -> Iterator[Line]:
        """Their lines; of each key one or more, one after the other."""
        left = list(keys)
        for attempt in range(_ATTEMPTS):
            self._again.clear()
            yield from self._once(left, last=attempt == _ATTEMPTS - 1)
            left = list(self._again)
            self.changed += len(left) if attempt == 0 else 0
            if not left:
                return
        self.unknown["that changed each time it was read"] += len(left)

    def _once(self, keys: Sequence[bytes], *, last: bool) -> Iterator[Line]:
        """Leaves in `_again` those that were not what they had been a moment before."""
        small: list[tuple[bytes, Kind]] = []
        together = 0
        for key, type, size in self._sized(keys):
            if type == "stream" or not _at_once(type, size, last=last):
                yield from self._paged(key, type, size)
                continue
            if small and together + size.bytes > _TOGETHER:
                yield from self._small(small)
                small, together = [], 0
            small.append((key, cast(Kind, type)))
            together += size.bytes
        yield from self._small(small)

    def _sized(self, keys: Sequence[bytes]) -> Iterator[tuple[bytes, str, _Size]]:
        """Keys with their types and sizes. What is another one by now has none: it is read, and found changed, then."""
        replies = self._client.each("TYPE", keys)
        types = [checked(reply).decode() for reply in replies]
        size_of: dict[bytes, _Size] = {}
        for kind in KINDS:
            some = [key for key, type in zip(keys, types, strict=True) if type == kind]
            size_of.update(zip(some, starmap(_Size, weigh_each(self._client, kind, some)), strict=True))
        for key, type in zip(keys, types, strict=True):
            if type in KINDS or type == "stream":
                yield key, type, size_of.get(key, _Size(0, 0))
            elif type == "none":
                self.vanished += 1
            else:
                self.unknown[f"of type {type}"] += 1

    def _small(self, found: Sequence[tuple[bytes, Kind]]) -> Iterator[Line]:
        values = self._client.run([
            Command(key, words) for key, kind in found for words in (read_words(kind, key), *self._expiry_words(key))
        ])  # fmt: skip
        width = 1 + len(self._expiry_words(b""))
        hashes = {key: values[i * width] for i, (key, kind) in enumerate(found) if kind == "hash"}
        times = self._field_times(hashes)
        for i, (key, kind) in enumerate(found):
            value, expires = values[i * width], _expires(values[i * width + 1 : (i + 1) * width])
            if _is_other(value):
                self._again.append(key)
            elif checked(value) is None or value == [] or expires is None:
                self.vanished += 1
            else:
                items = [value] if kind == "string" else value
                step = PAGE if kind == "list" else len(items)
                for part, start in enumerate(range(0, len(items), step)):
                    yield self._line(key, kind, expires, items[start : start + step], part, times.get(key, {}))
                self.kept += 1

    def _line(self, key: bytes, kind: Kind, expires: int, items: list[bytes], part: int,
              times: dict[bytes, int]) -> Line:  # fmt: skip
        gone = {name for name, at in times.items() if at == -2}  # fields whose time passed since they were read
        if gone:
            items = [item for i in range(0, len(items), 2) if items[i] not in gone for item in items[i : i + 2]]
        mortal = {name: at for name, at in times.items() if at >= 0}
        return Line(self._db, key, kind, expires if expires >= 0 else None, items, part, mortal)

    def _expiry_words(self, key: bytes) -> tuple[tuple[Arg, ...], ...]:
        return (("PEXPIRETIME", key),) if self._tells_expiry else (("PTTL", key), ("TIME",))

    def _field_times(self, hashes: dict[bytes, Reply]) -> dict[bytes, dict[bytes, int]]:
        """For each field its expiry in unix ms, -1 for none, -2 for no field."""
        if not self._fields_expire:
            return {}
        names = [(key, flat[start : start + 2 * PAGE : 2]) for key, flat in hashes.items()
                 if not isinstance(flat, ResponseError) for start in range(0, len(flat), 2 * PAGE)]  # fmt: skip
        replies = self._client.run([
            Command(key, ("HPEXPIRETIME", key, "FIELDS", len(some), *some)) for key, some in names
        ])  # fmt: skip
        found: dict[bytes, dict[bytes, int]] = {}
        for (key, some), reply in zip(names, replies, strict=True):
            # What is no hash any more had its fields a moment before, and they had no expiry that still counts.
            times = [-1] * len(some) if _is_other(reply) or not checked(reply) else reply
            found.setdefault(key, {}).update(zip(some, times, strict=True))
        return found

    def _paged(self, key: bytes, type: str, size: _Size) -> Iterator[Line]:
        part = 0
        try:
            watch = self._watch(key) if type in ("string", "list") else None
            for line in self._parts(key, type, size.page):
                yield line
                part += 1
            if watch is not None:
                self._check_unwritten(*watch)
            elif type != "stream":
                now = self._size(key, cast(Kind, type))
                if now == 0:
                    raise ChangedError
                self.changed += now != size.elements
            self.kept += part > 0
            self.vanished += part == 0
        except ChangedError:
            if part:  # takes back what was written of it
                yield Line(self._db, key, "list", None, [])
            self._again.append(key)

    def _watch(self, key: bytes) -> tuple[Node, int]:
        """From here on the server notes whether the key is written, for this very connection: its node and number."""
        node = self._client.node_of(key)
        for reply in self._client.on_node(node, ("UNWATCH",), ("WATCH", key)):
            _settled(reply)
        return node, node.links.made

    def _check_unwritten(self, node: Node, connection: int) -> None:
        """Raises ChangedError if it was, or if the connection was lost: the watch went with it."""
        begun, ended = self._client.on_node(node, ("MULTI",), ("EXEC",))
        _settled(begun)
        if _settled(ended) is None or node.links.made != connection:
            raise ChangedError

    def _parts(self, key: bytes, type: str, page: int) -> Iterator[Line]:
        expires = _expires(self._client.run([Command(key, words) for words in self._expiry_words(key)]))
        if expires is None:
            raise ChangedError
        if type == "stream":
            at = expires if expires >= 0 else None
            for part, stream in enumerate(stream_parts(self._ask, key)):
                yield Line(self._db, key, "stream", at, [], part, {}, stream)
            return
        kind = cast(Kind, type)
        for part, items in enumerate(self._pages(key, kind, page)):
            times = self._field_times({key: items}).get(key, {}) if kind == "hash" else {}
            yield self._line(key, kind, expires, items, part, times)

    def _pages(self, key: bytes, kind: Kind, page: int) -> Iterator[list[bytes]]:
        if kind in ("string", "list"):
            width, word = (SLICE, "GETRANGE") if kind == "string" else (page, "LRANGE")
            start = 0
            while items := self._ask(key, (word, key, start, start + width - 1))[0]:
                yield [items] if kind == "string" else items
                start += width
            return
        node, process, cursor = self._client.node_of(key), "", b""
        while cursor != b"0":
            info, answer = self._client.on_node(node, ("INFO", "server"), scan_words(kind, key, int(cursor or 0), page))
            if process not in ("", self._client.process(info)) or _is_other(answer):
                raise ChangedError
            process = self._client.process(info)
            cursor, items = _settled(answer)
            if items:
                yield items

    def _size(self, key: bytes, kind: Kind) -> int:
        return int(self._ask(key, count_words(kind, key))[0])

    def _ask(self, key: bytes, *commands: tuple[Arg, ...]) -> list[Reply]:
        replies = self._client.run([Command(key, words) for words in commands])
        if any(map(_is_other, replies)):
            raise ChangedError
        return [checked(reply) for reply in replies]


def _expires(replies: Sequence[Reply]) -> int | None:
    """Unix ms, -1 for no expiry, None for no key: from PEXPIRETIME, or from PTTL and TIME."""
    left = int(checked(replies[0]))
    if left == -2:
        return None
    if len(replies) == 1 or left < 0:
        return left
    seconds, micros = checked(replies[1])
    return int(seconds) * 1000 + int(micros) // 1000 + left


def _is_other(reply: Reply) -> bool:
    return isinstance(reply, ResponseError) and str(reply).startswith(_CHANGED)


def _settled(reply: Reply) -> Reply:
    if slot_moved(reply):
        raise moved()
    return checked(reply)


def moved() -> RefusedError:
    return RefusedError("slots moved between nodes while the snapshot was taken; nothing was kept",
                        next="let the resharding finish, then run this again")  # fmt: skip
