"""Work whose loss nothing later would show: done until all replicas have it and no server was replaced meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from migrator.client import Client, Node, ResponseError, replicas
from migrator.engine.run import Run
from migrator.engine.walk import check_markers
from migrator.errors import UnreachableError
from migrator.models import Remark

T = TypeVar("T")
_PASSES = 5


def lasting(run: Run, work: Callable[[], T]) -> T:
    """What `work` returns, once it is on every replica. `work` may run several times and has to bear that.

    The markers alone would not tell: a failover may take back what was written and leave the phase as it was.
    Raises MarkersMovedError where they did move, UnreachableError where servers are replaced again and again.
    """
    for _ in range(_PASSES):
        before = run.client.processes()
        done = work()
        run.make_durable(run.entry.phase, run.entry.epoch, run.entry.checksum)
        if run.client.processes() == before:
            return done
        check_markers(run)
        run.note("a server was replaced meanwhile: what it may have lost is done again")
    raise never_through(run, f"{_PASSES} times")


def never_through(run: Run, how_often: str) -> UnreachableError:
    return UnreachableError(f"{run.id}: servers were replaced {how_often}, and each time its work began again",
                            next="let the failovers settle, then run the same command again")  # fmt: skip


def replica_risks(run: Run) -> Iterator[Remark]:
    """What the plan says of replicas: that there is none, or that nobody can be asked to wait for them."""
    client = run.client
    found = {node: replicas(client, node) for node in client.nodes()}
    if any(number is None or (number and _denied(client, node)) for node, number in found.items()):
        yield Remark(code="no-wait", text="WAIT is not permitted, so replicas are not waited for: a failover may take "
                     "back a phase, and what was removed after it is only in the backup then")  # fmt: skip
    elif not any(found.values()):
        yield Remark(code="no-replica", text="there is no replica: if the server is lost, so is what it had not saved")


def _denied(client: Client, node: Node) -> bool:
    return isinstance(client.on_node(node, ("WAIT", 0, 0))[0], ResponseError)
