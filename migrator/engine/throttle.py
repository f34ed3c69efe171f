"""Keeps the backfill from being felt: small batches and rests where the server has others to serve, pauses where it is
in need. One look a second says how things are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from migrator.client import Client, Node
from migrator.engine.load import Limits, Load, reasons
from migrator.errors import StoppedByLoadError

ALONE = 3e-3  # seconds of the server's time a batch may take while nobody else asks for it
SHARED = 0.2e-3  # the same beside an application: what a request may wait for, as several are under way
# Beside an application, how long it rests for each second of the server's time that its writes took. Its reads take
# about as much again, and the server works on what is under way while it rests: with 4 it is free for others more than
# half of the time. Measured, at 2,000 requests a second: p99 of 100 to 300 ms with 1, of 2 to 5 ms with 4, 0.5 without.
RESTS = 4
_GUESS = 20e-6  # seconds of the server's time a record, until it is known: about what a job costs, so nobody is hurried
_FIRST, _EVERY = 0.1, 1.0  # seconds between two looks, at the beginning and later
_AGAIN = 0.25  # seconds between two looks in a pause
_NEAR = 0.5e-3  # seconds a PING takes within a data centre
_PINGS = 3
_QUIET = 3  # looks without a reason end a pause
_OTHERS = 4096  # bytes a second that others send: about a hundred commands
_ENOUGH = 200  # records, to judge by what one costs
_MOST = 2  # times the least that a record was seen to cost
_NOTHING = 1e-6  # seconds of the server's time a record: checkpoints and the lease, while no record is written
_LONGEST = 0.05  # seconds of a rest


class Throttle:
    """For one walk after another. `told` hears why it pauses, and nothing once it goes on."""

    def __init__(
        self,
        client: Client,
        limits: Limits,
        told: Callable[[str], None],
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._limits, self._told = client, limits, told
        self._sleep, self._clock = sleep, clock
        self._node: Node | None = None
        self._shared = True  # until it is known
        self._freeing = False
        self._forget()

    def _forget(self) -> None:
        self._first: Load | None = None
        self._last: Load | None = None
        self._looked = self._due = self._clock()
        self._others: int | None = None  # bytes that others have sent, at least
        self.begin()

    def begin(self) -> None:
        """A walk begins: what a record costs in another one says nothing of it."""
        self._cost = 0.0  # seconds of the server's time a record
        self._least = float("inf")  # that a record cost
        self._records = 0
        self._since: Load | None = None  # from when on they are counted
        self._interval = _FIRST
        self._due = min(self._due, self._clock() + _FIRST)

    @contextmanager
    def freeing(self) -> Iterator[None]:
        """What only removes is no worse for a server that is short of memory: it does not wait for that."""
        self._freeing = True
        try:
            yield
        finally:
            self._freeing = False

    def at_once(self, most: int, least: int) -> int:
        """Records a batch."""
        if not self._gentle and not self._cost:
            return max(least, most // 4)
        return max(least, min(most, int((SHARED if self._gentle else ALONE) / (self._cost or _GUESS))))

    @property
    def steps(self) -> int:
        """How many times as much is to be asked for in one go, 1 to 10: then the way to the server does not matter."""
        return 1 + min(9, int(self._first.ping / _NEAR)) if self._first else 1

    @property
    def _gentle(self) -> bool:
        """Whether there is an application, and it matters."""
        return self._shared and self._limits.longest is not None

    def between(self, node: Node, records: int, tick: Callable[[], None]) -> None:
        """After a batch of so many records. Raises StoppedByLoadError after too long a pause."""
        if node is not self._node:
            self._node = node
            self._forget()
        self._records += records
        if self._clock() >= self._due:
            why = self._look(node)
            if why and self._limits.longest is not None:
                self._pause(node, why, self._limits.longest, tick)
        if self._gentle and records:
            self._sleep(min(_LONGEST, RESTS * records * (self._cost or _GUESS)))

    def _look(self, node: Node) -> str:
        """Why to pause, if there is a reason. Learns what a record costs and whether others are served."""
        ping = self._ping(node)
        sent, now = node.links.sent, self._clock()
        (info,) = self._client.on_node(node, ("INFO", "all"))
        self._due = now + self._interval
        self._interval = min(_EVERY, self._interval * 2)
        if not isinstance(info, bytes):
            return ""  # not for this user to ask; `plan` says so
        load = Load.parse(info, ping)
        before, first = self._last or load, self._first or load
        self._learn(load, load.number("total_net_input_bytes") - sent, now)
        self._last, self._looked = load, now
        self._first = replace(first, ping=min(first.ping, ping))
        limits = replace(self._limits, memory=float("inf")) if self._freeing else self._limits
        return "; ".join(reasons(load, before, self._first, limits))

    def _ping(self, node: Node) -> float:
        """Seconds; asked again where it took long, for one may have had to wait for this machine."""
        best = float("inf")
        for _ in range(_PINGS):
            begun = self._clock()
            self._client.on_node(node, ("PING",))
            best = min(best, self._clock() - begun)
            if best < self._limits.latency:
                break
        return best

    def _learn(self, load: Load, others: int, now: float) -> None:
        # What is on its way was sent and not received yet, so it is the most that was ever seen which counts.
        known, self._others = self._others, max(others, others if self._others is None else self._others)
        if known is not None:
            self._shared = self._others - known > _OTHERS * (now - self._looked)
        if self._since is None:
            self._records, self._since = 0, load
        elif self._records >= _ENOUGH:
            # What others run in scripts, as adapters do, counts as ours, and more of it the longer we rest: believed,
            # rests would grow without end.
            found = max(1e-7, (load.writing - self._since.writing) / 1e6 / self._records)
            if found > _NOTHING:
                self._least = min(self._least, found)
            self._cost = min(found, _MOST * self._least)
            self._records, self._since = 0, load

    def _pause(self, node: Node, why: str, longest: float, tick: Callable[[], None]) -> None:
        begun, quiet, told = self._clock(), 0, ""
        try:
            while quiet < _QUIET:
                if why and why != told:
                    self._told(why)
                    told = why
                if self._clock() - begun > longest:
                    raise StoppedByLoadError(
                        f"{node.address} was in need for {longest:,.0f} s: {told}",
                        next="when it is better, run the same command again: it goes on from here",
                    )
                self._sleep(_AGAIN)
                tick()
                why = self._look(node)
                quiet = 0 if why else quiet + 1
        finally:
            self._told("")
