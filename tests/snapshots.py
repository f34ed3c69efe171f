"""Records of every kind for the tests of snapshots, and what lies in a database, read by plain commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redis

from migrator.client import connect
from migrator.models import Taken
from migrator.names import Names
from migrator.snapshot.families import Families
from migrator.snapshot.files import SnapshotFile
from migrator.snapshot.ndjson import Line, pairs
from migrator.snapshot.take import Wanted, take
from tests.servers import Place

FAR = 4102444800000  # the year 2100, in unix ms
NAMES = Names("migrator")


def fill(ask: Any, *, fields_expire: bool = True, many: int = 2500) -> None:
    """Every type, in one page and in several, with bytes of all kinds and expiries. `ask` runs a command."""
    ask("SET", b"bin\x00\xff\n", b"\xff\x00\r\n\x80")
    ask("SET", "text", 'a "text" with \\ and \u00fc')
    ask("SET", "", "no name")
    ask("SET", "empty", "")
    ask("SET", "mortal", "v")
    ask("PEXPIREAT", "mortal", FAR + 123)
    ask("RPUSH", "list", "b", "a", b"\x00\xff", "", "a")
    ask("RPUSH", "long", *range(many))
    ask("PEXPIREAT", "long", FAR)
    ask("SADD", "set", "m", b"\xff", "")
    ask("SADD", "many", *(f"member-{i}" for i in range(many)))
    scores = (b"inf", "+inf", b"-inf", "-inf", b"zero", "-0", b"", "1e-300", b"\xff", "6.3896022860123456e+17")
    ask("ZADD", "zset", *[scores[i + 1 - 2 * (i % 2)] for i in range(len(scores))])
    ask("ZADD", "ranks", *[word for i in range(many) for word in (i / 3, f"member-{i}")])
    ask("HSET", "hash", "f", "v", b"\xff", b"\x00", "", "")
    ask("HSET", "wide", *[word for i in range(many) for word in (f"field-{i}", i)])
    if fields_expire:
        ask("HSET", "fleeting", "soon", 1, "later", 2, "never", 3)
        ask("HPEXPIREAT", "fleeting", FAR, "FIELDS", 1, "soon")
        ask("HPEXPIREAT", "fleeting", FAR + 77, "FIELDS", 1, "later")
        ask("HPEXPIREAT", "wide", FAR + 5, "FIELDS", 2, "field-1", f"field-{many - 1}")
    streams(ask, many=many // 2)


def streams(ask: Any, *, many: int) -> None:
    """One with groups, idle consumers, acknowledged, deleted and pending entries; one empty; one without a group."""
    for i in range(many):
        ask("XADD", "stream", f"{i + 1}-{i % 3}", "job", i, b"\xff", b"\x00")
    ask("XGROUP", "CREATE", "stream", "workers", "0")
    ask("XGROUP", "CREATE", "stream", b"idle\xff", "$")
    ask("XGROUP", "CREATE", "stream", "half", "5-1")
    ask("XGROUP", "CREATECONSUMER", "stream", "workers", "nobody")
    ask("XREADGROUP", "GROUP", "workers", "one", "COUNT", many // 2, "STREAMS", "stream", ">")
    ask("XREADGROUP", "GROUP", "workers", b"two\xff", "COUNT", many // 3, "STREAMS", "stream", ">")
    ask("XREADGROUP", "GROUP", "half", "one", "COUNT", 3, "STREAMS", "stream", ">")
    ask("XACK", "stream", "workers", "3-2", "4-0")
    ask("XDEL", "stream", "2-1", "6-2", f"{many}-{(many - 1) % 3}")  # pending in both, pending, and the last of all
    ask("XCLAIM", "stream", "workers", "one", 0, "9-2", "TIME", 1700000000000, "RETRYCOUNT", 9)
    ask("XADD", "emptied", "7-7", "f", "v")
    ask("XDEL", "emptied", "7-7")
    ask("XADD", "plain", "1-1", "f", "v", "f", "w")


def lying(raw: Any) -> dict[bytes, Any]:
    """All that lies in one database, by commands that are none of the snapshot's, but for what no command can set."""
    keys = raw.execute_command("KEYS", "*")
    return {key: (raw.type(key), _content(raw, key), _expiry(raw, key)) for key in keys}


def _content(raw: Any, key: bytes) -> Any:
    kind = raw.type(key).decode()
    if kind == "hash":
        return {field: (value, _field_expiry(raw, key, field)) for field, value in raw.hgetall(key).items()}
    if kind == "stream":
        return _stream(raw, key)
    words = {"string": ("GET", key), "list": ("LRANGE", key, 0, -1), "set": ("SMEMBERS", key),
             "zset": ("ZRANGE", key, 0, -1, "WITHSCORES")}  # fmt: skip
    return raw.execute_command(*words[kind])


def _stream(raw: Any, key: bytes) -> Any:
    info = raw.xinfo_stream(key)
    state = {name: info.get(name) for name in ("last-generated-id", "entries-added", "max-deleted-entry-id")}
    groups = {group["name"]: (group, _in_group(raw, key, group["name"])) for group in raw.xinfo_groups(key)}
    return state, raw.xrange(key), groups


def _in_group(raw: Any, key: bytes, group: bytes) -> Any:
    with raw.pipeline() as together:
        pending, (seconds, micros) = together.xpending_range(key, group, "-", "+", 10000).time().execute()
    delivered = [
        (one["message_id"], one["consumer"], one["times_delivered"],
         Near(seconds * 1000 + micros // 1000 - one["time_since_delivered"]))
        for one in pending
    ]  # fmt: skip
    return {one["name"]: one["pending"] for one in raw.xinfo_consumers(key, group)}, delivered


class Near:
    """A time in unix ms that is known to a few of them."""

    def __init__(self, at: int) -> None:
        self.at = at

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Near) and abs(self.at - other.at) <= 20

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Near({self.at})"


def _expiry(raw: Any, key: bytes) -> Any:
    with raw.pipeline() as together:
        left, (seconds, micros) = together.pttl(key).time().execute()
    return left if left < 0 else Near(left + seconds * 1000 + micros // 1000)


def _field_expiry(raw: Any, key: bytes, field: bytes) -> int:
    try:
        return int(raw.execute_command("HPEXPIRETIME", key, "FIELDS", 1, field)[0])
    except redis.ResponseError:  # no field has one here
        return -1


def taken(place: Place | str, path: Path, families: Families | None = None, **wanted: Any) -> Taken:
    """A snapshot with live values, unless said otherwise."""
    client = connect(place if isinstance(place, str) else place.url)
    asked = {"databases": None, **wanted}
    return take(path, client, families or Families(NAMES), NAMES, Wanted(**asked), overwrite=True)


def records(path: Path) -> dict[tuple[int, bytes], Any]:
    """What a file holds of each key, its parts put together, the later copy where there are two."""
    found: dict[tuple[int, bytes], list[Line]] = {}
    for line in SnapshotFile(path):
        lines = found.setdefault((line.db, line.key), [])
        if line.part == 0:
            lines.clear()
        lines.append(line)
    return {place: _whole(lines) for place, lines in found.items()}


def _whole(lines: list[Line]) -> Any:
    first, items = lines[0], [item for line in lines for item in line.items]
    times = {name: at for line in lines for name, at in line.field_expires_at.items()}
    content: Any = items
    if first.kind in ("hash", "zset"):
        content = dict(pairs(items))
    elif first.kind == "set":
        content = set(items)
    elif first.kind == "string":
        content = b"".join(items)
    expires = None if first.expires_at is None else Near(first.expires_at)
    return first.kind, content, expires, times, list(_streamed(lines))


def _streamed(lines: list[Line]) -> Iterator[Any]:
    parts = [line.stream for line in lines if line.stream is not None]
    yield from (entry for part in parts for entry in part.entries)
    yield [part.groups for part in parts if part.groups]
    yield sorted((one.group, one.id, one.consumer, one.deliveries) for part in parts for one in part.pending)
    yield [(part.last_id, part.entries_added, part.max_deleted_id) for part in parts if part.last_id]
