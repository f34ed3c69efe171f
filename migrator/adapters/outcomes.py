"""What adapters answer. Outcomes that an application has to handle are values; only what is wrong is an error.

`epoch` is that of the marker in the step that answered: it changes when the truth goes to the other shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from migrator.errors import RefusedError, UnreachableError


class Keep(Enum):
    """The expiry a record has now; none, if there is no record."""

    KEEP = "keep"


KEEP = Keep.KEEP


@dataclass(frozen=True, slots=True)
class Found:
    """A record, or a member, in the new shape. `expires_at` is unix ms, None for no expiry (of the collection, for a
    member)."""

    value: Any
    expires_at: int | None
    epoch: int


@dataclass(frozen=True, slots=True)
class Missing:
    """There is none, in either shape."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Unmoved:
    """The old shape is there and the new one is not, in `switched` or later: something without an adapter wrote it,
    or the operator accepted it as it is. Nothing was written; it lies where it was until `migrator verify` settles it.
    """

    epoch: int


@dataclass(frozen=True, slots=True)
class Written:
    epoch: int


@dataclass(frozen=True, slots=True)
class Removed:
    epoch: int


@dataclass(frozen=True, slots=True)
class Batch:
    """What became of many members: how many were written or removed, which were not there, which are `Unmoved`."""

    done: int
    missing: tuple[bytes, ...]
    unmoved: tuple[bytes, ...]


class UncertainError(UnreachableError):
    """The connection was lost in the middle of a write: it may have happened, or not. Read before writing again."""


class UnfitError(RefusedError):
    """One record is not what its template says. `why`: "type" (a key of another type), "two" (two new records)."""

    def __init__(self, message: str, why: str, *, next: str) -> None:
        super().__init__(message, next=next)
        self.why = why
