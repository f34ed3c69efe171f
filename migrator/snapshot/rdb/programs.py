"""The server programs at hand for an RDB file, and what they say of it without loading it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from migrator.errors import UsageError
from migrator.snapshot import embedded
from migrator.snapshot.rdb import apart
from migrator.snapshot.rdb.header import Header

_RELAXED = range(12, 14)
_NAME = re.compile(r"(Redis|Valkey) server v=((\d+)[\w.]*)")
_ASK_SECONDS = 10.0
# What a server says of content it does not know. Whatever else it says means that the file is damaged.
_UNKNOWN = re.compile(
    r"Can't handle RDB format version|Wrong signature|[Uu]nknown object type|foreign type or opcode"
    r"|Invalid object type|module|more than \d+ databases"
)
_UNIMPORTANT = re.compile(r"AUX FIELD|Selecting DB|looks OK|Check RDB returned|Checking RDB|Checksum OK")


@dataclass(frozen=True, slots=True)
class Program:
    """A server program of Redis or Valkey. `version` is what it says of itself, `major` its first number."""

    path: Path
    valkey: bool
    version: str
    major: int

    def __str__(self) -> str:
        return f"{'Valkey' if self.valkey else 'Redis'} {self.version}"

    def options(self, header: Header) -> list[str]:
        """Valkey 9 reads the versions that Redis went on to as well if told so: what they added it refuses by its type,
        so such a file is loaded whole or not at all. It would take a version of Valkey's own future on trust."""
        relaxed = self.valkey and self.major >= 9 and not header.valkey and header.version in _RELAXED
        return ["--rdb-version-check", "relaxed"] if relaxed else []


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a program does not take a file. `unknown`: it holds something the program does not know, damaged or not."""

    program: str
    reason: str
    unknown: bool

    def __str__(self) -> str:
        return f"{self.program} says: {self.reason}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a checker found: the reason of a refusal or None, whether a checksum was compared, keys past their time."""

    refusal: Refusal | None
    checksum: bool
    expired: int


def at_hand(header: Header, given: Path | None) -> list[Program]:
    """The given program alone, else the embedded one and those on PATH, the likeliest to know the format first.

    Raises UsageError if the given one is no server.
    """
    if given is not None:
        program = _ask(Path(shutil.which(given) or given).absolute())
        if program is None:
            raise UsageError(f"{given} is no Redis or Valkey server that runs here",
                             next="give the path of a redis-server or valkey-server")  # fmt: skip
        return [program]
    found = [program for path in _paths() if (program := _ask(path)) is not None]
    # Redis and Valkey parted after version 11; up to there either will do, and the embedded one comes first.
    return sorted(found, key=lambda one: header.version > 11 and one.valkey != header.valkey)


def _paths() -> Iterator[Path]:
    with suppress(UsageError):  # not installed
        yield embedded.server_binary()
    for name in ("valkey-server", "redis-server"):
        path = shutil.which(name)
        if path is not None:
            yield Path(path)


@cache
def _ask(path: Path) -> Program | None:
    try:
        done = subprocess.run([str(path), "--version"], capture_output=True, timeout=_ASK_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    told = _NAME.search(done.stdout.decode("utf-8", "replace"))
    return Program(path, told[1] == "Valkey", told[2], int(told[3])) if told else None


def check(program: Program, path: Path) -> Verdict:
    """The program under the name of its checker. It reads the whole file, and knows more formats than it can load."""
    name = "valkey-check-rdb" if program.valkey else "redis-check-rdb"
    status, told = apart.run(program.path, str(path), seconds=embedded.patience(path.stat().st_size), name=name)
    if status is None:
        return Verdict(Refusal(str(program), "the check came to no end", unknown=False), False, 0)
    expired = re.search(r"^\[info\] (\d+) already expired", told, re.MULTILINE)
    refusal = None if status == 0 else refused(program, told)
    return Verdict(refusal, "Checksum OK" in told, int(expired[1]) if expired else 0)


def refused(program: Program, told: str) -> Refusal:
    """From what a program wrote: the place where it stopped says most. Never a value, and no key."""
    lines = [line.strip() for line in told.splitlines() if not _UNIMPORTANT.search(line)]
    places = [line for line in lines if line.startswith("[offset ")]
    complaints = [line.partition(" # ")[2] for line in lines if " # " in line and "WARNING" not in line]
    unknown = next((line for line in complaints if _UNKNOWN.search(line)), None)
    reason = unknown or (places[-1] if places else complaints[0] if complaints else "it ended without a reason")
    return Refusal(str(program), reason.rpartition(" -> ")[2], _UNKNOWN.search(reason) is not None)
