"""The backfill: every old record gets its new shape, and the accounts close."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from migrator.client import Arg
from migrator.engine import windows
from migrator.engine.batches import PageSize, key_batches, page_batches, page_sizes
from migrator.engine.copy import FORWARD, copy_keys, foreign_type, reject_too_large
from migrator.engine.copy_members import copy_members
from migrator.engine.run import Run
from migrator.engine.transactions import Transactions
from migrator.engine.walk import Place, Progress, Step, Visit, Walk, inner_pages
from migrator.errors import MigratorError
from migrator.keys import Kind
from migrator.ledger import Tally
from migrator.moves.family import Family, Pair
from migrator.moves.values import scan_words

PAGE_KEYS = 1000
PAGE_STRINGS = 4000  # of a backfill: between two pages nothing is under way; SCAN takes 1 to 2 ms for so many
PAGE_COLLECTIONS = 400
PAGE_MEMBERS = 500
LEAST_MEMBERS = 50


def backfill(run: Run) -> Tally:
    """Copies every record, resuming where an earlier run stopped. Raises MigratorError if the accounts do not close."""
    total = Tally()
    for number, family in enumerate(run.families):
        count = PAGE_COLLECTIONS if family.by_member else PAGE_STRINGS
        run.observer.begin(f"{run.id}: backfill", None)
        counts = Walk(run, f"copy-{number}", family.old_glob, step_of(run, family), count=count).all()
        run.observer.end()
        if not family.by_member:
            copied = counts["moved"] + counts["unchanged"]
            run.count(family, copied + counts["quarantined"], copied)
        total += Tally(**counts)
    if not total.closed:
        raise MigratorError(f"{run.id}: the accounts do not close: {total!r}", next="please report this as a bug")
    return total


def step_of(run: Run, family: Family) -> Step:
    """Copies a page of a walk: the quick way where it is open, and by comparing whatever that leaves."""
    return _members_step(run, family) if family.by_member else _keys_step(run, family)


def parse_old(family: Family, keys: list[bytes]) -> tuple[list[Pair], Counter[str]]:
    """The records of a page, and how many keys are not of the family."""
    pairs = [pair for key in keys if (pair := family.from_old(key)) is not None]
    return pairs, Counter(ignored=len(keys) - len(pairs))


def _keys_step(run: Run, family: Family) -> Step:
    quick = Transactions(run, family)

    def step(visit: Visit) -> Iterator[Progress]:
        pairs, ignored = parse_old(family, visit.keys)
        yield Progress(ignored)
        pairs = yield from quick.copy(visit, pairs)
        too_large: list[Pair] = []
        for batch in key_batches(run, family, "old", pairs, too_large):
            yield Progress(copy_keys(run, family, FORWARD, batch))
        if too_large:
            yield Progress(reject_too_large(run, too_large))

    return step


def _members_step(run: Run, family: Family) -> Step:
    def step(visit: Visit) -> Iterator[Progress]:
        pairs, ignored = parse_old(family, visit.keys)
        run.census.saw(pair.old for pair in pairs)
        yield Progress(ignored)
        left = yield from windows.copy_collections(run, family, visit, pairs)
        sizes = page_sizes(run.client, family.kinds["old"], [pair.old for pair, _ in left])
        for (pair, cursor), size in zip(left, sizes, strict=True):
            yield from copy_collection(run, family, replace(visit, start=Place(pair.old, cursor)), pair, size)

    return step


def copy_collection(run: Run, family: Family, visit: Visit, pair: Pair, size: PageSize) -> Iterator[Progress]:
    """Member by member, by compare-and-set."""
    kind = family.kinds["old"]
    is_type = run.client.one(pair.old, "TYPE", pair.old).decode()
    if is_type not in (kind, "none"):
        run.quarantine.reject(pair, None, foreign_type(is_type), is_type)
        yield Progress({"scanned": 1, "quarantined": 1}, Place(pair.old))
        return
    run.quarantine.release(pair)
    for cursor, flat in inner_pages(run.client, visit, pair.old, scan(kind, pair.old, size)):
        size.saw(flat)
        for batch in page_batches(kind, flat, lambda: run.at_once(PAGE_MEMBERS, LEAST_MEMBERS)):
            yield Progress(copy_members(run, family, FORWARD, pair, batch))
        yield Progress({}, Place(pair.old, cursor))


def scan(kind: Kind, key: bytes, size: PageSize) -> Callable[[int], tuple[Arg, ...]]:
    """What asks for the page of a collection at a cursor."""
    return lambda cursor: scan_words(kind, key, cursor, size.within(PAGE_MEMBERS))
