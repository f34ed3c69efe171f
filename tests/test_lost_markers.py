"""Markers and ledger apart: set back by a failover, missing, flushed, or left behind; where we are is found out."""

from __future__ import annotations

import pytest

from migrator.engine import back, commands, forward, recover, restore
from migrator.engine.walk import MarkersMovedError
from migrator.errors import FencedError, LedgerBackwardsError, RefusedError, UnreachableError, UsageError
from migrator.phases import Fence
from tests.support import KEYS, Crash, Shell, all_keys, crashing, picture, put, tool_for
from tests.test_phases import THROUGH, UNDER_WAY


@pytest.fixture
def tool(client, tmp_path):
    for name in (b"a", b"b"):
        put(client, b"{t}:text:" + name, b" " + name)
    return tool_for(client, tmp_path, KEYS)


def set_back(tool, phase, epoch) -> None:
    session = tool.session()
    run = session.reader(session.modules.find("0001"))
    for slot in run.markers.slots:
        tool.place.raw.execute_command("HSET", run.markers.key(slot), "phase", phase, "epoch", epoch)


@pytest.mark.parametrize(("phase", "earlier"), [
    ("expanded", ("pending", 0)), ("backfilled", ("pending", 0)), ("backfilled", ("expanded", 1)),
    ("verified", ("expanded", 1)), ("verified", ("pending", 0)), ("switched", ("verified", 1)),
])  # fmt: skip
def test_a_marker_that_went_back_is_never_just_set_forward(tool, phase, earlier):
    tool.apply(through=THROUGH[phase])
    set_back(tool, *earlier)
    # What the failover took along with the marker.
    tool.place.raw.execute_command("DEL", b"{t}:hash:a")
    if phase == "switched":
        tool.apply(through="contract", exit=30)
        assert tool.states() == {earlier}
        return
    tool.apply(through=THROUGH[phase])
    assert tool.phase() == phase
    assert tool.status().families[0].target_count == (0 if phase == "expanded" else 2)
    tool.apply(through="switch")
    assert tool.status().families[0].target_count == 2


def test_a_marker_behind_contracted_is_compared_and_contracted_again(tool):
    tool.apply(through="switch")
    with tool.run() as run:
        run.change("contracted", backup=str(tool.backup), backup_epoch=run.entry.epoch + 1, swept=False)
    set_back(tool, "switched", 2)
    tool.apply(through="contract")
    assert tool.phase() == "contracted"
    assert {one.type for one in picture(tool.place).values()} == {"hash"}


def test_an_apply_that_has_come_as_far_looks_at_the_markers_all_the_same(tool):
    tool.apply(through="switch")
    set_back(tool, "verified", 1)
    tool.apply()
    assert tool.states() == {("switched", 2)}


@pytest.mark.parametrize("phase", [*UNDER_WAY, "contracted"])
def test_a_missing_marker_gets_the_phase_of_the_ledger(tool, phase):
    tool.apply(through=THROUGH[phase])
    (state,) = tool.states()
    for key in all_keys(tool.place):
        if b":marker:" in key:
            tool.place.raw.execute_command("DEL", key)
    assert tool.states() == set()
    tool.apply(through=THROUGH[phase])
    assert tool.states() == {state}


def test_a_missing_marker_stops_a_run_that_needs_it(tool):
    tool.apply()
    with tool.run() as run:
        tool.place.raw.execute_command("DEL", run.markers.key(run.markers.slots[0]))
        with pytest.raises(LedgerBackwardsError) as stopped:
            run.change("switched")
    assert stopped.value.exit_code == 62
    assert "migrator" in stopped.value.next


@pytest.mark.parametrize("way", ["there", "back"])
def test_markers_that_move_while_they_are_brought_together_are_looked_at_again(tool, monkeypatch, way):
    tool.apply()
    reconcile, calls = recover.reconcile, list[int]()

    def moving(run, **how):
        calls.append(1)
        if len(calls) == 1:
            raise MarkersMovedError
        reconcile(run, **how)

    monkeypatch.setattr(recover, "reconcile", moving)
    if way == "there":
        tool.apply(through="switch")
    else:
        tool.rollback()
    assert (len(calls), tool.phase()) == (2, "switched" if way == "there" else "pending")


def test_markers_that_keep_moving_end_a_command(tool, monkeypatch):
    tool.apply(through="expand")

    def moving(run, **how):
        raise MarkersMovedError

    monkeypatch.setattr(recover, "reconcile", moving)
    with pytest.raises(UnreachableError, match="replaced 5 times since it was expanded") as stopped:
        tool.rollback()
    assert "same command again" in stopped.value.next


def test_servers_replaced_in_one_phase_after_another_are_not_taken_for_a_run_that_never_gets_through(tool, monkeypatch):
    check, left = forward._Evidence.check, {"verified": 4, "switched": 4}

    def moving(evidence, run):
        if left[run.entry.phase]:
            left[run.entry.phase] -= 1
            raise MarkersMovedError
        check(evidence, run)

    monkeypatch.setattr(forward._Evidence, "check", moving)
    tool.apply(through="contract")
    assert (tool.phase(), left) == ("contracted", {"verified": 0, "switched": 0})


def test_a_lost_ledger_is_62_and_is_rebuilt_from_the_markers(tool):
    tool.apply(through="switch")
    ledger = tool.session().names.ledger
    tool.place.raw.execute_command("DEL", ledger)
    with pytest.raises(LedgerBackwardsError, match="a marker of 0001_first says switched") as stopped:
        tool.apply()
    assert "init --at markers" in stopped.value.next
    with pytest.raises(RefusedError, match="overrules"):
        commands.init(tool.session(yes=False), None, "markers")
    commands.init(tool.session(), None, "markers")
    assert tool.phase() == "switched"
    tool.apply(through="contract")
    assert tool.rollback(to="pending") == "pending"


@pytest.mark.parametrize("phase", ["switch", "contract"])
def test_whoever_asks_is_told_of_a_lost_ledger(tool, phase):
    tool.apply(through=phase)
    tool.place.raw.execute_command("DEL", tool.session().names.ledger)
    shell = Shell(tool.place, tool.directory)
    backup = ("--backup", str(tool.backup), "--yes")
    for words in (
        ("status",), ("plan",), ("apply",), ("verify", "0001"), ("rollback", "0001", *backup),
        ("restore", "0001", "--discard-later-writes", *backup), ("quarantine", "retry", "0001"),
        ("quarantine", "accept", "0001", "--all"),
    ):  # fmt: skip
        assert "init --at markers [--backup DIR] --yes" in shell.error(*words, exit=62, code="ledger-backwards")


def test_a_ledger_rebuilt_after_contract_still_finds_the_backup(tool):
    before = picture(tool.place)
    tool.apply(through="contract")
    tool.place.raw.execute_command("DEL", tool.session().names.ledger)
    commands.init(tool.session(), None, "markers")
    assert tool.phase() == "contracted"
    assert tool.rollback(to="pending") == "pending"
    assert picture(tool.place) == before


def lose_the_ledger(tool) -> None:
    tool.place.raw.execute_command("DEL", tool.session().names.ledger)


@pytest.fixture
def spaces(tool):
    """Contracted, and the ledger lost; what the old records hold is not what the inverse makes."""
    before = picture(tool.place)
    tool.apply(through="contract")
    lose_the_ledger(tool)
    commands.init(tool.session(backup=False), None, "markers")
    return before


def test_without_the_backup_that_contract_wrote_the_inverse_alone_rebuilds_nothing(tool, spaces, tmp_path):
    after = picture(tool.place)
    with pytest.raises(RefusedError, match="lies in the backup") as refused:
        tool.rollback(backup=False)
    assert "add --backup DIR; if contract was given none" in refused.value.next
    right, tool.backup = tool.backup, tmp_path / "wrong"
    with pytest.raises(UsageError, match=r"in a directory migrator-0001_first-contract-3, and .*wrong has none"):
        tool.rollback()
    assert (tool.phase(), picture(tool.place)) == ("contracted", after)
    tool.backup = right
    assert tool.rollback(to="pending") == "pending"
    assert picture(tool.place) == spaces


def test_the_backup_that_a_way_back_has_found_is_not_lost_when_it_is_given_up(tool, spaces, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(back, "rebuild", crashing)
        with pytest.raises(Crash):
            tool.rollback()
    tool.apply("0001", through="contract")
    entry = tool.session().entries()["0001_first"]
    assert (entry.backup, entry.backup_epoch, entry.epoch) == (str(tool.backup.resolve()), 3, 7)
    lose_the_ledger(tool)  # the markers tell of another epoch than that of the backup
    commands.init(tool.session(backup=False), None, "markers")
    assert tool.rollback(to="pending") == "pending"
    assert picture(tool.place) == spaces


def test_a_contract_that_had_nothing_to_save_is_taken_back_without_a_backup_on_the_operators_word(client, tmp_path):
    tool = tool_for(client, tmp_path, KEYS)
    tool.apply(through="contract", backup=False)
    put(client, b"{t}:hash:c", {b"id": b"c", b"text": b"c"})
    lose_the_ledger(tool)
    commands.init(tool.session(backup=False), None, "markers")
    with pytest.raises(RefusedError) as refused:
        tool.rollback(backup=False)
    assert "nothing to remove: migrator init 0001 --at contracted --yes" in refused.value.next
    commands.init(tool.session(), "0001", "contracted")
    assert tool.rollback(backup=False) == "switched"
    assert client.raw.get(b"{t}:text:c") == b"c"


def test_a_ledger_rebuilt_on_the_way_back_needs_the_backup(tool):
    before = picture(tool.place)
    tool.apply(through="contract")
    with tool.run() as run:
        run.change("reverting", rolled_back=True, swept=False)
    lose_the_ledger(tool)
    with pytest.raises(RefusedError, match="is reverting, and the old shape lies in the backup") as refused:
        commands.init(tool.session(backup=False), "0001", "markers")
    assert "init 0001 --at markers --backup DIR --yes" in refused.value.next
    commands.init(tool.session(), "0001", "markers")
    tool.apply()  # on the way back: not without its ID
    assert tool.phase() == "reverting"
    assert tool.rollback(to="pending") == "pending"
    assert picture(tool.place) == before


@pytest.mark.parametrize("discarded", [False, True])
def test_a_ledger_rebuilt_in_the_middle_of_a_restore_leads_to_its_end(tool, monkeypatch, discarded):
    before = picture(tool.place)
    tool.apply(through="contract")
    put(tool.place, b"{t}:hash:c", {b"id": b"c", b"text": b"c"})
    with monkeypatch.context() as broken:
        broken.setattr(restore, "_put_saved" if discarded else "_discard_all", crashing)
        with pytest.raises(Crash):
            tool.restore()
    put(tool.place, b"{t}:text:z", b"put back")  # as if it were one of those
    lose_the_ledger(tool)
    with pytest.raises(RefusedError, match="is closed, and"):
        commands.init(tool.session(backup=False), None, "markers")
    assert tool.states() == {("closed", 6 if discarded else 5)}
    commands.init(tool.session(), None, "markers")
    assert tool.restore() == "pending"
    put_back = {b"{t}:text:z"} if discarded else set()
    assert {key: one for key, one in picture(tool.place).items() if key not in put_back} == before


def test_a_rebuilt_ledger_keeps_what_is_known_and_leaves_alone_what_is_right(tool):
    tool.apply(through="switch")
    tool.rollback(to="expanded")
    ledger = tool.session().names.ledger
    old = tool.place.raw.execute_command("HGET", ledger, "0001_first")
    commands.init(tool.session(), None, "markers")
    assert tool.session().entries()["0001_first"].rolled_back
    tool.apply("0001", through="switch")
    tool.place.raw.execute_command("HSET", ledger, "0001_first", old)
    with pytest.raises(LedgerBackwardsError) as stopped:
        tool.rollback()
    assert "init 0001 --at markers" in stopped.value.next
    commands.init(tool.session(), "0001", "markers")
    entry = tool.session().entries()["0001_first"]
    assert (entry.phase, entry.epoch, entry.rolled_back) == ("switched", 4, True)


def test_a_ledger_rebuilt_after_a_rollback_does_not_carry_it_forward_unasked(tool):
    tool.apply(through="switch")
    tool.rollback(to="expanded")
    lose_the_ledger(tool)
    commands.init(tool.session(), None, "markers")
    tool.apply()
    assert tool.phase() == "expanded"
    tool.apply("0001")
    assert tool.phase() == "verified"


def test_a_ledger_that_is_older_than_a_marker_is_62(tool):
    tool.apply()
    ledger = tool.session().names.ledger
    old = tool.place.raw.execute_command("HGET", ledger, "0001_first")
    tool.apply(through="switch")
    tool.place.raw.execute_command("HSET", ledger, "0001_first", old)
    tool.apply(through="switch", exit=62)
    assert tool.states() == {("switched", 2)}


def test_no_ledger_but_records_of_the_new_shape_is_62_until_told_what_they_are(tool):
    put(tool.place, b"{t}:hash:z", {b"id": b"z", b"text": b"z"})
    with pytest.raises(LedgerBackwardsError, match="keys in the new shape"):
        tool.apply()
    with pytest.raises(LedgerBackwardsError, match="keys in the new shape"):
        tool.plan()
    with pytest.raises(RefusedError, match="records in the old shape"):
        commands.init(tool.session(), "0001", "contracted")
    commands.init(tool.session(), "0001", "pending")
    tool.apply(through="expand")
    tool.rollback(to="pending")
    assert b"{t}:hash:z" in picture(tool.place)


def test_init_at_contracted_says_that_all_is_done(tool):
    tool.place.raw.execute_command("DEL", b"{t}:text:a", b"{t}:text:b")
    put(tool.place, b"{t}:hash:z", {b"id": b"z", b"text": b"z"})
    commands.init(tool.session(), "0001", "contracted")
    assert tool.phase() == "contracted"
    assert tool.status().next is None
    assert tool.states() == {("contracted", 1)}
    assert tool.rollback() == "switched"
    assert tool.place.raw.execute_command("GET", b"{t}:text:z") == b"z"


def test_after_flushall_everything_is_a_fresh_install(tool):
    tool.apply(through="switch")
    tool.place.behind.freshen()
    assert tool.status().phase == "pending"
    put(tool.place, b"{t}:text:a", b"a")
    tool.apply()
    assert tool.states() == {("verified", 1)}


def test_a_run_that_lost_everything_to_flushall_stops_as_fenced(tool):
    tool.apply(through="expand")
    with tool.run() as run:
        tool.place.behind.freshen()
        with pytest.raises(FencedError):
            run.change("backfilled")
    assert all_keys(tool.place) == set()


def test_a_holder_whose_lease_was_broken_writes_no_more(tool):
    tool.apply(through="expand")
    with tool.run() as run:
        run.lease.fence = Fence(run.lease.fence.number, "somebody else's")
        with pytest.raises(FencedError):
            run.change("backfilled")
    assert tool.phase() == "expanded"
