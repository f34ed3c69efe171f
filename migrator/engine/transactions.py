"""The quick way to copy keys: WATCH and MULTI, a few batches at a time on connections of their own (protocol, rule 25).

A batch watches its marker and its old keys, reads them, and writes new keys where there are none: if anything happens
to one of them meanwhile, be it that it expires, the transaction does nothing. All that is not so plain (a new key that
is there already, another type, a large value, a mapping that fails, an abort) goes the other way, which compares in a
script.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from migrator.client import LOST, Arg, Lanes, Reply, ResponseError, Work
from migrator.engine.copy import FORWARD
from migrator.engine.overlap import pinned
from migrator.engine.run import Run
from migrator.engine.walk import Progress, Visit
from migrator.errors import Unmappable
from migrator.moves.family import Family, Pair
from migrator.moves.values import to_items, write_words

LANES = 4
MOST = 100  # records a batch: under 1 ms of the server's time
LEAST = 5
LARGE = 64 * 1024  # bytes of a value; so a batch has never more than 6.4 MB

Ready = tuple[Pair, list[tuple[Arg, ...]]]  # a record and the commands that write it


class Transactions:
    """Copies records of one family. Batches grow while nobody writes to them, and are halved when somebody does."""

    def __init__(self, run: Run, family: Family) -> None:
        self._run, self._family = run, family
        self._guard = run.guard(*FORWARD.phases)
        self._most = run.rate.at_once(MOST)
        self._size = self._most
        self._expiry: Arg = "PEXPIRETIME"
        self._told: list[Progress] = []
        self._under_way: dict[int, list[Pair]] = {}

    def open_to(self, visit: Visit) -> bool:
        """Whether they may be used: for strings, where all keys of a batch are in one slot."""
        known = self._run.client.named(visit.run_id)
        return known and self._family.kinds["old"] == "string" and len(self._run.markers.slots) == 1

    def copy(self, visit: Visit, pairs: Sequence[Pair], left: list[Pair]) -> Iterator[Progress]:
        """Copies records of one node; what is to be done the other way is put in `left`.

        Raises NodeRestartedError if the node is no longer the process whose page this is.
        """
        todo = list(pairs)
        with suppress(*LOST), Lanes(visit.node, LANES) as lanes:
            works = self._works(lanes, todo, left) if self._learn(visit, lanes) else ()
            for _ in lanes.run(works):
                yield from self._told
                self._told.clear()
        yield from self._told
        self._told.clear()
        left += todo
        for batch in self._under_way.values():
            left += batch
        self._under_way.clear()

    def _learn(self, visit: Visit, lanes: Lanes) -> bool:
        """Whether there are transactions: without MULTI what follows it would be carried out at once. Before Redis 7
        an expiry cannot be read exactly: a key that has one goes the other way."""
        pinned(self._run, visit, lanes)
        answers = lanes.ask(("PEXPIRETIME", self._marker), ("MULTI",), ("EXEC",))
        exact = not any(isinstance(answer[0], ResponseError) for answer in answers)
        self._expiry = "PEXPIRETIME" if exact else "PTTL"
        return all(answer[1:] == [b"OK", []] for answer in answers)

    @property
    def _marker(self) -> bytes:
        return self._run.markers.key(self._run.markers.slots[0])

    def _works(self, lanes: Lanes, todo: list[Pair], left: list[Pair]) -> Iterator[Work]:
        while todo:
            batch = todo[: self._size]
            del todo[: self._size]
            yield self._work(lanes, batch, left)

    def _work(self, lanes: Lanes, batch: list[Pair], left: list[Pair]) -> Work:
        self._under_way[id(batch)] = batch
        olds = [pair.old for pair in batch]
        lanes.send(
            ("UNWATCH",),
            ("WATCH", self._marker, *olds),
            ("HMGET", self._marker, "phase", "epoch", "fence", "token"),
            ("EXISTS", *(pair.new for pair in batch)),
            *(("GETRANGE", old, 0, LARGE - 1) for old in olds),
            *((self._expiry, old) for old in olds),
        )
        replies = yield
        ready = self._ready(batch, replies)
        if ready:
            lanes.send(("MULTI",), *(words for _, commands in ready for words in commands), ("EXEC",))
            ready = self._done(ready, (yield)[-1])
        del self._under_way[id(batch)]
        moved = {pair.old for pair, _ in ready}
        left += [pair for pair in batch if pair.old not in moved]
        self._told.append(Progress({"scanned": len(moved), "moved": len(moved)}))

    def _ready(self, batch: list[Pair], replies: list[Reply]) -> list[Ready]:
        """The records that can be written now."""
        _, watched, marker, there, *answers = replies
        if watched != b"OK" or not self._allowed(marker) or there != 0:
            return []
        found = zip(batch, answers[: len(batch)], answers[len(batch) :], strict=True)
        return [(pair, commands) for pair, text, at in found if (commands := self._commands(pair, text, at))]

    def _allowed(self, marker: Reply) -> bool:
        guard = self._guard
        wanted = [b"%d" % guard.epoch, b"%d" % guard.fence.number, guard.fence.token.encode()]
        return isinstance(marker, list) and marker[1:] == wanted and (marker[0] or b"").decode() in guard.phases

    def _commands(self, pair: Pair, text: Reply, at: Reply) -> list[tuple[Arg, ...]]:
        """What writes the new shape; nothing where the other way has to look at the record."""
        mortal = at != -1
        plain = isinstance(text, bytes) and 0 < len(text) < LARGE and isinstance(at, int) and at >= -1
        if not plain or (mortal and self._expiry == "PTTL") or self._family.fault(pair):
            return []
        try:
            items = to_items(self._family.kinds["new"], self._family.map_key(pair, text)[0])
        except Unmappable:
            return []
        if not items:
            return []
        write = write_words(self._family.kinds["new"], pair.new, items)
        return [write, ("PEXPIREAT", pair.new, at)] if mortal else [write]

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
