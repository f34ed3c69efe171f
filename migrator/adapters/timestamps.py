"""Timestamps of a map's keys: a hash of ticks before, a sorted set by time after; the caller never asks which."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from migrator.adapters.adapter import Adapter, AsyncAdapter, build
from migrator.adapters.aio import AsyncDriver, AsyncRedis
from migrator.adapters.bridge import Capture
from migrator.adapters.core import Steps
from migrator.adapters.members import MANY, AsyncPages, Pages, one_written, only_batch
from migrator.adapters.outcomes import Batch, Found, Missing, Removed, Unmoved, Written
from migrator.adapters.sync import Driver, Redis
from migrator.adapters.timestamps_core import DueCore, Mark, Stamp, Time, TimestampsCore
from migrator.moves import MemberMove
from migrator.moves.loader import Module

Page = list[Stamp]


class Due(Pages[Stamp]):
    """Pages of members that are due. `mark` is where the next reading begins; save it once all members are handled."""

    def __init__(self, run: Callable[[Steps[Page]], Page], core: DueCore) -> None:
        super().__init__(run, core.page)
        self._core = core

    @property
    def mark(self) -> Mark:
        """The window's end, and the members given at just that time. Raises UsageError before all pages are read."""
        return self._core.mark


class AsyncDue(AsyncPages[Stamp]):
    """`Due` for asyncio."""

    def __init__(self, run: Callable[[Steps[Page]], Awaitable[Page]], core: DueCore) -> None:
        super().__init__(run, core.page)
        self._core = core

    @property
    def mark(self) -> Mark:
        """See `Due.mark`."""
        return self._core.mark


class Timestamps(Adapter):
    """Timestamps of a MemberMove from a hash of ticks to a sorted set, as migration 0002 is:
    `stamps = Timestamps(redis, module)`, then `stamps.set(b'"session-1"', datetime.now(UTC), name="sessions")`.

    Times are ticks (whole 100 ns since the year 1, UTC) or aware datetimes. The hash keeps ticks exactly; from the
    switch on times are those of the sorted set, to 128 ticks (12.8 µs). Construction and errors are those of `Records`;
    a time that is no ticks (unix time, out of range) raises Unmappable.
    """

    def __init__(self, redis: Redis, module: Module, namespace: str = "migrator", *, source: str | None = None) -> None:
        driver = Driver(redis)
        self._core = TimestampsCore(build(driver, module, namespace, MemberMove, source))
        super().__init__(driver, self._core.bridge)

    def get(self, member: bytes, /, **captures: Capture) -> Found | Missing | Unmoved:
        """`Found.value` is ticks."""
        return self._run(self._core.ticks(member, captures))

    def set(self, member: bytes, time: Time, /, **captures: Capture) -> Written | Unmoved:
        """Raises UncertainError if the connection was lost and the write may have happened; it may be repeated."""
        return self._run(one_written(self._core.stamp([(member, time)], captures)))

    def set_many(self, times: Mapping[bytes, Time], /, **captures: Capture) -> Batch:
        """One atomic step for 1000 members; more take several."""
        return self._run(only_batch(self._core.stamp(times.items(), captures)))

    def remove(self, member: bytes, /, **captures: Capture) -> Removed | Missing | Unmoved:
        """Removes a member in every shape."""
        return self._run(self._core.remove_one(member, captures))

    def remove_many(self, members: Iterable[bytes], /, **captures: Capture) -> Batch:
        """The same for many."""
        return self._run(only_batch(self._core.remove(members, captures)))

    def due(self, after: Time | Mark, until: Time, limit: int = MANY, /, **captures: Capture) -> Due:
        """Members with after <= time <= until, ascending, in pages of at most `limit`.

        Both edges are inclusive, compared as the sorted set's doubles in every phase. Pass the `mark` of the last
        reading as `after`: members it was given at its edge do not come again, and nothing is skipped. A member that
        changes meanwhile, or a change of phase, can make members come twice. Members in quarantine are passed over.
        Before the switch the hash is scanned for it, and the names inside the window are held in memory. A user who
        may not run INFO can scan 20,000 members; beyond that RefusedError is raised.
        """
        return Due(self._run, self._core.due(after, until, limit, captures))

    def due_count(self, after: Time, until: Time, /, **captures: Capture) -> int:
        """How many members `due` would give; before the switch the hash is scanned for it."""
        return self._run(self._core.count(after, until, captures))

    def latest(self, number: int = 10, /, **captures: Capture) -> Page:
        """The newest members, newest first; before the switch the hash is scanned for it."""
        return self._run(self._core.latest(number, captures))


class AsyncTimestamps(AsyncAdapter):
    """`Timestamps` for asyncio. What needs Redis is looked at by `await stamps.open()`, or by the first call."""

    def __init__(
        self, redis: AsyncRedis, module: Module, namespace: str = "migrator", *, source: str | None = None
    ) -> None:
        driver = AsyncDriver(redis)
        self._core = TimestampsCore(build(driver, module, namespace, MemberMove, source))
        super().__init__(driver, self._core.bridge)

    async def get(self, member: bytes, /, **captures: Capture) -> Found | Missing | Unmoved:
        """See `Timestamps.get`."""
        return await self._run(self._core.ticks(member, captures))

    async def set(self, member: bytes, time: Time, /, **captures: Capture) -> Written | Unmoved:
        """See `Timestamps.set`."""
        return await self._run(one_written(self._core.stamp([(member, time)], captures)))

    async def set_many(self, times: Mapping[bytes, Time], /, **captures: Capture) -> Batch:
        """See `Timestamps.set_many`."""
        return await self._run(only_batch(self._core.stamp(times.items(), captures)))

    async def remove(self, member: bytes, /, **captures: Capture) -> Removed | Missing | Unmoved:
        """See `Timestamps.remove`."""
        return await self._run(self._core.remove_one(member, captures))

    async def remove_many(self, members: Iterable[bytes], /, **captures: Capture) -> Batch:
        """See `Timestamps.remove_many`."""
        return await self._run(only_batch(self._core.remove(members, captures)))

    def due(self, after: Time | Mark, until: Time, limit: int = MANY, /, **captures: Capture) -> AsyncDue:
        """See `Timestamps.due`: `async for page in stamps.due(mark, until): …`."""
        return AsyncDue(self._run, self._core.due(after, until, limit, captures))

    async def due_count(self, after: Time, until: Time, /, **captures: Capture) -> int:
        """See `Timestamps.due_count`."""
        return await self._run(self._core.count(after, until, captures))

    async def latest(self, number: int = 10, /, **captures: Capture) -> Page:
        """See `Timestamps.latest`."""
        return await self._run(self._core.latest(number, captures))
