"""What stands under a target name and has no old record: of our type it is an extra; of another one it is not ours."""

from __future__ import annotations

import pytest

from migrator.engine import bulk
from migrator.engine.copy import FORWARD, drop_keys
from migrator.engine.copy_members import drop_members
from tests.support import KEYS, MEMBERS, SAME_NAME, Shell, picture, put, tool_for

# A capture takes all that follows, so the template matches the application's index too.
TEXT, OTHER = b"{t}:text:a", b"{t}:hash:a:idx"


@pytest.fixture
def tool(client, tmp_path):
    put(client, TEXT, b"text")
    tool = tool_for(client, tmp_path, KEYS)
    tool.apply(through="expand")
    put(client, OTHER, {b"job": 5.0})
    return tool


def test_a_key_of_another_type_is_left_alone_on_the_whole_way_there_and_back(client, tool):
    before = picture(client, OTHER)
    applied = tool.apply(through="verify", yes=False, backup=False)
    assert [note for note in applied.notes if OTHER.decode() in note and "is a zset" in note]
    for step in (
        lambda: tool.verify(repair=True),
        lambda: tool.apply(through="switch"),
        lambda: tool.verify(foreign="old"),
        lambda: tool.verify(foreign="new"),
        lambda: tool.apply(through="contract"),
        lambda: tool.rollback(to="switched"),
        lambda: tool.rollback(to="pending"),
    ):
        step()
        assert picture(client, OTHER) == before
    assert set(picture(client)) == {TEXT, OTHER}


def test_a_key_of_another_type_is_no_difference(client, tool):
    tool.apply(through="backfill")
    found = Shell(client, tool.directory)("verify", "0001")
    assert (found["complete"], found["compared"], found["extra"]) == (True, 1, 0)


def test_a_key_of_another_type_is_in_the_way_once_it_has_an_old_record(client, tool):
    put(client, b"{t}:text:a:idx", b"text")
    tool.apply(exit=32)
    [rejected] = Shell(client, tool.directory)("quarantine", "list", "0001")["records"]
    assert (rejected["key"], rejected["reason"].split(":")[0]) == ("{t}:text:a:idx", "target-type")
    assert client.raw.execute_command("TYPE", OTHER) in (b"zset", "zset")


@pytest.mark.parametrize("source", [KEYS, SAME_NAME], ids=["other name", "same name"])
def test_the_script_that_drops_copies_removes_no_key_of_another_type(client, tmp_path, source):
    tool = tool_for(client, tmp_path, source)
    tool.apply(through="expand")
    with tool.run() as run:
        [family] = run.families
        pair = family.from_old(b"{t}:text:gone")
        assert pair is not None
        put(client, pair.new, {b"job": 5.0})
        drop_keys(run, family, FORWARD, [pair])
        assert client.raw.zcard(pair.new) == 1
        client.raw.delete(pair.new)
        put(client, pair.new, {b"text": b"a copy"})
        drop_keys(run, family, FORWARD, [pair])
        assert not client.raw.exists(pair.new)


@pytest.mark.parametrize("in_bulk", [True, False], ids=["in bulk", "one by one"])
def test_a_collection_of_another_type_is_left_alone_and_said(client, tmp_path, monkeypatch, in_bulk):
    if not in_bulk:
        monkeypatch.setattr(bulk, "open_to", lambda *_: False)
    put(client, b"{t}:times:a", {b"a": b"1"})
    tool = tool_for(client, tmp_path, MEMBERS)
    tool.apply(through="expand")
    other = b"{t}:sorted:a:idx"
    put(client, other, [b"a list"])
    applied = tool.apply(through="verify")
    assert [note for note in applied.notes if other.decode() in note and "is a list" in note]
    with tool.run() as run:
        [family] = run.families
        pair = family.from_new(other)
        assert pair is not None
        drop_members(run, family, FORWARD, pair, [(b"x", b"a list")])
    tool.apply(through="contract")
    assert client.raw.lrange(other, 0, -1) == [b"a list"]
