"""The ledger's entry of one migration: frozen, written whole, readable by a person with redis-cli."""

from __future__ import annotations

from pydantic import Field

from migrator.models import Frozen
from migrator.phases import Phase


class Tally(Frozen):
    """Closed accounts of a walk: scanned = moved + unchanged + quarantined + vanished, exactly.

    `scanned` counts visits to records whose key parses; `ignored` keys that do not parse stand apart.
    """

    scanned: int = 0
    moved: int = 0
    unchanged: int = 0
    quarantined: int = 0
    vanished: int = 0
    ignored: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(**{name: getattr(self, name) + getattr(other, name) for name in Tally.model_fields})

    @property
    def closed(self) -> bool:
        return self.scanned == self.moved + self.unchanged + self.quarantined + self.vanished


class MoveNames(Frozen):
    """The key templates of one move, so that another migration on the same keys is noticed without its module."""

    source: str
    source_type: str
    target: str
    target_type: str


class Intent(Frozen):
    """The phase change under way, written before the first marker is touched. `changes` come with it to the entry."""

    phase: Phase
    epoch: int
    checksum: str
    changes: dict[str, str | int | bool | None] = Field(default_factory=dict)


class Comparison(Frozen):
    """The evidence of a full comparison. It belongs to one epoch and dies with it. `at` is unix ms."""

    epoch: int
    compared: int
    missing: int
    extra: int
    different: int
    ttl_drift: int
    unreadable: int
    fingerprint: str
    at: int

    @property
    def clean(self) -> bool:
        return not (self.missing or self.extra or self.different or self.ttl_drift or self.unreadable)


class Entry(Frozen):
    """One migration in the ledger. `mapping` is the checksum of the module it was expanded with.

    `cleaning` is set while the new shape is being removed on the way back to `pending`, in `slots_to_clean` alone where
    there are any (numbers with commas); `swept` once contract has removed the old shape. `rolled_back` makes a bare
    apply pass it over. `backup` is the directory the old shape was saved to, `backup_epoch` the epoch of that contract,
    `saved` says that it holds all of it. `discarded` is set once a restore has removed later writes, `restored` once it
    is done. `life` is the epoch it began in and a random word, which every backup of it carries; empty where it is not
    known. `empty_at` is the epoch of an `expanded` that began with no target key there (0: none). Times are unix ms.
    """

    id: str
    phase: Phase = "pending"
    epoch: int = 0
    mapping: str = ""
    intent: Intent | None = None
    moves: tuple[MoveNames, ...] = ()
    swept: bool = False
    cleaning: bool = False
    slots_to_clean: str = ""
    rolled_back: bool = False
    backup: str = ""
    backup_epoch: int = 0
    saved: bool = False
    discarded: bool = False
    restored: bool = False
    adopted: str = ""
    life: str = ""
    empty_at: int = 0
    tally: Tally = Tally()
    comparison: Comparison | None = None
    known_at: int = 0
    expanded_at: int = 0
    changed_at: int = 0

    @property
    def under_way(self) -> bool:
        """From `expanded` to the end of the sweep: the mapping must not change."""
        return self.phase not in ("pending", "contracted") or (self.phase == "contracted" and not self.swept)

    @property
    def checksum(self) -> str:
        """What the markers say of the mapping: nothing in `pending` and after the sweep."""
        return self.mapping if self.under_way else ""
