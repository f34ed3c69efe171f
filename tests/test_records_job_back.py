"""A hash becomes a job again: the way there and back and there changes nothing, and odd hashes are taken as found."""

from __future__ import annotations

import json
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.errors import Unmappable
from migrator.records.job import LOSSES, hash_from_json, json_from_hash
from tests.sample_expectations import Record, read
from tests.test_records_job import ID, job


def back_reason(fields: dict[bytes, bytes]) -> str:
    with pytest.raises(Unmappable) as refusal:
        json_from_hash(fields)
    return refusal.value.reason


GUIDS = st.just(ID.decode()) | st.just(ID.decode().upper())
TEXTS = st.text(max_size=20)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=4,
)
OBJECTS = st.none() | st.dictionaries(TEXTS, JSON_VALUES, max_size=3)
DATES = st.builds(
    "{}T{}{}{}".format,
    # No offset carries such a date out of the calendar.
    st.dates(date(2, 1, 1), date(9998, 12, 31)),
    st.times().map(lambda clock: clock.replace(microsecond=0)),
    st.sampled_from(["", ".5", ".1200000", ".1234567", ".123456789012"]),
    st.sampled_from(["", "Z", "+00:00", "+05:30", "-08:00", "-00:00"]),
)
COUNTS = st.integers(-(2**31), 2**31 - 1)
KNOWN: dict[str, st.SearchStrategy[object]] = {
    "Name": st.none() | TEXTS,
    "Status": st.sampled_from([100, 200, 300, 300, 300, 400, 500, 600, "Queued", "canceled", "300"]),
    "Headers": OBJECTS,
    "RouteParams": OBJECTS,
    "QueryParams": st.none() | st.lists(JSON_VALUES, max_size=2),
    "Payload": st.none() | TEXTS | JSON_VALUES.map(json.dumps),
    "Result": st.none() | TEXTS,
    "RetryCount": COUNTS,
    "MaxRetries": COUNTS,
    "RetryDelayUntil": st.none()
    | DATES
    | st.integers(0, 253402300799)
    | st.sampled_from(["1760781607.5", 1760781607.25]),
    "WorkerId": st.none() | GUIDS | TEXTS,
    "StartedAt": st.none() | DATES,
    "CompletedAt": st.none() | DATES,
    "LastUpdatedAt": DATES,
    "IsCanceled": st.booleans(),
    "StartedAtUnix": st.none() | st.integers(-(10**17), 10**17) | st.just("x"),
    "Version": st.none() | st.integers(0, 10**17),
}
ERRORS: dict[str, st.SearchStrategy[dict[str, object]]] = {
    "A": st.fixed_dictionaries({"Exception": st.none() | TEXTS}),
    "B": st.fixed_dictionaries({"Exception": st.none() | TEXTS}),
    "C": st.fixed_dictionaries({"Error": OBJECTS | TEXTS}),
}
UNKNOWN = st.dictionaries(
    st.sampled_from(["tenant", "", "ä\n", 'q"', "Id2"]), JSON_VALUES | JSON_VALUES.map(json.dumps), max_size=3
)


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """A job of any era, some properties left out, in the escaping and the casing of its era."""
    era = draw(st.sampled_from("ABC"))
    properties: dict[str, object] = {"Id": draw(GUIDS)}
    properties |= draw(
        st.fixed_dictionaries({"CreatedAt": DATES}, optional={k: v for k, v in KNOWN.items() if k != "CreatedAt"})
    )
    properties |= draw(ERRORS[era])
    if era != "A":
        properties = {name[:1].lower() + name[1:]: value for name, value in properties.items()}
    text = json.dumps(
        properties | draw(UNKNOWN), ensure_ascii=era == "A", separators=draw(st.sampled_from([(",", ":"), None]))
    )
    return text.encode()


@given(texts())
def test_a_hash_made_from_the_way_back_is_the_same_hash(text):
    fields, _ = hash_from_json(ID, text)
    back = json_from_hash(fields)
    assert hash_from_json(ID, back)[0] == fields
    assert json_from_hash(hash_from_json(ID, back)[0]) == back


def test_the_way_back_is_json_of_era_c():
    text = job(status=600, retryDelayUntil="2025-10-02T06:15:30.5Z", workerId=ID.decode(), isCanceled=True)
    assert json_from_hash(hash_from_json(ID, text)[0]) == text


@pytest.mark.parametrize("value", ["t-1", "5", 5, " 5", "", None, True, "true", {"a": [1.5]}, '{"a":1}', '"quoted"'])
def test_an_unknown_property_comes_back_as_it_was(value):
    back = json_from_hash(hash_from_json(ID, job(tenant=value))[0])
    assert json.loads(back)["tenant"] == value
    assert type(json.loads(back)["tenant"]) is type(value)


def test_a_start_that_follows_from_started_at_is_not_said_again():
    derived = hash_from_json(ID, job(status=300, startedAt="2025-10-02T06:15:35.5+00:00"))[0]
    assert b"startedAtUnix" not in json_from_hash(derived)
    assert json.loads(json_from_hash(derived | {b"StartedAtUnix": b"7"}))["startedAtUnix"] == 7


def test_what_is_lost_is_said():
    assert len(LOSSES) == len(set(LOSSES)) > 0
    assert all(loss.endswith(".") for loss in LOSSES)


# ── Hashes as found ──────────────────────────────────────────────────────────────────────────────────────────


def wild(note: str) -> dict[bytes, bytes]:
    record: Record = next(record for record in read("ae_hash.ndjson") if note in record.note)
    return {field.encode(): value.encode() for field, value in record.value.items()}


@pytest.mark.parametrize(
    ("note", "part"),
    [
        ("hash era, queued", {"status": 100, "result": None, "error": None, "isCanceled": False}),
        ("claimed by the Lua script", {"startedAt": "2025-10-18T10:00:05.4321+00:00"}),
        (
            "retry scheduled",
            {"error": {"code": "TIMEOUT", "message": "t", "exception": None}, "startedAtUnix": 1760781605},
        ),
        ("same on a +05:30 host", {"retryDelayUntil": "2025-10-18T10:00:07.4321Z"}),
        (
            "recovery script",
            {"retryDelayUntil": "2025-10-18T10:00:07.5Z", "lastUpdatedAt": "2025-10-18T10:00:03+00:00"},
        ),
        (
            "permanently failed",
            {"error": {"code": "UNKNOWN", "message": "Job failed after maximum retries", "exception": None}},
        ),
        ("extra fields", {"version": 7, "ClaimedUntil": "2025-10-18T10:05:00.0000000Z", "Tenant": "t-1"}),
        ("stale StartedAtUnix", {"status": 400, "result": '"ok"', "startedAtUnix": 1760781605}),
        ("half-created hash", {"status": 100}),
        ("whole key expires", {"status": 100}),
    ],
)
def test_a_hash_as_found_becomes_json_that_becomes_a_sound_hash(note, part):
    fields = wild(note)
    back = json_from_hash(fields)
    assert part.items() <= json.loads(back).items()
    again, _ = hash_from_json(fields[b"Id"], back)
    assert fields.keys() - {b"StartedAtUnix"} <= again.keys()


def test_a_claimed_job_does_not_say_its_start_twice():
    assert b"startedAtUnix" not in json_from_hash(wild("claimed by the Lua script"))


def test_a_sound_hash_as_found_comes_back_unchanged():
    for note in ("hash era, queued", "claimed by", "retry scheduled", "extra fields", "stale StartedAtUnix"):
        assert hash_from_json(wild(note)[b"Id"], json_from_hash(wild(note)))[0] == wild(note)


def test_a_hash_with_counters_that_are_none_is_refused():
    assert back_reason(wild("non-integer counters")) == "undefined status"


SOUND = hash_from_json(ID, job())[0]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({b"Id": b""}, "Id absent"),
        ({b"Status": b""}, "Status absent"),
        ({b"CreatedAt": b""}, "CreatedAt absent"),
        ({b"Status": b"150"}, "undefined status"),
        ({b"RetryCount": b"1.0"}, "RetryCount is not a whole number"),
        ({b"RetryCount": b""}, "RetryCount is not a whole number"),
        ({b"MaxRetries": b" 3"}, "MaxRetries is not a whole number"),
        ({b"MaxRetries": b"03"}, "MaxRetries is not a whole number"),
        ({b"MaxRetries": b"2147483648"}, "MaxRetries out of range"),
        ({b"StartedAtUnix": b"1.5"}, "StartedAtUnix is not a whole number"),
        ({b"Version": b"x"}, "Version is not a whole number"),
        ({b"StartedAt": b"soon"}, "StartedAt is not a date"),
        ({b"RetryDelayUntil": b"-1"}, "RetryDelayUntil is not a date"),
        ({b"Headers": b"{"}, "Headers is not a JSON object"),
        ({b"RouteParams": b"[]"}, "RouteParams is not a JSON object"),
        ({b"QueryParams": b"{}"}, "QueryParams is not a JSON array"),
        ({b"Payload": b"\xff"}, "not UTF-8"),
        ({b"Headers": b'{"a":"\xff"}'}, "Headers is not a JSON object"),
        ({b"Tenant": b"\xff"}, "not UTF-8"),
        ({b"\xff": b""}, "not UTF-8"),
        ({b"status": b"100"}, "a field's name clashes with a property of the job"),
        ({b"Exception": b"x"}, "a field's name clashes with a property of the job"),
    ],
)
def test_a_hash_that_no_job_fits_is_refused(changed, expected):
    assert back_reason(SOUND | changed) == expected


def test_a_missing_field_leaves_its_property_out():
    assert b"workerId" not in json_from_hash({name: value for name, value in SOUND.items() if name != b"WorkerId"})
    assert back_reason({name: value for name, value in SOUND.items() if name != b"Status"}) == "Status absent"


@pytest.mark.parametrize("text", [b"plain", b"{broken", b"[1]", b'"quoted"', b"7"])
def test_an_error_that_is_no_object_becomes_one(text):
    error = json.loads(json_from_hash(SOUND | {b"Error": text}))["error"]
    assert error == {"code": "UNKNOWN", "message": text.decode(), "exception": None}
