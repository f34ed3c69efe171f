"""Makes members of one collection follow those of the other shape, by compare-and-set: `copy`, a level further down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from migrator.client import Arg, Command, ResponseError
from migrator.engine.copy import CODES, FAULT_CODES, Way, breathe, reject
from migrator.engine.run import Run
from migrator.errors import Unmappable
from migrator.keys import Kind
from migrator.moves.family import Family, Member, Pair
from migrator.moves.values import MemberValue, ask_words, digest, member_from_wire, member_to_wire
from migrator.phases.markers import refusal
from migrator.scripts import script

MemberJob = tuple[bytes, MemberValue, bytes, MemberValue]


def copy_members(run: Run, family: Family, way: Way, pair: Pair, members: Sequence[Member]) -> Counter[str]:
    """Copies members of one collection (at most 1000)."""
    counts: Counter[str] = Counter(scanned=len(members))
    todo = list(members)
    kind = family.kinds[way.truth]
    while todo:
        jobs = _map_members(run, family, way, pair, todo, counts)
        codes = write_members(run, family, way, pair, jobs)
        changed: list[bytes] = []
        for (name, value, _, _), code in zip(jobs, codes, strict=True):
            if code == 3:
                changed.append(name)
            elif code in CODES:
                counts[CODES[code]] += 1
                run.quarantine.release(pair, name)
            else:
                reject(run, pair, name, FAULT_CODES[code], digest([member_to_wire(kind, value)]), counts)
        todo = read_again(run, kind, way.names(pair)[0], changed, counts)
        if todo:
            breathe(run)
    return counts


def _map_members(
    run: Run, family: Family, way: Way, pair: Pair, members: Sequence[Member], counts: Counter[str]
) -> list[MemberJob]:
    jobs: list[MemberJob] = []
    fault = family.fault(pair)
    for name, value in members:
        try:
            if fault:
                raise Unmappable(fault)
            jobs.append((name, value, *way.map_member(family, pair, name, value)))
        except Unmappable as error:
            value_digest = digest([member_to_wire(family.kinds[way.truth], value)])
            reject(run, pair, name, error.reason, value_digest, counts)
    return jobs


def write_members(
    run: Run,
    family: Family,
    way: Way,
    pair: Pair,
    jobs: Sequence[MemberJob],
    over: Sequence[bytes | None] | None = None,
) -> list[int]:
    """Sends members to `copy_members.lua`; the codes it gave, in order. `over`: what the copies must still hold."""
    if not jobs:
        return []
    truth_kind, copy_kind = family.kinds[way.truth], family.kinds[way.copy]
    args: list[Arg] = [*run.guard(*way.phases).args(), truth_kind, copy_kind, 4 if over is None else 6]
    for i, (name, value, new_name, new_value) in enumerate(jobs):
        args += (name, member_to_wire(truth_kind, value), new_name, member_to_wire(copy_kind, new_value))
        if over is not None:
            had = over[i]
            args += ("none", "") if had is None else ("had", had)
    keys = [run.markers.key_for(pair.old), *way.names(pair)]
    reply = run.client.run([Command.eval(script("copy_members"), keys, args)])[0]
    codes: list[int] = refusal(reply, run.id)
    return codes


def drop_members(
    run: Run,
    family: Family,
    way: Way,
    pair: Pair,
    members: Sequence[tuple[bytes, bytes]],
    left: Sequence[bytes | None] | None = None,
) -> None:
    """The same for members (at most 1000): the name in the truth and the name in the copy of each. `left`: a value of
    the truth that becomes another member, None for none; while it is so, the copy goes although the truth is there."""
    if not members:
        return
    args: list[Arg] = [*run.guard(*way.phases).args(), family.kinds[way.truth], family.kinds[way.copy]]
    for names, value in zip(members, left or [None] * len(members), strict=True):
        args += (*names, *(("none", "") if value is None else ("left", value)))
    keys = [run.markers.key_for(pair.old), *way.names(pair)]
    refusal(run.client.run([Command.eval(script("drop_members"), keys, args)])[0], run.id)


def read_again(run: Run, kind: Kind, key: bytes, names: list[bytes], counts: Counter[str]) -> list[Member]:
    if not names:
        return []
    reply = run.client.run([Command(key, ask_words(kind, key, names))])[0]
    values = [None] * len(names) if isinstance(reply, ResponseError) else reply
    found: list[Member] = []
    for name, value in zip(names, values, strict=True):
        if value is None or value == 0:
            counts["vanished"] += 1
        else:
            found.append((name, member_from_wire(kind, None if kind == "set" else value)))
    return found
