"""Dates: what System.Text.Json reads is read, to the last of 7 digits, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.records.dates import (
    Moment,
    offset_json,
    offset_text,
    pad_usual,
    parse_iso,
    parse_unix,
    trim_usual,
    unix_seconds,
    utc_json,
    utc_text,
)
from migrator.records.ticks import MAX_TICKS, ticks_to_iso


def read(text: bytes) -> Moment:
    moment = parse_iso(text)
    assert moment is not None
    return moment


@pytest.mark.parametrize(
    ("text", "in_hash"),
    [
        (b"2025-10-02T06:15:30+00:00", b"2025-10-02T06:15:30.0000000+00:00"),
        (b"2025-10-02T06:15:30.12+00:00", b"2025-10-02T06:15:30.1200000+00:00"),
        (b"2025-10-02T06:15:30.1234567+00:00", b"2025-10-02T06:15:30.1234567+00:00"),
        (b"2025-10-02T06:15:30.1234567Z", b"2025-10-02T06:15:30.1234567+00:00"),
        (b"2025-10-02T06:15:30-00:00", b"2025-10-02T06:15:30.0000000+00:00"),
        (b"2025-10-02T11:45:30.5+05:30", b"2025-10-02T11:45:30.5000000+05:30"),
        (b"2025-10-02T06:15:30-08", b"2025-10-02T06:15:30.0000000-08:00"),
        (b"2025-10-02T06:15:30+14:00", b"2025-10-02T06:15:30.0000000+14:00"),
        (b"2025-10-02T06:15Z", b"2025-10-02T06:15:00.0000000+00:00"),
        (b"2025-10-02", b"2025-10-02T00:00:00.0000000+00:00"),
        (b"0001-01-01T00:00:00+00:00", b"0001-01-01T00:00:00.0000000+00:00"),
        (b"9999-12-31T23:59:59.9999999+00:00", b"9999-12-31T23:59:59.9999999+00:00"),
        (b"2024-02-29T00:00:00+00:00", b"2024-02-29T00:00:00.0000000+00:00"),
    ],
)
def test_a_date_in_a_hash_has_seven_digits_and_its_offset(text, in_hash):
    assert offset_text(read(text)) == in_hash


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"2025-10-02 06:15:30Z",
        b"2025-10-02T06:15:30.Z",
        b"2025-10-02T06:15:30.12345678901234567Z",
        b"2025-10-02T06:15:30Z\n",
        b"2025-10-02T06:15:30z",
        b"2025-10-02T06:15:30+0530",
        b"2025-10-02T06:15:30+14:01",
        b"2025-10-02T06:15:30+15:00",
        b"2025-10-02T06:15:30+05:60",
        b"2025-10-02T24:00:00+00:00",
        b"2025-10-02T06:60:00+00:00",
        b"2025-10-02T06:15:60+00:00",
        b"2025-02-29T00:00:00+00:00",
        b"2025-13-01T00:00:00+00:00",
        b"0000-01-01T00:00:00+00:00",
        b"2025-10-02T06Z",
        b"2025-10-02Z",
        b"0001-01-01T00:00:00+05:30",  # before year 1 in UTC
        b"9999-12-31T23:59:59-00:01",
        b"2025-W40-4T06:15:30+00:00",
        "٢٠٢٥-10-02T06:15:30Z".encode(),
    ],
)
def test_what_dotnet_reads_as_no_date_is_none(text):
    assert (parse_iso(text), pad_usual(text), trim_usual(text)) == (None, None, None)


def test_a_date_says_what_was_assumed_and_cut():
    plain = read(b"2025-10-02T06:15:30.1234567Z")
    assert (plain.zoneless, plain.cut) == (False, False)
    assert read(b"2025-10-02T06:15:30.1234567").zoneless
    long = read(b"2025-10-02T06:15:30.1234567899999999Z")
    assert (long.cut, long.iso) == (True, b"2025-10-02T06:15:30.1234567")


@pytest.mark.parametrize(
    ("text", "in_hash", "in_json"),
    [
        (b"2025-10-02T11:50:00.5+05:30", b"2025-10-02T06:20:00.5000000Z", b"2025-10-02T06:20:00.5Z"),
        (b"2025-10-01T23:00:00-08:00", b"2025-10-02T07:00:00.0000000Z", b"2025-10-02T07:00:00Z"),
        (b"2025-10-02T06:20:00.0000001", b"2025-10-02T06:20:00.0000001Z", b"2025-10-02T06:20:00.0000001Z"),
    ],
)
def test_a_date_in_utc_ends_in_z(text, in_hash, in_json):
    moment = read(text)
    assert (utc_text(moment), utc_json(moment)) == (in_hash, in_json)


@pytest.mark.parametrize(
    ("text", "in_json"),
    [
        (b"2025-10-02T06:15:30.1200000+00:00", b"2025-10-02T06:15:30.12+00:00"),
        (b"2025-10-02T06:15:30.0000000-08:00", b"2025-10-02T06:15:30-08:00"),
        (b"2025-10-10T00:00:00.0000000+00:00", b"2025-10-10T00:00:00+00:00"),
    ],
)
def test_a_date_in_json_loses_its_trailing_zeros(text, in_json):
    assert offset_json(read(text)) == in_json


@pytest.mark.parametrize(
    ("text", "in_hash"),
    [
        (b"1760781607.5", b"2025-10-18T10:00:07.5000000Z"),
        (b"1760781603", b"2025-10-18T10:00:03.0000000Z"),
        (b"0", b"1970-01-01T00:00:00.0000000Z"),
        (b"1760781607.123456789", b"2025-10-18T10:00:07.1234567Z"),
        (b"253402300799.9999999", b"9999-12-31T23:59:59.9999999Z"),
    ],
)
def test_unix_seconds_are_read_without_floats(text, in_hash):
    moment = parse_unix(text)
    assert moment is not None
    assert utc_text(moment) == in_hash


@pytest.mark.parametrize("text", [b"", b"-1", b"1e9", b".5", b"1.", b" 1", b"253402300800", b"1760781607500", b"nan"])
def test_what_is_no_unix_time_is_none(text):
    assert parse_unix(text) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (b"2025-10-02T06:15:35.9999999+00:00", 1759385735),
        (b"2025-10-02T11:45:35.9999999+05:30", 1759385735),
        (b"1969-12-31T23:59:59.5Z", -1),
    ],
)
def test_unix_seconds_are_rounded_down(text, seconds):
    assert unix_seconds(read(text)) == seconds


@given(st.integers(0, MAX_TICKS), st.integers(0, 7), st.sampled_from([b"+00:00", b"Z", b"", b"+05:30"]))
def test_the_short_cut_is_only_quicker(ticks, digits, zone):
    text = ticks_to_iso(ticks)[: 19 + digits + bool(digits)] + zone
    quick = pad_usual(text)
    assert (quick is not None) == (zone == b"+00:00")
    if quick is not None:
        assert quick == offset_text(read(text))
    trimmed = trim_usual(text)
    assert (trimmed is not None) == (zone == b"+00:00" and digits == 7)
    if trimmed is not None:
        assert trimmed == offset_json(read(text))


@given(st.integers(0, MAX_TICKS), st.integers(-14 * 60, 14 * 60))
def test_a_date_survives_json(ticks, offset):
    zone = b"%s%02d:%02d" % (b"-" if offset < 0 else b"+", abs(offset) // 60, abs(offset) % 60)
    moment = parse_iso(ticks_to_iso(ticks) + zone)
    if moment is None:  # out of the calendar in UTC
        assert not 0 <= ticks - offset * 600_000_000 <= MAX_TICKS
        return
    assert moment.ticks == ticks - offset * 600_000_000
    assert read(offset_json(moment)) == moment
    assert read(utc_json(moment)).ticks == moment.ticks
