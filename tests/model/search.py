"""Breadth-first search to the end: every reachable state is judged, and the first fault comes with the shortest way."""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)
Moves = Callable[[S], Iterable[tuple[str, S]]]
Judge = Callable[[S], str]
Show = Callable[[S], str]


@dataclass(frozen=True)
class Found(Generic[S]):
    """What a search saw: how many states, and what went wrong in the last of `trace`, if anything did."""

    states: int
    fault: str = ""
    trace: tuple[tuple[str, S], ...] = field(default=())

    def told(self, show: Show[S]) -> str:
        """The way to the fault, one line a step."""
        lines = [f"{number:3}  {label:<58} {show(state)}" for number, (label, state) in enumerate(self.trace)]
        return "\n".join([*lines, f"     => {self.fault}"])


class TooManyStatesError(Exception):
    """The bounds let more through than the caller wants to wait for."""


@contextmanager
def _uncollected() -> Iterator[None]:
    """Millions of tuples without a cycle among them: looking for one takes longer than the search."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@_uncollected()
def search(start: Iterable[S], moves: Moves[S], judge: Judge[S], limit: int = 10_000_000) -> Found[S]:
    """All states that can be reached from `start`. `judge` names the fault of a state, or nothing."""
    came: dict[S, tuple[str, S] | None] = dict.fromkeys(start)
    level = list(came)
    while level:
        following: list[S] = []
        for state in level:
            for label, after in moves(state):
                if after in came:
                    continue
                came[after] = (label, state)
                if fault := judge(after):
                    return Found(len(came), fault, tuple(_way(came, after)))
                following.append(after)
        if len(came) > limit:
            raise TooManyStatesError(limit)
        level = following
    return Found(len(came))


def _way(came: dict[S, tuple[str, S] | None], state: S) -> Iterator[tuple[str, S]]:
    way: list[tuple[str, S]] = []
    at: S | None = state
    while at is not None:
        step = came[at]
        way.append((step[0] if step else "at first", at))
        at = step[1] if step else None
    return reversed(way)
