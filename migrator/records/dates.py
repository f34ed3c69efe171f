"""Dates as .NET writes them in JSON and in hashes, down to the last of 7 fraction digits, without floats.

JSON trims trailing zeros of the fraction; a hash has exactly 7 digits, because its reader (`"O"`) takes no other
form. What is accepted follows System.Text.Json (JsonHelpers.Date.cs).
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple

from migrator.records.ticks import MAX_TICKS, TICKS_PER_SECOND, UNIX_EPOCH_TICKS, iso_to_ticks, ticks_to_iso

# The hour is bounded as in pad_usual.
_ISO = re.compile(
    rb"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    rb"(?:T((?:[01][0-9]|2[0-3]):[0-9]{2})(?:(:[0-9]{2})(?:\.([0-9]{1,16}))?)?(Z|[+-][0-9]{2}(?::[0-9]{2})?)?)?"
)
# With every digit as 0: the shapes of a wall clock with up to 7 fraction digits.
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_CLOCK = b"0000-00-00T00:00:00"
_CLOCKS = frozenset([_CLOCK, *(_CLOCK + b"." + b"0" * digits for digits in range(1, 8))])
_UNIX = re.compile(rb"([0-9]{1,12})(?:\.([0-9]{1,16}))?")
_MAX_OFFSET_MINUTES = 14 * 60


class Moment(NamedTuple):
    """One date, read."""

    iso: bytes
    """The wall clock at `offset`: `2025-10-02T06:15:30.1234567`."""
    offset: int
    """Minutes east of UTC."""
    ticks: int
    """The instant, in UTC."""
    zoneless: bool
    """No zone was written; UTC is taken."""
    cut: bool
    """More than 7 fraction digits were written; 7 are kept."""


def pad_usual(text: bytes) -> bytes | None:
    """What offset_text(parse_iso(text)) gives, several times faster, for a date of UTC with up to 7 fraction digits.

    None for any other text, valid or not.
    """
    # The hour: newer Pythons read 24:00 as the next midnight, .NET refuses it.
    if text[-6:] != b"+00:00" or text[:-6].translate(_DIGITS) not in _CLOCKS or text[11:13] > b"23":
        return None
    try:
        datetime.fromisoformat(text[:19].decode())
    except ValueError:
        return None
    return text if len(text) == 33 else b"%s.%s+00:00" % (text[:19], _seven(text[20:-6]))


def trim_usual(text: bytes) -> bytes | None:
    """What offset_json(parse_iso(text)) gives, several times faster, for a date of UTC as a hash has it; else None."""
    return trim(text[:27]) + b"+00:00" if len(text) == 33 and pad_usual(text) else None


def parse_iso(text: bytes) -> Moment | None:
    """ISO 8601 as System.Text.Json reads it, None for anything else."""
    match = _ISO.fullmatch(text)
    if match is None:
        return None
    day, minute, second, digits, zone = match.groups(b"")
    offset = _offset(zone)
    if offset is None:
        return None
    iso = b"%sT%s%s.%s" % (day, minute or b"00:00", second or b":00", _seven(digits))
    try:
        ticks = iso_to_ticks(iso) - offset * 60 * TICKS_PER_SECOND
    except ValueError:
        return None
    if not 0 <= ticks <= MAX_TICKS:
        return None
    return Moment(iso, offset, ticks, zoneless=not zone, cut=len(digits) > 7)


def parse_unix(text: bytes) -> Moment | None:
    """Seconds since 1970 as decimal text (`1760781607.5`), None for anything else or beyond year 9999."""
    match = _UNIX.fullmatch(text)
    if match is None:
        return None
    seconds, digits = match.groups(b"")
    ticks = UNIX_EPOCH_TICKS + int(seconds) * TICKS_PER_SECOND + int(_seven(digits))
    if ticks > MAX_TICKS:
        return None
    return Moment(ticks_to_iso(ticks), 0, ticks, zoneless=False, cut=len(digits) > 7)


def _seven(digits: bytes) -> bytes:
    return digits[:7].ljust(7, b"0")


def _offset(zone: bytes) -> int | None:
    """`Z`, `+05:30`, `-08` or nothing -> minutes east of UTC; None beyond 14 hours, as in .NET."""
    if zone in (b"", b"Z", b"+00:00"):
        return 0
    hours, minutes = int(zone[1:3]), int(zone[4:] or b"0")
    total = hours * 60 + minutes
    if minutes > 59 or total > _MAX_OFFSET_MINUTES:
        return None
    return -total if zone[:1] == b"-" else total


def unix_seconds(moment: Moment) -> int:
    """Whole seconds since 1970, rounded down."""
    return (moment.ticks - UNIX_EPOCH_TICKS) // TICKS_PER_SECOND


def seconds_of(clock: bytes) -> int:
    """The same of a wall clock of UTC that is known to be one, several times faster: `2025-10-02T06:15:30.1234567`."""
    return int(datetime.fromisoformat(clock[:19].decode() + "+00:00").timestamp())


def offset_text(moment: Moment) -> bytes:
    """A DateTimeOffset in a hash: `2025-10-02T06:15:30.1200000+05:30`."""
    return moment.iso + _zone(moment.offset)


def utc_text(moment: Moment) -> bytes:
    """A UTC DateTime in a hash: `2025-10-02T06:15:30.1200000Z`."""
    return _utc_iso(moment) + b"Z"


def offset_json(moment: Moment) -> bytes:
    """A DateTimeOffset in JSON, without quotes: `2025-10-02T06:15:30.12+05:30`."""
    return trim(moment.iso) + _zone(moment.offset)


def utc_json(moment: Moment) -> bytes:
    """A UTC DateTime in JSON, without quotes: `2025-10-02T06:15:30.12Z`."""
    return trim(_utc_iso(moment)) + b"Z"


def _utc_iso(moment: Moment) -> bytes:
    return ticks_to_iso(moment.ticks) if moment.offset else moment.iso


def trim(iso: bytes) -> bytes:
    """A wall clock with 7 fraction digits, without the zeros at its end."""
    return iso.rstrip(b"0").rstrip(b".")


def _zone(offset: int) -> bytes:
    return b"%s%02d:%02d" % (b"-" if offset < 0 else b"+", abs(offset) // 60, abs(offset) % 60)
