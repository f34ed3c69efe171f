"""Rebuilds the old shape on the way back from contract: the backup's bytes where the new record is unchanged since,
the inverse of the mapping elsewhere. Later creations and deletions are kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from migrator.client import Arg, ResponseError, checked
from migrator.engine import bulk, dump
from migrator.engine.backfill import PAGE_COLLECTIONS, PAGE_KEYS, PAGE_MEMBERS
from migrator.engine.batches import BATCH_RECORDS, batched, key_batches, member_weight, page_sizes
from migrator.engine.compare import compare
from migrator.engine.compare_members import by_batch
from migrator.engine.copy import KeyJob, foreign_type, reject_too_large
from migrator.engine.copy_members import MemberJob
from migrator.engine.guarded import guarded
from migrator.engine.judge import Verdict, judge_keys, judge_members, read_old
from migrator.engine.lasting import lasting
from migrator.engine.mend import (
    by_inverse,
    from_saved,
    mend_keys,
    mend_members_by_inverse,
    put_back_keys,
    put_back_members,
)
from migrator.engine.outcome import Outcome
from migrator.engine.put import put_key
from migrator.engine.putback import Keys, Members, PutBack
from migrator.engine.run import Run
from migrator.engine.sweep import drop_retired, lines_of, rename
from migrator.engine.walk import Place, Progress, Step, Visit, Walk
from migrator.errors import DifferencesError, QuarantineError, Unmappable
from migrator.models import FAULTS, number_of
from migrator.moves.family import Family, Member, Pair
from migrator.moves.values import digest, from_items, member_from_wire, member_to_wire, to_items
from migrator.snapshot import backup
from migrator.snapshot.ndjson import Line

_UNMAPPABLE: tuple[Verdict, ...] = ("accepted", "unreadable")
_BY_INVERSE: tuple[Verdict, ...] = ("extra", "different", "ttl_drift")  # what the inverse may mend


def rebuild(run: Run, saved: Path | None) -> None:
    """Makes the old shape whole again in `reverting`, and proves it. May be stopped anywhere and repeated."""
    # For good, before the inverse fills gaps: a gap must not be the work of a failover, nor cost the exact bytes.
    lasting(run, lambda: _from_what_is_kept(run, saved))
    for number, family in enumerate(run.families):
        _from_inverse(run, family, number)
    # Only now, when what adapters wrote since is in place; and for good, before what is still set aside is removed.
    lasting(run, lambda: _accepted_back(run))
    counts = compare(run, Outcome(), "compare-back")
    if any(counts[fault] for fault in (*_BY_INVERSE, "unreadable")):
        # Rare: an application without an adapter, a stop half-way, or what was refused and may be mended. Otherwise the
        # comparison, which proves it all, is the only one that reads both shapes in full.
        for number, family in enumerate(run.families):
            _follow_inverse(run, family, number)
        counts = compare(run, Outcome(), "compare-back")
    if counts["missing"]:
        # Unmoved (an application without an adapter wrote them): they lie where they are, and hold up contract only.
        run.note(f"{number_of(counts['missing'], 'old record')} without a new one; settle that in switched with: "
                 f"migrator verify {run.module.number} --foreign old --backup DIR")  # fmt: skip
    wrong = {fault: counts[fault] for fault in FAULTS if counts[fault] and fault != "missing"}
    if wrong:
        run.lease.write(run.book())  # what is unreadable is to be found in the list
        if {*wrong} == {"unreadable"}:
            raise QuarantineError(
                f"{run.id}: {number_of(wrong['unreadable'], 'record')} cannot be mapped, so the rebuilt old shape is "
                "not proved",
                next=f"mend or accept them: migrator quarantine list {run.module.number}; then run the rollback again "
                "(what is accepted stays in the shape it has)",
            )
        found = ", ".join(f"{number} {fault}" for fault, number in wrong.items())
        raise DifferencesError(
            f"{run.id}: the rebuilt old shape is not whole: {found}",
            next=f"look at them with: migrator verify {run.module.number}; then run the rollback again",
        )
    drop_retired(run)


def _from_what_is_kept(run: Run, saved: Path | None) -> None:
    """From the newest to the oldest, never over what is right: what is still set aside, then the backup."""
    for number, family in enumerate(run.families):
        _names_back(run, family, number)
        _from_retired(run, family, number)
        if saved is not None:
            run.observer.begin(f"{run.id}: rebuild from the backup", None)
            _from_lines(run, family, backup.newest_lines(saved))
            run.observer.end()


def _names_back(run: Run, family: Family, number: int) -> None:
    """Staged names for the new records, where the old ones need the final names."""
    if not family.same_name:
        return

    def step(visit: Visit) -> Iterator[Progress]:
        pairs = [pair for name in visit.keys if (pair := family.from_old(name)) is not None]
        yield Progress({"revived": _revive(run, family, pairs, accepted=False)})

    Walk(run, f"revive-{number}", family.old_glob, step, count=PAGE_KEYS, resume=False).all()


def _revive(run: Run, family: Family, pairs: Sequence[Pair], *, accepted: bool) -> int:
    codes: list[int] = []
    for start in range(0, len(pairs), PAGE_COLLECTIONS):
        batch = pairs[start : start + PAGE_COLLECTIONS]
        codes += rename(run, family, "revive", ("reverting",), batch, [accepted] * len(batch))
    return codes.count(1)


def _accepted_back(run: Run) -> None:
    """What cannot be mapped has its own name again, unless something newer has it. It was accepted as it is when it was
    set aside; where nothing tells of that any more it is listed."""
    for number, family in enumerate(run.families):

        def step(visit: Visit, family: Family = family) -> Iterator[Progress]:
            pairs = [pair for name in visit.keys if (pair := family.from_retired(name)) is not None]
            if family.by_member:
                for pair in pairs:
                    _accepted_members_back(run, family, pair)
            else:
                exists = run.client.each("EXISTS", [pair.old for pair in pairs])
                absent = [pair for pair, there in zip(pairs, exists, strict=True) if not checked(there)]
                judged = judge_keys(run, family, [_aside(family, pair) for pair in absent])
                found = {d.pair.key.raw for d in judged if d.verdict in _UNMAPPABLE}
                _revive(run, family, [pair for pair in absent if pair.key.raw in found], accepted=True)
            yield Progress({"scanned": len(pairs)})

        Walk(run, f"accepted-{number}", family.retired_glob(), step, count=PAGE_KEYS, resume=False).all()


def _aside(family: Family, pair: Pair) -> Pair:
    """The record as contract set it aside."""
    return Pair(pair.key, family.retired(pair), pair.new)


def _accepted_members_back(run: Run, family: Family, pair: Pair) -> None:
    kind, retired = family.kinds["old"], family.retired(pair)
    is_type = run.client.one(pair.old, "TYPE", pair.old).decode()
    if is_type not in (kind, "none"):
        run.quarantine.reject(pair, None, foreign_type(is_type), is_type)
        return
    anew = is_type == "none"
    for line in dump.collection(run.client, run.client.db, kind, retired, pair.key.raw):
        found = line_members(family, line)
        for start in range(0, len(found), PAGE_MEMBERS):
            members = _accepted_members(run, family, pair, found[start : start + PAGE_MEMBERS])
            words: list[tuple[Arg, ...]] = [
                {"hash": ("HSETNX", pair.old, name, wire), "set": ("SADD", pair.old, name),
                 "zset": ("ZADD", pair.old, "NX", wire, name)}[kind]
                for name, wire in members.items()
            ]  # fmt: skip
            if words and anew and line.expires_at is not None:
                words.insert(1, ("PEXPIREAT", pair.old, line.expires_at))  # in one step with what makes the collection
            if words and kind == "hash":
                words += _field_expiries(run, pair.old, retired, members)
            if words:
                guarded(run, run.guard("reverting"), words)
                anew = False
        run.tick()


def _accepted_members(run: Run, family: Family, pair: Pair, members: Sequence[Member]) -> dict[bytes, bytes]:
    """Of members that were set aside, those without one of that name that cannot be mapped, or were accepted as they
    are."""
    there = {name for name, _ in read_old(run, family, pair, [name for name, _ in members])}
    absent = [(name, value) for name, value in members if name not in there]
    judged = judge_members(run, family, _aside(family, pair), absent) if absent else []
    unmappable = {d.member for d in judged if d.verdict in _UNMAPPABLE}
    wires = {name: member_to_wire(family.kinds["old"], value) for name, value in absent}
    return {
        name: wire
        for name, wire in wires.items()
        if name in unmappable or run.quarantine.is_accepted(pair, name, digest([wire]))
    }


def _field_expiries(run: Run, key: bytes, retired: bytes, members: Mapping[bytes, bytes]) -> Iterator[tuple[Arg, ...]]:
    """What gives fields the expiry of their own that they have under the retired name, unless others are there."""
    found = run.client.run_one(retired, "HPEXPIRETIME", retired, "FIELDS", len(members), *members)
    if isinstance(found, ResponseError):
        return  # a server that knows no such thing
    there = run.client.one(key, "HMGET", key, *members)
    for (name, wire), at, value in zip(members.items(), found, there, strict=True):
        if at >= 0 and value in (None, wire):
            yield ("HPEXPIREAT", key, at, "FIELDS", 1, name)


def line_members(family: Family, line: Line) -> list[Member]:
    kind = family.kinds["old"]
    if kind == "set":
        return [(name, None) for name in line.items]
    return [(line.items[i], member_from_wire(kind, line.items[i + 1])) for i in range(0, len(line.items), 2)]


def _from_lines(run: Run, family: Family, lines: Iterable[Line]) -> None:
    """Puts saved old records in place, each where the new record is still what the mapping makes of it."""
    mine = (
        (pair, line)
        for line in lines
        if line.kind == family.kinds["old"] and (pair := family.from_old(line.key)) is not None
    )
    if family.by_member:
        for part in PutBack[Members](run, family).all(_saved_members(family, mine)):
            put_back_members(run, family, part.pair, part.left)
            _further(run, part.number)
    else:
        for batch in PutBack[Keys](run, family).all(_saved_keys(run, family, mine)):
            put_back_keys(run, family, batch.left, from_saved(family, batch.saved))
            _further(run, batch.number)


def _further(run: Run, lines: int) -> None:
    run.observer.advance(lines)
    run.tick()


def _saved_keys(run: Run, family: Family, found: Iterable[tuple[Pair, Line]]) -> Iterator[Keys]:
    weighed = (((pair, line), sum(map(len, line.items))) for pair, line in found)
    for batch in batched(weighed, lambda: BATCH_RECORDS):
        saved: dict[bytes, list[list[bytes]]] = {}
        newest: dict[bytes, KeyJob] = {}
        for pair, line in batch:
            try:
                mapped, _ = family.map_key(pair, from_items(family.kinds["old"], line.items))
            except Unmappable:
                continue  # it was accepted as it is, and lies under its retired name
            if mapped:
                saved.setdefault(pair.old, []).append(line.items)
                newest.setdefault(pair.old, KeyJob(pair, to_items(family.kinds["new"], mapped), line.items, over=[]))
            else:
                # No new record tells whether it is still there: it comes back unless there is an old one.
                put_key(run, "reverting", line)
        yield Keys(family, list(newest.values()), saved, len(batch))


def _saved_members(family: Family, found: Iterable[tuple[Pair, Line]]) -> Iterator[Members]:
    for pair, line in found:
        members = line_members(family, line)
        entries, odd = family.map_page(pair, members)
        values = dict(members)
        jobs: list[MemberJob] = [(new, to, name, values[name]) for to, new, name in entries]
        for name, value in odd:
            with suppress(Unmappable):
                jobs.append((*family.map_member(pair, name, value), name, value))
        weighed = ((job, member_weight(*job[:2]) + member_weight(*job[2:])) for job in jobs)
        for number, part in enumerate(batched(weighed, lambda: PAGE_MEMBERS)):
            yield Members(family, pair, part, int(number == 0))


def _from_retired(run: Run, family: Family, number: int) -> None:
    """What was retired but not yet removed serves like the backup."""
    kind = family.kinds["old"]

    def step(visit: Visit) -> Iterator[Progress]:
        names = [(name, pair) for name in visit.keys if (pair := family.from_retired(name)) is not None]
        if family.by_member:
            for name, pair in names:
                _from_lines(run, family, dump.collection(run.client, run.client.db, kind, name, pair.key.raw))
        else:
            moved = [Pair(pair.key, name, pair.new) for name, pair in names]
            for _, lines in lines_of(run, family, "old", moved):
                _from_lines(run, family, lines)
        yield Progress({"scanned": len(names)})

    Walk(run, f"retired-{number}", family.retired_glob(), step, count=PAGE_KEYS, resume=False).all()


def _from_inverse(run: Run, family: Family, number: int) -> None:
    """Old records of those new ones that have none: what was created or changed since the backup."""
    run.observer.begin(f"{run.id}: rebuild the old shape", None)
    step = _absent_members if family.by_member else _absent_keys
    count = PAGE_COLLECTIONS if family.by_member else PAGE_KEYS
    Walk(run, f"inverse-{number}", family.new_glob, step(run, family), count=count).all()
    run.observer.end()


def _absent_keys(run: Run, family: Family) -> Step:
    def step(visit: Visit) -> Iterator[Progress]:
        pairs = [pair for name in visit.keys if (pair := family.from_new(name)) is not None]
        exists = run.client.each("EXISTS", [pair.old for pair in pairs])
        absent = [pair for pair, there in zip(pairs, exists, strict=True) if not checked(there)]
        yield Progress({"scanned": len(pairs) - len(absent)})
        too_large: list[Pair] = []
        for batch in key_batches(run, family, "new", absent, too_large):
            mend_keys(run, family, batch, by_inverse(family))
            yield Progress({"scanned": len(batch)})
        yield Progress(reject_too_large(run, too_large))

    return step


class _All:
    """A round one that leaves nothing out and counts nothing."""

    def wanted(self) -> bool:
        return True

    def equal(self, number: int) -> Counter[str]:
        return Counter(scanned=number)


def _absent_members(run: Run, family: Family) -> Step:
    mend = partial(_mend_members, run, family)

    def step(visit: Visit) -> Iterator[Progress]:
        pairs = [pair for name in visit.keys if (pair := family.from_new(name)) is not None]
        left = yield from bulk.round_one(run, family, visit, "new", pairs, _All(), mend)
        for pair, start in left:
            yield from _follow_members(run, family, replace(visit, start=Place(pair.new, start)), pair)

    return step


def _follow_inverse(run: Run, family: Family, number: int) -> None:
    """Every old record that is not what its new one was made of."""
    run.observer.begin(f"{run.id}: rebuild the old shape", None)
    step = _inverse_members if family.by_member else _inverse_keys
    count = PAGE_COLLECTIONS if family.by_member else PAGE_KEYS
    # Without a checkpoint: where it has been before, something may differ again.
    Walk(run, f"follow-{number}", family.new_glob, step(run, family), count=count, resume=False).all()
    run.observer.end()


def _inverse_keys(run: Run, family: Family) -> Step:
    def step(visit: Visit) -> Iterator[Progress]:
        pairs = [pair for name in visit.keys if (pair := family.from_new(name)) is not None]
        too_large: list[Pair] = []
        for batch in key_batches(run, family, "new", pairs, too_large):
            for pair in batch:
                if not run.quarantine.accepted_key(pair.key.raw):
                    run.quarantine.release(pair)  # it is tried again, and listed again
            mend = [d.pair for d in judge_keys(run, family, batch) if d.verdict in _BY_INVERSE]
            mend_keys(run, family, mend, by_inverse(family))
            yield Progress({"scanned": len(batch)})
        yield Progress(reject_too_large(run, too_large))

    return step


def _inverse_members(run: Run, family: Family) -> Step:
    def step(visit: Visit) -> Iterator[Progress]:
        for name in visit.keys:
            if (pair := family.from_new(name)) is not None:
                yield from _follow_members(run, family, visit, pair)

    return step


def _follow_members(run: Run, family: Family, visit: Visit, pair: Pair) -> Iterator[Progress]:
    kind, name = family.kinds["new"], pair.new
    if run.client.one(name, "TYPE", name).decode() != kind:
        return
    [size] = page_sizes(run.client, kind, [name])
    yield from by_batch(run, visit, kind, name, size, partial(_mend_members, run, family, pair))


def _mend_members(run: Run, family: Family, pair: Pair, members: Sequence[Member]) -> Counter[str]:
    mend_members_by_inverse(run, family, pair, members)
    return Counter(scanned=len(members))
