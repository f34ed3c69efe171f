"""What walks saw of a migration's families, for `status`: so that it need not look at every key of a large database."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import msgspec

from migrator.ledger import Ledger
from migrator.ledger.lease import Words

MOST = 100_000  # collections that are remembered
_AT_ONCE = 5000
_COLLECTION, _TEMPLATE = b"c:", b"t:"


class Counted(msgspec.Struct, frozen=True):
    """Records of one template in each shape, as a walk counted them in that epoch. `at` is unix ms."""

    epoch: int
    old: int
    new: int
    at: int


class Census:
    """Of one migration. What is new is kept until `words()` takes it along with a checkpoint."""

    def __init__(self, ledger: Ledger, id: str) -> None:
        self._ledger, self._id = ledger, id
        self._known: set[bytes] = set()
        self._fresh: dict[bytes, bytes] = {}

    def saw(self, collections: Iterable[bytes]) -> None:
        """Collections, by their source key."""
        for name in collections:
            if name not in self._known and len(self._known) < MOST:
                self._known.add(name)
                self._fresh[_COLLECTION + name] = b""

    def counted(self, template: str, counted: Counted) -> None:
        self._fresh[_TEMPLATE + template.encode()] = msgspec.json.encode(counted)

    def words(self) -> list[Words]:
        """What writes it down, each once; the rest the next time, for all of it goes in one script."""
        fresh = dict(islice(self._fresh.items(), _AT_ONCE))
        for name in fresh:
            del self._fresh[name]
        return self._ledger.census_words(self._id, fresh)

    def read(self) -> tuple[list[bytes], dict[str, Counted]]:
        """The collections by their source key, and the counts by template."""
        found = self._ledger.census(self._id)
        collections = [name[2:] for name in found if name.startswith(_COLLECTION)]
        counts = {
            name[2:].decode(): msgspec.json.decode(value, type=Counted)
            for name, value in found.items()
            if name.startswith(_TEMPLATE)
        }
        return collections, counts
