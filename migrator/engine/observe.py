"""What the engine tells while it works, and how it is asked to stop; the core itself prints nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from migrator.errors import InterruptedRunError


class Observer(Protocol):
    def say(self, text: str) -> None:
        """One line of log."""

    def begin(self, task: str, total: int | None) -> None:
        """A walk starts; `total` records, if known."""

    def advance(self, records: int) -> None:
        """So many records further."""

    def end(self) -> None:
        """The walk is over."""


class Silent:
    """An observer that tells nobody."""

    def say(self, text: str) -> None: ...
    def begin(self, task: str, total: int | None) -> None: ...
    def advance(self, records: int) -> None: ...
    def end(self) -> None: ...


class Stop:
    """A wish to stop, set by a signal handler and heard between batches."""

    def __init__(self) -> None:
        self.signum = 0

    def ask(self, signum: int) -> None:
        self.signum = signum

    def check(self) -> None:
        if self.signum:
            raise InterruptedRunError(self.signum)


class Rate:
    """Holds a walk to so many records a second; 0 is no limit."""

    def __init__(
        self,
        per_second: float = 0,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_second, self._sleep, self._clock = per_second, sleep, clock
        self._ready = clock()

    def at_once(self, most: int) -> int:
        """Records a batch, so that a slow rate is a steady one: at most what half a second allows."""
        return max(1, min(most, int(self._per_second / 2))) if self._per_second else most

    def spend(self, records: int, tick: Callable[[], None]) -> None:
        """Sleeps until these records are paid for, in slices, so that the lease lives through it."""
        if not self._per_second:
            return
        now = self._clock()
        self._ready = max(self._ready, now) + records / self._per_second
        while (left := self._ready - self._clock()) > 0:
            self._sleep(min(left, 0.2))
            tick()
