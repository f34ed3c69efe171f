"""An RDB file loaded whole by a throw-away server that can read it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from migrator.client import ResponseError, checked, connect
from migrator.errors import UnreachableError, UsageError
from migrator.snapshot import embedded
from migrator.snapshot.rdb import programs
from migrator.snapshot.rdb.header import OTHER, Header, read_header
from migrator.snapshot.rdb.programs import Program, Refusal

DATABASES = 1024  # 16,384 take Redis 8 a twentieth of a second more
_UNCHECKED = "checksum disabled"
_LOADED = "DB loaded from disk"


@dataclass(frozen=True, slots=True)
class Report:
    """`keys`: those that are there to be seen. `expired`: keys left out because their time had passed. `not_visible`:
    keys the reader could not see. `notes` are sentences."""

    reader: str
    keys: int
    expired: int = 0
    not_visible: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Served:
    """A server of our own with the content of a file; gone when the `with` ends."""

    url: str
    report: Report
    header: Header


class NotServedError(UsageError):
    """No server at hand loads the file. `unknown`: each met something it does not know; else the file is damaged."""

    def __init__(self, message: str, *, next: str, refusals: Sequence[Refusal]) -> None:
        super().__init__(message, next=next)
        self.refusals = tuple(refusals)
        self.unknown = all(refusal.unknown for refusal in refusals)


@contextmanager
def served(path: Path, server: Path | None = None) -> Iterator[Served]:
    """The file's content behind `served.url`, on a unix socket in a private directory; the file itself is only read.

    `server` is a program to use instead of those at hand. Raises UsageError for what is no RDB file, NotServedError
    for what no program loads whole.
    """
    header = read_header(path)
    refusals: list[Refusal] = []
    for program in programs.at_hand(header, server):
        home = embedded.make_home()
        process = None
        try:
            process, refusal = _start(program, home, path, header)
            if refusal is None:
                yield Served(_url(home), _report(program, home, path, header), header)
                return
            refusals.append(refusal)
        finally:
            if process is not None:
                embedded.dismiss(process, at_once=True)
            shutil.rmtree(home, ignore_errors=True)
    raise _not_served(path, header, refusals)


def _url(home: Path) -> str:
    return f"unix://{home}/sock?db=0"


def _start(program: Program, home: Path, path: Path, header: Header) -> tuple[subprocess.Popen[bytes], Refusal | None]:
    # A link: a file of any size is there at once. Should the server save, it would replace the link.
    (home / "dump.rdb").symlink_to(path.resolve())
    listen = ["--port", "0", "--unixsocket", str(home / "sock"), "--unixsocketperm", "700"]
    where = ["--dir", str(home), "--dbfilename", "dump.rdb", "--databases", str(DATABASES)]
    quiet = ["--save", "", "--appendonly", "no", "--loglevel", "notice", *program.options(header)]
    process = embedded.spawn(home, str(program.path), *listen, *where, *quiet)
    try:
        embedded.wait_until_up(process, home, embedded.patience(header.size))
    except UnreachableError:
        if process.poll() is None:
            return process, Refusal(str(program), "it did not come to an end with loading", unknown=False)
        return process, programs.refused(program, _log(home))
    except BaseException:
        embedded.dismiss(process, at_once=True)
        raise
    if _LOADED not in _log(home):  # a server that finds no file starts without one
        return process, Refusal(str(program), "it started without the file", unknown=False)
    return process, None


def _log(home: Path) -> str:
    return (home / "log").read_text("utf-8", "replace")


def _report(program: Program, home: Path, path: Path, header: Header) -> Report:
    notes = []
    if not header.checksummed:
        notes.append(f"integrity unchecked: {header} has no checksum")
    elif _UNCHECKED in _log(home):
        notes.append("integrity unchecked: the file was saved without a checksum")
    if not header.ends:
        notes.append("bytes behind the end of the RDB were not read")
    client = connect(_url(home))
    info, functions = client.on_node(client.nodes()[0], ("INFO",), ("FUNCTION", "LIST"))
    if functions and not isinstance(functions, ResponseError):
        notes.append(f"libraries of functions, which are no records and not taken along: {len(functions)}")
    there, expired = _counts(checked(info).decode("utf-8", "replace"), _log(home))
    if expired is None:  # before Redis 7
        expired = programs.check(program, path).expired
    return Report(str(program), there, expired, 0, tuple(notes))


def _counts(info: str, log: str) -> tuple[int, int | None]:
    """Keys that are there, and keys that are not because their time had passed; None where INFO does not count them.

    A hash whose fields have all expired is dropped too: Valkey counts it in its log alone, Redis lets it go once it is
    loaded.
    """
    there = sum(map(int, re.findall(r"^db\d+:keys=(\d+)", info, re.MULTILINE)))
    counted = dict(re.findall(r"^rdb_last_load_keys_(loaded|expired):(\d+)", info, re.MULTILINE))
    if "expired" not in counted:
        return there, None
    emptied = re.search(r"all fields expired hashes: (\d+)", log)
    gone = max(0, int(counted["loaded"]) - there)
    return there, int(counted["expired"]) + gone + (int(emptied[1]) if emptied else 0)


def _not_served(path: Path, header: Header, refusals: list[Refusal]) -> NotServedError:
    why = "; ".join(map(str, refusals)) or "there is none at hand"
    if refusals and not all(refusal.unknown for refusal in refusals):
        return NotServedError(f"{path} is refused: {why}", next=OTHER, refusals=refusals)
    return NotServedError(
        f"no server loads {path} ({header}): {why}",
        next=f"give one that does with --server BIN, {_who(header)}",
        refusals=refusals,
    )


def _who(header: Header) -> str:
    if header.valkey:
        return "Valkey 9 or later"
    return "Redis 8 or later" if header.version > 11 else f"or {embedded.INSTALL}"
