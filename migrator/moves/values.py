"""Values between Python and the wire: how each Redis type is read, written as script arguments, and digested."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from migrator.client import Arg, Client, Reply, Words, pack_each, pack_pairs
from migrator.keys import Kind
from migrator.records.scores import format_score, parse_score

Value = Any  # bytes, dict[bytes, bytes], list[bytes], set[bytes] or dict[bytes, float], by kind
MemberValue = Any  # bytes (hash), float (zset) or None (set)

# Of one key of a KeyMove: so many take a script that compares them 20 to 50 ms.
MAX_ELEMENTS = 20_000
_ELEMENT = 128  # bytes that an element counts at least: what small ones cost is their number
MAX_MEMBER = 16 * 1024 * 1024  # bytes of one member, its name and its value, which a script is given as a whole

_READ: dict[Kind, tuple[str, tuple[Arg, ...]]] = {
    "string": ("GET", ()),
    "hash": ("HGETALL", ()),
    "list": ("LRANGE", (0, -1)),
    "set": ("SMEMBERS", ()),
    "zset": ("ZRANGE", (0, -1, "WITHSCORES")),
}
_SCAN: dict[Kind, str] = {"hash": "HSCAN", "set": "SSCAN", "zset": "ZSCAN"}
_ONLY_BYTES = frozenset({bytes})
_ASK: dict[Kind, str] = {"hash": "HMGET", "zset": "ZMSCORE", "set": "SMISMEMBER"}
_WRITE: dict[Kind, str] = {"string": "SET", "hash": "HSET", "list": "RPUSH", "set": "SADD", "zset": "ZADD"}
_COUNT: dict[Kind, str] = {"string": "STRLEN", "hash": "HLEN", "list": "LLEN", "set": "SCARD", "zset": "ZCARD"}


def read_words(kind: Kind, key: bytes) -> tuple[Arg, ...]:
    """The command that reads a whole (bounded) value."""
    name, rest = _READ[kind]
    return (name, key, *rest)


def read_each(client: Client, kind: Kind, keys: Sequence[bytes]) -> list[Reply]:
    """The replies to that command for each of many keys."""
    name, rest = _READ[kind]
    return client.each(name, keys, *rest)


def pack_reads(kind: Kind, keys: Iterable[bytes]) -> list[bytes]:
    """The same, packed for whoever sends them with others."""
    name, rest = _READ[kind]
    return pack_each(name, keys, *rest)


def count_words(kind: Kind, key: bytes) -> tuple[Arg, ...]:
    """The command that counts: bytes of a string, members of a collection."""
    return (_COUNT[kind], key)


def count_each(client: Client, kind: Kind, keys: Sequence[bytes]) -> list[Reply]:
    """The replies to that command for each of many keys."""
    return client.each(_COUNT[kind], keys)


def weigh_each(client: Client, kind: Kind, keys: Sequence[bytes]) -> list[tuple[int, int]]:
    """Of each key how many elements it has, a string 1, and what it counts, in bytes: 0 for what is gone or of another
    type. Where the server may not be asked for its memory, the number of elements has to do."""
    counts = [reply if isinstance(reply, int) else 0 for reply in count_each(client, kind, keys)]
    if kind == "string":
        return [(1, count) for count in counts]
    memory = client.each("MEMORY USAGE", keys, "SAMPLES", 5)
    found = [reply if isinstance(reply, int) else 0 for reply in memory]
    return [(count, max(size, count * _ELEMENT)) for size, count in zip(found, counts, strict=True)]


def scan_words(kind: Kind, key: bytes, cursor: int, count: int) -> tuple[Arg, ...]:
    return (_SCAN[kind], key, cursor, "COUNT", count)


def from_items(kind: Kind, items: Sequence[bytes]) -> Value:
    """A value from its items, flat as Redis replies them."""
    if kind == "string":
        return items[0]
    if kind == "list":
        return list(items)
    if kind == "set":
        return set(items)
    flat = iter(items)
    pairs = zip(flat, flat, strict=True)  # of one iterator: half the time of two slices
    if kind == "hash":
        return dict(pairs)
    return {member: parse_score(score) for member, score in pairs}


def from_reply(kind: Kind, reply: Reply) -> Value:
    return from_items(kind, [reply] if kind == "string" else reply)


def to_items(kind: Kind, value: Value) -> list[bytes]:
    """A value as script arguments, the inverse of `from_items`."""
    if kind == "string":
        return [value]
    if kind in ("list", "set"):
        return list(value)
    if kind == "hash":
        flat = [b""] * (2 * len(value))
        flat[::2], flat[1::2] = value, value.values()  # half the time of a loop
        return flat
    return [word for member, score in value.items() for word in (member, format_score(score))]


def ask_words(kind: Kind, key: bytes, names: Sequence[bytes]) -> tuple[Arg, ...]:
    """The command that asks for members by name: their values, None (of a set 0) where one is not there."""
    return (_ASK[kind], key, *names)


def write_words(kind: Kind, key: bytes, value: Value) -> Words:
    """The command that writes a whole value, which is not empty, where none is."""
    if kind == "hash":
        return pack_pairs(b"HSET", key, value)
    return write_items(kind, key, to_items(kind, value))


def write_items(kind: Kind, key: bytes, items: Sequence[bytes]) -> tuple[Arg, ...]:
    """The same for a value as `to_items` gave it, or some members of one."""
    if kind == "zset":
        items = [word for i in range(0, len(items), 2) for word in (items[i + 1], items[i])]
    return (_WRITE[kind], key, *items)


def member_from_wire(kind: Kind, value: bytes | None) -> MemberValue:
    if kind == "zset":
        return parse_score(value) if value is not None else None
    return value if kind == "hash" else None


def member_to_wire(kind: Kind, value: MemberValue) -> bytes:
    if kind == "zset":
        return format_score(value)
    return value if kind == "hash" else b""


def members_from_page(kind: Kind, flat: Sequence[bytes]) -> list[tuple[bytes, MemberValue]]:
    """The members of one HSCAN, SSCAN or ZSCAN page."""
    if kind == "set":
        return [(name, None) for name in flat]
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return list(pairs) if kind == "hash" else [(name, member_from_wire(kind, value)) for name, value in pairs]


def check_value(kind: Kind, value: Value) -> str:
    """Why this is not a value of that kind, or the empty string."""
    if kind == "string":
        return "" if isinstance(value, bytes) else "not bytes"
    # First of all, and of exactly the types: half the time for a hash of 17 fields, as nearly all are sound.
    if kind == "hash" and type(value) is dict and _ONLY_BYTES.issuperset(map(type, chain(value, value.values()))):
        return ""
    if kind in ("list", "set"):
        good = isinstance(value, (list, tuple) if kind == "list" else (set, frozenset))
        return "" if good and all(isinstance(item, bytes) for item in value) else f"not a {kind} of bytes"
    if not isinstance(value, dict) or not all(isinstance(name, bytes) for name in value):
        return "not a dict with names of bytes"
    return next((fault for item in value.values() if (fault := check_member_value(kind, item))), "")


def check_member_value(kind: Kind, value: MemberValue) -> str:
    if kind == "zset":
        try:
            return "" if isinstance(value, (int, float)) and not math.isnan(value) else "a score that is no number"
        except OverflowError:
            return "a score that is too large"
    if kind == "hash":
        return "" if isinstance(value, bytes) else "a value that is not bytes"
    return "" if value is None else "a member of a set with a value"


def digest(items: Sequence[bytes]) -> str:
    """Names a value without telling it: binds an accepted record to what was looked at."""
    hasher = hashlib.sha256()
    for item in items:
        hasher.update(b"%d:" % len(item) + item)
    return hasher.hexdigest()[:32]
