"""The backup of what is removed: gzip'd parts under a manifest with their SHA-256, durable before anything goes."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import os
import re
import secrets
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError

from migrator.errors import RefusedError, UsageError
from migrator.models import Frozen
from migrator.snapshot.ndjson import Line, decode, encode

MANIFEST = "manifest.json"
PART_BYTES = 32 * 1024 * 1024  # uncompressed; bounds what is not yet durable, and memory
_LOCK_SECONDS = 30.0


class Part(Frozen):
    """One file. `fence` is the number of the lease it was written under: what a stalled process adds late is older
    than what its successor has written already."""

    file: str
    sha256: str
    lines: int
    fence: int = 0


class Manifest(Frozen):
    """What a backup holds. `purpose` is `contract`, `adopted`, `discarded`, `foreign-old` or `foreign-new`; `life` is
    the ledger's: of another server, or begun anew, a migration has the same names and epochs."""

    format: int = 1
    namespace: str
    migration: str
    epoch: int
    purpose: str
    life: str = ""
    parts: tuple[Part, ...] = ()

    def is_of(self, life: str) -> bool:
        """Whether it was written in that life; also where one of them is not known."""
        return not self.life or not life or self.life == life

    @property
    def in_order(self) -> list[Part]:
        """The parts from the oldest to the newest."""
        return sorted(self.parts, key=lambda part: part.fence)


class Backup:
    """One backup directory, written in parts: a part counts once the manifest names it.

    A process that stalled and was replaced may wake and write here beside its successor, before it learns that it
    was fenced: no file is ever written by two, and the manifest takes along what another one added.

    Its methods raise RefusedError where the disk is full, or cannot be written for another reason.
    """

    def __init__(self, directory: Path, manifest: Manifest, fence: int) -> None:
        self.directory, self.fence = directory, fence
        self.manifest = manifest
        self._file: gzip.GzipFile | None = None
        self._raw: BinaryIO | None = None
        self._bytes = self._lines = 0
        self._mark = secrets.token_hex(4)

    @staticmethod
    def create(
        directory: Path, namespace: str, migration: str, epoch: int, purpose: str, fence: int, life: str = ""
    ) -> Backup:
        """A new backup, or the one that is there, to be continued under the lease of that fence.

        Raises RefusedError if it belongs to another run, UsageError where no backup can be kept.
        """
        fresh = Manifest(namespace=namespace, migration=migration, epoch=epoch, purpose=purpose, life=life)
        try:
            _make(directory)
            if not (directory / MANIFEST).exists():
                _try(directory)
        except OSError as error:
            raise UsageError(
                f"cannot write to {directory}: {error.strerror}", next="give another --backup DIR"
            ) from None
        if not (directory / MANIFEST).exists():
            return Backup(directory, fresh, fence)
        found = read_manifest(directory)
        _check_same(directory, found, fresh)
        return Backup(directory, found, fence)

    @property
    def full(self) -> bool:
        return self._bytes >= PART_BYTES

    @property
    def _temporary(self) -> Path:
        return self.directory / f"part-{self._mark}.tmp"

    def write(self, line: Line) -> None:
        with self._told():
            if self._file is None:
                self._raw = _mine(self._temporary)
                self._file = gzip.GzipFile(fileobj=self._raw, mode="wb", compresslevel=1, filename="", mtime=0)
            raw = encode(line)
            self._file.write(raw)
            self._bytes += len(raw)
            self._lines += 1

    def commit(self) -> None:
        """Makes everything written so far durable: the part, then the manifest that names it."""
        if self._file is None or self._raw is None:
            return
        with self._told():
            self._file.close()
            _sync(self._raw)
            self._raw.close()
            digest = _sha256(self._temporary)
            part = Part(file=self._place(), sha256=digest, lines=self._lines, fence=self.fence)
            self.manifest = self.manifest.model_copy(update={"parts": (*self.manifest.parts, part)})
            self._write_manifest()
        self._file, self._raw, self._bytes, self._lines = None, None, 0, 0

    def finish(self) -> None:
        """The last commit; an empty backup gets its manifest too."""
        self.commit()
        with self._told():
            self._write_manifest()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if self._file is not None and self._raw is not None:
                self._file.fileobj = None  # type: ignore[assignment] # or it is written to once more at its end
                self._raw.close()
            with suppress(OSError):
                self._temporary.unlink()  # it is in no manifest, and takes what little room there is
            raise RefusedError(
                f"cannot write to {self.directory}: {error.strerror}; whatever is not saved was not removed",
                next="make room or mend it, then run the same command again: it goes on from here",
            ) from None

    def _place(self) -> str:
        """Gives a finished part the next free name, and never one that is taken."""
        number = len(self.manifest.parts) + 1
        while True:
            name = f"part-{number:05d}.ndjson.gz"
            try:
                _name(self._temporary, self.directory / name)
            except FileExistsError:
                number += 1
            else:
                return name

    def _write_manifest(self) -> None:
        with _alone(self.directory):
            self._merge()

    def _merge(self) -> None:
        if (self.directory / MANIFEST).exists():
            found = read_manifest(self.directory)
            _check_same(self.directory, found, self.manifest)  # two servers may have begun here at the same time
            mine = tuple(part for part in self.manifest.parts if part not in found.parts)
            self.manifest = self.manifest.model_copy(update={"parts": (*found.parts, *mine)})
        temporary = self.directory / f"manifest-{self._mark}.tmp"
        with _mine(temporary) as file:
            file.write(self.manifest.model_dump_json(indent=1).encode() + b"\n")
            _sync(file)
        temporary.replace(self.directory / MANIFEST)
        _sync_directory(self.directory)


def _check_same(directory: Path, found: Manifest, mine: Manifest) -> None:
    """Raises RefusedError where the one that is there is not this one: what both saved could not be told apart."""
    if found.model_copy(update={"parts": (), "life": ""}) != mine.model_copy(update={"parts": (), "life": ""}):
        raise RefusedError(f"{directory} holds another backup", next="give another --backup DIR")
    if not found.is_of(mine.life):
        raise RefusedError(
            f"{directory} holds the backup of another database, or of an earlier life of this migration",
            next="give another --backup DIR, or move that one out of it",
        )


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Nobody else merges the manifest meanwhile, or a part that counts already would be taken out of it again.

    The kernel lets go of the lock when its process ends, not when it is only stopped. Raises RefusedError then.
    """
    until = time.monotonic() + _LOCK_SECONDS
    with (directory / "manifest.lock").open("ab") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise RefusedError(f"another process writes to {directory} and does not go on",
                                       next="end that process, then run the same command again") from None  # fmt: skip
                time.sleep(0.05)
            except OSError as error:
                raise UsageError(f"{directory} lies where files cannot be locked ({error.strerror})",
                                 next="give another --backup DIR") from None  # fmt: skip
        yield


def directory_for(base: Path, namespace: str, migration: str, epoch: int, purpose: str) -> Path:
    """Where a backup of that run lies under `--backup DIR`."""
    return base / f"{namespace.replace(':', '_')}-{migration}-{purpose}-{epoch}"


def newest(base: Path, namespace: str, migration: str, purpose: str, until: int) -> int | None:
    """The epoch of the newest backup of that purpose under `--backup DIR`, of those no later than `until`."""
    prefix = directory_for(base, namespace, migration, 0, purpose).name[:-1]
    names = [path.parent.name for path in base.glob(f"*/{MANIFEST}")]
    epochs = [int(name[len(prefix) :]) for name in names if re.fullmatch(re.escape(prefix) + "[0-9]+", name)]
    return max((epoch for epoch in epochs if epoch <= until), default=None)


def read_manifest(directory: Path) -> Manifest:
    """The manifest. Raises UsageError if there is none or it is not readable."""
    try:
        return Manifest.model_validate_json((directory / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise UsageError(
            f"there is no backup in {directory}", next="give the --backup DIR that contract used"
        ) from None
    except (ValidationError, OSError) as error:
        raise UsageError(f"{directory / MANIFEST} cannot be read ({type(error).__name__})",
                         next="use another copy of the backup") from None  # fmt: skip


def check(directory: Path) -> Manifest:
    """The manifest, once every part was found whole. Raises UsageError for a part that is missing or was changed."""
    manifest = read_manifest(directory)
    for part in manifest.parts:
        path = directory / part.file
        if not path.exists():
            raise UsageError(f"{path} is missing", next="use another copy of the backup; nothing was changed")
        if _sha256(path) != part.sha256:
            raise UsageError(f"{path} is damaged: its SHA-256 is not the one in the manifest",
                             next="use another copy of the backup; nothing was changed")  # fmt: skip
    return manifest


def lines(directory: Path) -> Iterator[Line]:
    """Every record of a checked backup, from the oldest to the newest."""
    for part in read_manifest(directory).in_order:
        path = directory / part.file
        with _readable(path), gzip.open(path, "rb") as file:
            for number, raw in enumerate(file, 1):
                yield decode(raw, f"{path}:{number}")


def newest_lines(directory: Path) -> Iterator[Line]:
    """The same from the newest to the oldest: of a collection the last part first, part 0 at its end.

    Holds one file of the backup in memory, see PART_BYTES.
    """
    for part in reversed(read_manifest(directory).in_order):
        path = directory / part.file
        with _readable(path):
            raws = gzip.decompress(path.read_bytes()).splitlines()
        for number in range(len(raws), 0, -1):
            yield decode(raws[number - 1], f"{path}:{number}")


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Raises UsageError: an OSError would be taken for a lost connection, and the rest of the backup for none."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(
            f"{path} cannot be read ({type(error).__name__})",
            next="make it readable, or use another copy of the backup; then run the same command again",
        ) from None


def _make(directory: Path) -> None:
    """For its owner alone, as what it holds is not redacted; and durably there, with all directories above it."""
    missing = [one for one in (directory, *directory.parents) if not one.exists()]
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for one in missing:
        _sync_directory(one.parent)


def _try(directory: Path) -> None:
    """Does with an empty file all that is done to keep a part: what is not to be had there is told before anything is
    changed."""
    mark = secrets.token_hex(4)
    temporary, named = directory / f"try-{mark}.tmp", directory / f"try-{mark}"
    with _alone(directory), _mine(temporary) as file:
        _sync(file)
    try:
        _name(temporary, named)
        _sync_directory(directory)
    finally:
        for path in (temporary, named):
            path.unlink(missing_ok=True)


def _name(temporary: Path, name: Path) -> None:
    """Gives a finished file a name. Raises FileExistsError where it is taken.

    Not by a link, which not every file system has. Whoever makes the empty file has that name for good, also if it
    stalls before the rename: nobody else makes it, and nobody renames over a name it has not made.
    """
    os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    temporary.replace(name)


def _mine(path: Path) -> BinaryIO:
    """A new file that only its owner may read."""
    return open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600))


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
