"""Splitting JSON: values keep their bytes, names their last place, and what is no object is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.errors import Unmappable
from migrator.records.split import is_json, read_string, split, write_string


@pytest.mark.parametrize(
    ("text", "properties", "repeated"),
    [
        (b"{}", {}, False),
        (b'{"a":1.0,"b":[],"c":{"x":1e400}}', {"a": b"1.0", "b": b"[]", "c": b'{"x":1e400}'}, False),
        (b' {\n"b" : [ 1 ] , "a":{ }}\n', {"b": b"[ 1 ]", "a": b"{ }"}, False),
        (b'{"a":1,"b":2,"a":3}', {"b": b"2", "a": b"3"}, True),
        (b'{"a":1,"\\u0061":3}', {"a": b"3"}, True),
        (b'{"\\u0061":1}', {"a": b"1"}, False),
        (b'{"a":{"x":1,"x":2}}', {"a": b'{"x":1,"x":2}'}, False),
        (b'{"a": 12345678901234567890}', {"a": b"12345678901234567890"}, False),
    ],
)
def test_values_keep_their_bytes_and_names_their_last_place(text, properties, repeated):
    found, twice = split(text)
    assert (list(found.items()), twice) == (list(properties.items()), repeated)


def test_a_number_of_many_digits_is_no_trouble_where_names_are_looked_at():
    assert split(b'{"a": %s}' % (b"9" * 5_000)) == ({"a": b"9" * 5_000}, False)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "empty value"),
        (b"null", "not a JSON object"),
        (b"[]", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b"7", "not a JSON object"),
        (b"\xef\xbb\xbf{}", "starts with a byte-order mark"),
        (b'{"a":"\xff"}', "not UTF-8"),
        (b'{"a":"\xed\xa0\x80"}', "not UTF-8"),
        (b'{"a":1', "not valid JSON"),
        (b'{"a":1}x', "not valid JSON"),
        (b'{"a":01}', "not valid JSON"),
        (b'{"a":NaN}', "not valid JSON"),
        (b'{"a":[1,]}', "not valid JSON"),
        (b'{"a":"\n"}', "not valid JSON"),
        (b'{"a":["\\ud83dxxxxxx"]}', "not valid JSON"),
        (b"{'a':1}", "not valid JSON"),
        (b'{"a":%s%s}' % (b"[" * 100_000, b"]" * 100_000), "JSON nested too deeply"),
    ],
)
def test_what_is_no_json_object_is_refused(text, reason):
    with pytest.raises(Unmappable) as refusal:
        split(text)
    assert refusal.value.reason == reason


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", 'ä"', ""]) | st.text(), VALUES), max_size=6),
    st.booleans(),
    st.sampled_from([(",", ":"), (", ", ": ")]),
)
def test_a_split_is_what_a_json_parser_sees(pairs, ascii_only, separators):
    def dump(value: object) -> str:
        return json.dumps(value, ensure_ascii=ascii_only, separators=separators)

    comma, colon = separators
    text = "{" + comma.join(dump(name) + colon + dump(value) for name, value in pairs) + "}"
    properties, repeated = split(text.encode())
    last: dict[str, bytes] = {}
    for name, value in pairs:
        last.pop(name, None)
        last[name] = dump(value).encode()
    assert list(properties.items()) == list(last.items())
    assert repeated == (len(last) < len(pairs))


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_are_split_or_refused(text):
    try:
        split(text)
    except Unmappable:
        with pytest.raises((ValueError, AttributeError)):
            json.loads(text.decode()).items()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b'"plain \xc3\xa4"', b"plain \xc3\xa4"),
        (b'"\\u0000\\uD83D\\uDE00\\n"', b"\x00\xf0\x9f\x98\x80\n"),
        (b'""', b""),
    ],
)
def test_a_string_is_read(value, text):
    assert read_string(value) == text


@given(st.text())
def test_a_string_written_and_read_is_the_same(text):
    assert read_string(write_string(text.encode())) == text.encode()


@pytest.mark.parametrize("text", [b"5", b'"5"', b"{}", b"[1, 2]", b"null", b"1e400"])
def test_json_is_told(text):
    assert is_json(text)


@pytest.mark.parametrize("text", [b"", b" 5", b"5 ", b"t-1", b'"\xff"', b"01", b"{", b"[" * 100_000])
def test_other_text_is_told_from_json(text):
    assert not is_json(text)
