"""What the first bytes of a file say: whether it is an RDB file, of whose format and version, written by what."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from migrator.errors import UsageError

OTHER_COPY = "use another copy of the file"
OTHER = f"{OTHER_COPY}, or give a server that reads it with --server BIN"
_MAGIC = re.compile(rb"REDIS(\d{4})|VALKEY(\d{3})")
_AUX = 0xFA
_CHECKSUMMED = 5
_LONGEST = 4096  # an AUX field of a server is short; what is longer is a script, and no field we ask for


@dataclass(frozen=True, slots=True)
class Header:
    """`valkey`: Valkey's own format (80 and later), where bytes of types mean other things than in Redis's.

    `aux` are the fields before the first key, as the server wrote them: `redis-ver` or `valkey-ver`, `aof-preamble`, …
    `size` is that of the file in bytes. `ends`: its last bytes look like the end of an RDB, the end mark and from
    version 5 on a checksum.
    """

    valkey: bool
    version: int
    aux: dict[str, bytes] = field(default_factory=dict)
    size: int = 0
    ends: bool = True

    @property
    def checksummed(self) -> bool:
        return self.version >= _CHECKSUMMED

    def __str__(self) -> str:
        return f"RDB version {self.version}{' of Valkey' if self.valkey else ''}"

    @property
    def written_at(self) -> int | None:
        """Unix ms, None where the file does not say."""
        seconds = self.aux.get("ctime", b"")
        return int(seconds) * 1000 if re.fullmatch(rb"\d{1,11}", seconds) else None

    @property
    def writer(self) -> str:
        """The server that wrote it, or "" where the file does not say."""
        name = "valkey" if self.valkey or "valkey-ver" in self.aux else "redis"
        version = self.aux.get(f"{name}-ver", b"").decode("ascii", "replace")
        return f"{name} {version}" if version else ""


def is_rdb(path: Path) -> bool:
    """Whether a file begins as an RDB file does. Raises UsageError if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(6).startswith((b"REDIS", b"VALKEY"))
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> UsageError:
    return UsageError(f"cannot read {path}: {error.strerror}", next="name another file")


def read_header(path: Path) -> Header:
    """Raises UsageError for what is no RDB file, and for an append-only file that only begins as one."""
    try:
        with path.open("rb") as file:
            header = _read(path, file)
    except OSError as error:
        raise _unreadable(path, error) from None
    if header.aux.get("aof-preamble", b"0") != b"0" and not header.ends:
        raise UsageError(
            f"{path} is an append-only file: its commands stand behind an RDB part, and would be lost",
            next="start a server with it, and give the file that BGSAVE writes",
        )
    return header


def _read(path: Path, file: BinaryIO) -> Header:
    first = file.read(9)
    found = _MAGIC.fullmatch(first)
    if found is None:
        raise UsageError(f"{path} is no RDB file: {_what_it_is(first)}", next=_what_helps(first))
    version, aux = int(found[1] or found[2]), {}
    while file.read(1) == bytes([_AUX]):
        name, value = _string(file), _string(file)
        if name is None or value is None:
            break
        aux[name.decode("ascii", "replace")] = value
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - (9 if version >= _CHECKSUMMED else 1)))
    return Header(found[2] is not None, version, aux, size, file.read(1) == b"\xff")


def _what_it_is(first: bytes) -> str:
    if not first:
        return "it is empty"
    if first.startswith(b"version h"):
        return "it is a pointer of Git LFS, and the content is elsewhere"
    return "it does not begin with REDIS or VALKEY and a version"


def _what_helps(first: bytes) -> str:
    return "run git lfs pull, then the same command again" if first.startswith(b"version h") else OTHER_COPY


def _string(file: BinaryIO) -> bytes | None:
    """A string of an AUX field, None for one that is compressed, too long or cut off."""
    first = file.read(1)
    if not first:
        return None
    kind, low = first[0] >> 6, first[0] & 0x3F
    if kind == 3:
        size = {0: 1, 1: 2, 2: 4}.get(low)
        raw = file.read(size) if size else b""
        return str(int.from_bytes(raw, "little", signed=True)).encode() if raw and len(raw) == size else None
    length = low if kind == 0 else int.from_bytes(bytes([low]) + file.read(1)) if kind == 1 else _LONGEST + 1
    text = file.read(length) if length <= _LONGEST else b""
    return text if len(text) == length else None
