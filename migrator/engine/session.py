"""One command's work on one namespace: opened once, with or without the lease."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from migrator.client import Client, checked
from migrator.engine.guards import moves_of, to_pending
from migrator.engine.observe import Observer, Rate, Silent, Stop
from migrator.engine.run import Options, Run, slots_of
from migrator.errors import DriftError, LeaseHeldError, LedgerBackwardsError, OrderError, RefusedError
from migrator.ledger import Entry, Lease, Ledger, take_lease
from migrator.ledger.lease import Words, server_ms, take_fence
from migrator.moves.family import Family
from migrator.moves.loader import Module, Modules
from migrator.names import Names
from migrator.phases import Fence, FenceTakenError, Marker, Markers

_SAMPLE = 2000
_ATTEMPTS = 5


class NoLease(Lease):
    """What a command that only reads works with: nothing is written and nothing can be."""

    def __init__(self, client: Client, names: Names) -> None:
        super().__init__(client, names, Fence(0, ""), 0.0)

    def write(self, commands: Sequence[Words]) -> None: ...
    def keep(self) -> None: ...
    def note_pause(self, why: str) -> None: ...
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
    options: Options = field(default_factory=Options)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.client, self.names)
        self._seen: dict[str, dict[int, Marker | None]] = {}

    def entries(self) -> dict[str, Entry]:
        return self.ledger.entries() or {}

    @contextmanager
    def leased(self) -> Iterator[Lease]:
        """The lease, released at the end whatever happens. Raises LeaseHeldError."""
        lease = take_lease(self.client, self.names, self.lease_seconds)
        try:
            self._raise_fences(lease)
            yield lease
        finally:
            lease.release()

    def _raise_fences(self, lease: Lease) -> None:
        """The fence goes up in every slot of every migration before the first write of this command."""
        # Of unknown ones too: where the ledger is lost, their markers say how high the fence has been.
        modules = self.modules.all
        for _ in range(_ATTEMPTS):
            before = self.client.processes()
            try:
                self._seen = {module.id: self._markers(lease, module).raise_fence(lease.fence) for module in modules}
            except FenceTakenError as taken:
                # After a failover the lease was given a number that a marker has seen: take a higher one.
                lease.fence = take_lease_again(lease, taken.number + 1)
                continue
            self._make_durable(lease)
            if self.client.processes() == before:
                return  # else a failover may have taken the fence back before the replicas had it
        raise LeaseHeldError("the fence keeps rising: another process takes the lease in turns",
                             next="see who holds it with: migrator lock show")  # fmt: skip

    def _make_durable(self, lease: Lease) -> None:
        """What is relied on from here on stays in a failover: the fences, and what the ledger says."""
        missing = [lease.durable()]
        for module in self.modules.all:
            there = [slot for slot, marker in self._seen[module.id].items() if marker is not None]
            missing.append(self._markers(lease, module).fence_durable(lease.fence, there))
        for text in dict.fromkeys(filter(None, missing)):
            self.observer.say(text)

    def fence_off(self, number: int) -> None:
        """Raises the fence to a number that nobody holds."""
        fence, known = Fence(number, f"broken-{secrets.token_hex(4)}"), self.entries()
        for module in self.modules.all:
            if module.id in known:
                markers = Markers(self.client, self.names, module.id, slots_of(self.client, module))
                with suppress(FenceTakenError):  # somebody has taken the lease already, with a higher number
                    seen = markers.raise_fence(fence)
                    markers.fence_durable(fence, [slot for slot, marker in seen.items() if marker is not None])

    def _markers(self, lease: Lease, module: Module) -> Markers:
        markers = Markers(self.client, self.names, module.id, slots_of(self.client, module))
        markers.tick = lease.keep
        return markers

    def run(self, lease: Lease, module: Module) -> Run:
        """One migration, to be carried on. Its markers are as they were seen when the lease was taken.

        Raises LedgerBackwardsError where the ledger is lost, RefusedError for one that was never applied.
        """
        known = self.ledger.entries()
        if known is None:
            self.check_markers()
        entry = (known or {}).get(module.id)
        if entry is None:
            raise RefusedError(f"{module.id} was never applied", next=f"begin with: migrator plan {module.number}")
        run = Run(
            self.client, self.names, self.ledger, lease, module, entry, self.observer,
            self.stop, self.rate, self.options,
        )  # fmt: skip
        run.seen = self._seen.pop(module.id, None)
        return run

    def reader(self, module: Module, entry: Entry | None = None, stop: Stop | None = None) -> Run:
        """One migration, to be read only: also after a signal, to say where a run stopped, so only `stop` is heard."""
        return Run(
            self.client, self.names, self.ledger, NoLease(self.client, self.names), module,
            entry or self.entries().get(module.id) or Entry(id=module.id), self.observer, stop or Stop(), self.rate,
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
            self._create_markers(lease, module, entries[module.id])

    def know(self, lease: Lease) -> None:
        """A ledger entry, in `pending`, for every module that has none."""
        entries, now = self.entries(), server_ms(self.client, self.names)
        for module in self.modules.all:
            if module.id not in entries:
                self.ledger.put(lease, Entry(id=module.id, moves=moves_of(module), known_at=now), "known")

    def _create_markers(self, lease: Lease, module: Module, entry: Entry) -> None:
        """Gives slots without a marker one in the ledger's phase."""
        markers = self._markers(lease, module)
        seen = self._seen.get(module.id) or markers.raise_fence(lease.fence)
        missing = [slot for slot, marker in seen.items() if marker is None]
        markers.create(entry.phase, entry.epoch, lease.fence, entry.checksum, missing)
        made = Marker(entry.phase, entry.epoch, lease.fence, entry.checksum)
        self._seen[module.id] = seen | dict.fromkeys(missing, made)

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
                again = f", or start again: {to_pending(entry, id[:4])}"
                raise DriftError(
                    f"{known[id].path} is not what it was when {id} was expanded: it was edited, or settings that it "
                    "reads are others",
                    next=f"put that back as it was{again if moves_of(known[id]) == entry.moves else ''}",
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
        self.check_markers()
        drawn = set(random_keys(self.client, _SAMPLE))
        for module in self.modules.all:
            run = self.reader(module, Entry(id=module.id))
            if any(self._new_shape(family, drawn) for family in run.families):
                raise LedgerBackwardsError(
                    f"there is no ledger, but there are keys in the new shape of {module.id}",
                    next=f"if nothing was migrated yet: migrator init {module.number} --at pending --yes; if it was: "
                    f"migrator init {module.number} --at contracted --yes",
                )

    def check_markers(self) -> None:
        """With no ledger: raises LedgerBackwardsError if a marker says that there was one."""
        for module in self.modules.all:
            marked = any_marker(self.client, self.names, module)
            if marked is not None:
                raise LedgerBackwardsError(
                    f"there is no ledger, but a marker of {module.id} says {marked.phase}",
                    next="rebuild it with: migrator init --at markers [--backup DIR] --yes",
                )

    def _new_shape(self, family: Family, keys: set[bytes]) -> bool:
        """Whether any of these keys is a record in the new shape, also under the name both shapes share."""
        mine = [key for key in keys if family.has_old(key) or family.has_new(key)]
        types = self.client.each("TYPE", mine)
        return any(
            family.kinds["new"] == checked(reply).decode() and (family.same_name or family.has_new(key))
            for key, reply in zip(mine, types, strict=True)
        )


def take_lease_again(lease: Lease, least: int) -> Fence:
    """The same lease with a higher number: released and taken in one step, by its own token. Raises LeaseHeldError
    where it ran out and somebody else has taken it."""
    return take_fence(lease.client, lease.names, lease.fence.token, lease.seconds, least)


def any_marker(client: Client, names: Names, module: Module) -> Marker | None:
    markers = Markers(client, names, module.id, slots_of(client, module))
    return next((marker for marker in markers.read().values() if marker is not None), None)


def total_keys(client: Client) -> int:
    """Keys on all primaries."""
    return sum(checked(client.on_node(node, ("DBSIZE",))[0]) for node in client.nodes())


def random_keys(client: Client, number: int) -> list[bytes]:
    """So many keys drawn at random over all primaries; fewer where there are fewer."""
    keys: list[bytes] = []
    nodes = client.nodes()
    for node in nodes:
        replies = client.on_node(node, *[("RANDOMKEY",)] * (number // len(nodes)))
        keys += [key for reply in replies if (key := checked(reply)) is not None]
    return keys


__all__ = ["NoLease", "Session", "any_marker", "random_keys", "total_keys"]
