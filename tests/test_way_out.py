"""Wherever a migration has got to, some command leads out of it."""

from __future__ import annotations

import pytest

from migrator.engine import back, rebuild, sweep
from tests.support import KEYS, Crash, crashing, picture, put, tool_for


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
    rebuilt: list[int] = []

    def lost_once(run, saved):
        whole(run, saved)
        rebuilt.append(1)
        if len(rebuilt) == 1:  # what a failover does that had not replicated the rebuild
            tool.place.raw.delete(b"{t}:text:a")
            monkeypatch.setattr(type(run.client), "processes", lambda _: "another")

    whole = rebuild.rebuild
    monkeypatch.setattr(back, "rebuild", lost_once)
    assert tool.rollback(to="pending") == "pending"
    assert (len(rebuilt), picture(tool.place)) == (2, before)


def test_a_restore_repeated_after_its_end_changes_nothing(tool):
    before = picture(tool.place)
    tool.apply(through="contract")
    assert tool.restore() == "pending"
    assert tool.restore() == "pending"
    assert picture(tool.place) == before
