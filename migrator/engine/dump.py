"""Reads whole records for a backup, a page at a time, with their absolute expiry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from migrator.client import Client, Reply, ResponseError, checked, slot_moved
from migrator.engine.batches import MAX_BYTES, page_sizes, sizes
from migrator.engine.run import Run
from migrator.keys import Kind
from migrator.moves.values import read_each, scan_words
from migrator.snapshot.ndjson import Line

PAGE = 1000


_GONE = -2


def expiries(client: Client, keys: Sequence[bytes]) -> list[int]:
    """Absolute expiry of each key in unix ms, -1 for none, -2 for no key. Before Redis 7, from PTTL and TIME."""
    replies = client.each("PEXPIRETIME", keys)
    if not any(isinstance(reply, ResponseError) for reply in replies):
        return replies
    return [_from_pttl(client, key) for key in keys]


def _from_pttl(client: Client, key: bytes) -> int:
    left, (seconds, micros) = client.on_node(client.node_of(key), ("PTTL", key), ("TIME",))
    return int(seconds) * 1000 + int(micros) // 1000 + int(left) if checked(left) >= 0 else int(left)


def _at(expires: int) -> int | None:
    return expires if expires >= 0 else None


def bounded(client: Client, db: int, kind: Kind, names: Sequence[tuple[bytes, bytes]]) -> list[Line]:
    """Whole keys of a KeyMove: (name in Redis, name in the backup) each. Those that are gone are left out."""
    replies = read_each(client, kind, [name for name, _ in names])
    at = expiries(client, [name for name, _ in names])
    return [
        Line(db, shown, kind, _at(expires), [reply] if kind == "string" else reply)
        for (_, shown), reply, expires in zip(names, replies, at, strict=True)
        # One that expired between the two reads would come back without an expiry.
        if not _gone(reply) and expires != _GONE
    ]


def large(client: Client, db: int, kind: Kind, name: bytes, shown: bytes) -> list[Line]:
    """The same for one that is too large to be asked for with others: one line too, put together from pages where it
    has members. It must not change meanwhile."""
    if kind in ("string", "list"):
        return bounded(client, db, kind, [(name, shown)])
    if client.one(name, "TYPE", name).decode() != kind:
        return []
    step, expires, found = 1 if kind == "set" else 2, None, dict[bytes, list[bytes]]()
    for line in collection(client, db, kind, name, shown):
        if line.part == 0:  # it may begin again
            expires, found = line.expires_at, {}
        # By name: a page may show a member that another one has shown.
        found.update((line.items[i], line.items[i : i + step]) for i in range(0, len(line.items), step))
    items = [word for words in found.values() for word in words]
    return [Line(db, shown, kind, expires, items)] if items else []


def record(run: Run, kind: Kind, name: bytes, *, by_member: bool) -> Iterable[Line]:
    """One key of any size under its own name: of a MemberMove over many lines, else in one."""
    client, db = run.client, run.client.db
    if by_member:
        return collection(client, db, kind, name, name)
    if sizes(client, kind, [name])[0] > MAX_BYTES:
        return large(client, db, kind, name, name)
    return bounded(client, db, kind, [(name, name)])


def _gone(reply: Reply) -> bool:
    if isinstance(reply, ResponseError) and str(reply).startswith("WRONGTYPE"):
        return True
    return checked(reply) is None or reply == []


def collection(client: Client, db: int, kind: Kind, name: bytes, shown: bytes) -> Iterator[Line]:
    """A collection of any size, over as many lines as it has pages. It must not change meanwhile.

    A cursor means nothing to another process: if the server restarts or the slot moves, it is read again from part 0,
    which replaces what came before it.
    """
    while True:
        expires, [size] = expiries(client, [name])[0], page_sizes(client, kind, [name])
        node, process, cursor, part = client.node_of(name), "", 0, 0
        while True:
            words = scan_words(kind, name, cursor, size.within(PAGE))
            info, answer = client.on_node(node, ("INFO", "server"), words)
            if slot_moved(answer) or process not in ("", client.process(info)):
                break
            process = client.process(info)
            following, flat = checked(answer)
            size.saw(flat)
            if flat:
                yield Line(db, shown, kind, _at(expires), flat, part)
                part += 1
            cursor = int(following)
            if cursor == 0:
                return
