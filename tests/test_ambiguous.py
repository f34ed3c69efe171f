"""Templates whose target keys do not lead back to their source: one may be of two records, or somebody's own."""

from __future__ import annotations

import pytest

from migrator.adapters import Members, Records
from migrator.errors import UsageError
from migrator.keys import Keys
from migrator.moves.family import AMBIGUOUS
from tests.support import KEYS, MEMBERS, Shell, modules_of, picture, put, tool_for

FIRST, SECOND, BOTH = b"{t}:cart:ann-b:c", b"{t}:cart:ann:b-c", b"{t}:basket:ann-b-c"
# No probe can tell it from the templates: it depends on the key.
NARROW = {"user": "ann[a-z-]*", "item": "[a-z-]+"}


def carts(source, old, new, narrow=NARROW):
    """A move from `cart:{user}:{item}` to `basket:{user}-{item}`."""
    more = "".join(f', {name}="{pattern}"' for name, pattern in narrow.items())
    source = source.replace(f"{old}:{{id}}", "cart:{user}:{item}").replace(f"{old}:{{name}}", "cart:{user}:{item}")
    source = source.replace(f"{new}:{{id}}", "basket:{user}-{item}").replace(f"{new}:{{name}}", "basket:{user}-{item}")
    for kind in ("string", "hash", "zset"):
        source = source.replace(f'type="{kind}"', f'type="{kind}"{more}')
    return source


CARTS = carts(KEYS, "text", "hash").replace('b"id": key["id"], ', "")
LISTS = carts(MEMBERS, "times", "sorted")


def rejected(tool):
    return [(one.key, one.reason) for one in tool.plan().rejected]


def test_of_two_keys_that_become_one_the_second_is_quarantined(client, tmp_path):
    tool = tool_for(client, tmp_path, CARTS)
    put(client, FIRST, b"first")
    put(client, SECOND, b"second")
    before = picture(client)
    assert rejected(tool) == [(SECOND.decode(), AMBIGUOUS)]
    for _ in range(2):
        tool.apply(through="switch", exit=32)
        assert tool.phase() == "backfilled"
    assert client.raw.hgetall(BOTH) == {b"text": b"first"}
    found = tool.verify()
    assert (found.unreadable, found.differs) == (1, False)

    Shell(client, tool.directory)("quarantine", "accept", "0001", "--all")
    tool.apply(through="contract")
    assert client.raw.hgetall(BOTH) == {b"text": b"first"}
    assert tool.rollback(to="pending") == "pending"
    assert picture(client) == before


def test_of_two_collections_that_become_one_the_second_is_quarantined(client, tmp_path):
    tool = tool_for(client, tmp_path, LISTS)
    put(client, FIRST, {b"a": b"1"})
    put(client, SECOND, {b"z": b"2"})
    assert rejected(tool) == [(SECOND.decode(), AMBIGUOUS)]
    for _ in range(2):
        tool.apply(through="switch", exit=32)
    assert client.raw.zrange(BOTH, 0, -1) == [b"a"]
    found = tool.verify()
    assert (found.unreadable, found.differs) == (1, False)


@pytest.mark.parametrize(("make", "source"), [(Records, CARTS), (Members, LISTS)])
def test_an_adapter_does_not_take_the_key_of_another_record(client, tmp_path, make, source):
    tool = tool_for(client, tmp_path, source)
    put(client, FIRST, b"first" if make is Records else {b"a": b"1"})
    tool.apply(through="switch")
    adapter = make(client.raw, modules_of(tool.directory).all[0])
    get = adapter.get if make is Records else lambda **named: adapter.get(b"a", **named)
    assert get(user="ann-b", item="c") is not None
    with pytest.raises(UsageError, match="does not lead back") as caught:
        get(user="ann", item="b-c")
    assert "narrow" in caught.value.next


def test_a_key_that_a_narrower_target_template_does_not_match_is_nobody_s_copy(client, tmp_path):
    keys = KEYS.replace('type="string"', 'type="string", id="k[a-z0-9]+"')
    tool = tool_for(client, tmp_path, keys.replace('type="hash"', 'type="hash", id="k[0-9]+"'))
    put(client, b"{t}:text:kfoo", b"x")
    put(client, b"{t}:text:k1", b"x")
    put(client, b"{t}:hash:kfoo", {b"mine": b"precious"})
    before = picture(client)
    assert rejected(tool) == [("{t}:text:kfoo", AMBIGUOUS)]
    tool.apply(exit=32)
    assert client.raw.hgetall(b"{t}:hash:kfoo") == {b"mine": b"precious"}
    client.raw.delete(b"{t}:text:kfoo")
    tool.apply()
    put(client, b"{t}:text:kfoo", b"x")
    assert tool.rollback(to="pending") == "pending"
    assert picture(client) == before


def test_a_key_that_is_the_target_of_no_record_is_not_removed_with_the_copies(client, tmp_path):
    """Of `a:b-c` the source is `a-b-c`, whose target is `a-b:c`."""
    keys = KEYS.replace("text:{id}", "text:{a}-{b}").replace("hash:{id}", "hash:{a}:{b}")
    tool = tool_for(client, tmp_path, keys.replace('key["id"]', "key.raw"))
    put(client, b"{t}:text:a-b", b"x")
    tool.apply()
    put(client, b"{t}:hash:a:b-c", {b"mine": b"precious"})
    assert not tool.verify().differs
    assert tool.rollback(to="pending") == "pending"
    assert client.raw.hgetall(b"{t}:hash:a:b-c") == {b"mine": b"precious"}
    assert client.raw.exists(b"{t}:hash:a:b") == 0


@pytest.mark.parametrize(
    ("source", "key"),
    [
        (carts(KEYS, "text", "hash", {}), FIRST),
        (carts(MEMBERS, "times", "sorted", {}), FIRST),
        (KEYS.replace('type="hash"', 'type="hash", id="[0-9]+"'), b"{t}:text:a"),
    ],
)
def test_templates_that_a_probe_shows_to_be_ambiguous_are_refused(client, tmp_path, source, key):
    tool = tool_for(client, tmp_path, source)
    put(client, key, {b"a": b"1"} if "MemberMove" in source else b"x")
    before = picture(client)
    [refused] = tool.plan().refused
    assert (refused.code, refused.text.endswith("does not lead back to it")) == ("ambiguous", True)
    tool.apply(exit=60)
    assert picture(client) == before


@pytest.mark.parametrize(
    ("exact", "source", "target"),
    [
        (True, ("a:{id}", {}), ("b:{id}:x", {})),
        (True, ("a:{id}", {"id": "[0-9]+|x"}), ("b:{id}:x", {"id": "[0-9]+|x"})),
        (True, ("a:{one}:{two}", {}), ("b:{two}:in:{one}", {})),
        (True, ("a", {}), ("b", {})),
        (False, ("a:{id}", {}), ("b:{id}", {"id": "[0-9]+"})),
        (False, ("a:{id}", {"id": r"\bx"}), ("b{id}", {"id": r"\bx"})),
        (False, ("a:{id}", {"id": "(?<=:)x"}), ("b{id}", {"id": "(?<=:)x"})),
        (False, ("a:{id}", {"id": "[a-z:]++"}), ("b:{id}:x", {"id": "[a-z:]++"})),
        (False, ("a:{one}:{two}", {}), ("b:{one}-{two}", {})),
        (False, ("a:{one}:{two}", {}), ("b:{one}{two}", {})),
        (False, ("a:{one}:{two}", {}), ("b:{one}:{two}", {"one": "[0-9]+"})),
    ],
)
def test_templates_that_cannot_be_ambiguous_are_known_as_such(exact, source, target):
    old, new = (Keys(template, type="string", **patterns) for template, patterns in (source, target))
    assert new.reads_back(old) is exact
