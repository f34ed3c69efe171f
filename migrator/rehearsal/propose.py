"""Values an application might write: made from those a snapshot holds, and only such as the mapping carries there and
back unchanged. Pure."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from migrator.errors import Unmappable
from migrator.keys import GUID
from migrator.moves.family import Family, Member, Pair
from migrator.moves.values import Value

_GUID = re.compile(GUID.encode())


class Proposals:
    """New values and new names for records of one move. All of a value are of the new shape."""

    def __init__(self, family: Family) -> None:
        self._family = family
        self._field: bytes | None = None  # of a hash: where free text may stand, once that is known

    def changed(self, pair: Pair, value: Value, number: int) -> Value | None:
        """The value with `number` in it, so that it tells which write it was; None where no way is known."""
        for made in self._changes(value, b"rehearsal %d" % number):
            if self.sound(pair, made):
                return made
        return None

    def _changes(self, value: Value, text: bytes) -> Iterator[Value]:
        if isinstance(value, bytes):
            yield from (text, value + b" " + text, value + text.rpartition(b" ")[2])
        elif isinstance(value, list):
            yield [*value, text]
        elif isinstance(value, (set, frozenset)):
            yield {one for one in value if not one.startswith(b"rehearsal ")} | {text}
        elif isinstance(value, dict):
            yield from self._fields(value, text)

    def _fields(self, value: Mapping[bytes, Any], text: bytes) -> Iterator[Value]:
        for name in [self._field] if self._field in value else list(value):
            if name is None or isinstance(value[name], float):
                continue
            self._field = name
            yield {**value, name: text}
            yield {**value, name: b'"' + text + b'"'}
            self._field = None
        if value and isinstance(next(iter(value.values())), float):
            yield {**value, text: 1.0}

    def another(self, pair: Pair, value: Value, number: int) -> tuple[Pair, Value] | None:
        """A record that is not there yet, like this one; None where no way is known."""
        for name in reversed(list(pair.key)):
            old = pair.key[name]
            new = _fresh(old, number)
            made = self._family.from_old(self._family.move.source.format({**pair.key, name: new}))
            if made is not None and self.sound(made, replaced := _replaced(value, old, new)):
                return made, replaced
        return None

    def sound(self, pair: Pair, value: Value) -> bool:
        """Whether the mapping gives just this value again for what its inverse makes of it."""
        try:
            old = self._family.unmap_key(pair, value)
            return bool(value and old and self._family.map_key(pair, old)[0] == value)
        except Unmappable:
            return False

    def member(self, pair: Pair, member: Member, number: int) -> Member | None:
        """The member with another value; None where no way is known, as for a set, whose members have none."""
        name, value = member
        made: list[Any] = []
        if isinstance(value, float):
            made = [value + step * number for step in (1, 128, 1280)]
        elif isinstance(value, bytes):
            made = [b"rehearsal %d" % number, b"%d" % number]
        return next((m for m in ((name, one) for one in made) if one_sound(self._family, pair, m)), None)

    def new_member(self, pair: Pair, member: Member, number: int) -> Member | None:
        """A member that is not there yet, with the value of this one."""
        for name in (b"rehearsal-%d" % number, _fresh(member[0], number)):
            if one_sound(self._family, pair, made := (name, member[1])):
                return made
        return None


def one_sound(family: Family, pair: Pair, member: Member) -> bool:
    """The same for a member."""
    try:
        return bool(family.map_member(pair, *family.unmap_member(pair, *member)) == member)
    except Unmappable:
        return False


def _fresh(old: bytes, number: int) -> bytes:
    if _GUID.fullmatch(old):
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"rehearsal {number}")).encode()
    return b"9%011d" % number if old.isdigit() else b"rehearsal-%d" % number


def _replaced(value: Value, old: bytes, new: bytes) -> Value:
    if isinstance(value, bytes):
        return value.replace(old, new)
    if isinstance(value, dict):
        return {n: v.replace(old, new) if isinstance(v, bytes) else v for n, v in value.items()}
    return type(value)(one.replace(old, new) for one in value)
