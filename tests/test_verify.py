"""Verification names every difference, never calls a part of the work the whole, and repairs only from the truth."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from migrator.engine import outcome, quarantine, verify
from migrator.engine.compare import compare
from migrator.engine.walk import MarkersMovedError
from migrator.errors import IncompleteError, RefusedError
from migrator.ledger import Checkpoint
from tests.support import KEYS, MEMBERS, SAME_NAME, Shell, all_keys, own_keys, picture, put, tool_for, write

OLD, NEW = b"{t}:times:a", b"{t}:sorted:a"
CLEAN = {"missing": 0, "extra": 0, "different": 0, "ttl_drift": 0, "unreadable": 0}


def faults(result):
    told = result if isinstance(result, dict) else result.model_dump()
    return {name: number for name, number in told.items() if name in CLEAN and number}


@pytest.fixture
def shell(client, tmp_path):
    return Shell(client, write(tmp_path / "migrations", MEMBERS))


@pytest.fixture
def tool(client, tmp_path):
    return tool_for(client, tmp_path, MEMBERS)


@pytest.fixture
def keys(client, tmp_path):
    return tool_for(client, tmp_path, KEYS)


def test_a_comparison_whose_markers_moved_is_incomplete_and_no_difference(shell, client, monkeypatch):
    shell("apply")

    def moving(*_):
        raise MarkersMovedError

    monkeypatch.setattr(verify, "compare", moving)
    assert "markers moved" in shell.error("verify", "0001", exit=31, code="incomplete")


@pytest.mark.parametrize(("phase", "then", "budget"), [
    ("expand", "backfill", None), ("verify", "switch", 0.0), ("switch", "contract", None),
])  # fmt: skip
def test_nor_is_what_another_run_changes_meanwhile(client, keys, monkeypatch, phase, then, budget):
    put(client, b"{t}:text:a", b"text")
    keys.apply(through=phase)

    def meanwhile(*args):
        keys.apply(through=then)
        return compare(*args)

    monkeypatch.setattr(verify, "compare", meanwhile)
    with pytest.raises(IncompleteError, match="markers moved"):
        keys.verify(budget=budget)


def test_markers_that_are_lost_do_not_keep_it_from_comparing(client, keys):
    put(client, b"{t}:text:a", b"text")
    keys.apply()
    for key in all_keys(client):
        if b":marker:" in key:
            client.raw.delete(key)
    assert keys.verify().complete


def test_too_many_records_that_cannot_be_mapped_end_a_comparison_with_what_it_found(client, shell, monkeypatch):
    shell("apply")
    monkeypatch.setattr(quarantine, "OPEN_LIMIT", 3)
    for name in (b"a", b"b", b"c", b"d"):
        put(client, b"{t}:times:" + name, {b"m": b"no number"})
    found = shell("verify", "0001", exit=32)
    assert (found["complete"], found["stopped"]["exit"]) == (False, 32)
    assert "more than 3 records cannot be mapped" in found["stopped"]["reason"]
    assert 0 < found["unreadable"] == len(found["examples"])
    assert "more than 3 records cannot be mapped" in " ".join(shell.text("verify", "0001", exit=32).split())


def test_equal_counts_do_not_hide_other_members(client, shell):
    put(client, OLD, {b"a": b"1", b"b": b"2"})
    shell("apply")
    client.raw.execute_command("DEL", NEW)
    put(client, NEW, {b"a": 9.0, b"c": 2.0})

    [family] = shell("status")["migrations"][0]["families"]
    assert (family["source_count"], family["target_count"], family["counts_equal"]) == (2, 2, True)
    found = shell("verify", "0001", exit=30)
    assert faults(found) == {"missing": 1, "extra": 1, "different": 1}
    assert (found["complete"], found["compared"], found["id"]) == (True, 3, "0001_first")
    assert {(e["member"], e["verdict"]) for e in found["examples"]} == {
        ("a", "different"), ("b", "missing"), ("c", "extra")
    }  # fmt: skip
    lines = shell.text("verify", "0001", exit=30).splitlines()
    assert ["3", "1", "1", "1", "0", "0"] in [line.split() for line in lines]
    assert {line.partition(" (")[0] for line in lines if line.startswith("- ")} == {
        "- different: {t}:times:a [a]", "- missing: {t}:times:a [b]", "- extra: {t}:times:a [c]"
    }  # fmt: skip


def test_counts_are_all_that_status_calls_equal(client, tool):
    put(client, OLD, {b"a": b"1", b"b": b"2"})
    put(client, b"{t}:times:z", {b"a": b"1"})
    assert tool.status().families == ()
    tool.apply(through="expand")
    put(client, NEW, {b"x": 1.0, b"y": 2.0})
    first, second = tool.status().families
    assert (first.name, first.counts_equal, first.is_complete, first.is_migrated) == ("a", True, False, True)
    assert (second.name, second.counts_equal, second.is_migrated) == ("z", False, False)


def test_verify_in_pending_compares(client, tool):
    put(client, OLD, {b"a": b"1"})
    assert faults(tool.verify()) == {"missing": 1}


def test_a_record_of_keys_is_missing_extra_or_different(client, keys):
    for name in (b"a", b"b", b"c"):
        put(client, b"{t}:text:" + name, b"text")
    keys.apply()
    client.raw.execute_command("DEL", b"{t}:hash:a")
    client.raw.execute_command("HSET", b"{t}:hash:b", "text", "other")
    client.raw.execute_command("DEL", b"{t}:text:c")
    assert faults(keys.verify()) == {"missing": 1, "extra": 1, "different": 1}
    assert keys.verify(repair=True).repaired == 3
    assert faults(keys.verify()) == {}
    assert set(picture(client)) == {b"{t}:text:a", b"{t}:text:b", b"{t}:hash:a", b"{t}:hash:b"}


def test_a_surplus_field_of_a_hash_is_a_difference(client, keys):
    put(client, b"{t}:text:a", b"text")
    keys.apply()
    client.raw.execute_command("HSET", b"{t}:hash:a", "more", "1")
    assert faults(keys.verify()) == {"different": 1}


@pytest.mark.parametrize("drift", ["gained", "lost", "moved"])
def test_an_expiry_that_differs_is_found_and_repaired(client, keys, tool, drift):
    for source, value in ((b"{t}:text:a", b"text"), (OLD, {b"a": b"1"})):
        put(client, source, value, px=None if drift == "gained" else 600_000)
    for one, copy in ((keys, b"{t}:hash:a"), (tool, NEW)):
        write(one.directory, KEYS if one is keys else MEMBERS)
        one.namespace = f"migrator:{copy.hex()}"
        one.apply()
        client.raw.execute_command(*(("PERSIST", copy) if drift == "lost" else ("PEXPIRE", copy, 700_000)))
        assert faults(one.verify()) == {"ttl_drift": 1}
        assert one.verify(repair=True).repaired == 1
        assert faults(one.verify()) == {}
        left = client.raw.execute_command("PTTL", copy)
        assert left == -1 if drift == "gained" else 590_000 < left <= 600_000


def test_what_cannot_be_mapped_is_unreadable_and_no_value_is_shown(client, shell):
    put(client, OLD, {b"a": b"1", b"secret": b"swordfish"})
    shell("apply", exit=32)
    found = shell("verify", "0001", exit=32)
    assert faults(found) == {"unreadable": 1}
    assert (found["examples"][0]["member"], found["examples"][0]["why"]) == ("secret", "not a number")
    told = shell.text("verify", "0001", exit=32)
    assert "0001_first: RECORDS THAT CANNOT BE MAPPED" in told
    assert "swordfish" not in told
    client.raw.delete(NEW)
    assert faults(shell("verify", "0001", exit=30)) == {"missing": 1, "unreadable": 1}


@pytest.mark.parametrize(("drawn", "compared"), [((0.0,), 600), ((0.9,), 0), ((0.0, 0.9), 300)])
def test_a_sample_is_what_is_drawn_and_no_proof_even_if_that_is_all(server, tmp_path, monkeypatch, drawn, compared):
    tool = tool_for(server, tmp_path, MEMBERS)
    for name in (b"a", b"b"):
        put(server, b"{t}:times:" + name, {b"%d" % n: b"1" for n in range(300)})
    tool.apply()
    draws = itertools.cycle(drawn)
    monkeypatch.setattr(outcome, "random", SimpleNamespace(random=lambda: next(draws)))
    sampled = tool.verify(sample=0.5)
    assert (sampled.compared, sampled.complete, faults(sampled)) == (compared, False, {})


def test_a_clean_sample_is_incomplete_and_a_differing_one_differs(client, shell):
    put(client, OLD, {b"%d" % n: b"1" for n in range(600)})
    shell("apply")
    sampled = shell("verify", "0001", "--sample", "0.5", exit=31)
    assert (sampled["complete"], faults(sampled)) == (False, {})
    assert "incomplete" in shell.text("verify", "0001", "--sample", "0.5", exit=31)
    assert ": ok" not in shell.text("verify", "0001", "--sample", "0.5", exit=31)
    client.raw.execute_command("DEL", NEW)
    assert shell("verify", "0001", "--sample", "0.9999", exit=30)["missing"] > 0


def test_a_spent_budget_is_incomplete(client, shell):
    put(client, OLD, {b"%d" % n: b"1" for n in range(600)})
    shell("apply")
    assert shell("verify", "0001", "--budget", "0ms", exit=31)["complete"] is False
    assert shell("verify", "0001", "--budget", "60s")["complete"] is True
    assert "30s" in shell.error("verify", "0001", "--budget", "soon", exit=2, code="usage")


def test_verify_of_one_shape_is_refused(client, tool):
    put(client, OLD, {b"a": b"1"})
    tool.apply(through="contract")
    with pytest.raises(RefusedError, match="only one shape"):
        tool.verify()


def test_repair_removes_what_has_no_truth(client, tool):
    put(client, OLD, {b"a": b"1"})
    tool.apply()
    put(client, NEW, {b"ghost": 7.0, b"a": 5.0})
    put(client, b"{t}:sorted:ghost", {b"a": 5.0})
    assert tool.verify(repair=True).repaired == 3
    assert client.raw.execute_command("ZRANGE", NEW, 0, -1) == [b"a"]
    assert client.raw.execute_command("EXISTS", b"{t}:sorted:ghost") == 0


def test_repair_is_refused_after_the_switch(client, tool):
    put(client, OLD, {b"a": b"1"})
    tool.apply(through="switch")
    with pytest.raises(RefusedError, match="before the switch"):
        tool.verify(repair=True)


def test_apply_repairs_what_it_finds_before_the_switch(client, tool):
    put(client, OLD, {b"a": b"1"})
    tool.apply(through="backfill")
    put(client, NEW, {b"ghost": 7.0, b"a": 5.0})
    tool.apply(through="switch")
    assert client.raw.execute_command("ZRANGE", NEW, 0, -1, "WITHSCORES") in (
        [b"a", b"1"],
        [(b"a", 1.0)],
        [[b"a", b"1"]],
    )


@pytest.mark.parametrize("source", [KEYS, SAME_NAME], ids=["other name", "same name"])
def test_after_the_switch_the_operator_names_the_side_that_wins(client, tmp_path, source):
    tool = tool_for(client, tmp_path, source)
    for name in (b"a", b"b", b"c"):
        put(client, b"{t}:text:" + name, b"text")
    tool.apply(through="switch")
    put(client, b"{t}:text:a", b"written by an application without an adapter")
    put(client, b"{t}:text:new", b"created by it")
    assert faults(tool.verify()) == {"different": 1, "missing": 1}
    tool.apply(through="contract", exit=30)

    session = tool.session(backup=False)
    with pytest.raises(RefusedError, match="overwrites one side"):
        verify.verify(session, "0001", foreign="old")
    assert faults(tool.verify(foreign="old")) == {}
    tool.apply(through="contract")
    new = b"{t}:hash:" if source == KEYS else b"{t}:text:"
    assert client.raw.execute_command("HGET", new + b"a", "text") == b"written by an application without an adapter"
    assert client.raw.execute_command("HGET", new + b"new", "text") == b"created by it"
    assert own_keys(client) == set()


def test_after_the_switch_the_new_side_may_win_and_the_other_is_saved(client, keys):
    put(client, b"{t}:text:a", b"text")
    keys.apply(through="switch")
    put(client, b"{t}:text:a", b"overwritten")
    put(client, b"{t}:hash:b", {b"id": b"b", b"text": b"created in the new shape"})
    assert faults(keys.verify()) == {"different": 1, "extra": 1}
    assert faults(keys.verify(foreign="new")) == {}
    assert client.raw.execute_command("GET", b"{t}:text:a") == b"text"
    assert client.raw.execute_command("GET", b"{t}:text:b") == b"created in the new shape"
    assert any(keys.backup.glob("*foreign-new*/part-*"))


@pytest.mark.parametrize("truth", ["old", "new"])
def test_members_and_their_expiry_are_settled_too(client, tool, truth):
    put(client, OLD, {b"a": b"1", b"b": b"2"}, px=600_000)
    tool.apply(through="switch")
    client.raw.execute_command("HSET", OLD, "a", "5")
    assert faults(tool.verify(foreign=truth)) == {}
    assert client.raw.execute_command("HGET", OLD, "a") == (b"5" if truth == "old" else b"1")
    client.raw.execute_command("PERSIST", OLD)
    assert faults(tool.verify()) == {"ttl_drift": 1}
    assert faults(tool.verify(foreign=truth)) == {}
    assert (client.raw.execute_command("PTTL", OLD) == -1) == (truth == "old")
    tool.apply(through="contract")


def test_foreign_is_for_switched_only(client, tool):
    put(client, OLD, {b"a": b"1"})
    tool.apply()
    with pytest.raises(RefusedError, match="switched only"):
        tool.verify(foreign="old")


def compared_before(tool, **faults):
    """A comparison of an earlier run that was interrupted at its very end."""
    with tool.run() as run:
        slots = run.client.fingerprint()
        for node in run.client.nodes():
            process = run.client.process(run.client.on_node(node, ("INFO", "server"))[0])
            done = Checkpoint(node.id, process, slots, run.entry.epoch, done=True, counts={"equal": 1, **faults})
            run.lease.write([run.ledger.checkpoint_words(run.id, f"compare-0-{side}", done) for side in ("old", "new")])


@pytest.mark.parametrize("phase", ["backfill", "verify"])
def test_a_switch_does_not_rest_on_a_comparison_that_was_cut_short_before(client, tool, phase):
    put(client, OLD, {b"a": b"1"})
    tool.apply(through=phase)
    compared_before(tool)
    put(client, OLD, {b"b": b"2"})  # by an application without an adapter, since then
    tool.apply(through="switch")
    assert client.raw.zscore(NEW, "b") == 2


def test_nor_does_a_contract(client, tool):
    put(client, OLD, {b"a": b"1"})
    tool.apply(through="switch")
    compared_before(tool)
    put(client, OLD, {b"b": b"2"})
    tool.apply(through="contract", exit=30)
    assert client.raw.hget(OLD, "b") == b"2"


def test_what_an_interrupted_apply_has_counted_is_no_difference_after_a_repair(client, tool):
    put(client, OLD, {b"a": b"1"})
    tool.apply(through="backfill")
    compared_before(tool, missing=1)
    assert tool.verify(repair=True).missing == 0
    tool.apply()


@pytest.mark.parametrize("command", ["accept", "retry"])
def test_nor_is_it_held_against_a_record_that_was_accepted_or_mended_since_then(client, keys, command):
    put(client, b"{t}:text:a", b"bad")
    keys.apply(through="backfill")
    compared_before(keys, unreadable=1)
    shell = Shell(client, keys.directory)
    if command == "accept":
        shell("quarantine", "accept", "0001", "--all")
    else:
        put(client, b"{t}:text:a", b"mended")
        shell("quarantine", "retry", "0001")
    assert keys.apply().migrations[0].phase == "verified"
