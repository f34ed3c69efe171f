"""Where every migration stands, and the exact next command. Reads only."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from migrator.engine.alive import adapters_of
from migrator.engine.census import Counted
from migrator.engine.guards import blocked_by, reached, to_pending
from migrator.engine.run import Run
from migrator.engine.session import Session, random_keys, total_keys
from migrator.keys import Kind
from migrator.ledger import Entry, Holder, Ledger, Tally, show_lease
from migrator.ledger.lease import server_ms
from migrator.models import (
    AdapterStatus,
    Drift,
    FamilyStatus,
    MigrationStatus,
    QuarantineCounts,
    StatusResult,
    TallyResult,
    iso,
    number_of,
    show,
)
from migrator.moves.family import Family, Pair
from migrator.moves.loader import Module
from migrator.moves.values import count_each
from migrator.phases import Phase

FEW_KEYS = 200_000  # in all: SCAN looks at so many in a fraction of a second
FEW_AFTER_A_WALK = 20_000  # the same where a walk has just seen them, and nobody asked to look again
SAMPLE_KEYS = 2000
_PAGE_KEYS = 5000  # SCAN takes 2 ms for so many

_NEXT: dict[str, str] = {
    "pending": "migrator apply {n}",
    "expanded": "migrator apply {n}",
    "backfilled": "migrator apply {n}",
    "verified": "migrator apply {n} --through switch",
    "switched": "migrator apply {n} --through contract --backup DIR --yes",
    "reverting": "migrator rollback {n} --to switched --backup DIR --yes",
    "closed": "migrator restore {n} --backup DIR --discard-later-writes --yes",
}


class _Seen(NamedTuple):
    """What walks saw, see Census.read; `many`: there are too many keys to count those that none saw."""

    collections: list[bytes]
    counts: dict[str, Counted]
    many: bool


def status(session: Session, ids: Sequence[str]) -> StatusResult:
    """The state of the migrations named, or of all. Raises LedgerBackwardsError where the ledger is lost."""
    known = session.ledger.entries()
    if known is None:
        session.check_markers()
    entries = known or {}
    chosen = session.modules.select(ids)
    holder = show_lease(session.client, session.names)
    at_work = holder if holder is not None and holder.expires_in > 0 else None
    return StatusResult(migrations=tuple(migration_status(session, module, entries, at_work) for module in chosen))


def migration_status(
    session: Session, module: Module, entries: dict[str, Entry], at_work: Holder | None, *, few: int | None = None
) -> MigrationStatus:
    """The state of one migration; `at_work`: who holds the lease, if that is to be said. With more than `few` keys in
    all (FEW_KEYS), they are not counted where a walk saw them."""
    entry = entries.get(module.id) or Entry(id=module.id)
    run = session.reader(module, entry)
    waiting = waiting_for(session, module, entries, run)
    families = tuple(family_status(run, FEW_KEYS if few is None else few)) if entries else ()
    tally = _tally(session.ledger, run)
    progress, rate, eta = _progress(session, run, families, tally)
    return MigrationStatus(
        id=module.id,
        phase=entry.phase,
        families=families,
        tally=TallyResult(**tally.model_dump()),
        progress=progress,
        rate_per_second=rate,
        eta_seconds=eta,
        waiting_for=waiting,
        paused=_paused(module, at_work),
        owner=at_work.owner if at_work else None,
        quarantine=QuarantineCounts(open=run.quarantine.open, accepted=run.quarantine.accepted),
        drift=_drift(entry),
        adapters=_adapters(run) if entries else (),
        next=next_command(module, entry, run, blocked=blocked_by(module, session.modules, entries) is not None,
                          known=module.id in entries),
    )  # fmt: skip


def _paused(module: Module, at_work: Holder | None) -> str | None:
    id, colon, why = (at_work.paused if at_work else "").partition(": ")
    return why if colon and id == module.id else None


def _drift(entry: Entry) -> Drift | None:
    found = entry.comparison
    if found is None or found.epoch != entry.epoch:
        return None
    return Drift(at=iso(found.at), **found.model_dump(include=set(Drift.model_fields) - {"at"}))


def _adapters(run: Run) -> tuple[AdapterStatus, ...]:
    return tuple(
        AdapterStatus(instance=one.instance, version=one.version, protocol=one.protocol, last_seen=iso(one.last_seen),
                      seconds_ago=max(0, one.ago_ms // 1000), alive=one.alive)
        for one in adapters_of(run)
    )  # fmt: skip


def _tally(ledger: Ledger, run: Run) -> Tally:
    """The accounts so far: those of a backfill under way lie in its checkpoints."""
    if run.entry.phase != "expanded":
        return run.entry.tally
    return ledger.tally_under_way(run.id, run.entry.epoch)


def _progress(
    session: Session, run: Run, families: Sequence[FamilyStatus], tally: Tally
) -> tuple[float | None, float | None, float | None]:
    """Of a backfill under way: the share that is done, records a second since it began, seconds left at that rate."""
    total = sum(family.source_count for family in families)
    if run.entry.phase != "expanded" or not total or not tally.scanned:
        return None, None, None
    seconds = max(0.001, (server_ms(session.client, session.names) - run.entry.expanded_at) / 1000)
    rate = tally.scanned / seconds
    return min(1.0, tally.scanned / total), round(rate, 1), round(max(0, total - tally.scanned) / rate, 1)


def pending(session: Session, result: StatusResult, through: Phase) -> bool:
    """Whether a migration that nothing holds back has not come as far as `through`."""
    entries = session.entries()
    for one in result.migrations:
        entry = entries.get(one.id) or Entry(id=one.id)
        module = session.modules.find(one.id)
        if entry.rolled_back or blocked_by(module, session.modules, entries):
            continue
        if not reached(entry, through):
            return True
    return False


def waiting_for(session: Session, module: Module, entries: dict[str, Entry], run: Run) -> str | None:
    entry = run.entry
    if entry.cleaning:
        return "the rest of a rollback to pending"
    if entry.intent is not None:
        return f"the change to {entry.intent.phase} to be completed"
    stray = _stray_marker(run) if module.id in entries else None
    if stray is not None:
        return f"recovery: a marker says {stray} where the ledger says {entry.phase}; apply begins with it"
    if run.quarantine.open and entry.phase == "backfilled":
        return f"a decision on {number_of(run.quarantine.open, 'record')} in quarantine"
    if _differs(entry) and not run.quarantine.open:
        return "the differences the last comparison found"
    if entry.phase == "contracted" and not entry.swept:
        return "the old shape to be removed"
    return blocked_by(module, session.modules, entries)


def _differs(entry: Entry) -> bool:
    """Whether the last full comparison in this epoch found something."""
    return entry.comparison is not None and entry.comparison.epoch == entry.epoch and not entry.comparison.clean


def _stray_marker(run: Run) -> str | None:
    """What a marker says that is not where the ledger has it: after a failover, or a crash in a change of phase."""
    for marker in run.markers.read().values():
        if marker is None:
            return "nothing"
        if (marker.phase, marker.epoch) != (run.entry.phase, run.entry.epoch):
            return marker.phase
    return None


def next_command(module: Module, entry: Entry, run: Run, *, blocked: bool, known: bool) -> str | None:
    """What the operator types next; None where all is done or another migration has to come first."""
    number = module.number
    if not known and not blocked:
        return f"migrator plan {number}"
    if blocked:
        return None
    if entry.cleaning or (entry.rolled_back and entry.phase == "expanded"):
        return to_pending(entry, number)
    if run.quarantine.open:
        return f"migrator quarantine list {number}"
    if entry.phase == "contracted":
        # Where there was nothing to remove, it began without a backup.
        into = f" --backup {shlex.quote(entry.backup or 'DIR')}" if entry.backup or entry.backup_epoch else ""
        return None if entry.swept else f"migrator apply {number} --through contract{into} --yes"
    if entry.phase == "switched" and _differs(entry):
        return f"migrator verify {number}"  # which says how to settle it
    if entry.rolled_back and entry.phase == "switched":
        return f"migrator rollback {number} --to expanded --yes"
    return _NEXT[entry.phase].format(n=number)


def family_status(run: Run, few: int) -> Iterator[FamilyStatus]:
    """Counted now where there are few keys in all, else as walks saw them: a look at every key of a large database
    would take it seconds."""
    total = total_keys(run.client)
    seen = _Seen(*run.census.read(), many=total > FEW_KEYS) if total > few else None
    for family in run.families:
        yield from _collections(run, family, seen) if family.by_member else [_template(run, family, seen)]


def _complete(run: Run) -> bool:
    """The last full comparison in this epoch was clean (accepted records aside), or there is only one shape left."""
    if run.entry.phase == "contracted":
        return True
    found = run.entry.comparison
    return found is not None and found.epoch == run.entry.epoch and found.clean


def _template(run: Run, family: Family, seen: _Seen | None) -> FamilyStatus:
    source, target = family.move.source, family.move.target
    old, new, counted, at = _records(run, family, seen)
    return FamilyStatus(
        name=source.template, source_key=source.template, target_key=target.template,
        source_type=source.kind, target_type=target.kind, source_count=old, target_count=new,
        counts_equal=old == new, is_migrated=new > 0, is_complete=_complete(run), counted=counted, counted_at=at,
    )  # fmt: skip


def _records(run: Run, family: Family, seen: _Seen | None) -> tuple[int, int, str, str | None]:
    """Records in the old shape and in the new, where that comes from, and from when."""
    last = seen.counts.get(family.move.source.template) if seen else None
    if last is not None and last.epoch == run.entry.epoch:
        return last.old, last.new, "seen", iso(last.at)
    if seen is None or not seen.many:
        return *_count(run, family), "now", None
    return *_estimate(run, family), "estimate", None


def _count(run: Run, family: Family) -> tuple[int, int]:
    old = _number(run, family.old_glob, family.kinds["old"], family.has_old)
    new = _number(run, family.new_glob, family.kinds["new"], family.has_new)
    if family.same_name:
        new += _number(run, family.old_glob, family.kinds["new"], family.has_old)
    return old, new


def _estimate(run: Run, family: Family) -> tuple[int, int]:
    """The same from random keys."""
    drawn = random_keys(run.client, SAMPLE_KEYS)
    types = [reply.decode() for reply in run.client.each("TYPE", drawn)]
    found = list(zip(drawn, types, strict=True))
    old = sum(kind == family.kinds["old"] and family.has_old(key) for key, kind in found)
    new = sum(
        kind == family.kinds["new"] and (family.has_new(key) or (family.same_name and family.has_old(key)))
        for key, kind in found
    )
    share = total_keys(run.client) / max(1, len(drawn))
    return round(old * share), round(new * share)


def _number(run: Run, glob: bytes, kind: Kind, belongs: Callable[[bytes], bool]) -> int:
    return sum(sum(map(belongs, names)) for names in run.client.pages(glob, _PAGE_KEYS, kind))


def _collections(run: Run, family: Family, seen: _Seen | None) -> Iterator[FamilyStatus]:
    """HLEN against ZCARD, a row a source key; also for a target whose source is gone."""
    trusted = seen if seen is not None and (seen.collections or seen.many) else None
    found = _seen_pairs(run, family, trusted) if trusted else _all_pairs(run, family)
    for pair, old, new in zip(found, *_counts(run, family, found), strict=True):
        if seen is not None and not old and not new:
            continue  # gone since
        yield FamilyStatus(
            name=":".join(show(pair.key[c]) for c in family.move.source.captures),
            source_key=show(pair.old), target_key=show(pair.new),
            source_type=family.kinds["old"], target_type=family.kinds["new"], source_count=old, target_count=new,
            counts_equal=old == new, is_migrated=new > 0, is_complete=_complete(run),
        )  # fmt: skip


def _all_pairs(run: Run, family: Family) -> list[Pair]:
    pairs: dict[bytes, Pair] = {}
    for glob, parse in ((family.old_glob, family.from_old), (family.new_glob, family.from_new)):
        for names in run.client.pages(glob, _PAGE_KEYS):
            pairs.update({pair.old: pair for name in names if (pair := parse(name)) is not None})
    return [pairs[key] for key in sorted(pairs)]


def _seen_pairs(run: Run, family: Family, seen: _Seen) -> list[Pair]:
    """Those that walks saw; before any did, those among random keys."""
    names = set(seen.collections) or set(random_keys(run.client, SAMPLE_KEYS))
    return [pair for name in sorted(names) if (pair := family.from_old(name)) is not None]


def _counts(run: Run, family: Family, pairs: Sequence[Pair]) -> tuple[list[int], list[int]]:
    """Members of each, in the old shape and in the new; 0 for what is not there or of another type."""
    both: list[list[int]] = []
    for kind, names in ((family.kinds["old"], [p.old for p in pairs]), (family.kinds["new"], [p.new for p in pairs])):
        replies = count_each(run.client, kind, names)
        both.append([reply if isinstance(reply, int) else 0 for reply in replies])
    return both[0], both[1]
