"""Every pending migration on a snapshot, for real: through contract, all the way back, and there again.

What proves it: each record went through the mapping and came back (see mapping.py); the engine compared both shapes in
full before contract; after the way back the whole database is what the snapshot holds, to the byte and the expiry.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial, reduce

from migrator.client import Client
from migrator.engine import commands, decide, verify
from migrator.engine.guards import blocked_by
from migrator.engine.indexes import Repairs
from migrator.engine.plan import plan_one
from migrator.engine.session import Session
from migrator.errors import MigratorError, OrderError, QuarantineError
from migrator.ledger import Entry, parse_address
from migrator.models import (
    ApplyResult,
    MigrationPlan,
    PlanResult,
    SnapshotReport,
    Stopped,
    TallyResult,
    TriedMemory,
    TriedMigration,
)
from migrator.moves.family import Family
from migrator.moves.loader import Module
from migrator.phases import FORWARD, Phase
from migrator.rehearsal.databases import unlike
from migrator.rehearsal.findings import Differences, Reasons
from migrator.rehearsal.mapping import Mapped, map_all
from migrator.rehearsal.merge import worse
from migrator.rehearsal.scratch import Scratch
from migrator.rehearsal.standing import check_ledger, half_way

# What a plan says of the server it looks at, and not of the migration.
_OF_THE_SERVER = ("no-adapter", "no-replica", "no-wait", "no-claims", "no-info", "volatile", "memory")
_FIRST, _SECOND = "backup-1", "backup-2"


@dataclass
class _Tried:
    """One migration on its way."""

    module: Module
    phase: Phase
    plan: MigrationPlan
    mapped: Mapped = field(default_factory=Mapped)
    rejected: Reasons = field(default_factory=Reasons)
    listed: set[bytes] | None = None  # the addresses of `rejected`, once that is what the engine lists
    reached: str = ""  # the phase it is in
    furthest: str = ""  # the one it came to on the way there
    compared: int = 0
    tally: TallyResult | None = None  # of the backfill on the way there
    ran: bool = False
    memory: TriedMemory = field(default_factory=TriedMemory)

    def result(self) -> TriedMigration:
        mapped = self.mapped
        moved = min(mapped.mapped, mapped.records - self.rejected.total)  # the engine knows reasons that no mapping has
        return TriedMigration(
            id=self.module.id, reached=self.furthest or self.phase, records=mapped.records, mapped=max(0, moved),
            rejected=self.rejected.total, reasons=self.rejected.listed(), noted=mapped.noted.listed(),
            compared=self.compared, unjudged=mapped.unjudged, differing=mapped.differences.total,
            differences=mapped.differences.listed(), memory=self.memory,
        )  # fmt: skip


class Trial:
    """One dry run. `at` says where a migration stands that the snapshot's ledger does not know."""

    def __init__(self, scratch: Scratch, ids: Sequence[str] = (), at: Mapping[str, Phase] | None = None) -> None:
        self._scratch, self._chosen, self._at = scratch, scratch.modules.select(ids), at or {}
        self._asked = bool(ids)
        self.tried: list[_Tried] = []
        self.stopped: list[Stopped] = []
        self.seconds: dict[str, float] = {}
        self._elsewhere = Differences()
        self._notes: list[str] = [*scratch.notes, *scratch.loaded.notes]

    def play(self, name: str) -> PlanResult:
        """Runs it all. `name` is what the report calls the file. Raises what `plan` raises for a ledger or a module
        that does not fit."""
        check_ledger(self._scratch.session(), self._at)
        with self._scratch.copied() as before:
            for module in self._chosen:
                self._there(module)
            self._back(before)
        if not self.stopped:
            self._again()
        return self._result(name)

    # The stages.

    def _there(self, module: Module) -> None:
        """One migration through contract, once every record was mapped."""
        session = self._scratch.session()
        entries = session.entries()
        entry = entries.get(module.id) or Entry(id=module.id)
        blocked = blocked_by(module, session.modules, entries)
        goes = not blocked and entry.phase in FORWARD
        # What is wrong with indexes is found with the mapping, which looks at every record as well.
        one = _Tried(module, entry.phase, _plan(session, module, entries, repairs=not goes), reached=entry.phase)
        self.tried.append(one)
        if entry.phase == "contracted" and entry.swept:
            return
        if refusal := half_way(module, entry):
            one.plan = one.plan.model_copy(update={"refused": (*one.plan.refused, refusal)})
        if blocked:
            self._blocked(one, blocked)
        if not goes:
            return
        one.memory = TriedMemory(before=self._scratch.memory())
        with self._timed("map"):
            one.mapped = map_all(session.reader(module, entry, self._scratch.source.stop))
        if entry.phase != "contracted":
            one.plan = one.plan.model_copy(update=_repairs(one.mapped.repairs))
        one.rejected = one.mapped.rejected
        if one.plan.refused:
            return
        one.ran = True
        with self._timed("there"):
            one.tally = self._fill(one, _FIRST)
            if one.tally is not None and self._apply(one, _FIRST, "contract"):
                one.compared = _compared(self._scratch.session(), module.id)
        one.furthest = one.reached
        one.memory = one.memory.model_copy(update={"after": self._scratch.memory()})

    def _blocked(self, one: _Tried, why: str) -> None:
        """As `apply` takes it: what was asked for by its ID has failed, anything else is passed over."""
        id = one.module.id
        if self._asked:
            self.stopped.append(Stopped(
                id=id, phase=one.reached, exit=OrderError.exit_code, reason=f"{id} is blocked: {why}",
                next="name that one as well, or none",
            ))  # fmt: skip
        else:
            self._notes.append(f"{id} is passed over: {why}")

    def _fill(self, one: _Tried, backup: str) -> TallyResult | None:
        """The backfill, and what it found; None if it was stopped. What cannot be mapped is accepted."""
        result = self._apply(one, backup, "backfill")
        if result is None:
            return None
        self._accept(one, backup)
        return result.migrations[0].tally

    def _apply(self, one: _Tried, backup: str, through: str) -> ApplyResult | None:
        """`apply` as an operator runs it."""
        id = one.module.id
        return self._done(
            one,
            lambda: commands.apply(self._scratch.session(backup), [id], through),
            lambda: self._accept(one, backup),
        )

    def _accept(self, one: _Tried, backup: str) -> bool:
        """Accepts what is open; whether anything was. What the engine lists is the truth: it knows reasons that no
        mapping has."""
        if one.memory.both == 0:
            one.memory = TriedMemory(before=one.memory.before, both=self._scratch.memory())
        records = self._scratch.session().reader(one.module).quarantine.items()
        listed = [(name, record.reason) for name, record in records if not record.accepted]
        if backup == _FIRST:
            if one.listed is None:
                one.rejected, one.listed = Reasons(), set()
            for name, reason in listed:
                key, member = parse_address(name)
                # What was accepted is listed again where its value is another one, and the ledger is in each share.
                if name not in one.listed and self._scratch.mine(key):
                    one.listed.add(name)
                    one.rejected.add(reason, key, member)
        if listed:
            decide.quarantine_accept(self._scratch.session(backup), one.module.id, everything=True)
        return bool(listed)

    def _done(
        self, one: _Tried, command: Callable[[], ApplyResult], accept: Callable[[], bool] = lambda: False
    ) -> ApplyResult | None:
        """The result of a command that came to its end; None, and why, of one that did not.

        What is met in quarantine on the way is accepted. In a redacted snapshot from the middle of a migration that is
        also what was accepted where it was taken, for that is bound to the value as it was.
        """
        try:
            result = command()
            stopped = result.stopped
        except MigratorError as error:
            result, stopped = None, Stopped(
                id=one.module.id, phase=one.reached, exit=commands.exit_code(error), reason=error.message,
                next=error.next,
            )  # fmt: skip
        self._scratch.tick()
        if result is not None:
            one.reached = result.migrations[0].phase
        if stopped is not None and stopped.exit == QuarantineError.exit_code and accept():
            return self._done(one, command)
        if stopped is None:
            return result
        self.stopped.append(stopped)
        self._name_differences(one)
        return None

    def _name_differences(self, one: _Tried) -> None:
        """What a comparison that stopped a command found, by name."""
        try:
            found = verify.verify(self._scratch.session(), one.module.id)
        except MigratorError:
            return  # in this phase there is nothing to compare
        for difference in found.examples:
            if difference.verdict != "unreadable":
                one.mapped.differences.note(difference)

    def _back(self, before: Client) -> None:
        """All the way back, the last one first, and then the whole database against the snapshot."""
        ran = [one for one in self.tried if one.ran]
        if not ran:
            return
        with self._timed("back"):
            for one in reversed(ran):
                self._done(one, partial(self._one_back, one))
        if any(one.reached != "pending" for one in ran):
            return
        with self._timed("compare"):
            for key, found in unlike(
                before, self._scratch.client, self._not_data(ran), self._scratch.tick, self._scratch.whole
            ):
                owner = next((one for one in ran if self._about(one, key)), None)
                told = found.model_copy(update={"why": f"after the way back: {found.why}"})
                (owner.mapped.differences if owner else self._elsewhere).note(told)

    def _one_back(self, one: _Tried) -> ApplyResult:
        session, id = self._scratch.session(_FIRST), one.module.id
        if one.reached == "contracted" and not one.module.migration.invertible:
            return commands.restore(session, id)
        return commands.rollback(session, id, "pending")

    def _again(self) -> None:
        """Applied once more. The data are what they were, so the backfill has to find as many of each as before; where
        it does not, or where there is no count of before, both shapes are compared. What another one waits for is
        contracted again before it."""
        ran = [one for one in self.tried if one.ran]
        if not ran:
            return
        with self._timed("again"):
            for number, one in enumerate(ran):
                session = self._scratch.session()
                if blocked_by(one.module, session.modules, session.entries()) and not all(
                    self._apply(earlier, _SECOND, "contract") for earlier in ran[:number]
                ):
                    return
                tally = self._fill(one, _SECOND)
                if tally is None:
                    return
                # That contract works is known by then.
                if tally != one.tally and self._apply(one, _SECOND, "verify") is None:
                    return

    # What belongs to whom.

    def _not_data(self, ran: Sequence[_Tried]) -> Callable[[bytes], bool]:
        """Also the new shape that a snapshot from the middle of a migration holds: the way back removes it."""
        half = [family for one in ran if one.phase != "pending" for family in self._families(one)]
        return lambda key: self._scratch.ours(key) or any(f.has_new(key) and not f.has_old(key) for f in half)

    def _about(self, one: _Tried, key: bytes) -> bool:
        return any(family.has_old(key) or family.has_new(key) for family in self._families(one))

    def _families(self, one: _Tried) -> list[Family]:
        return self._scratch.session().reader(one.module, Entry(id=one.module.id)).families

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        begun = time.monotonic()
        try:
            yield
        finally:
            self.seconds[stage] = round(self.seconds.get(stage, 0.0) + time.monotonic() - begun, 2)

    def _result(self, name: str) -> PlanResult:
        found = tuple(one.result() for one in self.tried)
        differing = sum(one.differing for one in found) + self._elsewhere.total
        rejected = sum(one.rejected for one in found)
        refused = any(one.plan.refused for one in self.tried)
        report = SnapshotReport(
            file=name, server=self._scratch.server, loaded=self._scratch.loaded, migrations=found,
            elsewhere=self._elsewhere.listed(), differing=differing, rejected=rejected, stopped=tuple(self.stopped),
            notes=tuple(self._notes), seconds=self.seconds,
            exit=_exit(refused, differing, rejected, self.stopped),
        )  # fmt: skip
        return PlanResult(
            migrations=tuple(one.plan for one in self.tried), snapshot=report,
            namespace=self._scratch.source.names.namespace, through="contracted",
        )  # fmt: skip


def _repairs(found: Repairs) -> dict[str, object]:
    return {"index_repairs": tuple(found.listed), "index_repairs_total": found.total}


def _plan(session: Session, module: Module, entries: Mapping[str, Entry], *, repairs: bool) -> MigrationPlan:
    """The plan, without what is about a server that is gone in a minute."""
    plan = plan_one(session, module, dict(entries), "contracted", asked=True, repairs=repairs)
    return plan.model_copy(update={"risks": tuple(risk for risk in plan.risks if risk.code not in _OF_THE_SERVER)})


def _compared(session: Session, id: str) -> int:
    """How many records the last comparison of this migration looked at."""
    told = [event.detail for event in session.ledger.history(id) if event.what == "compared"]
    return int(told[-1].partition(", ")[0].removeprefix("compared ").replace(",", "")) if told else 0


def _exit(refused: bool, differing: int, rejected: int, stopped: Sequence[Stopped]) -> int:
    codes = {one.exit for one in stopped}
    codes |= {code for code, holds in ((60, refused), (30, differing), (32, rejected)) if holds}
    return reduce(worse, codes, 0)
