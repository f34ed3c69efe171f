"""Which node owns a key: one server, or the primaries of a cluster. Nothing else knows the difference."""

from __future__ import annotations

from typing import Any

import redis
from redis.cluster import RedisCluster
from redis.exceptions import RedisClusterException, ResponseError
from redis.sentinel import SentinelConnectionPool

from migrator.client.wire import Node, Reply, checked, exchange, reason
from migrator.errors import UsageError
from migrator.keys import SLOTS, slot_of


class Single:
    """One server, also behind a sentinel or a unix socket."""

    def __init__(self, pool: redis.ConnectionPool, address: str, db: int) -> None:
        self._node = Node("server", address, pool)
        self.address, self.db = address, db

    def nodes(self) -> list[Node]:
        return [self._node]

    def node_of(self, key: bytes) -> Node:  # noqa: ARG002 - a single server owns every key
        return self._node

    def named(self, name: str) -> Node:
        raise redis.ConnectionError(f"a single server named another node, {name}")

    def fingerprint(self) -> str:
        return "server"

    def migrating(self) -> bool:
        return False

    def refresh(self) -> None: ...

    def in_database(self, db: int) -> Single:
        """The same server, with connections of its own to another database."""
        pool, kept = self._node.pool, {**self._node.pool.connection_kwargs, "db": db}
        if isinstance(pool, SentinelConnectionPool):
            kept.pop("connection_pool", None)  # the pool gives its connections itself
            return Single(SentinelConnectionPool(pool.service_name, pool.sentinel_manager, **kept), self.address, db)
        return Single(redis.ConnectionPool(pool.connection_class, **kept), self.address, db)


class Cluster:
    """The primaries of a cluster; the slot map is read again whenever a node refuses."""

    db = 0

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self._url, self._options = url, options
        self._owners: list[Node] = []
        self._primaries: list[Node] = []
        self._nodes: dict[str, Node] = {}
        self._found: RedisCluster | None = None
        self._print = ""  # the last fingerprint

    def nodes(self) -> list[Node]:
        self._load()
        return list(self._primaries)

    def node_of(self, key: bytes) -> Node:
        self._load()
        return self._owners[slot_of(key)]

    def named(self, name: str) -> Node:
        """A node by its address: the one a slot is moving to may own no slot yet."""
        found = self._discover()
        node = found.get_node(node_name=name)
        if node is None:
            raise redis.ConnectionError(f"a slot is moving to {name}, which is not known yet")
        return self._node(found, node)

    def fingerprint(self) -> str:
        """What each primary says that it owns itself: it knows at once, the others hear of it later."""
        found = self._owned()
        if found != self._print:
            self.refresh()  # somebody else may own slots now
            found = self._print = self._owned()
        return found

    def _owned(self) -> str:
        return ",".join(_own_slots(checked(exchange(node, [("CLUSTER", "NODES")])[0])) for node in self.nodes())

    def migrating(self) -> bool:
        for node in self.nodes():
            nodes, moves = exchange(node, [("CLUSTER", "NODES"), ("CLUSTER", "GETSLOTMIGRATIONS")])
            if b"[" in checked(nodes):
                return True
            # Valkey 9 moves slots without showing it in CLUSTER NODES; other servers do not know the question.
            if not isinstance(moves, ResponseError) and any(_under_way(move) for move in moves):
                return True
        return False

    def refresh(self) -> None:
        self._owners = []

    def _load(self) -> None:
        if self._owners:
            return
        found = self._discover()
        cache = found.nodes_manager.slots_cache
        if len(cache) < SLOTS:
            raise redis.ConnectionError(f"the cluster serves {len(cache)} of {SLOTS} slots")
        # By object first: there are 16384 slots and a few nodes, and this is asked before and after every walk.
        seen = {id(nodes[0]): nodes[0] for nodes in cache.values()}
        known = {number: self._node(found, node) for number, node in seen.items()}
        self._owners = [known[id(cache[slot][0])] for slot in range(SLOTS)]
        self._primaries = sorted(set(known.values()), key=lambda node: node.address)

    def _discover(self) -> RedisCluster:
        """Asks any node that was ever seen: the one in the URL may be gone."""
        try:
            if self._found is None:
                self._found = RedisCluster.from_url(self._url, **self._options)
            else:
                self._found.nodes_manager.initialize()
        except RedisClusterException as error:
            cause = error.__cause__ or error
            if "not enabled" in str(cause):
                raise UsageError(
                    "--url says redis+cluster://, but that server is not part of a cluster", next="use redis://"
                ) from None
            raise redis.ConnectionError(reason(cause)) from error
        return self._found

    def _node(self, found: RedisCluster, node: Any) -> Node:
        known = self._nodes.get(node.name)
        if known is None:
            pool = found.get_redis_connection(node).connection_pool
            known = self._nodes[node.name] = Node(node.name, node.name, pool)
        return known


def _own_slots(nodes: bytes) -> str:
    """The ID of the node that answered, and its ranges of slots, of what CLUSTER NODES answers."""
    for words in map(bytes.split, nodes.splitlines()):
        if b"myself" in words[2]:
            return " ".join(word.decode() for word in (words[0], *words[8:]) if not word.startswith(b"["))
    return ""


def _under_way(move: Reply) -> bool:
    fields = {bytes(k): v for k, v in zip(move[::2], move[1::2], strict=False)} if isinstance(move, list) else {}
    return fields.get(b"state") not in (b"success", b"failed", b"cancelled", b"canceled")
