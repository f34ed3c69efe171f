"""Collections of one page of a walk, several at a time, with reading, mapping and writing overlapped."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Protocol

from migrator.client import LOST, Lanes, Work
from migrator.engine.run import Run
from migrator.engine.walk import NodeRestartedError, Progress, Visit
from migrator.moves.family import Family, Pair
from migrator.scripts import script

COUNT = 1000  # members a page
WIDTH = 8  # collections at a time
Left = list[tuple[Pair, int]]  # collections that are to be done the other way, each with the cursor to begin at
_PER_SECOND = 500_000  # members that are read in one second, about
_FIELDS_WITH_TTL = re.compile(rb"(?:subexpiry|keys_with_volatile_items)=(\d+)")


class Collection(Protocol):
    """One collection on its way. `cursor`: from where all is to be done again if the connection is lost."""

    pair: Pair
    cursor: int
    done: bool

    def work(self, lanes: Lanes, count: int) -> Work: ...


def carry(
    run: Run, visit: Visit, all_: Sequence[Collection], told: list[Progress], left: Left, *names: str
) -> Iterator[Progress]:
    """Carries all out and passes on what they tell; the rest is put in `left`. `names`: the scripts they call.

    Raises NodeRestartedError if the node is no longer the process whose page this is.
    """
    with suppress(*LOST), Lanes(visit.node, 1) as lanes:
        count = page_count(pinned(run, visit, lanes, *names))
        for _ in lanes.run((one.work(lanes, count) for one in all_), WIDTH):
            yield from told
            told.clear()
    yield from told
    told.clear()
    left += [(one.pair, one.cursor) for one in all_ if not one.done]


def starts(visit: Visit, pairs: Sequence[Pair], key: str) -> Left:
    """Each with the cursor to begin at: where the visit starts, for the one it starts in. `key`: "old" or "new"."""
    return [(pair, visit.start.inner if getattr(pair, key) == visit.start.key else 0) for pair in pairs]


def pinned(run: Run, visit: Visit, lanes: Lanes, *names: str) -> float:
    """Makes sure that lanes lead to the process whose page this is, and that it knows these scripts; returns the
    seconds of a round trip. Raises NodeRestartedError."""
    for _, info, *_ in lanes.ask(("PING",), ("INFO", "server"), *(("SCRIPT", "LOAD", script(n).text) for n in names)):
        if run.client.process(info) != visit.run_id:
            raise NodeRestartedError
    begun = time.monotonic()
    lanes.ask(("PING",))
    return time.monotonic() - begun


def page_count(seconds: float) -> int:
    """Members a page: more where the way is long, so that the next one is there when this one is mapped."""
    return min(max(COUNT, int(seconds * _PER_SECOND)), 5 * COUNT)


def fields_never_expire(run: Run, family: Family, visit: Visit) -> bool:
    """Whether no old field has a TTL of its own: no hash of this server has one, or none could (before Redis 7.4)."""
    if family.kinds["old"] != "hash":
        return True
    (info,) = run.client.on_node(visit.node, ("INFO", "keyspace"))
    counts = _FIELDS_WITH_TTL.findall(info) if isinstance(info, bytes) else []
    return bool(counts) and not any(map(int, counts))
