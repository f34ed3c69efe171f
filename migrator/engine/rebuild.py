"""Rebuilds the old shape on the way back from contract: the backup's bytes where the new record is unchanged since,
the inverse of the mapping elsewhere. Later creations and deletions are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from migrator.client import Arg
from migrator.engine import dump
from migrator.engine.backfill import PAGE_COLLECTIONS, PAGE_KEYS, PAGE_MEMBERS
from migrator.engine.compare import FAULTS, Outcome, compare, judge_keys, member_batches, read_members, scan
from migrator.engine.copy import (
    BACKWARD,
    BATCH_BYTES,
    KeyJob,
    Member,
    MemberJob,
    copy_keys,
    copy_members,
    key_batches,
    write_keys,
    write_members,
)
from migrator.engine.guarded import guarded, unlink
from migrator.engine.put import put_line
from migrator.engine.run import Run
from migrator.engine.sweep import rename
from migrator.engine.walk import Place, Progress, Step, Visit, Walk, inner_pages
from migrator.errors import DifferencesError, Unmappable
from migrator.models import number_of
from migrator.moves.family import Family, Pair
from migrator.moves.values import MemberValue, from_items, member_from_wire, member_to_wire, to_items
from migrator.snapshot import backup
from migrator.snapshot.ndjson import Line


def rebuild(run: Run, saved: Path | None) -> None:
    """Makes the old shape whole again in `reverting`, and proves it. May be stopped anywhere and repeated."""
    for number, family in enumerate(run.families):
        _names_back(run, family, number)
        if saved is not None:
            run.observer.begin(f"{run.id}: rebuild from the backup", None)
            put_lines(run, family, backup.lines(saved))
            run.observer.end()
        _from_retired(run, family, number)
        _from_inverse(run, family, number)
    counts = compare(run, Outcome(), "compare-back")
    if counts["missing"]:
        # Unmoved (an application without an adapter wrote them): they lie where they are, and hold up contract only.
        run.note(f"{number_of(counts['missing'], 'old record')} without a new one; settle that in switched with: "
                 f"migrator verify {run.module.number} --foreign old --backup DIR")  # fmt: skip
    wrong = {fault: counts[fault] for fault in FAULTS if counts[fault] and fault != "missing"}
    if wrong:
        found = ", ".join(f"{number} {fault}" for fault, number in wrong.items())
        raise DifferencesError(
            f"{run.id}: the rebuilt old shape is not whole: {found}",
            next=f"look at them with: migrator verify {run.module.number}; then run the rollback again",
        )
    for number, family in enumerate(run.families):
        _drop_retired(run, family, number)


def _names_back(run: Run, family: Family, number: int) -> None:
    """Staged names for the new records where the old ones need the final names; accepted records as they were."""
    globs = [family.retired_glob()] if not family.same_name else [family.old_glob, family.retired_glob()]
    for i, glob in enumerate(globs):
        parse = family.from_retired if glob == family.retired_glob() else family.from_old

        def step(visit: Visit, parse: Callable[[bytes], Pair | None] = parse) -> Iterator[Progress]:
            pairs = [pair for name in visit.keys if (pair := parse(name)) is not None]
            if family.by_member:
                for pair in pairs:
                    _accepted_members_back(run, family, pair)
            for start in range(0, len(pairs), PAGE_COLLECTIONS):
                codes = rename(run, family, "revive", ("reverting",), pairs[start : start + PAGE_COLLECTIONS])
                yield Progress({"revived": codes.count(1)})

        Walk(run, f"revive-{number}-{i}", glob, step, count=PAGE_KEYS, resume=False).all()


def _accepted_members_back(run: Run, family: Family, pair: Pair) -> None:
    accepted = run.quarantine.accepted_members(pair.key.raw)
    if not accepted:
        return
    kind, retired = family.kinds["old"], family.retired(pair)
    for line in dump.collection(run.client, run.client.db, kind, retired, pair.key.raw):
        words: list[tuple[Arg, ...]] = []
        for name, value in line_members(family, line):
            if name in accepted:
                wire = member_to_wire(kind, value)
                words.append({"hash": ("HSETNX", pair.old, name, wire), "set": ("SADD", pair.old, name),
                              "zset": ("ZADD", pair.old, "NX", wire, name)}[kind])  # fmt: skip
        if words:
            guarded(run, run.guard("reverting"), words)


def line_members(family: Family, line: Line) -> list[Member]:
    kind = family.kinds["old"]
    if kind == "set":
        return [(name, None) for name in line.items]
    return [(line.items[i], member_from_wire(kind, line.items[i + 1])) for i in range(0, len(line.items), 2)]


def put_lines(run: Run, family: Family, lines: Iterable[Line]) -> None:
    """Puts saved old records in place, each where the new record is still what the mapping makes of it."""
    mine = (
        (pair, line)
        for line in lines
        if line.kind == family.kinds["old"] and (pair := family.from_old(line.key)) is not None
    )
    for batch in _batches(mine):
        if family.by_member:
            for pair, line in batch:
                _put_members(run, family, pair, line_members(family, line))
        else:
            jobs = [(job, line) for pair, line in batch if (job := _key_job(family, pair, line)) is not None]
            write_keys(run, family, BACKWARD, [job for job, _ in jobs if job.expected])
            _put_empty(run, family, [(job.pair, line) for job, line in jobs if not job.expected])
        run.observer.advance(len(batch))
        run.tick()


def _batches(found: Iterable[tuple[Pair, Line]]) -> Iterator[list[tuple[Pair, Line]]]:
    """Bounded by number and by bytes: a single record may have 16 MB."""
    batch: list[tuple[Pair, Line]] = []
    weight = 0
    for pair, line in found:
        batch.append((pair, line))
        weight += sum(map(len, line.items))
        if len(batch) >= PAGE_COLLECTIONS or weight > BATCH_BYTES:
            yield batch
            batch, weight = [], 0
    if batch:
        yield batch


def _key_job(family: Family, pair: Pair, line: Line) -> KeyJob | None:
    try:
        mapped, _ = family.map_key(pair, from_items(family.kinds["old"], line.items))
    except Unmappable:
        return None  # it was accepted as it is, and lies under its retired name
    return KeyJob(pair, to_items(family.kinds["new"], mapped), line.items)


def _put_empty(run: Run, family: Family, found: Sequence[tuple[Pair, Line]]) -> None:
    """Records that map to nothing: no new one tells whether they are still there, so they come back unless there is
    an old one already. By way of the retired name, which nobody else writes."""
    pairs = [family.from_old(line.key) for _, line in found]
    for pair, (_, line) in zip(pairs, found, strict=True):
        if pair is not None:
            put_line(run, "reverting", replace(line, key=family.retired(pair)))
    rename(run, family, "revive", ("reverting",), [pair for pair in pairs if pair is not None], anyway=True)


def _put_members(run: Run, family: Family, pair: Pair, members: Sequence[Member]) -> None:
    jobs: list[MemberJob] = []
    for name, value in members:
        try:
            jobs.append((*family.map_member(pair, name, value), name, value))
        except Unmappable:
            continue
    for start in range(0, len(jobs), PAGE_MEMBERS):
        write_members(run, family, BACKWARD, pair, jobs[start : start + PAGE_MEMBERS])


def _from_retired(run: Run, family: Family, number: int) -> None:
    """What was retired but not yet removed serves like the backup."""
    kind = family.kinds["old"]

    def step(visit: Visit) -> Iterator[Progress]:
        names = [(name, pair) for name in visit.keys if (pair := family.from_retired(name)) is not None]
        if family.by_member:
            for name, pair in names:
                put_lines(run, family, dump.collection(run.client, run.client.db, kind, name, pair.key.raw))
        else:
            moved = [Pair(pair.key, name, pair.new) for name, pair in names]
            for batch in key_batches(run, family, "old", moved):
                shown = [(pair.old, pair.key.raw) for pair in batch]
                put_lines(run, family, dump.bounded(run.client, run.client.db, kind, shown))
        yield Progress({"scanned": len(names)})

    Walk(run, f"retired-{number}", family.retired_glob(), step, count=PAGE_KEYS, resume=False).all()


def _from_inverse(run: Run, family: Family, number: int) -> None:
    run.observer.begin(f"{run.id}: rebuild the old shape", None)
    step = _inverse_members if family.by_member else _inverse_keys
    count = PAGE_COLLECTIONS if family.by_member else PAGE_KEYS
    Walk(run, f"inverse-{number}", family.new_glob, step(run, family), count=count).all()
    run.observer.end()


def _inverse_keys(run: Run, family: Family) -> Step:
    def step(visit: Visit) -> Iterator[Progress]:
        pairs = [pair for name in visit.keys if (pair := family.from_new(name)) is not None]
        for batch in key_batches(run, family, "new", pairs):
            found = judge_keys(run, family, batch)
            mend = [d.pair for d in found if d.verdict in ("extra", "different", "ttl_drift")]
            copy_keys(run, family, BACKWARD, mend)
            yield Progress({"scanned": len(batch), "rebuilt": len(mend)})

    return step


def _inverse_members(run: Run, family: Family) -> Step:
    kind = family.kinds["new"]

    def step(visit: Visit) -> Iterator[Progress]:
        for name in visit.keys:
            pair = family.from_new(name)
            if pair is None or run.client.one(name, "TYPE", name).decode() != kind:
                continue
            pages = inner_pages(run.client, visit, name, scan(kind, name))
            for cursor, batch, last in member_batches(kind, pages):
                rebuilt = _rebuild_members(run, family, pair, batch)
                yield Progress({"scanned": len(batch), "rebuilt": rebuilt}, Place(name, cursor) if last else Place())

    return step


def _rebuild_members(run: Run, family: Family, pair: Pair, batch: Sequence[Member]) -> int:
    """Members whose old one is right keep it, with its exact bytes; the others are rebuilt by the inverse."""
    old_kind = family.kinds["old"]
    names = [_old_name(family, pair, name, value) for name, value in batch]
    _, _, raw, _ = read_members(run, family, pair, names, ())
    right: list[MemberJob] = []
    wrong: list[Member] = []
    for (new_name, new_value), name, have in zip(batch, names, raw, strict=True):
        value = member_from_wire(old_kind, have)
        if have is not None and _maps_to(family, pair, (name, value), (new_name, new_value)):
            right.append((new_name, new_value, name, value))
        else:
            wrong.append((new_name, new_value))
    if wrong:
        copy_members(run, family, BACKWARD, pair, wrong)
    elif right:
        write_members(run, family, BACKWARD, pair, right[:1])  # nothing to write but the expiry of the collection
    return len(wrong)


def _old_name(family: Family, pair: Pair, name: bytes, value: MemberValue) -> bytes:
    try:
        return family.unmap_member(pair, name, value)[0]
    except Unmappable:
        return name  # copying lists it in the quarantine, and the comparison then says what is missing


def _maps_to(family: Family, pair: Pair, old: Member, new: Member) -> bool:
    try:
        return family.map_member(pair, *old) == new
    except Unmappable:
        return False


def _drop_retired(run: Run, family: Family, number: int) -> None:
    guard = run.guard("reverting")

    def step(visit: Visit) -> Iterator[Progress]:
        names = [name for name in visit.keys if family.from_retired(name) is not None]
        unlink(run, guard, names)
        yield Progress({"removed": len(names)})

    Walk(run, f"drop-retired-{number}", family.retired_glob(), step, count=PAGE_KEYS, resume=False).all()
