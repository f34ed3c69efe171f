"""Ticks of .NET: whole 100 ns steps since 0001-01-01T00:00:00 UTC, exact as integers and rounded as scores.

Ticks of our years (6.4e17) exceed 2^53, so a score, being a double, steps by 128 ticks (12.8 µs).
"""

from __future__ import annotations

import math
import re
from datetime import date, datetime

from migrator.errors import Unmappable

TICKS_PER_SECOND = 10_000_000
MAX_TICKS = 3_155_378_975_999_999_999
"""DateTime.MaxValue: the last tick of year 9999."""
UNIX_EPOCH_TICKS = 621_355_968_000_000_000
"""1970-01-01T00:00:00 UTC in ticks."""

_SECONDS_PER_DAY = 86_400
_FIRST = b"%d" % UNIX_EPOCH_TICKS
_WHOLE = re.compile(rb"0|[1-9][0-9]{0,18}")


def parse_ticks(value: bytes) -> float:
    """Ticks as decimal text -> the score: the double nearest to them.

    Raises Unmappable for text that is no plain whole number, for ticks outside DateTime, and for ticks
    between year 1 and 1970: such a number is unix time stored by mistake. 0 is DateTime.MinValue and allowed.
    """
    # Nearly all are of this form, and text becomes a double as exactly as a whole number does; three times as fast.
    if len(value) == 18 and value.isdigit() and value >= _FIRST:
        return float(value)
    if _WHOLE.fullmatch(value) is None:
        raise Unmappable("not ticks: not a whole number")
    return float(_checked(int(value)))


def format_ticks(score: float) -> bytes:
    """A score -> decimal text of ticks; float(int(format_ticks(s))) == s. Raises Unmappable as parse_ticks does."""
    if not score.is_integer():
        raise Unmappable("not ticks: not a whole number")
    # The double nearest to MAX_TICKS lies one above it; written out, no reader would take it.
    return b"%d" % _checked(MAX_TICKS if score == float(MAX_TICKS) else int(score))


def lost(old: bytes, again: bytes) -> tuple[str, ...]:
    """What ticks that went through a score lack of those they were made from, beyond the rounding; no values."""
    return () if abs(int(old) - int(again)) <= math.ulp(float(old)) / 2 else ("ticks",)


def _checked(ticks: int) -> int:
    if not 0 <= ticks <= MAX_TICKS:
        raise Unmappable("not ticks: out of range")
    if 0 < ticks < UNIX_EPOCH_TICKS:
        raise Unmappable("not ticks: too small, a unix time?")
    return ticks


def iso_to_ticks(iso: bytes) -> int:
    """`2025-10-02T06:15:30.1234567` (27 characters) -> ticks. Raises ValueError for a date not in the calendar."""
    wall = datetime.fromisoformat(iso[:19].decode())
    seconds = (wall.toordinal() - 1) * _SECONDS_PER_DAY + wall.hour * 3600 + wall.minute * 60 + wall.second
    return seconds * TICKS_PER_SECOND + int(iso[20:])


def ticks_to_iso(ticks: int) -> bytes:
    """Ticks within DateTime -> `2025-10-02T06:15:30.1234567`: always 7 fraction digits, no zone."""
    seconds, fraction = divmod(ticks, TICKS_PER_SECOND)
    days, second = divmod(seconds, _SECONDS_PER_DAY)
    day = date.fromordinal(days + 1).isoformat().encode()
    return b"%sT%02d:%02d:%02d.%07d" % (day, second // 3600, second // 60 % 60, second % 60, fraction)
