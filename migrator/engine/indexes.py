"""Sorted sets that index records: what their members should be, and the repair on the operator's word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from migrator.client import Arg, Command
from migrator.engine.backfill import PAGE_COLLECTIONS, PAGE_KEYS
from migrator.engine.batches import key_batches
from migrator.engine.run import Run
from migrator.engine.walk import Progress, Visit, Walk
from migrator.errors import Unmappable
from migrator.ledger.lease import server_ms
from migrator.models import IndexRepair, show
from migrator.moves import NOW, Index, KeyMove
from migrator.moves.family import Family, Pair
from migrator.moves.values import Value, ask_words, from_reply, read_each, to_items
from migrator.phases.markers import refusal
from migrator.records.scores import format_score, parse_score
from migrator.scripts import script

_ROUNDS = 5  # of one membership whose record is being written meanwhile


@dataclass(frozen=True, slots=True)
class Wrong:
    """A membership that does not follow from its record, whose old value is `value`."""

    pair: Pair
    value: Value
    index: bytes
    member: bytes
    score: bytes | None  # None: it should not be a member; b"now": the time of the repair


@dataclass
class Repairs:
    """The repairs `--repair-indexes` would make at a time, in unix seconds: the first few, and how many there are."""

    now: int = 0
    limit: int = 0
    listed: list[IndexRepair] = field(default_factory=list)
    total: int = 0

    def add(self, found: Sequence[Wrong]) -> None:
        self.total += len(found)
        self.listed += [_repair(wrong, self.now) for wrong in found[: self.limit - len(self.listed)]]


def repairs(run: Run, limit: int) -> Repairs:
    """None yet."""
    return Repairs(server_ms(run.client, run.names) // 1000, limit)


def missing(run: Run, limit: int) -> Repairs:
    """All that `--repair-indexes` would do. Reads only."""
    found = repairs(run, limit)
    for family in run.families:
        if not indexes_of(family):
            continue
        for pairs in _pages(run, family):
            found.add(_find(run, family, pairs))
            run.stop.check()
    return found


def _repair(wrong: Wrong, now: int) -> IndexRepair:
    what = "remove" if wrong.score is None else "add"
    age = None
    if wrong.score not in (None, b"now"):
        age = now - int(parse_score(wrong.score or b"0"))
    return IndexRepair(index=show(wrong.index), member=show(wrong.member), repair=what, age_seconds=age)


def _pages(run: Run, family: Family) -> Iterator[list[Pair]]:
    for keys in run.client.pages(family.old_glob, PAGE_KEYS):
        pairs = [pair for key in keys if (pair := family.from_old(key)) is not None]
        yield from key_batches(run, family, "old", pairs)


def repair(run: Run) -> int:
    """Repairs every index from the old shape, which is the truth; returns how many memberships were changed."""
    total = 0
    for number, family in enumerate(run.families):
        if not indexes_of(family):
            continue

        def step(visit: Visit, family: Family = family) -> Iterator[Progress]:
            pairs = [pair for key in visit.keys if (pair := family.from_old(key)) is not None]
            for batch in key_batches(run, family, "old", pairs):
                yield Progress({"repaired": _mend(run, family, _find(run, family, batch))})

        counts = Walk(run, f"index-{number}", family.old_glob, step, count=PAGE_KEYS, resume=False).all()
        total += counts["repaired"]
    run.ledger.note(run.lease, run.id, "indexes repaired", f"{total} memberships")
    return total


def has_any(run: Run) -> bool:
    return any(indexes_of(family) for family in run.families)


def indexes_of(family: Family) -> tuple[Index, ...]:  # type: ignore[type-arg]
    return family.move.indexes if isinstance(family.move, KeyMove) else ()


def _find(run: Run, family: Family, pairs: Sequence[Pair]) -> list[Wrong]:
    return wrong_of(run, family, _map(run, family, pairs))


def _map(run: Run, family: Family, pairs: Sequence[Pair]) -> list[tuple[Pair, Value, Value]]:
    """Records in both shapes, as `wrong_of` takes them; without those that are gone or cannot be mapped."""
    kind = family.kinds["old"]
    replies = read_each(run.client, kind, [pair.old for pair in pairs])
    mapped: list[tuple[Pair, Value, Value]] = []
    for pair, reply in zip(pairs, replies, strict=True):
        if isinstance(reply, Exception) or not reply:
            continue
        value = from_reply(kind, reply)
        with suppress(Unmappable):
            mapped.append((pair, value, family.map_key(pair, value)[0]))
    return mapped


def wrong_of(run: Run, family: Family, mapped: Sequence[tuple[Pair, Value, Value]]) -> list[Wrong]:
    """What is wrong of the memberships of records, given in both shapes: the old value and what it maps to."""
    found: list[Wrong] = []
    for index in indexes_of(family) if mapped else ():
        name = index.keys.format({})
        wanted: list[Wrong] = []
        for pair, value, new in mapped:
            try:
                member, score = family.membership(index, pair, new)
            except Unmappable as error:
                run.note(f"{show(name)}: memberships that cannot be said are left as they are ({error.reason})")
                continue
            text = None if score is None else b"now" if score is NOW else format_score(score)
            wanted.append(Wrong(pair, value, name, member, text))
        if not wanted:
            continue
        scores = run.client.one(name, *ask_words("zset", name, [one.member for one in wanted]))
        found += [one for one, has in zip(wanted, scores, strict=True) if (has is None) != (one.score is None)]
    return found


def _mend(run: Run, family: Family, found: Sequence[Wrong]) -> int:
    """In one script where record and index share a slot; across slots, looked at again after the change."""
    done = 0
    for start in range(0, len(found), PAGE_COLLECTIONS):
        batch = found[start : start + PAGE_COLLECTIONS]
        near = [w for w in batch if run.client.slot(w.index) == run.client.slot(w.pair.old)]
        replies = run.client.run([_call(run, family, w) for w in near])
        done += sum(refusal(reply, run.id) == 1 for reply in replies)
        done += sum(_mend_far(run, family, w) for w in batch if w not in near)
        run.tick()
    return done


def _call(run: Run, family: Family, wrong: Wrong) -> Command:
    guard = run.guard("expanded", "backfilled", "verified").args()
    what, score = ("remove", b"") if wrong.score is None else ("add", wrong.score)
    kind = family.kinds["old"]
    items = to_items(kind, wrong.value)
    args: list[Arg] = [*guard, kind, wrong.member, what, score, len(items), *items]
    return Command.eval(script("index"), [run.markers.key_for(wrong.pair.old), wrong.pair.old, wrong.index], args)


def _mend_far(run: Run, family: Family, wrong: Wrong) -> bool:
    """Looked at before each change and after it, until the membership is what follows from the record: what was removed
    is added again if it is true by now, and what was added is removed if it no longer is."""
    changed = False
    now = _again(run, family, wrong, added=False)
    for _ in range(_ROUNDS):
        if now is None:
            break
        changed = _change(run, now) != changed
        now = _again(run, family, now, added=changed and now.score is not None)
    return changed


def _again(run: Run, family: Family, wrong: Wrong, *, added: bool) -> Wrong | None:
    """What is wrong of the same membership by now. `added`: it was added here, for a record that may be gone since."""
    mapped = _map(run, family, [wrong.pair])
    if mapped:
        return next((w for w in wrong_of(run, family, mapped) if w.index == wrong.index), None)
    return replace(wrong, score=None) if added else None


def _change(run: Run, wrong: Wrong) -> bool:
    """ZADD NX or ZREM; whether that changed anything."""
    if wrong.score is None:
        return bool(run.client.one(wrong.index, "ZREM", wrong.index, wrong.member))
    score = b"%d" % (server_ms(run.client, run.names) // 1000) if wrong.score == b"now" else wrong.score
    return bool(run.client.one(wrong.index, "ZADD", wrong.index, "NX", score, wrong.member))
