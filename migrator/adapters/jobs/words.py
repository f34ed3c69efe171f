"""What callers of `Jobs` say, checked and turned into operations: one place for all classes with that interface."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from migrator.adapters.jobs import rules
from migrator.adapters.jobs.model import Fields, Id, Job, guid
from migrator.adapters.jobs.rules import Operation
from migrator.errors import Unmappable, UsageError
from migrator.records.job import hash_from_json, json_from_hash
from migrator.records.split import write_string

Text = str | bytes
Seconds = float | timedelta
Asked = tuple[bytes, Operation]

_SET_BY_US = (b"Id", b"Version", b"StartedAtUnix", b"LastUpdatedAt", b"CreatedAt")
_ANY_ID = b"00000000-0000-4000-8000-000000000001"
_ANY_JOB = {b"Id": _ANY_ID, b"Status": b"400", b"CreatedAt": b"2025-01-01T00:00:00.0000000+00:00"}


def created(
    id: Id,
    name: str,
    payload: Text,
    headers: Text,
    route_params: Text,
    query_params: Text,
    max_retries: int,
    due: datetime | None,
) -> Asked:
    job, status = guid(id), rules.QUEUED if due is None else rules.SCHEDULED
    fields = {
        b"Name": name.encode(), b"Status": status, b"Headers": _bytes(headers), b"RouteParams": _bytes(route_params),
        b"QueryParams": _bytes(query_params), b"Payload": _bytes(payload), b"Result": b"", b"Error": b"",
        b"RetryCount": b"0", b"MaxRetries": b"%d" % max_retries, b"RetryDelayUntil": _date(due), b"WorkerId": b"",
        b"StartedAt": b"", b"CompletedAt": b"",
    }  # fmt: skip
    return job, rules.create({b"Id": job, **_usual(fields)})


def updated(id: Id, changes: Mapping[str, Text], version: int) -> Asked:
    fields = {name.encode(): _bytes(value) for name, value in changes.items()}
    for name in fields:
        if name in _SET_BY_US:
            raise UsageError(f"{name.decode()} is not for applications to set")
    if not fields:
        raise UsageError("an update without changes")
    return guid(id), rules.update(_usual(fields), version)


def taken(id: Id, worker: Id) -> Asked:
    return guid(id), rules.claim(worker_of(worker))


def completed(job: Job, result: Text | None) -> Asked:
    fields = _usual({b"Result": _bytes(result or b"")})
    return guid(job.id), rules.complete(_owner(job), job.version, fields[b"Result"])


def failed(job: Job, error: str, code: str, retry_in: Seconds | None) -> Asked:
    told = b'{"code":%s,"message":%s,"exception":null}' % (write_string(code.encode()), write_string(error.encode()))
    retry = None if retry_in is None else millis(retry_in, "retry_in")
    return guid(job.id), rules.fail(_owner(job), job.version, told, retry)


def canceled(id: Id, version: int | None) -> Asked:
    return guid(id), rules.cancel(version)


def worker_of(worker: Id) -> bytes:
    return guid(worker, "worker id")


def limit_of(number: int) -> int:
    if number < 1:
        raise UsageError(f"{number} jobs at most: 1 is the least")
    return number


def millis(seconds: Seconds, what: str) -> int:
    """Whole ms. Raises UsageError for a negative number."""
    value = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
    if not 0 <= value < 1e10:
        raise UsageError(f"{what} is a number of seconds from 0 up")
    return round(value * 1000)


def _owner(job: Job) -> bytes:
    if job.worker is None:
        raise UsageError("a job that no worker has claimed", next="pass the job as claim gave it")
    return job.worker.encode()


def _usual(fields: Fields) -> Fields:
    """The same fields as the mapping would write them. Raises Unmappable for what is no job's, without its text."""
    mapped, _ = hash_from_json(_ANY_ID, json_from_hash(_ANY_JOB | fields))
    if lost := [name for name in fields if name not in mapped]:
        raise Unmappable(f"{lost[0].decode(errors='replace')} would be lost")
    return {name: mapped[name] for name in fields}


def _bytes(text: Text) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _date(due: datetime | None) -> bytes:
    """In UTC. Raises UsageError for a datetime without a zone."""
    if due is None:
        return b""
    if due.tzinfo is None:
        raise UsageError("a datetime without a time zone", next="use datetime.now(UTC) + …")
    return due.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f0Z").encode()
