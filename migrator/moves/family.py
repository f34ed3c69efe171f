"""Where the two shapes of each record of a move live, and what its mapping makes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, Literal, NamedTuple, Protocol

from migrator.errors import Unmappable
from migrator.keys import Key, Kind, slot_of, slot_tags
from migrator.moves.migration import Move
from migrator.moves.move import NOW, Index, KeyMove, Mapped, MemberMove, Now
from migrator.moves.values import MAX_ELEMENTS, MAX_MEMBER, MemberValue, Value, check_member_value, check_value
from migrator.names import Names

Side = Literal["old", "new"]
Entry = tuple[MemberValue, bytes, bytes]  # a member: its value and its name in the new shape, its name in the old
Member = tuple[bytes, MemberValue]
TOO_LARGE_MEMBER = "too-large: more than 16 MB in one member"
COLLISION = "collision: another member maps to the same name"
AMBIGUOUS = "ambiguous: the target key does not lead back to its source"


class Slots(Protocol):
    """What a family has to know of a Redis: a cluster has 16384 slots, a single server one, 0."""

    def slot(self, key: bytes) -> int: ...
    def slot_tag(self, slot: int) -> bytes: ...


class OneSlot:
    """A single server."""

    def slot(self, key: bytes) -> int:  # noqa: ARG002 - a single server is one slot
        return 0

    def slot_tag(self, slot: int) -> bytes:  # noqa: ARG002
        return b"0"


class AllSlots:
    """A cluster."""

    def slot(self, key: bytes) -> int:
        return slot_of(key)

    def slot_tag(self, slot: int) -> bytes:
        return slot_tags()[slot]


class Pair(NamedTuple):
    """The names of one record's two shapes while both exist; `key` is its source key, parsed."""

    key: Key
    old: bytes
    new: bytes


class Family:
    """One move of a migration on one Redis."""

    def __init__(self, slots: Slots, names: Names, id: str, move: Move) -> None:
        self._slots = slots
        self.move = move
        self.by_member = isinstance(move, MemberMove)
        self.same_name = isinstance(move, KeyMove) and move.same_name
        self.kinds: dict[Side, Kind] = {"old": move.source.kind, "new": move.target.kind}
        self.mode = "members" if self.by_member else "swap" if self.same_name else "key"
        # Without either, `map_member` has names stay as they are; with one of them, a new name may hold the old value.
        self.keeps_names = isinstance(move, MemberMove) and move.origin is None and move.inverse is None
        # Then what a new member comes from depends on its value: of two that become it, each looks right by itself.
        self.by_inverse = isinstance(move, MemberMove) and move.origin is None and move.inverse is not None
        self._staged, self._retired = names.beside("staged", id), names.beside("old", id)
        self._prefix = names.prefix
        self._exact = not self.same_name and move.target.reads_back(move.source) and not self._may_be_ours()

    @property
    def old_glob(self) -> bytes:
        return self.move.source.glob

    @property
    def new_glob(self) -> bytes:
        return self._staged.glob if self.same_name else self.move.target.glob

    def retired_glob(self) -> bytes:
        return self._retired.glob

    def from_old(self, name: bytes) -> Pair | None:
        """The record a source key belongs to; None for a key that is not one of this family, or is our own."""
        if name.startswith(self._prefix):
            return None
        key = self.move.source.parse(name)
        if key is None:
            return None
        return Pair(key, name, self._staged.name(name, self._tag) if self.same_name else self.move.target.format(key))

    def from_new(self, name: bytes) -> Pair | None:
        """The record a target (or staged) key belongs to."""
        if self.same_name:
            source = self._staged.key(name)
            return self.from_old(source) if source is not None else None
        if name.startswith(self._prefix):
            return None
        target = self.move.target.parse(name)
        pair = self.from_old(self.move.source.format(target)) if target is not None else None
        return pair if pair is not None and pair.new == name else None  # of another name nothing was ever made

    def has_old(self, name: bytes) -> bool:
        """Whether `from_old` knows the record, without making it."""
        return not name.startswith(self._prefix) and self.move.source.matches(name)

    def has_new(self, name: bytes) -> bool:
        """Whether `from_new` knows the record, without making it."""
        if self.same_name:
            source = self._staged.key(name)
            return source is not None and self.has_old(source)
        return self.from_new(name) is not None

    def from_retired(self, name: bytes) -> Pair | None:
        source = self._retired.key(name)
        return self.from_old(source) if source is not None else None

    def retired(self, pair: Pair) -> bytes:
        return self._retired.name(pair.key.raw, self._tag)

    def aside(self, pair: Pair) -> bytes:
        """Where a collection that is put back comes together. Else only records of the new shape are staged, where both
        have one name: they have to be gone by then."""
        return self._staged.name(pair.key.raw, self._tag)

    def fault(self, pair: Pair) -> str:
        """Why this record cannot move at all, whatever it holds; else empty."""
        if self.same_name:
            return ""  # a staged name is in the slot of its key, and matches no source template
        if self._slots.slot(pair.old) != self._slots.slot(pair.new):
            return "cross-slot: source and target are in different cluster slots"
        if self.move.source.parse(pair.new) is not None:
            return "the target key matches the source template"
        return "" if self._exact or self.leads_back(pair) else AMBIGUOUS

    def leads_back(self, pair: Pair) -> bool:
        """Whether its target key is found again from the other side, and is that of no other record."""
        if pair.new.startswith(self._prefix):
            return False
        target = self.move.target.parse(pair.new)
        return target is not None and self.move.source.format(target) == pair.old

    def _may_be_ours(self) -> bool:
        """Whether a target key could begin like our own."""
        head = self.move.target.head
        return head.startswith(self._prefix) or self._prefix.startswith(head)

    def _tag(self, key: bytes) -> bytes:
        return self._slots.slot_tag(self._slots.slot(key))

    # The mapping, with what it returns checked: a mapping is somebody's code.

    def map_key(self, pair: Pair, value: Value) -> tuple[Value, tuple[str, ...]]:
        """forward(old) and its notes. Raises Unmappable."""
        mapped, notes = _call(self.move.forward, pair.key, value)
        return _sound(self.move.target.kind, mapped), notes

    def unmap_key(self, pair: Pair, value: Value) -> Value:
        """inverse(new). Raises Unmappable, also where there is no inverse."""
        if self.move.inverse is None:
            raise Unmappable("there is no inverse")
        mapped, _ = _call(self.move.inverse, pair.key, value)
        return _sound(self.move.source.kind, mapped)

    def map_member(self, pair: Pair, name: bytes, value: MemberValue) -> tuple[bytes, MemberValue]:
        (new_name, new_value), _ = _entry(self.move.forward, self.move.target.kind, pair.key, *_bounded(name, value))
        if self.origin(pair, new_name, new_value) != name:
            raise Unmappable(COLLISION)
        return _bounded(new_name, new_value)

    def map_page(self, pair: Pair, members: Sequence[Member]) -> tuple[list[Entry], list[Member]]:
        """Many members, and those among them that `map_member` is to be asked about: the same checks, only faster."""
        key, like = pair.key, _LIKE[self.kinds["new"]]
        if self.fault(pair):
            return [], list(members)
        forward: Any = self.move.forward
        origin = self._naming(pair)
        entries, odd = [], []
        for member in members:
            name, value = member
            try:
                new, mapped = forward(key, name, value)
                # Of exactly the type, and no nan; anything else may still be right.
                sound = type(new) is bytes and type(mapped) is like and mapped == mapped  # noqa: PLR0124
                if sound and origin(new, mapped) == name:
                    entries.append((mapped, new, name))
                    continue
            except Exception:
                pass  # whatever it is, map_member meets it again and says so
            odd.append(member)
        return entries, odd

    def unmap_member(self, pair: Pair, name: bytes, value: MemberValue) -> tuple[bytes, MemberValue]:
        return _bounded(*self._inverse(pair, *_bounded(name, value)))

    def _inverse(self, pair: Pair, name: bytes, value: MemberValue) -> tuple[bytes, MemberValue]:
        if self.move.inverse is None:
            raise Unmappable("there is no inverse")
        entry, _ = _entry(self.move.inverse, self.move.source.kind, pair.key, name, value)
        return entry

    def become(self, pair: Pair, olds: Sequence[bytes], values: Sequence[MemberValue], names: list[bytes]) -> bool:
        """Whether old members become new ones of just these names; False where that is not plain."""
        if self.keeps_names:
            return True
        forward: Any = self.move.forward
        try:
            return list(map(_NAME, map(forward, repeat(pair.key), olds, values))) == names
        except Exception:  # whatever it is, map_member meets it from the old side and says so
            return False

    def strays(self, pair: Pair, names: Sequence[bytes], olds: Sequence[Member | None]) -> list[bool]:
        """Of new members, each with the old one it comes from, if that is there: whether that becomes another one, or
        cannot be mapped."""
        if self.keeps_names:
            return [old is None for old in olds]
        key, found = pair.key, list[bool]()
        forward: Any = self.move.forward
        for name, old in zip(names, olds, strict=True):
            if old is None:
                found.append(True)
                continue
            try:
                made = forward(key, *old)
                found.append((made.value if type(made) is Mapped else made)[0] != name)
            except Exception:  # whatever it is, map_member meets it and says so
                found.append(True)
        return found

    def origins(
        self, pair: Pair, members: Sequence[tuple[bytes, Any]], read: Callable[[Any], MemberValue] = lambda value: value
    ) -> list[bytes]:
        """The source members that many target members come from. Where none can be said, the very name: it is extra,
        unless an old member of that name becomes it. `read` makes a value of what is given; only where a name depends
        on it."""
        origin: Any = self._naming(pair)
        found: list[bytes] = []
        for name, value in members:
            try:
                was = origin(name, read(value) if self.by_inverse else None)
            except Exception:  # somebody else wrote that member, and `origin` need not know its name
                was = name
            found.append(was if isinstance(was, bytes) else name)
        return found

    def origin(self, pair: Pair, new_name: bytes, new_value: MemberValue) -> bytes:
        """The source member that a target member comes from. Raises Unmappable."""
        was, _ = _call(self._naming(pair), new_name, new_value)
        if not isinstance(was, bytes):
            raise Unmappable("the origin of a member is not bytes")
        return was

    def membership(self, index: Index[Any], pair: Pair, new: Value) -> tuple[bytes, float | Literal[Now.NOW] | None]:
        """The member of a record, given in the new shape, in that index, and the score it should have there: None for
        none. Raises Unmappable."""
        score, _ = _call(index.score, pair.key, new)
        member, _ = _call(index.member, pair.key)
        if score is not None and score is not NOW and (fault := check_member_value("zset", score)):
            raise Unmappable(f"the index has {fault}")
        if not isinstance(member, bytes):
            raise Unmappable("the index has a member that is not bytes")
        return member, score

    def _naming(self, pair: Pair) -> Callable[[bytes, MemberValue], bytes]:
        """`origin` for the members of one collection."""
        key, named = pair.key, self._named
        if named is not None:
            return lambda new, _: named(key, new)
        if self.move.inverse is not None:
            return lambda new, value: self._inverse(pair, new, value)[0]
        return lambda new, _: new

    @property
    def _named(self) -> Callable[[Key, bytes], bytes] | None:
        assert isinstance(self.move, MemberMove)
        return self.move.origin


_NAME = itemgetter(0)  # of a member
_ONLY_FLOATS = frozenset({float})
_LIKE: dict[Kind, type] = {"zset": float, "hash": bytes, "set": type(None)}


def _call(function: Any, *args: Any) -> tuple[Any, tuple[str, ...]]:
    try:
        result = function(*args)
    except Unmappable:
        raise
    except Exception as error:
        # The message of the error may hold a value of the record; its class does not.
        raise Unmappable(f"the mapping failed: {type(error).__name__}") from error
    return (result.value, result.notes) if isinstance(result, Mapped) else (result, ())


def _sound(kind: Kind, value: Value) -> Value:
    fault = check_value(kind, value)
    if fault:
        raise Unmappable(f"the mapping returned {fault} for a {kind}")
    if kind != "string" and len(value) > MAX_ELEMENTS:
        raise Unmappable(f"too-large: the mapping makes more than {MAX_ELEMENTS:,} elements of one key")
    # What Redis keeps of a whole number is a double too.
    if kind == "zset" and not _ONLY_FLOATS.issuperset(map(type, value.values())):
        return {member: float(score) for member, score in value.items()}
    return value


def _bounded(name: bytes, value: MemberValue) -> Member:
    """The same member; a larger one cannot be given to a script. Raises Unmappable."""
    if len(name) + (len(value) if isinstance(value, bytes) else 0) > MAX_MEMBER:
        raise Unmappable(TOO_LARGE_MEMBER)
    return name, value


def _entry(
    function: Any, kind: Kind, key: Key, name: bytes, value: MemberValue
) -> tuple[tuple[bytes, MemberValue], tuple[str, ...]]:
    result, notes = _call(function, key, name, value)
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], bytes)):
        raise Unmappable("the mapping did not return a pair of a name (bytes) and a value")
    fault = check_member_value(kind, result[1])
    if fault:
        raise Unmappable(f"the mapping returned {fault} for a {kind}")
    return (result[0], float(result[1]) if kind == "zset" else result[1]), notes
