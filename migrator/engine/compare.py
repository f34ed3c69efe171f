"""The full comparison, both ways: every old record against its new shape, and every new record against the old ones.

Read in bulk first; what seems to differ is judged from one script that reads both shapes, so it really differs. A
repair compares again what it wrote.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from migrator.client import Arg, checked
from migrator.engine import bulk
from migrator.engine.alike import round_one
from migrator.engine.backfill import PAGE_COLLECTIONS, PAGE_KEYS, PAGE_MEMBERS
from migrator.engine.copy import (
    TOO_LARGE,
    Way,
    copy_keys,
    copy_members,
    drop_keys,
    drop_members,
    foreign_type,
    key_batches,
)
from migrator.engine.judge import (
    FAULTS,
    Difference,
    Verdict,
    judge_keys,
    judge_members,
    read_members,
    read_old,
    unreadable,
)
from migrator.engine.run import Run
from migrator.engine.walk import Place, Progress, Step, Visit, Walk, inner_pages
from migrator.keys import Kind
from migrator.moves.family import Family, Member, Pair
from migrator.moves.values import (
    members_from_page,
    scan_words,
)

REPAIR_ROUNDS = 3
EXAMPLES = 20


@dataclass
class Outcome:
    """What a comparison found. `repair` and `drop_extras` say what it may mend on the way, `slots` where it looks,
    `share` and `until` (a monotonic time in seconds) how much. `keep_all` keeps more than a few examples."""

    repair: Way | None = None
    drop_extras: bool = False
    slots: set[int] | None = None
    share: float = 1.0
    until: float | None = None
    keep_all: bool = False
    examples: list[Difference] = field(default_factory=list)
    cut_short: bool = False
    counted: Counter[str] = field(default_factory=Counter)

    def pairs(self, run: Run, found: Iterable[Pair | None]) -> list[Pair]:
        """The records this comparison is about."""
        return [p for p in found if p is not None and (self.slots is None or run.client.slot(p.old) in self.slots)]

    def equal(self, number: int) -> Counter[str]:
        """Counts records that were found equal in bulk."""
        counts: Counter[str] = Counter(equal=number)
        self.counted.update(counts)
        return counts

    def counts(self) -> Counter[str]:
        """What was counted so far, of a comparison that ended early."""
        return _compared(Counter(self.counted))

    def note(self, differences: Sequence[Difference]) -> None:
        room = len(differences) if self.keep_all else EXAMPLES - len(self.examples)
        self.examples += differences[: max(0, room)]

    def wanted(self) -> bool:
        """Whether the next batch is looked at: not once the time is up, and only a share of them in a sample."""
        if self.until is not None and time.monotonic() > self.until:
            raise _TimeUpError
        # Batches are drawn, not records: a batch costs a round trip whether it is whole or not.
        return self.share >= 1.0 or random.random() < self.share


class _TimeUpError(Exception):
    """The budget of a comparison is spent."""


def compare(run: Run, outcome: Outcome, name: str = "compare") -> Counter[str]:
    """Compares everything. Returns the counts by verdict, `compared` and `repaired` among them.

    Only apply's own comparison, `compare`, is resumed after a crash; whoever calls it forgets its checkpoints after.
    """
    total: Counter[str] = Counter()
    try:
        for number, family in enumerate(run.families):
            found: Counter[str] = Counter()
            for side, glob in (("old", family.old_glob), ("new", family.new_glob)):
                run.observer.begin(f"{run.id}: compare {side}", None)
                step = _step(run, family, side, outcome)
                count = PAGE_COLLECTIONS if family.by_member else PAGE_KEYS
                walk = Walk(run, f"{name}-{number}-{side}", glob, step, count=count, resume=name == "compare")
                found.update(walk.all())
                run.observer.end()
            if outcome.share >= 1.0 and outcome.slots is None:
                _take_census(run, family, found)
            total.update(found)
        recheck(run)
    except _TimeUpError:
        outcome.cut_short = True
        return outcome.counts()
    return _compared(total)


def _take_census(run: Run, family: Family, found: Counter[str]) -> None:
    if not family.by_member:
        both = found["equal"] + found["different"] + found["ttl_drift"]
        old = both + found["missing"] + found["unreadable"] + found["accepted"]
        run.count(family, old, both + found["extra"])


def _compared(counts: Counter[str]) -> Counter[str]:
    counts["compared"] = counts["equal"] + sum(counts[fault] for fault in FAULTS)
    return counts


def recheck(run: Run) -> None:
    """Takes records off the quarantine that are gone or mended since they were listed."""
    for key, member in run.quarantine.open_records():
        for family in run.families:
            pair = family.from_old(key)
            if pair is None:
                continue
            if member is None and family.by_member:
                is_type = run.client.one(key, "TYPE", key).decode()
                lasting = is_type not in ("none", family.kinds["old"])
            elif member is None:
                readable = [p for batch in key_batches(run, family, "old", [pair]) for p in batch]
                lasting = any(d.verdict == "unreadable" for d in judge_keys(run, family, readable)) or not readable
            else:
                members = read_old(run, family, pair, [member])
                lasting = any(d.verdict == "unreadable" for d in judge_members(run, family, pair, members))
            if not lasting:
                run.quarantine.release(pair, member)
        run.tick()


def _step(run: Run, family: Family, side: str, outcome: Outcome) -> Step:
    if side == "old":
        return _old_members(run, family, outcome) if family.by_member else _old_keys(run, family, outcome)
    return _new_members(run, family, outcome) if family.by_member else _new_keys(run, family, outcome)


# Keys.


def _old_keys(run: Run, family: Family, outcome: Outcome) -> Step:
    def step(visit: Visit) -> Iterator[Progress]:
        pairs = outcome.pairs(run, map(family.from_old, visit.keys))
        too_large: list[Pair] = []
        batches = (batch for batch in key_batches(run, family, "old", pairs, too_large) if outcome.wanted())
        for alike, suspects in round_one(run, family, visit, batches):
            counts = outcome.equal(alike)
            if suspects:
                counts += _settle_keys(run, family, outcome, judge_keys(run, family, suspects))
            yield Progress(counts)
        unread = [Difference(p, None, *unreadable(run, p, None, TOO_LARGE, "too-large")) for p in too_large]
        if unread:
            yield Progress(_account(outcome, unread))

    return step


def _settle_keys(run: Run, family: Family, outcome: Outcome, found: list[Difference]) -> Counter[str]:
    wrong = len(_mendable(found))
    for _ in range(REPAIR_ROUNDS):
        mend = [d.pair for d in _mendable(found)]
        if not mend or outcome.repair is None:
            break
        copy_keys(run, family, outcome.repair, mend)
        again = {id(d.pair): d for d in judge_keys(run, family, mend)}
        found = [again.get(id(d.pair), d) for d in found]
    return _account(outcome, found, wrong - len(_mendable(found)))


def _account(outcome: Outcome, found: Sequence[Difference], repaired: int = 0) -> Counter[str]:
    outcome.note([d for d in found if d.verdict in FAULTS])
    counts: Counter[str] = Counter(d.verdict for d in found)
    counts["repaired"] = repaired
    outcome.counted.update(counts)
    return counts


_MENDABLE: tuple[Verdict, ...] = ("missing", "different", "ttl_drift")


def _mendable(found: Sequence[Difference]) -> list[Difference]:
    return [d for d in found if d.verdict in _MENDABLE]


def _new_keys(run: Run, family: Family, outcome: Outcome) -> Step:
    def step(visit: Visit) -> Iterator[Progress]:
        pairs = outcome.pairs(run, map(family.from_new, visit.keys))
        if not outcome.wanted():
            return
        exists = run.client.each("EXISTS", [pair.old for pair in pairs])
        suspects = [pair for pair, there in zip(pairs, exists, strict=True) if not checked(there)]
        found = [d for d in judge_keys(run, family, suspects) if d.verdict == "extra"]
        if outcome.drop_extras and outcome.repair is not None and found:
            drop_keys(run, outcome.repair, [d.pair for d in found])
            wrong = len(found)
            found = [d for d in judge_keys(run, family, [d.pair for d in found]) if d.verdict == "extra"]
            yield Progress(_account(outcome, found, wrong - len(found)))
            return
        yield Progress(_account(outcome, found))

    return step


# Members.


def _old_members(run: Run, family: Family, outcome: Outcome) -> Step:
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
                yield Progress(_account(outcome, [Difference(pair, None, verdict, why)]), Place(pair.old))
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
    wrong = len(_mendable(found))
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
    return _account(outcome, found, wrong - len(_mendable(found)))


def _new_members(run: Run, family: Family, outcome: Outcome) -> Step:
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
    return _account(outcome, found, wrong - len(extras))


def _extras(run: Run, family: Family, pair: Pair, origins: dict[bytes, bytes]) -> list[bytes]:
    if not origins:
        return []
    _, _, old, new = read_members(run, family, pair, list(origins.values()), list(origins))
    return [n for n, was, now in zip(origins, old, new, strict=True) if was is None and now is not None]
