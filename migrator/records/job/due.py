"""When a job is due: what its place in the queue follows from."""

from __future__ import annotations

from migrator.records.dates import parse_iso
from migrator.records.ticks import TICKS_PER_SECOND, UNIX_EPOCH_TICKS


def due_at(fields: dict[bytes, bytes]) -> float | None:
    """Unix seconds with fraction of RetryDelayUntil, else of CreatedAt; None if neither is a date."""
    moment = parse_iso(fields[b"RetryDelayUntil"] or fields[b"CreatedAt"])
    return None if moment is None else (moment.ticks - UNIX_EPOCH_TICKS) / TICKS_PER_SECOND
