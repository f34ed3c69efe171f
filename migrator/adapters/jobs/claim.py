"""Claiming: the heads of the queue that are due, one script call where only hashes are left.

A script may touch only keys that it is given, and which job is at the head it finds out itself. So a call names the
heads that the last answer told of, and takes one only if it is the head by then; else it tells the heads, and is
called again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from migrator.adapters.bridge import Answer, Bridge
from migrator.adapters.core import Patience, Steps
from migrator.adapters.jobs import rules
from migrator.adapters.jobs.core import JobsCore, Read
from migrator.adapters.jobs.model import Code, Done, Job, NotDone, id_of
from migrator.client import Arg
from migrator.errors import Unmappable
from migrator.moves.family import Pair
from migrator.moves.values import from_items

# Heads named in a call: so many can others claim meanwhile, and it still knows the head. Twice as many after a miss.
LEAST, MOST = 2, 32
_SHRINK = 0.1
_EAGER = 3  # calls in a row that came to nothing, before pauses set in


@dataclass(slots=True)
class _Round:
    """What is left to claim, and how far the queue was looked through."""

    worker: bytes
    many: int
    jobs: list[Job] = field(default_factory=list)
    epoch: int = 0
    offset: int = 0
    more: bool = True


class ClaimCore(JobsCore):
    """All steps of `Jobs`. Those of claim remember the heads they were told of, which only saves a call."""

    def __init__(self, bridge: Bridge) -> None:
        super().__init__(bridge)
        self._heads: Sequence[bytes] = ()
        self._window: float = LEAST

    def claim(self, worker: bytes) -> Steps[Done | NotDone]:
        around = yield from self._take(worker, 1)
        if around.jobs:
            return Done(around.jobs[0], around.epoch)
        return NotDone(Code.RETRY if around.more else Code.JOB_NOT_CLAIMED, around.epoch)

    def claim_many(self, worker: bytes, most: int) -> Steps[list[Job]]:
        return (yield from self._take(worker, most)).jobs

    def _take(self, worker: bytes, many: int) -> Steps[_Round]:
        around, patience, idle = _Round(worker, many), Patience(), 0
        while around.more and len(around.jobs) < many:
            window = max(int(self._window), min(many - len(around.jobs), MOST))
            answer = yield from self._call_heads(around, window)
            moved = yield from self._settle(around, answer, window)
            if moved:
                idle, patience = 0, Patience()
                continue
            idle += 1
            if idle > _EAGER:
                if patience.spent:
                    break
                yield from patience.wait("the queue is changing")
        return around

    def _call_heads(self, around: _Round, window: int) -> Steps[Answer]:
        named, junk, pairs = list[bytes](), list[bytes](), list[Pair]()
        for head in self._heads:
            if (id := id_of(head)) is None:
                junk.append(head)
            else:
                named.append(head)
                pairs.append(self.pair(id))
        left = around.many - len(around.jobs)
        args: list[Arg] = [around.worker, left, window, around.offset, len(named), *named, *junk]
        return (
            yield from self.bridge.ask_beside(self.queue, self.indexes, pairs, "adapter_jobs_claim", args, writes=True)
        )

    def _settle(self, around: _Round, answer: Answer, window: int) -> Steps[bool]:
        """Takes in what a call did, and takes the second step if it only read; True if that got somewhere."""
        dealt, stays, read, left, *rest = answer.rest
        heads, claimed = rest[:left], rest[left:]
        if answer.epoch != around.epoch:
            around.epoch, around.offset = answer.epoch, 0
        around.offset += stays
        around.jobs += [Job(from_items("hash", items)) for items in claimed]
        missed = bool(self._heads and heads and not dealt and read is None)
        self._window = min(2 * self._window, MOST) if missed else max(self._window - _SHRINK, LEAST)
        self._heads = heads
        around.more = len(heads) + dealt == window or bool(heads)
        taken = read is not None and (yield from self._take_read(around, answer.epoch, read))
        if taken:
            self._heads = heads[1:]
        return taken or dealt > 0

    def _take_read(self, around: _Round, epoch: int, read: Sequence[Any]) -> Steps[bool]:
        head, shape, items, now = read
        micros, id = int(now), id_of(head)
        assert id is not None, "the script reads what was named"
        step = Read(self.pair(id), epoch, shape == b"new", items, None)
        try:
            job = self.mapped(step.pair, new=step.new, items=items)
            changed = rules.apply(rules.claim(around.worker), job, micros, None)
            if not isinstance(changed, Code):
                done = yield from self.commit(replace(step, job=job), changed, head)
        except Unmappable:  # it is none of the mapping's, or would be none
            changed = Code.DESERIALIZATION_ERROR
        if changed is Code.RETRY_DELAY:
            due = rules.due_ticks(job) / rules.TICKS
            moved = yield from self.shelve(step, head, changed.value, due)
            around.offset += moved and due <= micros / 1_000_000
            return moved
        if isinstance(changed, Code):
            return (yield from self.shelve(step, head, changed.value, None))
        if isinstance(done, Done):
            around.jobs.append(done.job)
        return isinstance(done, Done)
