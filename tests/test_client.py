"""The client's pages see every key of a pattern on every primary."""

from __future__ import annotations

import redis

from migrator.client import ResponseError, connect, wire
from migrator.client import client as client_module


def test_pages_of_a_pattern_hold_every_key_of_it_on_every_primary_and_no_other(client):
    names = {b"wanted:%d" % number for number in range(300)}
    for name in (*names, b"other:1"):
        client.raw.set(name, "x")
    pages = list(connect(client.url).pages(b"wanted:*", 20))
    assert len(pages) > 3
    assert {key for page in pages for key in page} == names


def test_one_command_for_each_key_is_answered_in_order_on_every_primary(client):
    keys = [b"key:%d" % number for number in range(50)]
    for key in keys[::2]:
        client.raw.set(key, b"of " + key)
    client.raw.rpush(keys[7], "a list")
    tool = connect(client.url)
    *replies, last = tool.each("GET", [key for key in keys if key != keys[7]] + [keys[7]])
    assert replies == [b"of " + key if n % 2 == 0 else None for n, key in enumerate(keys) if n != 7]
    assert isinstance(last, ResponseError)
    assert str(last).startswith("WRONGTYPE")
    assert {type(size) for size in tool.each("MEMORY USAGE", keys[::2], "SAMPLES", 5)} == {int}
    assert tool.each("GET", []) == []


def test_what_was_asked_for_each_key_is_asked_again_on_another_connection(server, monkeypatch):
    server.raw.set("key", "value")
    tool, lost = connect(server.url), list[object]()

    def exchange(node, commands, **how):
        replies = wire.exchange(node, commands, **how)
        if not lost:
            lost.append(replies)
            raise redis.ConnectionError("the reply was lost")
        return replies

    monkeypatch.setattr(client_module, "exchange", exchange)
    assert tool.each("GET", [b"key"]) == [b"value"]
    assert lost == [[b"value"]]
