"""Makes old records right again, on the way back, from what is saved or by the inverse of the mapping.

The new shape is the truth meanwhile, but adapters write both. An old record that the mapping makes the new one of is
right as it is: it may hold newer bytes than any saved ones. So both shapes are read in one script, and what is written
compares both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from migrator.client import Reply
from migrator.engine.copy import BACKWARD, FAULT_CODES, TOO_LARGE, KeyJob, breathe, write_keys
from migrator.engine.copy_members import MemberJob, write_members
from migrator.engine.judge import GROWN, drifts, read_members, read_pairs
from migrator.engine.run import Run
from migrator.errors import Unmappable
from migrator.moves.family import Family, Member, Pair
from migrator.moves.values import MemberValue, Value, digest, from_items, member_from_wire, member_to_wire, to_items

# What an old record becomes, given the new one: its items; None where nothing is known for it.
Source = Callable[[Pair, Value], list[bytes] | None]


_VANISHED = (4, 5)  # the new record is gone, or another type than any of ours: nothing to follow


def put_back_keys(run: Run, family: Family, jobs: Sequence[KeyJob], source: Source) -> None:
    """Writes saved old records where there are none, each if the new one is still what the mapping makes of it.

    That is the rule after a contract, so nothing is read first: what is otherwise is read and mended from `source`.
    """
    left: list[Pair] = []
    for job, code in zip(jobs, write_keys(run, family, BACKWARD, jobs), strict=True):
        if code in (1, 2):
            run.quarantine.release(job.pair)
        elif code not in _VANISHED:
            left.append(job.pair)
    mend_keys(run, family, left, source)


def mend_keys(run: Run, family: Family, pairs: Sequence[Pair], source: Source) -> int:
    """Writes the old records that are not right. One that changes underfoot is read again. Returns how many."""
    mended, todo = 0, list(pairs)
    while todo:
        found = (_job(run, family, source, *seen) for seen in read_pairs(run, family, todo))
        jobs = [job for job in found if job is not None]
        todo = []
        for job, code in zip(jobs, write_keys(run, family, BACKWARD, jobs), strict=True):
            if code == 3:
                todo.append(job.pair)
            elif code in FAULT_CODES:
                run.quarantine.reject(job.pair, None, FAULT_CODES[code], digest(job.expected))
            else:
                run.quarantine.release(job.pair)
                mended += code == 1
        if todo:
            breathe(run)
    return mended


def _job(run: Run, family: Family, source: Source, pair: Pair, old: Reply, new: Reply) -> KeyJob | None:
    kind, kind2 = family.kinds["old"], family.kinds["new"]
    if new[0].decode() != kind2:
        return None  # deleted since, or never moved
    if old[0] == GROWN:
        run.quarantine.reject(pair, None, TOO_LARGE, "too-large")
        return None
    value, had = from_items(kind2, new[2]), old[2]
    if old[0].decode() == kind and _maps_to(family, pair, from_items(kind, had), value):
        return KeyJob(pair, new[2], had, had) if drifts(old[1], new[1]) else None
    try:
        wanted = source(pair, value)
    except Unmappable as error:
        run.quarantine.reject(pair, None, error.reason, digest(new[2]))
        return None
    return None if wanted is None else KeyJob(pair, new[2], wanted, had)


def _maps_to(family: Family, pair: Pair, old: Value, new: Value) -> bool:
    try:
        return bool(family.map_key(pair, old)[0] == new)
    except Unmappable:
        return False


def by_inverse(family: Family) -> Source:
    return lambda pair, value: to_items(family.kinds["old"], family.unmap_key(pair, value))


def from_saved(family: Family, saved: Mapping[bytes, Sequence[list[bytes]]]) -> Source:
    """What is saved of each old record, by key and newest first: the first of which the mapping makes the new one."""

    def source(pair: Pair, value: Value) -> list[bytes] | None:
        kind = family.kinds["old"]
        return next((i for i in saved[pair.old] if _maps_to(family, pair, from_items(kind, i), value)), None)

    return source


def put_back_members(run: Run, family: Family, pair: Pair, jobs: Sequence[MemberJob]) -> None:
    """The same for members (at most 1000) of one collection. What changes underfoot was written by an adapter, in
    both shapes."""
    left: list[MemberJob] = []
    absent: list[bytes | None] = [None] * len(jobs)
    for job, code in zip(jobs, write_members(run, family, BACKWARD, pair, jobs, absent), strict=True):
        if code in (1, 2):
            run.quarantine.release(pair, job[0])
        elif code not in _VANISHED:
            left.append(job)
    if left:
        mend_members(run, family, pair, left)


def mend_members(run: Run, family: Family, pair: Pair, proposed: Sequence[MemberJob]) -> list[MemberJob]:
    """Writes the old members (at most 1000) that are not right, each only if its new one is as proposed.

    Returns those of which a shape changed underfoot.
    """
    old_kind, new_kind = family.kinds["old"], family.kinds["new"]
    names, new_names = [job[2] for job in proposed], [job[0] for job in proposed]
    before, after, had, now = read_members(run, family, pair, names, new_names)
    jobs: list[MemberJob] = []
    over: list[bytes | None] = []
    right: list[MemberJob] = []
    changed: list[MemberJob] = []
    for job, old, new in zip(proposed, had, now, strict=True):
        new_name, value, name, _ = job
        if new is None:
            continue
        if member_from_wire(new_kind, new) != value:
            changed.append(job)
        elif old is not None and _member_maps_to(family, pair, (name, member_from_wire(old_kind, old)), job[:2]):
            right.append((new_name, value, name, member_from_wire(old_kind, old)))
        else:
            jobs.append(job)
            over.append(old)
    if not jobs and right and drifts(before[1], after[1]):  # nothing to write but the expiry of the collection
        jobs, over = right[:1], [member_to_wire(old_kind, right[0][3])]
    for job, code in zip(jobs, write_members(run, family, BACKWARD, pair, jobs, over), strict=True):
        if code == 3:
            changed.append(job)
        elif code in FAULT_CODES:
            run.quarantine.reject(pair, job[0], FAULT_CODES[code], digest([member_to_wire(new_kind, job[1])]))
        else:
            run.quarantine.release(pair, job[0])
    return changed


def mend_members_by_inverse(run: Run, family: Family, pair: Pair, members: Sequence[Member]) -> None:
    """The old members of these new ones (at most 1000). Those that change underfoot are read again."""
    kind, todo = family.kinds["new"], list(members)
    while todo:
        proposed: list[MemberJob] = []
        odd: dict[bytes, tuple[MemberValue, str]] = {}
        for name, value in todo:
            try:
                proposed.append((name, value, *family.unmap_member(pair, name, value)))
            except Unmappable as error:
                odd[name] = (value, error.reason)
        _reject_odd(run, family, pair, odd)
        names = [job[0] for job in mend_members(run, family, pair, proposed)]
        now = read_members(run, family, pair, (), names)[3] if names else []
        todo = [(name, member_from_wire(kind, raw)) for name, raw in zip(names, now, strict=True) if raw is not None]
        if todo:
            breathe(run)


def _reject_odd(run: Run, family: Family, pair: Pair, odd: Mapping[bytes, tuple[MemberValue, str]]) -> None:
    """New members without an inverse, unless the old one of that name is right already."""
    if not odd:
        return
    kind, kind2 = family.kinds["old"], family.kinds["new"]
    had = read_members(run, family, pair, list(odd), ())[2]
    for (name, (value, reason)), old in zip(odd.items(), had, strict=True):
        if old is None or not _member_maps_to(family, pair, (name, member_from_wire(kind, old)), (name, value)):
            run.quarantine.reject(pair, name, reason, digest([member_to_wire(kind2, value)]))


def _member_maps_to(family: Family, pair: Pair, old: Member, new: Member) -> bool:
    try:
        return family.map_member(pair, *old) == new
    except Unmappable:
        return False
