"""Members of many bytes: pages and batches are bounded by what is in them, and one that is too large is quarantined."""

from __future__ import annotations

import pytest

from migrator.client import connect
from migrator.engine import backfill, bulk, copy_members, dump, judge, windows
from migrator.engine import batches as weighed
from migrator.engine.batches import PageSize, page_sizes
from migrator.moves import family
from migrator.moves.family import TOO_LARGE_MEMBER
from tests.support import MEMBERS, Shell, picture, put, tool_for

OLD, NEW = b"{t}:times:a", b"{t}:sorted:a"
FIELDS = """
from migrator import Keys, MemberMove, Migration

migration = Migration(MemberMove(
    source=Keys("{{t}}:times:{name}", type="hash"),
    target=Keys("{{t}}:sorted:{name}", type="KIND"),
    forward=FORWARD,
))
"""
HASHES = FIELDS.replace("KIND", "hash").replace("FORWARD", "lambda key, field, value: (field, b'x' + value)")
SETS = FIELDS.replace("KIND", "set").replace("FORWARD", "lambda key, field, value: (field, None)")
SIZE, NUMBER, ROOM = 20_000, 60, 200_000  # bytes of a value, how many of them, bytes of a batch


@pytest.fixture
def asked(monkeypatch):
    """The COUNT of every page, by who asked for it; everything large is made small."""
    found: dict[str, list[int]] = {}
    for module in (backfill, bulk, dump, windows):
        whole, of = module.scan_words, module.__name__.rpartition(".")[2]

        def words(kind, key, cursor, count, name=of, whole=whole):
            found.setdefault(name, []).append(count)
            return whole(kind, key, cursor, count)

        monkeypatch.setattr(module, "scan_words", words)
    monkeypatch.setattr(weighed, "BATCH_BYTES", ROOM)
    monkeypatch.setattr(weighed, "_UNKNOWN", ROOM / 10)
    return found


@pytest.fixture
def scripts(monkeypatch):
    """How many members each script was given, by what it does."""
    found: dict[str, list[int]] = {"write": [], "judge": []}
    write, read = copy_members.write_members, judge._read_both

    def written(run, family, way, pair, jobs, over=None):
        found["write"].append(len(jobs))
        return write(run, family, way, pair, jobs, over)

    def judged(run, family, pair, names, new_names):
        found["judge"].append(len(names))
        return read(run, family, pair, names, new_names)

    monkeypatch.setattr(copy_members, "write_members", written)
    monkeypatch.setattr(judge, "_read_both", judged)
    return found


def fill(place, size=SIZE):
    for number in range(NUMBER):
        put(place, OLD, {b"f%d" % number: b"v" * size})


@pytest.mark.parametrize("in_bulk", [True, False], ids=["in bulk", "one by one"])
def test_large_members_are_read_written_and_judged_a_few_at_a_time(
    place, tmp_path, monkeypatch, asked, scripts, in_bulk
):
    tool = tool_for(place, tmp_path, HASHES)
    fill(place)
    if not in_bulk:
        monkeypatch.setattr(bulk, "open_to", lambda *_: False)
    assert tool.verify().missing == NUMBER
    tool.apply()
    assert tool.verify().complete
    assert place.raw.hlen(NEW) == NUMBER
    assert (sum(scripts["write"]), max(scripts["write"])) == (NUMBER, ROOM // (2 * SIZE + 4))
    assert max(scripts["judge"]) <= ROOM // (2 * SIZE + 4)
    assert set(asked) == {"backfill", "bulk"} if in_bulk else {"backfill"}
    assert max(count for counts in asked.values() for count in counts) <= ROOM // SIZE


def test_windows_ask_for_few_large_members_at_a_time(place, tmp_path, asked):
    tool = tool_for(place, tmp_path, SETS)
    fill(place)
    tool.apply()
    assert place.raw.scard(NEW) == NUMBER
    assert max(asked["windows"]) <= ROOM // SIZE


def test_large_members_are_saved_a_few_at_a_time(place, asked):
    fill(place)
    lines = [*dump.collection(connect(place.url), 0, "hash", OLD, OLD)]
    assert sum(len(line.items) for line in lines) == 2 * NUMBER
    assert max(asked["dump"]) <= ROOM // SIZE


def test_small_members_are_asked_for_as_many_at_a_time_as_ever(server, tmp_path, asked):
    tool = tool_for(server, tmp_path, MEMBERS)
    put(server, OLD, {b"f%d" % number: b"%d" % number for number in range(3000)})
    tool.apply()
    assert min(asked["windows"] + asked["bulk"]) >= 100  # the least that is asked for in one go


def test_the_next_page_is_cut_by_the_last_one(server, monkeypatch):
    monkeypatch.setattr(weighed, "BATCH_BYTES", ROOM)
    assert [size.within(500) for size in page_sizes(connect(server.url), "hash", [OLD, b"{t}:gone"])] == [500, 500]
    size = PageSize("hash", 1)
    size.saw([b"name", b"v" * 996] * 700)
    assert 190 < size.within(500) < 210
    assert size.within(50) == 50
    size.saw([])
    assert 190 < size.within(500) < 210
    size.saw([b"name", b"v" * 1_000_000])
    assert size.within(500) == 1
    assert size.within(500, 10_000_000) == 9
    size.saw([b"n", b"v"])
    assert size.within(500) == 500


@pytest.mark.parametrize("forward", ["b'x' + value", "b'x' * int(value)"], ids=["as it is", "once mapped"])
def test_a_member_that_is_too_large_is_quarantined_and_the_others_are_not(client, tmp_path, monkeypatch, forward):
    source = HASHES.replace("b'x' + value", forward)
    tool = tool_for(client, tmp_path, source)
    put(client, OLD, {b"small": b"7", b"large": b"0" * 1001 if "+" in forward else b"1001"})
    before = picture(client)
    monkeypatch.setattr(family, "MAX_MEMBER", 1000)
    assert [(one.member, one.reason) for one in tool.plan().rejected] == [("large", TOO_LARGE_MEMBER)]
    for _ in range(2):
        tool.apply(exit=32)
    shell = Shell(client, tool.directory)
    listed = shell("quarantine", "list", "0001")["records"]
    assert [(one["member"], one["reason"]) for one in listed] == [("large", TOO_LARGE_MEMBER)]
    assert client.raw.hkeys(NEW) == [b"small"]
    assert (tool.verify().unreadable, tool.verify().differs) == (1, False)
    shell("quarantine", "accept", "0001", "--all")
    tool.apply(through="switch")
    assert tool.rollback(to="pending") == "pending"
    assert picture(client) == before
