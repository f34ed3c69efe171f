"""The comparison of members: in bulk first, and from one script what is not plainly alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from migrator.client import Arg
from migrator.engine import bulk
from migrator.engine.backfill import PAGE_MEMBERS
from migrator.engine.copy import foreign_type
from migrator.engine.copy_members import copy_members, drop_members
from migrator.engine.judge import Difference, judge_members, read_members, read_old, unreadable
from migrator.engine.outcome import REPAIR_ROUNDS, Outcome, account, mendable
from migrator.engine.run import Run
from migrator.engine.walk import Place, Progress, Step, Visit, inner_pages
from migrator.keys import Kind
from migrator.moves.family import Family, Member, Pair
from migrator.moves.values import members_from_page, scan_words


def old_members(run: Run, family: Family, outcome: Outcome) -> Step:
    """Every old member against its new one."""
    kind = family.kinds["old"]

    def step(visit: Visit) -> Iterator[Progress]:
        pairs = outcome.pairs(run, map(family.from_old, visit.keys))
        run.census.saw(pair.old for pair in pairs)
        judge = partial(_settle_members, run, family, outcome)
        left = yield from bulk.round_one(run, family, visit, "old", pairs, outcome, judge)
        for pair, start in left:
            is_type = run.client.one(pair.old, "TYPE", pair.old).decode()
            if is_type not in (kind, "none"):
                verdict, why = unreadable(run, pair, None, foreign_type(is_type), is_type)
                yield Progress(account(outcome, [Difference(pair, None, verdict, why)]), Place(pair.old))
                continue
            there = replace(visit, start=Place(pair.old, start))
            pages = inner_pages(run.client, there, pair.old, scan(kind, pair.old))
            for cursor, batch, last in member_batches(kind, pages):
                counts = _settle_members(run, family, outcome, pair, batch) if outcome.wanted() else Counter()
                yield Progress(counts, Place(pair.old, cursor) if last else Place())

    return step


def scan(kind: Kind, key: bytes) -> Callable[[int], tuple[Arg, ...]]:
    return lambda cursor: scan_words(kind, key, cursor, PAGE_MEMBERS)


def member_batches(kind: Kind, pages: Iterator[tuple[int, list[bytes]]]) -> Iterator[tuple[int, list[Member], bool]]:
    """Pages cut to bounded batches: (next cursor, members, whether the page ends here)."""
    for cursor, flat in pages:
        members = members_from_page(kind, flat)
        for start in range(0, max(1, len(members)), PAGE_MEMBERS):
            yield cursor, members[start : start + PAGE_MEMBERS], start + PAGE_MEMBERS >= len(members)


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


def new_members(run: Run, family: Family, outcome: Outcome) -> Step:
    """Every new member of which there is no old one."""
    kind = family.kinds["new"]

    def step(visit: Visit) -> Iterator[Progress]:
        pairs = outcome.pairs(run, map(family.from_new, visit.keys))
        run.census.saw(pair.old for pair in pairs)
        judge = partial(_judge_new, run, family, outcome)
        left = yield from bulk.round_one(run, family, visit, "new", pairs, outcome, judge)
        for pair, start in left:
            key = pair.new
            if run.client.one(key, "TYPE", key).decode() != kind:
                continue
            pages = inner_pages(run.client, replace(visit, start=Place(key, start)), key, scan(kind, key))
            for cursor, batch, last in member_batches(kind, pages):
                counts = _judge_new(run, family, outcome, pair, batch) if outcome.wanted() else Counter()
                yield Progress(counts, Place(key, cursor) if last else Place())

    return step


def _judge_new(run: Run, family: Family, outcome: Outcome, pair: Pair, batch: Sequence[Member]) -> Counter[str]:
    """Only what has no old member is counted here; the rest was judged from the old side."""
    origins = dict(zip((name for name, _ in batch), family.origins(pair, batch), strict=True))
    extras = _extras(run, family, pair, origins)
    wrong = len(extras)
    if outcome.drop_extras and outcome.repair is not None and extras:
        drop_members(run, family, outcome.repair, pair, [(origins[name], name) for name in extras])
        extras = _extras(run, family, pair, {name: origins[name] for name in extras})
    found = [Difference(pair, origins[n], "extra", "there is no old member", n) for n in extras]
    return account(outcome, found, wrong - len(extras))


def _extras(run: Run, family: Family, pair: Pair, origins: dict[bytes, bytes]) -> list[bytes]:
    if not origins:
        return []
    _, _, old, new = read_members(run, family, pair, list(origins.values()), list(origins))
    return [n for n, was, now in zip(origins, old, new, strict=True) if was is None and now is not None]
