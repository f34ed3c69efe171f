"""Somebody whose every command waits for its turn: a thread of its own, but only one of them runs at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from unittest.mock import patch

from fakeredis.commands_mixins import server_mixin

from migrator.adapters.announce import Herald
from migrator.client import Reply
from migrator.engine import overlap
from migrator.engine.throttle import Throttle
from migrator.ledger import ledger
from tests.explorer.footprint import Words
from tests.explorer.jobs import NOW
from tests.explorer.server import Pool

Body = Callable[[], object]


@contextmanager
def foreseeable() -> Iterator[None]:
    """What is drawn by lot or from the clock is the same each time an actor is started anew: the server's clock stands
    still, and nobody sleeps. No adapter announces itself, for that touches a key of its own; and nothing is fsynced,
    for nobody pulls the plug."""
    drawn = threading.local()

    def token(_: int) -> str:
        drawn.number = getattr(drawn, "number", 0) + 1
        return f"{threading.current_thread().name}-{drawn.number}"

    with (
        patch("secrets.token_hex", token),
        patch("time.sleep", lambda _: None),
        patch.object(server_mixin, "time", SimpleNamespace(time=lambda: NOW)),
        patch.object(ledger, "time", SimpleNamespace(time=lambda: 0.0)),
        patch.object(Herald, "due", lambda _: None),
        patch("os.fsync", lambda _: None),
        patch.object(overlap, "page_count", lambda *_: overlap.COUNT),
        patch.object(Throttle, "between", lambda *_: None),
    ):
        yield


class _AbandonedError(BaseException):
    """The schedule this actor is in is not carried on."""


class Actor:
    """Runs `body` up to its next command, which is then `pending`; `answer` lets it go on from there.

    What the body returned is `result`; what it raised, `error`.
    """

    def __init__(self, name: str, pool: Pool, body: Body) -> None:
        self.name = name
        self.pending: Words | None = None
        self.result: object = None
        self.error: Exception | None = None
        self._body, self._reply = body, None
        # Whose turn it is. Plain locks, which the other side releases: a semaphore takes four times as long.
        self._mine, self._yours = threading.Lock(), threading.Lock()
        self._mine.acquire()
        self._yours.acquire()
        self._abandoned = False
        pool.ask = self._ask
        self._thread = threading.Thread(target=self._live, name=name.replace(" ", "-"), daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._yours.acquire()

    def answer(self, reply: Reply) -> None:
        self._reply = reply
        self._mine.release()
        self._yours.acquire()

    def abandon(self) -> None:
        """Ends a body that has not come to its end."""
        if self.pending is not None:
            self._abandoned = True
            self.answer(None)
        self._thread.join()

    def _ask(self, words: Words) -> Reply:
        if self._abandoned:
            raise _AbandonedError
        self.pending = words
        self._yours.release()
        self._mine.acquire()
        if self._abandoned:
            raise _AbandonedError
        return self._reply

    def _live(self) -> None:
        try:
            self.result = self._body()
        except _AbandonedError:
            pass
        except Exception as error:
            self.error = error
        finally:
            self.pending = None
            self._yours.release()
