"""The way back: one step at a time, each by marker first, so that a crash on the way is only a pause."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from migrator.client import Arg
from migrator.engine import dump
from migrator.engine.backfill import PAGE_COLLECTIONS, PAGE_KEYS
from migrator.engine.family import Family, Pair
from migrator.engine.guarded import guarded, unlink
from migrator.engine.guards import claim, release_claim
from migrator.engine.rebuild import rebuild
from migrator.engine.run import Run
from migrator.engine.walk import Progress, Visit, Walk
from migrator.errors import DriftError, RefusedError, UsageError
from migrator.phases import Phase
from migrator.snapshot import backup
from migrator.snapshot.backup import Backup, directory_for
from migrator.snapshot.ndjson import Line

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


def rollback(run: Run, to: Phase | None) -> None:
    """One step of the way back, or all steps down to `to`. Repeat it after a crash."""
    if run.entry.cleaning:
        _clean(run)
        return
    if run.entry.phase == "closed":
        raise RefusedError(f"{run.id}: a restore is under way", next="finish it: run the restore again")
    goal = to or _BACK_FROM.get(run.entry.phase)
    if goal is None or run.entry.phase == "pending":
        run.observer.say(f"{run.id}: pending already, there is nothing to roll back")
        return
    if run.entry.phase in ("backfilled", "verified", "expanded") and goal in ("expanded", "switched"):
        if goal == "switched":
            raise RefusedError(f"{run.id} is {run.entry.phase}: it has not come as far as switched",
                               next="see where it stands with: migrator status")  # fmt: skip
        return
    while run.entry.phase != goal:
        if _ORDER.index(goal) < _ORDER.index(_BACK_FROM[run.entry.phase]):
            raise RefusedError(f"{run.id} is {run.entry.phase}: {goal} lies ahead of it, not behind",
                               next="see where it stands with: migrator status")  # fmt: skip
        _step_back(run)


def _step_back(run: Run) -> None:
    phase = run.entry.phase
    if phase in ("contracted", "reverting"):
        _uncontract(run)
    elif phase == "switched":
        run.change("expanded", rolled_back=True)
    else:
        run.change("pending", rolled_back=True, cleaning=True)
        _clean(run)


def _uncontract(run: Run) -> None:
    saved = backup_of(run)
    check_mapping(run)
    claim(run)
    if run.entry.phase == "contracted":
        run.change("reverting", rolled_back=True, swept=False)
    rebuild(run, saved)
    run.change("switched")


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
    """The checked backup that contract wrote; None if it removed nothing. Raises before anything is changed."""
    if not run.entry.backup:
        return None
    base = run.options.backup
    if base is None:
        raise RefusedError(
            f"{run.id}: the old shape lies in the backup that contract wrote",
            next=f"add --backup {Path(run.entry.backup)}",
        )
    path = directory_for(base, run.names.namespace, run.id, run.entry.backup_epoch, "contract")
    if not (path / backup.MANIFEST).exists() and not run.entry.swept:
        return None  # stopped before the first part was durable: everything still lies beside the data
    backup.check(path)
    return path


def _clean(run: Run) -> None:
    """Removes the new shape in `pending`, until a pass finds nothing; then what was adopted is as it was."""
    for number, family in enumerate(run.families):
        for _ in range(_PASSES):
            if not _clean_once(run, family, f"clean-{number}"):
                break
        else:
            raise RefusedError(f"{run.id}: something keeps writing the new shape in pending",
                               next="stop the application that does, then run the rollback again")  # fmt: skip
        _adopted_back(run, family)
    release_claim(run)
    run.quarantine.clear()
    run.put("cleaned", "the new shape is removed", run.ledger.forget_words(run.id), cleaning=False, adopted="",
            tally=run.entry.tally.__class__())  # fmt: skip


def _clean_once(run: Run, family: Family, name: str) -> int:
    guard = run.guard("pending")

    def step(visit: Visit) -> Iterator[Progress]:
        pairs = [(key, pair) for key in visit.keys if (pair := family.from_new(key)) is not None]
        adopted = adopted_names(run, family, [pair for _, pair in pairs])
        gone = [key for key, _ in pairs if key not in adopted]
        unlink(run, guard, gone)
        yield Progress({"removed": len(gone)})

    run.observer.begin(f"{run.id}: remove the new shape", None)
    counts = Walk(run, name, family.new_glob, step, count=PAGE_KEYS, resume=False).all()
    run.observer.end()
    return counts["removed"]


# Targets that were there before us.


def adopted_names(run: Run, family: Family, pairs: list[Pair]) -> set[bytes]:
    """Which of these target keys existed before the migration began."""
    if not run.entry.adopted or family.same_name:
        return set()
    tags = {run.names.adopted(run.id, run.client.slot_tag(run.client.slot(pair.old))) for pair in pairs}
    found: set[bytes] = set()
    for name in tags:
        found.update(run.client.one(name, "SMEMBERS", name))
    return found


def adopt(run: Run) -> None:
    """Saves target keys that are there already, and remembers that they were. Raises RefusedError without a backup."""
    for family in run.families:
        if family.same_name:
            continue
        for node in run.client.nodes():
            cursor = 0
            while True:
                page = run.client.page(node, cursor, family.new_glob, PAGE_KEYS)
                pairs = [pair for key in page.keys if (pair := family.from_new(key)) is not None]
                _adopt_page(run, family, pairs)
                cursor = page.cursor
                run.tick()
                if cursor == 0:
                    break


def _adopt_page(run: Run, family: Family, pairs: list[Pair]) -> None:
    if not pairs:
        return
    base = run.options.backup
    if base is None:
        raise RefusedError(
            f"{run.id}: {len(pairs)} or more target keys exist already; they are adopted only with a backup of them",
            next="add --backup DIR",
        )
    path = directory_for(base, run.names.namespace, run.id, run.entry.epoch, "adopted")
    saving = Backup.create(path, run.names.namespace, run.id, run.entry.epoch, "adopted")
    for pair in pairs:
        for line in dump.collection(run.client, run.client.db, family.kinds["new"], pair.new, pair.new):
            saving.write(line)
    saving.finish()
    tags = [run.client.slot_tag(run.client.slot(pair.old)) for pair in pairs]
    words = [("SADD", run.names.adopted(run.id, tag), pair.new) for tag, pair in zip(tags, pairs, strict=True)]
    guarded(run, run.guard("pending"), words)
    run.put(adopted=str(base))


def _adopted_back(run: Run, family: Family) -> None:
    if not run.entry.adopted or family.same_name:
        return
    base = run.options.backup
    guard = run.guard("pending")
    if base is not None:
        found = sorted(base.glob(f"{run.names.namespace.replace(':', '_')}-{run.id}-adopted-*"))
        for path in found[-1:]:
            backup.check(path)
            for line in backup.lines(path):
                put_line(run, guard_phase="pending", line=line, name=line.key)
    else:
        run.observer.say(f"{run.id}: adopted target keys are left as they are (no --backup)")
    words: list[tuple[Arg, ...]] = [
        ("UNLINK", run.names.adopted(run.id, run.client.slot_tag(slot))) for slot in run.markers.slots
    ]
    guarded(run, guard, words)


def put_line(run: Run, *, guard_phase: Phase, line: Line, name: bytes) -> None:
    """Writes a saved record as it was, expiry included; a first part replaces what is there."""
    words: list[tuple[Arg, ...]] = [("UNLINK", name)] if line.part == 0 else []
    for start in range(0, len(line.items), dump.PAGE):
        items = line.items[start : start + dump.PAGE]
        if line.kind == "zset":
            items = [item for i in range(0, len(items), 2) for item in (items[i + 1], items[i])]
        write = {"string": "SET", "hash": "HSET", "list": "RPUSH", "set": "SADD", "zset": "ZADD"}[line.kind]
        words.append((write, name, *items))
    if line.expires_at is not None:
        words.append(("PEXPIREAT", name, line.expires_at))
    guarded(run, run.guard(guard_phase), words)


# Restore: the backup as it was, later writes discarded.


def restore(run: Run) -> None:
    """`closed` while the old shape is put back as it was saved; what is discarded is saved first."""
    base = run.options.backup
    if base is None:
        raise UsageError("restore needs --backup DIR")
    if run.entry.phase not in ("contracted", "switched", "reverting", "closed"):
        raise RefusedError(f"{run.id} is {run.entry.phase}: there is nothing to restore",
                           next=f"roll it back with: migrator rollback {run.module.number} --yes")  # fmt: skip
    if not run.entry.backup_epoch:
        raise RefusedError(f"{run.id} was never contracted: there is no backup of it",
                           next=f"roll it back with: migrator rollback {run.module.number} --yes")  # fmt: skip
    path = directory_for(base, run.names.namespace, run.id, run.entry.backup_epoch, "contract")
    backup.check(path)
    if run.entry.phase != "closed":
        run.change("closed", rolled_back=True, swept=False)
    epoch = run.entry.epoch
    discarded = directory_for(base / f"discarded-{epoch}", run.names.namespace, run.id, epoch, "discarded")
    saving = Backup.create(discarded, run.names.namespace, run.id, run.entry.epoch, "discarded")
    for number, family in enumerate(run.families):
        _discard(run, family, number, saving)
        _retired_back(run, family, number)
    _put_saved(run, path)
    run.change(
        "pending", detail=f"restored from {path.name}; later writes are in {discarded.parent.name}", cleaning=True
    )
    _clean(run)


def _put_saved(run: Run, path: Path) -> None:
    run.observer.begin(f"{run.id}: restore", None)
    for line in backup.lines(path):
        if any(f.from_old(line.key) and line.kind in f.kinds.values() for f in run.families):
            put_line(run, guard_phase="closed", line=line, name=line.key)
        run.observer.advance(1)
        run.tick()
    run.observer.end()


def _discard(run: Run, family: Family, number: int, saving: Backup) -> None:
    """Saves and removes both shapes as they are now, under their names as they are now."""
    kinds = (family.kinds["old"], family.kinds["new"])

    def step(visit: Visit) -> Iterator[Progress]:
        gone: list[bytes] = []
        for key in visit.keys:
            if family.from_old(key) is None and family.from_new(key) is None:
                continue
            kind = run.client.one(key, "TYPE", key).decode()
            if kind not in kinds:
                continue
            lines = (
                dump.bounded(run.client, run.client.db, kind, [(key, key)])
                if not family.by_member
                else dump.collection(run.client, run.client.db, kind, key, key)
            )
            for line in lines:
                saving.write(line)
            gone.append(key)
        saving.commit()
        unlink(run, run.guard("closed"), gone)
        yield Progress({"discarded": len(gone)})

    for side, glob in (("old", family.old_glob), ("new", family.new_glob)):
        Walk(run, f"discard-{number}-{side}", glob, step, count=PAGE_COLLECTIONS, resume=False).all()
    saving.finish()


def _retired_back(run: Run, family: Family, number: int) -> None:
    """What contract had set aside but not yet removed takes its own name again."""

    def step(visit: Visit) -> Iterator[Progress]:
        pairs = [(name, pair) for name in visit.keys if (pair := family.from_retired(name)) is not None]
        guarded(run, run.guard("closed"), [("RENAME", name, pair.old) for name, pair in pairs])
        yield Progress({"restored": len(pairs)})

    Walk(run, f"retired-{number}", family.retired_glob(), step, count=PAGE_COLLECTIONS, resume=False).all()
