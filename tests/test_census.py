"""On a large database `status` says what apply saw, and looks at no key that it does not know."""

from __future__ import annotations

import pytest

from migrator.engine import status
from tests.support import KEYS, MEMBERS, SAME_NAME, Shell, put, tool_for, write


@pytest.fixture
def large(monkeypatch):
    """Any database counts as large."""
    monkeypatch.setattr(status, "FEW_KEYS", 0)


def scans(place):
    found = place.raw.info("commandstats")
    return sum(found.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("scan", "hscan", "zscan"))


def families(place, tool):
    """The families, and how many times a keyspace or a collection was walked for them."""
    place.raw.config_resetstat()
    found = tool.status().families
    # Two of these are of the quarantine's and the census's own hashes.
    return found, scans(place)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("source", [KEYS, SAME_NAME])
def test_records_are_counted_as_the_last_walk_saw_them(server, tmp_path, source):
    for n in range(30):
        put(server, b"{t}:text:%d" % n, b"one")
    put(server, b"{t}:text:x", b"bad")
    for n in range(200):
        put(server, b"other:%d" % n, b"x")
    tool = tool_for(server, tmp_path, source)
    tool.apply(through="expand")
    (guess,), _ = families(server, tool)
    assert guess.counted == "estimate"
    assert 10 < guess.source_count < 60  # 31 of 230 keys, drawn 2,000 times
    assert guess.target_count == 0
    tool.apply(through="verify", exit=32)
    (seen,), walked = families(server, tool)
    assert (seen.source_count, seen.target_count, seen.counted) == (31, 30, "seen")
    assert seen.counted_at is not None
    assert walked <= 3  # of our own hashes; the keyspace has none
    assert "scan" not in {name.removeprefix("cmdstat_") for name in server.raw.info("commandstats")}


@pytest.mark.usefixtures("large")
def test_after_contract_nothing_old_is_left(server, tmp_path):
    for n in range(3):
        put(server, b"{t}:text:%d" % n, b"one")
    tool = tool_for(server, tmp_path, KEYS)
    tool.apply(through="contract")
    (seen,), _ = families(server, tool)
    assert (seen.source_count, seen.target_count, seen.counted) == (0, 3, "seen")


@pytest.mark.usefixtures("large")
def test_a_sample_is_no_count(server, tmp_path):
    for n in range(500):
        put(server, b"{t}:text:%d" % n, b"one")
    tool = tool_for(server, tmp_path, KEYS)
    tool.apply(through="verify")
    tool.verify(sample=0.01)
    (seen,), _ = families(server, tool)
    assert (seen.source_count, seen.target_count) == (500, 500)


@pytest.mark.usefixtures("large")
def test_collections_are_those_that_were_seen_with_what_they_hold_now(server, tmp_path):
    for n in range(5):
        put(server, b"{t}:times:%d" % n, {b"a": b"1"})
    tool = tool_for(server, tmp_path, MEMBERS)
    tool.apply(through="verify")
    put(server, b"{t}:times:4", {b"b": b"2"})
    server.raw.delete(b"{t}:times:0", b"{t}:sorted:0")
    found, _ = families(server, tool)
    assert [(f.name, f.source_count, f.target_count, f.counts_equal) for f in found] == [
        ("1", 1, 1, True),
        ("2", 1, 1, True),
        ("3", 1, 1, True),
        ("4", 2, 1, False),
    ]
    assert "cmdstat_scan" not in server.raw.info("commandstats")


def test_a_small_database_is_counted_as_it_is_now(server, tmp_path):
    put(server, b"{t}:text:1", b"one")
    tool = tool_for(server, tmp_path, KEYS)
    tool.apply(through="verify")
    put(server, b"{t}:text:2", b"two")
    (now,) = tool.status().families
    assert (now.source_count, now.target_count, now.counted, now.counted_at) == (2, 1, "now", None)


def test_the_text_lists_twenty_families_and_the_json_all(server, tmp_path):
    for n in range(23):
        put(server, b"{t}:times:%02d" % n, {b"a": b"1"})
    shell = Shell(server, write(tmp_path / "migrations", MEMBERS))
    shell("apply")
    text = shell.text("status")
    assert "\n  19 " in text
    assert "\n  20 " not in text
    assert "and 3 more; --format json lists them all" in text
    assert len(shell("status")["migrations"][0]["families"]) == 23
