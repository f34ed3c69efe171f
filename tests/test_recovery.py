"""Recovery where a crash and a failover come together: no marker of `contracted` goes back, and a command leads out."""

from __future__ import annotations

import json

import pytest

from migrator.adapters import Records
from migrator.engine import back, commands, rebuild, recover, restore
from migrator.engine.run import Run
from migrator.engine.sweep import contract_backup
from migrator.engine.walk import MarkersMovedError
from migrator.errors import DifferencesError, FencedError, RefusedError
from migrator.phases import Fence, Phase
from tests.records import saved
from tests.support import KEYS, Crash, Tool, all_keys, crashing, modules_of, own_keys, picture, put, tool_for
from tests.test_lost_markers import set_back

# Three slots, and so three markers.
APART = """
from migrator import KeyMove, Keys, Migration

def move(tag):
    return KeyMove(
        source=Keys(f"{{{{{tag}}}}}:text:{{id}}", type="string"),
        target=Keys(f"{{{{{tag}}}}}:hash:{{id}}", type="hash"),
        forward=lambda key, text: {b"id": key["id"], b"text": text.strip()},
        inverse=lambda key, fields: fields[b"text"],
    )

migration = Migration(*map(move, "abc"))
"""
A, B, C = (b"{%s}:text:1" % tag for tag in (b"a", b"b", b"c"))


@pytest.fixture
def apart(cluster, tmp_path):
    for key in (A, B, C):
        put(cluster, key, b" " + key)
    tool = tool_for(cluster, tmp_path, APART)
    tool.apply(through="switch")
    return tool


@pytest.fixture
def tool(client, tmp_path):
    for name in (b"a", b"b"):
        put(client, b"{t}:text:" + name, b" " + name)
    return tool_for(client, tmp_path, KEYS)


def crash_in_contract(tool: Tool, monkeypatch, reached: bytes) -> int:
    """A crash when the marker beside one record says `contracted` and no other does; its slot."""
    with tool.run() as run, monkeypatch.context() as broken:
        broken.setattr(run, "settle", crashing)
        slot = tool.client.slot(reached)
        whole, run.markers.slots = run.markers.slots, [slot]
        epoch = run.entry.epoch + 1
        contract_backup(run, epoch).finish()
        with pytest.raises(Crash):
            run.change("contracted", backup=str(tool.backup.resolve()), backup_epoch=epoch, swept=False, saved=False)
        run.markers.slots = whole
    return slot


def fail_over(tool: Tool, key: bytes, phase: str, epoch: int) -> int:
    """The marker beside this record is an older one; its slot."""
    session, slot = tool.session(), tool.client.slot(key)
    marker = session.reader(session.modules.find("0001")).markers.key(slot)
    tool.place.raw.hset(marker, mapping={"phase": phase, "epoch": epoch})
    return slot


def go_back(tool: Tool, to: str | None, **how: bool) -> str:
    """What `rollback` does, once it is said that it goes back."""
    session = tool.session(**how)
    with session.leased() as lease:
        run = session.run(lease, session.modules.find("0001"))
        recover.persist(run, lambda: back.rollback(run, to), back=True)  # type: ignore[arg-type] # any phase
        return str(run.entry.phase)


def contracted(tool: Tool, *, through: str = "switch") -> None:
    """Contract is said, and nothing is removed yet."""
    tool.apply(through=through)
    with tool.run() as run:
        epoch = run.entry.epoch + 1
        contract_backup(run, epoch).finish()
        run.change("contracted", backup=str(tool.backup.resolve()), backup_epoch=epoch, swept=False, saved=False)


def cut_off(apart: Tool, monkeypatch, phase: Phase) -> None:
    """Back from contract, and a crash when the first marker says the phase after that."""
    apart.apply(through="contract")
    with apart.run() as run, monkeypatch.context() as broken:
        run.change("reverting", rolled_back=True, swept=False)
        if phase == "switched":
            rebuild.rebuild(run, back.backup_of(run))
        broken.setattr(run, "settle", crashing)
        whole, run.markers.slots = run.markers.slots, [apart.client.slot(A)]
        with pytest.raises(Crash):
            run.change(phase, swept=False)
        run.markers.slots = whole
    fail_over(apart, B, "contracted", 4)
    assert apart.states() == {("reverting", 5), (phase, 6), ("contracted", 4)}


def test_a_slot_that_went_back_behind_a_way_back_that_is_given_up_goes_on_with_the_others(apart, monkeypatch):
    cut_off(apart, monkeypatch, "contracted")
    with apart.run() as run:
        recover.reconcile(run)
    assert apart.states() == {("contracted", 6)}
    apart.apply("0001", through="contract")
    assert apart.rollback() == "switched"
    assert [apart.place.raw.get(key) for key in (A, B, C)] == [b" " + key for key in (A, B, C)]


def test_a_slot_that_went_back_behind_a_rebuild_is_rebuilt_in_an_epoch_that_no_slot_has_seen(apart, monkeypatch):
    cut_off(apart, monkeypatch, "switched")
    apart.place.raw.delete(B)  # nor has the replica heard of what was rebuilt
    with apart.run() as run:
        recover.reconcile(run)
    assert apart.states() == {("reverting", 7)}
    assert apart.rollback() == "switched"
    assert [apart.place.raw.get(key) for key in (A, B, C)] == [b" " + key for key in (A, B, C)]


def test_in_pending_slots_that_went_back_alone_are_cleaned_and_on_the_operators_word(apart):
    assert apart.rollback(to="pending") == "pending"
    fail_over(apart, B, "expanded", 3)
    put(apart.place, b"{b}:hash:1", {b"text": b"of the migration"})
    put(apart.place, b"{a}:hash:1", {b"text": b"somebody's own"})
    stopped = apart.apply("0001", exit=60).stopped
    assert stopped is not None
    assert "took 1 slot back" in stopped.reason
    assert "rollback 0001 --to pending" in (stopped.next or "")
    assert apart.place.raw.exists(b"{b}:hash:1")
    assert apart.rollback(to="pending") == "pending"
    assert [apart.place.raw.exists(key) for key in (b"{b}:hash:1", b"{a}:hash:1")] == [0, 1]
    apart.apply("0001", exit=60, backup=False)  # that one is adopted with a backup only
    apart.apply("0001", through="switch")


def test_what_was_adopted_is_not_removed_again_where_a_slot_went_back(tool):
    put(tool.place, b"{t}:hash:z", {b"text": b"older"})
    commands.init(tool.session(), "0001", "pending")
    tool.apply(through="expand")
    assert tool.rollback() == "pending"
    set_back(tool, "expanded", 1)
    session = tool.session()
    for slot in session.reader(session.modules.find("0001")).markers.slots:
        tool.place.raw.sadd(session.names.adopted("0001_first", tool.client.slot_tag(slot)), b"{t}:hash:z")
    with pytest.raises(RefusedError, match="is to be removed again"):
        tool.rollback()
    assert tool.rollback() == "pending"
    assert tool.place.raw.hgetall(b"{t}:hash:z") == {b"text": b"older"}
    assert not [key for key in all_keys(tool.place) if b":adopted:" in key]


@pytest.mark.parametrize("earlier", [("verified", 1), ("switched", 1)])
def test_markers_of_three_phases_are_completed_forward_and_what_was_written_in_contracted_stays(
    apart, monkeypatch, earlier
):
    slot = crash_in_contract(apart, monkeypatch, A)
    assert fail_over(apart, B, *earlier) != slot
    records = Records(apart.place.raw, modules_of(apart.directory).find("0001"), source="{{a}}:text:{id}")
    records.put({b"id": b"1", b"text": b"newer"}, id=b"1")  # the old one is set aside
    assert apart.states() == {("switched", 2), ("contracted", 3), earlier}
    with apart.run() as run:
        recover.reconcile(run)
        marker = run.markers.read([slot])[slot]
        assert marker is not None
        assert (marker.phase, marker.epoch, run.entry.phase, run.entry.epoch) == ("contracted", 3, "contracted", 3)
    apart.apply(through="contract")
    assert apart.states() == {("contracted", 4)}
    assert apart.place.raw.hget(b"{a}:hash:1", "text") == b"newer"
    assert go_back(apart, "pending") == "pending"
    assert {key: apart.place.raw.get(key) for key in (A, B, C)} == {A: b"newer", B: b" " + B, C: b" " + C}


def test_slots_that_differ_beside_contracted_ones_stay_where_they_are_and_are_named(apart, monkeypatch):
    crash_in_contract(apart, monkeypatch, A)
    fail_over(apart, B, "verified", 1)
    apart.place.raw.delete(b"{b}:hash:1")
    states = apart.states()
    for _ in range(2):
        with pytest.raises(
            DifferencesError, match=r"back from contracted to verified; 1 record .* \{b\}:text:1"
        ) as held:
            go_back(apart, "switched")
        assert "by hand" in held.value.next
        assert apart.states() == states
    put(apart.place, b"{b}:hash:1", {b"id": b"1", b"text": B})
    assert go_back(apart, "switched") == "switched"


def test_the_end_of_a_sweep_is_not_told_of_slots_that_were_not_swept(apart, monkeypatch):
    apart.apply(through="contract")
    with apart.run() as run, monkeypatch.context() as broken:
        broken.setattr(run, "settle", crashing)
        whole, run.markers.slots = run.markers.slots, [apart.client.slot(A)]
        with pytest.raises(Crash):
            run.change("contracted", swept=True, saved=True)
        run.markers.slots = whole
    fail_over(apart, B, "switched", 2)
    put(apart.place, B, b" " + B)  # nor has the replica heard of its removal
    with apart.run() as run, monkeypatch.context() as broken:
        broken.setattr(recover, "_finish", crashing)
        with pytest.raises(Crash):
            recover.reconcile(run)
    apart.apply(through="contract")
    assert apart.place.raw.exists(B) == 0
    assert apart.states() == {("contracted", 6)}


def test_a_crash_in_recovery_does_not_make_a_slot_that_went_back_a_swept_one(tool, monkeypatch):
    tool.apply(through="contract")
    set_back(tool, "switched", 2)
    for name in (b"a", b"b"):
        put(tool.place, b"{t}:text:" + name, b" " + name)
    with monkeypatch.context() as broken:
        broken.setattr(Run, "make_durable", crashing)
        with pytest.raises(Crash), tool.run() as run:
            recover.reconcile(run)
    tool.apply(through="contract")
    assert {one.type for one in picture(tool.place).values()} == {"hash"}
    assert tool.rollback(to="pending") == "pending"
    assert tool.place.raw.get(b"{t}:text:a") == b" a"


def test_a_slot_that_differs_behind_contracted_leads_back_and_its_old_records_are_saved(tool):
    contracted(tool)
    set_back(tool, "switched", 2)
    put(tool.place, b"{t}:text:a", b"foreign")
    stopped = tool.apply(through="contract", exit=30).stopped
    assert stopped is not None
    assert "migrator rollback 0001 --to switched --backup DIR --yes" in (stopped.next or "")
    assert tool.states() == {("switched", 2)}
    with pytest.raises(RefusedError, match="overwrites old records that differ"):
        go_back(tool, "switched", backup=False)
    assert tool.states() == {("switched", 2)}
    assert go_back(tool, "switched") == "switched"
    assert tool.phase() == "switched"
    assert (tool.place.raw.get(b"{t}:text:a"), tool.place.raw.get(b"{t}:text:b")) == (b"a", b" b")
    assert [(key, text) for key, _, _, text in saved(tool.backup, "*foreign-new*")] == [(b"{t}:text:a", b"foreign")]
    assert tool.verify().different == 0
    tool.apply("0001", through="contract")
    assert own_keys(tool.place) == set()


def test_a_restore_leads_out_of_it_too(tool):
    contracted(tool)
    set_back(tool, "switched", 2)
    put(tool.place, b"{t}:text:a", b"foreign")
    session = tool.session()
    with session.leased() as lease:
        run = session.run(lease, session.modules.find("0001"))
        recover.persist(run, lambda: restore.restore(run), back=True)
    assert tool.phase() == "pending"
    assert (tool.place.raw.get(b"{t}:text:a"), tool.place.raw.get(b"{t}:text:b")) == (b"foreign", b" b")


@pytest.mark.parametrize("earlier", [("verified", 1), ("expanded", 1)])
def test_a_slot_that_differs_behind_switched_leads_back_to_expanded_where_the_old_shape_counts(tool, earlier):
    tool.apply(through="switch")
    set_back(tool, *earlier)
    put(tool.place, b"{t}:text:a", b"written past the adapters")
    stopped = tool.apply(through="contract", exit=30).stopped
    assert stopped is not None
    assert stopped.next == "go back with: migrator rollback 0001 --to expanded --yes"
    assert go_back(tool, "expanded") == "expanded"
    assert tool.states() == {("expanded", 3)}
    tool.apply()  # rolled back: not without its ID
    assert tool.phase() == "expanded"
    tool.apply("0001", through="switch")
    assert tool.place.raw.hget(b"{t}:hash:a", "text") == b"written past the adapters"


def test_a_bare_rollback_goes_no_step_further_than_recovery_did(tool):
    tool.apply(through="switch")
    set_back(tool, "verified", 1)
    put(tool.place, b"{t}:text:a", b"written past the adapters")
    assert tool.rollback() == "expanded"
    assert tool.rollback() == "pending"


def test_a_bare_rollback_that_was_cut_off_is_finished_and_no_more(tool, monkeypatch):
    tool.apply(through="switch")
    with monkeypatch.context() as broken:
        broken.setattr(Run, "settle", crashing)
        with pytest.raises(Crash):
            tool.rollback()
    assert tool.states() == {("expanded", 3)}
    assert tool.rollback() == "expanded"


def test_a_bare_rollback_of_a_switch_that_was_cut_off_undoes_the_switch(tool, monkeypatch):
    tool.apply()
    with monkeypatch.context() as broken:
        broken.setattr(Run, "settle", crashing)
        with pytest.raises(Crash):
            tool.apply(through="switch")
    assert tool.rollback() == "expanded"


@pytest.mark.parametrize("earlier", [("contracted", 4), ("reverting", 5)])
def test_a_slot_of_an_earlier_way_back_is_rebuilt_again_and_never_taken_for_whole(tool, earlier):
    before = picture(tool.place)
    tool.apply(through="contract")
    assert tool.rollback() == "switched"
    assert tool.states() == {("switched", 6)}
    set_back(tool, *earlier)
    tool.place.raw.delete(b"{t}:text:a")
    stopped = tool.apply("0001", exit=60).stopped
    assert stopped is not None
    assert "rollback 0001 --to switched" in (stopped.next or "")
    assert tool.phase() == "reverting"
    assert tool.rollback(to="pending") == "pending"
    assert picture(tool.place) == before


def test_a_slot_of_a_way_back_that_was_given_up_is_contracted_with_the_others(tool):
    tool.apply(through="contract")
    with tool.run() as run:
        run.change("reverting", rolled_back=True, swept=False)
    tool.apply("0001", through="contract")
    set_back(tool, "reverting", 5)
    put(tool.place, b"{t}:text:a", b" a")  # of two, one was rebuilt there
    tool.apply("0001", through="contract")
    assert tool.phase() == "contracted"
    assert {one.type for one in picture(tool.place).values()} == {"hash"}


def test_what_goes_on_after_recovery_gives_its_result(tool):
    tool.apply()
    with tool.run() as run:
        assert recover.persist(run, lambda: json.dumps(run.entry.phase)) == '"verified"'


def test_a_run_whose_fence_another_process_took_stops_as_fenced(tool):
    tool.apply(through="expand")
    with tool.run() as run:

        def replaced():
            run.markers.raise_fence(Fence(run.lease.fence.number + 1, "another"))
            raise MarkersMovedError

        with pytest.raises(FencedError, match="took over the lease"):
            recover.persist(run, replaced)


def test_a_change_that_came_to_no_marker_is_not_completed_by_recovery(tool, monkeypatch):
    tool.apply(through="switch")
    with tool.run() as run, monkeypatch.context() as broken:
        broken.setattr(type(run.markers), "change", crashing)
        with pytest.raises(Crash):
            run.change("contracted", swept=False, saved=False)
    set_back(tool, "verified", 1)
    tool.apply()
    assert (tool.phase(), tool.states()) == ("switched", {("switched", 2)})


def lose_the_ledger(tool: Tool) -> None:
    tool.place.raw.delete(tool.session().names.ledger)


def rebuilt(tool: Tool) -> str:
    """The ledger, from markers that do not agree; what is said of that."""
    (note,) = commands.init(tool.session(), "0001", "markers").notes
    return note


@pytest.mark.parametrize("ledger", ["lost", "without the intent"])
def test_a_switch_cut_short_goes_on_when_its_intent_is_lost(cluster, tmp_path, ledger):
    for key in (A, B, C):
        put(cluster, key, b" " + key)
    tool = tool_for(cluster, tmp_path, APART)
    tool.apply(through="verify")
    before = picture(cluster)
    fail_over(tool, A, "switched", 2)
    if ledger == "lost":
        lose_the_ledger(tool)
    assert "some markers are behind switched" in rebuilt(tool)
    put(cluster, b"{b}:hash:1", {b"id": b"1", b"text": b"an application without an adapter"})
    tool.apply("0001", through="contract", exit=30)  # compared, as it is not known what took that marker back
    put(cluster, b"{b}:hash:1", {b"id": b"1", b"text": B})
    tool.apply("0001", through="switch")
    assert (tool.states(), picture(cluster)) == ({("switched", 2)}, before)


def test_a_contract_cut_short_goes_on_when_its_ledger_is_lost(apart, monkeypatch):
    crash_in_contract(apart, monkeypatch, A)
    lose_the_ledger(apart)
    assert apart.states() == {("switched", 2), ("contracted", 3)}
    rebuilt(apart)
    apart.apply("0001", through="contract")
    assert apart.phase() == "contracted"
    assert {key for key, *_ in saved(apart.backup)} == {A, B, C}
    assert apart.rollback() == "switched"
    assert [apart.place.raw.get(key) for key in (A, B, C)] == [b" " + key for key in (A, B, C)]


@pytest.mark.parametrize("phase", ["contracted", "switched"])
def test_a_way_back_cut_short_goes_on_when_its_ledger_is_lost(apart, monkeypatch, phase):
    cut_off(apart, monkeypatch, phase)
    fail_over(apart, B, "reverting", 5)
    lose_the_ledger(apart)
    if phase == "switched":
        with pytest.raises(RefusedError, match="lies in the backup of its contract"):
            commands.init(apart.session(backup=False), "0001", "markers")
    rebuilt(apart)
    assert go_back(apart, "switched") == "switched"
    assert [apart.place.raw.get(key) for key in (A, B, C)] == [b" " + key for key in (A, B, C)]


def test_a_rollback_to_pending_cut_short_removes_the_new_shape_when_its_ledger_is_lost(apart, monkeypatch):
    apart.rollback(to="expanded")
    with apart.run() as run, monkeypatch.context() as broken:
        broken.setattr(run, "settle", crashing)
        run.markers.slots = [apart.client.slot(A)]
        with pytest.raises(Crash):
            run.change("pending", rolled_back=True, cleaning=True)
    lose_the_ledger(apart)
    assert apart.states() == {("expanded", 3), ("pending", 4)}
    rebuilt(apart)
    apart.apply("0001", exit=60)
    assert apart.rollback() == "pending"
    assert set(picture(apart.place)) == {A, B, C}


def test_markers_that_no_phase_is_true_of_are_refused_with_a_step_that_leads_out(apart):
    apart.apply(through="contract")
    fail_over(apart, A, "expanded", 7)
    with pytest.raises(RefusedError, match="markers say expanded, others contracted") as refused:
        commands.init(apart.session(), "0001", "markers")
    assert "put a copy of the data back" in refused.value.next


def test_without_any_marker_a_ledger_that_is_there_gives_them(apart):
    session = apart.session()
    run = session.reader(session.modules.find("0001"))
    for slot in run.markers.slots:
        apart.place.raw.delete(run.markers.key(slot))
    with pytest.raises(RefusedError, match="there are no markers") as refused:
        commands.init(apart.session(), "0001", "markers")
    assert refused.value.next == "migrator init"
    commands.init(apart.session(), None, None)
    assert apart.phase() == "switched"
