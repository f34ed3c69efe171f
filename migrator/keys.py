"""Key templates: one statement gives the SCAN pattern, the exact parser and the formatter of a family of keys."""

from __future__ import annotations

import re
from binascii import crc_hqx
from collections.abc import Iterator, Mapping
from functools import cache
from string import Formatter
from typing import Any, Generic, Literal, TypeVar, overload

SLOTS = 16384
GUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"

Kind = Literal["string", "hash", "list", "set", "zset"]
KINDS: tuple[Kind, ...] = ("string", "hash", "list", "set", "zset")
_BESIDE = re.compile(r"\\|[\^$]|\(\?(?!:)|[*+?}]\+")  # what in a pattern may depend on more than the capture
_PROBES = (b"1", b"a", b"a-a", b"00000000-0000-0000-0000-000000000000")  # what captures often may hold

V = TypeVar("V")


def slot_of(key: bytes) -> int:
    """The cluster slot of a key: CRC16 (XMODEM) of its hash tag, modulo 16384 (Redis cluster specification)."""
    return crc_hqx(tag_of(key) or key, 0) % SLOTS


def tag_of(key: bytes) -> bytes | None:
    """What stands between the first `{` and the next `}`, if anything does; None if the whole key is hashed."""
    start = key.find(b"{")
    if start < 0:
        return None
    end = key.find(b"}", start + 1)
    return key[start + 1 : end] if end > start + 1 else None


@cache
def slot_tags() -> tuple[bytes, ...]:
    """For each slot the smallest decimal integer that hashes to it, as text."""
    found: dict[int, bytes] = {}
    number = 0
    while len(found) < SLOTS:
        text = b"%d" % number
        found.setdefault(crc_hqx(text, 0) % SLOTS, text)
        number += 1
    return tuple(found[slot] for slot in range(SLOTS))


class Key(Mapping[str, bytes]):
    """A parsed key: `raw` is the whole name, `key["id"]` what the template captured under that name."""

    __slots__ = ("_captures", "raw")

    def __init__(self, raw: bytes, captures: Mapping[str, bytes]) -> None:
        self.raw = raw
        self._captures = captures

    def __getitem__(self, name: str) -> bytes:
        return self._captures[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._captures)

    def __len__(self) -> int:
        return len(self._captures)

    def __repr__(self) -> str:
        return f"Key({self.raw!r})"


class Keys(Generic[V]):
    """A family of keys of one Redis type.

    In the template, `{name}` captures one or more bytes and `{{`, `}}` are literal braces (so `{{ae}}:job:{id}` keeps
    a family in one cluster slot). A capture may be narrowed by a regular expression of that name:
    `Keys("ae:job:{id}", type="string", id=GUID)`. Where a template has several captures, one that is not narrowed
    holds no colon, so that parsing stays exact.

    Values are bytes throughout: `bytes` for a string, `dict[bytes, bytes]` for a hash, `list[bytes]` for a list,
    `set[bytes]` for a set, `dict[bytes, float]` for a sorted set.

    Raises ValueError for a template that is not one.
    """

    @overload
    def __init__(self: Keys[bytes], template: str, *, type: Literal["string"], **patterns: str) -> None: ...
    @overload
    def __init__(self: Keys[dict[bytes, bytes]], template: str, *, type: Literal["hash"], **patterns: str) -> None: ...
    @overload
    def __init__(self: Keys[list[bytes]], template: str, *, type: Literal["list"], **patterns: str) -> None: ...
    @overload
    def __init__(self: Keys[set[bytes]], template: str, *, type: Literal["set"], **patterns: str) -> None: ...
    @overload
    def __init__(self: Keys[dict[bytes, float]], template: str, *, type: Literal["zset"], **patterns: str) -> None: ...

    def __init__(self, template: str, *, type: Kind, **patterns: str) -> None:
        if type not in KINDS:
            raise ValueError(f"type {type!r} is not one of {', '.join(KINDS)}")
        self.template = template
        self.kind: Kind = type
        self._parts = _split(template)
        self._patterns = patterns
        self.captures = tuple(name for _, name in self._parts if name)
        _check(template, self.captures, patterns)
        loose = ".+" if len(self.captures) == 1 else "[^:]+"
        self._regex = re.compile(
            b"".join(
                re.escape(text) + (b"(?P<%s>%s)" % (name.encode(), patterns.get(name, loose).encode()) if name else b"")
                for text, name in self._parts
            ),
            re.DOTALL,
        )
        self.glob = b"".join(_escape_glob(text) + (b"*" if name else b"") for text, name in self._parts)

    def parse(self, key: bytes) -> Key | None:
        """The captures of a key, or None if it is not one of this family."""
        match = self._regex.fullmatch(key)
        return Key(key, match.groupdict()) if match else None

    def matches(self, key: bytes) -> bool:
        """Whether it is one of this family."""
        return self._regex.fullmatch(key) is not None

    def format(self, captures: Mapping[str, bytes]) -> bytes:
        """The key that has these captures."""
        return b"".join(text + (captures[name] if name else b"") for text, name in self._parts)

    @property
    def head(self) -> bytes:
        """What every key of the family begins with."""
        return self._parts[0][0]

    def reads_back(self, other: Keys[Any]) -> bool:
        """Whether what keys of the other family capture makes keys of this one that capture the same, as far as the
        templates tell; False where it depends on the key."""
        if len(self.captures) < 2:
            return self._patterns == other._patterns and not any(map(_BESIDE.search, self._patterns.values()))
        # A capture that holds no colon ends at the next one.
        between = [text for text, name in self._parts[1:] if name]
        return not self._patterns and not other._patterns and all(text.startswith(b":") for text in between)

    def literal_tag(self) -> bytes | None:
        """The hash tag that every key of the family shares, or None if keys differ in it."""
        if not self.captures:
            whole = self._parts[0][0] if self._parts else b""
            return tag_of(whole) or whole
        head = self._parts[0][0]
        return tag_of(head)

    def __repr__(self) -> str:
        return f"Keys({self.template!r}, type={self.kind!r})"

    def overlaps(self, other: Keys[Any]) -> bool:
        """Whether some keys are of both families, whatever the captures are called: where the templates are the same
        but for that, or a key is known that both parse. Not every overlap of narrowed captures is found."""
        return self.glob == other.glob or any(map(self.matches, other.some())) or any(map(other.matches, self.some()))

    def some(self) -> Iterator[bytes]:
        """A few names that keys of this family may have; none where what the captures may hold is not guessed."""
        names = (self.format(dict.fromkeys(self.captures, probe)) for probe in _PROBES)
        return filter(self.matches, names)


def _split(template: str) -> list[tuple[bytes, str | None]]:
    parts: list[tuple[bytes, str | None]] = []
    text = b""
    try:
        for literal, name, spec, conversion in Formatter().parse(template):
            text += literal.encode()
            if name is None:
                continue
            if spec or conversion or not name.isidentifier():
                raise ValueError(f"{{{name}}} is not a plain name")
            parts.append((text, name))
            text = b""
    except ValueError as error:
        raise ValueError(f"template {template!r}: {error}") from None
    if text or not parts:
        parts.append((text, None))
    return parts


def _check(template: str, captures: tuple[str, ...], patterns: Mapping[str, str]) -> None:
    if not template:
        raise ValueError("a template cannot be empty")
    if len(set(captures)) != len(captures):
        raise ValueError(f"template {template!r} names a capture twice")
    for name, pattern in patterns.items():
        if name not in captures:
            raise ValueError(f"template {template!r} has no capture {name!r}")
        if re.compile(pattern).groups:
            raise ValueError(f"the pattern of {name!r} must not have groups of its own; write (?:…)")


def _escape_glob(text: bytes) -> bytes:
    return re.sub(rb"([*?\[\]\\^])", rb"\\\1", text)
