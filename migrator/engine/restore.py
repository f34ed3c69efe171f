"""Restore: the old shape as the backup has it; what was written since is saved, and discarded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from migrator.client import checked
from migrator.engine import dump
from migrator.engine.back import clean
from migrator.engine.backfill import PAGE_COLLECTIONS
from migrator.engine.guarded import guarded, unlink
from migrator.engine.guards import check_names, to_pending
from migrator.engine.lasting import lasting
from migrator.engine.put import Collections, is_large, put_key, put_members
from migrator.engine.run import Run
from migrator.engine.saving import backup_in, check_backup, contract_epoch, open_backup
from migrator.engine.sweep import retire_all
from migrator.engine.walk import Progress, Visit, Walk
from migrator.errors import RefusedError, UsageError
from migrator.keys import Kind
from migrator.models import number_of, show
from migrator.moves.family import Family
from migrator.snapshot import backup
from migrator.snapshot.backup import Backup


def restore(run: Run) -> None:
    """`closed` while the old shape is put back as it was saved; what is discarded is saved first."""
    base = run.options.backup
    if base is None:
        raise UsageError("restore needs --backup DIR")
    if run.entry.cleaning:
        clean(run)  # an earlier attempt came as far as that
        return
    if run.entry.phase == "pending" and run.entry.restored:
        run.note("restored already")  # whoever was killed at the very end repeats the command
        return
    if run.entry.phase not in ("contracted", "switched", "reverting", "closed"):
        raise RefusedError(f"{run.id} is {run.entry.phase}: there is nothing to restore",
                           next=f"roll it back with: {to_pending(run.entry, run.module.number)}")  # fmt: skip
    if not run.entry.backup_epoch:
        raise RefusedError(f"{run.id} was never contracted: there is no backup of it",
                           next=f"roll it back with: {to_pending(run.entry, run.module.number)}")  # fmt: skip
    check_names(run)
    path = backup_in(run, base, "contract", contract_epoch(run, base))
    check_backup(run, path)
    if run.entry.phase in ("switched", "reverting") and not run.entry.saved:
        raise RefusedError(f"{run.id}: its contract was never finished, the backup does not hold every old record",
                           next=f"go on with: migrator rollback {run.module.number} --backup DIR --yes")  # fmt: skip
    if run.entry.phase != "closed":
        _discarded(run, base, run.entry.epoch + 1)  # whatever is in its way is told before anything is changed
    if run.entry.phase == "contracted" and not run.entry.swept:
        # What contract had not set aside yet is in no backup: under its own name it would be discarded.
        lasting(run, lambda: retire_all(run))
    if run.entry.phase != "closed":
        run.change("closed", rolled_back=True, swept=False)
    if not run.entry.discarded:
        lasting(run, lambda: _discard_all(run, base))
        # Once, and under an epoch that ends here: what is put back from here on is not to be discarded by a second
        # attempt, nor by a batch of the first that is delivered late.
        run.change("closed", detail=f"later writes are in discarded-{run.entry.epoch}", discarded=True)
    lasting(run, lambda: _put_back(run, path))
    run.change("pending", detail=f"restored from {path.name}", cleaning=True, discarded=False,
               restored=True)  # fmt: skip
    clean(run)


def _put_back(run: Run, path: Path) -> None:
    left = {name for number, family in enumerate(run.families) for name in _retired_back(run, family, number)}
    if left:
        run.note(f"{number_of(len(left), 'record')} set aside by contract cannot have the old name again, which is "
                 f"taken: {show(min(left))} stays where it is")  # fmt: skip
    taken = _put_saved(run, path)
    if taken:
        run.note(f"{number_of(len(taken), 'saved record')} not put back, as a key of another type has the name: "
                 f"{show(min(taken))} stays as it is")  # fmt: skip


def _put_saved(run: Run, path: Path) -> set[bytes]:
    """From the newest to the oldest, never over what is there: a record may have been saved by several contracts.

    Returns the names that somebody's own keys have.
    """
    run.observer.begin(f"{run.id}: restore", None)
    accepted = run.quarantine.keys_with_accepted_members()  # all that tells it of a backup from before `kept`
    collections, taken = Collections(run, "closed"), set[bytes]()
    for line in backup.newest_lines(path):
        for family in run.families:
            pair = family.from_old(line.key)
            if pair is None or line.kind not in family.kinds.values():
                continue
            if not family.by_member and (line.kind in ("string", "list") or not is_large(line)):
                put = put_key(run, "closed", line)
            elif line.kept or (line.kept is None and line.key in accepted):
                # Whatever is there may be the accepted members alone, set aside or saved again: this has the others.
                put = put_members(run, "closed", line)
            else:
                put = collections.put(family, pair, line)
            if not put:
                is_type = run.client.one(line.key, "TYPE", line.key).decode()
                if is_type != "none" and is_type not in _kinds(family, line.key):
                    taken.add(line.key)
        run.observer.advance(1)
        run.tick()
    run.observer.end()
    return taken


def _discarded(run: Run, base: Path, epoch: int) -> Backup:
    return open_backup(run, base / f"discarded-{epoch}", "discarded", epoch)


def _discard_all(run: Run, base: Path) -> None:
    saving = _discarded(run, base, run.entry.epoch)
    for number, family in enumerate(run.families):
        _discard(run, family, number, saving)


def _discard(run: Run, family: Family, number: int, saving: Backup) -> None:
    """Saves and removes both shapes as they are now, under their names as they are now."""

    def step(visit: Visit) -> Iterator[Progress]:
        gone: list[bytes] = []
        for key in visit.keys:
            kinds = _kinds(family, key)
            kind = run.client.one(key, "TYPE", key).decode() if kinds else ""
            if kind not in kinds:
                continue
            for line in dump.record(run, kind, key, by_member=family.by_member):
                saving.write(line)
                if line.part == 0:  # there is none of what expired meanwhile, or was made another type
                    gone.append(key)
        saving.commit()
        unlink(run, run.guard("closed"), gone)
        yield Progress({"discarded": len(gone)})

    with run.throttle.freeing():
        for side, glob in (("old", family.old_glob), ("new", family.new_glob)):
            Walk(run, f"discard-{number}-{side}", glob, step, count=PAGE_COLLECTIONS, resume=False).all()
    saving.finish()


def _kinds(family: Family, key: bytes) -> set[Kind]:
    """What a key of that name has to be, to be a record in one of the shapes: of another type it is somebody's own."""
    old, new = family.has_old(key), family.has_new(key)
    if family.same_name and (old or new):
        return {*family.kinds.values()}
    return {kind for kind, has in ((family.kinds["old"], old), (family.kinds["new"], new)) if has}


def _retired_back(run: Run, family: Family, number: int) -> set[bytes]:
    """What contract had set aside but not yet removed takes its own name again: it is newer than what was saved.

    Returns the retired names of what could not, as something has that name.
    """
    left: set[bytes] = set()

    def step(visit: Visit) -> Iterator[Progress]:
        pairs = [(name, pair) for name in visit.keys if (pair := family.from_retired(name)) is not None]
        guarded(run, run.guard("closed"), [("RENAMENX", name, pair.old) for name, pair in pairs])
        names = [name for name, _ in pairs]
        still = [name for name, there in zip(names, run.client.each("EXISTS", names), strict=True) if checked(there)]
        left.update(still)
        yield Progress({"restored": len(pairs) - len(still)})

    Walk(run, f"retired-{number}", family.retired_glob(), step, count=PAGE_COLLECTIONS, resume=False).all()
    return left
