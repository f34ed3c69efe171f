"""One job as it lies in Redis: its JSON as an application without an adapter writes it, and the indexes beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from migrator.adapters import SetAside
from tests.explorer.footprint import as_bytes
from tests.support import guid, job

NOW = 1_900_000_000  # unix seconds: the clock stands still
STARTED = NOW - 7200  # the job in progress is stuck
CREATED = 1_800_000_000
JOB, WORKER, OTHER = guid(1), guid(0xA), guid(0xB)
QUEUE, RUNNING = b"ae:jobs:queue", b"ae:jobs:inprogress"
ID = JOB.encode()

Do = Callable[..., Any]
Scores = tuple[tuple[bytes, float], ...]


@dataclass(frozen=True)
class Indexes:
    """Members and scores of both indexes, whole, and what was taken out of the queue."""

    queue: Scores = ()
    running: Scores = ()
    aside: tuple[SetAside, ...] = ()


def text(*, running: bool = False, **changed: Any) -> bytes:
    """The job in version 1: queued, or in progress since two hours."""
    fields: dict[str, Any] = {"status": 100, "retryCount": 0, "createdAt": _iso(CREATED), "version": 1}
    if running:
        fields |= {"status": 300, "workerId": WORKER, "startedAt": _iso(STARTED), "startedAtUnix": STARTED}
    return job(JOB, **fields | changed)


def _iso(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def lay(do: Do, key: bytes, *, running: bool = False, **changed: Any) -> None:
    """The job and its place in an index."""
    do("SET", key, text(running=running, **changed))
    index, score = (RUNNING, STARTED) if running else (QUEUE, CREATED)
    do("ZADD", index, score, ID)


def indexes(do: Do, aside: bytes) -> Indexes:
    flat = do("HGETALL", aside)
    return Indexes(_scores(do, QUEUE), _scores(do, RUNNING), tuple(map(_set_aside, flat[::2], flat[1::2])))


def _scores(do: Do, key: bytes) -> Scores:
    flat = do("ZRANGE", key, 0, -1, "WITHSCORES")
    return tuple((as_bytes(flat[i]), float(flat[i + 1])) for i in range(0, len(flat), 2))


def _set_aside(member: bytes, kept: bytes) -> SetAside:
    why, score, at = kept.split(b" ")
    return SetAside(member, why.decode(), float(score), int(at))
