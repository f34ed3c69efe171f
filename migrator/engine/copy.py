"""Makes one shape follow the other, record by record, by compare-and-set: what backfill, repair and rebuild share."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from migrator.client import Arg, Command, Reply, ResponseError, checked
from migrator.engine.run import Run
from migrator.errors import Unmappable
from migrator.moves.family import Family, Pair, Side
from migrator.moves.values import (
    MAX_ELEMENTS,
    MemberValue,
    Value,
    digest,
    from_reply,
    read_each,
    to_items,
)
from migrator.phases import Phase
from migrator.phases.markers import refusal
from migrator.scripts import script

BATCH_ITEMS = 40_000  # of both shapes, in one call of a script
FIELD_TTL = "field-ttl: a field has a TTL, which the new shape cannot keep"
CODES = {1: "moved", 2: "unchanged", 4: "vanished"}
FAULT_CODES = {
    5: "foreign-type: another type than the template says",
    6: "target-type: the target exists with another type",
    7: FIELD_TTL,
}
_HOT_PAUSE = 0.001


@dataclass(frozen=True)
class Way:
    """Which shape is the truth and in which phases the other may be written after it."""

    truth: Side
    phases: tuple[Phase, ...]

    @property
    def copy(self) -> Side:
        return "new" if self.truth == "old" else "old"

    def names(self, pair: Pair) -> tuple[bytes, bytes]:
        return (pair.old, pair.new) if self.truth == "old" else (pair.new, pair.old)

    def map_key(self, family: Family, pair: Pair, value: Value) -> Value:
        return family.map_key(pair, value)[0] if self.truth == "old" else family.unmap_key(pair, value)

    def map_member(self, family: Family, pair: Pair, name: bytes, value: MemberValue) -> tuple[bytes, MemberValue]:
        if self.truth == "old":
            return family.map_member(pair, name, value)
        return family.unmap_member(pair, name, value)


FORWARD = Way("old", ("expanded", "backfilled", "verified"))
BACKWARD = Way("new", ("reverting",))
# On the operator's word only: what an application without an adapter wrote after the switch.
FOREIGN_OLD = Way("old", ("switched",))
FOREIGN_NEW = Way("new", ("switched",))


@dataclass
class KeyJob:
    """A record that is to be written: what its truth must still hold, and what its copy becomes; `over` is what the
    copy must still hold, empty where there was none, None where that does not matter."""

    pair: Pair
    expected: list[bytes]
    wanted: list[bytes]
    over: list[bytes] | None = None


def copy_keys(run: Run, family: Family, way: Way, pairs: Sequence[Pair]) -> Counter[str]:
    """Copies one batch of records. One that changes underfoot is read again until it is settled."""
    counts: Counter[str] = Counter(scanned=len(pairs))
    todo: list[Pair] = list(pairs)
    while todo:
        jobs = _read_keys(run, family, way, todo, counts)
        codes = write_keys(run, family, way, jobs)
        todo = []
        for job, code in zip(jobs, codes, strict=True):
            if code == 3:
                todo.append(job.pair)
            elif code in CODES:
                counts[CODES[code]] += 1
                run.quarantine.release(job.pair)
            else:
                reject(run, job.pair, None, FAULT_CODES[code], digest(job.expected), counts)
        if todo:
            breathe(run)
    return counts


def _read_keys(run: Run, family: Family, way: Way, pairs: Sequence[Pair], counts: Counter[str]) -> list[KeyJob]:
    kind = family.kinds[way.truth]
    names = [way.names(pair)[0] for pair in pairs]
    replies = read_each(run.client, kind, names)
    jobs: list[KeyJob] = []
    odd: list[Pair] = []
    for pair, reply in zip(pairs, replies, strict=True):
        if isinstance(reply, ResponseError) and str(reply).startswith("WRONGTYPE"):
            odd.append(pair)
        elif checked(reply) is None or reply == []:
            counts["vanished"] += 1
            run.quarantine.release(pair)
        else:
            job = _map_key(run, family, way, pair, reply, counts)
            if job:
                jobs.append(job)
    _count_odd(run, family, odd, counts)
    return jobs


def _map_key(run: Run, family: Family, way: Way, pair: Pair, reply: Reply, counts: Counter[str]) -> KeyJob | None:
    value = from_reply(family.kinds[way.truth], reply)
    expected = to_items(family.kinds[way.truth], value)
    try:
        if fault := family.fault(pair):
            raise Unmappable(fault)
        wanted = to_items(family.kinds[way.copy], way.map_key(family, pair, value))
    except Unmappable as error:
        reject(run, pair, None, error.reason, digest(expected), counts)
        return None
    return KeyJob(pair, expected, wanted)


def _count_odd(run: Run, family: Family, pairs: Sequence[Pair], counts: Counter[str]) -> None:
    """Keys of another type: where both shapes have one name, the target's type is a record that is there already."""
    replies = run.client.each("TYPE", [pair.old for pair in pairs])
    for pair, reply in zip(pairs, replies, strict=True):
        is_type = checked(reply).decode()
        if is_type == "none":
            counts["vanished"] += 1
        elif family.same_name and is_type == family.kinds["new"]:
            counts["unchanged"] += 1
        else:
            reject(run, pair, None, foreign_type(is_type), is_type, counts)


def foreign_type(is_type: str) -> str:
    return f"foreign-type: a {is_type} under the source template"


def write_keys(run: Run, family: Family, way: Way, jobs: Sequence[KeyJob]) -> list[int]:
    """Sends records to `copy.lua`, one call a slot or several; the codes it gave, in order."""
    groups = list(_calls(run, jobs))
    guard = run.guard(*way.phases).args()
    truth_kind, copy_kind = family.kinds[way.truth], family.kinds[way.copy]
    commands: list[Command] = []
    for slot, indexes in groups:
        keys: list[bytes] = [run.markers.key(slot)]
        args: list[Arg] = [*guard]
        for i in indexes:
            keys += way.names(jobs[i].pair)
            args += (truth_kind, len(jobs[i].expected), *jobs[i].expected)
            args += (copy_kind, len(jobs[i].wanted), *jobs[i].wanted)
            over = jobs[i].over
            args += (-1,) if over is None else (len(over), *over)
        commands.append(Command.eval(script("copy"), keys, args))
    codes = [0] * len(jobs)
    for (_, indexes), reply in zip(groups, run.client.run(commands), strict=True):
        for i, code in zip(indexes, refusal(reply, run.id), strict=True):
            codes[i] = code
    return codes


def _calls(run: Run, jobs: Sequence[KeyJob]) -> Iterator[tuple[int, list[int]]]:
    """Which records go in one call: those of one slot, as many as BATCH_ITEMS allows. Of a record of a few bytes the
    mapping may make thousands of elements."""
    open_: dict[int, tuple[list[int], int]] = {}
    for i, job in enumerate(jobs):
        slot, items = run.client.slot(job.pair.old), len(job.expected) + len(job.wanted)
        indexes, filled = open_.get(slot, ([], 0))
        if indexes and filled + items > BATCH_ITEMS:
            yield slot, indexes
            indexes, filled = [], 0
        indexes.append(i)
        open_[slot] = (indexes, filled + items)
    yield from ((slot, indexes) for slot, (indexes, _) in open_.items())


TOO_LARGE = f"too-large: more than 16 MB or {MAX_ELEMENTS:,} elements in one key; it has to move by member"


def reject_too_large(run: Run, pairs: Sequence[Pair]) -> Counter[str]:
    """Lists keys that were not read; their digest is only that they are too large."""
    counts: Counter[str] = Counter(scanned=len(pairs))
    for pair in pairs:
        reject(run, pair, None, TOO_LARGE, "too-large", counts)
    return counts


def drop_keys(run: Run, family: Family, way: Way, pairs: Sequence[Pair]) -> None:
    """Removes copies that have no truth; one whose truth is there by then stays, and so does what is no copy."""
    args: list[Arg] = [*run.guard(*way.phases).args(), family.kinds[way.copy]]
    commands = [Command.eval(script("drop"), [run.markers.key_for(pair.old), *way.names(pair)], args) for pair in pairs]
    for reply in run.client.run(commands):
        refusal(reply, run.id)


def reject(run: Run, pair: Pair, member: bytes | None, why: str, value_digest: str, counts: Counter[str]) -> None:
    run.quarantine.reject(pair, member, why, value_digest)
    counts["quarantined"] += 1


def breathe(run: Run) -> None:
    """A record is being written faster than we read it: give it a moment, keep the lease."""
    time.sleep(_HOT_PAUSE)
    run.tick()
