"""One record a line: `{db,key,type,expires_at,value,part}`, readable with any tool and by any server version.

Bytes that are UTF-8 stand as text, others as `{"b64": …}`. Hashes and sorted sets are lists of pairs, scores are text.
`expires_at` is absolute unix ms or null. A large collection goes over several lines, `part` counts them from 0.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from migrator.errors import UsageError
from migrator.keys import KINDS, Kind


@dataclass(frozen=True, slots=True)
class Line:
    """A record, or a part of one. `items` are flat: a hash's field, value, field, …; a sorted set's member, score, …"""

    db: int
    key: bytes
    kind: Kind
    expires_at: int | None
    items: list[bytes]
    part: int = 0


def encode(line: Line) -> bytes:
    value: Any
    if line.kind == "string":
        value = _text(line.items[0])
    elif line.kind in ("hash", "zset"):
        value = [[_text(line.items[i]), _text(line.items[i + 1])] for i in range(0, len(line.items), 2)]
    else:
        value = [_text(item) for item in line.items]
    record = {
        "db": line.db,
        "key": _text(line.key),
        "type": line.kind,
        "expires_at": line.expires_at,
        "value": value,
        "part": line.part,
    }
    return msgspec.json.encode(record) + b"\n"


def decode(raw: bytes, where: str) -> Line:
    """The line again. Raises UsageError, naming `where`, for what is not one."""
    try:
        record = msgspec.json.decode(raw)
        kind, value = record["type"], record["value"]
        if kind not in KINDS:
            raise ValueError(kind)
        if kind == "string":
            items = [_bytes(value)]
        elif kind in ("hash", "zset"):
            items = [_bytes(item) for pair in value for item in pair]
        else:
            items = [_bytes(item) for item in value]
        return Line(record["db"], _bytes(record["key"]), kind, record["expires_at"], items, record["part"])
    except (ValueError, KeyError, TypeError, msgspec.MsgspecError):
        raise UsageError(f"{where}: not a record of a snapshot", next="the file is damaged; use another copy") from None


def _text(value: bytes) -> str | dict[str, str]:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}


def _bytes(value: str | dict[str, str]) -> bytes:
    return value.encode() if isinstance(value, str) else base64.b64decode(value["b64"], validate=True)


def pairs(items: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(items[::2], items[1::2], strict=True))
