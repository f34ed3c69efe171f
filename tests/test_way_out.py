"""Wherever a migration has got to, some command leads out of it."""

from __future__ import annotations

import pytest

from migrator.engine import back, forward, rebuild, sweep
from migrator.errors import RefusedError
from tests.support import KEYS, MEMBERS, Crash, Tool, crashing, failover_after, own_keys, picture, put, tool_for

TIMES, SORTED = b"{t}:times:a", b"{t}:sorted:a"


@pytest.fixture
def tool(client, tmp_path):
    put(client, b"{t}:text:a", b" a")
    put(client, b"{t}:text:b", b"b ")
    return tool_for(client, tmp_path, KEYS)


def test_a_record_written_past_the_migration_does_not_bar_the_way_back_and_is_settled_in_switched(tool):
    tool.apply(through="contract")
    put(tool.place, b"{t}:text:late", b"late")
    assert tool.rollback() == "switched"
    tool.apply("0001", through="contract", exit=30)
    assert tool.verify(foreign="old").missing == 0
    tool.apply("0001", through="contract")
    assert tool.place.raw.hget(b"{t}:hash:late", "text") == b"late"
    assert tool.place.raw.exists(b"{t}:text:late") == 0


def test_a_way_back_given_up_after_a_crash_leaves_nothing_in_the_way_of_contract(tool, monkeypatch):
    before = picture(tool.place)
    with monkeypatch.context() as broken:
        broken.setattr(sweep, "save_retired", crashing)
        with pytest.raises(Crash):
            tool.apply(through="contract")
    with monkeypatch.context() as broken:
        broken.setattr(rebuild, "drop_retired", crashing)
        with pytest.raises(Crash):
            tool.rollback()
    assert tool.phase() == "reverting"
    tool.apply("0001", through="contract")
    assert (tool.phase(), set(picture(tool.place))) == ("contracted", {b"{t}:hash:a", b"{t}:hash:b"})
    assert tool.rollback(to="pending") == "pending"
    assert picture(tool.place) == before


def test_the_old_shape_is_rebuilt_again_if_a_server_was_replaced_meanwhile(tool, monkeypatch):
    before = picture(tool.place)
    tool.apply(through="contract")
    done = failover_after(monkeypatch, back, "rebuild", lambda: tool.place.raw.delete(b"{t}:text:a"))
    assert tool.rollback(to="pending") == "pending"
    assert (len(done), picture(tool.place)) == (2, before)


def retired(tool: Tool) -> bytes:
    return tool.session().names.beside("old", "0001_first").name(b"{t}:text:a", lambda _: b"")


def test_what_a_failover_brings_back_of_the_old_shape_is_removed_before_a_contract_counts(tool, monkeypatch):
    done = failover_after(monkeypatch, sweep, "save_retired", lambda: put(tool.place, retired(tool), b" a"))
    tool.apply(through="contract")
    assert (len(done), own_keys(tool.place), tool.phase()) == (2, set(), "contracted")


def test_what_a_failover_brings_back_of_the_new_shape_is_removed_before_a_clean_up_counts(tool, monkeypatch):
    before = picture(tool.place)
    tool.apply()
    done = failover_after(monkeypatch, back, "_clean_all", lambda: put(tool.place, b"{t}:hash:a", {b"id": b"a"}))
    assert tool.rollback() == "pending"
    assert (len(done), picture(tool.place)) == (2, before)


def test_what_a_failover_brings_back_while_a_way_back_is_given_up_is_not_in_the_way_of_contract(tool, monkeypatch):
    tool.apply(through="contract")
    with tool.run() as run:
        run.change("reverting", rolled_back=True, swept=False)
        rebuild.rebuild(run, back.backup_of(run))
    done = failover_after(monkeypatch, forward, "save_retired", lambda: put(tool.place, retired(tool), b" a"))
    tool.apply("0001", through="contract")
    assert (len(done), own_keys(tool.place), tool.phase()) == (2, set(), "contracted")


def test_a_restore_repeated_after_its_end_changes_nothing(tool):
    before = picture(tool.place)
    tool.apply(through="contract")
    assert tool.restore() == "pending"
    assert tool.restore() == "pending"
    assert picture(tool.place) == before


def test_a_contract_that_found_nothing_to_remove_is_resumed_as_it_began(client, tmp_path, monkeypatch):
    tool = tool_for(client, tmp_path, KEYS)
    with monkeypatch.context() as broken:
        broken.setattr(forward, "sweep", crashing)
        with pytest.raises(Crash):
            tool.apply(through="contract", backup=False)
    assert tool.status().next == "migrator apply 0001 --through contract --yes"
    tool.apply(through="contract", backup=False)
    assert tool.status().next is None


def test_what_such_a_contract_finds_after_all_is_removed_into_a_backup_that_is_found_again(
    client, tmp_path, monkeypatch
):
    tool = tool_for(client, tmp_path, KEYS)
    with monkeypatch.context() as broken:
        broken.setattr(forward, "sweep", crashing)
        with pytest.raises(Crash):
            tool.apply(through="contract", backup=False)
    put(client, b"{t}:text:a", b" a")
    put(client, b"{t}:hash:a", {b"id": b"a", b"text": b"a"})
    before = picture(client)
    tool.apply(through="contract", backup=False, exit=60)
    assert picture(client) == before
    tool.apply(through="contract")
    assert set(picture(client)) == {b"{t}:hash:a"}
    with pytest.raises(RefusedError, match="backup"):
        tool.rollback(backup=False)
    assert tool.restore() == "pending"
    assert client.raw.get(b"{t}:text:a") == b" a"


@pytest.mark.parametrize("source", [KEYS, MEMBERS], ids=["keys", "members"])
def test_what_was_written_past_a_way_back_is_in_the_way_of_giving_it_up(client, tmp_path, monkeypatch, source):
    tool, late = tool_for(client, tmp_path, source), {KEYS: (b"{t}:text:late", b"b"), MEMBERS: (TIMES, {b"late": b"2"})}
    put(client, b"{t}:text:a", b"a")
    put(client, TIMES, {b"a": b"1"})
    tool.apply(through="contract")
    with monkeypatch.context() as broken:
        broken.setattr(back, "rebuild", crashing)
        with pytest.raises(Crash):
            tool.rollback()
    assert tool.phase() == "reverting"
    put(client, *late[source])
    before = picture(client)
    tool.apply("0001", through="contract", exit=30)
    assert (tool.phase(), picture(client)) == ("reverting", before)
    assert tool.rollback() == "switched"
    tool.verify(foreign="old")
    tool.apply("0001", through="contract")
    assert not client.raw.exists(late[source][0])
    assert (
        client.raw.hget(b"{t}:hash:late", "text") == b"b" if source == KEYS else client.raw.zscore(SORTED, "late") == 2
    )


@pytest.mark.parametrize("through", ["switch", "contract"])
def test_a_comparison_counts_only_on_the_servers_it_began_on(tool, monkeypatch, through):
    """What was repaired on a server that is replaced before the phase changes may be lost with it."""
    tool.apply(through="backfill")
    put(tool.place, b"{t}:text:a", b"written past the adapters")
    done = failover_after(monkeypatch, forward, "compare", lambda: put(tool.place, b"{t}:hash:a", {b"text": b"a"}))
    tool.apply(through=through)
    assert len(done) >= 2
    assert tool.place.raw.hget(b"{t}:hash:a", "text") == b"written past the adapters"


def test_a_way_back_that_leads_elsewhere_is_refused(tool):
    for through in ("backfill", "verify"):
        tool.apply(through=through)
        with pytest.raises(RefusedError, match="leads to pending, not to expanded"):
            tool.rollback(to="expanded")
