"""A plan on a snapshot and a rehearsal, as a person reads them."""

from __future__ import annotations

from collections.abc import Iterator

from migrator.cli.render import examples_of, plan_lists, size, wrapped
from migrator.cli.trial import elsewhere, where
from migrator.models import MigrationPlan, PlanResult, RehearsalReport, SnapshotReport, TriedMigration, number_of


def as_text(result: PlanResult | RehearsalReport) -> str:
    return _rehearsed(result) if isinstance(result, RehearsalReport) else _tried(result)


def _tried(plan: PlanResult) -> str:
    report = plan.snapshot
    assert report is not None
    parts = ["\n".join([_head(report), *(wrapped(note, first="  note: ") for note in report.notes)])]
    parts += [
        "\n".join(_one(one, tried, report)) for one, tried in zip(plan.migrations, report.migrations, strict=True)
    ]
    return "\n\n".join([*parts, "\n".join(_verdict(report))])


def _head(report: SnapshotReport | RehearsalReport) -> str:
    loaded = report.loaded
    out = [wrapped(f"{report.file}: {number_of(loaded.records, 'record')}, on {report.server}")]
    if loaded.expired:
        out.append(f"  {number_of(loaded.expired, 'record')} had expired and were left out")
    if loaded.not_visible:
        out.append(f"  {number_of(loaded.not_visible, 'record')} could not be seen")
    return "\n".join(out)


def _one(plan: MigrationPlan, tried: TriedMigration, report: SnapshotReport) -> Iterator[str]:
    yield f"{plan.id}: {plan.from_}{_way(plan, tried, report)}"
    if plan.waits_for:
        yield wrapped(plan.waits_for, first="  waits: ")
    if plan.from_ == "contracted" and not plan.refused:
        return
    yield f"  records  {tried.records:,}; {tried.mapped:,} mapped, {tried.rejected:,} cannot be"
    if tried.memory.after:
        memory = tried.memory
        yield (f"  memory   {size(memory.before)} before, {size(memory.both)} with both shapes, "
               f"{size(memory.after)} after")  # fmt: skip
    yield from examples_of(plan)
    yield from _counted(tried)
    yield from plan_lists(plan.model_copy(update={"rejected": ()}))
    for stop in report.stopped:
        if stop.id == plan.id:
            yield ""
            yield wrapped(f"stopped at {stop.phase}: {stop.reason}", first="  ")


def _way(plan: MigrationPlan, tried: TriedMigration, report: SnapshotReport) -> str:
    if plan.refused or plan.waits_for or tried.reached == plan.from_:
        return ""
    stopped = any(stop.id == plan.id for stop in report.stopped)
    return f" -> {tried.reached}" if stopped else f" -> {tried.reached}, all the way back, and there again"


def _counted(tried: TriedMigration) -> Iterator[str]:
    if tried.differing:
        yield ""
        yield f"  DIFFERENCES, in {number_of(tried.differing, 'record')}:"
        yield from (wrapped(f"{where(d.key, d.member)}: {d.why}", first="  - ") for d in tried.differences)
    for title, reasons in (("cannot be mapped (they stay as they are)", tried.reasons), ("noted", tried.noted)):
        if reasons:
            yield ""
            yield f"  {title}:"
            for one in reasons:
                told = f"{number_of(one.count, 'record')}: {one.reason}; for instance {where(one.key, one.member)}"
                yield wrapped(told, first="  - ")
    if tried.unjudged:
        yield ""
        told = (
            f"{number_of(tried.unjudged, 'record')} the inverse gives back otherwise than they were. The losses of "
            "this move are declared in words alone: give it `lost`, so that a fault can be told from a loss."
        )
        yield wrapped(told, first="  ")


def _verdict(report: SnapshotReport) -> Iterator[str]:
    yield from (wrapped(f"{title}: {text}", first="") for title, text in elsewhere(report))
    stages = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in report.seconds.items())
    if stages:
        yield wrapped(f"time: {stages}")
    if report.exit:
        yield f"NOT ok: {_why(report)}"
    elif report.expected:
        yield "the report is the expected one"
    else:
        yield "ok: every record came back as it was" if stages else "nothing was to be done, and nothing was tried"


def _why(report: SnapshotReport) -> str:
    found = []
    if report.exit == 60:
        found.append("refused")
    if report.differing:
        found.append(f"{number_of(report.differing, 'difference')}")
    if report.rejected:
        found.append(f"{number_of(report.rejected, 'record')} cannot be mapped")
    if report.unexpected:
        found.append("the report is not the expected one")
    return ", ".join(found or ["a command stopped"]) + f" (exit code {report.exit})"


def _rehearsed(report: RehearsalReport) -> str:
    killed = ", ".join(f"{command} {number}" for command, number in report.kills.items())
    writes = ", ".join(f"{what} {number:,}" for what, number in report.writes.items())
    out = [_head(report), "", *(f"$ {command}" for command in report.commands), ""]
    out.append(wrapped(
        f"{number_of(report.processes, 'process').replace('processs', 'processes')}, {sum(report.kills.values())} "
        f"killed ({killed or 'none'}); {number_of(report.failovers, 'failover')}; {report.seconds:.0f} s"))  # fmt: skip
    out.append(wrapped(f"{number_of(report.writers, 'writer')}: {writes or 'nothing written'}"))
    out += [wrapped(f"nothing was written to {text}", first="  note: ") for text in report.unwritten]
    out += [wrapped(f"note: {note}", first="  ") for note in report.notes]
    if report.rejected:
        out.append(f"{number_of(report.rejected, 'record')} cannot be mapped, and were accepted as they are")
    out += [wrapped(f"{d.verdict}: {where(d.key, d.member)} ({d.why})", first="- ") for d in report.differences]
    if report.stopped is not None:
        out.append(wrapped(f"stopped at {report.stopped.phase}: {report.stopped.reason}"))
        return "\n".join(out)
    found = ", ".join(f"{name} {number:,}" for name, number in (
        ("lost", report.lost), ("extra", report.extra), ("different", report.different)))  # fmt: skip
    out.append(f"looked at {report.compared:,}: {found}")
    return "\n".join(out)
