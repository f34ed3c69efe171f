"""What an application does to a job through `Jobs`; what may follow from each answer, `MemoryJobs` says.

The record is all there is: the job, its places in both indexes, and what was set aside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from migrator.adapters import Code, Job, MemoryJobs, NotDone
from tests.explorer.jobs import ID, JOB, NOW, OTHER, WORKER, Indexes
from tests.explorer.operations import After, Operation, Record, refused, sure

Call = Callable[[Any], object]
# As claim gave it.
_HELD = Job({b"Id": ID, b"WorkerId": WORKER.encode(), b"Version": b"1"})


@dataclass(frozen=True)
class Store:
    """`job`: its fields in the shape of the hash, None if there is none."""

    job: tuple[tuple[bytes, bytes], ...] | None
    indexes: Indexes


def memory(store: Store) -> MemoryJobs:
    jobs = MemoryJobs(clock=lambda: NOW * 1_000_000)
    jobs.jobs.update({ID: dict(store.job)} if store.job is not None else {})
    jobs.queue.update(store.indexes.queue)
    jobs.running.update(store.indexes.running)
    jobs.aside.update((one.member, one) for one in store.indexes.aside)
    return jobs


def store(jobs: MemoryJobs) -> Store:
    job = jobs.jobs.get(ID)
    queue, running = (
        tuple(sorted(index.items(), key=lambda one: (one[1], one[0]))) for index in (jobs.queue, jobs.running)
    )
    return Store(None if job is None else tuple(sorted(job.items())), Indexes(queue, running, tuple(jobs.set_aside())))


def follow(record: Record, change: Callable[[MemoryJobs], object]) -> Record:
    """The record after that; a job that stays keeps its expiry."""
    assert record is not None
    jobs = memory(record[0])
    change(jobs)
    after = store(jobs)
    return after, record[1] if after.job is not None else -1


def _as_in_memory(call: Call) -> After:
    def after(record: Record, answer: Any) -> Record:
        return follow(record, lambda jobs: sure(call(jobs) == answer))

    return after


def _operation(name: str, call: Call, *, writes: bool = True) -> Operation:
    return Operation(name, call, _as_in_memory(call), writes)


def found_none(answer: object) -> bool:
    """A claim that came to no job."""
    return isinstance(answer, NotDone) and answer.code is Code.JOB_NOT_CLAIMED


def passed_over(answer: object) -> bool:
    """What may be answered of a job that is unmoved."""
    return isinstance(answer, NotDone) and (answer.code is Code.UNMOVED or found_none(answer))


def _update(**changes: str) -> Call:
    return lambda jobs: jobs.update(JOB, changes, version=1)


OPERATIONS = (
    Operation("stranger", _update(Name="six"), refused, writes=False),
    _operation("create", lambda jobs: jobs.create(JOB, "made")),
    _operation("claim", lambda jobs: jobs.claim(WORKER)),
    _operation("other claim", lambda jobs: jobs.claim(OTHER)),
    _operation("update", _update(Name="two")),
    _operation("other update", _update(Payload="three")),
    _operation("hasten", _update(RetryDelayUntil="")),
    _operation("complete", lambda jobs: jobs.complete(_HELD, "done")),
    _operation("fail", lambda jobs: jobs.fail(_HELD, "no", retry_in=0)),
    _operation("recover", lambda jobs: jobs.recover(3600)),
    _operation("cancel", lambda jobs: jobs.cancel(JOB)),
    _operation("delete", lambda jobs: jobs.delete(JOB)),
    _operation("get", lambda jobs: jobs.get(JOB), writes=False),
)


# What there is of a record besides its indexes: (value, expiry) or None.


def shape_of(record: Record) -> Record:
    if record is None or not isinstance(record[0], Store):
        return record
    return None if record[0].job is None else (record[0].job, record[1])


def with_shape(record: Record, shape: Record) -> Record:
    """The same record with another shape."""
    if record is None or not isinstance(record[0], Store):
        return shape
    job, expires = shape or (None, -1)
    return replace(record[0], job=job), expires
