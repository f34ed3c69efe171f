"""After the switch: settles what an application without an adapter wrote, in the direction the operator names.

What is overwritten or removed is saved first, and written only if both shapes are still as they were saved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from migrator.client import Reply
from migrator.engine import dump
from migrator.engine.batches import key_batches
from migrator.engine.compare import compare
from migrator.engine.copy import (
    FAULT_CODES,
    FOREIGN_NEW,
    FOREIGN_OLD,
    KeyJob,
    Way,
    breathe,
    drop_keys,
    write_keys,
)
from migrator.engine.copy_members import MemberJob, drop_members, write_members
from migrator.engine.judge import GROWN, Difference, Verdict, read_members, read_pairs
from migrator.engine.outcome import Outcome
from migrator.engine.run import Run
from migrator.engine.saving import open_backup
from migrator.errors import RefusedError, Unmappable
from migrator.moves.family import Family, Pair, Side
from migrator.moves.values import digest, from_items, member_from_wire, member_to_wire, members_from_page, to_items
from migrator.snapshot.backup import Backup
from migrator.snapshot.ndjson import Line

Names = tuple[bytes, bytes]  # of a member, in the old and in the new shape
_PAGE = 1000
_MEND: dict[Side, tuple[Verdict, ...]] = {
    "old": ("different", "ttl_drift", "missing", "extra"),
    "new": ("different", "ttl_drift", "extra"),
}


def settle(run: Run, truth: Literal["old", "new"], outcome: Outcome) -> Counter[str]:
    """Makes the other side follow `truth` wherever the two differ; an *unmoved* record is never removed. Returns the
    counts of what was found, before it was settled.

    Raises RefusedError outside `switched` and without a directory to save to.
    """
    if run.entry.phase != "switched":
        raise RefusedError(f"{run.id} is {run.entry.phase}: --foreign settles differences in switched only",
                           next="before the switch, use --repair")  # fmt: skip
    base = run.options.backup
    if base is None:
        raise RefusedError(f"{run.id}: --foreign overwrites one side", next="add --backup DIR, where it is saved first")
    saving = open_backup(run, base, f"foreign-{truth}", run.entry.epoch)
    settling = _Settling(run, truth, saving)
    outcome.each = settling.take
    counts = compare(run, outcome, "foreign")
    settling.settle()
    saving.finish()
    return counts


class _Settling:
    """What differs, settled while the comparison goes on, so many at once: all of it need not fit into memory."""

    def __init__(self, run: Run, truth: Side, saving: Backup) -> None:
        self._run, self._truth, self._saving = run, truth, saving
        self._way = FOREIGN_OLD if truth == "old" else FOREIGN_NEW
        self._found: list[Difference] = []

    def take(self, found: Sequence[Difference]) -> None:
        self._found += [d for d in found if d.verdict in _MEND[self._truth]]
        if len(self._found) >= _PAGE:
            self.settle()

    def settle(self) -> None:
        found, self._found = self._found, []
        for family in self._run.families:
            mine = [d for d in found if family.from_old(d.pair.old) is not None]
            if family.by_member:
                self._members(family, mine)
            else:
                for batch in key_batches(self._run, family, self._way.copy, [d.pair for d in mine]):
                    _Keys(self._run, family, self._way, self._saving).settle(batch)

    def _members(self, family: Family, found: Sequence[Difference]) -> None:
        for pair, members in _by_collection(found):
            at_hand = _Members(self._run, family, self._way, self._saving, pair)
            drifts = any(d.verdict == "ttl_drift" for d in found if d.pair.old == pair.old)
            # One expiry for the whole collection: copying any member sets it.
            names = [*members, *(at_hand.any() if drifts else ())]
            for start in range(0, len(names), _PAGE):
                at_hand.settle(names[start : start + _PAGE])


class _Keys:
    """Whole records."""

    def __init__(self, run: Run, family: Family, way: Way, saving: Backup) -> None:
        self._run, self._family, self._way, self._saving = run, family, way, saving
        self._kind, self._copy_kind = family.kinds[way.truth], family.kinds[way.copy]

    def settle(self, pairs: Sequence[Pair]) -> None:
        todo = list(pairs)
        while todo:
            jobs, gone = [], []
            for pair, old, new in read_pairs(self._run, self._family, todo):
                truth, copy = (old, new) if self._way.truth == "old" else (new, old)
                if GROWN in (truth[0], copy[0]):
                    continue  # neither saved nor mapped whole: it stays a difference, and `verify` says what to do
                if truth[0] == b"none":
                    gone += [pair] if self._save(pair, copy) and self._way.truth == "old" else []
                elif truth[0].decode() == self._kind and (job := self._job(pair, truth, copy)) is not None:
                    self._save(pair, copy)
                    jobs.append(job)
            self._saving.commit()
            # An adapter that wrote one of them meanwhile wrote both shapes: then it stays.
            drop_keys(self._run, self._family, self._way, gone)
            todo = self._write(jobs)
            self._run.tick()

    def _save(self, pair: Pair, copy: Reply) -> bool:
        """Whether there was something to save."""
        if copy[0].decode() != self._copy_kind:
            return False
        name = self._way.names(pair)[1]
        at = copy[1] if copy[1] >= 0 else None
        self._saving.write(Line(self._run.client.db, name, self._copy_kind, at, copy[2]))
        return True

    def _job(self, pair: Pair, truth: Reply, copy: Reply) -> KeyJob | None:
        try:
            wanted = self._way.map_key(self._family, pair, from_items(self._kind, truth[2]))
        except Unmappable as error:
            self._run.quarantine.reject(pair, None, error.reason, digest(truth[2]))
            return None
        return KeyJob(pair, truth[2], to_items(self._copy_kind, wanted), copy[2])

    def _write(self, jobs: Sequence[KeyJob]) -> list[Pair]:
        """Those that changed underfoot."""
        again: list[Pair] = []
        for job, code in zip(jobs, write_keys(self._run, self._family, self._way, jobs), strict=True):
            if code == 3:
                again.append(job.pair)
            elif code in FAULT_CODES:
                self._run.quarantine.reject(job.pair, None, FAULT_CODES[code], digest(job.expected))
        if again:
            breathe(self._run)
        return again


class _Members:
    """Members of one collection, at most 1000 at once."""

    def __init__(self, run: Run, family: Family, way: Way, saving: Backup, pair: Pair) -> None:
        self._run, self._family, self._way, self._saving, self._pair = run, family, way, saving, pair
        self._kind, self._copy_kind = family.kinds[way.truth], family.kinds[way.copy]
        self._forward = way.truth == "old"

    def settle(self, members: Sequence[Names]) -> None:
        todo = list(members)
        while todo:
            old, new, had, now = read_members(self._run, self._family, self._pair, *zip(*todo, strict=True))
            jobs: list[MemberJob] = []
            over: list[bytes | None] = []
            gone: dict[Names, tuple[bytes | None, bytes]] = {}  # what the truth has, and the copy
            again: list[Names] = []
            for names, *shapes in zip(todo, had, now, strict=True):
                truth, copy = shapes if self._forward else reversed(shapes)
                job = None if truth is None else self._job(names, truth)
                if job is None or self._names(job) != names:
                    if job is not None:
                        again.append(self._names(job))  # what its copy holds was not read yet
                    if self._forward and copy is not None and (truth is None or job is not None):
                        gone[names] = truth, copy  # that truth becomes no member of this name
                else:
                    jobs.append(job)
                    over.append(copy)
            saved = [(job[2], raw) for job, raw in zip(jobs, over, strict=True) if raw is not None]
            dropped = [(names[1], raw) for names, (_, raw) in gone.items()]
            self._save([*saved, *dropped], (new if self._forward else old)[1])
            left = [truth for truth, _ in gone.values()]
            drop_members(self._run, self._family, self._way, self._pair, list(gone), left)
            todo = [*again, *self._write(jobs, over)]
            self._run.tick()

    def _names(self, job: MemberJob) -> Names:
        return (job[0], job[2]) if self._forward else (job[2], job[0])

    def any(self) -> list[Names]:
        """One member of the truth that can be mapped, if there is one."""
        name = self._way.names(self._pair)[0]
        for line in dump.collection(self._run.client, self._run.client.db, self._kind, name, name):
            for member, value in members_from_page(self._kind, line.items):
                if (job := self._job((member, member), member_to_wire(self._kind, value))) is not None:
                    return [self._names(job)]
        return []

    def _job(self, names: Names, truth: bytes) -> MemberJob | None:
        name = names[0] if self._forward else names[1]
        try:
            value = member_from_wire(self._kind, truth)
            return (name, value, *self._way.map_member(self._family, self._pair, name, value))
        except Unmappable as error:
            self._run.quarantine.reject(self._pair, names[0], error.reason, digest([truth]))
            return None

    def _save(self, members: Sequence[tuple[bytes, bytes]], expiry: int) -> None:
        if not members:
            return
        name = self._way.names(self._pair)[1]
        flat = [word for member in members for word in (member if self._copy_kind != "set" else member[:1])]
        self._saving.write(Line(self._run.client.db, name, self._copy_kind, expiry if expiry >= 0 else None, flat))
        self._saving.commit()

    def _write(self, jobs: Sequence[MemberJob], over: Sequence[bytes | None]) -> list[Names]:
        """Those that changed underfoot."""
        again: list[Names] = []
        codes = write_members(self._run, self._family, self._way, self._pair, jobs, over)
        for job, code in zip(jobs, codes, strict=True):
            if code == 3:
                again.append((job[0], job[2]) if self._forward else (job[2], job[0]))
            elif code in FAULT_CODES:
                old = job[0] if self._forward else job[2]
                self._run.quarantine.reject(
                    self._pair, old, FAULT_CODES[code], digest([member_to_wire(self._kind, job[1])])
                )
        if again:
            breathe(self._run)
        return again


def _by_collection(found: Sequence[Difference]) -> list[tuple[Pair, list[Names]]]:
    groups: dict[bytes, tuple[Pair, list[Names]]] = {}
    for d in found:
        _, members = groups.setdefault(d.pair.old, (d.pair, []))
        if d.member is not None:
            members.append((d.member, d.new if d.new is not None else d.member))
    return list(groups.values())
