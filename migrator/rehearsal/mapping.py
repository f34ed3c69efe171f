"""Every record through the mapping, there and back, in memory: it shows what the engine cannot see.

The engine compares the new shape with what the mapping makes of the old one, so a wrong mapping is equal to itself. The
way back by the backup gives the old bytes whatever the mapping forgot. What shows it is the inverse, and a reader.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from migrator.client import ResponseError, checked
from migrator.engine import indexes
from migrator.engine.backfill import PAGE_KEYS, PAGE_MEMBERS
from migrator.engine.batches import key_batches
from migrator.engine.copy import TOO_LARGE, foreign_type
from migrator.engine.plan import REJECTED
from migrator.engine.run import Run
from migrator.errors import Unmappable
from migrator.keys import Kind
from migrator.moves.family import Family, Member, Pair
from migrator.moves.loss import undeclared
from migrator.moves.values import from_reply, members_from_page, read_each, scan_words
from migrator.rehearsal.findings import Differences, Reasons

NOTHING = "the new shape is empty, so the record goes"


@dataclass
class Mapped:
    """What the mapping of one migration made of every record. `unjudged` came back otherwise than they were, and their
    move declares its losses in words only."""

    records: int = 0
    mapped: int = 0
    unjudged: int = 0
    rejected: Reasons = field(default_factory=Reasons)
    noted: Reasons = field(default_factory=Reasons)
    differences: Differences = field(default_factory=Differences)
    repairs: indexes.Repairs = field(default_factory=indexes.Repairs)

    def reject(self, pair: Pair, member: bytes | None, reason: str) -> None:
        self.rejected.add(reason, pair.old, member)

    def differ(self, pair: Pair, member: bytes | None, verdict: str, why: str) -> None:
        self.differences.add(pair.old, member, verdict, why)


def map_all(run: Run) -> Mapped:
    """Maps every record of a migration and back. Reads only; holds one batch in memory."""
    found = Mapped(repairs=indexes.repairs(run, REJECTED))
    for family in run.families:
        run.observer.begin(f"{run.id}: map", None)
        visit = _members if family.by_member else _keys
        for keys in run.client.pages(family.old_glob, PAGE_KEYS):
            pairs = [pair for key in keys if (pair := family.from_old(key)) is not None]
            before = found.records
            visit(run, family, pairs, found)
            run.observer.advance(found.records - before)
            run.stop.check()
        run.observer.end()
    return found


def _keys(run: Run, family: Family, pairs: Sequence[Pair], found: Mapped) -> None:
    kind = family.kinds["old"]
    too_large: list[Pair] = []
    for batch in key_batches(run, family, "old", pairs, too_large):
        replies = read_each(run.client, kind, [pair.old for pair in batch])
        mapped: list[tuple[Pair, Any, Any]] = []
        for pair, reply in zip(batch, replies, strict=True):
            if isinstance(reply, ResponseError):
                _odd(run, family, pair, found)
            elif reply is not None and reply != []:
                found.records += 1
                value = from_reply(kind, reply)
                if (new := _KeyTry(family, pair, found).play(value)) is not None:
                    mapped.append((pair, value, new))
        found.repairs.add(indexes.wrong_of(run, family, mapped))
    for pair in too_large:
        found.records += 1
        found.reject(pair, None, TOO_LARGE)


def _members(run: Run, family: Family, pairs: Sequence[Pair], found: Mapped) -> None:
    kind = family.kinds["old"]
    for pair in pairs:
        for members in _pages(run, family, kind, pair, found):
            found.records += len(members)
            _MemberTry(family, pair, found).page(members)
            run.stop.check()


def _pages(run: Run, family: Family, kind: Kind, pair: Pair, found: Mapped) -> Iterator[list[Member]]:
    cursor = b""
    while cursor != b"0":
        reply = run.client.run_one(pair.old, *scan_words(kind, pair.old, int(cursor or 0), PAGE_MEMBERS))
        if isinstance(reply, ResponseError) and str(reply).startswith("WRONGTYPE"):
            _odd(run, family, pair, found)
            return
        cursor, flat = checked(reply)
        yield members_from_page(kind, flat)


def _odd(run: Run, family: Family, pair: Pair, found: Mapped) -> None:
    """Under the source template and of another type; the target's, where both have one name, is right."""
    is_type = run.client.one(pair.old, "TYPE", pair.old).decode()
    if not (family.same_name and is_type == family.kinds["new"]):
        found.records += 1
        found.reject(pair, None, foreign_type(is_type))


@dataclass
class _Try:
    """One record: what it becomes, whether that can be read, and what comes back of it."""

    family: Family
    pair: Pair
    found: Mapped

    def __post_init__(self) -> None:
        self.move = self.family.move
        self.fault = self.family.fault(self.pair)

    def judge(self, member: bytes | None, old: Any, again: Any) -> None:
        try:
            parts = undeclared(self.move, old, again)
        except Exception as error:  # `lost` is somebody's code, and its message may hold a value
            parts = [f"`lost` of the move failed: {type(error).__name__}"]
        if parts is None:
            self.found.unjudged += 1
        elif parts:
            self.found.differ(self.pair, member, "lost", f"the inverse does not give back: {', '.join(parts)}")

    def read(self, member: bytes | None, *value: Any) -> None:
        if self.move.reader is None:
            return
        reader: Any = self.move.reader
        try:
            reader(self.pair.key, *value)
        except Unmappable as error:
            self.found.differ(self.pair, member, "reader", f"a reader of the new shape refuses it: {error.reason}")
        except Exception as error:
            why = f"a reader of the new shape fails on it: {type(error).__name__}"
            self.found.differ(self.pair, member, "reader", why)

    def broken(self, member: bytes | None, why: str) -> None:
        self.found.differ(self.pair, member, "law", f"the inverse breaks the law: {why}")


_OTHERWISE = "forward(inverse(forward(x))) is not forward(x)"


class _KeyTry(_Try):
    def play(self, old: Any) -> Any:
        """Tries one record; its new value, None if it has none."""
        family, pair, found = self.family, self.pair, self.found
        try:
            if self.fault:
                raise Unmappable(self.fault)
            new, notes = family.map_key(pair, old)
        except Unmappable as error:
            found.reject(pair, None, error.reason)
            return None
        found.mapped += 1
        for note in notes:
            found.noted.add(note, pair.old)
        if not new and family.kinds["new"] != "string":
            found.noted.add(NOTHING, pair.old)
            return new
        self.read(None, new)
        if self.move.inverse is not None:
            self._back(old, new)
        return new

    def _back(self, old: Any, new: Any) -> None:
        family, pair = self.family, self.pair
        try:
            again = family.unmap_key(pair, new)
            if again == old:
                return  # to the byte: nothing is lost, and a pure function makes the same of it again
            if family.map_key(pair, again)[0] != new:
                self.broken(None, _OTHERWISE)
                return
        except Unmappable as error:
            self.broken(None, error.reason)
            return
        self.judge(None, old, again)


class _MemberTry(_Try):
    def page(self, members: Sequence[Member]) -> None:
        """Many at once: what maps and comes back exactly as it was needs no other look."""
        values = dict(members)
        entries, odd = self.family.map_page(self.pair, members)
        self.found.mapped += len(entries)
        for value, new, name in entries:
            self.read(name, new, value)
            if self.move.inverse is not None and not self._returns(name, values[name], new, value):
                self._back((name, values[name]), (new, value))
        for member in odd:
            self.play(member)

    def _returns(self, name: bytes, old: Any, new: bytes, value: Any) -> bool:
        """Whether it comes back, and as much of it as has to: the same checks as those of `_back`, only faster."""
        forward, inverse, key = self.move.forward, self.move.inverse, self.pair.key
        try:
            again: Any = inverse(key, new, value)  # type: ignore[misc,call-arg] # that of a MemberMove
            if (type(again), len(again), type(again[0]), type(again[1])) != (tuple, 2, bytes, type(old)):
                return False
            if again == (name, old):
                return True
            if again[0] != name or forward(key, *again) != (new, value):
                return False
        except Exception:  # whatever it is, it is met again where it is told
            return False
        self.judge(name, old, again[1])
        return True

    def play(self, old: Member) -> None:
        family, pair, found = self.family, self.pair, self.found
        name, value = old
        try:
            if self.fault:
                raise Unmappable(self.fault)
            new = family.map_member(pair, name, value)
        except Unmappable as error:
            found.reject(pair, name, error.reason)
            return
        found.mapped += 1
        self.read(name, *new)
        if self.move.inverse is not None:
            self._back(old, new)

    def _back(self, old: Member, new: Member) -> None:
        family, pair, name = self.family, self.pair, old[0]
        try:
            again = family.unmap_member(pair, *new)
            if again[0] != name:
                self.broken(name, "it comes back under another name")
                return
            if family.map_member(pair, *again) != new:
                self.broken(name, _OTHERWISE)
                return
        except Unmappable as error:
            self.broken(name, error.reason)
            return
        self.judge(name, old[1], again[1])
