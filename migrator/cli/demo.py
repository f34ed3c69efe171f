"""The demo: the real commands, one after another, on a server of its own that is gone afterwards."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import migrator
from migrator.cli import demo_records as data
from migrator.client import Client, Command, checked, connect
from migrator.snapshot.embedded import EmbeddedServer

_PACKAGE = Path(migrator.__file__).resolve().parent
_MIGRATIONS = ("_prefix.py", "0001_jobs_to_hashes.py", "0002_timestamps_to_sorted_sets.py")
_BACK = ("rollback", "0002", "--backup", "backups", "--yes")

Hashes = dict[bytes, tuple[dict[bytes, bytes], int]]


@dataclass(frozen=True)
class Run:
    """A command of ours: why, what is typed, how it is to end, and how many of its lines are shown (0: all)."""

    why: str
    words: tuple[str, ...]
    exit: int = 0
    lines: int = 0


@dataclass(frozen=True)
class Write:
    """A write by somebody else: an operator who mends a record, or the application."""

    why: str
    words: data.Words


STORY: tuple[Run | Write, ...] = (
    Run("What would the second migration do? A plan reads real records and writes nothing.", ("plan", "0002")),
    Run("Now both, in order. This one is meant to stop, with exit code 32: three of the jobs cannot be mapped, "
        "and that is for a person to decide.", ("apply",), exit=32),
    Run("Which ones, and why?", ("quarantine", "list", "0001")),
    Run("Nobody needs these three. Accepted, they keep their old shape and no longer hold the migration up.",
        ("quarantine", "accept", "0001", "--all")),
    Run("The same command goes on from where it stopped. It is meant to stop once more: one timestamp is no number.",
        ("apply",), exit=32),
    Run("", ("quarantine", "list", "0002")),
    Write("This record is worth mending.", ("HSET", data.USERS, data.BROKEN_FIELD, data.MENDED_TICKS)),
    Run("", ("quarantine", "retry", "0002")),
    Run("Nothing is in the way now. Every record of both shapes is compared before a migration counts as verified.",
        ("apply", "0002")),
    Run("Old and new stand side by side, and nothing has been removed. In earnest one would stay here for a while.",
        ("status",)),
    Run("The old shape goes: compared once more, saved under backups/, then removed.",
        ("apply", "--through", "contract", "--backup", "backups", "--yes")),
    Run("Everything that was done is on record.", ("history", "0002"), lines=9),
    Write("The application goes on, and writes to the new shape only.",
          ("ZADD", data.USERS_NEW, data.LATE_TICKS, data.LATE_FIELD)),
    Run("And now back, step by step. First the old shape is rebuilt, from the backup and from what was written "
        "since; the new one is still the one that is read.", _BACK),
    Run("Both shapes again, compared record by record.", ("verify", "0002")),
    Run("The next step back: the old shape is the one that is read.", _BACK),
    Run("The last step: the new shape is removed.", _BACK),
)  # fmt: skip


class UnexpectedError(Exception):
    """A command or the data did not come out as the story tells it."""


def play(_: Path | None = None) -> int:
    """Plays it and returns the exit code: 1 if anything came out otherwise. It has its own copies of the migrations."""
    try:
        with _stoppable(), EmbeddedServer(tcp=False) as server:
            assert server.home is not None
            here = server.home / "demo"  # in the server's own directory: it goes when the server goes, whatever ends us
            _lay_out(here)
            _play(server.url, here)
    except UnexpectedError as error:
        print(f"\nThe demo failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as stop:
        print("\nStopped. The server and its data are gone.", file=sys.stderr)
        return 128 + int(stop.args[0] if stop.args else signal.SIGINT)
    _tell("Where to go from here: README.md says how it works, runbooks/ what to do when something goes wrong, and "
          "`migrator new NAME --kind key` writes a first migration of your own that explains itself.")  # fmt: skip
    return 0


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM ends the demo as Ctrl-C does, cleanly; a job in the background inherits SIGINT ignored."""

    def heard(signum: int, _: object) -> None:
        raise KeyboardInterrupt(signum)

    before = {number: signal.signal(number, heard) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _lay_out(here: Path) -> None:
    """A directory as a user has it. In a checkout the migrations are the repository's, in a wheel our own copies."""
    shipped = _PACKAGE / "shipped"
    source = shipped if shipped.is_dir() else _PACKAGE.parent / "migrations"
    (here / "migrations").mkdir(parents=True)
    for name in _MIGRATIONS:
        shutil.copy(source / name, here / "migrations" / name)


def _play(url: str, here: Path) -> None:
    client = connect(url, patience=0)
    replies = client.run([Command(b"", words) for words in data.records()])
    for reply in replies:
        checked(reply)
    loaded = _timestamps(client)
    jobs, timestamps = 3 * data.JOBS_PER_ERA + 3, sum(len(fields) for fields, _ in loaded.values())
    _tell(f"A Valkey server of our own is up, with {jobs} jobs kept as JSON strings and {timestamps} timestamps kept "
          "in hashes; a few records are broken. Two migrations carry the jobs to hashes and the timestamps to sorted "
          "sets. Every command below is run as you would type it; only its progress lines are left out.")  # fmt: skip
    environment = _environment(url)
    for step in STORY:
        if isinstance(step, Run):
            _run(step, environment, here)
        else:
            _write(step, client)
    _prove(loaded, _timestamps(client))


def _environment(url: str) -> dict[str, str]:
    """None of the user's own settings; the package is found from any directory."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MIGRATOR_")}
    path = os.pathsep.join(filter(None, [str(_PACKAGE.parent), env.get("PYTHONPATH")]))
    return {**env, "PYTHONPATH": path, "PYTHONUTF8": "1", "MIGRATOR_URL": url}


def _run(step: Run, environment: Mapping[str, str], here: Path) -> None:
    _tell(step.why)
    _typed("migrator", step.words)
    command = [sys.executable, "-m", "migrator", *step.words]
    done = subprocess.run(command, env=environment, cwd=here, capture_output=True, encoding="utf-8", check=False)
    if done.returncode != step.exit:
        raise UnexpectedError(f"exit code {done.returncode} where {step.exit} was expected\n{done.stdout}{done.stderr}")
    lines = done.stdout.rstrip().splitlines()
    shown = lines[: step.lines or None]
    print("\n".join(shown))
    if len(shown) < len(lines):
        print(f"[{len(lines) - len(shown)} more lines]")
    if step.exit:
        print(f"[exit code {step.exit}, as announced]")


def _write(step: Write, client: Client) -> None:
    _tell(step.why)
    words = [word.decode() if isinstance(word, bytes) else str(word) for word in step.words]
    _typed("redis-cli", words)
    client.one(b"", *step.words)


def _timestamps(client: Client) -> Hashes:
    """Every timestamp hash, whole, and when it expires."""
    keys = [f"map:{name}:__meta:timestamps".encode() for name in data.MAPS]
    found: Hashes = {}
    for key in keys:
        flat = client.one(key, "HGETALL", key)
        found[key] = dict(zip(flat[::2], flat[1::2], strict=True)), client.one(key, "PEXPIRETIME", key)
    return found


def _prove(loaded: Hashes, now: Hashes) -> None:
    """The way there and back must have changed nothing but what was mended and what was written since."""
    loaded[data.USERS][0].update({data.BROKEN_FIELD: data.MENDED_TICKS, data.LATE_FIELD: data.LATE_TICKS})
    if now != loaded:
        raise UnexpectedError("the hashes are not what was loaded")
    records = sum(len(fields) for fields, _ in now.values())
    _tell(f"There and back again. The demo has just read all {records} timestamps and compared them with what it "
          "loaded. Every one is the same, byte for byte, and the hash that was to expire still does, at the same "
          "millisecond. The mended one stayed mended, and the one written after contract came along.")  # fmt: skip


def _typed(program: str, words: Sequence[str]) -> None:
    """A command line as a person would type it; on a terminal it stands out."""
    on, off = ("\x1b[1m", "\x1b[0m") if sys.stdout.isatty() and "NO_COLOR" not in os.environ else ("", "")
    print(f"{on}$ {program} {shlex.join(words)}{off}", flush=True)


def _tell(text: str) -> None:
    print()
    if text:
        print(textwrap.fill(text, 80), flush=True)
