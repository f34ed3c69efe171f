"""Every sample record becomes exactly what was written down for it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from migrator.errors import Unmappable
from migrator.records.job import hash_from_json, json_from_hash
from migrator.records.ticks import parse_ticks
from tests.sample_expectations import FILES, JOBS, expected, read

RECORDS = [record for name in FILES for record in read(name)]
MOVED_JOBS = [record for record in RECORDS if expected(record).fields]


def by_key(record):
    return record.key.decode()


@pytest.mark.parametrize("record", RECORDS, ids=by_key)
def test_a_sample_becomes_what_is_written_down_for_it(record):
    expectation = expected(record)
    job_id = record.key.removeprefix(b"ae:job:")
    if expectation.outcome in ("ignored", "foreign-type"):
        # No mapping ever sees it: the name or the type says so.
        assert b"claim" in record.key or record.type != "string" or expectation.migration != JOBS
    elif expectation.migration != JOBS:
        assert {
            field.encode(): parse_ticks(text.encode()) for field, text in record.value.items()
        } == expectation.scores
    elif expectation.outcome == "quarantined":
        with pytest.raises(Unmappable) as refusal:
            hash_from_json(job_id, record.text)
        assert refusal.value.reason == expectation.reason
    else:
        fields, notes = hash_from_json(job_id, record.text)
        assert list(fields.items()) == list(expectation.fields.items())
        assert notes == expectation.notes


@pytest.mark.parametrize("record", MOVED_JOBS, ids=by_key)
def test_a_moved_sample_comes_back_as_a_job_that_becomes_the_same_hash(record):
    expectation = expected(record)
    back = json_from_hash(expectation.fields)
    assert hash_from_json(expectation.fields[b"Id"], back)[0] == expectation.fields


def test_an_era_c_job_comes_back_byte_for_byte():
    # Not the emoji, which era C escapes, nor what the hash cannot hold.
    same = [
        r for r in read("ae_string_eraC.ndjson") if r.key[7:15] in (b"9c9de22a", b"af963ad8", b"b6fb9015", b"66b8f22e")
    ]
    assert [json_from_hash(expected(r).fields) for r in same] == [r.text for r in same]
    assert len(same) == 4


def test_is_canceled_comes_back_from_the_status():
    canceled = next(r for r in read("ae_string_eraC.ndjson") if r.note == "canceled")
    assert json.loads(json_from_hash(expected(canceled).fields))["isCanceled"] is True


def test_a_record_nobody_wrote_down_fails():
    record = read("ae_string_eraA.ndjson")[0]
    with pytest.raises(KeyError):
        expected(replace(record, expect="fine"))


def test_a_sample_file_is_not_empty():
    assert [len(read(name)) for name in FILES] == [15, 2, 2, 12, 2, 11]
