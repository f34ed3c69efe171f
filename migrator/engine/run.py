"""One migration under way: everything a stage needs, passed from hand to hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from migrator.client import Client, Node
from migrator.engine.census import Census, Counted
from migrator.engine.load import PRODUCTION, Limits
from migrator.engine.observe import Observer, Rate, Stop
from migrator.engine.quarantine import Quarantine
from migrator.engine.throttle import Throttle
from migrator.keys import slot_of
from migrator.ledger import Entry, Intent, Lease, Ledger
from migrator.ledger.lease import Words, server_ms
from migrator.moves.family import Family
from migrator.moves.loader import Module
from migrator.names import Names
from migrator.phases import Guard, Marker, Markers, Phase, transition

# Steps that raise the epoch of a phase: what they end.
_ENDED: dict[Phase, str] = {"pending": "cleaned", "contracted": "swept", "closed": "discarded"}


@dataclass(frozen=True)
class Options:
    """What the operator allowed. `backup` is the directory for what is removed or replaced; `limits`: see `load`."""

    yes: bool = False
    backup: Path | None = None
    repair_indexes: bool = False
    limits: Limits = PRODUCTION


@dataclass
class Run:
    """One migration with the lease held. `entry` is the ledger's, always as it was last written."""

    client: Client
    names: Names
    ledger: Ledger
    lease: Lease
    module: Module
    entry: Entry
    observer: Observer
    stop: Stop
    rate: Rate = field(default_factory=Rate)
    options: Options = Options()

    def __post_init__(self) -> None:
        self.id = self.module.id
        self.markers = Markers(self.client, self.names, self.id, slots_of(self.client, self.module))
        self.markers.tick = self.tick
        self.families = [Family(self.client, self.names, self.id, move) for move in self.module.migration.moves]
        self.quarantine = Quarantine(self.ledger, self.id)
        self.census = Census(self.ledger, self.id)
        self.throttle = Throttle(self.client, self.options.limits, self._paused)
        self.notes: list[str] = []
        self.seen: dict[int, Marker | None] | None = None  # the markers, if they were read under this lease

    @property
    def writes(self) -> bool:
        """Whether this run holds the lease; without it, it only looks."""
        return self.lease.fence.number > 0

    def tick(self) -> None:
        """Between batches: keeps the lease and hears whether we shall stop."""
        self.lease.keep()
        self.stop.check()

    def at_once(self, most: int, least: int = 1) -> int:
        """Records a batch: what the rate and the server allow."""
        return self.rate.at_once(self.throttle.at_once(most, least))

    def spent(self, node: Node, records: int) -> None:
        """After a batch: waits where the rate or the server asks for it, with the lease kept. Raises
        StoppedByLoadError."""
        self.rate.spend(records, self.tick)
        self.throttle.between(node, records, self.tick)

    def _paused(self, why: str) -> None:
        """Says in the log, and to `status`, why nothing is done; nothing once it goes on."""
        self.observer.say(f"{self.id}: paused: {why}" if why else f"{self.id}: going on")
        self.lease.note_pause(f"{self.id}: {why}" if why else "")

    def guard(self, *phases: Phase) -> Guard:
        return Guard(phases or (self.entry.phase,), self.entry.epoch, self.lease.fence)

    def put(self, what: str = "", detail: str = "", also: Iterable[Words] = (), **changes: object) -> None:
        """Writes the entry with these changes, and a line of history."""
        changed = self.entry.model_copy(update=changes)
        self.entry = self.ledger.put(self.lease, changed, what, detail, [*also, *self.book()])

    def count(self, family: Family, old: int, new: int) -> None:
        """Notes for `status` how many records a walk saw in each shape."""
        now = server_ms(self.client, self.names)
        self.census.counted(family.move.source.template, Counted(self.entry.epoch, old, new, now))

    def book(self) -> list[Words]:
        """What writes down what was found since the last time: the quarantine, and the census."""
        return [*self.quarantine.words(), *self.census.words()]

    def change(self, target: Phase, *, detail: str = "", **changes: str | int | bool | None) -> None:
        """Changes the phase: the intent into the ledger, every marker, then the ledger with these changes."""
        step = transition(self.entry.phase, target)
        epoch = self.entry.epoch if step.keeps_epoch else self.entry.epoch + 1
        after = self.entry.model_copy(update={"phase": target, **changes})
        intent = Intent(phase=target, epoch=epoch, checksum=after.checksum, changes=changes)
        self.put(intent=intent)
        self.markers.change(self.lease.fence, (self.entry.phase, self.entry.epoch), target, intent.checksum)
        self.settle(intent, detail=detail)

    def settle(self, intent: Intent, *, what: str = "", detail: str = "") -> None:
        """All markers stand where the intent wants them: makes that durable and says so in the ledger.

        Evidence and checkpoints of the old epoch die with it.
        """
        changes: dict[str, object] = dict(intent.changes)
        also: list[Words] = []
        if intent.epoch != self.entry.epoch:
            self.make_durable(intent.phase, intent.epoch, intent.checksum)
            changes["comparison"] = None
            also = self.ledger.forget_words(self.id)
        step = f"{self.entry.phase} -> {intent.phase}"
        if self.entry.phase == intent.phase:
            step = what or _ENDED.get(intent.phase, step)
        self.put(step, detail, also, phase=intent.phase, epoch=intent.epoch, intent=None, **changes)
        self.observer.say(f"{self.id}: {intent.phase}")

    def make_durable(self, phase: Phase, epoch: int, checksum: str) -> None:
        """Before anything relies on what was written, least of all a removal: the replicas have it."""
        self._unsaid(self.lease.durable(self.tick))
        self._unsaid(self.markers.durable(self.lease.fence, (phase, epoch), checksum))

    def _unsaid(self, missing: str) -> None:
        if missing:
            self.note(missing)

    def note(self, text: str) -> None:
        """Says something that the result repeats, once."""
        if text not in self.notes:
            self.notes.append(text)
            self.observer.say(f"{self.id}: {text}")


def slots_of(client: Client, module: Module) -> list[int]:
    """The slots the keys of a migration can be in: one, where a hash tag stands in every template; else all."""
    if not client.cluster:
        return [0]
    tags = [move.source.literal_tag() for move in module.migration.moves]
    if any(tag is None for tag in tags):
        return list(client.slots())
    return sorted({slot_of(tag) for tag in tags if tag is not None})
