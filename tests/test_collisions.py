"""Two old members that become one new one: only one is carried over, and the operator is told of the other."""

from __future__ import annotations

import pytest

from migrator.engine import bulk
from tests.support import Shell, put, tool_for

OLD, NEW = b"{t}:marks:a", b"{t}:scores:a"
# The old name is in name and score of the new one: only the inverse tells which it was.
SCORED = """
from migrator import Keys, MemberMove, Migration

def forward(key, mark, _):
    name, score = mark.split(b":")
    return name, float(score)

migration = Migration(MemberMove(
    source=Keys("{{t}}:marks:{name}", type="set"),
    target=Keys("{{t}}:scores:{name}", type="zset"),
    forward=forward,
    inverse=lambda key, name, score: (b"%s:%d" % (name, score), None),
))
"""


@pytest.fixture(params=[True, False], ids=["in bulk", "one by one"])
def tool(request, client, tmp_path, monkeypatch):
    if not request.param:
        monkeypatch.setattr(bulk, "open_to", lambda *_: False)
    return tool_for(client, tmp_path, SCORED)


def listed(shell):
    return [(one["member"], one["reason"], one["accepted"]) for one in shell("quarantine", "list", "0001")["records"]]


def test_of_two_members_that_become_one_the_other_is_quarantined_and_nothing_is_verified_without_it(client, tool):
    shell = Shell(client, tool.directory)
    put(client, OLD, {b"m:5", b"m:6", b"n:1"})
    tool.apply(exit=32)
    assert tool.phase() == "backfilled"
    [(other, reason, accepted)] = listed(shell)
    kept = {b"m:5": 5.0, b"m:6": 6.0}[b"m:6" if other == "m:5" else b"m:5"]
    assert (reason, accepted) == ("collision: another member maps to the same name", False)
    found = tool.verify(repair=True)
    assert (found.unreadable, found.different, found.missing, found.extra) == (1, 0, 0, 0)
    assert client.raw.zscore(NEW, "m") == kept

    # To try again would carry it over in place of the first.
    assert len(shell("quarantine", "retry", "0001", exit=32)["records"]) == 1
    assert client.raw.zscore(NEW, "m") == kept
    shell("quarantine", "accept", "0001", OLD.decode(), "--member", other)
    tool.apply(through="contract")
    assert client.raw.zscore(NEW, "m") == kept
    assert tool.rollback(to="pending") == "pending"
    assert client.raw.smembers(OLD) == {b"m:5", b"m:6", b"n:1"}


def test_once_the_other_one_is_gone_there_is_no_collision(client, tool):
    put(client, OLD, {b"m:5", b"m:6"})
    tool.apply(exit=32)
    [(other, _, _)] = listed(Shell(client, tool.directory))
    client.raw.srem(OLD, *({b"m:5", b"m:6"} - {other.encode()}))
    tool.apply()
    assert client.raw.zrange(NEW, 0, -1, withscores=True) == [(b"m", float(other[2:]))]


def test_a_member_that_merely_changed_differs_and_is_repaired(client, tool):
    put(client, OLD, {b"m:5"})
    tool.apply(through="backfill")
    client.raw.srem(OLD, "m:5")
    client.raw.sadd(OLD, "m:6")
    assert tool.verify().different == 1
    tool.apply()
    assert client.raw.zscore(NEW, "m") == 6.0
