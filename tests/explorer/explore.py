"""Runs every schedule of a group of actors, up to the first that ends where it must not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.explorer.actor import Actor, foreseeable
from tests.explorer.case import Case
from tests.explorer.judge import Judge
from tests.explorer.orders import operations
from tests.explorer.parts import body_of
from tests.explorer.picture import Picture, picture
from tests.explorer.scene import Scene, Start
from tests.explorer.search import Schedule, schedules
from tests.explorer.server import Pool


@dataclass
class Told:
    """What exploring a case came to. `orders`: in how many orders the same steps could be put."""

    schedules: int = 0
    orders: int = 0
    fault: str = ""
    schedule: str = ""
    ends: set[Picture] = field(default_factory=set)


def explore(scene: Scene, case: Case, *, prune: bool = True) -> Told:
    """All schedules up to the first fault."""
    with foreseeable():
        return _explore(scene, case, prune)


def _explore(scene: Scene, case: Case, prune: bool) -> Told:
    told = Told()
    start = scene.start(case.phase, case.record, case.change)
    scene.server.put_back(start.state)
    judge = Judge(scene, case, picture(scene))
    for schedule in _schedules(scene, case, start, prune):
        told.schedules += 1
        told.orders = max(told.orders, schedule.orders)
        fault = judge.fault(schedule)
        told.ends = judge.ends
        if fault:
            told.fault, told.schedule = fault, schedule.told()
            return told
    return told


def _schedules(scene: Scene, case: Case, start: Start, prune: bool) -> Iterator[Schedule]:
    def cast() -> Sequence[Actor]:
        scene.begin_backup(start)
        return [_actor(scene, name, start) for name in case.parts]

    return schedules(scene.server, start.state, cast, prune=prune)


def _actor(scene: Scene, name: str, start: Start) -> Actor:
    """Made on the server as it is at the start: it knows the phase of then, as a process that is stalled does."""
    pool = Pool(scene.server.run)
    known = operations(scene.move)
    if name in known:
        adapter = scene.adapter(pool, stranger=name == "stranger")
        return Actor(name, pool, lambda: known[name].call(adapter))
    return Actor(name, pool, body_of(name, scene, pool, start))
