"""Every step from phase to phase that there is, none other, and every way to find markers and ledger apart."""

from __future__ import annotations

from itertools import product

import pytest

from migrator.engine import back, restore
from migrator.engine.run import Run
from migrator.errors import DifferencesError, RefusedError, UsageError
from migrator.phases import PHASES, Markers
from tests.support import KEYS, MEMBERS, Crash, crashing, own_keys, picture, put, tool_for

KEEP = {("expanded", "backfilled"), ("backfilled", "verified")}
RAISE = {
    # there
    ("pending", "expanded"), ("verified", "switched"), ("switched", "contracted"),
    # back
    ("expanded", "pending"), ("backfilled", "pending"), ("verified", "pending"), ("switched", "expanded"),
    ("contracted", "reverting"), ("reverting", "switched"), ("reverting", "contracted"),
    # restore
    ("contracted", "closed"), ("switched", "closed"), ("reverting", "closed"), ("closed", "closed"),
    ("closed", "pending"),
    # a removal is over
    ("contracted", "contracted"), ("pending", "pending"),
    # a marker went back before the switch: walk again
    ("backfilled", "expanded"), ("verified", "expanded"),
}  # fmt: skip
UNDER_WAY = ("expanded", "backfilled", "verified", "switched")
THROUGH = {"expanded": "expand", "backfilled": "backfill", "verified": "verify", "switched": "switch",
           "contracted": "contract"}  # fmt: skip


@pytest.fixture
def tool(client, tmp_path):
    for name in (b"a", b"b"):
        put(client, b"{t}:text:" + name, b" " + name)  # the inverse does not give the blank back
    return tool_for(client, tmp_path, KEYS)


def stand_at(run: Run, phase, epoch) -> None:
    """Markers and ledger of a migration anywhere, without the steps that lead there."""
    (state,) = {(marker.phase, marker.epoch) for marker in run.markers.read().values() if marker}
    run.markers.set(run.lease.fence, state, (phase, epoch), "", run.markers.slots)
    run.put(phase=phase, epoch=epoch, intent=None)


def test_every_step_of_the_table_and_no_other_is_taken(tool):
    with tool.run() as run:
        for epoch, (source, target) in enumerate(product(PHASES, PHASES), 10):
            stand_at(run, source, epoch * 10)
            if (source, target) in KEEP | RAISE:
                run.change(target)
                raised = epoch * 10 + ((source, target) in RAISE)
                assert (run.entry.phase, run.entry.epoch) == (target, raised)
                assert tool.states() == {(target, raised)}
            else:
                with pytest.raises(RefusedError, match=f"no step from {source} to {target}"):
                    run.change(target)
                assert tool.states() == {(source, epoch * 10)}


def test_the_commands_walk_the_table_with_the_epochs_it_says(tool):
    assert tool.states() == set()
    seen: list[tuple[str, int]] = []
    for through in THROUGH.values():
        tool.apply(through=through)
        seen.append(*tool.states())
    for _ in range(3):
        tool.rollback()
        seen.append(*tool.states())
    assert seen == [
        ("expanded", 1), ("backfilled", 1), ("verified", 1), ("switched", 2), ("contracted", 4),
        ("switched", 6), ("expanded", 7), ("pending", 9),
    ]  # fmt: skip
    tool.apply("0001", through="contract")
    tool.restore()
    assert tool.states() == {("pending", 17)}


@pytest.mark.parametrize("phase", [*UNDER_WAY, "contracted"])
def test_rollback_goes_no_way_but_back(tool, phase):
    tool.apply(through=THROUGH[phase])
    ahead = {"expanded": ["switched"], "backfilled": ["switched", "expanded"], "verified": ["switched", "expanded"]}
    for goal in ahead.get(phase, []):
        with pytest.raises(RefusedError, match=f"not to {goal}"):
            tool.rollback(to=goal)
        assert tool.phase() == phase
    assert tool.rollback(to="pending") == "pending"
    assert tool.phase() == "pending"
    assert set(picture(tool.place)) == {b"{t}:text:a", b"{t}:text:b"}


# A crash in the middle of a change.

FIRST = {"before the first marker": (Markers, "change"), "after the last marker": (Run, "settle")}
NEXT = dict(zip(("pending", *UNDER_WAY), (*UNDER_WAY, "contracted"), strict=True))


@pytest.fixture(params=list(FIRST))
def crashes(request, monkeypatch):
    """Calls something with every change of phase cut short; true if the markers had moved."""

    def call(command, *args, **how):
        with monkeypatch.context() as broken:
            broken.setattr(*FIRST[request.param], crashing)
            with pytest.raises(Crash):
                command(*args, **how)
        return request.param.startswith("after")

    return call


@pytest.mark.parametrize("phase", ["pending", *UNDER_WAY])
def test_after_a_crash_in_a_change_the_same_command_goes_on(tool, crashes, phase):
    if phase != "pending":
        tool.apply(through=THROUGH[phase])
    moved = crashes(tool.apply, through=THROUGH[NEXT[phase]])
    assert {p for p, _ in tool.states()} == {NEXT[phase] if moved else phase}
    assert "to be completed" in (tool.status().waiting_for or "")
    tool.apply(through=THROUGH[NEXT[phase]])
    assert tool.phase() == NEXT[phase]
    assert tool.status().waiting_for is None
    assert tool.rollback(to="pending") == "pending"
    assert {one.type for one in picture(tool.place).values()} == {"string"}


@pytest.mark.parametrize("phase", ["verified", "switched", "contracted"])
def test_after_a_crash_on_the_way_back_the_same_command_goes_on(tool, crashes, phase):
    before = picture(tool.place)
    tool.apply(through=THROUGH[phase])
    crashes(tool.rollback)
    assert tool.rollback(to="pending") == "pending"
    assert picture(tool.place) == before
    assert own_keys(tool.place) == set()
    assert tool.phase() == "pending"


@pytest.mark.parametrize("phase", ["verified", "contracted"])
def test_after_a_crash_on_the_way_back_apply_does_not_turn_round(tool, crashes, phase):
    tool.apply(through=THROUGH[phase])
    moved = crashes(tool.rollback)
    tool.apply("0001", exit=60 if moved else 0)
    assert tool.phase() == ({"verified": "pending", "contracted": "reverting"}[phase] if moved else phase)


def test_markers_of_two_phases_are_completed_as_the_intent_says(cluster, tmp_path, monkeypatch):
    # Untagged: the markers of a whole cluster, of which a crash has changed some.
    tool = tool_for(cluster, tmp_path, MEMBERS.replace("{{t}}:", ""))
    tool.apply(through="expand")
    with tool.run() as run, monkeypatch.context() as broken:
        broken.setattr(run, "settle", crashing)
        whole, run.markers.slots = run.markers.slots, run.markers.slots[:8000]
        with pytest.raises(Crash):
            run.change("backfilled")
        run.markers.slots = whole
    assert tool.states() == {("expanded", 1), ("backfilled", 1)}
    tool.apply(through="backfill")
    assert tool.phase() == "backfilled"


# Phases that only a crash leaves.


def test_reverting_is_finished_by_rollback_or_given_up_by_contract(tool, monkeypatch):
    before = picture(tool.place)
    tool.apply(through="contract")
    contracted = picture(tool.place)
    with monkeypatch.context() as broken:
        broken.setattr(back, "rebuild", crashing)
        with pytest.raises(Crash):
            tool.rollback()
    assert tool.phase() == "reverting"
    assert tool.status().next == "migrator rollback 0001 --to switched --backup DIR --yes"
    tool.apply("0001", exit=60)

    tool.apply("0001", through="contract")
    assert (tool.phase(), picture(tool.place)) == ("contracted", contracted)
    assert tool.rollback(to="pending") == "pending"
    assert picture(tool.place) == before


def test_a_resumed_way_back_insists_on_the_backup(tool, monkeypatch, tmp_path):
    before = picture(tool.place)
    tool.apply(through="contract")
    with monkeypatch.context() as broken:
        broken.setattr(back, "rebuild", crashing)
        with pytest.raises(Crash):
            tool.rollback()
    right, tool.backup = tool.backup, tmp_path / "another"
    with pytest.raises(UsageError, match="another has none"):
        tool.rollback()
    assert tool.phase() == "reverting"
    tool.backup = right
    assert tool.rollback(to="pending") == "pending"
    assert picture(tool.place) == before


def test_closed_is_finished_by_restore_alone(tool, monkeypatch):
    before = picture(tool.place)
    tool.apply(through="contract")
    for step in ("_discard", "_put_saved", "clean"):
        with monkeypatch.context() as broken:
            broken.setattr(restore, step, crashing)
            with pytest.raises(Crash):
                tool.restore()
        if step != "clean":
            assert tool.phase() == "closed"
            with pytest.raises(RefusedError, match="a restore is under way"):
                tool.rollback()
            tool.apply("0001", exit=60)
    assert tool.phase() == "pending"
    tool.apply("0001", exit=60)
    assert tool.rollback(to="pending") == "pending"
    assert picture(tool.place) == before
    assert own_keys(tool.place) == set()


def test_a_restore_after_a_contract_that_was_cut_short_loses_nothing(tool, monkeypatch):
    from migrator.engine import sweep

    before = picture(tool.place)
    with monkeypatch.context() as broken:
        broken.setattr(sweep, "save_retired", crashing)
        with pytest.raises(Crash):
            tool.apply(through="contract")
    assert own_keys(tool.place) != set()
    with monkeypatch.context() as broken:
        broken.setattr(restore, "_put_saved", crashing)
        with pytest.raises(Crash):
            tool.restore()
    tool.restore()
    assert picture(tool.place) == before


def test_a_rollback_to_pending_that_was_cut_short_bars_the_way_until_it_is_finished(tool, monkeypatch):
    tool.apply()
    with monkeypatch.context() as broken:
        broken.setattr(back, "_clean_once", crashing)
        with pytest.raises(Crash):
            tool.rollback()
    assert tool.phase() == "pending"
    tool.apply("0001", exit=60)
    assert tool.status().next == "migrator rollback 0001 --to pending --yes"
    tool.rollback()
    assert own_keys(tool.place) == set()
    tool.apply("0001")


def test_a_sweep_whose_target_is_gone_keeps_the_old_record(tool):
    tool.apply(through="switch")
    with tool.run() as run:
        run.change("contracted", backup=str(tool.backup), backup_epoch=run.entry.epoch + 1, swept=False)
    tool.place.raw.execute_command("DEL", b"{t}:hash:a")
    tool.apply(through="contract", exit=30)
    assert tool.place.raw.execute_command("GET", b"{t}:text:a") == b" a"
    assert DifferencesError.exit_code == 30
