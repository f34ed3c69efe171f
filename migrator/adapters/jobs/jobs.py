"""Jobs: JSON strings before, hashes after, a queue and an index of those in progress; the caller never asks which."""

from __future__ import annotations

from migrator.adapters.adapter import Adapter, AsyncAdapter, build
from migrator.adapters.aio import AsyncDriver, AsyncRedis
from migrator.adapters.jobs.claim import ClaimCore
from migrator.adapters.jobs.store import AsyncStore, Store
from migrator.adapters.sync import Driver, Redis
from migrator.moves import KeyMove
from migrator.moves.loader import Module


class Jobs(Adapter, Store):
    """The job store on a KeyMove from JSON strings to hashes, as migration 0001 is: `jobs = Jobs(redis, module)`, then
    `done = jobs.claim(worker)`.

    Jobs and workers are named by guids (str, bytes or UUID). What an application has to handle is a value: `Done` with
    the job, or `NotDone` with a `Code`. Times are the server's. Every change raises the job's version by one; a job
    without a version has 0. The first index of the move is the queue, scored in unix seconds by when a job is due, the
    second that of jobs in progress, scored by when they were started.

    Construction and errors are those of `Records`; also UsageError for a move that is not of jobs, and on a cluster
    where jobs and indexes are not in one slot. A value that is no job's raises Unmappable, a lost connection
    UncertainError: a claim that it hides is found by `recover`.
    """

    def __init__(self, redis: Redis, module: Module, namespace: str = "migrator", *, source: str | None = None) -> None:
        driver = Driver(redis)
        core = ClaimCore(build(driver, module, namespace, KeyMove, source))
        self._core = core
        super().__init__(driver, core.bridge)


class AsyncJobs(AsyncAdapter, AsyncStore):
    """`Jobs` for asyncio. What needs Redis is looked at by `await jobs.open()`, or by the first call."""

    def __init__(
        self, redis: AsyncRedis, module: Module, namespace: str = "migrator", *, source: str | None = None
    ) -> None:
        driver = AsyncDriver(redis)
        core = ClaimCore(build(driver, module, namespace, KeyMove, source))
        self._core = core
        super().__init__(driver, core.bridge)
