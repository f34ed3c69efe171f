"""One command's work on one namespace: opened once, with or without the lease."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from migrator.client import Client, Command, checked
from migrator.engine.family import Family
from migrator.engine.observe import Observer, Rate, Silent, Stop
from migrator.engine.run import Options, Run, slots_of
from migrator.errors import DriftError, LedgerBackwardsError, OrderError, RefusedError
from migrator.ledger import Entry, Lease, Ledger, MoveNames, take_lease
from migrator.ledger.lease import Words, server_ms
from migrator.moves.loader import Module, Modules
from migrator.names import Names
from migrator.phases import Fence, Marker, Markers

_SAMPLE = 2000
_ATTEMPTS = 5


class NoLease(Lease):
    """What a command that only reads works with: nothing is written and nothing can be."""

    def __init__(self, client: Client, names: Names) -> None:
        super().__init__(client, names, Fence(0, ""), 0.0)

    def write(self, commands: Sequence[Words]) -> None: ...
    def keep(self) -> None: ...
    def release(self) -> None: ...


@dataclass
class Session:
    """The connection, the modules and the ledger of one command."""

    client: Client
    names: Names
    modules: Modules
    lease_seconds: float = 30.0
    observer: Observer = field(default_factory=Silent)
    stop: Stop = field(default_factory=Stop)
    rate: Rate = field(default_factory=Rate)
    options: Options = Options()

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.client, self.names)

    def entries(self) -> dict[str, Entry]:
        return self.ledger.entries() or {}

    @contextmanager
    def leased(self) -> Iterator[Lease]:
        """The lease, released at the end whatever happens. Raises LeaseHeldError."""
        lease = take_lease(self.client, self.names, self.lease_seconds)
        try:
            yield lease
        finally:
            lease.release()

    def run(self, lease: Lease, module: Module) -> Run:
        """One migration, its fence raised in every slot before the first write."""
        entry = self.entries().get(module.id)
        if entry is None:
            raise RefusedError(f"{module.id} was never applied", next=f"begin with: migrator plan {module.number}")
        run = Run(
            self.client, self.names, self.ledger, lease, module, entry, self.observer,
            self.stop, self.rate, self.options,
        )  # fmt: skip
        for _ in range(_ATTEMPTS):
            highest = run.markers.raise_fence(lease.fence)
            if not highest:
                return run
            # After a failover the lease may have been given a number that a marker has seen: take a higher one.
            raised = take_lease_again(lease, highest + 1)
            lease.fence = raised
        raise LedgerBackwardsError(f"{module.id}: the fence keeps rising: another process takes the lease in turns",
                                   next="see who holds it with: migrator lock show")  # fmt: skip

    def reader(self, module: Module, entry: Entry | None = None) -> Run:
        """One migration, to be read only."""
        return Run(
            self.client, self.names, self.ledger, NoLease(self.client, self.names), module,
            entry or self.entries().get(module.id) or Entry(id=module.id), self.observer, self.stop, self.rate,
            self.options,
        )  # fmt: skip

    def init(self, lease: Lease) -> None:
        """Ledger entries for every module and a marker in every slot, so that adapters may start. Harmless to repeat.

        Raises LedgerBackwardsError where Redis knows more than the ledger, OrderError for a file that came too late.
        """
        found = self.ledger.entries()
        entries = found or {}
        self.check_drift(entries)
        self.check_order(entries)
        if found is None:
            self.check_fresh()
        self.know(lease)
        entries = self.entries()
        for module in self.modules.all:
            self._markers(lease, module, entries[module.id])

    def know(self, lease: Lease) -> None:
        """A ledger entry, in `pending`, for every module that has none."""
        entries, now = self.entries(), server_ms(self.client, self.names)
        for module in self.modules.all:
            if module.id not in entries:
                self.ledger.put(lease, Entry(id=module.id, moves=moves_of(module), known_at=now), "known")

    def _markers(self, lease: Lease, module: Module, entry: Entry) -> None:
        markers = Markers(self.client, self.names, module.id, slots_of(self.client, module))
        markers.tick = lease.keep
        missing = [slot for slot, marker in markers.read().items() if marker is None]
        if missing:
            markers.create(entry.phase, entry.epoch, lease.fence, entry.checksum, missing)

    def check_drift(self, entries: dict[str, Entry]) -> None:
        """Raises DriftError for a module that was edited or is missing while its migration is under way."""
        known = {module.id: module for module in self.modules.all}
        for id, entry in entries.items():
            if not entry.under_way:
                continue
            if id not in known:
                raise DriftError(f"{id} is {entry.phase}, but its file is not in {self.modules.directory}",
                                 next="put the file back as it was")  # fmt: skip
            if entry.mapping and known[id].checksum != entry.mapping:
                raise DriftError(
                    f"{known[id].path} was edited since {id} was expanded: records were mapped by what it was then",
                    next=f"put the file back as it was, or start again: migrator rollback {id[:4]} --to pending --yes",
                )

    def check_order(self, entries: dict[str, Entry]) -> None:
        """Raises OrderError for a module that was unknown when one with a higher number was applied."""
        applied = [id for id, entry in entries.items() if entry.phase != "pending" or entry.expanded_at]
        for module in self.modules.all:
            later = [id for id in applied if id > module.id]
            if module.id not in entries and later:
                raise OrderError(
                    f"{module.id} appeared after {min(later)} was applied",
                    next="give it the next free number",
                )

    def check_fresh(self) -> None:
        """With no ledger: raises LedgerBackwardsError if a marker, or a record in a new shape among random keys, says
        that there was one."""
        drawn = set(random_keys(self.client, _SAMPLE))
        for module in self.modules.all:
            marked = any_marker(self.client, self.names, module)
            if marked is not None:
                raise LedgerBackwardsError(
                    f"there is no ledger, but a marker of {module.id} says {marked.phase}",
                    next="rebuild it with: migrator init --at markers --yes",
                )
            run = self.reader(module, Entry(id=module.id))
            if any(self._new_shape(family, drawn) for family in run.families):
                raise LedgerBackwardsError(
                    f"there is no ledger, but there are keys in the new shape of {module.id}",
                    next=f"if nothing was migrated yet: migrator init {module.number} --at pending --yes; if it was: "
                    f"migrator init {module.number} --at contracted --yes",
                )


    def _new_shape(self, family: Family, keys: set[bytes]) -> bool:
        """Whether any of these keys is a record in the new shape, also under the name both shapes share."""
        mine = [key for key in keys if family.from_old(key) or family.from_new(key)]
        types = self.client.run([Command(key, ("TYPE", key)) for key in mine])
        return any(
            family.kinds["new"] == checked(reply).decode() and (family.same_name or family.from_new(key))
            for key, reply in zip(mine, types, strict=True)
        )


def take_lease_again(lease: Lease, least: int) -> Fence:
    """The same lease with a higher number: released and taken in one step, by its own token."""
    from migrator.ledger.lease import owner_name
    from migrator.scripts import script

    reply = lease.client.eval(
        script("lease_take"), [lease.names.lease], [lease.fence.token, owner_name(), int(lease.seconds * 1000), least]
    )
    return Fence(int(reply[1]), lease.fence.token)


def any_marker(client: Client, names: Names, module: Module) -> Marker | None:
    markers = Markers(client, names, module.id, slots_of(client, module))
    return next((marker for marker in markers.read().values() if marker is not None), None)


def random_keys(client: Client, number: int) -> list[bytes]:
    """So many keys drawn at random over all primaries; fewer where there are fewer."""
    keys: list[bytes] = []
    nodes = client.nodes()
    for node in nodes:
        replies = client.on_node(node, *[("RANDOMKEY",)] * (number // len(nodes)))
        keys += [key for reply in replies if (key := checked(reply)) is not None]
    return keys


def moves_of(module: Module) -> tuple[MoveNames, ...]:
    return tuple(
        MoveNames(
            source=move.source.template, source_type=move.source.kind,
            target=move.target.template, target_type=move.target.kind,
        )
        for move in module.migration.moves
    )  # fmt: skip


__all__ = ["NoLease", "Session", "any_marker", "moves_of", "random_keys"]
