"""What is packed by hand goes over the wire as hiredis packs it."""

from __future__ import annotations

from hiredis import pack_command
from hypothesis import given
from hypothesis import strategies as st

from migrator.client.wire import pack, pack_each, pack_pairs

WORDS = st.binary(max_size=40)


def _packed(*words: str | bytes | int) -> bytes:
    packed: bytes = pack_command(words)  # type: ignore[arg-type] # its stub is for one type
    return packed


@given(WORDS, st.dictionaries(WORDS, WORDS, min_size=1, max_size=30))
def test_names_and_values(key, pairs):
    flat = [word for pair in pairs.items() for word in pair]
    assert pack_pairs(b"HSET", key, pairs) == _packed("HSET", key, *flat)


def test_values_and_names_of_any_length():
    pairs = {b"n" * length: b"v" * length for length in (0, 9, 10, 999, 1000, 9_999, 10_000, 100_000)}
    flat = [word for pair in pairs.items() for word in pair]
    for _ in range(2):  # as they are met first, and again
        assert pack_pairs(b"HSET", b"key", pairs) == _packed("HSET", b"key", *flat)


@given(st.lists(WORDS), st.lists(st.one_of(WORDS, st.integers()), max_size=3))
def test_one_command_for_many_keys(keys, rest):
    assert pack_each("GETRANGE", keys, *rest) == [_packed("GETRANGE", key, *rest) for key in keys]
    assert pack_each("MEMORY USAGE", keys, *rest) == [_packed("MEMORY", "USAGE", key, *rest) for key in keys]


def test_what_is_packed_already_stays_as_it_is():
    assert pack([("GET", b"a"), _packed("GET", b"b")]) == pack([("GET", b"a"), ("GET", b"b")])
