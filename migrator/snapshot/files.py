"""Snapshot files: NDJSON, gzip'd or plain. The first line describes the file, the last one tells that it is whole.

A file without the first line (written by hand, or a part of a backup) is read as well; then nothing tells whether its
end is missing.
"""

from __future__ import annotations

import gzip
import os
import secrets
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec
from pydantic import ValidationError

from migrator.errors import RefusedError, UsageError
from migrator.models import FamilyTaken, Frozen
from migrator.snapshot.ndjson import Head, Line, decode, encode, head

FORMAT = 1
_GZIP = b"\x1f\x8b"
_LONGEST = 1 << 30  # bytes of a line: a value of 512 MB, the most a string can hold, fits as base64
_HEADER, _END = b'{"snapshot":', b'{"end":'
_DAMAGED = "the file is damaged or cut short; use another copy"


class Header(Frozen):
    """The first line. `taken_at` is unix ms by the server's clock, `sample` says in words what was left out."""

    format: int = FORMAT
    taken_at: int
    server: str
    databases: tuple[int, ...] = (0,)
    namespace: str
    redacted: bool
    sample: str | None = None


class End(Frozen):
    """The last line: a file that has none is cut short."""

    lines: int
    records: int
    vanished: int = 0
    changed: int = 0
    families: tuple[FamilyTaken, ...] = ()


Id = tuple[int, ...]
Mine = Callable[[Head], bool]  # whether a line is asked for


class SnapshotFile:
    """A file to be read, as often as one likes; `header` and `end` are there once it was read. Of lines that are not
    `mine` only the head is looked at."""

    def __init__(self, path: Path, mine: Mine | None = None) -> None:
        self.path, self._mine = path, mine
        self.header: Header | None = None
        self.end: End | None = None

    def __iter__(self) -> Iterator[Line]:
        """Its records, in memory a line at a time.

        Raises UsageError for a file that is missing, damaged, cut short, out of order, or no snapshot.
        """
        number, before, ids = 0, None, list[Id]()
        for number, raw in enumerate(self.raw_lines(), 1):
            if number == 1 and raw.startswith(_HEADER):
                self.header = _header(raw, f"{self.path}:1")
                continue
            where = f"{self.path}:{number}"
            if self.header and raw.startswith(_END):
                self.end = _end(raw, where)
                continue
            at = head(raw, where) if self._mine else None
            line = decode(raw, where) if at is None or (self._mine and self._mine(at)) else None
            if line is not None:
                ids = _check_stream(line, where, ids if line.part else [])
                at = Head(line.db, line.key, line.part)
            _check_follows(before, at, where)
            before = at
            if line is not None:
                yield line
        if number == 0:
            raise UsageError(f"{self.path} is empty", next="take a snapshot with: migrator snapshot take FILE")
        if self.header and (self.end is None or self.end.lines != number - 2):
            raise UsageError(f"{self.path} is cut short: its last line is missing", next="use another copy of the file")

    def raw_lines(self) -> Iterator[bytes]:
        """Its lines as they stand there. Raises UsageError for a file that is missing, or no snapshot."""
        try:
            with self.path.open("rb") as plain:
                head = plain.read(24)
                plain.seek(0)
                _refuse(self.path, head)
                with gzip.open(plain) if head.startswith(_GZIP) else plain as file:
                    while raw := file.readline(_LONGEST):
                        yield raw
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise UsageError(f"{self.path} cannot be unpacked ({type(error).__name__})", next=_DAMAGED) from None
        except OSError as error:
            raise UsageError(f"cannot read {self.path}: {error.strerror}", next="name another file") from None


def _refuse(path: Path, head: bytes) -> None:
    """What begins like no snapshot: a binary file of any size has no lines."""
    if head.startswith(b"version https://git-lfs"):
        raise UsageError(f"{path} is a Git LFS pointer, not the file itself", next="fetch it with: git lfs pull")
    if head and not head.startswith((b"{", _GZIP)):
        raise UsageError(f"{path} is not a snapshot", next="take one with: migrator snapshot take FILE")


def _check_stream(line: Line, where: str, before: list[Id]) -> list[Id]:
    """Its entries rise, also over those of the parts `before`: what was loaded twice is told by that. Returns the last
    one."""
    entries = line.stream.entries if line.stream else ()
    ids = [*before, *(tuple(map(int, id.split("-"))) for id, _ in entries)]
    if any(id >= following for id, following in pairwise(ids)):
        raise UsageError(f"{where}: the entries of a stream are out of order", next=_DAMAGED)
    return ids[-1:]


def _check_follows(before: Head | None, at: Head | None, where: str) -> None:
    """A part has the number after that of the line before it, which is of the same key."""
    if at and at.part and (before is None or (before.db, before.key, before.part + 1) != at):
        raise UsageError(f"{where}: part {at.part} of a record does not follow part {at.part - 1}", next=_DAMAGED)


def _header(raw: bytes, where: str) -> Header:
    found = _described(raw, "snapshot", where)
    if found.get("format") != FORMAT:
        raise RefusedError(f"{where}: the snapshot has format {found.get('format')!r}, which a newer migrator wrote",
                           next="use the version of migrator that wrote it")  # fmt: skip
    return cast(Header, _validated(Header, found, where))


def _end(raw: bytes, where: str) -> End:
    return cast(End, _validated(End, _described(raw, "end", where), where))


def _described(raw: bytes, name: str, where: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(raw, type=dict[str, dict[str, Any]])[name]
    except msgspec.MsgspecError:
        raise UsageError(f"{where}: not a line of a snapshot", next=_DAMAGED) from None


def _validated(model: type[Frozen], found: dict[str, Any], where: str) -> Frozen:
    try:
        return model.model_validate(found)
    except ValidationError:
        raise UsageError(f"{where}: not a line of a snapshot", next=_DAMAGED) from None


class Writer:
    """A file being written. Nothing is there under its name until it is whole."""

    def __init__(self, file: BinaryIO, header: Header) -> None:
        self._file = file
        self.lines = 0
        self._file.write(_HEADER + header.model_dump_json().encode() + b"}\n")

    def write(self, line: Line) -> None:
        self._file.write(encode(line))
        self.lines += 1

    def finish(self, end: End) -> None:
        self._file.write(_END + end.model_dump_json().encode() + b"}\n")


@contextmanager
def writing(path: Path, header: Header, *, overwrite: bool) -> Iterator[Writer]:
    """A snapshot that gets its name, readable by its owner alone, when the block ends well; gzip'd if it ends in `.gz`.

    Raises UsageError where it cannot be written, RefusedError where a file of that name is there.
    """
    refuse_existing(path, overwrite=overwrite)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as raw:  # noqa: PTH123
            if path.name.endswith(".gz"):
                with gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=6, filename="", mtime=0) as packed:
                    yield Writer(cast(BinaryIO, packed), header)
            else:
                yield Writer(raw, header)
            raw.flush()
            os.fsync(raw.fileno())
        _place(temporary, path, overwrite=overwrite)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", next="name another file") from None
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """Raises RefusedError where a file would be overwritten unasked, UsageError where there is no such directory."""
    if path.exists() and not overwrite:
        raise RefusedError(f"{path} is there already", next="name another file, or add --overwrite")
    if not path.parent.is_dir():
        raise UsageError(f"there is no directory {path.parent}", next="make it, or name another file")


def _place(temporary: Path, path: Path, *, overwrite: bool) -> None:
    if overwrite:
        temporary.replace(path)
        return
    try:
        os.link(temporary, path)  # unlike a rename it never takes the place of a file that appeared meanwhile
    except FileExistsError:
        refuse_existing(path, overwrite=False)
