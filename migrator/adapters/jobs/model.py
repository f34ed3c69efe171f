"""Jobs as applications see them, and what the methods of `Jobs` answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from uuid import UUID

from migrator.errors import UsageError

Fields = dict[bytes, bytes]
Id = str | bytes | UUID
_HEX = "-?".join(f"([0-9a-f]{{{digits}}})" for digits in (8, 4, 4, 4, 12))
_GUID = re.compile(rf"[({{]?{_HEX}[)}}]?", re.IGNORECASE)


class Code(Enum):
    """Why something was not done. The names are those that the job store had for it, where it had one."""

    ALREADY_ASSIGNED = "ALREADY_ASSIGNED"
    """It is another worker's, or was no longer this worker's."""
    WRONG_STATUS = "WRONG_STATUS"
    """Its status does not allow it: claim takes 100 and 200, complete and fail 300, cancel all three."""
    RETRY_DELAY = "RETRY_DELAY"
    """It is not due yet."""
    VERSION_CONFLICT = "VERSION_CONFLICT"
    """Somebody has changed it since."""
    JOB_NOT_FOUND = "JOB_NOT_FOUND"
    """There is none, in either shape."""
    JOB_CREATE_FAILED = "JOB_CREATE_FAILED"
    """There is one with that id already."""
    JOB_NOT_CLAIMED = "JOB_NOT_CLAIMED"
    """Nothing in the queue is due."""
    DESERIALIZATION_ERROR = "DESERIALIZATION_ERROR"
    """What lies there is no job (it is in quarantine, or will be), or its version can go no higher."""
    UNMOVED = "UNMOVED"
    """Only the old shape has it, after the switch: see the outcome `Unmoved`."""
    RETRY = "RETRY"
    """It kept changing, or the phase did, for 5 s."""
    NOT_STUCK = "NOT_STUCK"
    """It has not been in progress for so long."""


@dataclass(frozen=True, slots=True, repr=False)
class Job:
    """One job: the fields of its hash, and the usual ones read. Its text never shows payloads or headers."""

    fields: Fields

    @property
    def id(self) -> str:
        return self.fields[b"Id"].decode().lower()

    @property
    def status(self) -> int:
        """100 queued, 200 scheduled, 300 in progress, 400 completed, 500 failed, 600 canceled."""
        return int(self.fields[b"Status"])

    @property
    def version(self) -> int:
        """Goes up by one with every change through an adapter; 0 for a job that has none."""
        return int(self.fields.get(b"Version") or b"0")

    @property
    def worker(self) -> str | None:
        return self.fields.get(b"WorkerId", b"").decode().lower() or None

    @property
    def name(self) -> str:
        return self.fields.get(b"Name", b"").decode()

    @property
    def payload(self) -> bytes:
        return self.fields.get(b"Payload", b"")

    @property
    def result(self) -> bytes | None:
        """None and empty are one."""
        return self.fields.get(b"Result") or None

    @property
    def error(self) -> bytes | None:
        """JSON, `{"code":…,"message":…,"exception":…}`; bare text where an old recovery wrote it."""
        return self.fields.get(b"Error") or None

    @property
    def retry_count(self) -> int:
        return int(self.fields.get(b"RetryCount") or b"0")

    @property
    def max_retries(self) -> int:
        return int(self.fields.get(b"MaxRetries") or b"3")

    @property
    def started_at_unix(self) -> int | None:
        """Whole unix seconds."""
        text = self.fields.get(b"StartedAtUnix")
        return int(text) if text else None

    def __repr__(self) -> str:
        return f"Job(id={self.id!r}, status={self.status}, version={self.version})"


@dataclass(frozen=True, slots=True)
class Done:
    """It was done, or found; `job` as it is now."""

    job: Job
    epoch: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Deleted:
    """It is gone, in every shape and from both indexes."""

    epoch: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class NotDone:
    """Nothing was written, and why."""

    code: Code
    epoch: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class SetAside:
    """A member that was taken out of the queue, because it could not be claimed and would have stayed at its head.

    `why`: "junk" (no job's name), "ghost" (no job of that name), "type" (a key of another type), "two" (two new
    records), or a `Code`. `score` is the one it had, `at` when it was, in unix ms.
    """

    member: bytes
    why: str
    score: float
    at: int


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A member of the index of jobs in progress that cannot be recovered as it is. It stays there, and is tried again.

    `why`: as for `SetAside`."""

    member: bytes
    why: str


class Recovered(list[Job]):
    """Jobs that were recovered, as they are now; and what lay in the same index for as long, and could not be."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_over: list[PassedOver] = []


def guid(text: Id, what: str = "job id") -> bytes:
    """A guid in the one form that keys have: lower case, with dashes. Raises UsageError."""
    found = id_of(str(text).encode() if isinstance(text, (str, UUID)) else text)
    if found is None or found == b"00000000-0000-0000-0000-000000000000":
        raise UsageError(f"a {what} is a guid, and not an empty one", next="for a new job there is uuid.uuid4()")
    return found


@lru_cache(4096)
def id_of(member: bytes) -> bytes | None:
    """The id that a member of an index means, in whatever form a guid was written; None if it is none."""
    match = _GUID.fullmatch(member.decode("latin-1"))
    return "-".join(match.groups()).lower().encode() if match else None


def read_aside(flat: Mapping[bytes, bytes]) -> list[SetAside]:
    found = []
    for member, kept in flat.items():
        why, score, at = kept.split(b" ")
        found.append(SetAside(member, why.decode(), float(score), int(at)))
    return sorted(found, key=lambda one: (one.at, one.member))
