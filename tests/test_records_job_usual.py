"""The quick ways to a job's hash and back are shortcuts: where they answer, they answer as the rules do."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.records.job import to_json
from migrator.records.job.fields import known_name
from migrator.records.job.to_hash import by_rules
from migrator.records.job.usual import usual_hash, usual_json
from tests import records
from tests.test_records_job import ID, job, with_raw
from tests.test_records_job_back import DATES, KNOWN, texts


def assert_same(job_id, text):
    """The quick way gives no answer, or the answer of the rules, with the fields in their order."""
    quick = usual_hash(job_id, text)
    if quick is None:
        return
    fields, notes = by_rules(job_id, text)
    assert (list(quick.items()), ()) == (list(fields.items()), notes)


@pytest.mark.parametrize("number", range(100))
def test_jobs_of_all_eras_go_the_quick_way(number):
    one = records.job(number)
    assert usual_hash(one.key.removeprefix(b"ae:job:"), one.text) == one.fields


CREATED = b'"2025-10-02T06:15:30+00:00"'


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("headers", value) for value in (b'{"a":"\xff"}', b'{"a":1}{"b":2}', b'{"a":1},"b":{}', b'{"a":}')),
        *(("id", value) for value in (b'"%s"' % ID.upper(), b'"00000000-8592-5efb-8e04-6702eac7e63c"', b'""')),
        *(("status", value) for value in (b"000", b"700", b"150", b"0100")),
        *(("retryCount", value) for value in (b"4", b"10", b"-1", b"-0", b"03", b"2147483648", b"99999999999")),
        *(("maxRetries", value) for value in (b"2147483647", b"2147483648", b"99999999999", b"00")),
        *(
            ("createdAt", CREATED.replace(was, now))
            for was, now in (
                *((b"10-02", day) for day in (b"02-29", b"02-30", b"04-31", b"13-01", b"00-01", b"01-00", b"12-31")),
                *((b"2025-10-02", day) for day in (b"2024-02-29", b"2023-02-29", b"0000-01-01", b"0001-01-01")),
                *((b"06:15:30", clock) for clock in (b"24:00:00", b"23:60:00", b"23:59:60", b"23:59:59", b"06:15")),
                *((b"+", digits + b"+") for digits in (b".", b".1", b".1234567", b".12345678", b".123456789012345678")),
                *((b"+00:00", zone) for zone in (b"Z", b"-00:00", b"+05:30", b"+15:00", b"")),
            )
        ),
        ("lastUpdatedAt", b"null"),
        ("workerId", b'"worker-1"'),
        ("workerId", b'"%s"' % ID.upper()),
        ("result", b'""'),
        ("error", b'""'),
        ("isCanceled", b"0"),
        # The backslash hides the mark behind it, so these texts are no JSON, however well they can be cut.
        ("payload", b'"a\\","result":"b\\u001fc"'),
        ("payload", b'"a\\","result":"b\\u007fc"'),
        ("payload", b'"a\\","result":"b\x7fc"'),
    ],
)
def test_both_ways_agree_on_what_is_nearly_usual(name, value):
    text = with_raw(name, value)
    assert_same(ID, text.replace(b'"result":null,', b"") if b'"result"' in value else text)


@pytest.mark.parametrize("started", ["0001-01-01T00:00:00", "1969-12-31T23:59:59.9999999", "1970-01-01T00:00:00.1",
                                     "2025-10-02T06:15:30", "9999-12-31T23:59:59.9999999"])  # fmt: skip
def test_both_ways_agree_on_when_a_job_was_started(started):
    text = job(status=300, startedAt=started + "+00:00")
    assert b"StartedAtUnix" in (usual_hash(ID, text) or {})
    assert_same(ID, text)


@pytest.mark.parametrize("job_id", [ID.upper(), ID[:-1], b""])
def test_both_ways_agree_on_a_key_that_is_not_the_jobs(job_id):
    assert_same(job_id, job())
    assert_same(job_id, job(id=job_id.decode()))


def spelled(value):
    return st.booleans().map(lambda ascii_only: json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":")))


WRITTEN = {name: strategy.flatmap(spelled) for name, strategy in {"Id": st.just(ID.decode()), **KNOWN}.items()} | {
    name: st.none().map(json.dumps) | DATES.map(json.dumps)
    for name in ("RetryDelayUntil", "CreatedAt", "StartedAt", "CompletedAt", "LastUpdatedAt")
}


@st.composite
def whole_jobs(draw: st.DrawFn) -> bytes:
    """All properties in the order of the library, most as the job of an era has them, some with any value."""
    number = draw(st.integers(0, 60))
    usual = json.loads(records.job(number).text)
    odd = draw(st.sets(st.sampled_from(sorted(WRITTEN)), max_size=4)) - {"StartedAtUnix", "Version"}
    properties = []
    for name, value in usual.items():
        known = known_name(name)
        text = draw(WRITTEN[known]) if known in odd else draw(spelled(ID.decode() if known == "Id" else value))
        properties.append(f'"{name}":{text}')
    return ("{" + ",".join(properties) + "}").encode()


@given(texts() | whole_jobs())
def test_both_ways_agree_on_any_job(text):
    assert_same(ID, text)


PLACES = (b'":', b'"', b",", b"{", b"}", b"[", b"]", b"\\", b"null", b"0", b"-", b"T", b"Z", b"+", b".")
WORDS = [
    *PLACES,
    *(b"", b" ", b"\n", b"\x1f", b"\x7f", b"\xff", "é".encode(), b"\\u007f", b"\\n", b"\\x", b"\\u00", b"\\ud83d"),
    *(b"\\ude00", b"\\\\", b'\\"', b"\xed\xa0\x80", b"false", b"{}", b"[]", b'""', b'"x"', b"1", b"00", b"3e0"),
    *(b"300", b'"300"', b'"Queued"', b"999999999", b"9999999999", b"0000", b"02-29", b"02-30", b"24:", b":60"),
    *(b"+05:30", b"1970", b"12345678", b"ID", b"Id", b"STATUS", b"exception", b"error", b"[" * 150, b"]" * 150),
    *(b',"id":"x"', b',"status":400', b',"tenant":5', b'},"routeParams":{', b'},"queryParams":[', b'],"payload":"'),
    *(b'","status":', b'","Result":"', b'","error":null', b'},"retryCount":1', b'{"a":[{}', b"{}]}", b"{},{}"),
]


@st.composite
def changed(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A job of an era with a few words put in, or put in the place of others, where one of `PLACES` stands."""
    one = records.job(draw(st.integers(0, 60)))
    text = one.text
    for _ in range(draw(st.integers(1, 2))):
        place = draw(st.sampled_from(PLACES))
        count = text.count(place)
        if not count:
            continue
        at = -1
        for _ in range(draw(st.integers(1, count))):
            at = text.index(place, at + 1) if text.find(place, at + 1) >= 0 else at
        end = at + draw(st.sampled_from([0, len(place), len(place) + 1]))
        text = text[:at] + draw(st.sampled_from(WORDS)) + text[end:]
    return one.key.removeprefix(b"ae:job:"), text


@given(changed())
def test_both_ways_agree_on_a_job_that_was_tampered_with(one):
    assert_same(*one)


PARTS = (b"{}", b"[]", b'{"a":[{}', b"{}]}", b'{"a":{}', b"{}}", b"[],[]", b'{"a":1', b"[[]", b"[]]", b'{"b":"},"}')
SCRAPS = [
    *(b"", b"x", b"\\", b'\\"', b'"', b"\x1f", b"\x7f", b"\\u007f", b"\\u00", b"u007f", b"7f", b"\\ud83d", b"\\ude00"),
    *(b'","', b'",'),
]
VALUES = {name: st.sampled_from([b"null", *PARTS]) for name in ("headers", "routeParams", "queryParams")} | {
    name: st.lists(st.sampled_from(SCRAPS), max_size=2).map(lambda scraps: b'"%s"' % b"".join(scraps))
    for name in ("name", "payload", "result", "error")
}


@given(st.fixed_dictionaries({}, optional=VALUES))
def test_values_that_are_whole_only_together_are_not_taken(values):
    text = job(**{name: f"@{name}" for name in values})
    for name, value in values.items():
        text = text.replace(b'"@%s"' % name.encode(), value)
    assert_same(ID, text)


@pytest.mark.parametrize("name", ["headers", "routeParams", "queryParams", "error"])
def test_both_ways_agree_on_where_values_are_too_deep(name):
    for depth in [*range(1000), 100_000]:
        value = b"[" * depth + b"]" * depth
        assert_same(ID, with_raw(name, b"[%s]" % value if name == "queryParams" else b'{"a":[%s]}' % value))


def assert_same_back(fields):
    """The quick way back gives no answer, or the answer of the rules, which then refuse nothing."""
    quick = usual_json(fields)
    assert quick is None or quick == to_json.by_rules(fields)


@pytest.mark.parametrize("number", range(100))
def test_jobs_of_all_eras_come_back_the_quick_way(number):
    fields = records.job(number).fields
    assert usual_json(fields) == to_json.by_rules(fields)


FIELDS = sorted(records.job(0).fields)
SAID = [
    *(b"", b"0", b"100", b"300", b"600", b"-1", b"007", b"null", b"true", b"{}", b"[]", b'""', b'"x"', b"x", b"\xff"),
    *(b'{"a":1}', b"[1]", b'{"a":"}', b'{","b":1}', b"{}{}", b' {}', b'{} ', b'1,"version":5', b'{},"tenant":{}'),
    *(b'x"', b'x","tenant":"y', b"\\", b"\n", b"\x7f", "é".encode(), ID, ID.upper(), b"1760781607", b"1760781607.5"),
    *(b"2025-10-02T06:15:30" + digits + zone
      for digits in (b"", b".", b".5", b".5000000", b".0000000", b".1234567", b".12345678")
      for zone in (b"", b"Z", b"+00:00", b"-00:00", b"+05:30")),
    *(b"2024-02-29T00:00:00.0000000+00:00", b"2025-02-30T00:00:00.0000000+00:00", b"2025-10-02T24:00:00.0000000Z"),
]  # fmt: skip


@st.composite
def hashes(draw: st.DrawFn) -> dict[bytes, bytes]:
    """The hash of a job of an era, some fields with what others have in theirs, left out, or not known to anybody."""
    fields = dict(records.job(draw(st.integers(0, 60))).fields)
    for name in draw(st.sets(st.sampled_from([*FIELDS, b"StartedAtUnix", b"Version", b"Tenant"]), max_size=3)):
        if draw(st.booleans()):
            fields[name] = draw(st.sampled_from([*SAID, *fields.values()]))
        else:
            fields.pop(name, None)
    return fields


@given(hashes())
def test_both_ways_back_agree(fields):
    assert_same_back(fields)


@pytest.mark.parametrize("name", [*FIELDS, b"StartedAtUnix", b"Version", b"Tenant"])
def test_both_ways_back_agree_on_what_is_nearly_usual(name):
    for number in range(6):
        for value in SAID:
            assert_same_back(records.job(number).fields | {name: value})


def test_whoever_changes_a_hash_changes_no_answer():
    text = job()
    first = usual_hash(ID, text)
    assert first is not None
    first[b"Status"] = b"600"
    assert usual_hash(ID, text) == by_rules(ID, text)[0]
