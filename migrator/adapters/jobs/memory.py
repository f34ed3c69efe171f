"""`Jobs` in memory: for the tests of applications, and the model that the adapter is tested against."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from migrator.adapters.core import Steps
from migrator.adapters.jobs import rules
from migrator.adapters.jobs.model import (
    Code,
    Deleted,
    Done,
    Fields,
    Job,
    NotDone,
    PassedOver,
    Recovered,
    SetAside,
    id_of,
)
from migrator.adapters.jobs.rules import Operation
from migrator.adapters.jobs.store import AsyncStore, Core, Store

P = ParamSpec("P")
R = TypeVar("R")


def _micros() -> int:
    return time.time_ns() // 1000


def _alone(method: Callable[P, R]) -> Callable[P, Steps[R]]:
    """Steps that ask nobody."""

    def steps(*args: P.args, **named: P.kwargs) -> Steps[R]:
        yield from ()
        return method(*args, **named)

    return steps


def _result(steps: Steps[R]) -> R:
    try:
        next(steps)
    except StopIteration as done:
        result: R = done.value
        return result
    raise AssertionError("these steps ask nobody")


class MemoryCore:
    """The steps of each method, without Redis: one after the other, whichever thread asks."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock, self._lock = clock, threading.RLock()
        self.jobs: dict[bytes, Fields] = {}
        self.queue: dict[bytes, float] = {}
        self.running: dict[bytes, float] = {}
        self.aside: dict[bytes, SetAside] = {}

    @_alone
    def get(self, id: bytes) -> Done | NotDone:
        job = self.jobs.get(id)
        return NotDone(Code.JOB_NOT_FOUND) if job is None else Done(Job(dict(job)))

    @_alone
    def do(self, id: bytes, operation: Operation) -> Done | NotDone:
        with self._lock:
            return self._change(id, operation, self._clock())

    @_alone
    def claim(self, worker: bytes) -> Done | NotDone:
        found = self._claim(worker, 1)
        return Done(found[0]) if found else NotDone(Code.JOB_NOT_CLAIMED)

    @_alone
    def claim_many(self, worker: bytes, most: int) -> list[Job]:
        return self._claim(worker, most)

    def _claim(self, worker: bytes, most: int) -> list[Job]:
        operation, found = rules.claim(worker), list[Job]()
        with self._lock:
            now = self._clock()
            for member in rules.heads_of(self.queue, now / 1_000_000):
                if len(found) == most:
                    break
                if job := self._claim_head(member, operation, now):
                    found.append(job)
        return found

    def _claim_head(self, member: bytes, operation: Operation, now: int) -> Job | None:
        id = id_of(member)
        if id is None or id not in self.jobs:
            self._shelve(member, "junk" if id is None else "ghost", now)
            return None
        done = self._change(id, operation, now)
        if isinstance(done, Done):
            self.queue.pop(member, None)
            return done.job
        if done.code is Code.RETRY_DELAY:
            self.queue[member] = rules.due_ticks(self.jobs[id]) / rules.TICKS
        else:
            self._shelve(member, done.code.value, now)
        return None

    @_alone
    def recover(self, seconds: float, retry_ms: int, limit: int) -> Recovered:
        operation, found = rules.recover(seconds, retry_ms), Recovered()
        with self._lock:
            now = self._clock()
            for member in rules.heads_of(self.running, now // 1_000_000 - seconds):
                if len(found) == limit:
                    break
                done = self._change(member, operation, now)
                if isinstance(done, Done):
                    found.append(done.job)
                elif id_of(member) != member:
                    found.passed_over.append(PassedOver(member, "junk"))
                elif done.code in (Code.JOB_NOT_FOUND, Code.WRONG_STATUS):
                    del self.running[member]
                else:
                    found.passed_over.append(PassedOver(member, done.code.value))
        return found

    @_alone
    def delete(self, id: bytes) -> Deleted | NotDone:
        with self._lock:
            for index in (self.queue, self.running, self.aside):
                index.pop(id, None)
            return NotDone(Code.JOB_NOT_FOUND) if self.jobs.pop(id, None) is None else Deleted()

    @_alone
    def set_aside(self) -> list[SetAside]:
        return sorted(self.aside.values(), key=lambda one: (one.at, one.member))

    @_alone
    def put_back(self, member: bytes) -> bool:
        with self._lock:
            kept = self.aside.pop(member, None)
            if kept is not None:
                self.queue.setdefault(member, kept.score)
            return kept is not None

    def _change(self, id: bytes, operation: Operation, now: int) -> Done | NotDone:
        changed = rules.apply(operation, self.jobs.get(id), now, self.running.get(id))
        if isinstance(changed, Code):
            return NotDone(changed)
        self.jobs[id] = changed.fields
        self._follow(id, changed)
        return Done(Job(dict(changed.fields)))

    def _follow(self, id: bytes, changed: rules.Changed) -> None:
        if changed.queue is None:
            self.queue.pop(id, None)
        else:
            self.queue[id] = changed.queue
            self.aside.pop(id, None)
        if changed.running is None:
            self.running.pop(id, None)
        elif changed.before != rules.IN_PROGRESS or id not in self.running:
            self.running[id] = float(changed.running)

    def _shelve(self, member: bytes, why: str, now: int) -> None:
        self.aside[member] = SetAside(member, why, self.queue.pop(member), now // 1000)


class _InMemory:
    """What both have in common."""

    def __init__(self, clock: Callable[[], int] = _micros) -> None:
        core = MemoryCore(clock)
        self._core: Core = core
        self.jobs, self.queue, self.running, self.aside = core.jobs, core.queue, core.running, core.aside


class MemoryJobs(_InMemory, Store):
    """A job store with the methods and the answers of `Jobs`, without Redis; safe between threads.

    `clock` gives unix µs and is the only source of time. `queue` (unix seconds by member), `running`, `aside` and
    `jobs` are what lies in Redis, for a test to look at or to spoil.
    """

    def _run(self, steps: Steps[R]) -> R:
        return _result(steps)


class AsyncMemoryJobs(_InMemory, AsyncStore):
    """`MemoryJobs` for asyncio, in place of `AsyncJobs`."""

    async def open(self) -> None:
        """Nothing to look at; `AsyncJobs` has it."""

    async def _run(self, steps: Steps[R]) -> R:
        return _result(steps)
