"""The quick way to copy keys: WATCH and MULTI, a few batches at a time on connections of their own (protocol, rule 25).

A batch watches its marker and its old keys, reads them, and writes new keys where there are none: if anything happens
to one of them meanwhile, be it that it expires, the transaction does nothing. All that is not so plain (a new key that
is there already, another type, a large value, a mapping that fails, an abort) goes the other way, which compares in a
script.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from functools import partial

from migrator.client import Lanes, Reply, ResponseError, Words, Work, pack_each
from migrator.engine.copy import BATCH_ITEMS, FORWARD
from migrator.engine.overlap import ability, overlapped
from migrator.engine.run import Run
from migrator.engine.walk import Progress, Visit
from migrator.errors import Unmappable
from migrator.moves.family import Family, Pair
from migrator.moves.values import Value, write_words
from migrator.phases.markers import FIELDS

LANES = 4
MOST = 100  # records a batch, at most
LEAST = 5
LARGE = 64 * 1024  # bytes of a value; so a batch has never more than 6.4 MB

Ready = tuple[Pair, list[Words]]  # a record and the commands that write it


class Transactions:
    """Copies records of one family. Batches grow while nobody writes to them, and are halved when somebody does."""

    def __init__(self, run: Run, family: Family) -> None:
        self._run, self._family = run, family
        self._guard = run.guard(*FORWARD.phases)
        self._most = run.rate.at_once(MOST)
        self._size = self._most
        self._expiry = "PEXPIRETIME"
        self._told: list[Progress] = []
        self._moved: set[int] = set()  # of this page's records, by id()

    def open_to(self, visit: Visit) -> bool:
        """Whether they may be used: for strings, where all keys of a batch are in one slot."""
        known = self._run.client.named(visit.run_id)
        return known and self._family.kinds["old"] == "string" and len(self._run.markers.slots) == 1

    def copy(self, visit: Visit, pairs: Sequence[Pair]) -> Generator[Progress, None, list[Pair]]:
        """Copies records of one node; returns those that are to be done the other way: all, where this is not open."""
        self._moved.clear()
        if self.open_to(visit):
            works = partial(self._works, list(pairs))
            lanes = LANES + self._run.throttle.steps - 1
            yield from overlapped(self._run, visit, works, self._told, lanes=lanes)
        return [pair for pair in pairs if id(pair) not in self._moved]

    @property
    def _marker(self) -> bytes:
        return self._run.markers.key(self._run.markers.slots[0])

    def _works(self, todo: list[Pair], lanes: Lanes, _: float) -> Iterator[Work]:
        able = ability(lanes, self._marker)
        # Where an expiry cannot be read exactly, a key that has one goes the other way.
        self._expiry = "PEXPIRETIME" if able.tell_expiry else "PTTL"
        if not able.transact:
            return
        while todo:
            size = min(self._size, self._run.at_once(MOST, LEAST))
            batch = todo[:size]
            del todo[:size]
            yield self._work(lanes, batch)

    def _work(self, lanes: Lanes, batch: list[Pair]) -> Work:
        olds = [pair.old for pair in batch]
        lanes.send(
            ("UNWATCH",),
            ("WATCH", self._marker, *olds),
            ("HMGET", self._marker, *FIELDS),
            ("EXISTS", *(pair.new for pair in batch)),
            *pack_each("GETRANGE", olds, 0, LARGE - 1),
            *pack_each(self._expiry, olds),
        )
        replies = yield
        ready = self._ready(batch, replies)
        if ready:
            lanes.send(("MULTI",), *(words for _, commands in ready for words in commands), ("EXEC",))
            ready = self._done(ready, (yield)[-1])
        self._moved.update(id(pair) for pair, _ in ready)
        self._told.append(Progress({"scanned": len(ready), "moved": len(ready)}))

    def _ready(self, batch: list[Pair], replies: list[Reply]) -> list[Ready]:
        """The records that can be written now, as many as BATCH_ITEMS allows: of a few bytes the mapping may make
        thousands of elements."""
        _, watched, marker, there, *answers = replies
        if not self._guard.watches(self._run.id, watched, marker) or there != 0:
            return []
        found = zip(batch, answers[: len(batch)], answers[len(batch) :], strict=True)
        kind = self._family.kinds["new"]
        ready: list[Ready] = []
        room = BATCH_ITEMS
        for pair, text, at in found:
            if not (value := self._value(pair, text, at)):
                continue
            room -= 1 if kind == "string" else len(value)
            if room < 0:
                break
            write = write_words(kind, pair.new, value)
            ready.append((pair, [write, ("PEXPIREAT", pair.new, at)] if at != -1 else [write]))
        return ready

    def _value(self, pair: Pair, text: Reply, at: Reply) -> Value:
        """The new shape; nothing where the other way has to look at the record."""
        plain = isinstance(text, bytes) and 0 < len(text) < LARGE and isinstance(at, int) and at >= -1
        if not plain or (at != -1 and self._expiry == "PTTL") or self._family.fault(pair):
            return None
        try:
            return self._family.map_key(pair, text)[0]
        except Unmappable:
            return None

    def _done(self, ready: list[Ready], answer: Reply) -> list[Ready]:
        """What the transaction wrote: all, or nothing."""
        if answer is None:
            self._size = max(LEAST, self._size // 2)
            return []
        if not isinstance(answer, list) or any(isinstance(reply, ResponseError) for reply in answer):
            return []
        self._size = min(self._most, self._size + LEAST)
        for pair, _ in ready if len(self._run.quarantine) else ():
            self._run.quarantine.release(pair)
        return ready
