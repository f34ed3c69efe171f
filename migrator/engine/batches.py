"""What is read or sent in one go: batches bounded by number and by weight, and of one slot where a script has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from migrator.client import Client, Reply, ResponseError
from migrator.engine.run import Run
from migrator.keys import Kind
from migrator.moves.family import Family, Member, Pair, Side
from migrator.moves.values import MAX_ELEMENTS, MemberValue, count_each, members_from_page, weigh_each

MAX_BYTES = 16 * 1024 * 1024  # one key of a KeyMove; a larger one has to move by member
BATCH_BYTES = 2 * 1024 * 1024
BATCH_RECORDS = 200
LEAST_RECORDS = 10
_SAMPLES = 100  # members by which a server tells what a collection takes
_UNKNOWN = BATCH_BYTES / 10  # bytes of a member, until the first page is seen, where it may not be asked
_LOOKED_AT = 128  # items of a page, by which the next one is cut

T = TypeVar("T")


def batched(weighed: Iterable[tuple[T, int]], most: Callable[[], float] = lambda: float("inf")) -> Iterator[list[T]]:
    """Items with their weights in bytes, in batches of BATCH_BYTES or of a single item. Before each, `most` is asked
    how many it may hold."""
    batch: list[T] = []
    weight, number = 0, most()
    for item, size in weighed:
        if batch and (len(batch) >= number or weight + size > BATCH_BYTES):
            yield batch
            batch, weight, number = [], 0, most()
        batch.append(item)
        weight += size
    if batch:
        yield batch


def member_batches(members: Iterable[Member], most: Callable[[], float]) -> Iterator[list[Member]]:
    """Members in batches bounded by number, as `most` says, and by bytes."""
    return batched(((member, member_weight(*member)) for member in members), most)


def page_batches(kind: Kind, flat: Sequence[bytes], most: Callable[[], int]) -> Iterator[list[Member]]:
    """The same of a page; COUNT is ignored on small encodings, so it may have many. Of small ones none is weighed."""
    members = members_from_page(kind, flat)
    if 2 * sum(map(len, flat)) > BATCH_BYTES:
        yield from member_batches(members, most)
        return
    start = 0
    while start < len(members):
        number = most()
        yield members[start : start + number]
        start += number


def member_weight(name: bytes, value: MemberValue) -> int:
    """Bytes that a script is given of a member in both shapes, about."""
    return 2 * (len(name) + len(value) if isinstance(value, bytes) else len(name))


class PageSize:
    """How many members of a collection to ask for, so that a page has about BATCH_BYTES. `each`: bytes of a member,
    until a page was seen."""

    def __init__(self, kind: Kind, each: float) -> None:
        self._items, self._each = 1 if kind == "set" else 2, each

    def within(self, most: int, room: int = 0) -> int:
        """As many as fit into `room` bytes, else BATCH_BYTES."""
        return max(1, min(most, int((room or BATCH_BYTES) / self._each)))

    def saw(self, flat: Sequence[bytes]) -> None:
        """A page. Not every item is looked at; every so many, an odd number, so that it is names and values in turn."""
        some = flat[:: len(flat) // _LOOKED_AT * 2 + 1]
        if some:
            self._each = max(1.0, self._items * sum(map(len, some)) / len(some))


def page_sizes(client: Client, kind: Kind, names: Sequence[bytes]) -> list[PageSize]:
    """Of each collection, as far as the server tells before it is read."""
    used = client.each("MEMORY USAGE", names, "SAMPLES", _SAMPLES)
    large = [n for n, size in zip(names, used, strict=True) if isinstance(size, int) and size > BATCH_BYTES]
    counts = dict(zip(large, count_each(client, kind, large), strict=True))
    return [PageSize(kind, _each(size, counts.get(name))) for name, size in zip(names, used, strict=True)]


def _each(used: Reply, count: Reply) -> float:
    if isinstance(used, ResponseError):
        return _UNKNOWN
    return used / count if isinstance(count, int) and count else 1.0


def by_slot(client: Client, items: Iterable[T], name: Callable[[T], bytes]) -> dict[int, list[T]]:
    """A script may touch keys of one slot only. In the order of their first item; `name` tells the key of one."""
    groups: dict[int, list[T]] = {}
    for item in items:
        groups.setdefault(client.slot(name(item)), []).append(item)
    return groups


def key_batches(
    run: Run,
    family: Family,
    side: Side,
    pairs: Sequence[Pair],
    too_large: list[Pair] | None = None,
    beside: Sequence[int] = (),
) -> Iterator[list[Pair]]:
    """Pairs in batches bounded by number and by the bytes and elements of the side that is read; `beside` is what their
    other sides count, where those are known.

    A key of more than 16 MB or 20,000 elements is never read whole: it is left out, and put in `too_large` where that
    is given.
    """
    weighed = _weighed(run, family, side, pairs)
    if too_large is not None:
        too_large += [pair for pair, weight in weighed if weight > MAX_BYTES]
    others = beside or [0] * len(pairs)
    small = [(p, weight + other) for (p, weight), other in zip(weighed, others, strict=True) if weight <= MAX_BYTES]
    return batched(small, lambda: run.at_once(BATCH_RECORDS, LEAST_RECORDS))


def grown_apart(run: Run, family: Family, pairs: Sequence[Pair]) -> tuple[list[Pair], list[int], list[Pair]]:
    """The pairs whose new records may be read whole, what those count, and the pairs whose are too large for that."""
    weighed = _weighed(run, family, "new", pairs)
    small = [(pair, weight) for pair, weight in weighed if weight <= MAX_BYTES]
    grown = [pair for pair, weight in weighed if weight > MAX_BYTES]
    return [pair for pair, _ in small], [weight for _, weight in small], grown


def _weighed(run: Run, family: Family, side: Side, pairs: Sequence[Pair]) -> list[tuple[Pair, int]]:
    names = [pair.old if side == "old" else pair.new for pair in pairs]
    return [*zip(pairs, sizes(run.client, family.kinds[side], names), strict=True)]


def whole() -> tuple[int, int]:
    """How many elements and bytes the script that reads a key whole may find in it."""
    return MAX_ELEMENTS, MAX_BYTES


def sizes(client: Client, kind: Kind, names: Sequence[bytes]) -> list[int]:
    """What each key counts, in bytes; 0 for what is gone or of another type. One of too many elements is too large."""
    return [
        MAX_BYTES + 1 if elements > MAX_ELEMENTS else weight for elements, weight in weigh_each(client, kind, names)
    ]
