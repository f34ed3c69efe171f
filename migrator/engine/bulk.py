"""Round one of a comparison of members: pages of one shape against the other, read in bulk (protocol, rule 27).

The two are read one after the other, so what differs here is only suspected: round two reads both in one script.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from migrator.client import Arg, Lanes, Reply, ResponseError, Work
from migrator.engine.backfill import PAGE_MEMBERS
from migrator.engine.batches import PageSize, member_batches, page_sizes
from migrator.engine.overlap import Count, Left, carry, fields_never_expire, starts
from migrator.engine.run import Run
from migrator.engine.walk import Place, Progress, Visit
from migrator.moves.family import Family, Member, Pair, Side
from migrator.moves.values import ask_words, member_from_wire, members_from_page, scan_words

# Round two of some members of a collection; what it counted.
Judge = Callable[[Pair, Sequence[Member]], Counter[str]]


class Tally(Protocol):
    """What a comparison is told on the way."""

    def wanted(self) -> bool: ...
    def equal(self, number: int) -> Counter[str]: ...


def open_to(run: Run, family: Family, visit: Visit) -> bool:
    """Whether members are read in bulk: the process is known, and no field has a TTL of its own."""
    return run.client.named(visit.run_id) and fields_never_expire(run, family, visit)


def round_one(
    run: Run, family: Family, visit: Visit, side: Side, pairs: Sequence[Pair], tally: Tally, judge: Judge
) -> Generator[Progress, None, Left]:
    """From the old side: every old member has its new one. From the new side: every new member is what an old one
    becomes. Returns what is to be done the other way: all, where members are not read in bulk."""
    all_ = starts(visit, pairs, side)
    if not open_to(run, family, visit):
        return all_
    told: list[Progress] = []
    of = _Old if side == "old" else _New
    sizes = page_sizes(run.client, family.kinds[side], [p.old if side == "old" else p.new for p, _ in all_])
    works = [of(family, p, at, size, tally, judge, told) for (p, at), size in zip(all_, sizes, strict=True)]
    return (yield from carry(run, visit, works, told))


@dataclass
class _Batch:
    """A page of one side, and what the other is to say of it: `wanted` are the values it should have, or the names that
    its members should become. `found` is what it says, once it is known."""

    cursor: int
    members: list[Member]
    wanted: list[Any] = field(default_factory=list)
    odd: Sequence[Member] = ()
    origins: list[bytes] = field(default_factory=list)  # of a page of the new side: the old members they come from
    found: list[Reply] | None = None


class _Side:
    """One collection, from one side. `cursor`: from where all is to be compared again if the connection is lost."""

    _counts = True  # whether it counts what is equal

    def __init__(
        self,
        family: Family,
        pair: Pair,
        cursor: int,
        size: PageSize,
        tally: Tally,
        judge: Judge,
        told: list[Progress],
    ) -> None:
        self.pair, self.cursor, self.done = pair, cursor, False
        self._size = size
        self._family, self._tally, self._judge, self._told = family, tally, judge, told

    def work(self, lanes: Lanes, count: Count) -> Work:
        """Asks for the next page before it looks at this one, and for the other side of it after."""
        asked: deque[_Batch | None] = deque([None])  # None: a page
        # A page of which nothing is asked waits for those before it: the cursor moves past what is compared only.
        unsettled: deque[_Batch] = deque()
        lanes.send(*self._page_words(self.cursor, self._size.within(count())))
        while asked:
            replies = yield
            batch = asked.popleft()
            if any(isinstance(reply, ResponseError) for reply in replies):
                return  # left to the other way, which says what it is
            if batch is not None:
                batch.found = replies[0]
            else:
                cursor = int(replies[-1][0])
                if cursor:
                    self._size.saw(replies[-1][1])
                    lanes.send(*self._page_words(cursor, self._size.within(count())))
                    asked.append(None)
                batch, words = self._look(cursor, replies)
                unsettled.append(batch)
                if words:
                    lanes.send(words)
                    asked.append(batch)
                else:
                    batch.found = []
            while unsettled and (found := unsettled[0].found) is not None:
                self._settle(unsettled.popleft(), found)
        self.done = True

    def _page_words(self, cursor: int, count: int) -> list[tuple[Arg, ...]]:
        raise NotImplementedError

    def _look(self, cursor: int, replies: list[Reply]) -> tuple[_Batch, tuple[Arg, ...]]:
        """What to ask the other side of a page; no words if there is nothing to ask."""
        raise NotImplementedError

    def _suspects(self, batch: _Batch, found: list[Reply]) -> list[Member]:
        raise NotImplementedError

    def _settle(self, batch: _Batch, found: list[Reply]) -> None:
        suspects = [*self._suspects(batch, found), *batch.odd]
        counts = self._tally.equal(len(batch.members) - len(suspects)) if self._counts else Counter[str]()
        for some in member_batches(suspects, lambda: PAGE_MEMBERS):
            counts.update(self._judge(self.pair, some))
        self.cursor = batch.cursor
        self._told.append(Progress(counts, Place(self._key, batch.cursor)))

    @property
    def _key(self) -> bytes:
        return self.pair.old


class _Old(_Side):
    def _page_words(self, cursor: int, count: int) -> list[tuple[Arg, ...]]:
        old, new = self.pair.old, self.pair.new
        return [("PEXPIRETIME", old), ("PEXPIRETIME", new), scan_words(self._family.kinds["old"], old, cursor, count)]

    def _look(self, cursor: int, replies: list[Reply]) -> tuple[_Batch, tuple[Arg, ...]]:
        expires, copy_expires, (_, flat) = replies
        members = members_from_page(self._family.kinds["old"], flat)
        if not self._tally.wanted():
            return _Batch(cursor, []), ()
        if expires != copy_expires:  # absent, an expiry that differs, or set between the two
            return _Batch(cursor, members, odd=members), ()
        entries, odd = self._family.map_page(self.pair, members)
        batch = _Batch(cursor, members, [value for value, _, _ in entries], odd)
        names = [new for _, new, _ in entries]
        return batch, ask_words(self._family.kinds["new"], self.pair.new, names) if names else ()

    def _suspects(self, batch: _Batch, found: list[Reply]) -> list[Member]:
        kind = self._family.kinds["new"]
        if kind == "zset":
            found = [None if score is None else float(score) for score in found]
        elif kind == "set":
            found = [None if there else "absent" for there in found]
        if found == batch.wanted:
            return []
        mapped = batch.members
        if batch.odd:
            odd = {name for name, _ in batch.odd}
            mapped = [member for member in mapped if member[0] not in odd]
        return [m for m, got, want in zip(mapped, found, batch.wanted, strict=True) if got != want]


class _New(_Side):
    _counts = False  # what has an old member was judged from the old side

    @property
    def _key(self) -> bytes:
        return self.pair.new

    def _page_words(self, cursor: int, count: int) -> list[tuple[Arg, ...]]:
        return [scan_words(self._family.kinds["new"], self.pair.new, cursor, count)]

    def _look(self, cursor: int, replies: list[Reply]) -> tuple[_Batch, tuple[Arg, ...]]:
        flat, kind = replies[0][1], self._family.kinds["new"]
        if not flat or not self._tally.wanted():
            return _Batch(cursor, []), ()
        names = flat if kind == "set" else flat[::2]
        pairs = [(name, b"") for name in flat] if kind == "set" else list(zip(names, flat[1::2], strict=True))
        origins = self._family.origins(self.pair, pairs, partial(member_from_wire, kind))
        return _Batch(cursor, pairs, names, origins=origins), ask_words(
            self._family.kinds["old"], self.pair.old, origins
        )

    def _suspects(self, batch: _Batch, found: list[Reply]) -> list[Member]:
        kinds = self._family.kinds
        values = found if kinds["old"] == "hash" else [member_from_wire(kinds["old"], value) for value in found]
        absent = None in found or 0 in found
        if not absent and self._family.become(self.pair, batch.origins, values, batch.wanted):
            return []
        olds = [
            None if there is None or there == 0 else (was, value)
            for there, was, value in zip(found, batch.origins, values, strict=True)
        ]
        strays = self._family.strays(self.pair, batch.wanted, olds)
        suspects = (member for member, stray in zip(batch.members, strays, strict=True) if stray)
        return [(name, member_from_wire(kinds["new"], value)) for name, value in suspects]
