"""The moves: what becomes of one key, or of one member of a collection."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from migrator.keys import Key, Keys

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")


class Mapped(NamedTuple, Generic[R]):
    """A mapped value with notes on what was assumed; notes never repeat a value of the record."""

    value: R
    notes: tuple[str, ...] = ()


class Now(Enum):
    """The score of an index entry that is set to the moment of its repair (unix seconds)."""

    NOW = "now"


NOW = Now.NOW


@dataclass(frozen=True, kw_only=True)
class Index(Generic[T]):
    """Membership of a sorted set that follows from a record.

    `score` gets the new shape and returns the score the member should have, `NOW` for the time of the repair, or
    None if the record should not be a member. Repairs are listed in the plan and made only with `--repair-indexes`.
    """

    keys: Keys[dict[bytes, float]]
    member: Callable[[Key], bytes]
    score: Callable[[Key, T], float | Literal[Now.NOW] | None]

    def __post_init__(self) -> None:
        if self.keys.kind != "zset" or self.keys.captures:
            raise ValueError("an index is one sorted set: Keys('name', type='zset')")


@dataclass(frozen=True, kw_only=True)
class KeyMove(Generic[S, T]):
    """One bounded key (at most 16 MB and 20,000 elements, in either shape) becomes one key.

    `forward(key, value)` returns the new value, or `Mapped(value, notes)`, or raises `Unmappable`. An empty
    collection is the same as no key. Where source and target have one template, the new record is built under a
    staged name and takes the final name during contract.

    The law of `inverse`: `forward(inverse(forward(x))) == forward(x)`. What it cannot give back stands in
    `losses`, what an operator has to know before `expand` in `risks`; the plan says both.

    Two more are asked only where a plan is tried on a snapshot. `reader(key, new)` reads a new value as the application
    will, and raises where it could not. `lost(old, again)` names what `again`, which is `inverse(forward(old))`, lacks
    of `old` and `losses` does not declare; names of parts, never their content. See `migrator.moves.loss`.
    """

    source: Keys[S]
    target: Keys[T]
    forward: Callable[[Key, S], T | Mapped[T]]
    inverse: Callable[[Key, T], S | Mapped[S]] | None = None
    losses: tuple[str, ...] = ()
    risks: tuple[str, ...] = ()
    indexes: tuple[Index[T], ...] = ()
    reader: Callable[[Key, T], object] | None = None
    lost: Callable[[S, S], Iterable[str]] | None = None

    def __post_init__(self) -> None:
        _check_captures(self.source, self.target)
        if self.same_name and self.source.kind == self.target.kind:
            raise ValueError("source and target are the same keys of the same type: there is nothing to move")

    @property
    def same_name(self) -> bool:
        return self.source.template == self.target.template


@dataclass(frozen=True, kw_only=True)
class MemberMove(Generic[S, T]):
    """One member of a collection of any size becomes one member of another collection.

    A member is a field and its value (hash), a member and its score (zset), or a member and None (set).
    `forward(key, member, value)` returns the new `(member, value)` or raises `Unmappable`. Member names must be
    invertible: by `inverse`, or else by `origin(key, new_member)`; without either, names do not change. A new name may
    hold the old value (`field=value`): then a new member that its old one does not become any more is an extra.
    `reader(key, member, value)` and `lost(old_value, again)` are those of a KeyMove, for one member.
    """

    source: Keys[Any]
    target: Keys[Any]
    forward: Callable[[Key, bytes, Any], tuple[bytes, Any] | Mapped[tuple[bytes, Any]]]
    inverse: Callable[[Key, bytes, Any], tuple[bytes, Any]] | None = None
    origin: Callable[[Key, bytes], bytes] | None = None
    losses: tuple[str, ...] = ()
    risks: tuple[str, ...] = ()
    reader: Callable[[Key, bytes, Any], object] | None = None
    lost: Callable[[Any, Any], Iterable[str]] | None = None

    def __post_init__(self) -> None:
        _check_captures(self.source, self.target)
        for keys in (self.source, self.target):
            if keys.kind not in ("hash", "zset", "set"):
                raise ValueError(f"a MemberMove goes between hashes, sorted sets and sets, not {keys.kind}s")
        if self.source.template == self.target.template:
            raise ValueError("a MemberMove needs a target of another name")


def _check_captures(source: Keys[Any], target: Keys[Any]) -> None:
    if set(source.captures) != set(target.captures):
        raise ValueError(
            f"source {source.template!r} and target {target.template!r} must have the same captures, "
            "so that each can be found from the other"
        )
