"""What every adapter has in common: a client, a migration's move, and the first look at the marker."""

from __future__ import annotations

from typing import Any, TypeVar

from migrator.adapters.aio import AsyncDriver
from migrator.adapters.announce import Herald
from migrator.adapters.bridge import Bridge, choose
from migrator.adapters.core import Steps
from migrator.adapters.sync import Driver
from migrator.moves import KeyMove, MemberMove
from migrator.moves.loader import Module
from migrator.names import Names

R = TypeVar("R")
MoveKind = type[KeyMove[Any, Any]] | type[MemberMove[Any, Any]]


def build(driver: Driver | AsyncDriver, module: Module, namespace: str, kind: MoveKind, source: str | None) -> Bridge:
    names = Names(namespace)
    bridge = Bridge(driver.slots, module, choose(module, kind, source), names)
    driver.herald = Herald(names, module.id, module.checksum)
    return bridge


class Adapter:
    """An adapter on redis.Redis or redis.cluster.RedisCluster; as safe between threads as the client is."""

    def __init__(self, driver: Driver, bridge: Bridge) -> None:
        self._driver = driver
        driver.run(bridge.open())

    def _run(self, steps: Steps[R]) -> R:
        return self._driver.run(steps)


class AsyncAdapter:
    """An adapter on redis.asyncio.Redis or redis.asyncio.cluster.RedisCluster."""

    def __init__(self, driver: AsyncDriver, bridge: Bridge) -> None:
        self._driver, self._bridge, self._opened = driver, bridge, False

    async def open(self) -> None:
        """Looks whether scripts may run and a marker is there; the first call does it otherwise. Raises RefusedError,
        LedgerBackwardsError, UnreachableError."""
        await self._driver.run(self._bridge.open())
        self._opened = True

    async def _run(self, steps: Steps[R]) -> R:
        if not self._opened:
            try:
                await self.open()
            except BaseException:
                steps.close()
                raise
        return await self._driver.run(steps)
