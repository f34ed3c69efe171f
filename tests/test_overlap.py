"""The quick ways of the backfill, where they are not open or are cut off: whatever they leave is compared."""

from __future__ import annotations

import pytest

from migrator.client import Lanes
from migrator.engine.overlap import ability
from migrator.engine.windows import CHUNK
from tests.between import before_a_batch, before_a_chunk
from tests.servers import Place, Server, binary
from tests.support import KEYS, MEMBERS, put, tool_for

NUMBER = 350  # more than the batches that are under way at a time
NO_MULTI = "user default on nopass ~* &* +@all -multi"


def test_without_multi_no_transaction_is_begun(tmp_path, monkeypatch):
    """What is sent after a MULTI that was refused is carried out at once, and watches nothing."""
    held = before_a_batch(monkeypatch, lambda _: None, quick=True)
    with Server(binary(), acl=NO_MULTI) as server, server.client() as raw:
        place = Place(server.url, "server", raw, server)
        put(place, b"{t}:text:1", b"one")
        assert tool_for(place, tmp_path, KEYS).apply(through="verify").migrations[0].tally.moved == 1
        assert raw.hget("{t}:hash:1", "text") == b"one"
    assert held == []


def cut(place):
    """Every connection of the tool is closed by the server."""
    return lambda _: place.raw.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def test_keys_are_copied_to_the_last_though_the_connections_are_cut(server, tmp_path, monkeypatch):
    for number in range(NUMBER):
        put(server, b"{t}:text:%d" % number, b"%d" % number)
    tool = tool_for(server, tmp_path, KEYS)
    tool.apply(through="expand")
    held = before_a_batch(monkeypatch, cut(server), quick=True)
    tally = tool.apply(through="backfill").migrations[0].tally
    assert len(held) == 1
    assert tally.scanned == tally.moved + tally.unchanged == NUMBER
    assert all(server.raw.hget(b"{t}:hash:%d" % n, "text") == b"%d" % n for n in range(NUMBER))


@pytest.mark.parametrize("many", [1, 20], ids=["one collection", "twenty"])
def test_members_are_copied_to_the_last_though_the_connection_is_cut(server, tmp_path, monkeypatch, many):
    for number in range(many):
        put(server, b"{t}:times:%d" % number, {b"m%d" % n: b"%d" % n for n in range(NUMBER)})
    tool = tool_for(server, tmp_path, MEMBERS)
    tool.apply(through="expand")
    held = before_a_chunk(monkeypatch, cut(server), quick=True)
    tally = tool.apply(through="backfill").migrations[0].tally
    assert held
    assert tally.scanned == tally.moved + tally.unchanged >= NUMBER * many
    for number in range(many):
        found = dict(server.raw.zrange(b"{t}:sorted:%d" % number, 0, -1, withscores=True))
        assert found == {b"m%d" % n: float(n) for n in range(NUMBER)}


def test_members_of_a_server_without_multi_are_compared(tmp_path, monkeypatch):
    held = before_a_chunk(monkeypatch, lambda _: None, quick=True)
    with Server(binary(), acl=NO_MULTI) as server, server.client() as raw:
        place = Place(server.url, "server", raw, server)
        put(place, b"{t}:times:1", {b"a": b"1"})
        assert tool_for(place, tmp_path, MEMBERS).apply(through="verify").migrations[0].tally.moved == 1
        assert raw.zscore("{t}:sorted:1", "a") == 1.0
    assert held == []


def test_what_an_adapter_deletes_while_a_window_waits_is_not_added_by_its_last_chunk_either(
    server, tmp_path, monkeypatch
):
    """Lanes that watch the marker since before are aborted; those that watch it since after know by the count."""
    put(server, b"{t}:times:1", {b"m%d" % n: b"%d" % n for n in range(6 * CHUNK)})
    tool = tool_for(server, tmp_path, MEMBERS)
    tool.apply(through="expand")
    (marker,) = server.raw.keys("migrator:marker:*")
    last = b"m%d" % (6 * CHUNK - 1)  # sorted, it is added last

    def delete(_):
        server.raw.hdel(b"{t}:times:1", last)
        server.raw.hincrby(marker, "deletes", 1)

    held = before_a_chunk(monkeypatch, delete, quick=True)
    tool.apply(through="backfill")
    assert held
    assert server.raw.zcard(b"{t}:sorted:1") == 6 * CHUNK - 1


def test_a_collection_that_is_gone_when_its_window_is_added_leaves_no_copy(server, tmp_path, monkeypatch):
    put(server, b"{t}:times:1", {b"m%d" % n: b"%d" % n for n in range(NUMBER)})
    tool = tool_for(server, tmp_path, MEMBERS)
    tool.apply(through="expand")
    # Nobody counted it: it expired, or somebody without an adapter did it.
    held = before_a_chunk(monkeypatch, server.raw.delete, quick=True)
    tool.apply(through="backfill")
    assert held
    assert not server.raw.exists(b"{t}:sorted:1")


def test_a_connection_that_watches_something_may_transact_again(server, tmp_path):
    client = tool_for(server, tmp_path, KEYS).session().client
    (node,) = client.nodes()
    with Lanes(node, 1) as lanes:
        lanes.ask(("WATCH", "watched"))
    server.raw.set("watched", "written")
    with Lanes(node, 1) as lanes:
        assert ability(lanes, b"any") == (True, True)
