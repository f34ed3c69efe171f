"""What may be done to a job, and what it makes of it: pure, in the shape of the hash, at a moment of the server.

The adapter does this where JSON has to be changed, `MemoryJobs` everywhere; scripts/lib_jobs_do.lua does the same where
only hashes are left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from migrator.adapters.jobs.model import Code, Fields
from migrator.client import Arg
from migrator.errors import Unmappable
from migrator.records.dates import Moment, offset_text, parse_iso, parse_unix, utc_text
from migrator.records.job.fields import STATUS_NUMBERS, error_object, whole
from migrator.records.ticks import UNIX_EPOCH_TICKS, ticks_to_iso

QUEUED, SCHEDULED, IN_PROGRESS, COMPLETED, FAILED, CANCELED = (b"%d" % n for n in range(100, 700, 100))
WAITING = (QUEUED, SCHEDULED)
TICKS = 10_000_000  # in a second
_LAST_VERSION = 10**18 - 1  # one more has more digits than are read as a number
_GIVEN_UP = error_object(b"Job failed after maximum retries")


class When(Enum):
    """A value that is known only when it is written."""

    NOW = "@now"
    UNIX = "@unix"
    LATER = "@later"
    NEXT = "@next"
    NONE = "@none"


Sets = tuple[tuple[bytes, bytes | When], ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """One change of one job. `sets` are the fields it sets, `finals` those where no retry is left, if that matters.

    `worker`: whose it has to be, b"" for nobody's, None for anybody's. `stuck`: for how many seconds it has to be in
    progress. `delay_ms`: what LATER means.
    """

    sets: Sets
    finals: Sets = ()
    worker: bytes | None = None
    statuses: tuple[bytes, ...] = ()
    version: int | None = None
    due: bool = False
    stuck: float | None = None
    delay_ms: int = 0
    create: bool = False

    def args(self) -> list[Arg]:
        """As lib_jobs_do.lua reads it."""
        return [
            "-" if self.worker is None else self.worker,
            b",%s," % b",".join(self.statuses) if self.statuses else b"",
            "" if self.version is None else self.version,
            "due" if self.due else "",
            "" if self.stuck is None else repr(self.stuck),
            self.delay_ms,
            "new" if self.create else "",
            *_words(self.sets),
            *_words(self.finals),
        ]


def _words(sets: Sets) -> list[Arg]:
    words: list[Arg] = [2 * len(sets)]
    for name, value in sets:
        words += (name, value.value if isinstance(value, When) else b"=" + value)
    return words


@dataclass(frozen=True, slots=True)
class Changed:
    """What an operation makes of a job: its fields, and its scores in both indexes, None for no place in it.

    `running` is whole unix seconds; a job that was in progress before keeps the score it has."""

    fields: Fields
    queue: float | None
    running: int | None
    before: bytes = field(default=b"")


def claim(worker: bytes) -> Operation:
    begun: Sets = ((b"StartedAt", When.NOW), (b"StartedAtUnix", When.UNIX))
    sets: Sets = ((b"Status", IN_PROGRESS), (b"WorkerId", worker), *begun)
    return Operation(sets, worker=b"", statuses=WAITING, due=True)


def complete(worker: bytes, version: int, result: bytes) -> Operation:
    sets: Sets = ((b"Status", COMPLETED), (b"Result", result), (b"CompletedAt", When.NOW))
    return Operation(sets, worker=worker, statuses=(IN_PROGRESS,), version=version)


def fail(worker: bytes, version: int, error: bytes, retry_ms: int | None) -> Operation:
    failed = Operation(_failed(error), worker=worker, statuses=(IN_PROGRESS,), version=version)
    if retry_ms is None:
        return failed
    return replace(failed, sets=(*_AGAIN, (b"Error", error)), finals=failed.sets, delay_ms=retry_ms)


def recover(stuck: float, retry_ms: int) -> Operation:
    finals = _failed(_GIVEN_UP)
    return Operation(_AGAIN, finals, statuses=(IN_PROGRESS,), stuck=stuck, delay_ms=retry_ms)


def cancel(version: int | None) -> Operation:
    sets: Sets = ((b"Status", CANCELED), (b"CompletedAt", When.NOW))
    return Operation(sets, statuses=(*WAITING, IN_PROGRESS), version=version)


def update(changes: Fields, version: int) -> Operation:
    return Operation(tuple(changes.items()), version=version)


def create(fields: Fields) -> Operation:
    return Operation((*fields.items(), (b"CreatedAt", When.NOW)), create=True)


_AGAIN: Sets = (
    (b"Status", SCHEDULED), (b"RetryCount", When.NEXT), (b"RetryDelayUntil", When.LATER), (b"WorkerId", b""),
    (b"StartedAt", b""), (b"StartedAtUnix", When.NONE),
)  # fmt: skip


def _failed(error: bytes) -> Sets:
    return ((b"Status", FAILED), (b"Error", error), (b"CompletedAt", When.NOW))


def apply(operation: Operation, job: Fields | None, micros: int, since: float | None) -> Changed | Code:
    """Does it, or says what is in the way. `job` is whole, as the mapping makes it, None if there is none; `micros`
    the moment in unix µs, `since` the job's score in the index of those in progress."""
    if (job is None) != operation.create:
        return Code.JOB_NOT_FOUND if job is None else Code.JOB_CREATE_FAILED
    had = job or {}
    if job is not None and (code := _barred(operation, job, micros, since)) is not None:
        return code
    if version_of(had) == _LAST_VERSION:
        return Code.DESERIALIZATION_ERROR
    fields = dict(had)
    for name, value in _chosen(operation, had):
        if value is When.NONE:
            fields.pop(name, None)
        else:
            fields[name] = _now(operation, name, value, had, micros) if isinstance(value, When) else value
    fields[b"LastUpdatedAt"] = offset_text(_moment(micros))
    fields[b"Version"] = b"%d" % (version_of(had) + 1)
    return placed(fields, micros, had.get(b"Status", b""))


def placed(fields: Fields, micros: int, before: bytes) -> Changed:
    """Where a job belongs in the indexes, from its status."""
    status = fields[b"Status"]
    due = due_ticks(fields) if status in WAITING else None
    queue = None if due is None else due / TICKS
    return Changed(fields, queue, micros // 1_000_000 if status == IN_PROGRESS else None, before)


def _chosen(operation: Operation, had: Fields) -> Sets:
    if operation.finals and int(had[b"RetryCount"]) >= int(had[b"MaxRetries"]):
        return operation.finals
    return operation.sets


def _barred(operation: Operation, job: Fields, micros: int, since: float | None) -> Code | None:
    worker, wanted = job[b"WorkerId"].lower(), operation.worker
    if wanted is not None and worker not in (b"", wanted):
        return Code.ALREADY_ASSIGNED
    if operation.statuses and job[b"Status"] not in operation.statuses:
        return Code.WRONG_STATUS
    if wanted is not None and worker != wanted:
        return Code.ALREADY_ASSIGNED
    if operation.version is not None and version_of(job) != operation.version:
        return Code.VERSION_CONFLICT
    if operation.due and job[b"RetryDelayUntil"] and not is_due(job, micros):
        return Code.RETRY_DELAY
    if operation.stuck is not None and (since is None or since > micros // 1_000_000 - operation.stuck):
        return Code.NOT_STUCK
    return None


def _now(operation: Operation, name: bytes, value: When, had: Fields, micros: int) -> bytes:
    if value is When.NOW:
        return offset_text(_moment(micros))
    if value is When.UNIX:
        return b"%d" % (micros // 1_000_000)
    if value is When.LATER:
        return utc_text(_moment(micros + operation.delay_ms * 1000))
    return b"%d" % (int(had[name]) + 1)


def _moment(micros: int) -> Moment:
    ticks = UNIX_EPOCH_TICKS + micros * 10
    return Moment(ticks_to_iso(ticks), 0, ticks, zoneless=False, cut=False)


def check(job: Mapping[bytes, bytes], id: bytes) -> None:
    """Raises Unmappable for a hash that cannot be read as this job, as far as operations look at it."""
    if job.get(b"Id", b"").lower() != id or job.get(b"Status") not in STATUS_NUMBERS:
        raise Unmappable("Id or Status is not a job's")
    for name in (b"Version", b"RetryCount", b"MaxRetries"):
        if text := job.get(name):
            whole(name.decode(), text)
    delay = job.get(b"RetryDelayUntil")
    if delay and not (parse_iso(delay) or parse_unix(delay)):
        raise Unmappable("RetryDelayUntil is not a date")


def version_of(job: Mapping[bytes, bytes]) -> int:
    return int(job.get(b"Version") or b"0")


def due_ticks(job: Fields) -> int:
    """When a job is due, in 100 ns since 1970: RetryDelayUntil, else CreatedAt."""
    moment = parse_iso(job[b"RetryDelayUntil"] or job[b"CreatedAt"])
    assert moment is not None, "the mapping makes dates of them"
    return moment.ticks - UNIX_EPOCH_TICKS


def is_due(job: Fields, micros: int) -> bool:
    """Compared in whole unix µs, the due time rounded up: never early."""
    return -(-due_ticks(job) // 10) <= micros


def heads_of(scores: Mapping[bytes, float], most: float) -> Sequence[bytes]:
    """Members with a score up to `most`, as a sorted set orders them."""
    return sorted((m for m, score in scores.items() if score <= most), key=lambda m: (scores[m], m))
