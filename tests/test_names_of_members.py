"""A new name may hold the old value: what the old member becomes is one new member, and any other of it is an extra."""

from __future__ import annotations

import pytest

from migrator.engine import bulk, compare_members
from migrator.engine.copy import FORWARD
from migrator.engine.copy_members import drop_members
from migrator.engine.judge import judge_members
from tests.support import Shell, put, tool_for

OLD, NEW = b"{t}:fields:a", b"{t}:pairs:a"
BY_INVERSE = """
from migrator import Keys, MemberMove, Migration

migration = Migration(MemberMove(
    source=Keys("{{t}}:fields:{name}", type="hash"),
    target=Keys("{{t}}:pairs:{name}", type="set"),
    forward=lambda key, field, value: (field + b"=" + value, None),
    inverse=lambda key, member, _: tuple(member.split(b"=", 1)),
))
"""
BY_ORIGIN = BY_INVERSE.replace("))\n", "    origin=lambda key, member: member.split(b'=')[0],\n))\n")
# Scores are doubles on the old side.
SCORES = """
from migrator import Keys, MemberMove, Migration

migration = Migration(MemberMove(
    source=Keys("{{t}}:fields:{name}", type="zset"),
    target=Keys("{{t}}:pairs:{name}", type="set"),
    forward=lambda key, field, score: (field + b"=%d" % score, None),
    origin=lambda key, member: member.split(b"=")[0],
))
"""
CLEAN = (0, 0, 0)


def faults(result):
    return result.missing, result.extra, result.different


def members(client):
    return set(client.raw.smembers(NEW))


@pytest.fixture(params=[True, False], ids=["in bulk", "one by one"])
def _ways(request, monkeypatch):
    if not request.param:
        monkeypatch.setattr(bulk, "open_to", lambda *_: False)


@pytest.fixture(params=[BY_ORIGIN, BY_INVERSE], ids=["by origin", "by inverse"])
def tool(request, client, tmp_path):
    put(client, OLD, {b"f": b"1", b"g": b"1"})
    return tool_for(client, tmp_path, request.param)


@pytest.mark.usefixtures("_ways")
def test_a_member_of_a_former_value_is_an_extra_and_a_repair_drops_it(client, tool):
    tool.apply(through="backfill")
    client.raw.hset(OLD, "f", "2")
    client.raw.sadd(NEW, "f=2")  # written in both shapes; the former name stayed
    assert faults(tool.verify()) == (0, 1, 0)
    assert faults(tool.verify(repair=True)) == CLEAN
    assert members(client) == {b"f=2", b"g=1"}


@pytest.mark.usefixtures("_ways")
def test_an_update_after_the_backfill_leaves_only_what_it_became(client, tool):
    tool.apply(through="backfill")
    client.raw.hset(OLD, "f", "2")  # by an application without an adapter
    assert faults(tool.verify()) == (1, 1, 0)
    tool.apply(through="verify")
    assert members(client) == {b"f=2", b"g=1"}
    tool.apply(through="contract")
    assert members(client) == {b"f=2", b"g=1"}


@pytest.mark.usefixtures("_ways")
def test_names_that_hold_a_score(client, tmp_path):
    put(client, OLD, {b"f": 1.0, b"g": 1.0})
    tool = tool_for(client, tmp_path, SCORES)
    tool.apply(through="backfill")
    client.raw.zadd(OLD, {"f": 2})
    client.raw.sadd(NEW, "f=2")
    assert faults(tool.verify()) == (0, 1, 0)
    tool.apply(through="verify")
    assert members(client) == {b"f=2", b"g=1"}


def test_an_old_member_that_cannot_be_mapped_makes_no_extra_of_its_copy(client, tmp_path):
    source = BY_ORIGIN.replace('(field + b"=" + value, None)', '(field + b"=%d" % int(value), None)')
    put(client, OLD, {b"f": b"1"})
    tool = tool_for(client, tmp_path, source)
    tool.apply(through="backfill")
    client.raw.hset(OLD, "f", "soon")
    found = tool.verify()
    assert (faults(found), found.unreadable) == (CLEAN, 1)
    tool.apply(exit=32)
    assert members(client) == {b"f=1"}


def test_a_former_name_is_dropped_only_while_the_old_member_is_as_it_was_seen(client, tool):
    tool.apply(through="backfill")
    client.raw.hset(OLD, "f", "2")
    with tool.run() as run:
        [family] = run.families
        pair = family.from_old(OLD)
        client.raw.hset(OLD, "f", "1")  # meanwhile it became what it had been
        drop_members(run, family, FORWARD, pair, [(b"f", b"f=1")], [b"2"])
        assert members(client) == {b"f=1", b"g=1"}
        drop_members(run, family, FORWARD, pair, [(b"f", b"f=1")])
        assert members(client) == {b"f=1", b"g=1"}


def test_a_member_that_is_renamed_between_two_looks_is_no_difference(client, tool, monkeypatch):
    tool.apply(through="verify")
    client.raw.srem(NEW, "f=1")
    values = iter([b"2"])

    def renamed(run, family, pair, members):
        for value in values:
            client.raw.hset(OLD, "f", value)
            client.raw.sadd(NEW, b"f=" + value)
        return judge_members(run, family, pair, members)

    monkeypatch.setattr(compare_members, "judge_members", renamed)
    assert faults(tool.verify()) == CLEAN


def test_after_the_switch_the_old_side_may_win_and_the_former_name_is_saved(client, tool):
    tool.apply(through="switch")
    client.raw.hset(OLD, "f", "2")
    assert faults(tool.verify()) == (1, 1, 0)
    assert faults(tool.verify(foreign="old")) == CLEAN
    assert members(client) == {b"f=2", b"g=1"}
    assert any(tool.backup.glob("*foreign-old*/part-*"))
    tool.apply(through="contract")


def test_on_the_way_back_an_old_member_follows_the_name_of_the_new_one(client, tool):
    tool.apply(through="contract")
    client.raw.srem(NEW, "f=1")
    client.raw.sadd(NEW, "f=2")
    assert tool.rollback(to="switched") == "switched"
    assert client.raw.hgetall(OLD) == {b"f": b"2", b"g": b"1"}


# Somebody's `origin`, which knows the names that forward makes and no others.
NUMBERED = """
from migrator import Keys, MemberMove, Migration

migration = Migration(MemberMove(
    source=Keys("{{t}}:fields:{name}", type="hash"),
    target=Keys("{{t}}:pairs:{name}", type="set"),
    forward=lambda key, field, value: (b"000" + field, None),
    origin=lambda key, member: ORIGIN,
))
"""


@pytest.mark.parametrize("origin", ['b"%d" % int(member)', "int(member)", "None if member.isalpha() else member[3:]"])
@pytest.mark.usefixtures("_ways")
def test_a_member_whose_origin_cannot_be_said_is_an_extra(client, tmp_path, origin):
    put(client, OLD, {b"1": b"x"})
    tool = tool_for(client, tmp_path, NUMBERED.replace("ORIGIN", origin))
    tool.apply(through="expand")
    client.raw.sadd(NEW, "swordfish")
    if origin == "int(member)":  # which is the origin of nothing
        tool.apply(through="verify", exit=32)
        assert members(client) == set()
        return
    tool.apply(through="backfill")
    assert faults(tool.verify()) == (0, 1, 0)
    tool.apply(through="verify")
    assert members(client) == {b"0001"}


def test_what_an_origin_says_as_it_fails_is_not_repeated(client, tmp_path, run_migrator):
    put(client, OLD, {b"1": b"x"})
    tool = tool_for(client, tmp_path, NUMBERED.replace("ORIGIN", 'b"%d" % int(member)'))
    tool.apply(through="backfill")
    client.raw.sadd(NEW, "swordfish")
    shell = Shell(client, tool.directory, run_migrator)
    assert shell("verify", "0001", exit=30)["extra"] == 1
    done = run_migrator("verify", "0001", "--migrations", str(tool.directory), "--format", "json", url=client.url)
    assert "swordfish" not in done.stderr
    client.raw.hset(OLD, "swordfish", "x")  # and of an old member it is the reason in the list
    shell("apply", "0001", exit=32)
    [rejected] = shell("quarantine", "list", "0001")["records"]
    assert rejected["reason"] == "the mapping failed: ValueError"
