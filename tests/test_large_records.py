"""Records that are too large for one script, or have grown so since they were compared: none is lost silently."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from migrator.client import connect
from migrator.engine import alike, compare_keys, copy, dump, forward, judge, rebuild, restore, sweep, transactions
from migrator.engine import batches as weighed
from migrator.engine import put as engine_put
from migrator.engine.batches import MAX_BYTES
from migrator.engine.copy import BATCH_ITEMS, TOO_LARGE, write_keys
from migrator.engine.judge import judge_keys
from migrator.engine.transactions import Transactions
from migrator.moves.values import MAX_ELEMENTS
from migrator.phases import markers
from migrator.snapshot import backup
from tests.records import saved
from tests.servers import Place
from tests.support import KEYS, SAME_NAME, Crash, Shell, Tool, crashing, own_keys, picture, put, tool_for

TEXT = b"{t}:text:a"
LINES = """
from migrator import KeyMove, Keys, Migration

migration = Migration(KeyMove(
    source=Keys("{{t}}:text:{id}", type="string"),
    target=Keys("{{t}}:set:{id}", type="set"),
    forward=lambda key, text: set(text.split()),
    inverse=lambda key, words: b" ".join(sorted(words)),
))
"""
HASHES = """
from migrator import KeyMove, Keys, Migration

migration = Migration(KeyMove(
    source=Keys("{{t}}:old:{id}", type="KIND"),
    target=Keys("{{t}}:new:{id}", type="string"),
    forward=lambda key, value: b"%d" % len(value),
))
"""
VALUES = {
    "hash": lambda size: {b"f%d" % n: b"v" for n in range(size)},
    "list": lambda size: [b"v"] * size,
    "set": lambda size: {b"m%d" % n for n in range(size)},
    "zset": lambda size: {b"m%d" % n: 1.0 for n in range(size)},
}


def batched(items: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    """What is too large, made small: so many bytes."""
    monkeypatch.setattr(weighed, "MAX_BYTES", 5000)
    return 5000


# Too many elements.


def test_a_record_that_becomes_200_000_elements_is_quarantined_with_the_reason_and_the_others_are_not(client, tmp_path):
    tool = tool_for(client, tmp_path, LINES)
    put(client, TEXT, b" ".join(b"%d" % n for n in range(200_000)))
    put(client, b"{t}:text:b", b"one two")
    [rejected] = tool.plan().rejected
    assert rejected.reason == f"too-large: the mapping makes more than {MAX_ELEMENTS:,} elements of one key"
    tool.apply(exit=32)
    tool.apply(exit=32)
    assert tool.phase() == "backfilled"
    listed = Shell(client, tool.directory)("quarantine", "list", "0001")["records"]
    assert [(one["key"], one["reason"]) for one in listed] == [("{t}:text:a", rejected.reason)]
    assert client.raw.exists(b"{t}:set:a") == 0
    assert client.raw.smembers(b"{t}:set:b") == {b"one", b"two"}


@pytest.mark.parametrize("kind", VALUES)
def test_a_collection_of_too_many_elements_is_never_read_whole(place, tmp_path, kind):
    tool = tool_for(place, tmp_path, HASHES.replace("KIND", kind))
    value = VALUES[kind](MAX_ELEMENTS + 1)
    for names in batched(value, 5000):
        sorts = {"hash": dict.fromkeys(names, b"v"), "zset": dict.fromkeys(names, 1.0), "set": set(names)}
        put(place, b"{t}:old:large", sorts.get(kind, names))
    put(place, b"{t}:old:small", VALUES[kind](3))
    assert [(one.key, one.reason) for one in tool.plan().rejected] == [("{t}:old:large", TOO_LARGE)]
    tool.apply(exit=32)
    listed = Shell(place, tool.directory)("quarantine", "list", "0001")["records"]
    assert [(one["key"], one["reason"]) for one in listed] == [("{t}:old:large", TOO_LARGE)]
    assert place.raw.get(b"{t}:new:small") == b"3"


def test_records_of_many_elements_each_are_written_in_calls_of_so_many(server, tmp_path, monkeypatch):
    tool = tool_for(server, tmp_path, LINES)
    for number in range(30):
        put(server, b"{t}:text:%d" % number, b" ".join(b"%d" % n for n in range(200)))
    monkeypatch.setattr(copy, "BATCH_ITEMS", 1000)
    calls: list[int] = []
    whole = markers.refusal

    def counted(reply, id):
        calls.append(len(reply))
        return whole(reply, id)

    tool.apply(through="expand")
    monkeypatch.setattr(copy, "refusal", counted)
    with tool.run() as run:
        family = run.families[0]
        pairs = [pair for n in range(30) if (pair := family.from_old(b"{t}:text:%d" % n)) is not None]
        assert copy.copy_keys(run, family, copy.FORWARD, pairs) == {"scanned": 30, "moved": 30}
    assert calls == [4] * 7 + [2]
    assert write_keys(run, family, copy.FORWARD, []) == []


def many_lines(place: Place, tmp_path: Path) -> Tool:
    """30 short strings, of each of which the mapping makes 2,000 elements."""
    for number in range(30):
        put(place, b"{t}:text:%d" % number, b" ".join(b"%d" % n for n in range(2000)))
    return tool_for(place, tmp_path, LINES)


def test_a_transaction_writes_no_more_than_so_many_elements_and_the_rest_goes_the_other_way(
    server, tmp_path, monkeypatch
):
    tool = many_lines(server, tmp_path)
    written: list[int] = []
    done = Transactions._done

    def counted(self, ready, answer):
        written.append(sum(answer))
        return done(self, ready, answer)

    monkeypatch.setattr(transactions, "BATCH_ITEMS", 5000)
    monkeypatch.setattr(Transactions, "_done", counted)
    assert tool.apply(through="backfill").migrations[0].tally.moved == 30
    assert max(written) == 4000
    assert {server.raw.scard(b"{t}:set:%d" % number) for number in range(30)} == {2000}


def test_suspects_are_read_by_scripts_that_see_no_more_than_so_many_elements(server, tmp_path, monkeypatch):
    tool = many_lines(server, tmp_path)
    tool.apply(through="backfill")
    read: list[int] = []
    with tool.run() as run:
        [family] = run.families
        pairs = [pair for n in range(30) if (pair := family.from_old(b"{t}:text:%d" % n)) is not None]

        def counted(reply):
            read.append(sum(len(items) for _, _, items, _ in reply[1:]))
            return reply

        monkeypatch.setattr(judge, "checked", counted)
        assert [d.verdict for d in judge_keys(run, family, pairs)] == ["equal"] * 30
    assert sum(read) == 30 * 2001
    assert max(read) <= BATCH_ITEMS


@pytest.mark.parametrize("through", ["backfill", "switch"])
def test_a_record_that_is_too_large_is_not_read_when_it_is_tried_again(client, tmp_path, small, through):
    tool = tool_for(client, tmp_path, KEYS)
    shell = Shell(client, tool.directory)
    put(client, TEXT, b"a")
    tool.apply(through=through)
    put(client, TEXT, b"!" * (small + 1))  # by an application without an adapter
    tool.apply(through="contract", exit=32)
    for _ in range(2):
        [left] = shell("quarantine", "retry", "0001", exit=32)["records"]
        assert (left["key"], left["reason"]) == ("{t}:text:a", TOO_LARGE)
    assert client.raw.hget(b"{t}:hash:a", "text") == b"a"
    client.raw.delete(TEXT)
    assert shell("quarantine", "retry", "0001")["records"] == []


def test_a_target_that_is_too_large_is_adopted_by_pages_and_is_as_it_was_after_a_rollback(
    client, tmp_path, monkeypatch
):
    tool = tool_for(client, tmp_path, KEYS)
    for names in batched(VALUES["hash"](MAX_ELEMENTS + 1), 5000):
        put(client, b"{t}:hash:z", dict.fromkeys(names, b"v"))
    put(client, b"{t}:hash:y", {b"text": b"small"})
    before = picture(client)
    Shell(client, tool.directory)("init", "0001", "--at", "pending", "--yes")
    whole, alone = dump.bounded, list[bytes]()

    def bounded(client, db, kind, names):
        alone.extend(name for name, _ in names)
        return whole(client, db, kind, names)

    monkeypatch.setattr(dump, "bounded", bounded)
    tool.apply(through="expand")
    assert alone == [b"{t}:hash:y"]
    assert tool.rollback(to="pending") == "pending"
    assert picture(client) == before


# Grown since the comparison.


def grow(tool: Tool, monkeypatch: pytest.MonkeyPatch, size: int) -> bytes:
    """An application without an adapter makes a record large after contract has compared it; what it holds then."""
    text = b" a" + b"!" * size
    whole = sweep.save_native

    def then(run, epoch):
        whole(run, epoch)
        put(tool.place, TEXT, text)

    monkeypatch.setattr(forward, "save_native", then)
    return text


@pytest.fixture
def tool(client, tmp_path) -> Tool:
    put(client, TEXT, b" a")
    put(client, b"{t}:text:b", b" b")
    tool = tool_for(client, tmp_path, KEYS)
    tool.apply(through="switch")
    return tool


def kept(tool: Tool) -> dict[bytes, bytes]:
    return {key: text for key, _, _, text in saved(tool.backup)}


def test_a_record_of_over_16_mb_is_saved_before_it_is_removed(server, tmp_path, monkeypatch):
    put(server, TEXT, b" a")
    tool = tool_for(server, tmp_path, KEYS)
    tool.apply(through="switch")
    text = grow(tool, monkeypatch, MAX_BYTES)
    tool.apply(through="contract")
    assert kept(tool)[TEXT] == text
    assert own_keys(server) == set()
    assert set(picture(server)) == {b"{t}:hash:a"}


def test_a_record_that_has_grown_is_saved_on_the_way_back_too(tool, small, monkeypatch):
    text = grow(tool, monkeypatch, small)
    with monkeypatch.context() as broken:
        broken.setattr(sweep, "save_retired", crashing)
        with pytest.raises(Crash):
            tool.apply(through="contract")
    assert kept(tool) == {}
    assert tool.rollback() == "switched"
    assert own_keys(tool.place) == set()
    assert kept(tool) == {TEXT: text, b"{t}:text:b": b" b"}
    # The new shape is the truth.
    assert (tool.place.raw.get(TEXT), tool.place.raw.get(b"{t}:text:b")) == (b"a", b" b")


def test_a_large_record_set_aside_by_a_contract_that_was_cut_short_comes_back_as_it_was(tool, monkeypatch):
    before = picture(tool.place, b"{t}:text")
    with monkeypatch.context() as broken:
        broken.setattr(sweep, "save_retired", crashing)
        with pytest.raises(Crash):
            tool.apply(through="contract")
    tool.apply("0001", exit=0)  # nothing to do for verify
    whole, alone = dump.large, list[bytes]()

    def large(*args):
        alone.append(args[-1])
        return whole(*args)

    with tool.run() as run:
        run.change("reverting", rolled_back=True)
        monkeypatch.setattr(weighed, "MAX_BYTES", 1)
        monkeypatch.setattr(dump, "large", large)
        rebuild._from_what_is_kept(run, None)
    monkeypatch.undo()
    assert sorted(alone) == [TEXT, b"{t}:text:b"]
    assert picture(tool.place, b"{t}:text") == before
    assert tool.rollback(to="pending") == "pending"
    assert picture(tool.place) == before


@pytest.mark.parametrize("kind", ["hash", "set", "zset", "list", "string"])
def test_a_large_key_is_read_by_pages_and_is_one_line(client, kind):
    name, far = b"{t}:large", 4_102_444_800_000
    put(client, name, b"text" if kind == "string" else VALUES[kind](3000))
    client.raw.pexpireat(name, far)
    tool = connect(client.url)
    [line] = dump.large(tool, 0, kind, name, b"shown")
    [whole] = dump.bounded(tool, 0, kind, [(name, b"shown")])
    assert (line.key, line.kind, line.expires_at, line.part) == (b"shown", kind, whole.expires_at, 0)
    width = 2 if kind in ("hash", "zset") else 1
    pieces = [sorted(zip(*[iter(one.items)] * width, strict=True)) for one in (line, whole)]
    assert pieces[0] == pieces[1]
    assert dump.large(tool, 0, kind, b"{t}:gone", b"shown") == []
    assert dump.large(tool, 0, "hash" if kind == "string" else "string", name, b"shown") == []


def test_records_of_the_new_shape_under_the_final_name_are_saved_in_batches_bounded_by_bytes(
    client, tmp_path, monkeypatch
):
    tool = tool_for(client, tmp_path, SAME_NAME)
    tool.apply(through="expand")
    put(client, TEXT, b" a")
    natives = [b"{t}:text:n%d" % n for n in range(6)]
    for name in natives:
        put(client, name, {b"id": name, b"text": b"x" * 900})
    put(client, b"{t}:text:large", {b"id": b"large", b"text": b"x" * 9000})
    tool.apply(through="switch")
    monkeypatch.setattr(weighed, "MAX_BYTES", 6000)
    monkeypatch.setattr(weighed, "BATCH_BYTES", 2500)
    batches, whole = list[int](), dump.bounded

    def bounded(client, db, kind, names):
        batches.append(len(names))
        return whole(client, db, kind, names)

    monkeypatch.setattr(dump, "bounded", bounded)
    with tool.run() as run:
        sweep.save_native(run, 3)
    assert (max(batches), sum(batches)) == (2, 6)
    assert {key for key, *_ in saved(tool.backup)} == {*natives, b"{t}:text:large"}
    monkeypatch.undo()
    tool.apply(through="contract")
    with tool.run() as run:
        restore.restore(run)
    assert (tool.phase(), client.raw.get(TEXT)) == ("pending", b" a")
    assert client.raw.hget(b"{t}:text:large", "text") == b"x" * 9000


def test_records_of_the_new_shape_under_the_final_name_are_saved_in_parts_bounded_by_bytes(
    server, tmp_path, monkeypatch
):
    tool = tool_for(server, tmp_path, SAME_NAME)
    tool.apply(through="expand")
    for n in range(120):
        put(server, b"{t}:text:n%d" % n, {b"id": b"n%d" % n, b"text": b"x" * 100})
    tool.apply(through="switch")
    monkeypatch.setattr(backup, "PART_BYTES", 1000)
    monkeypatch.setattr(weighed, "BATCH_BYTES", 1000)
    with tool.run() as run:
        sweep.save_native(run, 3)
    (manifest,) = tool.backup.rglob("manifest.json")
    parts = backup.check(manifest.parent).parts
    assert sum(part.lines for part in parts) == 120
    assert max(part.lines for part in parts) <= 20


@pytest.mark.parametrize("kind", ["hash", "set", "zset"])
def test_large_keys_are_restored_page_by_page_and_not_sent_where_they_are_already(client, tmp_path, monkeypatch, kind):
    monkeypatch.setattr(weighed, "MAX_ELEMENTS", 50)
    accepted, large = b"{t}:old:accepted", b"{t}:old:large"
    put(client, accepted, VALUES[kind](51))
    put(client, large, VALUES[kind](45), px=600_000)
    put(client, b"{t}:old:small", VALUES[kind](2))
    before = picture(client)
    tool = tool_for(client, tmp_path, HASHES.replace("KIND", kind))
    tool.apply(exit=32)
    Shell(client, tool.directory)("quarantine", "accept", "0001", "--all")
    tool.apply(through="contract")
    sent, whole = list[tuple[bytes, int]](), engine_put._put

    def spied(run, phase, name, line, items):
        sent.append((line.key, len(items)))
        return whole(run, phase, name, line, items)

    monkeypatch.setattr(engine_put, "_put", spied)
    monkeypatch.setattr(engine_put, "_PAGE", 10)
    assert tool.restore() == "pending"
    assert picture(client) == before
    assert max(number for _, number in sent) <= 20
    assert accepted not in {key for key, _ in sent}


@pytest.mark.parametrize("before", [False, True])
def test_a_new_record_too_large_to_carry_back_is_listed_and_leads_out_once_it_is_accepted(
    client, tmp_path, monkeypatch, before
):
    monkeypatch.setattr(weighed, "MAX_ELEMENTS", 50)
    tool, late = tool_for(client, tmp_path, LINES), b"{t}:set:late"
    put(client, TEXT, b"one two")
    tool.apply(through="contract")
    put(client, late, VALUES["set"](51))
    shell = Shell(client, tool.directory)
    for _ in range(2):
        tool.rollback(exit=32)
        [listed] = shell("quarantine", "list", "0001")["records"]
        assert (listed["key"], listed["reason"]) == ("{t}:text:late", TOO_LARGE)
    if before:  # or it is made smaller
        client.raw.srem(late, *[b"m%d" % n for n in range(2, 51)])
        assert tool.rollback() == "switched"
        assert client.raw.get(b"{t}:text:late") == b"m0 m1"
        return
    shell("quarantine", "accept", "0001", "{t}:text:late")
    assert tool.rollback() == "switched"
    assert tool.verify().complete
    tool.apply("0001", through="contract")
    assert tool.rollback(to="pending") == "pending"
    assert client.raw.get(TEXT) == b"one two"
    assert client.raw.scard(late) == 51


def test_a_new_record_that_no_inverse_carries_back_is_listed_and_leads_out_too(client, tmp_path):
    tool = tool_for(client, tmp_path, KEYS)
    put(client, TEXT, b"one")
    tool.apply(through="contract")
    put(client, b"{t}:hash:late", {b"id": b"late"})
    tool.rollback(exit=32)
    shell = Shell(client, tool.directory)
    [listed] = shell("quarantine", "list", "0001")["records"]
    assert listed["key"] == "{t}:text:late"
    shell("quarantine", "accept", "0001", "{t}:text:late")
    assert tool.rollback(to="pending") == "pending"
    assert set(picture(client)) == {TEXT, b"{t}:hash:late"}


@pytest.mark.parametrize("limit", ["MAX_ELEMENTS", "MAX_BYTES"])
def test_a_new_record_that_has_grown_too_large_differs_and_is_never_read_whole(server, tmp_path, monkeypatch, limit):
    tool, name = tool_for(server, tmp_path, LINES), b"{t}:set:a"
    put(server, TEXT, b"one two")
    put(server, b"{t}:text:b", b"three")
    tool.apply(through="switch")
    monkeypatch.setattr(weighed, limit, 100 if limit == "MAX_ELEMENTS" else 50_000)
    server.raw.sadd(name, *VALUES["set"](101 if limit == "MAX_ELEMENTS" else 15_000))
    monkeypatch.setattr(judge, "FIELD_TTL", "")  # nothing else is asked of the set
    for foreign in (None, "old", "new"):
        server.raw.config_resetstat()
        found = tool.verify(foreign=foreign)
        assert (found.compared, found.different, found.examples[0].why) == (
            2, 1, "the new record is too large to be read whole",
        )  # fmt: skip
        assert server.raw.info("commandstats")["cmdstat_smembers"]["calls"] == (
            2 if foreign else 1
        )  # the other one, also by what settles it
    assert server.raw.get(TEXT) == b"one two"
    tool.apply(through="contract", exit=30)
    server.raw.srem(name, *(member for member in server.raw.smembers(name) if member not in (b"one", b"two")))
    assert tool.verify().complete


def test_a_new_record_that_has_grown_too_large_to_be_settled_is_named_to_be_removed_by_hand(
    client, tmp_path, monkeypatch
):
    tool, extra = tool_for(client, tmp_path, LINES), b"{t}:set:z"
    put(client, TEXT, b"one two")
    tool.apply(through="switch")
    monkeypatch.setattr(weighed, "MAX_ELEMENTS", 50)
    for name in (b"{t}:set:a", extra):
        put(client, name, VALUES["set"](60))
    put(client, b"{t}:text:b", b"three")
    backup = ["--backup", str(tool.backup)]
    shell = Shell(client, tool.directory)
    assert "--foreign SIDE" in shell("verify", "0001", exit=30)["next"]  # there is one that it settles
    for side in ("old", "new"):
        told = shell("verify", "0001", "--foreign", side, *backup, exit=30)
        assert (told["different"], told["extra"]) == (1, 1)
        assert told["next"] == "move or remove that key by hand: {t}:set:a; then: migrator verify 0001"
    client.raw.delete(b"{t}:set:a")
    told = shell("verify", "0001", "--foreign", "old", *backup, exit=30)
    assert told["next"] == "move or remove that key by hand: {t}:set:z; then: migrator verify 0001"
    assert client.raw.smembers(b"{t}:set:a") == {b"one", b"two"}
    client.raw.rename(extra, b"{t}:elsewhere")
    assert shell("verify", "0001")["next"] == ""
    tool.apply(through="contract")


@pytest.mark.parametrize("through", ["", "expand"])
def test_a_large_target_that_was_there_before_is_not_read_by_a_comparison(server, tmp_path, monkeypatch, through):
    tool, name = tool_for(server, tmp_path, LINES), b"{t}:set:a"
    put(server, TEXT, b"one two")
    put(server, b"{t}:text:b", b"three")
    put(server, name, VALUES["set"](101))
    put(server, b"{t}:set:b", {b"three"})
    if through:
        Shell(server, tool.directory)("init", "0001", "--at", "pending", "--yes")
        tool.apply(through=through)
    monkeypatch.setattr(weighed, "MAX_ELEMENTS", 100)
    server.raw.config_resetstat()
    found = tool.verify()
    assert (found.compared, found.different, found.examples[0].why) == (
        2, 1, "the new record is too large to be read whole",
    )  # fmt: skip
    assert server.raw.info("commandstats")["cmdstat_smembers"]["calls"] == 1
    monkeypatch.undo()
    server.raw.delete(name, b"{t}:set:b")
    tool.apply()


def test_new_records_that_are_much_larger_than_the_old_ones_are_not_read_all_at_once(server, tmp_path, monkeypatch):
    tool = many_lines(server, tmp_path)
    tool.apply(through="switch")
    batches, whole = list[int](), alike.round_one

    def counted(run, family, visit, some):
        def each():
            for batch in some:
                batches.append(len(batch))
                yield batch

        return whole(run, family, visit, each())

    monkeypatch.setattr(compare_keys, "round_one", counted)
    monkeypatch.setattr(weighed, "BATCH_BYTES", 5 * 2000 * 128)
    assert tool.verify().complete
    assert (sum(batches), max(batches)) == (30, 4)


def test_a_copy_that_has_grown_is_not_read_to_see_that_it_differs(server, tmp_path):
    tool, name = tool_for(server, tmp_path, LINES), b"{t}:set:a"
    put(server, TEXT, b"one two")
    tool.apply(through="expand")
    for members in batched(VALUES["set"](MAX_ELEMENTS), 5000):
        server.raw.sadd(name, *members)
    with tool.run() as run:
        [family] = run.families
        server.raw.config_resetstat()
        pair = family.from_old(TEXT)
        assert pair is not None
        assert copy.copy_keys(run, family, copy.FORWARD, [pair])["moved"] == 1
    assert server.raw.info("commandstats")["cmdstat_smembers"]["calls"] == 1  # its names, to remove them
    assert server.raw.smembers(name) == {b"one", b"two"}
