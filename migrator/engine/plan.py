"""What apply would do, found by looking: counts, real records mapped, risks and refusals. Writes nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from migrator.client import ResponseError, checked
from migrator.engine import indexes
from migrator.engine.alive import adapters_of, left_behind, other_mappings
from migrator.engine.backfill import PAGE_KEYS, PAGE_MEMBERS
from migrator.engine.copy import MAX_BYTES, foreign_type
from migrator.engine.guards import blocked_by, claims_readable, info_field, refusals
from migrator.engine.lasting import replica_risks
from migrator.engine.redact import member_shape, shape
from migrator.engine.run import Run
from migrator.engine.session import Session, random_keys, total_keys
from migrator.errors import Unmappable
from migrator.keys import Kind
from migrator.ledger import Entry
from migrator.models import Counts, Example, MigrationPlan, PlanResult, RejectedRecord, Remark, show
from migrator.moves import KeyMove
from migrator.moves.family import Family, Pair
from migrator.moves.loader import Module
from migrator.moves.values import count_each, from_reply, members_from_page, read_each, scan_words
from migrator.phases import FORWARD, Phase
from migrator.phases.announced import Announced

SAMPLE_RECORDS = 2000
SAMPLE_KEYS = 2000
SCAN_BUDGET = 2_000_000  # keys looked at; beyond that, counts are estimated from a random sample
EXAMPLES = 3
REJECTED = 20
_SCAN_COUNT = 5000


@dataclass
class _Findings:
    """What a look at one migration's records gave."""

    rejected: list[RejectedRecord] = field(default_factory=list)
    examples: list[Example] = field(default_factory=list)
    sampled: int = 0
    bytes_new: int = 0
    seconds: float = 0.0
    remarks: dict[str, Remark] = field(default_factory=dict)
    losing: int = 0

    def reject(self, key: bytes, reason: str, member: bytes | None = None) -> None:
        self.rejected.append(
            RejectedRecord(key=show(key), reason=reason, member=None if member is None else show(member))
        )


def plan(session: Session, ids: Sequence[str], through: Phase) -> PlanResult:
    """The plan for the migrations named, or all. Reads only."""
    known = session.ledger.entries()
    if known is None:
        session.check_fresh()
    entries = known or {}
    session.check_drift(entries)
    session.check_order(entries)
    chosen = session.modules.select(ids)
    plans = tuple(plan_one(session, module, entries, through) for module in chosen)
    return PlanResult(migrations=plans, namespace=session.names.namespace, through=through)


def plan_one(
    session: Session, module: Module, entries: dict[str, Entry], through: Phase, *, repairs: bool = True
) -> MigrationPlan:
    """What apply would do. Without `repairs` nothing is said of indexes, which costs a look at every record."""
    entry = entries.get(module.id) or Entry(id=module.id)
    run = session.reader(module, entry)
    waits = blocked_by(module, session.modules, entries)
    ahead = entry.phase not in FORWARD or FORWARD.index(entry.phase) < FORWARD.index(through)
    counts, found = _look(run) if entry.phase in FORWARD[:4] else (Counts(estimate=0, low=0, high=0), _Findings())
    told = indexes.Repairs()
    if repairs and entry.phase in FORWARD[:5]:
        told = indexes.missing(run, REJECTED)
    adapters = adapters_of(run)
    refused = [*_refused(run, found, adapters)] if entry.phase == "pending" else []
    sampled = max(1, found.sampled)
    return MigrationPlan(
        from_=entry.phase,
        to=through if ahead else entry.phase,
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


def _look(run: Run) -> tuple[Counts, _Findings]:
    found = _Findings()
    low = high = estimate = 0
    for family in run.families:
        counts, keys = _count(run, family)
        if family.by_member:
            counts = _count_members(run, family, counts, keys)
        started = time.monotonic()
        _sample(run, family, keys, found)
        # Reading and mapping are about a third of the work: writing and comparing follow.
        found.seconds += 3 * (time.monotonic() - started)
        estimate, low, high = estimate + counts.estimate, low + counts.low, high + counts.high
    return Counts(estimate=estimate, low=low, high=high), found


def _count(run: Run, family: Family) -> tuple[Counts, list[bytes]]:
    """How many keys parse, and up to `SAMPLE_KEYS` of them: by a scan within the budget, else from random keys."""
    keys: list[bytes] = []
    number = seen = 0
    for page in run.client.pages(family.old_glob, _SCAN_COUNT):
        mine = [key for key in page if family.has_old(key)]
        number, seen = number + len(mine), seen + _SCAN_COUNT
        # Every so many, so that the sample comes from the whole walk and not from its start.
        keys = (keys + mine)[:: 2 if len(keys) + len(mine) > 2 * SAMPLE_KEYS else 1]
        run.stop.check()
        if seen > SCAN_BUDGET:
            return _estimate(run, family), keys[:SAMPLE_KEYS]
    return Counts(estimate=number, low=number, high=number), keys[:SAMPLE_KEYS]


def _estimate(run: Run, family: Family) -> Counts:
    total = total_keys(run.client)
    drawn = random_keys(run.client, SAMPLE_KEYS)
    share = sum(map(family.has_old, drawn)) / max(1, len(drawn))
    low, high = wilson(share, len(drawn))
    return Counts(estimate=round(share * total), low=int(low * total), high=math.ceil(high * total))


def wilson(share: float, drawn: int) -> tuple[float, float]:
    """The 95 % interval of a share seen in a sample (E. B. Wilson, 1927)."""
    if not drawn:
        return 0.0, 1.0
    z = 1.96
    middle = (share + z * z / (2 * drawn)) / (1 + z * z / drawn)
    half = z / (1 + z * z / drawn) * math.sqrt(share * (1 - share) / drawn + z * z / (4 * drawn * drawn))
    return max(0.0, middle - half), min(1.0, middle + half)


def _count_members(run: Run, family: Family, keys_counted: Counts, keys: list[bytes]) -> Counts:
    kind = family.kinds["old"]
    replies = count_each(run.client, kind, keys)
    sizes = [reply for reply in replies if isinstance(reply, int)]
    members = sum(sizes)
    if keys_counted.low == keys_counted.high == len(keys):
        return Counts(estimate=members, low=members, high=members)
    mean = members / max(1, len(sizes))
    spread = 1.96 * _deviation(sizes, mean) / math.sqrt(max(1, len(sizes)))
    return Counts(
        estimate=round(mean * keys_counted.estimate),
        low=int(max(0.0, mean - spread) * keys_counted.low),
        high=math.ceil((mean + spread) * keys_counted.high),
    )


def _deviation(sizes: Sequence[int], mean: float) -> float:
    return math.sqrt(sum((size - mean) ** 2 for size in sizes) / max(1, len(sizes) - 1))


def _sample(run: Run, family: Family, keys: list[bytes], found: _Findings) -> None:
    per_key = max(1, SAMPLE_RECORDS // max(1, len(keys)))
    for start in range(0, len(keys), 100):
        pairs = [pair for key in keys[start : start + 100] if (pair := family.from_old(key)) is not None]
        if family.by_member:
            for pair in pairs:
                _sample_members(run, family, pair, per_key, found)
        else:
            _sample_keys(run, family, pairs, found)
        run.stop.check()


def _sample_keys(run: Run, family: Family, pairs: Sequence[Pair], found: _Findings) -> None:
    kind = family.kinds["old"]
    sizes = run.client.each("MEMORY USAGE", [p.old for p in pairs])
    readable = [p for p, size in zip(pairs, sizes, strict=True) if not isinstance(size, int) or size < MAX_BYTES]
    replies = read_each(run.client, kind, [pair.old for pair in readable])
    for pair, reply in zip(readable, replies, strict=True):
        if isinstance(reply, ResponseError):
            _odd(run, family, pair, found)
        elif reply is not None and reply != []:
            _map_sampled(family, pair, from_reply(kind, reply), found)


def _odd(run: Run, family: Family, pair: Pair, found: _Findings) -> None:
    is_type = run.client.one(pair.old, "TYPE", pair.old).decode()
    if not (family.same_name and is_type == family.kinds["new"]) and is_type != "none":
        found.sampled += 1
        found.reject(pair.old, foreign_type(is_type))


def _map_sampled(family: Family, pair: Pair, value: object, found: _Findings) -> None:
    found.sampled += 1
    try:
        if fault := family.fault(pair):
            raise Unmappable(fault)
        mapped, notes = family.map_key(pair, value)
    except Unmappable as error:
        found.reject(pair.old, error.reason)
        return
    found.bytes_new += memory_of(family.kinds["new"], mapped)
    if len(found.examples) < EXAMPLES:
        before, after = shape(family.kinds["old"], value), shape(family.kinds["new"], mapped)
        found.examples.append(Example(key=show(pair.old), before=before, after=after, notes=notes))
    _check_law(family, pair, mapped, found)


def _check_law(family: Family, pair: Pair, mapped: object, found: _Findings) -> None:
    """forward(inverse(forward(x))) == forward(x), on real records."""
    if family.move.inverse is None or "law" in found.remarks:
        return
    try:
        again, _ = family.map_key(pair, family.unmap_key(pair, mapped))
        broken = again != mapped
    except Unmappable:
        broken = True
    if broken:
        found.remarks["law"] = Remark(
            code="law",
            text=f"the inverse does not lead back: forward(inverse(forward(x))) differs for {show(pair.old)}",
            next="correct the inverse, or leave it out; then only restore leads back from contract",
        )


def _sample_members(run: Run, family: Family, pair: Pair, wanted: int, found: _Findings) -> None:
    kind = family.kinds["old"]
    reply = run.client.run_one(pair.old, *scan_words(kind, pair.old, 0, min(wanted, PAGE_MEMBERS)))
    if isinstance(reply, ResponseError):
        _odd(run, family, pair, found)
        return
    for name, value in members_from_page(kind, reply[1])[:wanted]:
        found.sampled += 1
        try:
            if fault := family.fault(pair):
                raise Unmappable(fault)
            new_name, new_value = family.map_member(pair, name, value)
        except Unmappable as error:
            found.reject(pair.old, error.reason, name)
            continue
        found.bytes_new += member_memory(family.kinds["new"], new_name, new_value)
        if len(found.examples) < EXAMPLES:
            plain = "zset" in family.kinds.values()
            before = member_shape(kind, name, value, plain=plain)
            after = member_shape(family.kinds["new"], new_name, new_value, plain=plain)
            found.examples.append(Example(key=show(pair.old), before=before, after=after))


def memory_of(kind: Kind, value: object) -> int:
    """Bytes a value takes in Redis, roughly: key and dictionary entry, then compact or per-entry costs."""
    overhead = 120
    if isinstance(value, bytes):
        return overhead + len(value)
    if isinstance(value, dict):
        return overhead + sum(member_memory(kind, name, content) for name, content in value.items())
    return overhead + sum(len(item) + 16 for item in value) if isinstance(value, (list, set)) else overhead


def member_memory(kind: Kind, name: bytes, value: object) -> int:
    if kind == "zset":
        return len(name) + 96  # skip list node, dictionary entry, string header
    return len(name) + (len(value) if isinstance(value, bytes) else 0) + 32


def _refused(run: Run, found: _Findings, adapters: Sequence[Announced]) -> Iterator[Remark]:
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


def _risks(run: Run, found: _Findings) -> Iterator[Remark]:
    for move in run.module.migration.moves:
        if isinstance(move, KeyMove) and move.same_name:
            text = f"in-place type change: {move.source.template} becomes a {move.target.kind} at contract"
            yield Remark(code="same-name", text=f"{text}; until then the new shape is built aside")
        for text in move.risks:
            yield Remark(code="migration", text=text)
        if move.inverse is None:
            yield Remark(code="no-inverse", text="there is no inverse: after contract only restore leads back")
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
