"""Dates in Lua are those of Python: a claim on hashes decides as one on JSON does."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from migrator.records.dates import parse_iso, parse_unix
from migrator.records.ticks import TICKS_PER_SECOND, UNIX_EPOCH_TICKS, ticks_to_iso
from migrator.scripts import _read

ODD = (
    "", "0", "1760781607", "1760781607.5", "1760781607.", ".5", "1e3", "0x10", " 12", "1760781607.123456789",
    "253402300799", "9999999999999", "2025-10-02T06:15:30", "2025-10-02T06:15:30Z", "2025-10-02T06:15:30.Z",
    "2025-10-02T06:15:30.1234567Z", "2025-10-02T06:15:30.123456789012Z", "2025-10-02T06:15:30.5+05:30",
    "2025-10-02T06:15:30.5-08:00", "2025-10-02T06:15:30+14:00", "2025-10-02T06:15:30+14:01",
    "2025-10-02T06:15:30+05:60",
    "2025-02-29T00:00:00Z", "2024-02-29T00:00:00Z", "1900-02-29T00:00:00Z", "2000-02-29T00:00:00Z",
    "2025-13-01T00:00:00Z", "2025-00-01T00:00:00Z", "2025-01-32T00:00:00Z", "2025-01-00T00:00:00Z",
    "2025-01-01T24:00:00Z", "2025-01-01T00:60:00Z", "2025-01-01T00:00:60Z", "0001-01-01T00:00:00.0000000+00:00",
    "9999-12-31T23:59:59.9999999Z", "0000-01-01T00:00:00Z", "2025-10-02T06:15:30Zx", "secret",
)  # fmt: skip


def test_dates_and_scores_are_the_same_in_lua(server):
    dice = random.Random(7)
    start = datetime(1, 1, 2, tzinfo=UTC)
    texts = [*ODD]
    for _ in range(400):
        moment = start + timedelta(seconds=dice.randrange(315_537_000_000))
        digits = f"{dice.randrange(10**7):07d}"[: dice.randrange(8)]
        zone = dice.choice(["", "Z", "+00:00", "+05:30", "-08:00"])
        texts.append(f"{moment:%Y-%m-%dT%H:%M:%S}".zfill(19) + ("." if digits else "") + digits + zone)
    body = """
    local out = {}
    for i, text in ipairs(ARGV) do
      local s, f = moment(text)
      out[i] = s and string.format('%.0f %s %.0f %s', s, f, micros_of(s, f), score_of(s, f)) or ''
    end
    return out"""
    told = server.raw.eval(_read("lib_moment") + body, 0, *texts)
    for text, answer in zip(texts, told, strict=True):
        raw = text.encode()
        read = parse_iso(raw) if "T" in text else parse_unix(raw)
        if read is None:
            assert answer == b"", text
            continue
        ticks = read.ticks - UNIX_EPOCH_TICKS
        seconds, fraction = divmod(ticks, TICKS_PER_SECOND)
        whole, digits_, micros, score = answer.split(b" ")
        assert (int(whole), int(digits_)) == (seconds, fraction), text
        if abs(ticks) < 10 * 2**53:  # a double counts µs for 285 years
            assert int(micros) == -(-ticks // 10), text
        exact = seconds >= 0  # before 1970 a double is near enough
        assert float(score) == pytest.approx(ticks / TICKS_PER_SECOND, rel=0 if exact else 1e-15, abs=0), text


def test_a_moment_is_written_as_a_hash_has_it(server):
    dice = random.Random(8)
    micros = [0, 951782400_000_000, 4_107_542_399_999_999, *(dice.randrange(4_102_444_800_000_000) for _ in range(300))]
    body = "local out = {} for i, text in ipairs(ARGV) do out[i] = iso(tonumber(text)) end return out"
    told = server.raw.eval(_read("lib_moment") + "\n" + body, 0, *micros)
    assert told == [ticks_to_iso(UNIX_EPOCH_TICKS + 10 * number) for number in micros]
