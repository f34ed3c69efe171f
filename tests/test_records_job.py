"""A job becomes a hash: what was assumed is noted, what would have to be invented is refused."""

from __future__ import annotations

import json

import pytest

from migrator.errors import Unmappable
from migrator.records.job import hash_from_json

ID = b"9c9de22a-8592-5efb-8e04-6702eac7e63c"
PLAIN = {
    "id": ID.decode(),
    "name": "send-report",
    "status": 100,
    "headers": {},
    "routeParams": {},
    "queryParams": [],
    "payload": "{}",
    "result": None,
    "error": None,
    "retryCount": 0,
    "maxRetries": 3,
    "retryDelayUntil": None,
    "workerId": None,
    "createdAt": "2025-10-02T06:15:30+00:00",
    "startedAt": None,
    "completedAt": None,
    "lastUpdatedAt": "2025-10-02T06:15:30+00:00",
    "isCanceled": False,
}


def job(*absent: str, **changed: object) -> bytes:
    properties = {name: value for name, value in PLAIN.items() if name not in absent} | changed
    return json.dumps(properties, separators=(",", ":")).encode()


def with_raw(name: str, value: bytes) -> bytes:
    """A job in which one property has exactly these bytes."""
    return job(**{name: "@"}).replace(b'"@"', value)


def reason(text: bytes, job_id: bytes = ID) -> str:
    with pytest.raises(Unmappable) as refusal:
        hash_from_json(job_id, text)
    return refusal.value.reason


# ── Refused ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (job("id"), "Id absent"),
        (job(id=None), "Id absent"),
        (job(id=7), "Id is not a string"),
        (job("createdAt"), "CreatedAt absent"),
        (job(createdAt=None), "CreatedAt absent"),
        (job(createdAt=1759385730), "CreatedAt is not a string"),
        (job(createdAt="1759385730"), "CreatedAt is not a date"),
        (job(createdAt=""), "CreatedAt is not a date"),
        (job(startedAt="soon"), "StartedAt is not a date"),
        (job(completedAt="2025-02-30T00:00:00Z"), "CompletedAt is not a date"),
        (job(retryDelayUntil=""), "RetryDelayUntil is not a date"),
        (job(retryDelayUntil=[]), "RetryDelayUntil is not a date"),
        (job(retryDelayUntil=-1), "RetryDelayUntil is not a date"),
        (job(retryDelayUntil="0001-01-01T00:00:00+05:30"), "RetryDelayUntil is not a date"),
        (job(status=0), "undefined status"),
        (job(status=None), "undefined status"),
        (job(status=100.0), "undefined status"),
        (job(status="Done"), "undefined status"),
        (job(status="150"), "undefined status"),
        (job(name=7), "Name is not a string"),
        (job(headers=[]), "Headers is not an object"),
        (job(routeParams="{}"), "RouteParams is not an object"),
        (job(queryParams={}), "QueryParams is not an array"),
        (job(payload={}), "Payload is not a string"),
        (job(result=True), "Result is not a string"),
        (job(error=[]), "Error is not an object"),
        (job(retryCount="0"), "RetryCount is not a whole number"),
        (job(retryCount=1.0), "RetryCount is not a whole number"),
        (job(maxRetries=None), "MaxRetries is not a whole number"),
        (with_raw("maxRetries", b"3e0"), "MaxRetries is not a whole number"),
        (job(maxRetries=2**31), "MaxRetries out of range"),
        (job(retryCount=-(2**31) - 1), "RetryCount out of range"),
        (job(workerId=7), "WorkerId is not a string"),
        (job(version="7"), "Version is not a whole number"),
        (with_raw("payload", b'"\\ud83d"'), "not valid JSON"),
    ],
)
def test_what_the_library_could_not_read_is_refused(text, expected):
    assert reason(text) == expected


def test_a_job_under_another_jobs_key_is_refused():
    assert reason(job(), job_id=b"00000000-8592-5efb-8e04-6702eac7e63c") == "Id differs from the key"


def test_a_reason_never_repeats_a_value():
    assert "secret" not in reason(job(status="secret")) + reason(job(createdAt="secret")) + reason(
        job(version="secret")
    )


# ── Mapped, with notes ───────────────────────────────────────────────────────────────────────────────────────


def test_a_job_as_the_library_wrote_it_has_nothing_to_note():
    fields, notes = hash_from_json(ID, job())
    assert notes == ()
    assert len(fields) == 17


@pytest.mark.parametrize(
    ("text", "field", "value", "note"),
    [
        (job(status="100"), b"Status", b"100", "Status is a quoted number"),
        (job(result=""), b"Result", b"", "empty result"),
        (
            job(retryDelayUntil="1760781607.5"),
            b"RetryDelayUntil",
            b"2025-10-18T10:00:07.5000000Z",
            "RetryDelayUntil is in unix seconds",
        ),
        (
            job(retryDelayUntil=1760781607.5),
            b"RetryDelayUntil",
            b"2025-10-18T10:00:07.5000000Z",
            "RetryDelayUntil is in unix seconds",
        ),
        (
            job(retryDelayUntil="2025-10-02T06:15:30"),
            b"RetryDelayUntil",
            b"2025-10-02T06:15:30.0000000Z",
            "RetryDelayUntil has no zone: UTC taken",
        ),
        (
            job(createdAt="2025-10-02T06:15:30"),
            b"CreatedAt",
            b"2025-10-02T06:15:30.0000000+00:00",
            "CreatedAt has no zone: UTC taken",
        ),
        (
            job(createdAt="2025-10-02T06:15:30.123456789012Z"),
            b"CreatedAt",
            b"2025-10-02T06:15:30.1234567+00:00",
            "CreatedAt cut to 7 fraction digits",
        ),
        (
            job("lastUpdatedAt", createdAt="2025-10-02T11:45:30+05:30"),
            b"LastUpdatedAt",
            b"2025-10-02T11:45:30.0000000+05:30",
            "LastUpdatedAt absent: CreatedAt taken",
        ),
        (
            job(lastUpdatedAt=None),
            b"LastUpdatedAt",
            b"2025-10-02T06:15:30.0000000+00:00",
            "LastUpdatedAt absent: CreatedAt taken",
        ),
        (job("status"), b"Status", b"100", "Status absent: default taken"),
        (job("headers"), b"Headers", b"{}", "Headers absent: default taken"),
        (job("routeParams"), b"RouteParams", b"{}", "RouteParams absent: default taken"),
        (job("queryParams"), b"QueryParams", b"[]", "QueryParams absent: default taken"),
        (job("name"), b"Name", b"", "Name absent: default taken"),
        (job("payload"), b"Payload", b"", "Payload absent: default taken"),
        (job("result"), b"Result", b"", "Result absent: default taken"),
        (job("error"), b"Error", b"", "Error absent: default taken"),
        (job("retryCount"), b"RetryCount", b"0", "RetryCount absent: default taken"),
        (job("maxRetries"), b"MaxRetries", b"3", "MaxRetries absent: default taken"),
        (job("workerId"), b"WorkerId", b"", "WorkerId absent: default taken"),
        (job(workerId="worker-1"), b"WorkerId", b"worker-1", "WorkerId is not a guid"),
        (job(id=ID.decode().upper()), b"Id", ID.upper(), "upper-case Id"),
        (job(retryCount=-1), b"RetryCount", b"-1", "negative retry number"),
        (job(retryCount=4), b"RetryCount", b"4", "RetryCount above MaxRetries"),
        (job(startedAtUnix=1.5), b"Status", b"100", "StartedAtUnix is not a whole number: ignored"),
        (job(tenant="t-1"), b"tenant", b"t-1", "unknown property kept: tenant"),
        (job(tenant=5), b"tenant", b"5", "unknown property kept: tenant"),
        (job(tenant="5"), b"tenant", b'"5"', "unknown property kept: tenant"),
        (job(tenant={"a": [1.0]}), b"tenant", b'{"a":[1.0]}', "unknown property kept: tenant"),
    ],
)
def test_what_is_assumed_or_odd_is_noted(text, field, value, note):
    fields, notes = hash_from_json(ID, text)
    assert (fields[field], notes) == (value, (note,))


def test_negative_retries_are_noted_though_none_were_used():
    assert hash_from_json(ID, job(maxRetries=-1))[1] == ("negative retry number", "RetryCount above MaxRetries")


@pytest.mark.parametrize("name", ["InProgress", "inprogress", "INPROGRESS"])
def test_a_status_may_be_a_name_in_any_casing(name):
    assert hash_from_json(ID, job(status=name))[0][b"Status"] == b"300"


@pytest.mark.parametrize("name", ["headers", "routeParams", "queryParams", "payload", "name", "result", "error"])
def test_null_becomes_an_empty_field(name):
    fields, notes = hash_from_json(ID, job(**{name: None}))
    assert (fields[name[:1].upper().encode() + name[1:].encode()], notes) == (b"", ())


def test_the_first_date_there_is_is_carried():
    fields, _ = hash_from_json(ID, job(createdAt="0001-01-01T00:00:00+00:00"))
    assert fields[b"CreatedAt"] == b"0001-01-01T00:00:00.0000000+00:00"


def test_an_escaped_plus_is_a_plus():
    fields, _ = hash_from_json(ID, with_raw("createdAt", b'"2025-10-02T06:15:30\\u002B00:00"'))
    assert fields[b"CreatedAt"] == b"2025-10-02T06:15:30.0000000+00:00"


def test_minus_zero_is_zero():
    assert hash_from_json(ID, with_raw("retryCount", b"-0"))[0][b"RetryCount"] == b"0"


@pytest.mark.parametrize(
    ("tail", "status"),
    [
        (b',"Status":300}', b"300"),
        (b',"STATUS":300,"status":400}', b"400"),
        (b',"status":400,"Status":300}', b"300"),
        (b', "status" : 600}', b"600"),
    ],
)
def test_of_a_property_that_comes_twice_the_last_one_wins(tail, status):
    fields, notes = hash_from_json(ID, job()[:-1] + tail)
    assert (fields[b"Status"], notes) == (status, ("duplicate property",))


@pytest.mark.parametrize("name", ["Exception", "exception", "Error", "error"])
@pytest.mark.parametrize(
    ("value", "field"),
    [
        (None, b""),
        ("two\nlines", b'{"code":"UNKNOWN","message":"two\\nlines","exception":null}'),
        ("", b'{"code":"UNKNOWN","message":"","exception":null}'),
        ({"code": "X", "n": 1.0}, b'{"code":"X","n":1.0}'),
    ],
)
def test_a_failure_goes_by_four_names(name, value, field):
    fields, notes = hash_from_json(ID, job("error", **{name: value}))
    assert (fields[b"Error"], notes) == (field, ())


@pytest.mark.parametrize(("error", "message"), [("e", b"e"), (None, b"x")])
def test_of_error_and_exception_the_error_wins_if_there_is_one(error, message):
    fields, notes = hash_from_json(ID, job(error=error, exception="x"))
    assert fields[b"Error"] == b'{"code":"UNKNOWN","message":"%s","exception":null}' % message
    assert notes == ("both Error and Exception present",)


@pytest.mark.parametrize(
    ("changed", "seconds"),
    [
        ({}, b"1759385735"),
        ({"startedAtUnix": 7}, b"7"),
        ({"StartedAtUnix": 7}, b"7"),
        ({"startedAtUnix": None}, b"1759385735"),
        ({"startedAtUnix": "7"}, b"1759385735"),
        ({"status": 400}, None),
        ({"status": 400, "startedAtUnix": 7}, b"7"),
        ({"startedAt": None}, None),
    ],
)
def test_a_job_in_progress_tells_when_it_started(changed, seconds):
    running = {"status": 300, "startedAt": "2025-10-02T11:45:35.9999999+05:30"} | changed
    assert hash_from_json(ID, job(**running))[0].get(b"StartedAtUnix") == seconds


@pytest.mark.parametrize(
    ("changed", "field"), [({"version": 7}, b"7"), ({"Version": 7}, b"7"), ({"version": None}, None), ({}, None)]
)
def test_a_version_stays_and_an_absent_one_stays_absent(changed, field):
    fields, notes = hash_from_json(ID, job(**changed))
    assert (fields.get(b"Version"), notes) == (field, ())


def test_a_start_that_is_null_is_as_good_as_absent():
    assert hash_from_json(ID, job(startedAtUnix=None))[1] == ()


def test_only_ascii_letters_have_two_casings():
    fields, notes = hash_from_json(ID, job("workerId").replace(b"{", '{"wor\u212aerId":null,'.encode(), 1))
    assert fields["wor\u212aerId".encode()] == b"null"
    assert "WorkerId absent: default taken" in notes
