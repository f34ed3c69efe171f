"""What an RDB file holds, as plain values: seen through a server that loaded it, or through lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import redis
from redis.exceptions import ResponseError

from migrator.snapshot.ndjson import Line, pairs


@dataclass(frozen=True)
class Value:
    """bytes, list, frozenset, dict of bytes or (sorted set) of floats; of a stream see `_stream`. Times in unix ms."""

    type: str
    data: Any
    expires: int | None = None
    fields: Mapping[bytes, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """`keys` by database and key. `libraries`: the source of each library of functions."""

    keys: dict[tuple[int, bytes], Value]
    libraries: frozenset[str] = frozenset()


def through_server(url: str) -> Seen:
    keys: dict[tuple[int, bytes], Value] = {}
    with redis.Redis.from_url(url, protocol=2, single_connection_client=True) as client:
        databases = [int(name[2:]) for name in client.info("keyspace")]
        client.response_callbacks.clear()
        for db in databases:
            client.execute_command("SELECT", db)
            keys |= {(db, key): _value(client, key) for key in client.execute_command("KEYS", "*")}
        return Seen(keys, _libraries(client))


def _libraries(client: Any) -> frozenset[str]:
    try:
        found = client.execute_command("FUNCTION", "LIST", "WITHCODE")
    except ResponseError:  # before Redis 7
        return frozenset()
    return frozenset(dict(zip(one[::2], one[1::2], strict=True))[b"library_code"].decode() for one in found)


def _value(client: Any, key: bytes) -> Value:
    ask = client.execute_command
    kind = ask("TYPE", key).decode()
    left = ask("PEXPIRETIME", key)
    return Value(kind, _READ[kind](ask, key), left if left >= 0 else None, _fields(ask, key) if kind == "hash" else {})


def _fields(ask: Any, key: bytes) -> dict[bytes, int]:
    names = ask("HKEYS", key)
    times = ask("HPEXPIRETIME", key, "FIELDS", len(names), *names)
    return {name: at for name, at in zip(names, times, strict=True) if at >= 0}


def _stream(ask: Any, key: bytes) -> dict[str, Any]:
    """Entries by id, the last id, and of each group its last id and who has which entry pending, how often."""
    info = _dict(ask("XINFO", "STREAM", key))
    groups = {}
    for one in map(_dict, ask("XINFO", "GROUPS", key)):
        waiting = ask("XPENDING", key, one[b"name"], "-", "+", 1000)
        pending = {id.decode(): (consumer.decode(), count) for id, consumer, _, count in waiting}
        groups[one[b"name"].decode()] = (one[b"last-delivered-id"].decode(), pending)
    entries = {id.decode(): tuple(map(tuple, pairs(fields))) for id, fields in ask("XRANGE", key, "-", "+")}
    return {"entries": entries, "last": info[b"last-generated-id"].decode(), "groups": groups}


def _dict(flat: list[Any]) -> dict[Any, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


_READ: dict[str, Any] = {
    "string": lambda ask, key: ask("GET", key),
    "list": lambda ask, key: ask("LRANGE", key, 0, -1),
    "set": lambda ask, key: frozenset(ask("SMEMBERS", key)),
    "hash": lambda ask, key: _dict(ask("HGETALL", key)),
    "zset": lambda ask, key: {name: float(score) for name, score in pairs(ask("ZRANGE", key, 0, -1, "WITHSCORES"))},
    "stream": _stream,
}


def through_lines(lines: Iterable[Line]) -> Seen:
    """Whole records again from lines without streams."""
    whole: dict[tuple[int, bytes], Line] = {}
    for line in lines:
        before = whole.get((line.db, line.key))
        assert line.part == (0 if before is None else before.part + 1)
        items = [*(before.items if before else ()), *line.items]
        whole[line.db, line.key] = Line(line.db, line.key, line.kind, line.expires_at, items, line.part)
    return Seen({place: Value(line.kind, _data(line), line.expires_at) for place, line in whole.items()})


def _data(line: Line) -> Any:
    if line.kind == "hash":
        return dict(pairs(line.items))
    if line.kind == "zset":
        return {name: float(score) for name, score in pairs(line.items)}
    return {"string": lambda: line.items[0], "list": lambda: line.items, "set": lambda: frozenset(line.items)}[
        line.kind
    ]()
