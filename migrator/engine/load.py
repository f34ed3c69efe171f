"""What a server says of its load, and what of it speaks against more work now. No Redis in here: only its words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MB = 1024 * 1024
_REPLICA = re.compile(r"ip=([^,]*),port=(\d+),state=(\w+),offset=(\d+),lag=(-?\d+)")
_CALLS = re.compile(r"usec=(\d+)")
_WRITES = ("cmdstat_evalsha", "cmdstat_exec")  # what our batches are, whichever way they go


@dataclass(frozen=True)
class Limits:
    """From where on a server is left alone; the defaults are for production.

    `longest` is how long one pause may last, in seconds, before the run gives up; None: never pause, nor rest beside
    an application.
    """

    longest: float | None = 600.0
    replica_bytes: int = 32 * MB  # behind the primary: half of what a replica's output buffer may hold by default
    replica_seconds: int = 10  # since a replica was last heard of
    memory: float = 0.95  # of maxmemory
    latency: float = 0.05  # seconds a PING takes, more than the quickest took
    buffers: int = 64 * MB  # more than at first, waiting to be read by clients


PRODUCTION = Limits()


@dataclass(frozen=True)
class Load:
    """One look at one process: INFO, and the seconds a PING took."""

    facts: dict[str, str]
    ping: float

    @staticmethod
    def parse(info: bytes, ping: float) -> Load:
        lines = (line.partition(":") for line in info.decode("utf-8", "replace").splitlines())
        return Load({name: value for name, colon, value in lines if colon}, ping)

    def number(self, name: str) -> int:
        """A count INFO states; 0 where this server does not state it."""
        text = self.facts.get(name, "0")
        return int(text) if text.lstrip("-").isdigit() else 0

    @property
    def writing(self) -> int:
        """Microseconds spent in scripts and transactions since the process began."""
        found = (_CALLS.search(self.facts.get(name, "")) for name in _WRITES)
        return sum(int(match[1]) for match in found if match)


def reasons(now: Load, before: Load, first: Load, limits: Limits) -> Iterator[str]:
    """Why this server is to be left alone, in words. `before` is the look before this one, `first` the first one, with
    the quickest PING of all."""
    yield from _replicas(now, limits)
    used, most = now.number("used_memory"), now.number("maxmemory")
    if most and used > limits.memory * most:
        yield f"memory is near its limit: {used / MB:,.0f} of {most / MB:,.0f} MB"
    if (evicted := now.number("evicted_keys") - before.number("evicted_keys")) > 0:
        yield f"keys are being evicted: {evicted:,} since the last look"
    if now.number("rdb_bgsave_in_progress"):
        yield "a save is under way (BGSAVE), and every write costs memory twice"
    if now.number("aof_rewrite_in_progress"):
        yield "the append-only file is being rewritten, and every write costs memory twice"
    if (grown := now.number("mem_clients_normal") - first.number("mem_clients_normal")) > limits.buffers:
        yield f"clients do not read their answers: {grown / MB:,.0f} MB wait for them"
    if now.ping - first.ping > limits.latency:
        yield f"it answers slowly: {now.ping * 1e3:,.0f} ms for a PING, {first.ping * 1e3:.1f} at best"


def _replicas(now: Load, limits: Limits) -> Iterator[str]:
    ours = now.number("master_repl_offset")
    for n in range(now.number("connected_slaves")):
        found = _REPLICA.search(now.facts.get(f"slave{n}", ""))
        if not found or found[3] != "online":
            continue  # being filled by a BGSAVE, or gone
        behind, silent = ours - int(found[4]), int(found[5])
        who = f"replica {found[1]}:{found[2]}"
        if behind > limits.replica_bytes:
            yield f"{who} is {behind / MB:,.0f} MB behind"
        elif silent > limits.replica_seconds:
            yield f"{who} has not answered for {silent} s"
