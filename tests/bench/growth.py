"""What grows with the number of members and what does not: the tool's memory, and the reading of what is due."""

from __future__ import annotations

import gc
import statistics
import subprocess
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from migrator.adapters import Timestamps
from tests.bench.races import FIRST_TICKS, STEP, Track, command, members, track
from tests.chaos import peak
from tests.servers import ROOT
from tests.support import modules_of

DUE = 1000
WINDOW = 1 << 62  # ticks, after all of them
_POLL = 0.01  # seconds


@dataclass(frozen=True)
class Reading:
    """Of one due batch: ms, and the client's memory at its peak, in MB."""

    ms: float
    mb: float


@dataclass(frozen=True)
class Grown:
    """`rss` is the peak of the process that ran the backfill, in MB; the others are in seconds."""

    members: int
    rss: float
    backfill: float
    verify: float
    from_hash: Reading
    from_sorted_set: Reading


def grown(server: str, number: int, home: Path) -> Grown:
    with track(server, home) as here:
        members(number)(here)
        run(here, "apply", "0002", "--through", "expand", "--yes")
        rss, backfill = run(here, "apply", "0002", "--through", "backfill")
        hash_ = _reading(here, rounds=3)
        _, verify = run(here, "verify", "0002")
        run(here, "apply", "0002", "--through", "switch", "--yes")
        return Grown(number, rss, backfill, verify, hash_, _reading(here, rounds=15))


def run(here: Track, *words: str, url: str = "") -> tuple[float, float]:
    """A command as a process: its peak memory in MB, and its seconds."""
    begun = time.perf_counter()
    quiet = subprocess.DEVNULL
    process, most = subprocess.Popen(command(here, *words, url=url), cwd=ROOT, stdout=quiet, stderr=quiet), 0
    while process.poll() is None:
        # Not the kernel's account of ended children: to that, a process begins with the peak of the one that made it.
        most = max(most, peak(process.pid))
        time.sleep(_POLL)
    if process.returncode:
        raise RuntimeError(f"{' '.join(words)}: exit {process.returncode}")
    return most / 1024, time.perf_counter() - begun


def _reading(here: Track, rounds: int) -> Reading:
    """The first page of what is due, of a window that holds exactly so many."""
    stamps = Timestamps(here.raw, modules_of(here.directory).find("0002"))

    def read() -> None:
        page = next(iter(stamps.due(0, FIRST_TICKS + (DUE - 1) * STEP, DUE, name="m")))
        assert len(list(page)) == DUE

    read()
    return Reading(statistics.median(_timed(read) for _ in range(rounds)) * 1e3, _peak(read))


def _timed(call: Callable[[], Any]) -> float:
    gc.collect()
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def _peak(call: Callable[[], Any]) -> float:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()
