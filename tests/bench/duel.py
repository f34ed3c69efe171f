"""Two ways to do one thing, in turn, so that what else the machine does falls on both."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Contestant:
    """`prepare` is not timed; `run` does the same number of operations each time."""

    name: str
    run: Callable[[], None]
    prepare: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Outcome:
    """Medians over the rounds, in µs an operation. `ratio` is the median of the rounds' ratios."""

    ours: float
    theirs: float
    ratio: float


def duel(ours: Contestant, theirs: Contestant, *, operations: int, rounds: int) -> Outcome:
    """Rounds of both, each beginning every other one; the first round warms up and does not count."""
    times: dict[str, list[float]] = {ours.name: [], theirs.name: []}
    gc.disable()
    try:
        for number in range(rounds + 1):
            for contestant in (ours, theirs) if number % 2 else (theirs, ours):
                contestant.prepare()
                gc.collect()
                begun = time.perf_counter()
                contestant.run()
                if number:
                    times[contestant.name].append((time.perf_counter() - begun) / operations * 1e6)
    finally:
        gc.enable()
    mine, other = times[ours.name], times[theirs.name]
    ratio = statistics.median(a / b for a, b in zip(mine, other, strict=True))
    return Outcome(statistics.median(mine), statistics.median(other), ratio)
