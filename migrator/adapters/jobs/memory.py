"""`Jobs` in memory: for the tests of applications, and the model that the adapter is tested against."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime

from migrator.adapters.jobs import rules, words
from migrator.adapters.jobs.model import Code, Deleted, Done, Fields, Id, Job, NotDone, SetAside, guid, id_of
from migrator.adapters.jobs.rules import Operation
from migrator.adapters.jobs.words import Asked, Seconds, Text


def _micros() -> int:
    return time.time_ns() // 1000


class MemoryJobs:
    """A job store with the methods and the answers of `Jobs`, without Redis; safe between threads.

    `clock` gives unix µs and is the only source of time. `queue` (unix seconds by member), `running` and `jobs` are
    what lies in Redis, for a test to look at or to spoil.
    """

    def __init__(self, clock: Callable[[], int] = _micros) -> None:
        self._clock, self._lock = clock, threading.RLock()
        self.jobs: dict[bytes, Fields] = {}
        self.queue: dict[bytes, float] = {}
        self.running: dict[bytes, float] = {}
        self._aside: dict[bytes, SetAside] = {}

    def get(self, id: Id) -> Done | NotDone:
        """See `Jobs.get`."""
        job = self.jobs.get(guid(id))
        return NotDone(Code.JOB_NOT_FOUND) if job is None else Done(Job(dict(job)))

    def create(
        self,
        id: Id,
        name: str,
        payload: Text = b"",
        *,
        headers: Text = b"{}",
        route_params: Text = b"{}",
        query_params: Text = b"[]",
        max_retries: int = 3,
        due: datetime | None = None,
    ) -> Done | NotDone:
        """See `Jobs.create`."""
        return self._do(words.created(id, name, payload, headers, route_params, query_params, max_retries, due))

    def update(self, id: Id, changes: Mapping[str, Text], *, version: int) -> Done | NotDone:
        """See `Jobs.update`."""
        return self._do(words.updated(id, changes, version))

    def claim(self, worker: Id) -> Done | NotDone:
        """See `Jobs.claim`."""
        found = self.claim_many(worker, 1)
        return Done(found[0]) if found else NotDone(Code.JOB_NOT_CLAIMED)

    def claim_many(self, worker: Id, most: int) -> list[Job]:
        """See `Jobs.claim_many`."""
        operation, limit, found = rules.claim(words.worker_of(worker)), words.limit_of(most), list[Job]()
        with self._lock:
            now = self._clock()
            for member in rules.heads_of(self.queue, now / 1_000_000):
                if len(found) == limit:
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

    def claim_job(self, id: Id, worker: Id) -> Done | NotDone:
        """See `Jobs.claim_job`."""
        return self._do(words.taken(id, worker))

    def complete(self, job: Job, result: Text | None = None) -> Done | NotDone:
        """See `Jobs.complete`."""
        return self._do(words.completed(job, result))

    def fail(self, job: Job, error: str, *, code: str = "UNKNOWN", retry_in: Seconds | None = None) -> Done | NotDone:
        """See `Jobs.fail`."""
        return self._do(words.failed(job, error, code, retry_in))

    def cancel(self, id: Id, *, version: int | None = None) -> Done | NotDone:
        """See `Jobs.cancel`."""
        return self._do(words.canceled(id, version))

    def recover(self, stuck_for: Seconds, *, retry_in: Seconds = 0, limit: int = 100) -> list[Job]:
        """See `Jobs.recover`."""
        seconds, most, found = words.millis(stuck_for, "stuck_for") / 1000, words.limit_of(limit), list[Job]()
        operation = rules.recover(seconds, words.millis(retry_in, "retry_in"))
        with self._lock:
            now = self._clock()
            for member in rules.heads_of(self.running, now // 1_000_000 - seconds):
                if len(found) == most:
                    break
                done = self._change(member, operation, now)
                if isinstance(done, Done):
                    found.append(done.job)
                elif done.code in (Code.JOB_NOT_FOUND, Code.WRONG_STATUS):
                    del self.running[member]
        return found

    def delete(self, id: Id) -> Deleted | NotDone:
        """See `Jobs.delete`."""
        name = guid(id)
        with self._lock:
            for index in (self.queue, self.running, self._aside):
                index.pop(name, None)
            return NotDone(Code.JOB_NOT_FOUND) if self.jobs.pop(name, None) is None else Deleted()

    def set_aside(self) -> list[SetAside]:
        """See `Jobs.set_aside`."""
        return sorted(self._aside.values(), key=lambda one: (one.at, one.member))

    def put_back(self, member: bytes) -> bool:
        """See `Jobs.put_back`."""
        with self._lock:
            kept = self._aside.pop(member, None)
            if kept is not None:
                self.queue.setdefault(member, kept.score)
            return kept is not None

    def _do(self, asked: Asked) -> Done | NotDone:
        with self._lock:
            return self._change(*asked, self._clock())

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
            self._aside.pop(id, None)
        if changed.running is None:
            self.running.pop(id, None)
        elif changed.before != rules.IN_PROGRESS or id not in self.running:
            self.running[id] = float(changed.running)

    def _shelve(self, member: bytes, why: str, now: int) -> None:
        self._aside[member] = SetAside(member, why, self.queue.pop(member), now // 1000)
