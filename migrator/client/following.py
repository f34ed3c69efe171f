"""Replicas: how many follow a primary, and waiting until all of them have what was written to it."""

from __future__ import annotations

import time
from collections.abc import Callable

from redis.exceptions import ResponseError

from migrator.client.client import Client
from migrator.client.wire import Command, Node, Reply, checked
from migrator.errors import NodeGoneError, RefusedError

_WAIT_MS = 1000
_ALL = 99  # more than follow any primary: WAIT then answers how many there are


def replicas(client: Client, node: Node) -> int | None:
    """How many replicas a primary has: by INFO, else by ROLE, else by what WAIT answers; None where none is permitted.

    What WAIT answered is remembered: it takes a second.
    """
    info, role = client.on_node(node, ("INFO", "replication"), ("ROLE",))
    if isinstance(info, bytes):
        for line in info.splitlines():
            if line.startswith(b"connected_slaves:"):
                return int(line.split(b":")[1])
    if isinstance(role, list) and role[0] == b"master":
        return len(role[2])
    if node.id not in client.answered_wait:
        answer = client.on_node(node, ("WAIT", _ALL, _WAIT_MS))[0]
        client.answered_wait[node.id] = None if isinstance(answer, ResponseError) else int(answer)
    return client.answered_wait[node.id]


def replicate(
    client: Client,
    write: Command,
    accept: Callable[[Reply], object],
    tick: Callable[[], None],
    clock: Callable[[], float] = time.monotonic,
) -> str:
    """Sends a write, and waits until every replica of its node has it, and with it all that was written there before.

    On an idle connection WAIT answers for older writes, so the write goes first, on that same connection. `accept`
    gets its reply and raises where that is no success. Returns what could not be done, or nothing. Raises RefusedError
    if too few replicas follow within the client's patience.
    """
    until = clock() + client.patience
    while True:
        try:
            node = client.node_of(write.key)
            wanted = replicas(client, node)
            if not wanted:
                return "" if wanted == 0 else f"WAIT is not permitted on {node.address}: a failover may lose writes"
            reply, acknowledged = client.on_node(node, write.packed(whole=True), ("WAIT", wanted, _WAIT_MS))
        except NodeGoneError:
            if clock() > until:
                raise
            continue  # another one has taken its place
        if isinstance(acknowledged, ResponseError):
            return f"WAIT is not permitted on {node.address}: a failover may lose writes"
        if isinstance(reply, ResponseError):
            reply = checked(client.run([write])[0])  # a slot that moved: only the next round counts
            acknowledged = 0
        accept(reply)
        if acknowledged >= wanted:
            return ""
        if clock() > until:
            raise RefusedError(
                f"{node.address}: {acknowledged} of {wanted} replicas follow; a failover could lose what was written",
                next="wait until the replicas have caught up, then run the command again",
            )
        tick()
