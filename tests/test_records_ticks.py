"""Ticks: only whole numbers within DateTime become scores, and a score gives back ticks of the same double."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.errors import Unmappable
from migrator.records.ticks import (
    MAX_TICKS,
    UNIX_EPOCH_TICKS,
    format_ticks,
    iso_to_ticks,
    parse_ticks,
    ticks_to_iso,
)

TICKS = st.just(0) | st.integers(UNIX_EPOCH_TICKS, MAX_TICKS)


@pytest.mark.parametrize(
    ("text", "score"),
    [
        (b"0", 0.0),
        (b"621355968000000000", 621355968000000000.0),
        (b"638960564401234567", 638960564401234560.0),
        (b"638960564401234623", 638960564401234560.0),
        (b"638960564401234624", 638960564401234688.0),  # half-way: to the even one
        (b"638960564401234496", 638960564401234432.0),  # and here it lies below
        (b"3155378975999999999", 3155378976000000000.0),
    ],
)
def test_ticks_become_the_nearest_double(text, score):
    assert parse_ticks(text) == score


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *((text, "not ticks: not a whole number") for text in (b"", b"-1", b"+1", b" 638960564401234567", b"0x10")),
        *((text, "not ticks: not a whole number") for text in (b"638960564401234567.0", b"6.38e+17", b"6_3", b"nan")),
        *(
            (text, "not ticks: not a whole number")
            for text in (b"638960564401234567\n", b"00", "٣".encode(), b"9" * 20)
        ),
        (b"3155378976000000000", "not ticks: out of range"),
        (b"1", "not ticks: too small, a unix time?"),
        (b"1760459660", "not ticks: too small, a unix time?"),
        (b"621355967999999999", "not ticks: too small, a unix time?"),
    ],
)
def test_what_is_no_ticks_is_refused(text, reason):
    with pytest.raises(Unmappable) as refusal:
        parse_ticks(text)
    assert refusal.value.reason == reason


@pytest.mark.parametrize(
    ("score", "text"),
    [
        (0.0, b"0"),
        (638960564401234560.0, b"638960564401234560"),
        (3155378976000000000.0, b"3155378975999999999"),  # DateTime.MaxValue, not one above it
    ],
)
def test_a_score_is_written_as_the_whole_number_it_is(score, text):
    assert format_ticks(score) == text


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, -1.0, 0.5, 1760459660.0, 3155378976000000512.0])
def test_a_score_that_is_no_ticks_is_refused(score):
    with pytest.raises(Unmappable):
        format_ticks(score)


@given(TICKS)
def test_a_score_written_out_and_read_again_is_the_same_score(ticks):
    score = parse_ticks(b"%d" % ticks)
    assert float(int(format_ticks(score))) == score == parse_ticks(format_ticks(score))


@pytest.mark.parametrize(
    ("ticks", "iso"),
    [
        (0, b"0001-01-01T00:00:00.0000000"),
        (621355968000000000, b"1970-01-01T00:00:00.0000000"),
        (638949825301234567, b"2025-10-02T06:15:30.1234567"),
        (3155378975999999999, b"9999-12-31T23:59:59.9999999"),
    ],
)
def test_ticks_and_dates_are_the_same_instants_as_in_dotnet(ticks, iso):
    assert (ticks_to_iso(ticks), iso_to_ticks(iso)) == (iso, ticks)


@given(st.integers(0, MAX_TICKS))
def test_ticks_survive_the_way_over_a_date(ticks):
    assert iso_to_ticks(ticks_to_iso(ticks)) == ticks
