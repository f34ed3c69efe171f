"""Carries adapters' calls out on redis.Redis and redis.cluster.RedisCluster."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, TypeVar

import redis
from hiredis import pack_command
from redis.cluster import RedisCluster
from redis.exceptions import MovedError, RedisClusterException, ResponseError

from migrator.adapters.announce import Herald
from migrator.adapters.core import Acts, Learn, Lost, Pause, Send, Steps, conduct, demoted
from migrator.adapters.once import ONCE, wrap, wrap_new
from migrator.client import Arg, Reply
from migrator.errors import UsageError
from migrator.moves.family import AllSlots, OneSlot, Slots

R = TypeVar("R")
Redis = redis.Redis | RedisCluster

LOST = (redis.ConnectionError, redis.TimeoutError, OSError)


class Driver:
    """Takes a connection from the client's pool for each call: the client itself would send a lost write again."""

    def __init__(self, client: Any) -> None:
        if not isinstance(client, (redis.Redis, RedisCluster)):
            raise UsageError(
                f"{type(client).__module__}.{type(client).__name__} is not a client this adapter can use",
                next="give it redis.Redis or redis.cluster.RedisCluster; for asyncio there are AsyncRecords, "
                "AsyncMembers, AsyncTimestamps and AsyncJobs",
            )
        refuse_decoding(client)
        self._client: Any = client
        self.cluster = isinstance(client, RedisCluster)
        self.slots: Slots = AllSlots() if self.cluster else OneSlot()
        self.herald: Herald | None = None

    def run(self, steps: Steps[R]) -> R:
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
                outcome = self._send(act)
            elif isinstance(act, Pause):
                time.sleep(act.seconds)
            else:
                self._learn(act)

    def _send(self, act: Send) -> Reply:
        try:
            pool = self._pool(act)
            connection = self._take(pool)
        except (*LOST, RedisClusterException, ResponseError) as error:
            return Lost(error, sent=False)
        commands, replies = act.commands(), list[Reply]()
        try:
            connection.send_packed_command(packed(commands), check_health=False)
            # Each is read, after an error too: what is left unread would be the answer to the next call.
            while len(replies) < len(commands):
                replies.append(_reply(connection))
            outcome = act.outcome(replies)
            if demoted(outcome):
                connection.disconnect()
            return outcome
        except ResponseError as error:
            return Lost(error, sent=False)  # while it connected
        except redis.BusyLoadingError as error:
            connection.disconnect()
            return Lost(error, sent=len(replies) < len(commands) - 1)
        except LOST as error:
            connection.disconnect()
            return Lost(error, sent=True)
        except BaseException:
            connection.disconnect()
            raise
        finally:
            pool.release(connection)

    def _take(self, pool: Any) -> Any:
        """A connection of the pool. One of a cluster has no retries of its own."""
        if self.cluster:
            return pool.get_connection()
        wrap_new(pool)
        token = ONCE.set(True)
        try:
            connection = pool.get_connection()
        finally:
            ONCE.reset(token)
        wrap(connection)
        return connection

    def _pool(self, act: Send) -> Any:
        if not self.cluster:
            return self._client.connection_pool
        client, key = self._client, act.call.keys[0]
        node = client.get_node(node_name=act.node) if act.node else client.get_node_from_key(key)
        if node is None:
            raise redis.ConnectionError(f"nobody knows the node {act.node or key!r}")
        return self._client.get_redis_connection(node).connection_pool

    def _learn(self, act: Learn) -> None:
        if not self.cluster:
            return
        manager = self._client.nodes_manager
        try:
            if isinstance(act.moved, MovedError):
                manager.move_slot(act.moved)
            else:
                manager.initialize()
        except (*LOST, RedisClusterException):
            pass  # nobody can be asked now; the next attempt will


def _reply(connection: Any) -> Reply:
    try:
        return connection.read_response(disable_decoding=True)
    except ResponseError as error:
        return error


def packed(commands: Sequence[tuple[Arg, ...]]) -> list[bytes]:
    """Packed in C; redis-py packs word by word in Python first."""
    return [b"".join([pack_command(words) for words in commands])]  # type: ignore[arg-type] # its stub is for one


def refuse_decoding(client: Any) -> None:
    """Raises UsageError for a client that decodes replies: keys and values are bytes, and need not be text."""
    if client.get_encoder().decode_responses:
        raise UsageError(
            "the client has decode_responses=True; an adapter's keys and values are bytes",
            next="make one with decode_responses=False for the adapter",
        )
