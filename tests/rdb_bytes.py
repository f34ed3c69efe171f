"""RDB files made by hand, a few bytes each."""

from __future__ import annotations

import time
from pathlib import Path

from migrator.snapshot.rdb.crc64 import crc64

PAST, FUTURE = 1_000, int(time.time() * 1000) + 86_400_000  # unix ms


def short(text: bytes) -> bytes:
    """A string of at most 63 bytes."""
    return bytes([len(text)]) + text


def db(number: int) -> bytes:
    return b"\xfe" + (bytes([number]) if number < 64 else b"\x80" + number.to_bytes(4))


def announce(keys: int, mortal: int = 0) -> bytes:
    return bytes([0xFB, keys, mortal])


def aux(name: bytes, value: bytes) -> bytes:
    return b"\xfa" + short(name) + short(value)


def string(key: bytes, value: bytes, expires: int | None = None) -> bytes:
    return (b"" if expires is None else b"\xfc" + expires.to_bytes(8, "little")) + b"\x00" + short(key) + short(value)


def file(path: Path, *parts: bytes, magic: bytes = b"REDIS0011", checksum: bool = True, behind: bytes = b"") -> Path:
    """The parts between the magic and the end mark, with the checksum their version has (or eight zeros)."""
    content = magic + b"".join(parts) + b"\xff"
    trailer = b"" if magic < b"REDIS0005" else crc64([content]).to_bytes(8, "little") if checksum else bytes(8)
    path.write_bytes(content + trailer + behind)
    return path
