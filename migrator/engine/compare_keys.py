"""The comparison of keys: read in bulk first, and from one script what is not plainly alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from migrator.client import checked
from migrator.engine.alike import round_one
from migrator.engine.batches import grown_apart, key_batches
from migrator.engine.copy import FORWARD, TOO_LARGE, copy_keys, drop_keys
from migrator.engine.judge import Difference, judge_grown_extra, judge_keys, unreadable
from migrator.engine.outcome import REPAIR_ROUNDS, Outcome, account, mendable, pass_over
from migrator.engine.run import Run
from migrator.engine.walk import Progress, Step, Visit
from migrator.moves.family import Family, Pair


def old_keys(run: Run, family: Family, outcome: Outcome) -> Step:
    """Every old record against its new one."""

    def step(visit: Visit) -> Iterator[Progress]:
        pairs, too_large = outcome.pairs(run, map(family.from_old, visit.keys)), list[Pair]()
        news, grown = list[int](), list[Pair]()
        if _of_their_own(run):
            pairs, news, grown = grown_apart(run, family, pairs)
        for batch in key_batches(run, family, "old", grown, too_large):
            if outcome.wanted():
                yield Progress(_settle_keys(run, family, outcome, judge_keys(run, family, batch)))
        batches = (batch for batch in key_batches(run, family, "old", pairs, too_large, news) if outcome.wanted())
        for alike, suspects in round_one(run, family, visit, batches):
            counts = outcome.equal(alike)
            if suspects:
                counts += _settle_keys(run, family, outcome, judge_keys(run, family, suspects))
            yield Progress(counts)
        unread = [Difference(p, None, *unreadable(run, p, None, TOO_LARGE, "too-large")) for p in too_large]
        if unread:
            yield Progress(account(outcome, unread))

    return step


def _of_their_own(run: Run) -> bool:
    """Whether new records may be others than the mapping makes, which are never too large to be read. To weigh all of
    them takes a server a seventh of what the comparison takes it."""
    return run.entry.phase not in FORWARD.phases or bool(run.entry.adopted)


def _settle_keys(run: Run, family: Family, outcome: Outcome, found: list[Difference]) -> Counter[str]:
    wrong = len(mendable(found))
    for _ in range(REPAIR_ROUNDS):
        mend = [d.pair for d in mendable(found)]
        if not mend or outcome.repair is None:
            break
        copy_keys(run, family, outcome.repair, mend)
        again = {id(d.pair): d for d in judge_keys(run, family, mend)}
        found = [again.get(id(d.pair), d) for d in found]
    return account(outcome, found, wrong - len(mendable(found)))


def new_keys(run: Run, family: Family, outcome: Outcome) -> Step:
    """Only what has no old record is counted here; the rest was judged from the old side."""

    def step(visit: Visit) -> Iterator[Progress]:
        pairs = outcome.pairs(run, map(family.from_new, visit.keys))
        if not outcome.wanted():
            return
        exists = run.client.each("EXISTS", [pair.old for pair in pairs])
        suspects = [pair for pair, there in zip(pairs, exists, strict=True) if not checked(there)]
        too_large: list[Pair] = []
        for batch in key_batches(run, family, "new", suspects, too_large):
            yield from _alone(run, family, outcome, judge_keys(run, family, batch))
        unread = [Difference(pair, None, *judge_grown_extra(run, pair)) for pair in too_large]
        yield from _alone(run, family, outcome, unread)

    return step


def _alone(run: Run, family: Family, outcome: Outcome, judged: Sequence[Difference]) -> Iterator[Progress]:
    """New records that seemed to have no old one."""
    yield Progress(pass_over(run, outcome, [d for d in judged if d.verdict == "ignored"]))
    if run.entry.phase in ("reverting", "switched"):  # elsewhere it has an old one by now, and is that one's
        yield Progress(account(outcome, [d for d in judged if d.verdict in ("unreadable", "accepted")]))
    found = [d for d in judged if d.verdict == "extra"]
    wrong = len(found)
    if outcome.drop_extras and outcome.repair is not None and found:
        drop_keys(run, family, outcome.repair, [d.pair for d in found])
        found = [d for d in judge_keys(run, family, [d.pair for d in found]) if d.verdict == "extra"]
    yield Progress(account(outcome, found, wrong - len(found)))
