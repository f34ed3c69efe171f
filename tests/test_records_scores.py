"""Scores: what any server prints reads as the same double, and what ZADD refuses is refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.errors import Unmappable
from migrator.records.scores import format_score, parse_score


@pytest.mark.parametrize(
    ("text", "score"),
    [
        (b"6.3896022860123456e+17", 638960228601234560.0),
        (b"638960228601234560", 638960228601234560.0),
        (b"1759385731.1234567", 1759385731.1234567),
        (b"1E3", 1000.0),
        (b".5", 0.5),
        (b"5.", 5.0),
        (b"-0", 0.0),
        (b"0e999", 0.0),
        (b"5e-324", 5e-324),
        (b"inf", math.inf),
        (b"+Inf", math.inf),
        (b"-infinity", -math.inf),
    ],
)
def test_every_spelling_of_a_score_is_read(text, score):
    assert parse_score(text) == score


@pytest.mark.parametrize(
    "text", [b"", b" 1", b"1 ", b"nan", b"-nan", b"0x10", b"1_0", b"1e", b".", b"1,5", b"1\n", b"infin"]
)
def test_what_is_no_score_is_refused(text):
    with pytest.raises(Unmappable, match=r"^not a score$"):
        parse_score(text)


@pytest.mark.parametrize("text", [b"1e400", b"-1e400", b"1e-400", b"0.001e-400"])
def test_a_score_no_double_holds_is_refused(text):
    with pytest.raises(Unmappable, match=r"^score out of range$"):
        parse_score(text)


@pytest.mark.parametrize(
    ("score", "text"),
    [
        (3.0, b"3"),
        (-0.0, b"-0"),
        (0.1, b"0.1"),
        (638960228601234560.0, b"6.389602286012346e+17"),
        (math.inf, b"inf"),
        (-math.inf, b"-inf"),
    ],
)
def test_a_score_is_written_shortly(score, text):
    assert format_score(score) == text


def test_nan_is_no_score():
    with pytest.raises(Unmappable, match=r"^not a score$"):
        format_score(math.nan)


@given(st.floats(allow_nan=False))
def test_a_score_written_and_read_is_the_same_double(score):
    again = parse_score(format_score(score))
    assert (again, math.copysign(1, again)) == (score, math.copysign(1, score))
