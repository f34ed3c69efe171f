"""The backups of one run: where each lies under `--backup DIR`, and opened to be written."""

from __future__ import annotations

from pathlib import Path

from migrator.engine.run import Run
from migrator.errors import RefusedError
from migrator.snapshot.backup import MANIFEST, Backup, check, directory_for, newest


def backup_in(run: Run, base: Path, purpose: str, epoch: int) -> Path:
    """Where it lies, whether it is there or not; for `purpose` see Manifest."""
    return directory_for(base, run.names.namespace, run.id, epoch, purpose)


def contract_epoch(run: Run, base: Path) -> int:
    """Which contract's backup is meant; 0 where it saved nothing. Known from markers alone (there is no `backup` then),
    it may be an earlier one than they tell: a way back was given up since."""
    said, last = run.entry.backup_epoch, run.entry.epoch
    if run.entry.backup or not said or (backup_in(run, base, "contract", said) / MANIFEST).exists():
        return said
    return newest(base, run.names.namespace, run.id, "contract", last) or said


def open_backup(run: Run, base: Path, purpose: str, epoch: int) -> Backup:
    """A new one, or the one that is there, to be continued under this lease. Raises RefusedError, UsageError."""
    path = backup_in(run, base, purpose, epoch)
    return Backup.create(path, run.names.namespace, run.id, epoch, purpose, run.lease.fence.number, run.entry.life)


def check_backup(run: Run, path: Path) -> None:
    """Raises UsageError where it is not there or not whole, RefusedError where others saved it."""
    if not check(path).is_of(run.entry.life):
        raise RefusedError(
            f"{run.id}: {path} holds the backup of another database, or of an earlier life of this migration",
            next="give the --backup DIR that this one was saved to; nothing was taken from that one",
        )
