"""One record a line: `{db,key,type,expires_at,value,part}`, readable with any tool and by any server version.

Bytes that are UTF-8 stand as text, others as `{"b64": …}`. Hashes and sorted sets are lists of pairs, scores are text;
a field with an expiry of its own has it as a third item. Times are absolute unix ms. A large value goes over several
lines, `part` counts them from 0; they follow each other, and a part 0 begins its key anew. The lines of a stream are
objects, see `StreamPart`. In the backup of a contract, `kept` is true of a collection of which accepted members stayed
set aside: these may be saved again later, alone.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from migrator.errors import UsageError

RecordKind = Literal["string", "hash", "list", "set", "zset", "stream"]
RECORD_KINDS: tuple[RecordKind, ...] = get_args(RecordKind)

Text = str | dict[str, str]  # bytes as they stand in JSON
_NEVER: Mapping[bytes, int] = MappingProxyType({})
_ID = re.compile(r"\d{1,20}-\d{1,20}")


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group. `entries_read` is None where it is not known, which a server before Redis 7 never is."""

    name: bytes
    last_id: str
    entries_read: int | None
    consumers: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Pending:
    """An entry that a consumer has not acknowledged. `delivered_at` is unix ms, `deliveries` how often."""

    group: bytes
    id: str
    consumer: bytes
    delivered_at: int
    deliveries: int


@dataclass(frozen=True, slots=True)
class StreamPart:
    """A range of ids: its entries and what is pending in it.

    An entry that was deleted and is pending still has None for its fields. Part 0 names the groups; the last part has
    `last_id`, and what only Redis 7 and later knows: `entries_added` and `max_deleted_id`.
    """

    entries: tuple[tuple[str, tuple[bytes, ...] | None], ...] = ()
    pending: tuple[Pending, ...] = ()
    groups: tuple[Group, ...] = ()
    last_id: str | None = None
    entries_added: int | None = None
    max_deleted_id: str | None = None


class Line(NamedTuple):
    """A record, or a part of one. `items` are flat: a hash's field, value, field, …; a sorted set's member, score, …

    `field_expires_at` is for the fields that have an expiry of their own; a stream has `stream` and no items. `kept` is
    None where nothing is said.
    """

    db: int
    key: bytes
    kind: RecordKind
    expires_at: int | None
    items: list[bytes]
    part: int = 0
    field_expires_at: Mapping[bytes, int] = _NEVER
    stream: StreamPart | None = None
    kept: bool | None = None

    @property
    def holds_nothing(self) -> bool:
        """An empty collection is no key: it takes back what stands before it of a key that went while it was read."""
        return not self.items and self.stream is None


def encode(line: Line) -> bytes:
    record: dict[str, Any] = {
        "db": line.db,
        "key": _text(line.key),
        "type": line.kind,
        "expires_at": line.expires_at,
        "value": _value(line),
        "part": line.part,
    }
    if line.kept is not None:
        record["kept"] = line.kept
    return msgspec.json.encode(record) + b"\n"


def _value(line: Line) -> Any:
    if line.stream is not None:
        return _stream_value(line.stream)
    if line.kind == "string":
        return _text(line.items[0])
    if line.kind == "hash" and line.field_expires_at:
        return list(_fields(line))
    if line.kind in ("hash", "zset"):
        return [[_text(line.items[i]), _text(line.items[i + 1])] for i in range(0, len(line.items), 2)]
    return [_text(item) for item in line.items]


def _fields(line: Line) -> Iterator[list[Any]]:
    for name, value in pairs(line.items):
        at = line.field_expires_at.get(name)
        yield [_text(name), _text(value)] if at is None else [_text(name), _text(value), at]


def _stream_value(part: StreamPart) -> dict[str, Any]:
    value: dict[str, Any] = {
        "entries": [[id, fields and [_text(item) for item in fields]] for id, fields in part.entries]
    }
    if part.pending:
        value["pending"] = [
            [_text(one.group), one.id, _text(one.consumer), one.delivered_at, one.deliveries] for one in part.pending
        ]
    if part.groups:
        value["groups"] = [
            {
                "name": _text(group.name),
                "last_id": group.last_id,
                "entries_read": group.entries_read,
                "consumers": [_text(name) for name in group.consumers],
            }
            for group in part.groups
        ]
    if part.last_id is not None:
        value |= {
            "last_id": part.last_id,
            "entries_added": part.entries_added,
            "max_deleted_id": part.max_deleted_id,
        }
    return value


def decode(raw: bytes, where: str) -> Line:
    """The line again. Raises UsageError, naming `where`, for what is not one."""
    try:
        return _line(msgspec.json.decode(raw))
    except (ValueError, KeyError, TypeError, msgspec.MsgspecError):
        raise _damaged(where) from None


class Head(NamedTuple):
    """Where a line stands: of which key it is, and which part of it."""

    db: int
    key: bytes
    part: int


class _Head(msgspec.Struct):
    db: int
    key: str | dict[str, str]
    part: int


_HEADS = msgspec.json.Decoder(_Head)


def head(raw: bytes, where: str) -> Head:
    """The head of a line, for a fifth of what `decode` takes. Raises UsageError, naming `where`, for what has none."""
    try:
        found = _HEADS.decode(raw)
        return Head(found.db, _bytes(found.key), found.part)
    except (ValueError, KeyError, TypeError, msgspec.MsgspecError):
        raise _damaged(where) from None


def _damaged(where: str) -> UsageError:
    return UsageError(f"{where}: not a record of a snapshot", next="the file is damaged; use another copy")


def _line(record: Any) -> Line:
    kind, value = record["type"], record["value"]
    if kind not in RECORD_KINDS:
        raise ValueError(kind)
    db, part = _number(record["db"]), _number(record["part"])
    key, expires_at = _bytes(record["key"]), _maybe(_number, record["expires_at"])
    if kind == "stream":
        return Line(db, key, kind, expires_at, [], part, {}, _stream(value))
    if kind == "string":
        return Line(db, key, kind, expires_at, [_bytes(value)], part)
    kept = _maybe(_yes_or_no, record.get("kept"))
    if kind not in ("hash", "zset"):
        return Line(db, key, kind, expires_at, [_bytes(item) for item in _list(value)], part, kept=kept)
    fields: dict[bytes, int] = {}
    most = 3 if kind == "hash" else 2
    items: list[bytes] = []
    for one in _list(value):
        if not 2 <= len(_list(one)) <= most:
            raise ValueError(one)
        items += (_bytes(one[0]), _bytes(one[1]))
        if len(one) == 3:
            fields[items[-2]] = _number(one[2])
    return Line(db, key, kind, expires_at, items, part, fields, kept=kept)


def _stream(value: Any) -> StreamPart:
    return StreamPart(
        tuple((_id(id), _maybe(_items, fields)) for id, fields in _list(value["entries"])),
        tuple(
            Pending(_bytes(group), _id(id), _bytes(consumer), _number(at), _number(deliveries))
            for group, id, consumer, at, deliveries in _list(value.get("pending", []))
        ),
        tuple(
            Group(_bytes(group["name"]), _id(group["last_id"]), _maybe(_number, group["entries_read"]),
                  _items(group["consumers"]))
            for group in _list(value.get("groups", []))
        ),
        _maybe(_id, value.get("last_id")),
        _maybe(_number, value.get("entries_added")),
        _maybe(_id, value.get("max_deleted_id")),
    )  # fmt: skip


def _maybe(read: Any, value: Any) -> Any:
    return None if value is None else read(value)


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(value)
    return value


def _yes_or_no(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(value)
    return value


def _id(value: Any) -> str:
    if not _ID.fullmatch(value):
        raise ValueError(value)
    return str(value)


def _items(value: Any) -> tuple[bytes, ...]:
    return tuple(_bytes(item) for item in _list(value))


def _text(value: bytes) -> Text:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}


def _bytes(value: Text) -> bytes:
    return value.encode() if isinstance(value, str) else base64.b64decode(value["b64"], validate=True)


def pairs(items: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(items[::2], items[1::2], strict=True))
