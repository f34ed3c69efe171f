"""The full comparison, both ways: every old record against its new shape, and every new record against the old ones.

Read in bulk first; what seems to differ is judged from one script that reads both shapes, so it really differs. A
repair compares again what it wrote.
"""

from __future__ import annotations

from collections import Counter

from migrator.engine.backfill import PAGE_COLLECTIONS, PAGE_KEYS
from migrator.engine.batches import key_batches
from migrator.engine.compare_keys import new_keys, old_keys
from migrator.engine.compare_members import new_members, old_members
from migrator.engine.judge import judge_keys, judge_members, read_old
from migrator.engine.outcome import Outcome, TimeUpError, compared
from migrator.engine.run import Run
from migrator.engine.walk import Step, Walk
from migrator.ledger import Comparison
from migrator.ledger.lease import server_ms
from migrator.moves.family import Family, Side

ALL_SIDES: tuple[Side, ...] = ("old", "new")


def compare(run: Run, outcome: Outcome, name: str = "compare", sides: tuple[Side, ...] = ALL_SIDES) -> Counter[str]:
    """Compares everything, or what one side has. Returns the counts by verdict, `compared` and `repaired` among them.

    Only apply's own comparison, `compare`, is resumed after a crash; whoever calls it forgets its checkpoints after.
    """
    total: Counter[str] = Counter()
    try:
        for number, family in enumerate(run.families):
            found: Counter[str] = Counter()
            for side in sides:
                glob = family.old_glob if side == "old" else family.new_glob
                run.observer.begin(f"{run.id}: compare {side}", None)
                step = _step(run, family, side, outcome)
                count = PAGE_COLLECTIONS if family.by_member else PAGE_KEYS
                walk = Walk(run, f"{name}-{number}-{side}", glob, step, count=count, resume=name == "compare")
                found.update(walk.all())
                run.observer.end()
            if outcome.share >= 1.0 and outcome.slots is None and len(sides) == 2:
                _take_census(run, family, found)
            total.update(found)
        recheck(run)
    except TimeUpError:
        outcome.cut_short = True
        return outcome.counts()
    return compared(total)


def evidence(run: Run, fingerprint: str, counts: Counter[str]) -> Comparison:
    """What the ledger keeps of a full comparison that has ended; `fingerprint`: of the slots before it began."""
    return Comparison(
        epoch=run.entry.epoch, compared=counts["compared"], fingerprint=fingerprint,
        at=server_ms(run.client, run.names), missing=counts["missing"], extra=counts["extra"],
        different=counts["different"], ttl_drift=counts["ttl_drift"], unreadable=counts["unreadable"],
    )  # fmt: skip


def _take_census(run: Run, family: Family, found: Counter[str]) -> None:
    if not family.by_member:
        both = found["equal"] + found["different"] + found["ttl_drift"]
        old = both + found["missing"] + found["unreadable"] + found["accepted"]
        run.count(family, old, both + found["extra"])


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
                readable = [pair]
                # On the way back it is the new one that may be too large to be read.
                for side in ALL_SIDES if run.entry.phase == "reverting" else ALL_SIDES[:1]:
                    readable = [p for batch in key_batches(run, family, side, readable) for p in batch]
                lasting = any(d.verdict == "unreadable" for d in judge_keys(run, family, readable)) or not readable
            else:
                members = read_old(run, family, pair, [member])
                lasting = any(d.verdict == "unreadable" for d in judge_members(run, family, pair, members))
            if not lasting:
                run.quarantine.release(pair, member)
        run.tick()


def _step(run: Run, family: Family, side: Side, outcome: Outcome) -> Step:
    if side == "old":
        return old_members(run, family, outcome) if family.by_member else old_keys(run, family, outcome)
    return new_members(run, family, outcome) if family.by_member else new_keys(run, family, outcome)
