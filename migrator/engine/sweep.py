"""Contract's removal: the old shape steps aside, is saved durably, and only then goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from migrator.client import Arg, Command, checked
from migrator.engine import dump
from migrator.engine.backfill import PAGE_COLLECTIONS, PAGE_KEYS, parse_old
from migrator.engine.batches import by_slot, key_batches
from migrator.engine.guarded import guarded, unlink
from migrator.engine.guards import release_claim
from migrator.engine.judge import judge_keys
from migrator.engine.lasting import lasting
from migrator.engine.run import Run
from migrator.engine.saving import open_backup
from migrator.engine.walk import Progress, Visit, Walk
from migrator.errors import DifferencesError, RefusedError
from migrator.models import number_of
from migrator.moves.family import Family, Pair, Side
from migrator.moves.values import members_from_page, scan_words
from migrator.phases import Phase
from migrator.phases.markers import refusal
from migrator.scripts import script
from migrator.snapshot.backup import Backup
from migrator.snapshot.ndjson import Line

_CODES = {1: "retired", 2: "done", 3: "unmoved", 4: "taken", 5: "foreign"}
_REMOVE = {"hash": "HDEL", "zset": "ZREM", "set": "SREM"}


def sweep(run: Run) -> None:
    """Everything after the marker says `contracted`; may be stopped anywhere and repeated."""
    counts, saved = lasting(run, lambda: (retire_all(run), save_retired(run)))
    left = counts["unmoved"] + counts["taken"]
    if left:
        # Looked at again by the next run: the cause may be settled by then.
        run.lease.write(run.ledger.forget_words(run.id, "retire"))
        raise DifferencesError(
            f"{run.id}: {number_of(left, 'old record')} without a new one, left as found: something without an adapter "
            "wrote after the switch",
            next=f"go back with: migrator rollback {run.module.number} --to switched --backup DIR --yes",
        )
    release_claim(run)
    detail = f"{number_of(saved, 'old record')} saved and removed"
    run.change("contracted", detail=detail, swept=True, saved=True)
    _take_census(run)
    run.observer.say(f"{run.id}: the old shape is removed ({number_of(saved, 'record')} in the backup)")


def _take_census(run: Run) -> None:
    """Of the counts that the last comparison left, the old ones are nothing now."""
    _, counts = run.census.read()
    for family in run.families:
        if (last := counts.get(family.move.source.template)) is not None:
            run.count(family, 0, last.new)
    run.put()


def retire_all(run: Run) -> Counter[str]:
    """Every old record steps aside; what became of them."""
    counts: Counter[str] = Counter()
    for number, family in enumerate(run.families):
        run.observer.begin(f"{run.id}: retire the old shape", None)
        counts.update(retire(run, family, f"retire-{number}", family.old_glob))
        if family.same_name:
            counts.update(retire(run, family, f"retire-staged-{number}", family.new_glob))
        run.observer.end()
    return counts


def retire(run: Run, family: Family, name: str, glob: bytes) -> Counter[str]:
    """Renames every old key out of the way; a staged new one takes the final name in the same step."""

    def step(visit: Visit) -> Iterator[Progress]:
        parse = family.from_old if glob == family.old_glob else family.from_new
        pairs = [pair for key in visit.keys if (pair := parse(key)) is not None]
        for start in range(0, len(pairs), PAGE_COLLECTIONS):
            batch = pairs[start : start + PAGE_COLLECTIONS]
            accepted = [run.quarantine.accepted_key(pair.key.raw) for pair in batch]
            codes = rename(run, family, "retire", ("contracted",), batch, accepted)
            unmoved = [pair for pair, code in zip(batch, codes, strict=True) if _CODES[code] == "unmoved"]
            empty = _to_nothing(run, family, unmoved)
            found = Counter(_CODES[code] for code in codes)
            if empty:
                again = rename(run, family, "retire", ("contracted",), empty, [True] * len(empty))
                found.subtract({"unmoved": len(empty)})
                found.update(_CODES[code] for code in again)
            yield Progress(found)

    return Walk(run, name, glob, step, count=PAGE_KEYS).all()


def _to_nothing(run: Run, family: Family, pairs: Sequence[Pair]) -> list[Pair]:
    """Those whose mapping is empty: no new record is what they should have."""
    return [d.pair for d in judge_keys(run, family, pairs) if d.verdict == "equal"] if pairs else []


def rename(
    run: Run, family: Family, name: str, phases: tuple[Phase, ...], pairs: Sequence[Pair], accepted: Sequence[bool]
) -> list[int]:
    """Sends records to `retire.lua` or `revive.lua`, one call a slot; the codes it gave."""
    groups = by_slot(run.client, range(len(pairs)), lambda i: pairs[i].old)
    commands: list[Command] = []
    for slot, indexes in groups.items():
        keys, flags = [run.markers.key(slot)], list[Arg]()
        for i in indexes:
            keys += (pairs[i].old, pairs[i].new, family.retired(pairs[i]))
            flags.append("1" if accepted[i] else "0")
        args = [*run.guard(*phases).args(), family.kinds["old"], family.kinds["new"], family.mode, *flags]
        commands.append(Command.eval(script(name), keys, args))
    codes = [0] * len(pairs)
    for indexes, reply in zip(groups.values(), run.client.run(commands), strict=True):
        for i, code in zip(indexes, refusal(reply, run.id), strict=True):
            codes[i] = code
    return codes


def save_retired(run: Run) -> int:
    """Pages what was retired into the backup and, once that is durable, removes it. Returns how many records."""
    total, backup = _save_all(run, keep_accepted=True)
    if backup is None and run.entry.backup:
        backup = contract_backup(run)
    if backup is not None:
        backup.finish()
    return total


def drop_retired(run: Run) -> None:
    """The same at the end of the way back, of accepted records too, which have their old names again: what is left may
    hold other bytes than were put back."""
    _, backup = _save_all(run, keep_accepted=False)
    if backup is not None:
        backup.finish()


def _save_all(run: Run, *, keep_accepted: bool) -> tuple[int, Backup | None]:
    total = 0
    backup: Backup | None = None
    for number, family in enumerate(run.families):
        saver = _Saver(run, family, backup, keep_accepted=keep_accepted)
        run.observer.begin(f"{run.id}: save and remove", None)
        with run.throttle.freeing():
            counts = Walk(run, f"save-{number}", family.retired_glob(), saver.step, count=PAGE_KEYS, resume=False).all()
        saver.flush()
        run.observer.end()
        total, backup = total + counts["saved"], saver.backup
    return total, backup


def contract_backup(run: Run, epoch: int = 0) -> Backup:
    """The backup of this contract, to be continued; `epoch` where the ledger does not have it yet.

    Raises RefusedError where no directory was given.
    """
    epoch = epoch or run.entry.backup_epoch
    base = run.options.backup
    if base is None:
        raise RefusedError(f"{run.id}: the old shape is not removed without a backup", next="add --backup DIR")
    return open_backup(run, base, "contract", epoch)


class _Saver:
    """Writes retired records to the backup and unlinks them after each commit."""

    def __init__(self, run: Run, family: Family, backup: Backup | None, *, keep_accepted: bool) -> None:
        self._run, self._family, self.backup, self._keep = run, family, backup, keep_accepted
        self._pending: list[bytes] = []
        self._guard = run.guard()

    def step(self, visit: Visit) -> Iterator[Progress]:
        run, family = self._run, self._family
        pairs = [pair for name in visit.keys if (pair := family.from_retired(name)) is not None]
        if family.by_member:
            for pair in pairs:
                yield Progress({"saved": self._collection(pair)})
        else:
            # Sizes are asked of the retired names: that is where the values are now.
            names = {family.retired(pair): pair for pair in pairs}
            moved = [Pair(pair.key, name, pair.new) for name, pair in names.items()]
            for batch, lines in lines_of(run, family, "old", moved):
                yield Progress({"saved": self._keys(batch, lines)})

    def _keys(self, batch: Sequence[Pair], lines: Sequence[Line]) -> int:
        for line in lines:
            self._open().write(line)
        saved = {line.key for line in lines}  # all but what expired meanwhile
        if self._keep:
            saved = {key for key in saved if not self._run.quarantine.accepted_key(key)}
        self._pending += [pair.old for pair in batch if pair.key.raw in saved]
        self._flush_if_full()
        return len(lines)

    def _collection(self, pair: Pair) -> int:
        name, kind = self._family.retired(pair), self._family.kinds["old"]
        accepted = self._run.quarantine.accepted_members(pair.key.raw) if self._keep else set[bytes]()
        saved = 0
        for line in dump.collection(self._run.client, self._run.client.db, kind, name, pair.key.raw):
            self._open().write(line._replace(kept=bool(accepted)))
            saved += len(line.items) // (1 if kind == "set" else 2)
            if self.backup is not None and self.backup.full:
                self.backup.commit()
            self._run.tick()
        if accepted:
            self._open().commit()
            self._strip(name, accepted)
        else:
            self._pending.append(name)
        self._flush_if_full()
        return saved

    def _strip(self, name: bytes, accepted: set[bytes]) -> None:
        """Accepted members stay where they are; the others of that collection go."""
        kind, cursor = self._family.kinds["old"], b"0"
        while True:
            cursor, flat = self._run.client.one(name, *scan_words(kind, name, int(cursor), dump.PAGE))
            gone = [member for member, _ in members_from_page(kind, flat) if member not in accepted]
            for start in range(0, len(gone), dump.PAGE):
                guarded(self._run, self._guard, [(_REMOVE[kind], name, *gone[start : start + dump.PAGE])])
            if cursor == b"0":
                return

    def _open(self) -> Backup:
        if self.backup is None:
            self.backup = contract_backup(self._run)
        return self.backup

    def _flush_if_full(self) -> None:
        if len(self._pending) >= 20 * PAGE_KEYS or (self.backup is not None and self.backup.full):
            self.flush()

    def flush(self) -> None:
        """Commits the backup, then removes what it holds."""
        if self.backup is not None:
            self.backup.commit()
        for start in range(0, len(self._pending), PAGE_KEYS):
            unlink(self._run, self._guard, self._pending[start : start + PAGE_KEYS])
            self._run.tick()
        self._pending = []


def lines_of(run: Run, family: Family, side: Side, pairs: Sequence[Pair]) -> Iterator[tuple[list[Pair], list[Line]]]:
    """Whole keys for the backup, in batches bounded by bytes; one that is too large for that, alone: it may have grown
    since it was compared, and nothing is removed that is not saved."""
    client, kind, too_large = run.client, family.kinds[side], list[Pair]()
    for batch in key_batches(run, family, side, pairs, too_large):
        names = [(pair.old if side == "old" else pair.new, pair.key.raw) for pair in batch]
        yield batch, dump.bounded(client, client.db, kind, names)
    for pair in too_large:
        name = pair.old if side == "old" else pair.new
        yield [pair], dump.large(client, client.db, kind, name, pair.key.raw)


def save_native(run: Run, epoch: int) -> None:
    """Records that have the new shape under the final name already are no old ones, and are never removed; but a
    restore replaces everything under these names, so they are in the backup too."""
    for number, family in enumerate(run.families):
        if not family.same_name:
            continue
        saving: list[Backup] = []

        def step(visit: Visit, family: Family = family, saving: list[Backup] = saving) -> Iterator[Progress]:
            types = run.client.each("TYPE", visit.keys)
            is_new = [checked(reply).decode() == family.kinds["new"] for reply in types]
            found = [pair for k, new in zip(visit.keys, is_new, strict=True) if new and (pair := family.from_old(k))]
            if found and not saving:
                saving.append(contract_backup(run, epoch))
            pairs = [Pair(pair.key, pair.old, pair.old) for pair in found]  # its final name
            for batch, lines in lines_of(run, family, "new", pairs):
                for line in lines:
                    saving[0].write(line)
                if saving[0].full:  # a part is held in memory when it is read
                    saving[0].commit()
                yield Progress({"saved": len(batch)})

        Walk(run, f"native-{number}", family.old_glob, step, count=PAGE_COLLECTIONS, resume=False).all()
        for backup in saving:
            backup.finish()


def any_old(run: Run) -> bool:
    """Whether there is any record in the old shape. Reads only."""
    for family in run.families:
        for keys in run.client.pages(family.old_glob, PAGE_KEYS):
            pairs, _ = parse_old(family, keys)
            types = run.client.each("TYPE", [pair.old for pair in pairs])
            if any(checked(reply).decode() == family.kinds["old"] for reply in types):
                return True
            run.tick()
    return False
