"""One report of several: of shares of one snapshot, each tried by itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from migrator.models import (
    Counts,
    DifferenceResult,
    Loaded,
    MigrationPlan,
    PlanResult,
    ReasonCount,
    SnapshotReport,
    TriedMemory,
    TriedMigration,
)
from migrator.rehearsal.findings import NAMED

_LISTED = 20


def merged(plans: Sequence[PlanResult], everywhere: int) -> PlanResult:
    """All as one; `everywhere` is how many records are in each share."""
    first = plans[0]
    reports = [plan.snapshot for plan in plans if plan.snapshot is not None]
    migrations = tuple(reduce(_plans, ones) for ones in zip(*(plan.migrations for plan in plans), strict=True))
    report = reduce(_reports, reports)
    spare = everywhere * (len(plans) - 1)
    loaded = report.loaded.model_copy(update={"records": report.loaded.records - spare})
    return first.model_copy(update={"migrations": migrations, "snapshot": report.model_copy(update={"loaded": loaded})})


def _plans(one: MigrationPlan, two: MigrationPlan) -> MigrationPlan:
    counts = Counts(estimate=one.counts.estimate + two.counts.estimate, low=one.counts.low + two.counts.low,
                    high=one.counts.high + two.counts.high)  # fmt: skip
    # That a share has no record says nothing of the others.
    risks = [
        risk
        for risk in (*one.risks, *two.risks)
        if risk.code != "no-records" or (risk in one.risks and risk in two.risks)
    ]
    return one.model_copy(update={
        "counts": counts, "rejected": (*one.rejected, *two.rejected)[:_LISTED],
        "examples": one.examples or two.examples,
        "memory_bytes": one.memory_bytes + two.memory_bytes, "seconds": max(one.seconds, two.seconds),
        "index_repairs": (*one.index_repairs, *two.index_repairs)[:_LISTED],
        "index_repairs_total": one.index_repairs_total + two.index_repairs_total,
        "risks": tuple(dict.fromkeys(risks)), "refused": tuple(dict.fromkeys((*one.refused, *two.refused))),
        "sampled": one.sampled + two.sampled,
    })  # fmt: skip


def _reports(one: SnapshotReport, two: SnapshotReport) -> SnapshotReport:
    migrations = tuple(_tried(a, b) for a, b in zip(one.migrations, two.migrations, strict=True))
    stages = dict.fromkeys((*one.seconds, *two.seconds))
    elsewhere = tuple(dict.fromkeys((*one.elsewhere, *two.elsewhere)))
    known = {stop.id for stop in one.stopped}
    return one.model_copy(update={
        "loaded": _loaded(one.loaded, two.loaded), "migrations": migrations, "elsewhere": elsewhere[:NAMED],
        "differing": one.differing + two.differing, "rejected": one.rejected + two.rejected,
        "stopped": (*one.stopped, *(stop for stop in two.stopped if stop.id not in known)),
        "notes": tuple(dict.fromkeys((*one.notes, *two.notes))),
        "seconds": {stage: max(one.seconds.get(stage, 0.0), two.seconds.get(stage, 0.0)) for stage in stages},
        "exit": worse(one.exit, two.exit),
    })  # fmt: skip


def _loaded(one: Loaded, two: Loaded) -> Loaded:
    notes = tuple(dict.fromkeys((*one.notes, *two.notes)))
    return Loaded(records=one.records + two.records, expired=one.expired + two.expired,
                  not_visible=one.not_visible + two.not_visible, notes=notes)  # fmt: skip


def _tried(one: TriedMigration, two: TriedMigration) -> TriedMigration:
    sums = ("records", "mapped", "rejected", "compared", "unjudged", "differing")
    memory = {name: getattr(one.memory, name) + getattr(two.memory, name) for name in TriedMemory.model_fields}
    return one.model_copy(update={
        **{name: getattr(one, name) + getattr(two, name) for name in sums},
        # Of two that came to different phases the one that was stopped is to be seen.
        "reached": two.reached if one.reached == "contracted" else one.reached,
        "reasons": _reasons((*one.reasons, *two.reasons)), "noted": _reasons((*one.noted, *two.noted)),
        "differences": _first((*one.differences, *two.differences)), "memory": TriedMemory(**memory),
    })  # fmt: skip


def _reasons(found: Sequence[ReasonCount]) -> tuple[ReasonCount, ...]:
    by_reason: dict[str, ReasonCount] = {}
    for one in sorted(found, key=lambda one: (one.key, one.member or "")):
        known = by_reason.get(one.reason)
        by_reason[one.reason] = one if known is None else known.model_copy(update={"count": known.count + one.count})
    return tuple(sorted(by_reason.values(), key=lambda one: (-one.count, one.reason)))


def _first(found: Sequence[DifferenceResult]) -> tuple[DifferenceResult, ...]:
    ranked = sorted(found, key=lambda one: (one.key, one.member or "", one.verdict, one.why))
    return tuple(ranked[:NAMED])


def worse(one: int, two: int) -> int:
    """The exit code that comes first where two hold."""
    return min((one, two), key=lambda code: BEFORE.index(code) if code in BEFORE else -1)


# Where several hold, the first of these is what the command exits with (see the command line's contract).
BEFORE = (3, 2, 60, 62, 11, 12, 20, 21, 41, 30, 32, 31, 0)
