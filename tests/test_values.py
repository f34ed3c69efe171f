"""Lifetimes, encodings and names of every kind go there and back as they were."""

from __future__ import annotations

import time
from collections import UserDict

import pytest

from migrator.engine import dump
from migrator.models import show, unshow
from migrator.moves.values import check_value, to_items
from tests.servers import Place, find_servers
from tests.support import (
    KEYS,
    MEMBERS,
    SAME_NAME,
    Shell,
    all_keys,
    expires,
    own_keys,
    picture,
    put,
    seen,
    tool_for,
)

TEXT, HASH = b"{t}:text:a", b"{t}:hash:a"

# Key moves of every kind; the new shape of each is trivially the old one's.
KIND_MOVES = {
    "string to list": ('"string"', '"list"', "value.split()", "b' '.join(value)", b"a b a"),
    "list to set": ('"list"', '"set"', "set(value)", "sorted(value)", [b"a", b"b"]),
    "hash to string": ('"hash"', '"string"', "value[b'v']", "{b'v': value}", {b"v": b"1"}),
    "zset to hash": ('"zset"', '"hash"', "{n: b'%r' % s for n, s in value.items()}",
                     "{n: float(s) for n, s in value.items()}", {b"a": 1.5, b"b": 2.0}),
    "set to zset": ('"set"', '"zset"', "{n: float(len(n)) for n in value}", "set(value)", {b"a", b"bb"}),
    "zset to list": ('"zset"', '"list"', "[w for n, s in sorted(value.items()) for w in (n, b'%r' % s)]",
                     "dict(zip(value[::2], map(float, value[1::2])))", {b"a": 1.5, b"b": 2.0}),
}  # fmt: skip
MOVE = """
from migrator import KeyMove, Keys, Migration
migration = Migration(KeyMove(
    source=Keys("{{{{t}}}}:old:{{id}}", type={0}), target=Keys("{{{{t}}}}:{5}:{{id}}", type={1}),
    forward=lambda key, value: {2}, inverse=lambda key, value: {3},
))
"""


class Text(bytes):
    """As good as bytes."""


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ({}, ""),
        ({b"a": b"1"}, ""),
        ({Text(b"a"): Text(b"1"), b"b": b"2"}, ""),
        (UserDict({b"a": b"1"}), "not a dict with names of bytes"),
        ([b"a"], "not a dict with names of bytes"),
        ({"a": b"1"}, "not a dict with names of bytes"),
        ({b"a": b"1", b"b": "2"}, "a value that is not bytes"),
        ({b"a": b"1", b"b": None}, "a value that is not bytes"),
        ({b"a": bytearray(b"1")}, "a value that is not bytes"),
    ],
)
def test_what_is_no_hash_is_told(value, fault):
    assert check_value("hash", value) == fault


def test_items_are_flat_and_keep_their_order():
    assert to_items("hash", {b"b": b"1", b"a": b"2"}) == [b"b", b"1", b"a", b"2"]
    assert to_items("zset", {b"b": 1.0, b"a": 2.5}) == [b"b", b"1", b"a", b"2.5"]
    assert to_items("hash", {}) == []


@pytest.mark.parametrize("target", ["old", "new"], ids=["same name", "other name"])
@pytest.mark.parametrize("kinds", KIND_MOVES.values(), ids=KIND_MOVES)
def test_a_key_of_every_kind_goes_there_and_back_with_its_expiry(client, tmp_path, kinds, target):
    tool = tool_for(client, tmp_path, MOVE.format(*kinds, target))
    put(client, b"{t}:old:a", kinds[4], px=600_000)
    put(client, b"{t}:old:b", kinds[4])
    before = picture(client)
    tool.apply(through="contract")
    after = picture(client)
    assert {one.type for one in after.values()} == {kinds[1].strip('"')}
    assert {one.expires for one in after.values()} == {one.expires for one in before.values()}
    assert tool.rollback(to="pending") == "pending"
    assert picture(client) == before


MEMBER_MOVE = MOVE.replace("KeyMove", "MemberMove").replace("lambda key, value", "lambda key, name, value")
MEMBER_KINDS = {
    "set to hash": ('"set"', '"hash"', "(name, b'')", "(name, None)", {b"a", b"b"}),
    "zset to set": ('"zset"', '"set"', "(b'%s %r' % (name, value), None)",
                    "(name.split()[0], float(name.split()[1]))", {b"a": 1.5, b"b": 2.0}),
    "hash to zset": ('"hash"', '"zset"', "(name, float(value))", "(name, b'%d' % value)", {b"a": b"1", b"b": b"2"}),
    "zset to hash": ('"zset"', '"hash"', "(name, b'%r' % value)", "(name, float(value))", {b"a": 1.5, b"b": 2.0}),
}  # fmt: skip


@pytest.mark.parametrize("kinds", MEMBER_KINDS.values(), ids=MEMBER_KINDS)
def test_members_of_every_kind_go_there_and_back_with_the_expiry(client, tmp_path, kinds):
    tool = tool_for(client, tmp_path, MEMBER_MOVE.format(*kinds, "new"))
    put(client, b"{t}:old:a", kinds[4], px=600_000)
    before = picture(client)
    tool.apply(through="contract")
    [after] = picture(client).values()
    assert (after.type, after.expires) == (kinds[1].strip('"'), before[b"{t}:old:a"].expires)
    assert tool.rollback(to="pending") == "pending"
    assert picture(client) == before


WHOLE_SCORES = {
    "members": MEMBER_MOVE.format('"hash"', '"zset"', "(name, int(value))", "(name, b'%d' % value)", None, "new"),
    "keys": MOVE.format('"hash"', '"zset"', "{n: int(v) for n, v in value.items()}", "{b'a': b'1'}", None, "new"),
}


@pytest.mark.parametrize("source", WHOLE_SCORES.values(), ids=WHOLE_SCORES)
def test_a_whole_number_is_the_score_that_redis_makes_of_it_or_is_told(client, tmp_path, source):
    tool = tool_for(client, tmp_path, source)
    put(client, b"{t}:old:a", {b"a": b"%d" % (2**53 + 1)})
    put(client, b"{t}:old:huge", {b"a": b"1" + b"0" * 309})
    tool.apply(exit=32)
    [record] = Shell(client, tool.directory)("quarantine", "list", "0001")["records"]
    reason = "the mapping returned a score that is too large for a zset"
    assert (record["key"], record["reason"]) == ("{t}:old:huge", reason)
    assert client.raw.zscore(b"{t}:new:a", "a") == 2.0**53
    found = tool.verify()
    assert (found.different, found.unreadable) == (0, 1)


def test_a_record_that_maps_to_nothing_is_gone_after_contract_and_back_after_the_rollback(client, tmp_path):
    tool = tool_for(client, tmp_path, MOVE.format(*KIND_MOVES["string to list"], "new"))
    put(client, b"{t}:old:empty", b" ")
    put(client, b"{t}:old:full", b"a b")
    before = picture(client)
    tool.apply(through="contract")
    assert set(picture(client)) == {b"{t}:new:full"}
    assert own_keys(client) == set()
    assert tool.rollback(to="pending") == "pending"
    assert picture(client) == before


# Lifetimes.


@pytest.mark.parametrize("source", [KEYS, SAME_NAME, MEMBERS], ids=["keys", "same name", "members"])
def test_a_key_with_little_life_left_dies_in_both_shapes(client, tmp_path, source):
    tool = tool_for(client, tmp_path, source)
    for number in range(20):
        if source == MEMBERS:
            put(client, b"{t}:times:%d" % number, {b"a": b"1"}, px=20 + 20 * number)
        else:
            put(client, b"{t}:text:%d" % number, b"text", px=20 + 20 * number)
    tool.apply(through="backfill")
    assert -1 not in {expires(client, key) for key in all_keys(client) if b"{t}:" in key}
    tool.apply(through="contract")
    time.sleep(0.5)
    assert picture(client) == {}
    assert tool.rollback() == "switched"
    assert picture(client) == {}
    assert own_keys(client) == set()
    tool.restore()
    assert picture(client) == {}


def test_a_record_that_dies_between_two_reads_of_the_backup_is_not_made_immortal(client, tmp_path):
    tool = tool_for(client, tmp_path, KEYS)
    put(client, TEXT, b"text", px=600_000)

    class Reads:
        """A client between whose reads the record dies."""

        def each(self, *words):
            replies = tool.client.each(*words)
            client.raw.execute_command("DEL", TEXT)
            return replies

        def __getattr__(self, name):
            return getattr(tool.client, name)

    assert dump.bounded(Reads(), 0, "string", [(TEXT, TEXT)]) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["valkey9", "redis8"])
def test_a_field_with_a_ttl_is_quarantined_never_dropped_unsaid(servers, tmp_path, name):
    if find_servers()[name].path is None:
        pytest.skip(f"no {name}")
    behind = servers.single(name)
    with behind.client() as raw:
        place = Place(behind.url, name, raw, behind)
        members = tool_for(place, tmp_path, MEMBERS)
        put(place, b"{t}:times:a", {b"mortal": b"1", b"other": b"2"})
        raw.execute_command("HPEXPIRE", b"{t}:times:a", 600_000, "FIELDS", 1, "mortal")
        members.apply(exit=32)
        assert raw.zrange(b"{t}:sorted:a", 0, -1) == [b"other"]
        shell = Shell(place, members.directory)
        [record] = shell("quarantine", "list", "0001")["records"]
        assert (record["member"], record["reason"].split(":")[0]) == ("mortal", "field-ttl")
        assert shell("verify", "0001", exit=32)["unreadable"] == 1
        raw.execute_command("HPERSIST", b"{t}:times:a", "FIELDS", 1, "mortal")
        assert shell("quarantine", "retry", "0001")["records"] == []
        members.apply()

        keys = tool_for(place, tmp_path / "keys", MOVE.format(*KIND_MOVES["hash to string"], "new"))
        keys.namespace = "other"
        put(place, b"{t}:old:a", {b"v": b"1"})
        raw.execute_command("HPEXPIRE", b"{t}:old:a", 600_000, "FIELDS", 1, "v")
        keys.apply(exit=32)
        assert raw.exists(b"{t}:new:a") == 0


def test_a_field_that_gets_a_ttl_after_it_was_copied_keeps_contract_from_dropping_it(servers, tmp_path):
    behind = servers.single("valkey9")
    with behind.client() as raw:
        place = Place(behind.url, "server", raw, behind)
        tool = tool_for(place, tmp_path, MEMBERS)
        put(place, b"{t}:times:a", {b"mortal": b"1", b"other": b"2"})
        tool.apply(through="switch")
        raw.execute_command("HPEXPIRE", b"{t}:times:a", 600_000, "FIELDS", 1, "mortal")
        tool.apply(through="contract", exit=32)
        raw.execute_command("HPERSIST", b"{t}:times:a", "FIELDS", 1, "mortal")
        tool.apply(through="contract")


# Names and sizes.

NAMES = [
    b"\xac\xed\x00\x05",
    b"nul\x00nul",
    b"line\nline",
    b"\x1b[31m",
    b"back\\slash",
    b"\\x41",
    b"}{",
    b"\xc3\xa9",
    b" ",
]


def test_any_bytes_are_a_name_that_prints_escaped_and_parses_back(client, tmp_path):
    tool = tool_for(client, tmp_path, KEYS)
    for name in NAMES:
        put(client, b"{t}:text:" + name, b"bad")
    put(client, b"{t}:text:good\xff", b"good")
    before = picture(client)
    tool.apply(exit=32)
    shell = Shell(client, tool.directory)
    listed = shell("quarantine", "list", "0001")["records"]
    assert {unshow(record["key"]) for record in listed} == {b"{t}:text:" + name for name in NAMES}
    assert all(record["key"].isprintable() for record in listed)
    table = shell.text("quarantine", "list", "0001")
    assert table.replace("\n", "").isprintable()
    for record in listed[1:]:
        shell("quarantine", "accept", "0001", record["key"])
    shell("quarantine", "accept", "0001", "--reason", "a bad one")
    tool.apply(through="contract")
    assert set(picture(client)) == {b"{t}:hash:good\xff"}
    assert tool.rollback(to="pending") == "pending"
    assert picture(client) == before


def test_escaped_names_parse_back():
    for name in NAMES:
        assert unshow(show(name)) == name


@pytest.mark.parametrize("source", [SAME_NAME, MEMBERS], ids=["keys", "members"])
def test_binary_names_and_members_survive_a_life(client, tmp_path, source):
    tool = tool_for(client, tmp_path, source)
    for name in NAMES:
        if source == MEMBERS:
            put(client, b"{t}:times:" + name, dict.fromkeys(NAMES, b"7"))
        else:
            put(client, b"{t}:text:" + name, name)
    before = picture(client)
    tool.apply(through="contract")
    assert len(picture(client)) == len(NAMES)
    assert tool.rollback(to="pending") == "pending"
    assert picture(client) == before


def test_one_match_among_a_hundred_thousand_strangers_is_found(server, tmp_path):
    tool = tool_for(server, tmp_path, KEYS)
    server.raw.execute_command("EVAL", "for i = 1, 100000 do redis.call('SET', 'x:' .. i, '') end", 0)
    put(server, TEXT, b"text")
    planned = tool.plan()
    assert (planned.counts.estimate, planned.counts.low, planned.counts.high) == (1, 1, 1)
    tool.apply()
    assert server.raw.hgetall(HASH) == {b"id": b"a", b"text": b"text"}


@pytest.mark.parametrize("size", [1, 127, 128, 129, 512, 513, 1100])
def test_a_hash_of_any_encoding_goes_there_and_back(client, tmp_path, size):
    tool = tool_for(client, tmp_path, MEMBERS)
    put(client, b"{t}:times:a", {b"field-%d" % n: b"%d" % n for n in range(size)}, px=600_000)
    before = seen(client, b"{t}:times:a")
    result = tool.apply(through="contract")
    tally = result.migrations[0].tally
    assert tally.scanned == size == tally.moved + tally.unchanged
    assert client.raw.execute_command("ZCARD", b"{t}:sorted:a") == size
    assert tool.rollback(to="pending") == "pending"
    after = seen(client, b"{t}:times:a")
    assert (after.type, after.expires) == (before.type, before.expires)
    assert dict(client.raw.execute_command("HGETALL", b"{t}:times:a")) == {
        b"field-%d" % n: b"%d" % n for n in range(size)
    }
