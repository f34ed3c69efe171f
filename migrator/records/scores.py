"""Scores of sorted sets as text: what servers print and what every server reads back as the same double."""

from __future__ import annotations

import math
import re

from migrator.errors import Unmappable

# The decimal forms ZADD takes. Its strtod also takes hexadecimal on some servers and not on others: refused here.
_NUMBER = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INFINITY = re.compile(rb"[+-]?inf(?:inity)?", re.IGNORECASE)
_NON_ZERO = re.compile(rb"[^eE]*[1-9]")


def parse_score(value: bytes) -> float:
    """Text as a server prints it -> the double: `6.3896022860123456e+17` and `638960228601234560` are the same.

    Raises Unmappable where ZADD answers "not a valid float": spaces, nan, other text, a number too big or too
    small for a double.
    """
    if _INFINITY.fullmatch(value):
        return float(value)
    if _NUMBER.fullmatch(value) is None:
        raise Unmappable("not a score")
    score = float(value)
    if math.isinf(score) or (score == 0 and _NON_ZERO.match(value)):
        raise Unmappable("score out of range")
    return score


def format_score(score: float) -> bytes:
    """The shortest text that reads back as the same double; raises Unmappable for nan, which no server keeps."""
    if math.isnan(score):
        raise Unmappable("not a score")
    return repr(score).removesuffix(".0").encode()
