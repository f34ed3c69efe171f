"""Who would be left behind: adapters say that they are there, and the tool listens before it changes a phase."""

from __future__ import annotations

import json

import pytest

from migrator.adapters import Members
from migrator.names import Names
from tests.support import MEMBERS, Shell, put, tool_for, write

NAME = Names("migrator").adapters
OLD = b"{t}:times:a"


@pytest.fixture
def tool(server, tmp_path):
    """On a single server: what follows from who is alive does not depend on a cluster."""
    put(server, OLD, {b"x": b"1"})
    return tool_for(server, tmp_path, MEMBERS)


def announce(place, tool, instance, *, ago=0.0, **changed):
    """An instance that was last seen so many seconds ago, of another adapter than ours where `changed` says so."""
    module = tool.session().modules.find("0001")
    told = {"id": module.id, "version": "0.0.1", "protocol": 1, "checksum": module.checksum} | changed
    reply = place.raw.execute_command("EVAL", "return redis.call('TIME')", 1, NAME)
    told["last_seen"] = int(reply[0]) * 1000 + int(reply[1]) // 1000 - round(ago * 1000)
    place.raw.hset(NAME, instance, json.dumps(told))


def test_status_lists_the_adapters_that_are_alive_and_when_others_were_last_seen(client, tmp_path):
    tool = tool_for(client, tmp_path, MEMBERS)
    put(client, OLD, {b"x": b"1"})
    shell = Shell(client, tool.directory)
    assert shell("status")["migrations"][0]["adapters"] == []
    shell("init")
    members = Members(client.raw, tool.session().modules.find("0001"))
    members.get(b"x", name="a")
    announce(client, tool, "gone:7", ago=300)
    announce(client, tool, "elsewhere:8", id="0002_other")

    mine, gone = shell("status", "0001")["migrations"][0]["adapters"]
    assert (mine["alive"], mine["protocol"], gone["instance"], gone["alive"]) == (True, 1, "gone:7", False)
    assert mine["instance"].endswith(":0001_first")
    assert mine["seconds_ago"] < 60
    assert 300 <= gone["seconds_ago"] < 360
    text = shell.text("status", "0001")
    assert "adapters: 1 alive, 1 not seen for a minute" in text
    assert "gone:7, version 0.0.1, last seen 5 min ago" in text


@pytest.mark.parametrize(("phase", "step"), [("verified", "switch"), ("switched", "contract")])
def test_an_adapter_of_an_older_protocol_that_is_alive_bars_switch_and_contract(server, tool, phase, step, tmp_path):
    shell = Shell(server, tool.directory)
    tool.apply(through="verify" if phase == "verified" else "switch")
    announce(server, tool, "old-one:1", protocol=0)
    command = ("apply", "0001", "--through", step, "--backup", str(tmp_path / "backup"), "--yes")

    stopped = shell(*command, exit=60)["stopped"]
    assert (stopped["phase"], stopped["exit"]) == (phase, 60)
    assert "1 adapter of an older protocol would be left behind: old-one:1 (version 0.0.1)" in stopped["reason"]
    assert stopped["next"].startswith("deploy these")
    assert any(risk["code"] == "old-adapters" for risk in shell("plan")["migrations"][0]["risks"])
    announce(server, tool, "old-one:1", protocol=0, ago=61)
    done = shell(*command)
    assert done["stopped"] is None
    assert any("no adapter was seen in the last 60 s" in note for note in done["notes"])


def test_where_an_adapter_is_alive_switch_has_nothing_to_add(server, tool):
    announce(server, tool, "new-one:1")
    assert tool.apply(through="switch").notes == ()


def test_an_adapter_with_another_version_of_the_module_bars_expand_and_shows_in_the_plan(server, tool):
    shell = Shell(server, tool.directory)
    shell("init")
    announce(server, tool, "stale:1", checksum="another")
    announce(server, tool, "gone:1", checksum="another", ago=61)

    [refused] = shell("plan", exit=60)["migrations"][0]["refused"]
    assert refused["code"] == "other-mapping"
    stopped = shell("apply", exit=60)["stopped"]
    assert stopped["phase"] == "pending"
    assert (
        "1 adapter with another version of the module would be refused from expanded on: stale:1" in stopped["reason"]
    )
    announce(server, tool, "stale:1")
    shell("apply")


def test_the_plan_says_whether_any_adapter_was_ever_seen(server, tool):
    def said():
        return [risk.text for risk in tool.plan().risks if risk.code == "no-adapter"]

    assert "no adapter has ever been announced" in said()[0]
    announce(server, tool, "gone:7", ago=300)
    assert said() == ["no adapter is alive; the last one seen was gone:7"]
    announce(server, tool, "here:1")
    assert said() == []


def test_status_counts_the_drift_that_the_last_comparison_found(server, tmp_path):
    """An application without an adapter wrote to the old shape after the switch: contract finds it and stops."""
    shell = Shell(server, write(tmp_path / "migrations", MEMBERS))
    put(server, OLD, {b"x": b"1", b"y": b"2"})
    shell("apply", "--through", "switch")
    assert shell("status")["migrations"][0]["drift"] is None  # the evidence of another epoch is none
    put(server, OLD, {b"x": b"9", b"z": b"3"})
    shell("apply", "--through", "contract", "--backup", str(tmp_path / "b"), "--yes", exit=30)
    drift = shell("status")["migrations"][0]["drift"]
    assert {name: drift[name] for name in ("compared", "missing", "extra", "different")} == {
        "compared": 3, "missing": 1, "extra": 0, "different": 1,
    }  # fmt: skip
    assert ": missing 1  different 1" in shell.text("status")


def test_what_an_application_without_an_adapter_writes_before_the_switch_is_carried_over_by_switch(server, tool):
    tool.apply()
    put(server, OLD, {b"x": b"7", b"late": b"3"})
    tool.apply(through="switch")
    assert sum(getattr(tool.verify(), fault) for fault in ("missing", "extra", "different")) == 0
    assert server.raw.zscore(b"{t}:sorted:a", b"late") == 3.0
