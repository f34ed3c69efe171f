"""The way there: one stage a phase, each of which may be stopped anywhere and repeated."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable

from migrator.engine import indexes
from migrator.engine.adopt import adopt
from migrator.engine.alive import adapters_of, left_behind, other_mappings, unadapted
from migrator.engine.backfill import backfill
from migrator.engine.compare import compare, evidence
from migrator.engine.copy import FORWARD as FROM_OLD
from migrator.engine.guards import claim, moves_of, reached, refusals, unfinished
from migrator.engine.lasting import lasting
from migrator.engine.outcome import Outcome
from migrator.engine.recover import persist
from migrator.engine.run import Run
from migrator.engine.saving import contract_epoch
from migrator.engine.sweep import any_old, contract_backup, save_native, save_retired, sweep
from migrator.engine.walk import MarkersMovedError
from migrator.errors import DifferencesError, IncompleteError, QuarantineError, RefusedError
from migrator.ledger.lease import server_ms
from migrator.models import DIFFERENCES, FAULTS, number_of
from migrator.phases import Phase

THROUGH: dict[str, Phase] = {
    "expand": "expanded",
    "backfill": "backfilled",
    "verify": "verified",
    "switch": "switched",
    "contract": "contracted",
}
_OLD_IS_TRUE: tuple[Phase, ...] = ("expanded", "backfilled", "verified")


def carry_forward(run: Run, goal: Phase) -> None:
    """Carries one migration to `goal`. Nothing is compared where it has come as far already."""
    evidence = _Evidence()
    persist(run, lambda: _carry(run, goal, evidence))


def _carry(run: Run, goal: Phase, evidence: _Evidence) -> None:
    if (remark := unfinished(run.entry, run.module.number, goal)) is not None:
        raise RefusedError(f"{run.id}: {remark.text}", next=remark.next)
    if not reached(run.entry, goal):
        _go(run, goal, evidence)
        if goal not in _OLD_IS_TRUE:
            return
    _repair_indexes(run)


def _go(run: Run, goal: Phase, evidence: _Evidence) -> None:
    if goal == "contracted":
        check_contract_asked(run)
    if run.entry.phase not in ("pending", *_OLD_IS_TRUE):
        _repair_indexes(run)  # refuses what comes too late
    while not reached(run.entry, goal):
        if run.entry.phase == "verified":
            _repair_indexes(run)
        _STAGES[run.entry.phase](run, evidence)
    if run.entry.rolled_back:
        run.put(rolled_back=False)


def _repair_indexes(run: Run) -> None:
    if not run.options.repair_indexes or not indexes.has_any(run):
        return
    if run.entry.phase not in _OLD_IS_TRUE:
        raise RefusedError(f"{run.id} is {run.entry.phase}: indexes are repaired from the old shape, before the switch",
                           next="run it without --repair-indexes")  # fmt: skip
    repaired = indexes.repair(run)
    run.observer.say(f"{run.id}: {repaired} index memberships repaired")


class _Evidence:
    """The comparison this very run made: it spares `switch` a second one."""

    def __init__(self) -> None:
        self._clean_at: tuple[int, str, str] | None = None

    def gather(self, run: Run, outcome: Outcome, *, anew: bool = True) -> None:
        """Compares everything; unless `anew`, it goes on where an earlier run was interrupted, which spares nothing
        later: what that one saw may be old by now. Raises what keeps this migration from the next phase, if anything
        does."""
        earlier = run.ledger.forget_words(run.id, "compare")
        if anew:
            run.lease.write(earlier)
        # Before, not after: a server that is replaced half-way may have lost what was repaired on the old one.
        before = self._now(run)
        hold_on(run, _compare(run, outcome))
        self._clean_at = before if anew or not earlier else None

    def holds(self, run: Run) -> bool:
        """Whether every server is the same process as when it began, and every slot where it was."""
        return self._clean_at == self._now(run)

    def check(self, run: Run) -> None:
        """Raises MarkersMovedError, for all to be looked at again, if it does not hold any more."""
        if not self.holds(run):
            raise MarkersMovedError

    def _now(self, run: Run) -> tuple[int, str, str]:
        return run.entry.epoch, run.client.fingerprint(), run.client.processes()


def check_contract_asked(run: Run) -> None:
    """Contract removes data: only on the operator's word, and only into a backup."""
    if not run.options.yes:
        raise RefusedError(f"{run.id}: contract removes the old shape", next="add --yes to have that done")
    base = run.options.backup
    under_way = run.entry.phase in ("contracted", "reverting")
    begun = run.entry.backup if under_way else ""
    if begun and base is not None and str(base.resolve()) != begun:
        raise RefusedError(f"{run.id}: this contract began with --backup {begun}", next="name that directory again")
    # One that found nothing to remove began without a backup, and may end without.
    if base is None and (begun or (under_way and run.entry.backup_epoch) or any_old(run)):
        raise RefusedError(f"{run.id}: the old shape is removed only into a backup", next="add --backup DIR")


def _expand(run: Run, _: _Evidence) -> None:
    for remark in (*refusals(run), *other_mappings(adapters_of(run), run.module.checksum)):
        raise RefusedError(f"{run.id}: {remark.text}", next=remark.next)
    claim(run)
    if run.entry.moves != moves_of(run.module):
        run.put(moves=moves_of(run.module))  # it was known before, with other names
    _begin_life(run)
    empty = adopt(run)
    # What is there now is known, and what adapters write from the next epoch on is right.
    run.change("expanded", mapping=run.module.checksum, expanded_at=server_ms(run.client, run.names), swept=False,
               empty_at=run.entry.epoch + 1 if empty else 0,
               rolled_back=False, backup="", backup_epoch=0, saved=False, restored=False)  # fmt: skip


def _begin_life(run: Run) -> None:
    """So that what it saves is told from what another server, or an earlier life, saved under the same names. An expand
    that is repeated goes on with its own: what was adopted is saved already."""
    began = f"{run.entry.epoch}-"
    if not run.entry.life.startswith(began):
        run.put(life=began + secrets.token_hex(8))


def _backfill(run: Run, _: _Evidence) -> None:
    tally = backfill(run)
    if not tally.scanned:
        run.note("no record was found at all; check the key template if you expected some")
    run.put("backfill", _sentence(tally.model_dump()), tally=tally)
    run.change("backfilled")


def _verify(run: Run, evidence: _Evidence) -> None:
    evidence.gather(run, _repairing(run), anew=False)
    run.change("verified")


def _switch(run: Run, evidence: _Evidence) -> None:
    if not evidence.holds(run):
        evidence.gather(run, _repairing(run))
    _check_quiet(run)
    _check_followed(run)
    evidence.check(run)
    run.change("switched")


def _repairing(run: Run) -> Outcome:
    return Outcome(repair=FROM_OLD, drop_extras=not run.entry.adopted or run.options.yes)


def _contract(run: Run, evidence: _Evidence) -> None:
    evidence.gather(run, Outcome())
    _check_quiet(run)
    _check_followed(run)
    base, epoch = run.options.backup, run.entry.epoch + 1
    if base is not None:
        contract_backup(run, epoch).finish()  # it is there from the start, so that a wrong directory is told from it
        save_native(run, epoch)
    evidence.check(run)
    run.change("contracted", backup=str(base.resolve()) if base else "", backup_epoch=epoch if base else 0, swept=False,
               saved=False)  # fmt: skip


def _contract_again(run: Run, _: _Evidence) -> None:
    """From `reverting`: the way back is given up; what was rebuilt is retired again, into the same backup, which may
    hold what was not rebuilt yet."""
    base = run.options.backup
    # What something without an adapter wrote meanwhile would be in the backup only.
    if unmoved := compare(run, Outcome(), "compare-again", sides=("old",))["missing"]:
        raise DifferencesError(
            f"{run.id}: {number_of(unmoved, 'old record')} without a new one: something without an adapter wrote while "
            "this was on its way back",
            next=f"finish that first: migrator rollback {run.module.number} --to switched --backup DIR --yes",
        )
    if run.entry.backup or base is None:
        # A retired name that a crash left, or a failover brings back, would be in the way of retiring what was rebuilt.
        lasting(run, lambda: save_retired(run))
        run.change("contracted", swept=False)
    else:
        # Of a contract that is known from its markers alone, the backup is there already.
        epoch = contract_epoch(run, base) or run.entry.epoch + 1
        contract_backup(run, epoch).finish()
        run.change("contracted", backup=str(base.resolve()), backup_epoch=epoch, swept=False)


def _sweep(run: Run, _: _Evidence) -> None:
    if run.options.backup is not None and not run.entry.backup:
        # Begun with nothing to remove, or known from its markers alone: what is saved from here on is found again.
        epoch = contract_epoch(run, run.options.backup) or run.entry.epoch
        run.put(backup=str(run.options.backup.resolve()), backup_epoch=epoch)
    sweep(run)


_STAGES: dict[Phase, Callable[[Run, _Evidence], None]] = {
    "pending": _expand,
    "expanded": _backfill,
    "backfilled": _verify,
    "verified": _switch,
    "switched": _contract,
    "contracted": _sweep,
    "reverting": _contract_again,
}


def _compare(run: Run, outcome: Outcome) -> Counter[str]:
    """A full comparison, its evidence in the ledger; the checkpoints of it are done with."""
    before = run.client.fingerprint()
    counts = compare(run, outcome)
    run.put("compared", _sentence({"compared": counts["compared"]} | {f: counts[f] for f in FAULTS}),
            run.ledger.forget_words(run.id, "compare"), comparison=evidence(run, before, counts))  # fmt: skip
    return counts


def hold_on(run: Run, counts: Counter[str]) -> None:
    """Raises what keeps this migration from the next phase, if anything does."""
    differing = sum(counts[fault] for fault in DIFFERENCES)
    number = run.module.number
    if differing:
        raise DifferencesError(
            f"{run.id}: {number_of(differing, 'difference')} ({_sentence({f: counts[f] for f in FAULTS})})",
            next=f"see them with: migrator verify {number}",
        )
    if run.quarantine.open:
        raise QuarantineError(
            f"{run.id}: {number_of(run.quarantine.open, 'record')} in quarantine, not accepted",
            next=f"migrator quarantine list {number}",
        )
    if counts["unreadable"]:
        unread = number_of(counts["unreadable"], "record")
        raise IncompleteError(f"{run.id}: {unread} could not be read", next="run it again")


def _check_quiet(run: Run) -> None:
    if run.client.migrating():
        raise RefusedError(f"{run.id}: slots are moving between nodes",
                           next="let the resharding finish, then run this again")  # fmt: skip


def _check_followed(run: Run) -> None:
    """Raises RefusedError if an adapter that is alive would not follow; says so if there is none."""
    seen = adapters_of(run)
    for remark in left_behind(seen):
        raise RefusedError(f"{run.id}: {remark.text}", next=remark.next)
    if said := unadapted(seen):
        run.note(said)


def _sentence(counts: dict[str, int]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {number:,}" for name, number in counts.items())
