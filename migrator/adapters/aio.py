"""Carries adapters' calls out on redis.asyncio.Redis and redis.asyncio.cluster.RedisCluster."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import redis
import redis.asyncio
from redis.asyncio.cluster import RedisCluster
from redis.exceptions import MovedError, RedisClusterException, ResponseError

from migrator.adapters.announce import Herald
from migrator.adapters.core import Acts, Learn, Lost, Pause, Send, Steps, conduct, demoted
from migrator.adapters.once import ONCE, wrap, wrap_new
from migrator.adapters.sync import LOST, packed, refuse_decoding
from migrator.client import Reply
from migrator.errors import UsageError
from migrator.moves.family import AllSlots, OneSlot, Slots

R = TypeVar("R")
AsyncRedis = redis.asyncio.Redis | RedisCluster


class AsyncDriver:
    """The same as `sync.Driver`, awaiting. A cancelled call's connection is closed: its reply belongs to nobody."""

    def __init__(self, client: Any) -> None:
        if not isinstance(client, (redis.asyncio.Redis, RedisCluster)):
            raise UsageError(
                f"{type(client).__module__}.{type(client).__name__} is not a client this adapter can use",
                next="give it redis.asyncio.Redis or redis.asyncio.cluster.RedisCluster; without asyncio there are "
                "Records, Members, Timestamps and Jobs",
            )
        refuse_decoding(client)
        self._client: Any = client
        self.cluster = isinstance(client, RedisCluster)
        self.slots: Slots = AllSlots() if self.cluster else OneSlot()
        self.herald: Herald | None = None

    async def run(self, steps: Steps[R]) -> R:
        """The result of a method."""
        acts: Acts[R] = conduct(steps, self.herald)
        outcome: Reply = None
        while True:
            try:
                act = acts.send(outcome)
            except StopIteration as done:
                result: R = done.value
                return result
            outcome = None
            if isinstance(act, Send):
                outcome = await self._send(act)
            elif isinstance(act, Pause):
                await asyncio.sleep(act.seconds)
            else:
                await self._learn(act)

    async def _send(self, act: Send) -> Reply:
        try:
            home = await self._home(act)
            connection = home.acquire_connection() if self.cluster else await _take(home)
        except (*LOST, RedisClusterException, ResponseError) as error:
            return Lost(error, sent=False)
        sent = False
        commands, replies = act.commands(), list[Reply]()
        try:
            await _make_ready(connection)
            sent = True
            await connection.send_packed_command(packed(commands), check_health=False)
            # Each is read, after an error too: what is left unread would be the answer to the next call.
            while len(replies) < len(commands):
                replies.append(await _reply(connection))
            outcome = act.outcome(replies)
            if demoted(outcome):
                await connection.disconnect(nowait=True)
            return outcome
        except ResponseError as error:
            return Lost(error, sent=False)  # while it connected
        except redis.BusyLoadingError as error:
            await connection.disconnect(nowait=True)
            return Lost(error, sent=sent and len(replies) < len(commands) - 1)
        except LOST as error:
            await connection.disconnect(nowait=True)
            return Lost(error, sent=sent)
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        finally:
            released = home.release(connection)
            if released is not None:  # a pool's is awaited, a node's is not
                await released

    async def _home(self, act: Send) -> Any:
        """Where connections come from: the pool, or a node of the cluster."""
        if not self.cluster:
            return self._client.connection_pool
        await self._client.initialize()
        client, key = self._client, act.call.keys[0]
        node = client.get_node(node_name=act.node) if act.node else client.get_node_from_key(key)
        if node is None:
            raise redis.ConnectionError(f"nobody knows the node {act.node or key!r}")
        return node

    async def _learn(self, act: Learn) -> None:
        if not self.cluster:
            return
        manager = self._client.nodes_manager
        try:
            if isinstance(act.moved, MovedError):
                await manager.move_slot(act.moved)
            else:
                await manager.initialize()
        except (*LOST, RedisClusterException):
            pass  # nobody can be asked now; the next attempt will


async def _take(pool: Any) -> Any:
    """A connection of the pool. Those of a cluster's nodes have no retries of their own."""
    wrap_new(pool)
    token = ONCE.set(True)
    try:
        connection = await pool.get_connection()
    finally:
        ONCE.reset(token)
    wrap(connection)
    return connection


async def _reply(connection: Any) -> Reply:
    try:
        return await connection.read_response(disable_decoding=True)
    except ResponseError as error:
        return error


async def _make_ready(connection: Any) -> None:
    """Connects; a connection the server closed while it lay idle is opened anew, before a write is lost on it.

    redis-py's pools do so too, but its asyncio ones neither with RESP3 nor in a cluster.
    """
    token = ONCE.set(True)
    try:
        await connection.connect()
        try:
            idle = not await connection.can_read()
        except LOST:
            idle = False
        if not idle:
            await connection.disconnect()
            await connection.connect()
    finally:
        ONCE.reset(token)
