"""Which share of a snapshot a record is tried in, so that all shares take about as long."""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

from migrator.errors import UsageError
from migrator.models import Frozen
from migrator.moves import KeyMove
from migrator.moves.family import Family, OneSlot
from migrator.moves.loader import Modules
from migrator.names import CLAIMS, Names
from migrator.snapshot.files import SnapshotFile
from migrator.snapshot.ndjson import head

# Bytes that each record weighs beside its own (measured, there and back: 80 µs for a member with a line's 45 bytes,
# 980 µs for a job with 1,270).
_RECORD = 60
_LONG = 16 << 10  # bytes of a line whose key is looked at: of shorter ones the hash divides enough
_KEPT = 1000  # keys with such lines that are remembered, the heaviest


class Division(Frozen):
    """How a snapshot is divided. `large`: the share of each record that is too large to be left to its hash, by its
    first name in hex. `ends`: where, from 0 to 1, the hashes of each share end."""

    ends: tuple[float, ...]
    large: dict[str, int]

    @property
    def number(self) -> int:
        """Of shares."""
        return len(self.ends)


def evenly(number: int) -> Division:
    return _division([1.0] * number, {})


def _division(spare: Sequence[float], large: dict[str, int]) -> Division:
    """`spare`: how much of what is left to its hash each share is to get, in any unit."""
    ends = [min(1.0, end / sum(spare)) for end in accumulate(spare)]
    return Division(ends=(*ends[:-1], 1.0), large=large)


class Shares:
    """Which share a key belongs to: both shapes of a record to one, indexes and the ledger to all."""

    def __init__(self, modules: Modules, names: Names, division: Division) -> None:
        self._names, self._ends = names, division.ends
        self._large = {bytes.fromhex(key): share for key, share in division.large.items()}
        slots = OneSlot()
        moves = [(module.id, move) for module in modules.all for move in module.migration.moves]
        self._families = [Family(slots, names, id, move) for id, move in moves]
        self._indexes = {
            index.keys.format({}) for _, move in moves if isinstance(move, KeyMove) for index in move.indexes
        }

    def of(self, key: bytes) -> range:
        if self.everywhere(key):
            return range(len(self._ends))
        root = self.root(key)
        share = self._large.get(root)
        if share is None:
            share = bisect_right(self._ends, zlib.crc32(root) / 2**32)
        return range(share, share + 1)

    def everywhere(self, key: bytes) -> bool:
        """What is staged or retired is not: it is somebody's record."""
        return key == CLAIMS or bool(self._names.role(key)) or key in self._indexes

    def root(self, key: bytes) -> bytes:
        """The first name of a record: that of the old shape, and of the migration before where that one made it."""
        if (beside := self._names.stands_beside(key)) is not None:
            _, key = beside
        for family in reversed(self._families):
            if not family.same_name and (pair := family.from_new(key)) is not None:
                key = pair.old
        return key


def divided(
    path: Path, modules: Modules, names: Names, number: int, tick: Callable[[], None] = lambda: None
) -> Division:
    """So many shares that take about as long each. Goes through the file once, its long lines apart without a look at
    what is in them. Raises UsageError for a file that cannot be read; a damaged line is found by those who read it."""
    total, large = _weighed(path, Shares(modules, names, evenly(number)), tick)
    loads, share_of = [0] * number, dict[str, int]()
    for root, weight in large.most_common():
        if weight * 20 * number < total:
            break
        share = loads.index(min(loads))
        loads[share] += weight
        share_of[root.hex()] = share
    spare = [max(0.0, total / number - load) for load in loads]
    return _division(spare if any(spare) else [1.0] * number, share_of)


def _weighed(path: Path, shares: Shares, tick: Callable[[], None]) -> tuple[int, Counter[bytes]]:
    """What all of it takes, in bytes, and what of that the records with long lines do."""
    total, by_root = 0, Counter[bytes]()
    for raw in SnapshotFile(path).raw_lines():
        tick()
        weight = len(raw) + _RECORD
        if len(raw) > _LONG:
            with suppress(UsageError):
                key = head(raw, "").key
                if shares.everywhere(key):
                    continue
                weight += _RECORD * raw.count(b"],[")
                by_root[shares.root(key)] += weight
            if len(by_root) > 10 * _KEPT:
                by_root = Counter(dict(by_root.most_common(_KEPT)))
        total += weight
    return total, by_root
