"""The backups of one run: where each lies under `--backup DIR`, and opened to be written."""

from __future__ import annotations

from pathlib import Path

from migrator.engine.run import Run
from migrator.snapshot.backup import Backup, directory_for


def backup_in(run: Run, base: Path, purpose: str, epoch: int) -> Path:
    """Where it lies, whether it is there or not; for `purpose` see Manifest."""
    return directory_for(base, run.names.namespace, run.id, epoch, purpose)


def open_backup(run: Run, base: Path, purpose: str, epoch: int) -> Backup:
    """A new one, or the one that is there, to be continued under this lease. Raises RefusedError, UsageError."""
    path = backup_in(run, base, purpose, epoch)
    return Backup.create(path, run.names.namespace, run.id, epoch, purpose, run.lease.fence.number)
