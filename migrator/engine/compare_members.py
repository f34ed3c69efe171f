"""The comparison of members: in bulk first, and from one script what is not plainly alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from migrator.engine import bulk
from migrator.engine.backfill import PAGE_MEMBERS, scan
from migrator.engine.batches import PageSize, page_batches, page_sizes
from migrator.engine.copy import foreign_type
from migrator.engine.copy_members import copy_members, drop_members
from migrator.engine.judge import Difference, judge_members, none_of_ours, read_members, read_old, unreadable
from migrator.engine.outcome import REPAIR_ROUNDS, Outcome, account, mendable, pass_over
from migrator.engine.run import Run
from migrator.engine.walk import Place, Progress, Step, Visit, inner_pages
from migrator.errors import Unmappable
from migrator.keys import Kind
from migrator.moves.family import Family, Member, Pair, Side
from migrator.moves.values import member_from_wire

Judge = Callable[[Pair, Sequence[Member]], Counter[str]]


def old_members(run: Run, family: Family, outcome: Outcome) -> Step:
    """Every old member against its new one."""
    return _members(run, family, outcome, "old", partial(_settle_members, run, family, outcome))


def new_members(run: Run, family: Family, outcome: Outcome) -> Step:
    """Every new member of which there is no old one."""
    return _members(run, family, outcome, "new", partial(_judge_new, run, family, outcome))


def _members(run: Run, family: Family, outcome: Outcome, side: Side, judge: Judge) -> Step:
    kind, parse = family.kinds[side], family.from_old if side == "old" else family.from_new

    def step(visit: Visit) -> Iterator[Progress]:
        pairs = outcome.pairs(run, map(parse, visit.keys))
        run.census.saw(pair.old for pair in pairs)
        left = yield from bulk.round_one(run, family, visit, side, pairs, outcome, judge)
        keys = [pair.old if side == "old" else pair.new for pair, _ in left]
        for (pair, start), key, size in zip(left, keys, page_sizes(run.client, kind, keys), strict=True):
            is_type = run.client.one(key, "TYPE", key).decode()
            if is_type in (kind, "none"):
                look = partial(_look, outcome, judge, pair)
                yield from by_batch(run, replace(visit, start=Place(key, start)), kind, key, size, look)
            elif side == "old":
                verdict, why = unreadable(run, pair, None, foreign_type(is_type), is_type)
                yield Progress(account(outcome, [Difference(pair, None, verdict, why)]), Place(key))
            elif not run.client.one(pair.old, "EXISTS", pair.old):
                found = [Difference(pair, None, "ignored", none_of_ours(is_type))]
                yield Progress(pass_over(run, outcome, found), Place(key))

    return step


def _look(outcome: Outcome, judge: Judge, pair: Pair, batch: Sequence[Member]) -> Counter[str]:
    return judge(pair, batch) if outcome.wanted() else Counter()


def by_batch(
    run: Run, visit: Visit, kind: Kind, key: bytes, size: PageSize, look: Callable[[Sequence[Member]], Counter[str]]
) -> Iterator[Progress]:
    """One collection, from where the visit starts in it, with what `look` counted of each bounded batch."""
    for cursor, flat in inner_pages(run.client, visit, key, scan(kind, key, size)):
        size.saw(flat)
        for batch in page_batches(kind, flat, lambda: PAGE_MEMBERS):
            yield Progress(look(batch))
        yield Progress({}, Place(key, cursor))


def _settle_members(run: Run, family: Family, outcome: Outcome, pair: Pair, batch: Sequence[Member]) -> Counter[str]:
    found = judge_members(run, family, pair, batch)
    wrong = len(mendable(found))
    for _ in range(REPAIR_ROUNDS):
        names = [d.member for d in found if d.verdict in ("missing", "different") and d.member is not None]
        if any(d.verdict == "ttl_drift" for d in found):
            # One expiry for the whole collection: copying any member sets it.
            names += [d.member for d in found if d.verdict == "equal" and d.member is not None][:1]
        if outcome.repair is None or not names:
            break
        copy_members(run, family, outcome.repair, pair, read_old(run, family, pair, names))
        batch = read_old(run, family, pair, [name for name, _ in batch])
        found = judge_members(run, family, pair, batch)
    return account(outcome, found, wrong - len(mendable(found)))


def _judge_new(run: Run, family: Family, outcome: Outcome, pair: Pair, batch: Sequence[Member]) -> Counter[str]:
    """Only what no old member becomes is counted here; the rest was judged from the old side."""
    origins = dict(zip((name for name, _ in batch), family.origins(pair, batch), strict=True))
    extras = _extras(run, family, pair, origins)
    wrong = len(extras)
    if outcome.drop_extras and outcome.repair is not None and extras:
        names = [(origins[name], name) for name in extras]
        drop_members(run, family, outcome.repair, pair, names, list(extras.values()))
        extras = _extras(run, family, pair, {name: origins[name] for name in extras})
    found = [Difference(pair, origins[n], "extra", _why(old), n) for n, old in extras.items()]
    return account(outcome, found, wrong - len(extras))


def _extras(run: Run, family: Family, pair: Pair, origins: dict[bytes, bytes]) -> dict[bytes, bytes | None]:
    """The new members that no old one becomes, each with the value of the old one it comes from, if that is there."""
    if not origins:
        return {}
    _, _, olds, news = read_members(run, family, pair, list(origins.values()), list(origins))
    found = zip(origins.items(), olds, news, strict=True)
    return {new: old for (new, was), old, now in found if now is not None and _is_extra(family, pair, new, was, old)}


def _is_extra(family: Family, pair: Pair, new: bytes, was: bytes, old: bytes | None) -> bool:
    if old is None:
        return True
    if family.keeps_names:
        return False
    try:
        return family.map_member(pair, was, member_from_wire(family.kinds["old"], old))[0] != new
    except Unmappable:
        return False  # what it becomes cannot be said, which was counted from the old side


def _why(old: bytes | None) -> str:
    return "there is no old member" if old is None else "the old member it comes from becomes another one"
