"""The phase table: every step there is, forward and back; what is not in it is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from migrator.errors import RefusedError

Phase = Literal["pending", "expanded", "backfilled", "verified", "switched", "contracted", "reverting", "closed"]
PHASES: tuple[Phase, ...] = (
    "pending", "expanded", "backfilled", "verified", "switched", "contracted", "reverting", "closed",
)  # fmt: skip
FORWARD: tuple[Phase, ...] = PHASES[:6]


@dataclass(frozen=True, slots=True)
class Transition:
    """One allowed step. Every step raises the epoch, so that what was planned before it does nothing after it;
    only the two that change nothing for adapters keep it."""

    source: Phase
    target: Phase
    keeps_epoch: bool = False


TABLE: tuple[Transition, ...] = (
    # There.
    Transition("pending", "expanded"),  # adapters begin to write both shapes
    Transition("expanded", "backfilled", keeps_epoch=True),  # every old record was copied
    Transition("backfilled", "verified", keeps_epoch=True),  # a full comparison found nothing
    Transition("verified", "switched"),  # the new shape is the truth from here on
    Transition("switched", "contracted"),  # the old shape is frozen; removal may begin
    # Back.
    Transition("expanded", "pending"),  # marker first, then the new shape is cleaned up
    Transition("backfilled", "pending"),
    Transition("verified", "pending"),
    Transition("switched", "expanded"),  # the old shape was kept current: at once
    Transition("contracted", "reverting"),  # both written again, old is incomplete
    Transition("reverting", "switched"),  # the old shape is rebuilt and compared
    Transition("reverting", "contracted"),  # the way back is given up
    # A removal is over: one that is delivered late, when others may use the freed names, does nothing.
    Transition("contracted", "contracted"),
    Transition("pending", "pending"),
    # Restore: adapters refuse while later writes are discarded.
    Transition("contracted", "closed"),
    Transition("switched", "closed"),
    Transition("reverting", "closed"),
    Transition("closed", "closed"),  # discarding is over: what comes back has an epoch of its own
    Transition("closed", "pending"),
    # Repeated steps: what was seen no longer counts (a slot lost its marker in a failover), so walk again.
    Transition("backfilled", "expanded"),
    Transition("verified", "expanded"),
)
_TABLE = {(step.source, step.target): step for step in TABLE}


def transition(source: Phase, target: Phase) -> Transition:
    """The step from one phase to another. Raises RefusedError where there is none."""
    step = _TABLE.get((source, target))
    if step is None:
        onward = ", ".join(step.target for step in TABLE if step.source == source)
        raise RefusedError(f"there is no step from {source} to {target}", next=f"from {source} one can go to: {onward}")
    return step
