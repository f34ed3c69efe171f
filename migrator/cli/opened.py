"""Opens a session for a command: connection, modules, signals and progress."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

from pydantic import BaseModel

from migrator.cli import render
from migrator.cli.options import Common, duration
from migrator.cli.progress import observer
from migrator.client import Client, connect
from migrator.engine.load import PRODUCTION, Limits
from migrator.engine.observe import Rate, Stop
from migrator.engine.run import Options
from migrator.engine.session import Session
from migrator.errors import Interrupted, InterruptedRunError
from migrator.moves.loader import load
from migrator.names import Names

Tick = Callable[..., None]
Say = Callable[[str], None]


@contextmanager
def opened(
    settings: Common,
    ids: Sequence[str] = (),
    *,
    writes: bool = True,
    rate: float = 0,
    yes: bool = False,
    backup: Path | None = None,
    repair_indexes: bool = False,
    limits: Limits = PRODUCTION,
) -> Iterator[Session]:
    """A session. Where the command writes, a signal is heard between batches; where it only reads, at once."""
    modules = load(settings.migrations)
    modules.select(ids)  # a wrong ID is said at once, not after Redis was waited for
    names = Names(settings.namespace)
    watcher = observer()
    stop = Stop()
    with signals(stop, at_once=not writes):
        client = _connected(settings, watcher.say, stop)
        options = Options(yes=yes, backup=backup, repair_indexes=repair_indexes, limits=limits)
        try:
            yield Session(client, names, modules, settings.lease, watcher, stop, Rate(rate), options)
        finally:
            watcher.end()


def _connected(settings: Common, say: Say, stop: Stop) -> Client:
    """A client that says what it waits for, and hears a signal while it does."""
    return connect(
        settings.url,
        patience=settings.retry,
        on_wait=lambda what: say(f"waiting for Redis: {what}"),
        before_retry=stop.check,
    )


def limits_from(max_pause: str, *, ignore: bool) -> Limits:
    """When the server is left alone, and for how long. Raises UsageError for what is no time."""
    longest = duration(max_pause, "--max-pause")
    return replace(PRODUCTION, longest=None if ignore else longest)


@contextmanager
def signals(stop: Stop, *, at_once: bool) -> Iterator[None]:
    """Both handlers are set: a job in the background inherits SIGINT ignored. Raises InterruptedRunError."""

    def heard(signum: int, _: FrameType | None) -> None:
        # While Redis is not connected yet, or nothing is written, no batch is waited for. A second signal insists.
        if at_once or stop.signum:
            raise Interrupted(signum)
        stop.ask(signum)

    before = {number: signal.signal(number, heard) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except Interrupted as now:
        raise InterruptedRunError(now.signum, writes=not at_once) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def at_work(settings: Common, task: str, *, writes: bool, rate: float = 0) -> Iterator[tuple[Client, Tick, Say]]:
    """A connection without a session; what is told so many records, or pages of one, further; what says a line.

    A signal is heard between batches where the command writes, at once where it only reads.
    """
    watcher, stop, pace = observer(), Stop(), Rate(rate)

    def tick(records: int, pages: int = 0) -> None:
        watcher.advance(records)
        pace.spend(records + pages, stop.check)
        stop.check()

    with signals(stop, at_once=not writes):
        client = _connected(settings, watcher.say, stop)
        watcher.begin(task, None)
        try:
            yield client, tick, watcher.say
        finally:
            watcher.end()


def show(result: BaseModel, settings: Common) -> None:
    """The result on stdout, in the form asked for."""
    print(render.as_json(result) if settings.format == "json" else render.as_text(result))
    sys.stdout.flush()
