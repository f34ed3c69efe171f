"""One page of a walk, with reading, mapping and writing overlapped; of collections, several at a time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol, TypeVar

from migrator.client import LOST, Lanes, Reply, Work
from migrator.engine.run import Run
from migrator.engine.walk import NodeRestartedError, Progress, Visit
from migrator.moves.family import Family, Pair, Side
from migrator.scripts import script

COUNT = 1000  # members a page, where the way is short
_LEAST = 100
WIDTH = 8  # collections at a time
Left = list[tuple[Pair, int]]  # collections that are to be done the other way, each with the cursor to begin at
Count = Callable[[], int]  # members to ask for in the next page
Works = Callable[[Lanes, float], Iterable[Work]]  # for lanes, and the seconds of a round trip
T = TypeVar("T")
_PER_SECOND = 500_000  # members that are read in one second, about
_FIELDS_WITH_TTL = re.compile(rb"(?:subexpiry|keys_with_volatile_items)=(\d+)")


class Collection(Protocol):
    """One collection on its way. `cursor`: from where all is to be done again if the connection is lost."""

    pair: Pair
    cursor: int
    done: bool

    def work(self, lanes: Lanes, count: Count) -> Work: ...


def overlapped(
    run: Run, visit: Visit, works: Works, told: list[T], *names: str, lanes: int = 1, width: int = 1, each: int = 1
) -> Iterator[T]:
    """Carries works out and passes on what they put in `told`; a lost connection ends it. `names`: the scripts they
    call; `width` and `each` are those of `Lanes.run`. Raises NodeRestartedError if the node is no longer the process
    whose page this is."""
    with suppress(*LOST), Lanes(visit.node, lanes) as open_lanes:
        for _ in open_lanes.run(works(open_lanes, pinned(run, visit, open_lanes, *names)), width, each):
            yield from told
            told.clear()
    yield from told
    told.clear()


def carry(run: Run, visit: Visit, all_: Sequence[Collection], told: list[Progress]) -> Generator[Progress, None, Left]:
    """Carries all out and passes on what they tell; returns what is to be done the other way."""

    def works(lanes: Lanes, seconds: float) -> Iterator[Work]:
        return (one.work(lanes, counting(run, seconds)) for one in all_)

    yield from overlapped(run, visit, works, told, width=WIDTH)
    return undone(all_)


def undone(all_: Sequence[Collection]) -> Left:
    """Those that are to be done the other way."""
    return [(one.pair, one.cursor) for one in all_ if not one.done]


def starts(visit: Visit, pairs: Sequence[Pair], side: Side) -> Left:
    """Each with the cursor to begin at: where the visit starts, for the one it starts in."""
    names = [pair.old if side == "old" else pair.new for pair in pairs]
    return [(p, visit.start.inner if n == visit.start.key else 0) for p, n in zip(pairs, names, strict=True)]


def pinned(run: Run, visit: Visit, lanes: Lanes, *names: str) -> float:
    """Makes sure that lanes lead to the process whose page this is, and that it knows these scripts; returns the
    seconds of that round trip. Raises NodeRestartedError."""
    begun = time.monotonic()
    answers = lanes.ask(("INFO", "server"), *(("SCRIPT", "LOAD", script(name).text) for name in names))
    seconds = time.monotonic() - begun
    if any(run.client.process(info) != visit.run_id for info, *_ in answers):
        raise NodeRestartedError
    return seconds


class Ability(NamedTuple):
    """What a server can do."""

    transact: bool  # without MULTI what follows it would be carried out at once
    tell_expiry: bool  # exactly, in ms, which is so from Redis 7


def ability(lanes: Lanes, key: bytes) -> Ability:
    """Asks on every lane, and of any key.

    Whoever had the connection before may have left it watching something that was written to since.
    """
    answers = lanes.ask(("UNWATCH",), ("MULTI",), ("EXEC",), ("PEXPIRETIME", key))
    return Ability(
        all(answer[:3] == [b"OK", b"OK", []] for answer in answers),
        all(isinstance(answer[3], int) for answer in answers),
    )


def counting(run: Run, seconds: float) -> Count:
    """Members to ask for in the next page, each time anew. `seconds`: of a round trip."""
    return lambda: page_count(run, seconds)


def page_count(run: Run, seconds: float) -> int:
    """Members a page: as many as a batch, or more where the way is long, so that the next one is there when this one
    is mapped. `seconds`: of a round trip."""
    return min(max(run.at_once(COUNT, _LEAST), int(seconds * _PER_SECOND)), 5 * COUNT)


def fields_never_expire(run: Run, family: Family, visit: Visit) -> bool:
    """Whether no old field has a TTL of its own: no hash of this server has one, or none could (before Redis 7.4)."""
    if family.kinds["old"] != "hash":
        return True
    (info,) = run.client.on_node(visit.node, ("INFO", "keyspace"))
    return no_field_expires(info)


def no_field_expires(info: Reply) -> bool:
    """The same, of what INFO keyspace says."""
    counts = _FIELDS_WITH_TTL.findall(info) if isinstance(info, bytes) else []
    return bool(counts) and not any(map(int, counts))
