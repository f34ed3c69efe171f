"""The whole life of a migration: there, back, there again, contracted, and back once more; nothing is ever lost."""

from __future__ import annotations

import pytest

from migrator.snapshot.backup import lines
from tests.support import MEMBERS, Tool, guid, job, own_keys, picture, put, seen, shipped, shipped_tool, tool_for

TICKS = 638960564401234567  # no double is this number: the exact digits are only in the hash


def key_of(place, number):
    return (b"{ae}:job:" if place.kind == "cluster" else b"ae:job:") + guid(number).encode()


def times(place, name):
    return (b"{map}:" if place.kind == "cluster" else b"map:") + name + b":__meta:timestamps"


def fill(place):
    """Both families, in every state that has its own way: with and without a TTL, small and big."""
    for number in range(30):
        px = 3_600_000 + number if number % 3 == 0 else None
        put(place, key_of(place, number), job(guid(number), retryCount=number), px=px)
    put(place, key_of(place, 99), job(guid(99), payload="x" * 70_000))
    for name in (b"products", b"sessions"):
        fields = {b'"k-%d"' % n: b"%d" % (TICKS + 131 * n) for n in range(20)}
        put(place, times(place, name), fields, px=7_200_000 if name == b"sessions" else None)
    put(place, times(place, b"big"), {b"%d" % n: b"%d" % (TICKS + n) for n in range(700)})


@pytest.fixture
def tool(client, tmp_path):
    fill(client)
    return shipped_tool(client, tmp_path)


def test_a_life_there_and_back_and_there_leaves_the_old_shape_byte_for_byte(tool, client):
    before = picture(client)

    assert [one.counts.estimate for one in map(tool.plan, ("0001", "0002"))] == [31, 740]
    assert picture(client) == before
    tool.apply()
    assert {key: seen(client, key) for key in before} == before
    again = tool.apply()
    assert [one.tally.scanned for one in again.migrations] == [31, 740]
    assert [one.next for one in again.migrations] == [
        "migrator apply 0001 --through switch", "migrator apply 0002 --through switch"
    ]  # fmt: skip

    assert (tool.rollback("0001"), tool.rollback("0002")) == ("pending", "pending")
    assert picture(client) == before
    assert own_keys(client) == set()

    tool.apply("0001", "0002", through="contract")
    after = picture(client)
    assert {seen.type for seen in after.values()} == {"hash", "zset"}
    assert len(after) == len(before)
    assert own_keys(client) == set()

    assert (tool.rollback("0001"), tool.rollback("0002")) == ("switched", "switched")
    assert {key: seen(client, key) for key in before} == before

    assert (tool.rollback("0001", "pending"), tool.rollback("0002", "pending")) == ("pending", "pending")
    assert picture(client) == before
    assert own_keys(client) == set()


def test_an_apply_that_has_come_as_far_changes_no_key(tool, client):
    tool.apply(through="contract")
    before = picture(client)
    tool.apply(through="contract")
    tool.apply(through="switch")
    tool.apply()
    assert picture(client) == before


def test_restore_puts_the_backup_back_as_it_was_and_saves_what_it_discards(tool, client):
    before = picture(client)
    tool.apply(through="contract")
    late, late_times = key_of(client, 500), times(client, b"late") + b"-sorted"
    put(client, late, {b"Id": guid(500).encode(), b"Status": b"100", b"CreatedAt": b"2025-10-02T06:15:30.0000000Z"})
    put(client, late_times, {b"1": float(TICKS)})
    client.raw.execute_command("DEL", key_of(client, 1))
    client.raw.execute_command("ZREM", times(client, b"products") + b"-sorted", b'"k-1"')

    assert (tool.restore("0001"), tool.restore("0002")) == ("pending", "pending")

    assert picture(client) == before
    assert own_keys(client) == set()
    discarded = [line.key for path in tool.backup.glob("discarded-5/*") for line in lines(path)]
    assert len(discarded) == len(set(discarded)) == len(before) + 1 - 1 + 1
    assert {late, late_times} < set(discarded)


def test_a_migration_that_was_restored_can_be_applied_again(tool, client):
    tool.apply(through="contract")
    contracted = picture(client)
    tool.restore("0001")
    tool.apply("0001", through="contract")
    assert picture(client) == contracted


def test_writes_after_contract_are_in_the_old_shape_after_the_rollback(tool, client):
    before = picture(client)
    tool.apply(through="contract")
    ask = client.raw.execute_command
    names = {n: key_of(client, n) for n in (1, 2, 3, 4, 600)}
    ask("HSET", names[1], "Status", "500")  # changed
    ask("DEL", names[2])  # deleted
    ask("PERSIST", names[3])  # an expiry taken away
    ask("PEXPIRE", names[4], 9_000_000)  # an expiry given
    created = dict(ask("HGETALL", key_of(client, 5))) | {b"Id": guid(600).encode()}
    put(client, names[600], created, px=5_000_000)
    zset = times(client, b"products") + b"-sorted"
    ask("ZADD", zset, TICKS + 10**9, b'"k-1"', TICKS, b'"new"')
    ask("ZREM", zset, b'"k-2"')
    ask("DEL", times(client, b"sessions") + b"-sorted")
    put(client, times(client, b"late") + b"-sorted", {b"1": float(TICKS)}, px=4_000_000)

    assert (tool.rollback("0001"), tool.rollback("0002")) == ("switched", "switched")
    assert tool.rollback("0001", "pending") == tool.rollback("0002", "pending") == "pending"

    after = picture(client)
    assert b'"status":500' in ask("GET", names[1])
    assert names[2] not in after
    assert (after[names[3]].expires, after[names[3]].content) == (-1, before[names[3]].content)
    assert ask("PTTL", names[4]) > 8_900_000
    assert guid(600).encode() in ask("GET", names[600])
    assert 4_900_000 < ask("PTTL", names[600]) <= 5_000_000
    products = dict(ask("HGETALL", times(client, b"products")))
    assert products[b'"k-0"'] == b"%d" % TICKS
    assert abs(int(products[b'"k-1"']) - TICKS - 10**9) <= 64
    assert abs(int(products[b'"new"']) - TICKS) <= 64
    assert b'"k-2"' not in products
    assert times(client, b"sessions") not in after
    assert 3_900_000 < ask("PTTL", times(client, b"late")) <= 4_000_000
    rest = {key: value for key, value in before.items() if b":job:" in key and key not in names.values()}
    assert {key: after[key] for key in rest} == rest


def test_on_a_cluster_the_shipped_migrations_hold_for_keys_in_every_slot(cluster, tmp_path):
    # Untagged: 16,384 markers a migration.
    for number in range(9):
        put(cluster, b"ae:job:" + guid(number).encode(), job(guid(number)))
    put(cluster, b"map:{products}:__meta:timestamps", {b"1": b"%d" % TICKS})
    before = picture(cluster)
    tool = Tool(cluster, shipped(tmp_path / "migrations"), tmp_path / "backup")
    tool.apply("0001", through="contract")
    assert {one.type for key, one in picture(cluster).items() if b"job" in key} == {"hash"}
    assert len(tool.states("0001")) == 1
    assert tool.rollback("0001") == "switched"
    assert {key: seen(cluster, key) for key in before} == before


def test_a_life_on_every_server(every_server, tmp_path):
    fill(every_server)
    before = picture(every_server)
    tool = shipped_tool(every_server, tmp_path)
    tool.apply(through="contract")
    assert len(picture(every_server)) == len(before)
    assert (tool.rollback("0001", "pending"), tool.rollback("0002", "pending")) == ("pending", "pending")
    assert picture(every_server) == before


def test_a_template_that_captures_nothing_is_one_key_in_both_shapes(client, tmp_path):
    put(client, b"{t}:times", {b"a": b"1", b"b": b"2"})
    tool = tool_for(client, tmp_path, MEMBERS.replace(":times:{name}", ":times").replace(":sorted:{name}", ":sorted"))
    assert tool.apply(through="backfill").migrations[0].tally.moved == 2
    client.raw.zadd(b"{t}:sorted", {b"extra": 1.0})
    assert (tool.verify().compared, tool.verify().extra) == (3, 1)
    client.raw.zrem(b"{t}:sorted", b"extra")
    tool.apply(through="verify")
    tool.rollback(to="pending")
    assert not client.raw.exists(b"{t}:sorted")
    assert client.raw.hgetall(b"{t}:times") == {b"a": b"1", b"b": b"2"}
