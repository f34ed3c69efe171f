"""What a piece of the tool, or something without an adapter, does to a record; most do nothing an application sees."""

from __future__ import annotations

from typing import Any

from migrator.adapters import MemoryJobs
from migrator.records.job import hash_from_json
from migrator.records.job.due import due_at
from tests.explorer import jobs
from tests.explorer.jobs import ID, NOW
from tests.explorer.jobs_operations import follow, shape_of, with_shape
from tests.explorer.operations import After, Record, sure
from tests.explorer.picture import Picture, saved_shapes
from tests.explorer.scene import Scene

# Something without an adapter: what it wrote, the tool has yet to carry over.
ALIEN = ("old claim",)


def effects(name: str) -> tuple[After, ...]:
    """Each happens in one step, somewhere in the course of the piece."""
    if name == "index repair":
        return _queue_repaired, _running_repaired
    return (_taken,) if name == "old claim" else ()


def restored(scene: Scene, before: Picture) -> After:
    """A restore: the record as it was saved last, and what it discards is saved too."""

    def after(record: Record, _: object) -> Record:
        discarded = shape_of(record)
        sure(discarded is None or any(discarded[0] == shape.value for shape in saved_shapes(scene, "discarded")))
        return with_shape(record, last_saved(scene, before))

    return after


def last_saved(scene: Scene, before: Picture) -> Record:
    """What lay there in the old shape when contract began, or the backup has."""
    for shape in (before.old, before.retired, *reversed(saved_shapes(scene, "contract"))):
        if shape is not None:
            return shape.value, shape.expires
    return None


def _queue_repaired(record: Record, _: object) -> Record:
    def repair(memory: MemoryJobs) -> None:
        job = memory.jobs.get(ID, {})
        _repair(memory.queue, job, due_at(job) if job.get(b"Status") in (b"100", b"200") else None)

    return follow(record, repair)


def _running_repaired(record: Record, _: object) -> Record:
    def repair(memory: MemoryJobs) -> None:
        job = memory.jobs.get(ID, {})
        _repair(memory.running, job, NOW if job.get(b"Status") == b"300" else None)

    return follow(record, repair)


def _repair(index: dict[bytes, float], job: dict[bytes, bytes], score: float | None) -> None:
    """Only what belongs to a job that is there; a score that is there stays."""
    if job and score is not None:
        index.setdefault(ID, score)
    elif job:
        index.pop(ID, None)


def _taken(record: Record, answer: Any) -> Record:
    """Whoever takes it off the queue has it."""

    def take(memory: MemoryJobs) -> None:
        sure(answer == (ID in memory.queue))
        if answer:
            del memory.queue[ID]
            memory.running[ID] = NOW
            memory.jobs[ID] = hash_from_json(ID, jobs.text(running=True))[0]

    return follow(record, take)
