"""Timestamps: exact while the hash is the truth, in windows with inclusive edges whichever shape is."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from migrator.adapters import Batch, Mark, Missing, Stamp
from migrator.errors import Unmappable, UsageError
from tests.adapters.flavours import OLD_IS_TRUE, flavour, init, module_of, through, tool_for
from tests.test_adapters_members import NEW, OLD, RENAMED, Shapes

__all__ = ["flavour"]
TICKS = 638_960_228_601_234_567  # no double: the nearest is 7 away
# As migration 0002, in one slot.
STAMPS = """
from migrator import Keys, MemberMove, Migration
from migrator.records.ticks import format_ticks, parse_ticks

migration = Migration(MemberMove(
    source=Keys("{{t}}:times:{name}", type="hash"),
    target=Keys("{{t}}:sorted:{name}", type="zset"),
    forward=lambda key, field, value: (field, parse_ticks(value)),
    inverse=lambda key, member, score: (member, format_ticks(score)),
))
"""


@pytest.fixture
def stamps(flavour, client, tmp_path):
    tool = tool_for(client, tmp_path, STAMPS)
    init(tool)
    return tool, flavour.make("Timestamps", client, module_of(tool))


def test_ticks_are_exact_in_the_hash_and_a_double_in_the_sorted_set(stamps, client, monkeypatch):
    tool, times = stamps
    for stage in through(tool, monkeypatch):
        times.set(b"x", TICKS, name="a")
        times.set_many({b"y": TICKS + 1, b"z": datetime(2025, 10, 2, 6, 15, 30, 123456, UTC)}, name="a")
        exact = stage in OLD_IS_TRUE
        assert times.get(b"x", name="a").value == (TICKS if exact else int(float(TICKS))), stage
        assert times.get(b"z", name="a").value == 638_949_825_301_234_560, stage  # a double as it happens
        if stage not in ("contracted", "swept"):
            assert Shapes(client).old()[b"x"] == b"%d" % TICKS, stage
        if stage != "pending":
            assert Shapes(client).new() == {b"x": float(TICKS), b"y": float(TICKS + 1), b"z": 638949825301234560.0}
        assert [s.member for s in times.latest(2, name="a")] == [b"y", b"x"], stage
        assert times.remove_many([b"x", b"y", b"z", b"w"], name="a") == Batch(3, (b"w",), ())
        assert isinstance(times.get(b"x", name="a"), Missing)
        for wrong in (5, 1_700_000_000, -1, 10**19):
            with pytest.raises(Unmappable):
                times.set(b"x", wrong, name="a")
        with pytest.raises(UsageError):
            times.set(b"x", datetime(2030, 1, 1), name="a")  # noqa: DTZ001


def test_due_gives_each_member_of_a_window_once_in_pages_with_inclusive_edges(stamps, client, monkeypatch):
    """Ticks 50 apart: two or three in one step of a double, so edges of pages and windows fall inside steps."""
    tool, times = stamps
    for stage in through(tool, monkeypatch):
        ticks = {b"s%03d" % n: TICKS + 50 * n for n in range(90)}
        times.set_many(ticks, name="a")
        for limit in (1, 4, 1000):
            mark: int | Mark = TICKS + 500
            got: list[Stamp] = []
            for until in (TICKS + 1990, TICKS + 2000, TICKS + 2000, TICKS + 1900, TICKS + 4000):
                window = times.due(mark, until, limit, name="a")
                pages = list(window)
                assert all(0 < len(page) <= limit for page in pages)
                got += [stamp for page in pages for stamp in page]
                mark = window.mark
            assert isinstance(mark, Mark)
            assert mark.ticks == TICKS + 4000
            low, high = float(TICKS + 500), float(TICKS + 4000)
            want = [name for name, t in ticks.items() if low <= float(t) <= high]
            assert [stamp.member for stamp in got] == want, (stage, limit)
            if stage in OLD_IS_TRUE:
                assert [stamp.ticks for stamp in got] == [ticks[name] for name in want]
        assert times.due_count(TICKS + 500, TICKS + 4000, name="a") == len(want), stage
        assert list(times.due(TICKS + 4000, TICKS + 500, name="a")) == []
        assert times.latest(1, name="a")[0].member == b"s089"
        times.remove_many(ticks, name="a")


def test_without_origin_a_mapping_may_not_change_names(flavour, client, tmp_path):
    source = STAMPS.replace("(field, parse", '(b"m:" + field, parse')
    source = source.replace("(member, format", '(member.removeprefix(b"m:"), format')
    client.raw.hset(OLD, b"y", b"%d" % TICKS)
    tool = tool_for(client, tmp_path, source)
    init(tool)
    with pytest.raises(UsageError, match="changes the names"):
        flavour.make("Timestamps", client, module_of(tool)).remove(b"y", name="a")
    # Where the mapping takes no name that is made up, it is found out member by member.
    tool = tool_for(
        client, tmp_path / "picky", source.replace('b"m:" + field', 'b"m:" + {1: field, 3: field}[len(field)]')
    )
    times = flavour.make("Timestamps", client, module_of(tool))
    for call in (
        lambda: times.set(b"x", TICKS, name="a"),
        lambda: times.set(b"m:x", TICKS, name="a"),
        lambda: times.set_many({b"x": TICKS}, name="a"),
        lambda: times.get(b"y", name="a"),  # found before the switch, and after it missing
        lambda: times.remove(b"y", name="a"),
    ):
        with pytest.raises(UsageError, match="changes the names"):
            call()
    assert Shapes(client).old() == {b"y": b"%d" % TICKS}
    tool.apply(through="switch")
    with pytest.raises(UsageError, match="changes the names"):
        times.remove(b"m:y", name="a")
    assert Shapes(client).new() == {b"m:y": float(TICKS)}
    assert Shapes(client).old() == {b"y": b"%d" % TICKS}


def test_a_window_starts_again_when_the_truth_changes_in_it(stamps, client):
    tool, times = stamps
    ticks = {b"s%02d" % n: TICKS + 1000 * n for n in range(20)}
    times.set_many(ticks, name="a")
    tool.apply(through="verify")
    window = times.due(TICKS, TICKS + 20_000, 5, name="a")
    first = next(window)
    with pytest.raises(UsageError, match="not read to its end"):
        _ = window.mark
    tool.apply(through="switch")
    rest = [stamp.member for page in window for stamp in page]
    assert [stamp.member for stamp in first] == list(ticks)[:5]
    assert rest == list(ticks)
    assert window.mark == Mark(TICKS + 20_000, frozenset())
    window = times.due(TICKS, TICKS + 20_000, 5, name="a")
    next(window)
    tool.rollback(to="expanded")
    assert [stamp.member for page in window for stamp in page] == list(ticks)


def test_due_pages_show_members_as_they_are_by_then(stamps, client, monkeypatch):
    tool, times = stamps
    for stage in through(tool, monkeypatch):
        times.set_many({b"s%d" % n: TICKS + 1000 * n for n in range(6)}, name="a")
        window = times.due(TICKS, TICKS + 5000, 2, name="a")
        assert [s.member for s in next(window)] == [b"s0", b"s1"]
        times.remove(b"s3", name="a")
        times.set(b"s4", TICKS + 50_000, name="a")
        assert [s.member for page in window for s in page] == [b"s2", b"s5"], stage
        times.remove_many([b"s%d" % n for n in range(6)], name="a")


def test_the_old_path_reads_a_big_hash_page_by_page_and_passes_over_what_is_no_time(stamps, client):
    tool, times = stamps
    ticks = {b"s%04d" % n: TICKS + 1000 * n for n in range(3000)}
    assert times.set_many(ticks, name="a") == Batch(3000, (), ())
    client.raw.hset(OLD, b"junk", b"yesterday")
    before = [stamp for page in times.due(0, TICKS + 10**9, 700, name="a") for stamp in page]
    assert before == [Stamp(name, t) for name, t in ticks.items()]
    assert times.due_count(0, TICKS + 10**9, name="a") == 3000
    client.raw.hdel(OLD, b"junk")
    tool.apply(through="switch")
    client.raw.zadd(NEW, {b"junk": 5.5})
    after = [stamp.member for page in times.due(0, TICKS + 10**9, 700, name="a") for stamp in page]
    assert after == list(ticks)


def test_timestamps_are_for_hashes_that_become_sorted_sets(flavour, client, tmp_path):
    tool = tool_for(client, tmp_path, RENAMED)
    init(tool)
    with pytest.raises(UsageError, match="hash to zset"):
        flavour.make("Timestamps", client, module_of(tool))
