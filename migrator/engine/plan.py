"""What apply would do, found by looking: counts, real records mapped, risks and refusals. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from migrator.client import checked
from migrator.engine import indexes
from migrator.engine.alive import adapters_of, left_behind, other_mappings
from migrator.engine.backfill import PAGE_KEYS
from migrator.engine.guards import claims_readable, info_field, passed_over, reached, refusals, unfinished
from migrator.engine.lasting import replica_risks
from migrator.engine.run import Run
from migrator.engine.sample import Findings, look
from migrator.engine.session import Session
from migrator.ledger import Entry
from migrator.models import Counts, MigrationPlan, PlanResult, Remark, show
from migrator.moves import KeyMove
from migrator.moves.family import Family
from migrator.moves.loader import Module
from migrator.phases import FORWARD, Phase
from migrator.phases.announced import Announced

REJECTED = 20


def plan(session: Session, ids: Sequence[str], through: Phase) -> PlanResult:
    """The plan for the migrations named, or all. Reads only."""
    known = session.ledger.entries()
    if known is None:
        session.check_fresh()
    entries = known or {}
    session.check_drift(entries)
    session.check_order(entries)
    chosen = session.modules.select(ids)
    plans = tuple(plan_one(session, module, entries, through, asked=bool(ids)) for module in chosen)
    return PlanResult(migrations=plans, namespace=session.names.namespace, through=through)


def plan_one(
    session: Session, module: Module, entries: dict[str, Entry], through: Phase, *, asked: bool, repairs: bool = True
) -> MigrationPlan:
    """What apply would do; `asked`: with this one named. Without `repairs` nothing is said of indexes, which costs a
    look at every record."""
    entry = entries.get(module.id) or Entry(id=module.id)
    run = session.reader(module, entry)
    waits = passed_over(module, session.modules, entries, asked=asked)
    ahead = entry.phase not in FORWARD or FORWARD.index(entry.phase) < FORWARD.index(through)
    counts, found = look(run) if entry.phase in FORWARD[:4] else (Counts(estimate=0, low=0, high=0), Findings())
    told = indexes.Repairs()
    if repairs and entry.phase in FORWARD[:5]:
        told = indexes.missing(run, REJECTED)
    adapters = adapters_of(run)
    refused = [*_refused(run, found, adapters)] if entry.phase == "pending" else []
    if not waits and (remark := unfinished(entry, module.number, through)) is not None:
        refused.append(remark)
    sampled = max(1, found.sampled)
    return MigrationPlan(
        from_=entry.phase,
        to=through if ahead else entry.phase,
        done=reached(entry, through),
        id=module.id,
        counts=counts,
        rejected=tuple(found.rejected[:REJECTED]),
        examples=tuple(found.examples),
        memory_bytes=counts.estimate * found.bytes_new // sampled,
        seconds=round(counts.estimate * found.seconds / sampled, 1),
        losses=tuple(loss for move in module.migration.moves for loss in move.losses),
        index_repairs=tuple(told.listed),
        index_repairs_total=told.total,
        risks=(*_adapter_risks(adapters), *_risks(run, found)),
        refused=tuple(refused),
        waits_for=waits,
        sampled=found.sampled,
        checksum=module.checksum,
        epoch=entry.epoch,
    )


def _refused(run: Run, found: Findings, adapters: Sequence[Announced]) -> Iterator[Remark]:
    yield from refusals(run)
    yield from other_mappings(adapters, run.module.checksum)
    if "law" in found.remarks:
        yield found.remarks["law"]
    for family in run.families:
        yield from _targets_there(run, family)
    crossing = [record for record in found.rejected if record.reason.startswith("cross-slot")]
    if crossing:
        names = [family.move.source.template for family in run.families]
        yield Remark(
            code="cross-slot",
            text=f"{len(crossing)} sampled records have source and target in different slots ({crossing[0].key})",
            next=f"name both with one hash tag, for instance {{{{tag}}}}: in front of {names[0]}",
        )


def _targets_there(run: Run, family: Family) -> Iterator[Remark]:
    """Target keys that exist before anything was done: of another type, a refusal; of the right one, adopted."""
    if family.same_name:
        return
    right = 0
    for keys in run.client.pages(family.new_glob, PAGE_KEYS):
        names = [key for key in keys if family.from_new(key) is not None]
        types = run.client.each("TYPE", names)
        for name, reply in zip(names, types, strict=True):
            if (is_type := checked(reply).decode()) not in (family.kinds["new"], "none"):
                yield Remark(code="target-type", text=f"{show(name)} exists and is a {is_type}",
                             next="move that key out of the way, or choose another target name")  # fmt: skip
                return
            right += 1
    if right and run.options.backup is None:
        yield Remark(code="target-exists", text=f"{right} target keys exist already and would be adopted",
                     next="add --backup DIR, where their content is saved first")  # fmt: skip


def _risks(run: Run, found: Findings) -> Iterator[Remark]:
    for move in run.module.migration.moves:
        if isinstance(move, KeyMove) and move.same_name:
            text = f"in-place type change: {move.source.template} becomes a {move.target.kind} at contract"
            yield Remark(code="same-name", text=f"{text}; until then the new shape is built aside")
        for text in move.risks:
            yield Remark(code="migration", text=text)
        if move.inverse is None:
            yield Remark(code="no-inverse", text="there is no inverse: after contract only restore leads back, and "
                         "adapters are refused")  # fmt: skip
    if not claims_readable(run):
        yield Remark(code="no-claims", text="migrator:claims may not be read: a second namespace on the same keys "
                     "would go unnoticed")  # fmt: skip
    policies = info_field(run.client, "memory", "maxmemory_policy")
    if not policies:
        yield Remark(code="no-info", text="INFO is not permitted: the eviction policy cannot be read, and any lost "
                     "connection starts the walk of that server again")  # fmt: skip
    elif any(policy.startswith("volatile-") for policy in policies):
        yield Remark(code="volatile", text=f"maxmemory-policy is {policies[0]}: records with a TTL may be evicted")
    yield from replica_risks(run)
    yield from _memory_risk(run)
    if found.sampled == 0 and run.entry.phase == "pending":
        yield Remark(code="no-records", text="no record was found at all: check the key template")


def _adapter_risks(seen: Sequence[Announced]) -> Iterator[Remark]:
    if not seen:
        yield Remark(code="no-adapter", text="no adapter has ever been announced: make sure the application is "
                     "stopped, or that it writes through the adapters")  # fmt: skip
    elif not any(one.alive for one in seen):
        yield Remark(code="no-adapter", text=f"no adapter is alive; the last one seen was {seen[0].instance}")
    yield from left_behind(seen)


def _memory_risk(run: Run) -> Iterator[Remark]:
    limits = [int(v) for v in info_field(run.client, "memory", "maxmemory")]
    used = [int(v) for v in info_field(run.client, "memory", "used_memory")]
    if any(limit and now > limit * 0.5 for limit, now in zip(limits, used, strict=False)):
        yield Remark(code="memory", text="more than half of maxmemory is used: both shapes exist until contract")
