"""The client's pages see every key of a pattern on every primary."""

from __future__ import annotations

from migrator.client import connect


def test_pages_of_a_pattern_hold_every_key_of_it_on_every_primary_and_no_other(client):
    names = {b"wanted:%d" % number for number in range(300)}
    for name in (*names, b"other:1"):
        client.raw.set(name, "x")
    pages = list(connect(client.url).pages(b"wanted:*", 20))
    assert len(pages) > 3
    assert {key for page in pages for key in page} == names
