"""Target keys that were there before the migration: saved, remembered, and put back where it is taken back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from migrator.client import Command, checked
from migrator.engine import dump
from migrator.engine.backfill import PAGE_KEYS
from migrator.engine.guarded import guarded, unlink
from migrator.engine.put import put_key, put_members
from migrator.engine.run import Run
from migrator.engine.saving import backup_in, check_backup, open_backup
from migrator.engine.walk import Progress, Visit, Walk
from migrator.errors import RefusedError, UsageError
from migrator.ledger import Entry
from migrator.models import show
from migrator.moves.family import Family, Pair
from migrator.snapshot import backup
from migrator.snapshot.ndjson import Line

# In the ledger where only the data tells that there were such keys: not what their backup is called.
UNKNOWN = "unknown"


def adopt(run: Run) -> bool:
    """Saves target keys that are there already, and remembers that they were. Returns whether there were none.

    Raises RefusedError for one of another type, and without a backup directory.
    """
    for number, family in enumerate(run.families):
        if not family.same_name:
            # One that is not seen here is overwritten later, and no backup has it.
            step = partial(_adopt_page, run, family)
            Walk(run, f"adopt-{number}", family.new_glob, step, count=PAGE_KEYS, resume=False).all()
    return not run.entry.adopted


def _adopt_page(run: Run, family: Family, visit: Visit) -> Iterator[Progress]:
    pairs = [pair for key in visit.keys if (pair := family.from_new(key)) is not None]
    if pairs:
        _adopt(run, family, pairs)
    yield Progress({"scanned": len(pairs)})


def _adopt(run: Run, family: Family, pairs: Sequence[Pair]) -> None:
    kind, base = family.kinds["new"], run.options.backup
    types = run.client.each("TYPE", [pair.new for pair in pairs])
    for pair, reply in zip(pairs, types, strict=True):
        if checked(reply).decode() not in (kind, "none"):
            raise RefusedError(
                f"{run.id}: {show(pair.new)} exists and is a {reply.decode()}, not a {kind}",
                next="move that key out of the way, or choose another target name",
            )
    if base is None:
        raise RefusedError(
            f"{run.id}: {len(pairs)} or more target keys exist already; they are adopted only with a backup of them",
            next="add --backup DIR",
        )
    saving = open_backup(run, base, "adopted", run.entry.epoch)
    for pair in pairs:
        for line in dump.record(run, kind, pair.new, by_member=family.by_member):
            saving.write(line)
        run.tick()
    saving.finish()
    if not run.entry.adopted:
        forget_adopted(run)  # of an earlier life, whose last step a crash cut off
    guarded(run, run.guard("pending"), [("SADD", _set_of(run, pair), pair.new) for pair in pairs])
    run.put(adopted=saving.directory.name)


def _set_of(run: Run, pair: Pair) -> bytes:
    return run.names.adopted(run.id, run.client.slot_tag(run.client.slot(pair.old)))


def adopted(run: Run, family: Family, pairs: Sequence[Pair]) -> list[bool]:
    """Which of these records' target keys were there before the migration."""
    if not run.entry.adopted or family.same_name:
        return [False] * len(pairs)
    asked = [Command(name := _set_of(run, pair), ("SISMEMBER", name, pair.new)) for pair in pairs]
    return [checked(reply) == 1 for reply in run.client.run(asked)]


def adopted_back(run: Run) -> None:
    """In `pending`, once the rest is cleaned: what was adopted is as it was, if its backup is named, else left."""
    if not run.entry.adopted:
        return
    base = run.options.backup
    if base is None:
        what = "discarded by the restore, and do not come back" if run.entry.restored else "left as they are now"
        run.note(f"target keys that were there before are {what}: no --backup was given")
    else:
        path, slots = _backup_in(run, base), slots_to_clean(run.entry)
        check_backup(run, path)
        for line in backup.lines(path):
            if slots and run.client.slot(line.key) not in slots:
                continue
            if line.part == 0:
                unlink(run, run.guard("pending"), [line.key])
            _put_adopted(run, line)
            run.tick()


def _backup_in(run: Run, base: Path) -> Path:
    """Raises UsageError where it is not there: contract may have used another directory than expand."""
    name = Path(run.entry.adopted).name
    if name == UNKNOWN:
        epoch = backup.newest(base, run.names.namespace, run.id, "adopted", run.entry.epoch)
        name = backup_in(run, base, "adopted", epoch or 0).name
    if not (base / name / backup.MANIFEST).exists():
        raise UsageError(
            f"{run.id}: the target keys that were there before are saved in a directory {name}, and {base} has none",
            next="run the same command again, with the --backup DIR that was given to expand",
        )
    return base / name


def slots_to_clean(entry: Entry) -> set[int]:
    """The slots that cleaning is about; none where it is about all."""
    return {int(slot) for slot in entry.slots_to_clean.split(",") if slot}


def has_adopted(run: Run) -> bool:
    """Whether any slot remembers target keys that were there before. The ledger is not asked."""
    names = [run.names.adopted(run.id, run.client.slot_tag(slot)) for slot in run.markers.slots]
    return any(checked(reply) for reply in run.client.each("EXISTS", names))


def forget_adopted(run: Run) -> None:
    """Last of all: until then a repeated clean-up has to know which keys are not its own to remove."""
    slots = run.markers.slots
    unlink(run, run.guard("pending"), [run.names.adopted(run.id, run.client.slot_tag(slot)) for slot in slots])


def _put_adopted(run: Run, line: Line) -> None:
    """By its type alone: the way back to `pending` works with a module that was edited, too."""
    if line.kind in ("string", "list"):
        put_key(run, "pending", line)
    else:
        put_members(run, "pending", line)
