"""Reads whole records for a backup, a page at a time, with their absolute expiry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from migrator.client import Client, Command, Reply, ResponseError, checked
from migrator.engine.values import read_words, scan_words
from migrator.keys import Kind
from migrator.snapshot.ndjson import Line

PAGE = 1000


def expiries(client: Client, keys: Sequence[bytes]) -> list[int | None]:
    """Absolute expiry of each key in unix ms, None for none. Before Redis 7, from PTTL and the server's clock."""
    replies = client.run([Command(key, ("PEXPIRETIME", key)) for key in keys])
    if not any(isinstance(reply, ResponseError) for reply in replies):
        return [reply if reply >= 0 else None for reply in replies]
    return [_from_pttl(client, key) for key in keys]


def _from_pttl(client: Client, key: bytes) -> int | None:
    left, (seconds, micros) = client.on_node(client.node_of(key), ("PTTL", key), ("TIME",))
    return int(seconds) * 1000 + int(micros) // 1000 + checked(left) if checked(left) >= 0 else None


def bounded(client: Client, db: int, kind: Kind, names: Sequence[tuple[bytes, bytes]]) -> list[Line]:
    """Whole keys of a KeyMove: (name in Redis, name in the backup) each. Those that are gone are left out."""
    replies = client.run([Command(name, read_words(kind, name)) for name, _ in names])
    at = expiries(client, [name for name, _ in names])
    return [
        Line(db, shown, kind, expires, [reply] if kind == "string" else reply)
        for (_, shown), reply, expires in zip(names, replies, at, strict=True)
        if not _gone(reply)
    ]


def _gone(reply: Reply) -> bool:
    if isinstance(reply, ResponseError) and str(reply).startswith("WRONGTYPE"):
        return True
    return checked(reply) is None or reply == []


def collection(client: Client, db: int, kind: Kind, name: bytes, shown: bytes) -> Iterator[Line]:
    """A collection of any size, over as many lines as it has pages. It must not change meanwhile."""
    expires = expiries(client, [name])[0]
    cursor, part = b"0", 0
    while True:
        cursor, flat = client.one(name, *scan_words(kind, name, int(cursor), PAGE))
        if flat:
            yield Line(db, shown, kind, expires, flat, part)
            part += 1
        if cursor == b"0":
            return
