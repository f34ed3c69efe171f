"""Wherever a migration has got to, some command leads out of it."""

from __future__ import annotations

import pytest

from migrator.engine import back, forward, rebuild, sweep
from tests.support import KEYS, Crash, Tool, crashing, failover_after, own_keys, picture, put, tool_for


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
        broken.setattr(rebuild, "_drop_retired", crashing)
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
