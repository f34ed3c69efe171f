"""Pages over a window of scores, in order and with inclusive edges, whichever shape is the truth.

From the switch on a page is one read of the sorted set. Before it the old collection has no order: it is scanned once,
the members inside the window are remembered, and each page reads them again as they are by then. If the epoch changes
in between, or another process answers in the middle of a scan (its cursor means something only to the process that gave
it), the window starts again from its lower bound, so a member can come twice, but none is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from migrator.adapters.bridge import Answer, Bridge
from migrator.adapters.core import Steps
from migrator.client import Arg
from migrator.errors import RefusedError, Unmappable, UnreachableError
from migrator.moves.family import Pair
from migrator.moves.values import MemberValue, member_from_wire, members_from_page
from migrator.records.scores import format_score

R = TypeVar("R")

_SCAN_PAGE = 500
_AT_ONCE = 20_000  # members read in one step where the process cannot be known: some 50 ms of the server
_TIMES = 5  # that a walk begins, in all


@dataclass(frozen=True, slots=True)
class Entry:
    """A member of the new shape and its score; where the old shape is the truth, `old` and `was` are that member's
    name and value."""

    name: bytes
    score: float
    old: bytes | None = None
    was: MemberValue = None


def ask_window(
    bridge: Bridge, pair: Pair, cursor: int, order: str, low: float, high: float, limit: int, *after: bytes
) -> Steps[Answer]:
    args = (*page_from(cursor), order, format_score(low), format_score(high), limit, *after)
    return (yield from bridge.ask(pair, "adapter_window", args, writes=False))


def page_from(cursor: int) -> tuple[Arg, ...]:
    """What scripts that scan want to know."""
    return cursor, _SCAN_PAGE, _AT_ONCE


def read_set(flat: Sequence[bytes]) -> list[Entry]:
    """The entries of a reply of the sorted set, in its order."""
    return [Entry(name, score) for name, score in members_from_page("zset", flat)]


class ScanMovedError(Exception):
    """The epoch, or the process that answers, changed in the middle of a scan."""


def anew(walk: Callable[[], Steps[R]]) -> Steps[R]:
    """The result of a walk, which begins anew when it raises ScanMovedError; not for ever."""
    for _ in range(_TIMES):
        with suppress(ScanMovedError):
            return (yield from walk())
    raise UnreachableError(
        f"the phase or the server changed in each of {_TIMES} readings, and nothing was written", next="try again later"
    )


def scan(
    ask: Callable[[int], Steps[Answer]], key: bytes, first: Answer, take: Callable[[Sequence[bytes]], object]
) -> Steps[None]:
    """Gives `take` each page of a collection, flat, from the first one on; HSCAN may give a member twice. `ask`: the
    page at a cursor. Raises ScanMovedError, and RefusedError where INFO is denied and there are too many."""
    answer = first
    while True:
        take(answer.rest[2])
        cursor = int(answer.rest[1])
        if cursor == 0:
            return
        if not answer.rest[3]:
            raise RefusedError(
                f"{key!r} is read in many steps, and this user may not ask which process answers; nothing was written",
                next="grant +info in the ACL",
            )
        answer = yield from ask(cursor)
        if _truth(answer) != _truth(first):
            raise ScanMovedError


def _truth(answer: Answer) -> tuple[object, ...]:
    """Where a page comes from: the epoch, the shape, the process."""
    return (answer.epoch, answer.rest[0], *answer.rest[3:])


def scan_old(
    bridge: Bridge, pair: Pair, first: Answer, low: float, high: float, take: Callable[[list[Entry]], object]
) -> Steps[None]:
    """Gives `take` every old member inside the window, a page at a time; otherwise the same as `scan`."""

    def ask(cursor: int) -> Steps[Answer]:
        return ask_window(bridge, pair, cursor, "up", low, high, 0)

    def page(flat: Sequence[bytes]) -> None:
        members = members_from_page(bridge.family.kinds["old"], flat)
        take([entry for entry in _mapped(bridge, pair, members) if low <= entry.score <= high])

    yield from scan(ask, pair.old, first, page)


def _mapped(bridge: Bridge, pair: Pair, members: Iterable[tuple[bytes, MemberValue]]) -> list[Entry]:
    """What the mapping makes of old members; those in quarantine are passed over."""
    found: list[Entry] = []
    for name, value in members:
        try:
            found.append(Entry(*bridge.family.map_member(pair, name, value), name, value))
        except Unmappable:
            continue
    return found


class WindowCore:
    """One pass over a window. `skip` are members at its lower bound that were delivered before."""

    def __init__(
        self, bridge: Bridge, pair: Pair, low: float, high: float, limit: int, skip: frozenset[bytes] = frozenset()
    ) -> None:
        self._bridge, self._pair, self._limit = bridge, pair, limit
        self._low, self._high, self._skip = low, high, skip
        self._restart()

    def _restart(self) -> None:
        self._epoch: int | None = None
        # How far it has come: a score, the last member read there if any was, and those that were delivered there.
        self._edge, self._after, self._seen = self._low, tuple[bytes, ...](), set(self._skip)
        self.last: set[bytes] = set(self._skip) if self._low == self._high else set()
        self.done = self._low > self._high
        self._names: list[tuple[bytes, bytes]] | None = None  # old and new names to deliver, from the old shape
        self._at = 0  # how many of them have been

    def page(self) -> Steps[list[Entry]]:
        """The next members, at most `limit`; none once the window is done. After an error they are read again."""
        return (yield from anew(self._page))

    def scores(self) -> Steps[list[tuple[bytes, float]]]:
        """The same as names and scores."""
        return [(entry.name, entry.score) for entry in (yield from self.page())]

    def _page(self) -> Steps[list[Entry]]:
        try:
            while not self.done:
                found = yield from (self._from_names() if self._names is not None else self._next())
                self.last |= {entry.name for entry in found if entry.score == self._high}
                if found:
                    return found
        except ScanMovedError:
            self._restart()
            raise
        return []

    def _next(self) -> Steps[list[Entry]]:
        low = self._edge
        answer = yield from ask_window(self._bridge, self._pair, 0, "up", low, self._high, self._limit, *self._after)
        self._check_epoch(answer)
        if answer.rest[0] == b"old":
            self._names = yield from self._scan(answer)
            return []
        entries = read_set(answer.rest[1])
        self.done = len(entries) < self._limit  # all of a page may have been seen: that is no end
        fresh = [e for e in entries if not (e.score == low and e.name in self._seen)]
        if entries:
            self._edge, self._after = entries[-1].score, (entries[-1].name,)
            if self._edge != low:
                self._seen = set()
            self._seen.update(entry.name for entry in entries if entry.score == self._edge)
        return fresh

    def _scan(self, first: Answer) -> Steps[list[tuple[bytes, bytes]]]:
        """Old and new names of what is in the window by now, in its order."""
        found: dict[bytes, tuple[float, bytes]] = {}  # without their values: they are read again

        def take(page: list[Entry]) -> None:
            found.update((entry.name, (entry.score, entry.old or b"")) for entry in page)

        yield from scan_old(self._bridge, self._pair, first, self._low, self._high, take)
        wanted = [(s, name, old) for name, (s, old) in found.items() if s != self._low or name not in self._skip]
        return [(old, name) for _, name, old in sorted(wanted)]

    def _from_names(self) -> Steps[list[Entry]]:
        assert self._names is not None
        upto = self._at + self._limit
        names = self._names[self._at : upto]
        found = (yield from self._read(names)) if names else []
        self._at, self.done = upto, upto >= len(self._names)  # only now: what was not read is still to come
        return found

    def _read(self, names: Sequence[tuple[bytes, bytes]]) -> Steps[list[Entry]]:
        """Members of the old shape as they are now, those that are in the window."""
        args = [name for both in names for name in both]
        answer = yield from self._bridge.ask(self._pair, "adapter_members_get", args, writes=False)
        self._check_epoch(answer)
        kind = self._bridge.family.kinds["old"]
        values = zip(names, answer.rest[2], strict=True)
        members = [(old, member_from_wire(kind, raw)) for (old, _), raw in values if raw is not None]
        return [e for e in _mapped(self._bridge, self._pair, members) if self._low <= e.score <= self._high]

    def _check_epoch(self, answer: Answer) -> None:
        epoch, self._epoch = self._epoch, answer.epoch
        if epoch is not None and epoch != answer.epoch:
            raise ScanMovedError
