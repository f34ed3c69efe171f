"""A large snapshot is tried in shares, each on a server and in a process of its own: no record knows of another.

`python -m migrator.rehearsal.shares` tries one; its settings are one line of JSON on standard input, which says by its
end that nobody waits any more. Prints what came of it, or the error, as one line of JSON.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from migrator import errors
from migrator.engine.observe import Observer, Silent, Stop
from migrator.errors import MigratorError
from migrator.models import ErrorBody, ErrorResult, Frozen, PlanResult
from migrator.moves.loader import load
from migrator.names import Names
from migrator.phases import Phase
from migrator.rehearsal.division import Division, Shares
from migrator.rehearsal.dryrun import Trial
from migrator.rehearsal.hunt import environment
from migrator.rehearsal.merge import merged
from migrator.rehearsal.scratch import Source, refuse_several, scratch
from migrator.snapshot.load import is_rdb
from migrator.snapshot.ndjson import Head

LARGE = 8 << 20  # bytes of a file; below, a second process costs more than it saves
_POLL = 0.05


class Settings(Frozen):
    """What a process of its own is told."""

    file: str
    migrations: str
    namespace: str
    ids: tuple[str, ...]
    at: dict[str, Phase]
    division: Division
    share: int = 0


class Tried(Frozen):
    """What came of one share, how many of its records are in all of them, and which databases migrations are about."""

    plan: PlanResult
    everywhere: int
    databases: tuple[int, ...]


def number_for(path: Path, asked: int | None) -> int:
    """How many processes: as asked, else one for each core where the file is large; one for an RDB file, which is
    loaded whole."""
    if is_rdb(path):
        return 1
    return asked or (min(4, os.cpu_count() or 1) if path.stat().st_size > LARGE else 1)


def try_shares(settings: Settings, stop: Stop) -> PlanResult:
    """Tries all shares at once, and makes one report of them. Raises what one of them raised, and RefusedError where
    they tried several databases."""
    running = [_start(settings.model_copy(update={"share": share})) for share in range(settings.division.number)]
    found = [""] * len(running)
    threads = [threading.Thread(target=_read, args=(found, n, one)) for n, one in enumerate(running)]
    try:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads) and not any(map(_is_error, found)):
            stop.check()
            time.sleep(_POLL)
    finally:
        for process in running:
            process.kill()
        for thread in threads:
            thread.join()
        for process in running:
            with process:  # closes its pipes
                pass
    tried = [_result(text) for text in sorted(found, key=_is_error, reverse=True)]
    refuse_several(Path(settings.file), list({db for one in tried for db in one.databases}))
    return merged([one.plan for one in tried], tried[0].everywhere)


def _read(found: list[str], n: int, process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    found[n] = process.stdout.read()


def _start(settings: Settings) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "migrator.rehearsal.shares"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        stderr=subprocess.DEVNULL if settings.share else None, env=environment("", Path(settings.migrations)),
        start_new_session=True,  # Ctrl-C is for us; we end them
    )  # fmt: skip
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # that it has ended is told where its result is asked for
        process.stdin.write(settings.model_dump_json() + "\n")
        process.stdin.flush()
    return process


def _is_error(text: str) -> bool:
    return text.startswith('{"error"')


def _result(text: str) -> Tried:
    if _is_error(text):
        raise _raised(ErrorResult.model_validate_json(text).error)
    if not text:
        raise MigratorError(
            "a process that tried a share of the snapshot ended early", next="try it with --processes 1"
        )
    return Tried.model_validate_json(text)


def _raised(body: ErrorBody) -> MigratorError:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, MigratorError)]
    kind = next((kind for kind in kinds if kind.code == body.code and kind.code != "interrupted"), MigratorError)
    return kind(body.message, next=body.next)


class _Lines(Silent):
    """Progress for whoever started us, who shows what we say."""

    def say(self, text: str) -> None:
        sys.stderr.write(text + "\n")


def main() -> None:
    settings = Settings.model_validate_json(sys.stdin.readline())
    gc.freeze()  # as the commands do: what is there stays, and of the rest nearly all is gone with its batch
    gc.set_threshold(50_000, 50, 50)
    threading.Thread(target=_end_with_our_reader, daemon=True).start()
    try:
        text = _try(settings, _Lines()).model_dump_json(by_alias=True)
    except MigratorError as error:
        body = ErrorBody(code=error.code, exit=error.exit_code, message=error.message, next=error.next)
        text = ErrorResult(error=body).model_dump_json()
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
    os._exit(0)  # not joining the thread that still reads


def _end_with_our_reader() -> None:
    sys.stdin.read()
    os._exit(1)  # our server hears of it by itself


class _Mine:
    """The lines of one share. `everywhere`: the keys of those that are in all."""

    def __init__(self, shares: Shares, share: int) -> None:
        self._shares, self._share = shares, share
        self.everywhere: set[tuple[int, bytes]] = set()

    def __call__(self, head: Head) -> bool:
        found = self._shares.of(head.key)
        if len(found) > 1:
            self.everywhere.add((head.db, head.key))
        return self._share in found


def _try(settings: Settings, observer: Observer) -> Tried:
    modules, names, stop = load(settings.migrations), Names(settings.namespace), Stop()
    mine = _Mine(Shares(modules, names, settings.division), settings.share)
    with scratch(Source(Path(settings.file), names, observer, stop, mine), modules) as one:
        plan = Trial(one, settings.ids, settings.at).play(settings.file)
    return Tried(plan=plan, everywhere=len(mine.everywhere), databases=tuple(one.databases))


if __name__ == "__main__":
    main()
