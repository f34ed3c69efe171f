"""Every order of the script calls of any two on one record ends in an allowed state: the real engine, adapters and
scripts, on fakeredis.

fakeredis proves order, not a server: there is one slot, no replica, and nothing expires while a schedule runs. Jobs'
own operations are to come; `set` on an absent record stands for a create.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.explorer.case import Case
from tests.explorer.cases import pairs, triples
from tests.explorer.explore import explore
from tests.explorer.scene import MOVES, STARTS, Scene


class Scenes:
    """One scene a move, made when it is first asked for."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._scenes: dict[str, Scene] = {}

    def of(self, move: str) -> Scene:
        if move not in self._scenes:
            self._scenes[move] = Scene(move, self._home / move)
        return self._scenes[move]


@pytest.fixture(scope="session")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Scenes:
    return Scenes(tmp_path_factory.mktemp("explorer"))


def all_end_well(scenes: Scenes, cases: Iterable[Case], what: str) -> None:
    number = schedules = orders = 0
    for case in cases:
        told = explore(scenes.of(case.move), case)
        assert not told.fault, f"{case.id}: {told.fault}\n{told.schedule}"
        number, schedules, orders = number + 1, schedules + told.schedules, orders + told.orders
    print(f"\n{what}: {number} groups, {schedules:,} schedules in the place of {orders:,} orders", flush=True)


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("phase", STARTS)
def test_every_order_of_two_ends_well(scenes, move, phase):
    all_end_well(scenes, pairs(move, phase), f"two on one record, {move} from {phase}")


@pytest.mark.prove
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("phase", STARTS)
def test_every_order_of_three_ends_well(scenes, move, phase):
    all_end_well(scenes, triples(move, phase), f"three on one record, {move} from {phase}")
