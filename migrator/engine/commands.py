"""The commands that carry migrations to and fro, and those that only look: functions that return what is printed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from migrator.engine import back, recover
from migrator.engine import restore as restoring
from migrator.engine.forward import THROUGH, carry_forward
from migrator.engine.found import init_at
from migrator.engine.guards import built_upon, passed_over
from migrator.engine.run import Run
from migrator.engine.session import Session
from migrator.engine.status import FEW_AFTER_A_WALK, migration_status
from migrator.errors import (
    DifferencesError,
    IncompleteError,
    Interrupted,
    InterruptedRunError,
    LedgerBackwardsError,
    MigratorError,
    OrderError,
    QuarantineError,
    RefusedError,
    StalePlanError,
    StoppedByLoadError,
    UsageError,
)
from migrator.ledger import Entry, Lease, break_lease, show_lease
from migrator.models import (
    ApplyResult,
    EventResult,
    HistoryResult,
    InitResult,
    LockResult,
    MigrationPlan,
    PlanResult,
    Stopped,
    iso,
)
from migrator.moves.loader import Module
from migrator.phases import FORWARD as FORWARD_PHASES
from migrator.phases import Phase, transition

# What stops one migration and leaves a result to print; anything else is an error of the whole command.
_STOPS = (DifferencesError, IncompleteError, QuarantineError, RefusedError, OrderError, LedgerBackwardsError,
          StoppedByLoadError, InterruptedRunError, Interrupted)  # fmt: skip


def exit_code(error: MigratorError) -> int:
    return error.exit if isinstance(error, InterruptedRunError) else error.exit_code


# apply


def apply(session: Session, ids: Sequence[str], through: str, saved: PlanResult | None = None) -> ApplyResult:
    """Carries the migrations named, or those of a saved plan, or all, to `through`. Stops at the first that falls
    short. Raises StalePlanError for a plan that no longer holds."""
    goal = THROUGH[through]
    chosen = session.modules.select(ids)
    if saved is not None:
        chosen = _planned(session, saved, through, chosen if ids else ())
    known = session.entries()
    session.check_drift(known)  # before the lease: it does not depend on who holds that
    session.check_order(known)
    notes: list[str] = []
    stopped: Stopped | None = None
    touched: list[Module] = []
    with session.leased() as lease:
        session.init(lease)
        for module in chosen:
            touched.append(module)
            try:
                _apply_one(session, lease, module, goal, asked=bool(ids), notes=notes)
            except _STOPS as error:
                stopped = _stopped(error, session, module)
                break
            lease.keep()
    entries = session.entries()
    states = tuple(migration_status(session, module, entries, None, few=FEW_AFTER_A_WALK) for module in touched)
    return ApplyResult(migrations=states, stopped=stopped, notes=tuple(notes))


def _stopped(error: MigratorError | Interrupted, session: Session, module: Module) -> Stopped:
    if isinstance(error, Interrupted):
        error = InterruptedRunError(error.signum)
    phase = session.entries()[module.id].phase
    return Stopped(id=module.id, phase=phase, exit=exit_code(error), reason=error.message, next=error.next)


def _apply_one(session: Session, lease: Lease, module: Module, goal: Phase, *, asked: bool, notes: list[str]) -> None:
    why = passed_over(module, session.modules, session.entries(), asked=asked)
    if why and asked:
        raise OrderError(f"{module.id} is blocked: {why}", next="apply that one through contract first")
    if why:
        notes.append(f"{module.id} is passed over: {why}")
        return
    run = session.run(lease, module)
    try:
        carry_forward(run, goal)
    finally:
        notes += [f"{module.id}: {note}" for note in run.notes]


def _planned(session: Session, saved: PlanResult, through: str, named: Sequence[Module]) -> tuple[Module, ...]:
    """The migrations of a saved plan, or those of them that are named.

    Raises StalePlanError if the modules or the ledger are not as the plan saw them (counts may differ), UsageError for
    one that is named and not in it.
    """
    entries = session.entries()
    modules = tuple(session.modules.find(planned.id) for planned in saved.migrations)
    for module in named:
        if module not in modules:
            raise UsageError(
                f"{module.id} is not in that plan", next=f"make one with it: migrator plan {module.number}"
            )
    for planned, module in zip(saved.migrations, modules, strict=True):
        entry = entries.get(planned.id) or Entry(id=planned.id)
        if planned.checksum != module.checksum:
            raise StalePlanError(f"{module.path} was edited since the plan was made", next="make the plan again")
        if saved.namespace != session.names.namespace:
            raise StalePlanError(f"the plan is for the namespace {saved.namespace!r}", next="make the plan again")
        if saved.through != THROUGH[through]:
            raise StalePlanError(f"the plan is for --through {saved.through}", next="make the plan again")
        if not _onward(planned, entry):
            raise StalePlanError(f"{planned.id} has moved on since the plan was made", next="make the plan again")
    return tuple(named) or modules


def _onward(planned: MigrationPlan, entry: Entry) -> bool:
    """Whether the ledger is where the plan saw it, or where its own apply leads: other ways have other epochs."""
    if planned.from_ not in FORWARD_PHASES or entry.phase not in FORWARD_PHASES:
        return (entry.phase, entry.epoch) == (planned.from_, planned.epoch)
    here, there = FORWARD_PHASES.index(planned.from_), FORWARD_PHASES.index(entry.phase)
    steps = [transition(a, b) for a, b in pairwise(FORWARD_PHASES[here : there + 1])]
    beyond = entry.epoch - planned.epoch - sum(not step.keeps_epoch for step in steps)
    return here <= there and beyond in ((0, 1) if entry.phase == "contracted" and entry.swept else (0,))


# init


def init(session: Session, id: str | None, at: str | None) -> InitResult:
    """Ledger and markers, so that adapters may start; with `at`, the way out of a ledger that went backwards."""
    chosen = session.modules.select([id] if id else [])
    notes: list[str] = []
    with session.leased() as lease:
        if at is not None:
            known = session.entries()
            session.know(lease)
            for module in chosen:
                notes += init_at(session, lease, module, known.get(module.id), at)
        session.init(lease)
    entries = session.entries()
    states = tuple(migration_status(session, module, entries, None) for module in chosen)
    return InitResult(migrations=states, notes=tuple(notes))


# the way back


def rollback(session: Session, id: str, to: Phase | None) -> ApplyResult:
    return _backwards(session, id, "rollback", lambda run, begun: back.rollback(run, to, begun))


def restore(session: Session, id: str) -> ApplyResult:
    return _backwards(session, id, "restore", lambda run, _: restoring.restore(run))


def _backwards(session: Session, id: str, what: str, go: Callable[[Run, Phase], None]) -> ApplyResult:
    module = session.modules.find(id)
    if not session.options.yes:
        raise RefusedError(f"{what} of {module.id} changes data", next="add --yes to have that done")
    later = built_upon(module, session.modules, session.entries())
    if later is not None:
        raise RefusedError(f"{later.id} was applied after {module.id}, to what that left: it goes back first",
                           next=f"migrator rollback {later.number} --to pending --backup DIR --yes")  # fmt: skip
    stopped = None
    with session.leased() as lease:
        run = session.run(lease, module)
        begun = run.entry.phase
        try:
            recover.persist(run, lambda: go(run, begun), back=True)
        except (InterruptedRunError, Interrupted, DifferencesError, QuarantineError, StoppedByLoadError) as error:
            stopped = _stopped(error, session, module)
    state = migration_status(session, module, session.entries(), None, few=FEW_AFTER_A_WALK)
    return ApplyResult(migrations=(state,), stopped=stopped, notes=tuple(run.notes))


# history and lease


def history(session: Session, id: str | None) -> HistoryResult:
    wanted = session.modules.find(id).id if id else ""
    return HistoryResult(events=tuple(
        EventResult(at=iso(e.at), id=e.id, who=e.who,
                    what=e.what, detail=e.detail)
        for e in session.ledger.history(wanted)
    ))  # fmt: skip


def lock_show(session: Session) -> LockResult:
    holder = show_lease(session.client, session.names)
    if holder is None:
        return LockResult(held=False)
    return LockResult(held=holder.expires_in > 0, owner=holder.owner, token=holder.token, fence=holder.number,
                      expires_in_seconds=round(holder.expires_in / 1000, 1))  # fmt: skip


def lock_break(session: Session, token: str) -> LockResult:
    """Breaks the lease and raises the fence everywhere, so that whoever held it writes nothing more."""
    number = break_lease(session.client, session.names, token)
    session.fence_off(number)
    return lock_show(session)
