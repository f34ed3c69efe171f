"""Every order of the actors' commands that can make a difference, each once.

Dynamic partial-order reduction with sleep sets: a schedule is run to its end; where two steps of it that meet could
have come the other way round, that way is run too; what only swaps steps that commute is not. With `prune=False` any
two steps meet, and every order is run.

A schedule is not run again from its start: the server's state before each step is kept, and the actors, which are
started anew, are given the replies they had before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from migrator.client import Reply
from tests.explorer.actor import Actor
from tests.explorer.footprint import Footprint, Words, described, footprint
from tests.explorer.server import FakeServer

Cast = Callable[[], Sequence[Actor]]


@dataclass
class _Node:
    """A point in a schedule: what was there before the step, what each actor would do, and what has been tried."""

    state: dict[bytes, Any]
    steps: dict[int, Footprint]
    words: dict[int, Words]
    sleep: dict[int, Footprint]
    chosen: int
    todo: set[int] = field(default_factory=set)
    done: set[int] = field(default_factory=set)
    reply: Reply = None
    clock: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Schedule:
    """One order, carried out: the actors as they ended, and (actor, what it did) of each step."""

    actors: Sequence[Actor]
    steps: tuple[tuple[int, str], ...]

    @property
    def orders(self) -> int:
        """In how many ways these steps could be put into an order."""
        counts = [sum(actor == number for actor, _ in self.steps) for number in range(len(self.actors))]
        return math.factorial(sum(counts)) // math.prod(map(math.factorial, counts))

    def told(self) -> str:
        return "\n".join(f"{i:3}  {self.actors[n].name}: {what}" for i, (n, what) in enumerate(self.steps, 1))


def schedules(server: FakeServer, start: dict[bytes, Any], cast: Cast, *, prune: bool = True) -> Iterator[Schedule]:
    """Runs them all. `cast` makes the actors anew, on the server as it is at the start."""
    search = _Search(server, start, cast, prune)
    while True:
        found = search.run()
        if found is not None:
            yield found
        if not search.turn_back():
            return


class _Search:
    def __init__(self, server: FakeServer, start: dict[bytes, Any], cast: Cast, prune: bool) -> None:
        self._server, self._start, self._cast, self._prune = server, start, cast, prune
        self._path: list[_Node] = []

    def run(self) -> Schedule | None:
        """The schedule that begins with the path as it is; None if all it could do has been done in another one."""
        self._server.put_back(self._start)
        actors = self._cast()
        for actor in actors:
            actor.start()
        for node in self._path[:-1]:
            actor = actors[node.chosen]
            if actor.pending != node.words[node.chosen]:
                raise AssertionError(f"{actor.name} does not do again what it did: {node.words[node.chosen]!r}")
            actor.answer(node.reply)
        if self._path:
            self._server.put_back(self._path[-1].state)
            self._step(actors)
        while any(actor.pending is not None for actor in actors):
            if not self._grow(actors):
                for actor in actors:
                    actor.abandon()
                return None
            self._step(actors)
        return Schedule(actors, tuple((node.chosen, described(node.words[node.chosen])) for node in self._path))

    def _grow(self, actors: Sequence[Actor]) -> bool:
        pending = {number: actor.pending for number, actor in enumerate(actors) if actor.pending is not None}
        steps = {number: footprint(words) for number, words in pending.items()}
        sleep: dict[int, Footprint] = {}
        if self._path:
            last = self._path[-1]
            asleep = last.sleep | {number: last.steps[number] for number in last.done - {last.chosen}}
            sleep = {n: step for n, step in asleep.items() if not self._meet(step, last.steps[last.chosen])}
        awake = [number for number in steps if number not in sleep]
        if not awake:
            return False
        chosen = awake[0]
        todo = {chosen} if self._prune else set(awake)
        self._path.append(_Node(self._server.keep(), steps, pending, sleep, chosen, todo))
        return True

    def _step(self, actors: Sequence[Actor]) -> None:
        """Carries the last node's step out, and notes where it could have come earlier."""
        node = self._path[-1]
        actor = actors[node.chosen]
        node.done.add(node.chosen)
        assert actor.pending is not None
        node.reply, node.steps[node.chosen] = self._server.watched(actor.pending)
        if self._prune:
            self._find_races(len(self._path) - 1)
        actor.answer(node.reply)

    def _find_races(self, at: int) -> None:
        mover = self._path[at].chosen
        step = self._path[at].steps[mover]
        before = next((n.clock for n in reversed(self._path[:at]) if n.chosen == mover), {})
        clock = dict(before)
        raced = False
        for index in range(at - 1, -1, -1):
            node = self._path[index]
            if node.chosen != mover and self._meet(node.steps[node.chosen], step):
                if not raced and index > before.get(node.chosen, -1):
                    node.todo.add(mover)
                    raced = True
                for number, seen in node.clock.items():
                    clock[number] = max(clock.get(number, -1), seen)
        clock[mover] = at
        self._path[at].clock = clock

    def turn_back(self) -> bool:
        """Takes the last choice that can be made otherwise; False if there is none left."""
        while self._path:
            node = self._path[-1]
            left = node.todo - node.done - node.sleep.keys()
            if left:
                node.chosen = min(left)
                return True
            self._path.pop()
        return False

    def _meet(self, one: Footprint, other: Footprint) -> bool:
        return not self._prune or one.meets(other)
