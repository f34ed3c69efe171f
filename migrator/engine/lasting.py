"""Work whose loss nothing later would show: done until all replicas have it and no server was replaced meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from migrator.engine.run import Run
from migrator.engine.walk import check_markers
from migrator.errors import RefusedError

T = TypeVar("T")
_PASSES = 5


def lasting(run: Run, work: Callable[[], T]) -> T:
    """What `work` returns, once it is on every replica. `work` may run several times and has to bear that.

    The markers alone would not tell: a failover may take back what was written and leave the phase as it was.
    Raises MarkersMovedError where they did move, RefusedError where servers keep being replaced.
    """
    for _ in range(_PASSES):
        before = run.client.processes()
        done = work()
        run.make_durable(run.entry.phase, run.entry.epoch, run.entry.checksum)
        if run.client.processes() == before:
            return done
        check_markers(run)
        run.note("a server was replaced meanwhile: what it may have lost is done again")
    raise RefusedError(f"{run.id}: servers keep being replaced",
                       next="let the failovers settle, then run the same command again")  # fmt: skip
