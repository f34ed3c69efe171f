"""What the operator decides: records that cannot be mapped, plans that are saved, what was rolled back or was there."""

from __future__ import annotations

import pytest

from migrator.engine import back, forward
from migrator.errors import RefusedError
from tests.support import KEYS, MEMBERS, OTHER, Crash, Shell, Tool, crashing, picture, put, seen, tool_for, write

TEXT = b"{t}:text:"


@pytest.fixture
def shell(client, tmp_path):
    return Shell(client, write(tmp_path / "migrations", KEYS))


@pytest.fixture
def single(server, tmp_path):
    """On a single server: what is between the command line and the ledger does not depend on a cluster."""
    return Shell(server, write(tmp_path / "migrations", KEYS))


@pytest.fixture
def tool(client, shell, tmp_path):
    return Tool(client, shell.directory, tmp_path / "backup")


def some_bad(place):
    put(place, TEXT + b"a", b"good")
    put(place, TEXT + b"b", b"bad one")
    put(place, TEXT + b"c", b"bad too")
    put(place, TEXT + b"d", [b"a list"])


def test_open_records_hold_a_migration_at_backfilled_until_each_is_mended_or_accepted(client, shell, tool):
    some_bad(client)
    stopped = shell("apply", exit=32)
    assert (stopped["stopped"]["exit"], stopped["stopped"]["phase"]) == (32, "backfilled")
    assert stopped["migrations"][0]["tally"] == {
        "scanned": 4, "moved": 1, "unchanged": 0, "quarantined": 3, "vanished": 0, "ignored": 0
    }  # fmt: skip
    assert shell("status")["migrations"][0]["quarantine"] == {"open": 3, "accepted": 0}
    assert "migrator quarantine list 0001" in shell.text("status")
    records = {r["key"]: r["reason"].split(":")[0] for r in shell("quarantine", "list", "0001")["records"]}
    assert records == {"{t}:text:b": "a bad one", "{t}:text:c": "a bad one", "{t}:text:d": "foreign-type"}

    assert len(shell("quarantine", "retry", "0001", exit=32)["records"]) == 3
    put(client, TEXT + b"b", b"mended")
    assert len(shell("quarantine", "retry", "0001", exit=32)["records"]) == 2
    assert client.raw.execute_command("HGET", b"{t}:hash:b", "text") == b"mended"
    shell("quarantine", "accept", "0001", "{t}:text:c")
    shell("quarantine", "accept", "0001", "--reason", "foreign-type: a list under the source template")
    assert shell("status")["migrations"][0]["quarantine"] == {"open": 0, "accepted": 2}

    shell("apply")
    assert shell("verify", "0001")["unreadable"] == 0
    tool.apply(through="contract")
    assert set(picture(client)) == {b"{t}:hash:a", b"{t}:hash:b", TEXT + b"d"}
    assert tool.rollback(to="pending") == "pending"
    assert client.raw.execute_command("GET", TEXT + b"c") == b"bad too"
    assert set(picture(client)) == {TEXT + name for name in (b"a", b"b", b"c", b"d")}


def test_an_accepted_record_that_changes_is_open_again(client, shell):
    put(client, TEXT + b"b", b"bad one")
    shell("apply", exit=32)
    shell("quarantine", "accept", "0001", "--all")
    shell("apply")
    put(client, TEXT + b"b", b"bad in another way")
    shell("apply", "--through", "switch", exit=32)
    put(client, TEXT + b"b", b"good")
    shell("apply", "--through", "switch")
    assert client.raw.execute_command("HGET", b"{t}:hash:b", "text") == b"good"


def test_accepted_members_stay_under_the_retired_name_and_come_back(client, tmp_path):
    tool = tool_for(client, tmp_path, MEMBERS)
    shell = Shell(client, tool.directory)
    put(client, b"{t}:times:a", {b"good": b"1", b"bad": b"soon", b"\xff": b"never"}, px=600_000)
    before = seen(client, b"{t}:times:a")
    tool.apply(exit=32)
    shell("quarantine", "accept", "0001", "{t}:times:a", "--member", "bad")
    shell("quarantine", "accept", "0001", "{t}:times:a", "--member", "\\xff")
    tool.apply(through="contract")
    assert set(picture(client)) == {b"{t}:sorted:a"}
    assert tool.rollback(to="pending") == "pending"
    after = seen(client, b"{t}:times:a")
    assert client.raw.execute_command("HGET", b"{t}:times:a", "bad") == b"soon"
    assert client.raw.execute_command("HLEN", b"{t}:times:a") == 3
    assert after.expires == before.expires


def test_a_collection_of_accepted_members_alone_keeps_its_expiry_and_those_of_its_fields(client, tmp_path):
    tool, key = tool_for(client, tmp_path, MEMBERS), b"{t}:times:a"
    shell = Shell(client, tool.directory)
    put(client, key, {b"bad": b"soon", b"mortal": b"17"}, px=600_000)
    client.raw.execute_command("HPEXPIRE", key, 500_000, "FIELDS", 1, "mortal")
    fields = client.raw.execute_command("HPEXPIRETIME", key, "FIELDS", 1, "mortal")
    before = seen(client, key)
    tool.apply(exit=32)
    shell("quarantine", "accept", "0001", "--all")
    tool.apply(through="contract")
    assert set(picture(client)) == set()
    assert tool.rollback(to="pending") == "pending"
    assert seen(client, key).expires == before.expires
    assert client.raw.execute_command("HPEXPIRETIME", key, "FIELDS", 1, "mortal") == fields
    assert client.raw.execute_command("HGET", key, "bad") == b"soon"


ACROSS = """
from migrator import Keys, MemberMove, Migration

migration = Migration(MemberMove(
    source=Keys("one:{name}", type="KIND"), target=Keys("two:{name}", type="KIND"),
    forward=lambda key, name, value: (name, value),
))
"""


@pytest.mark.parametrize(
    ("kind", "members"), [("hash", {b"a": b"1"}), ("set", {b"a", b"b"}), ("zset", {b"a": 1.0, b"b": 2.0})]
)
def test_members_in_another_slot_are_quarantined_whatever_they_are_members_of(cluster, tmp_path, kind, members):
    tool = tool_for(cluster, tmp_path, ACROSS.replace("KIND", kind))
    put(cluster, b"one:a", members)
    tool.apply(exit=32)
    listed = Shell(cluster, tool.directory)("quarantine", "list", "0001")["records"]
    assert {(one["member"], one["reason"].split(":")[0]) for one in listed} == {
        (name.decode(), "cross-slot") for name in members
    }


def test_a_key_stands_for_all_that_is_listed_of_it(server, tmp_path):
    shell = Shell(server, write(tmp_path / "migrations", MEMBERS))
    for key in (b"{t}:times:a", b"{t}:times:b"):
        put(server, key, {b"good": b"1", b"bad": b"soon", b"worse": b"never"})
    shell("apply", exit=32)
    listed = shell("quarantine", "accept", "0001", "{t}:times:a")["records"]
    assert {one["key"] for one in listed if one["accepted"]} == {"{t}:times:a"}
    assert sum(one["accepted"] for one in listed) == 2
    listed = shell("quarantine", "accept", "0001", "{t}:times:b", "--member", "bad")["records"]
    assert [(one["key"], one["member"]) for one in listed if not one["accepted"]] == [("{t}:times:b", "worse")]


def test_accepting_what_is_not_there_is_2(server, tmp_path):
    shell = Shell(server, write(tmp_path / "migrations", KEYS))
    put(server, TEXT + b"b", b"bad one")
    shell("apply", exit=32)
    assert "not in quarantine" in shell.error("quarantine", "accept", "0001", "{t}:text:z", exit=2, code="usage")
    accept = ("quarantine", "accept", "0001")
    for words in (
        (),
        ("{t}:text:b", "--all"),
        ("--all", "--reason", "x"),
        ("--member", "m"),
        ("--all", "--member", "m"),
    ):
        assert "name the records in one way" in shell.error(*accept, *words, exit=2, code="usage")
    assert "not in quarantine" in shell.error(*accept, "a\\xZZ", exit=2, code="usage")
    assert shell("status")["migrations"][0]["quarantine"] == {"open": 1, "accepted": 0}
    assert "no record has the reason" in shell.error(
        "quarantine", "accept", "0001", "--reason", "x", exit=2, code="usage"
    )
    assert shell("status")["migrations"][0]["quarantine"] == {"open": 1, "accepted": 0}


def test_a_record_that_is_gone_leaves_the_list(client, shell):
    put(client, TEXT + b"b", b"bad one")
    shell("apply", exit=32)
    client.raw.execute_command("DEL", TEXT + b"b")
    shell("apply")
    assert shell("quarantine", "list", "0001")["records"] == []


def test_the_history_says_who_did_what(client, shell, tool):
    put(client, TEXT + b"a", b"good")
    tool.apply(through="switch")
    tool.rollback()
    events = shell("history", "0001")["events"]
    whats = [event["what"] for event in events]
    for what in ("pending -> expanded", "backfill", "compared", "verified -> switched", "switched -> expanded"):
        assert what in whats
    assert whats.index("backfill") < whats.index("compared")
    assert all(":" in event["who"] and event["at"].endswith("+00:00") for event in events)
    told = shell.text("history")
    assert "switched -> expanded" in told
    assert f"by {events[0]['who']}" in told
    assert max(map(len, told.splitlines())) <= 80


def test_check_is_10_while_a_migration_is_pending_and_0_when_it_is_not(server, tmp_path):
    shell = Shell(server, write(tmp_path / "migrations", KEYS, OTHER))
    put(server, TEXT + b"a", b"good")
    shell("status", "--check", exit=10)
    shell("plan", "--check", exit=10)
    shell("apply")
    shell("status", "--check")
    shell("plan", "--check")
    shell("status", "--check", "--through", "switch", exit=10)
    shell("plan", "--check", "--through", "switch", exit=10)
    shell("rollback", "0001", "--yes")
    shell("status", "--check")


def test_what_was_rolled_back_is_passed_over_until_it_is_asked_for(server, single):
    put(server, TEXT + b"a", b"good")
    single("apply")
    single("rollback", "0001", "--yes")
    passed = single("apply")
    assert passed["migrations"][0]["phase"] == "pending"
    assert "rolled back" in passed["notes"][0]
    assert single("apply", "0001")["migrations"][0]["phase"] == "verified"
    assert single("apply")["notes"] == []


def test_a_saved_plan_passes_over_what_was_rolled_back_and_holds_nothing_but_its_own(server, tmp_path):
    shell, plan = Shell(server, write(tmp_path / "migrations", KEYS, OTHER)), str(tmp_path / "plan.json")
    put(server, TEXT + b"a", b"good")
    shell("apply", "0001")
    shell("rollback", "0001", "--yes")
    shell("plan", "--out", plan)
    done = shell("apply", "--plan", plan)
    assert [one["phase"] for one in done["migrations"]] == ["pending", "verified"]
    assert "0001_first is passed over: it was rolled back" in done["notes"][0]
    shell("plan", "0001", "--out", plan)
    assert "0002_second is not in that plan" in shell.error("apply", "0002", "--plan", plan, exit=2, code="usage")
    assert shell("apply", "0001", "--plan", plan)["migrations"][0]["phase"] == "verified"


def test_a_plan_says_what_apply_would_do_with_what_is_on_its_way_back(server, tmp_path, monkeypatch):
    shell = Shell(server, write(tmp_path / "migrations", KEYS))
    tool = Tool(server, shell.directory, tmp_path / "backup")
    put(server, TEXT + b"a", b"good")
    shell("apply")
    shell("rollback", "0001", "--yes")
    assert "it was rolled back" in shell("plan", "--check")["migrations"][0]["waits_for"]
    assert shell("plan", "0001", "--check", exit=10)["migrations"][0]["waits_for"] is None

    tool.apply("0001", through="switch")
    with monkeypatch.context() as broken:
        broken.setattr(forward, "sweep", crashing)
        with pytest.raises(Crash):
            tool.apply(through="contract")
    there = ("--check", "--through", "contract")
    assert shell("plan", *there, exit=10)["migrations"][0]["done"] is False
    assert "still to be removed" in shell.text("plan", *there, exit=10)
    shell("status", *there, exit=10)
    tool.apply(through="contract")
    assert shell("plan", *there)["migrations"][0]["done"] is True

    with monkeypatch.context() as broken:
        broken.setattr(back, "rebuild", crashing)
        with pytest.raises(Crash):
            tool.rollback()
    [refused] = shell("plan", "0001", exit=60)["migrations"][0]["refused"]
    assert "migrator rollback 0001 --to switched" in refused["next"]
    assert refused["next"] == shell("apply", "0001", exit=60)["stopped"]["next"]
    shell("plan", "--check")  # as a bare apply, which passes it over


def test_a_saved_plan_holds_until_module_or_ledger_changes(client, shell, tmp_path):
    put(client, TEXT + b"a", b"good")
    plan = str(tmp_path / "plan.json")
    shell("plan", "--out", plan)
    put(client, TEXT + b"b", b"counts may change")
    shell("apply", "--plan", plan)
    shell("apply", "--plan", plan)  # its own apply is no change
    assert "--through" in shell.error("apply", "--plan", plan, "--through", "switch", exit=14, code="stale-plan")
    shell("rollback", "0001", "--yes")
    assert "moved on" in shell.error("apply", "--plan", plan, exit=14, code="stale-plan")
    shell("plan", "--out", plan)
    path = shell.directory / "0001_first.py"
    path.write_text(KEYS + "# edited\n")
    assert "edited" in shell.error("apply", "--plan", plan, exit=14, code="stale-plan")


def test_a_plan_is_stale_once_somebody_else_has_gone_there_and_back(server, single, tmp_path):
    put(server, TEXT + b"a", b"good")
    plan = str(tmp_path / "plan.json")
    single("plan", "--out", plan)
    single("apply", "--through", "switch")
    single("rollback", "0001", "--to", "expanded", "--yes")
    assert "moved on" in single.error("apply", "--plan", plan, exit=14, code="stale-plan")
    assert single("status")["migrations"][0]["phase"] == "expanded"


def test_without_an_inverse_only_restore_leads_back_from_contract(client, tmp_path):
    tool = tool_for(client, tmp_path, KEYS.replace('inverse=lambda key, fields: fields[b"text"],', ""))
    put(client, TEXT + b"a", b"good")
    before = picture(client)
    (told,) = [risk.text for risk in tool.plan().risks if risk.code == "no-inverse"]
    assert told == "there is no inverse: after contract only restore leads back, and adapters are refused"
    tool.apply(through="contract")
    with pytest.raises(RefusedError, match="no inverse"):
        tool.rollback()
    assert tool.phase() == "contracted"
    assert tool.restore() == "pending"
    assert picture(client) == before


def test_a_restore_of_another_life_is_refused(client, tool):
    put(client, TEXT + b"a", b"first life")
    tool.apply(through="contract")
    tool.rollback(to="pending")
    put(client, TEXT + b"a", b"second life")
    tool.apply("0001", through="switch")
    with pytest.raises(RefusedError, match="never contracted"):
        tool.restore()
    assert client.raw.execute_command("GET", TEXT + b"a") == b"second life"


def test_a_later_write_that_no_inverse_takes_back_stops_the_rollback_and_is_named(client, tmp_path):
    odd = "def odd(score):\n    if score < 0:\n        raise Unmappable('negative')\n    return b'%d' % score\n\n"
    source = MEMBERS.replace('b"%d" % score', "odd(score)").replace("migration =", f"{odd}migration =")
    tool = tool_for(client, tmp_path, source)
    put(client, b"{t}:times:a", {b"a": b"1"})
    tool.apply(through="contract")
    put(client, b"{t}:sorted:a", {b"late": -5.0})
    assert tool.rollback(exit=30) == tool.phase() == "reverting"
    assert [(e.member, e.verdict) for e in tool.verify().examples] == [("late", "extra")]
    client.raw.execute_command("ZREM", b"{t}:sorted:a", b"late")
    assert tool.rollback() == "switched"
