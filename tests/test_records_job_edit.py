"""A job's JSON is edited, not written anew: what changes is spelled as the job spells it, every other byte stays."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from migrator.records.job import hash_from_json
from migrator.records.job.edit import edit_job
from migrator.records.split import edit, spans
from tests.test_records_job import ID, job
from tests.test_records_job_back import texts

DATE = b"2026-01-02T03:04:05.1200000+00:00"
ERROR = b'{"code":"NET","message":"no \xc2\xabroute\xc2\xbb","exception":null}'
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        b"Status": st.sampled_from([b"100", b"200", b"400", b"500", b"600"]),
        b"Name": st.sampled_from([b"", "é\n".encode()]),
        b"Result": st.sampled_from([b"", b'{"rows":1}']),
        b"Error": st.sampled_from([b"", ERROR]),
        b"RetryCount": st.just(b"4"),
        b"RetryDelayUntil": st.sampled_from([b"", b"2026-01-02T03:04:05.1234567Z"]),
        b"WorkerId": st.sampled_from([b"", ID]),
        b"StartedAt": st.sampled_from([b"", DATE]),
        b"LastUpdatedAt": st.just(DATE),
        b"StartedAtUnix": st.just(b"1767323045"),
        b"Version": st.just(b"12"),
        b"tenant": st.sampled_from([b"7", b"seven"]),
    },
)


BEGUN = (
    b'{"Id":"%s","CreatedAt":"2000-01-01T00:00:00","StartedAtUnix":null,"Status":300,"StartedAt":"2000-01-01T00:00:00"}'
    % ID
)


@given(texts(), CHANGES)
@example(BEGUN, {b"Status": b"100"})
def test_an_edited_job_maps_to_the_changed_fields_and_no_other_byte_is_touched(text, changes):
    before, _ = hash_from_json(ID, text)
    after = before | changes
    if after[b"Status"] == b"300" and b"StartedAt" in changes:
        after[b"StartedAtUnix"] = b"1767323045"
    edited = edit_job(text, before, after)
    mapped, _ = hash_from_json(ID, edited)
    if b"exception" in text.lower() and b"Error" in changes:
        # Text has no code, and empty text is a failure all the same.
        assert json.loads(mapped[b"Error"] or b"{}").get("message") == (
            json.loads(after[b"Error"] or b"{}").get("message")
        )
        after[b"Error"] = mapped[b"Error"]
    assert mapped == after
    old, new = spans(text), spans(edited)
    assert [span.name for span in new[: len(old)]] == [span.name for span in old]
    touched = {name.decode().lower() for name in after if after[name] != before.get(name)} | {"iscanceled"}
    if "error" in touched:
        touched.add("exception")
    if before[b"Status"] == b"300" != after[b"Status"]:
        touched.add("startedatunix")  # of a job in progress it follows from StartedAt; of another it has to be said
    end = text[old[-1].end :]
    assert edited.endswith(end)
    assert skeleton(edited[: new[len(old) - 1].end], new[: len(old)], touched) == skeleton(
        text[: old[-1].end], old, touched
    )


def skeleton(text, found, touched):
    """The bytes around and in the values that had to stay."""
    kept = [(span, b"*") for span in found if span.name.lower() in touched]
    return edit(text, found, kept, [])


def test_what_did_not_change_is_the_same_text():
    text = b' {"Id" : "%s" ,\n "createdAt":"2025-10-02T06:15:30+00:00", "n": [1.50, {"}":"\\"]"}] } ' % ID
    fields, _ = hash_from_json(ID, text)
    assert edit_job(text, fields, fields) == text
    assert edit_job(text, fields, fields | {b"Version": b"1"}) == text.replace(b'"}] }', b'"}],"Version":1 }')


@pytest.mark.parametrize(
    ("was", "now"),
    [("100", "300"), ('"100"', '"300"'), ('"Queued"', '"InProgress"'), ('"queued"', '"inProgress"')],
)
def test_a_status_keeps_its_form(was, now):
    text = job(status=1).replace(b'"status":1,', b'"status":%s,' % was.encode())
    fields, _ = hash_from_json(ID, text)
    assert b'"status":%s,' % now.encode() in edit_job(text, fields, fields | {b"Status": b"300"})


def test_of_a_property_that_came_twice_the_last_is_changed():
    text = job()[:-1] + b',"Name":"second"}'
    fields, _ = hash_from_json(ID, text)
    edited = edit_job(text, fields, fields | {b"Name": b"third"})
    assert edited == text.replace(b'"second"', b'"third"')


def test_a_start_that_followed_from_the_status_is_stated_before_it_is_lost():
    text = job(status=300, startedAt="2026-01-02T03:04:05+00:00")
    fields, _ = hash_from_json(ID, text)
    assert b"startedAtUnix" not in edit_job(text, fields, fields | {b"Name": b"x"})
    assert edit_job(text, fields, fields | {b"Status": b"400"}).endswith(b',"startedAtUnix":1767323045}')
