"""What an application feels: a steady client's latency without a backfill and with one."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis

from tests.bench.races import Track, command, members, track
from tests.servers import ROOT

RATE = 2000  # GET and SET in turn, a second
SECONDS = 2.0
ROUNDS = 5
KEYS = 10_000


@dataclass(frozen=True)
class Felt:
    """The 99th percentile in ms, medians of the rounds."""

    before: float
    during: float
    after: float


def felt(server: str, number: int, home: Path, *, nice: int = 0) -> Felt:
    """Each round loads anew: before, while a default backfill of so many members runs, and after it. `nice`: how far
    the backfill stands behind the client and the server on this machine, where the three share its cores."""
    rounds = []
    with track(server, home) as here, here.server.client() as client:
        for _ in range(ROUNDS):
            here.raw.flushall()
            members(number)(here)
            here.tool.apply("0002", through="expand")
            before = p99(client, time.perf_counter() + SECONDS)
            with _backfill(here, nice) as process:
                during = p99(client, float("inf"), process)
            rounds.append((before, during, p99(client, time.perf_counter() + SECONDS)))
    return Felt(*(statistics.median(column) for column in zip(*rounds, strict=True)))


@contextmanager
def _backfill(here: Track, nice: int) -> Iterator[subprocess.Popen[bytes]]:
    words, quiet = command(here, "apply", "0002", "--through", "backfill"), subprocess.DEVNULL
    words = ["nice", "-n", str(nice), *words]
    with subprocess.Popen(words, cwd=ROOT, stdout=quiet, stderr=quiet) as process:
        yield process
    if process.returncode:
        raise RuntimeError(f"backfill: exit {process.returncode}")


def p99(client: redis.Redis, until: float, process: subprocess.Popen[bytes] | None = None) -> float:
    """Sends at a steady rate until then, or until the process ends. What is late counts from when it was due."""
    took: list[float] = []
    due = time.perf_counter()
    while due < until and (process is None or process.poll() is None):
        if (left := due - time.perf_counter()) > 0:
            time.sleep(left)
        key = f"app:{len(took) % KEYS}"
        if len(took) % 2:
            client.get(key)
        else:
            client.set(key, "value")
        took.append(time.perf_counter() - due)
        due += 1 / RATE
    return statistics.quantiles(took, n=100)[98] * 1e3
