"""The steps of `Timestamps`: exact ticks for the hash, their doubles for the sorted set."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain

from migrator.adapters.bridge import Bridge
from migrator.adapters.core import Steps
from migrator.adapters.members import MANY, Captures, MembersCore
from migrator.adapters.outcomes import Batch, Found, Missing, Unmoved
from migrator.adapters.window import Entry, WindowCore, anew, ask_window, read_set, scan_old
from migrator.errors import Unmappable, UsageError
from migrator.moves.family import Pair
from migrator.records.ticks import MAX_TICKS, UNIX_EPOCH_TICKS

Time = int | datetime
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Stamp:
    """A member and its time in ticks: exact before the switch, to 128 ticks (12.8 µs) from then on."""

    member: bytes
    ticks: int


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a reader has come: the end of its last window, and the members it was given at just that time."""

    ticks: int
    seen: frozenset[bytes] = frozenset()


def to_ticks(time: Time) -> int:
    """Whole 100 ns steps since the year 1, UTC. Raises UsageError for a datetime without a zone."""
    if not isinstance(time, datetime):
        return time
    if time.tzinfo is None:
        raise UsageError("a datetime without a time zone", next="use datetime.now(UTC), or ticks")
    return UNIX_EPOCH_TICKS + (time - _UNIX_EPOCH) // timedelta(microseconds=1) * 10


class TimestampsCore(MembersCore):
    """The steps of each method."""

    def __init__(self, bridge: Bridge) -> None:
        super().__init__(bridge)
        kinds = self._family.kinds
        if kinds != {"old": "hash", "new": "zset"}:
            raise UsageError(f"{bridge.id} goes from {kinds['old']} to {kinds['new']}; timestamps go from hash to zset",
                             next="use Members")  # fmt: skip

    def stamp(self, times: Iterable[tuple[bytes, Time]], captures: Captures) -> Steps[tuple[Batch, int]]:
        """The hash holds the exact ticks, which the inverse of a score could not give."""
        pair = self.bridge.pair(captures)
        olds = [(self.old_name(pair, member), b"%d" % to_ticks(time), member) for member, time in times]
        return (yield from self.write(pair, olds))

    def ticks(self, member: bytes, captures: Captures) -> Steps[Found | Missing | Unmoved]:
        pair = self.bridge.pair(captures)
        old_name = self.old_name(pair, member)
        answer = yield from self.bridge.ask(pair, "adapter_members_get", (old_name, member), writes=False)
        shape, expiry, (raw,) = answer.rest
        if raw is None:
            return Missing(answer.epoch)
        if raw == 1:
            return Unmoved(answer.epoch)
        entry = read_set([member, raw])[0] if shape == b"new" else Entry(
            *self._family.map_member(pair, old_name, raw), old_name, raw)  # fmt: skip
        self._check_name(entry.name, member)
        return Found(self.exact(pair, entry), None if expiry < 0 else expiry, answer.epoch)

    def exact(self, pair: Pair, entry: Entry) -> int:
        """Ticks of an entry. Raises Unmappable for a score that is none."""
        old = entry.was if entry.old is not None else self._family.unmap_member(pair, entry.name, entry.score)[1]
        return int(old)

    def due(self, after: Time | Mark, until: Time, limit: int, captures: Captures) -> DueCore:
        pair = self.bridge.pair(captures)
        mark, end = after if isinstance(after, Mark) else Mark(to_ticks(after)), to_ticks(until)
        if limit < 1:
            raise UsageError(f"a page of {limit} members")
        low, high = self._score(pair, mark.ticks), self._score(pair, end)
        window = WindowCore(self.bridge, pair, low, high, min(limit, MANY), mark.seen)
        return DueCore(self, pair, window, mark, end)

    def count(self, after: Time, until: Time, captures: Captures) -> Steps[int]:
        pair = self.bridge.pair(captures)
        low, high = self._score(pair, to_ticks(after)), self._score(pair, to_ticks(until))

        def walk() -> Steps[int]:
            answer = yield from ask_window(self.bridge, pair, 0, "count", low, high, 0)
            if answer.rest[0] == b"new":
                return int(answer.rest[1])
            found: set[bytes] = set()

            def take(page: list[Entry]) -> None:
                found.update(entry.name for entry in page)

            yield from scan_old(self.bridge, pair, answer, low, high, take)
            return len(found)

        return (yield from anew(walk))

    def latest(self, number: int, captures: Captures) -> Steps[list[Stamp]]:
        pair, low, high = self.bridge.pair(captures), float("-inf"), float("inf")
        if not 1 <= number <= MANY:
            raise UsageError(f"the latest {number}: 1 to {MANY} can be asked for")

        def walk() -> Steps[list[Stamp]]:
            answer = yield from ask_window(self.bridge, pair, 0, "down", low, high, number)
            if answer.rest[0] == b"new":
                return self.stamps(pair, read_set(answer.rest[1]))
            found: list[Entry] = []

            def take(page: list[Entry]) -> None:
                once = {entry.name: entry for entry in chain(found, page)}.values()
                found[:] = heapq.nlargest(number, once, key=lambda entry: (entry.score, entry.name))

            yield from scan_old(self.bridge, pair, answer, low, high, take)
            return self.stamps(pair, found)

        return (yield from anew(walk))

    def stamps(self, pair: Pair, entries: Iterable[Entry]) -> list[Stamp]:
        """What is no ticks is passed over: verify names it."""
        found: list[Stamp] = []
        for entry in entries:
            try:
                found.append(Stamp(entry.name, self.exact(pair, entry)))
            except Unmappable:
                continue
        return found

    def _score(self, pair: Pair, ticks: int) -> float:
        """A bound as the mapping scores it, so that both shapes are compared as the same doubles."""
        return float(self._family.map_member(pair, b"0", b"%d" % min(max(ticks, 0), MAX_TICKS))[1])


class DueCore:
    """One pass over a window of time, from a mark to a time in ticks."""

    def __init__(self, owner: TimestampsCore, pair: Pair, window: WindowCore, start: Mark, end: int) -> None:
        self._owner, self._pair, self._window, self._start, self._end = owner, pair, window, start, end

    def page(self) -> Steps[list[Stamp]]:
        """The next members that are due; none once the window is done."""
        while entries := (yield from self._window.page()):
            if found := self._owner.stamps(self._pair, entries):
                return found
        return []

    @property
    def mark(self) -> Mark:
        """Where the next window begins: where this one ends, never earlier. Raises UsageError before it is read."""
        if not self._window.done:
            raise UsageError("the window is not read to its end: what is left would be lost", next="read all its pages")
        return Mark(self._end, frozenset(self._window.last)) if self._end >= self._start.ticks else self._start
