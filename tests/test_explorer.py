"""Every order of the script calls of any two on one record ends in an allowed state: the real engine, adapters and
scripts, on fakeredis.

fakeredis proves order, not a server: there is one slot, no replica, its clock stands still, and nothing expires while a
schedule runs.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import pytest

from tests.explorer import cases_jobs, cases_operator, mutations_jobs, mutations_operator
from tests.explorer.case import Case
from tests.explorer.cases import LATE_CLEANING, LATE_RETIRING, pairs, takeovers, triples
from tests.explorer.explore import explore
from tests.explorer.mutations import MUTATIONS
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
    assert number, f"{what}: there is no case"
    print(f"\n{what}: {number} groups, {schedules:,} schedules in the place of {orders:,} orders", flush=True)


def ends_well(scene: Scene, case: Case) -> None:
    told = explore(scene, case)
    assert not told.fault, f"{case.id}: {told.fault}\n{told.schedule}"


# Of the groups that take long every second one is run each time, and which of the two is drawn; `make prove` runs all.
every = pytest.mark.parametrize("every", [2, pytest.param(1, marks=pytest.mark.prove)])


def drawn(cases: Iterable[Case], every: int) -> Iterable[Case]:
    return islice(cases, random.SystemRandom().randrange(every), None, every)


# `backfilled` differs from `verified` in nothing an adapter or a script looks at.
_PHASES = [pytest.param(phase, marks=pytest.mark.prove) if phase == "backfilled" else phase for phase in STARTS]


@every
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("phase", _PHASES)
def test_every_order_of_two_ends_well(scenes, move, phase, every):
    all_end_well(scenes, drawn(pairs(move, phase), every), f"two on one record, {move} from {phase}")


@pytest.mark.prove
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("phase", STARTS)
def test_every_order_of_three_ends_well(scenes, move, phase):
    all_end_well(scenes, triples(move, phase), f"three on one record, {move} from {phase}")


@every
@pytest.mark.parametrize("phase", _PHASES)
def test_every_order_of_two_on_a_job_ends_well(scenes, phase, every):
    all_end_well(scenes, drawn(cases_jobs.chosen(phase), every), f"two on one job from {phase}")


@pytest.mark.prove
@pytest.mark.parametrize("phase", STARTS)
def test_every_order_of_any_two_on_a_job_ends_well(scenes, phase):
    all_end_well(scenes, cases_jobs.pairs(phase), f"any two on one job from {phase}")


@pytest.mark.prove
@pytest.mark.parametrize("phase", STARTS)
def test_every_order_of_three_on_a_job_ends_well(scenes, phase):
    all_end_well(scenes, cases_jobs.triples(phase), f"three on one job from {phase}")


# From `reverting` as from `swept`: the old record lies in the backup.
_RESTORED_FROM = ["contracted", "swept", pytest.param("reverting", marks=pytest.mark.prove)]


@pytest.mark.parametrize("move", [*MOVES, "jobs"])
@pytest.mark.parametrize("phase", _RESTORED_FROM)
def test_every_order_with_a_restore_ends_well(scenes, move, phase):
    all_end_well(scenes, cases_operator.restores(move, phase), f"restore, {move} from {phase}")


@pytest.mark.prove
@pytest.mark.parametrize("phase", ["contracted", "swept", "reverting"])
def test_every_order_with_a_restore_that_is_taken_over_ends_well(scenes, phase):
    all_end_well(scenes, cases_operator.restores_taken_over(phase), f"restore taken over from {phase}")


@pytest.mark.parametrize("move", [*MOVES, "jobs"])
def test_every_order_with_what_is_foreign_ends_well(scenes, move):
    all_end_well(scenes, cases_operator.foreign(move), f"verify --foreign, {move}")


@pytest.mark.prove
@pytest.mark.parametrize("move", ["swap", "members"])
@pytest.mark.parametrize("phase", STARTS)
def test_every_order_with_a_takeover_ends_well_for_the_other_moves(scenes, move, phase):
    all_end_well(scenes, takeovers(move, phase), f"takeovers, {move} from {phase}")


_MUTATIONS = (*MUTATIONS, *mutations_jobs.MUTATIONS, *mutations_operator.MUTATIONS)


@pytest.mark.parametrize("mutation", _MUTATIONS, ids=lambda mutation: mutation.name)
def test_one_check_left_out_is_caught(scenes, mutation):
    scene = scenes.of(mutation.case.move)
    ends_well(scene, mutation.case)
    with mutation.on(scene.server):
        told = explore(scene, mutation.case)
    assert told.fault, f"without '{mutation.name}' every order of {mutation.case.id} ends well"


_WHOLE = [
    Case(move, "expanded", parts, "mortal") for move in MOVES for parts in (("stage", "set"), ("repair", "delete"))
]
_WHOLE += [Case("jobs", "expanded", ("index repair", "claim")), Case("jobs", "switched", ("claim", "update"))]
_WHOLE += [Case("jobs", "switched", ("foreign old", "delete"), change=cases_operator.rewritten, unsettled=True)]


@pytest.mark.parametrize("case", _WHOLE, ids=lambda case: case.id)
def test_the_orders_that_are_left_out_end_like_those_that_are_run(scenes, case):
    some, every = explore(scenes.of(case.move), case), explore(scenes.of(case.move), case, prune=False)
    assert (some.fault, every.fault) == ("", "")
    assert some.ends == every.ends
    assert some.schedules < every.schedules


def test_a_retiring_delivered_after_the_sweep_leaves_alone_what_was_written_since(scenes):
    ends_well(scenes.of("key"), LATE_RETIRING)


def test_a_removal_delivered_after_the_clean_up_leaves_alone_what_was_written_since(scenes):
    ends_well(scenes.of("key"), LATE_CLEANING)
