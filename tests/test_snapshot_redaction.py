"""Redaction: what may be secret goes, what a mapping looks at stays."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.json import decode, encode

from migrator import Index, Keys, MemberMove, Migration
from migrator.errors import Unmappable
from migrator.ledger import Rejected
from migrator.moves import KeyMove
from migrator.moves.values import digest
from migrator.names import CLAIMS, Names
from migrator.records.job import hash_from_json
from migrator.snapshot.families import Families
from migrator.snapshot.ndjson import Group, Line, StreamPart
from migrator.snapshot.redaction import Redaction
from tests.sample_expectations import JOBS, expected, read
from tests.support import guid, job

SAMPLES = [one for name in ("ae_string_bad.ndjson", "ae_string_eraA.ndjson", "ae_string_eraB.ndjson",
                            "ae_string_eraC.ndjson") for one in read(name)
           if one.type == "string" and b"claim" not in one.key]  # fmt: skip
NAMES = Names("migrator")
NONE = Families(NAMES)


def string(value, key=b"k", redaction=None):
    return hidden(Line(0, key, "string", None, [value]), redaction).items[0]


def hidden(line, redaction=None, families=NONE):
    return (redaction or Redaction()).line(line, families.of(line.key))


def mapped(key, text):
    try:
        return hash_from_json(key.removeprefix(b"ae:job:"), text)
    except Unmappable as refusal:
        return refusal.reason


@pytest.mark.parametrize("record", SAMPLES, ids=lambda record: record.key.decode())
def test_a_mapping_meets_in_a_redacted_job_what_it_would_meet(record):
    assert expected(record).migration == JOBS
    redaction = Redaction()
    whole, redacted = mapped(record.key, record.text), mapped(record.key, string(record.text, record.key, redaction))
    if isinstance(whole, str):
        assert redacted == whole
        return
    fields, notes = whole
    # As a half-done migration has it: both shapes are redacted, and still agree.
    flat = [item for pair in fields.items() for item in pair]
    staged = hidden(
        Line(0, NAMES.beside("staged", "0001_jobs").name(record.key, lambda _: b"0"), "hash", None, flat), redaction
    )
    assert redacted == (dict(zip(staged.items[::2], staged.items[1::2], strict=True)), notes)


def test_headers_payload_result_and_error_texts_are_not_there_any_more():
    text = job(
        guid(1), headers={"Authorization": ["Bearer tok-EN"], "Cookie": ["sid=monster"]},
        payload='{"card":"Visa Gold"}', result="Done For Ada",
        error={"code": "TIMEOUT", "message": "Host unreachable", "exception": None},
    )  # fmt: skip
    redacted = string(text, b"ae:job:" + guid(1).encode())
    for secret in (b"Bearer", b"tok-EN", b"monster", b"Visa", b"Gold", b"Done", b"Ada", b"TIMEOUT", b"unreachable"):
        assert secret in text
        assert secret not in redacted
    kept = ("id", "status", "retryCount", "createdAt", "lastUpdatedAt", "isCanceled")
    before, after = json.loads(text), json.loads(redacted)
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    assert list(after) == list(before)
    assert list(after["headers"]) == ["Authorization", "Cookie"]
    assert re.fullmatch(r'\{"card":"[A-Z][a-z]{3} [A-Z][a-z]{3}"\}', after["payload"])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def skeleton(value):
    """Structure, names, and of each text everything but which letters there are."""
    if isinstance(value, dict):
        return {name: skeleton(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [skeleton(inner) for inner in value]
    if not isinstance(value, str):
        return value
    try:
        inner = json.loads(value, parse_constant=_no_json)
    except ValueError:
        return [_mark(char) for char in value]
    return skeleton(inner) if isinstance(inner, (dict, list, str)) else value


def _no_json(constant):
    raise ValueError(constant)  # Python reads NaN and Infinity, which JSON has not


def _mark(char):
    if not char.isalpha() and not re.match(r"\w", char):
        return char if len(char.encode("utf-8", "replace")) < 2 else len(char.encode())
    return (len(char.encode()), char.isupper()) if char.isalpha() and char.isascii() else len(char.encode())


@settings(max_examples=150, deadline=None)
@given(value=JSON, ascii=st.booleans(), nested=st.booleans())
def test_json_keeps_its_structure_names_numbers_escapes_and_lengths(value, ascii, nested):
    text = json.dumps(value, ensure_ascii=ascii)
    text = json.dumps({"payload": text}, ensure_ascii=ascii) if nested else text
    try:
        raw = text.encode()
    except UnicodeEncodeError:  # half a pair, which no UTF-8 holds
        return
    redacted = string(raw)
    assert len(redacted) == len(raw)
    assert skeleton(json.loads(redacted)) == skeleton(json.loads(raw))


@settings(max_examples=150, deadline=None)
@given(value=st.binary(max_size=80))
def test_bytes_keep_their_length_and_utf8_stays_what_it_is(value):
    redacted = string(value)
    assert len(redacted) == len(value)
    assert _is_utf8(redacted) == _is_utf8(value)
    kept = [(a, b) for a, b in zip(value, redacted, strict=True) if a < 128 and not chr(a).isalpha()]
    assert all(a == b for a, b in kept)


def _is_utf8(value):
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_equal_texts_stay_equal_within_a_file_and_only_there():
    one, other = Redaction(), Redaction()
    assert string(b"some words", redaction=one) == string(b"some words", b"another", one)
    assert string(b"some words", redaction=one) != string(b"some words", redaction=other)
    # By the whole text: a word is not the same wherever it stands, or it could be found by how often it comes.
    assert string(b"some words", redaction=one)[:4] != string(b"some other", redaction=one)[:4]


@pytest.mark.parametrize("value", [b"2025-10-02T06:15:30.1234567+00:00", b"6.3e+17", b"-inf", b"true", b"", b"12:30",
                                   guid(0xABCDEF).encode()])  # fmt: skip
def test_dates_numbers_and_guids_stay(value):
    assert string(value) == value


def test_a_guid_under_a_secret_name_is_another_guid():
    line = Line(0, b"h", "hash", None, [b"ApiToken", b"deadbeef-dead-4ead-8ead-deadbeefdead"])
    redacted = hidden(line).items[1].decode()
    assert re.fullmatch(r"[a-f]{8}-[a-f]{4}-4[a-f]{3}-8[a-f]{3}-[a-f]{12}", redacted)
    assert redacted.encode() != line.items[1]


def test_what_the_key_shows_is_no_secret_in_the_record_but_is_one_in_a_header():
    document = json.loads(string(b'{"id":"job_ab","owner":"ada","headers":["job_ab"]}', b"job:job_ab"))
    assert document["id"] == "job_ab"
    assert document["owner"] != "ada"
    assert document["headers"] != ["job_ab"]


def test_a_name_that_hides_behind_an_escape_is_seen():
    redacted = json.loads(string(b'{"pay\\u006coad":"2 \\u0062e-or-not","status":"due"}'))
    assert redacted["status"] == "due"
    assert redacted["payload"].startswith("2 ")
    assert "e-or-not" not in redacted["payload"]


def test_a_name_that_is_said_to_be_no_secret_is_kept_wherever_it_stands():
    redaction = Redaction(["tier", "error-code"])
    found = json.loads(
        string(b'{"tier":"gold","payload":{"Tier":"red","errorCode":"E_NO"},"x":"gold"}', b"k", redaction)
    )
    assert (found["tier"], found["payload"]) == ("gold", {"Tier": "red", "errorCode": "E_NO"})
    assert found["x"] != "gold"


MOVES = Families(NAMES, [
    Migration(MemberMove(source=Keys("seen:{id}", type="hash"), target=Keys("by-time:{id}", type="zset"),
                         forward=lambda key, name, value: (name, float(value)))),
    Migration(KeyMove(source=Keys("doc:{id}", type="string"), target=Keys("list:{id}", type="list"),
                      forward=lambda key, value: [value],
                      indexes=(Index(keys=Keys("due", type="zset"), member=lambda key: key["id"],
                                     score=lambda key, value: None),))),
])  # fmt: skip


@pytest.mark.parametrize(("key", "kind", "kept"), [
    (b"by-time:7", "zset", True), (b"due", "zset", True), (b"other", "zset", False), (b"other", "set", False),
    (b"list:7", "list", False),
])  # fmt: skip
def test_members_that_a_migration_names_stay_and_others_do_not(key, kind, kept):
    items = [b"adalovelace", b"inf"] if kind == "zset" else [b"adalovelace"]
    redacted = hidden(Line(0, key, kind, None, items), families=MOVES).items
    assert (redacted[0] == b"adalovelace") is kept
    assert redacted[1:] == items[1:]


def test_fields_of_hashes_and_streams_are_known_by_their_names():
    line = hidden(Line(0, b"seen:7", "hash", None, [b"ada", b"1759385730", b"alan", b"yesterday"]), families=MOVES)
    assert line.items[:3] == [b"ada", b"1759385730", b"alan"]
    assert line.items[3] != b"yesterday"
    part = StreamPart(
        (("1-0", (b"status", b"new", b"payload", b"words")), ("2-0", None)), groups=(Group(b"g", "0-0", 0, ()),)
    )
    stream = hidden(Line(0, b"s", "stream", None, [], 0, {}, part)).stream
    assert stream == replace(
        part, entries=(("1-0", (b"status", b"new", b"payload", stream.entries[0][1][3])), ("2-0", None))
    )
    assert stream.entries[0][1][3] != b"words"


OWN = (NAMES.ledger, NAMES.history, NAMES.lease, NAMES.checkpoints, NAMES.adapters, NAMES.quarantine("0001_jobs"),
       NAMES.census("0001_jobs"), NAMES.marker("0001_jobs", b"16383"), NAMES.adopted("0001_jobs", b"0"),
       NAMES.beside("aside", "0001_jobs").name(b"ae:queue", lambda _: b"0"), CLAIMS)  # fmt: skip


@pytest.mark.parametrize("key", OWN)
def test_the_ledger_and_the_markers_stay_whole(key):
    line = Line(0, key, "hash", None, [b"phase", b"expanded", b"token", b"words"])
    assert hidden(line) == line


@pytest.mark.parametrize("key", [
    b"ae:job:7", b"ae:", b"ae:ledger", b"ae:{ae}:ledger:7", b"ae:{ae}:session", b"ae:{ae}:quarantine", b"{ae}:ledger",
    b"ae:marker:0001_jobs", b"ae:marker:7:{0}", b"ae:staged:7", b"ae:staged:0001_jobs:{ae:job:7}",
    b"ae:old:0001_jobs:{7", b"migrator:{migrator}:ledger", b"x" + Names("ae").ledger,
])  # fmt: skip
def test_a_namespace_is_no_excuse_for_data_that_begin_with_it(key):
    line = Line(0, key, "hash", None, [b"Authorization", b"Bearer words", b"cookie", b"words"])
    items = hidden(line, families=Families(Names("ae"))).items
    assert (items[::2], items[1].split()[0] == b"Bearer", items[3] == b"words") == (line.items[::2], False, False)


def test_nobody_can_try_out_a_value_by_its_digest_in_the_quarantine():
    one, other = digest([b"words"]), digest([b"others"])
    large = Rejected("too-large: 17", "too-large")
    told = (Rejected("not a number", one), Rejected("not a number", one, one), Rejected("not a number", other), large)
    flat = [item for i, record in enumerate(told) for item in (b"k:%d" % i, encode(record))]
    items = hidden(Line(0, NAMES.quarantine("0001_jobs"), "hash", None, flat)).items
    assert items[::2] == flat[::2]
    first, second, third, last = (decode(item, type=Rejected) for item in items[1::2])
    assert (first.reason, second.accepted, last) == ("not a number", first.digest, large)
    assert first.digest == second.digest != third.digest
    assert {one, other} & {first.digest, third.digest} == set()


def test_a_document_under_a_name_that_is_kept_is_looked_into():
    document = b'{"password":"words","kind":"due","n":[17]}'
    items = hidden(Line(0, b"h", "hash", None, [b"state", document, b"status", b"due", b"type", b'"due"'])).items
    found = json.loads(items[1])
    assert (found["password"] != "words", found["kind"], found["n"]) == (True, "due", [17])
    assert items[3::2] == [b"due", b'"due"']
    assert b"words" not in string(json.dumps({"version": document.decode(), "state": ["due"]}).encode())


def test_members_of_another_type_than_a_migration_names_are_hidden():
    """`seen:{id}` is a hash of names: a set there is somebody else's."""
    assert hidden(Line(0, b"seen:7", "set", None, [b"adalovelace"]), families=MOVES).items != [b"adalovelace"]


def test_an_expiry_of_a_field_stays():
    line = Line(0, b"h", "hash", 5, [b"f", b"words"], 0, {b"f": 4102444800000})
    assert hidden(line)._replace(items=line.items) == line
