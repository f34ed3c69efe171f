"""A comparison of keys reads in bulk first; only what is not plainly alike there is read again, in one step."""

from __future__ import annotations

import pytest

from migrator.engine import alike, compare_keys
from migrator.engine.judge import judge_keys
from migrator.models import FAULTS
from tests.support import KEYS, put, tool_for

NUMBER = 700  # more than the batches that are under way at a time


@pytest.fixture
def judged(monkeypatch):
    """The old names that were read in one step."""
    names: list[bytes] = []

    def spied(run, family, pairs):
        names.extend(pair.old for pair in pairs)
        return judge_keys(run, family, pairs)

    monkeypatch.setattr(compare_keys, "judge_keys", spied)
    return names


def filled(place, tmp_path):
    for number in range(NUMBER):
        put(place, b"{t}:text:%d" % number, b"%d" % number)
    return tool_for(place, tmp_path, KEYS)


def faults(result):
    return {name: n for name in FAULTS if (n := getattr(result, name))}


def test_only_what_is_not_alike_is_read_again(client, tmp_path, judged):
    tool = filled(client, tmp_path)
    tool.apply(through="verify")
    judged.clear()
    assert tool.verify().compared == NUMBER
    assert judged == []
    client.raw.execute_command("HSET", "{t}:hash:1", "text", "other")
    client.raw.execute_command("DEL", "{t}:hash:2")
    client.raw.execute_command("PEXPIRE", "{t}:hash:3", 600_000)
    client.raw.execute_command("DEL", "{t}:hash:4")
    client.raw.execute_command("SET", "{t}:hash:4", "of another type")
    client.raw.execute_command("RENAME", "{t}:text:5", "{t}:other:5")
    result = tool.verify()
    assert faults(result) == {"missing": 2, "different": 1, "ttl_drift": 1, "extra": 1}
    assert result.compared == NUMBER
    assert sorted(judged) == [b"{t}:text:%d" % n for n in (1, 2, 3, 4, 5)]


def test_where_nothing_is_alike_the_rest_is_not_read_twice(server, tmp_path, judged):
    tool = filled(server, tmp_path)
    server.raw.config_resetstat()
    assert faults(tool.verify()) == {"missing": NUMBER}
    assert len(judged) == NUMBER
    # The scripts ask for none: there is no hash.
    assert 0 < server.raw.info("commandstats")["cmdstat_hgetall"]["calls"] < NUMBER


def test_a_record_that_changed_between_the_two_reads_is_equal(client, tmp_path, judged, monkeypatch):
    tool = filled(client, tmp_path)
    tool.apply(through="verify")
    monkeypatch.setattr(alike, "_alike", lambda _, pair, *__: not pair.old.endswith(b"7"))
    judged.clear()
    result = tool.verify()
    assert (faults(result), result.compared) == ({}, NUMBER)
    assert len(judged) == NUMBER // 10


def test_all_are_compared_though_the_connection_is_cut(server, tmp_path, judged, monkeypatch):
    tool = filled(server, tmp_path)
    tool.apply(through="verify")
    unlike, cut = alike._unlike, list[int]()

    def held(*args):
        if not cut:
            cut.append(1)
            server.raw.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        return unlike(*args)

    monkeypatch.setattr(alike, "_unlike", held)
    judged.clear()
    result = tool.verify()
    assert (faults(result), result.compared) == ({}, NUMBER)
    assert judged
