"""The way back: one step at a time, each by marker first, so that a crash on the way is only a pause."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from migrator.client import checked
from migrator.engine.adopt import adopted, adopted_back, forget_adopted, slots_to_clean
from migrator.engine.backfill import PAGE_KEYS
from migrator.engine.guarded import unlink
from migrator.engine.guards import check_names, claim, release_claim
from migrator.engine.lasting import lasting
from migrator.engine.rebuild import rebuild
from migrator.engine.run import Run
from migrator.engine.saving import backup_in, check_backup, contract_epoch
from migrator.engine.walk import Progress, Visit, Walk
from migrator.errors import DriftError, RefusedError, UsageError
from migrator.ledger import Tally
from migrator.moves.family import Family, Pair
from migrator.phases import Phase
from migrator.snapshot.backup import MANIFEST

_PASSES = 5
_BACK_FROM: dict[Phase, Phase] = {
    "contracted": "switched",
    "reverting": "switched",
    "switched": "expanded",
    "verified": "pending",
    "backfilled": "pending",
    "expanded": "pending",
}
_ORDER: tuple[Phase, ...] = ("contracted", "switched", "expanded", "pending")


def rollback(run: Run, to: Phase | None, begun: Phase | None = None) -> None:
    """One step of the way back, or all steps down to `to`. Repeat it after a crash.

    `begun`: the ledger's phase before recovery, which may have gone that step already, or finished the one before.
    """
    if run.entry.cleaning:
        clean(run)
        return
    if run.entry.phase == "closed":
        raise RefusedError(f"{run.id}: a restore is under way", next="finish it: run the restore again")
    steps = [_BACK_FROM[phase] for phase in (begun, run.entry.phase) if phase in _BACK_FROM]
    goal = to or min(steps, key=_ORDER.index, default=None)
    if goal is None or run.entry.phase == "pending":
        run.observer.say(f"{run.id}: pending already, there is nothing to roll back")
        return
    while run.entry.phase != goal:
        back = _BACK_FROM[run.entry.phase]
        if _ORDER.index(goal) < _ORDER.index(back):
            raise RefusedError(f"{run.id} is {run.entry.phase}: from there the way back leads to {back}, not to {goal}",
                               next="see where it stands with: migrator status")  # fmt: skip
        _step_back(run)


def _step_back(run: Run) -> None:
    phase = run.entry.phase
    if phase in ("contracted", "reverting"):
        _uncontract(run)
    elif phase == "switched":
        run.change("expanded", rolled_back=True)
    else:
        check_names(run)
        run.change("pending", rolled_back=True, cleaning=True)
        clean(run)


def _uncontract(run: Run) -> None:
    saved = backup_of(run)
    check_mapping(run)
    claim(run)
    if saved is not None and not run.entry.backup and (base := run.options.backup) is not None:
        # Found now: whoever goes on, or gives the way back up, finds it again.
        run.put(backup=str(base.resolve()), backup_epoch=contract_epoch(run, base))
    if run.entry.phase == "contracted":
        run.change("reverting", rolled_back=True)
    lasting(run, lambda: rebuild(run, saved))
    run.change("switched", swept=False)


def check_mapping(run: Run) -> None:
    """Raises DriftError if the module is not the one the records were mapped with."""
    if run.entry.mapping and run.entry.mapping != run.module.checksum:
        raise DriftError(
            f"{run.module.path} was edited since {run.id} was expanded",
            next="put the file back as it was; the old shape is rebuilt by the mapping it was left with",
        )
    if not run.module.migration.invertible:
        raise RefusedError(
            f"{run.id} has no inverse: what was written since contract cannot be carried back",
            next=f"migrator restore {run.module.number} --backup DIR --discard-later-writes --yes",
        )


def backup_of(run: Run) -> Path | None:
    """The checked backup that contract wrote; None if it removed nothing.

    Raises before anything is changed: without the backup, the inverse would make other bytes of records that it has.
    """
    base, entry = run.options.backup, run.entry
    if not entry.backup_epoch:
        return None
    unless = ""
    if entry.phase == "contracted" and entry.swept and not entry.backup:  # known from markers alone
        told = f"migrator init {run.module.number} --at contracted --yes"
        unless = f"; if contract was given none, as there was nothing to remove: {told}"
    if base is None:
        raise RefusedError(
            f"{run.id}: the old shape lies in the backup that contract wrote",
            next=f"add --backup {entry.backup or 'DIR'}{unless}",
        )
    path = backup_in(run, base, "contract", contract_epoch(run, base))
    if not (path / MANIFEST).exists():
        raise UsageError(
            f"{run.id}: the old shape is saved in a directory {path.name}, and {base} has none",
            next=f"run the same command again, with the --backup DIR that was given to contract{unless}",
        )
    check_backup(run, path)
    return path


def clean(run: Run) -> None:
    """Removes the new shape in `pending`, until a pass finds nothing; then what was adopted is as it was.

    Raises DriftError where that shape has other names by now.
    """
    check_names(run)
    lasting(run, lambda: _clean_all(run))
    had_adopted = bool(run.entry.adopted)
    if had_adopted:
        lasting(run, lambda: adopted_back(run))
    release_claim(run)
    run.quarantine.clear_open()
    run.put(tally=Tally())
    run.change("pending", detail="the new shape is removed", cleaning=False, slots_to_clean="", adopted="")
    if had_adopted:
        forget_adopted(run)


def _clean_all(run: Run) -> None:
    for number, family in enumerate(run.families):
        for _ in range(_PASSES):
            if not _clean_once(run, family, f"clean-{number}"):
                break
        else:
            raise RefusedError(f"{run.id}: something keeps writing the new shape in pending",
                               next="stop the application that does, then run the rollback again")  # fmt: skip


def _accepted_alone(run: Run, family: Family, pairs: Sequence[Pair]) -> set[bytes]:
    """The old names of accepted records that the new shape alone has: no inverse could carry them back."""
    if family.by_member:
        return set()
    found = [pair.old for pair in pairs if run.quarantine.accepted_key(pair.key.raw)]
    alone = {key for key, there in zip(found, run.client.each("EXISTS", found), strict=True) if not checked(there)}
    if alone:
        run.note("records that were accepted and have no old one stay in the new shape")
    return alone


def _clean_once(run: Run, family: Family, name: str) -> int:
    guard, slots = run.guard("pending"), slots_to_clean(run.entry)

    def step(visit: Visit) -> Iterator[Progress]:
        there = [key for key in visit.keys if not slots or run.client.slot(key) in slots]
        types = run.client.each("TYPE", there)
        mine = [k for k, t in zip(there, types, strict=True) if checked(t).decode() == family.kinds["new"]]
        pairs = [(key, pair) for key in mine if (pair := family.from_new(key)) is not None]
        kept = adopted(run, family, [pair for _, pair in pairs])
        alone = _accepted_alone(run, family, [pair for _, pair in pairs])
        gone = [key for (key, pair), keep in zip(pairs, kept, strict=True) if not keep and pair.old not in alone]
        unlink(run, guard, gone)
        yield Progress({"removed": len(gone)})

    run.observer.begin(f"{run.id}: remove the new shape", None)
    with run.throttle.freeing():
        counts = Walk(run, name, family.new_glob, step, count=PAGE_KEYS, resume=False).all()
    run.observer.end()
    return counts["removed"]
