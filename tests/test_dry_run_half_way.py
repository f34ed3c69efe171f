"""A redacted snapshot from the middle of a migration: both shapes still agree, and `plan --snapshot` goes on."""

from __future__ import annotations

import pytest

from migrator.engine import decide
from migrator.moves.loader import load
from migrator.snapshot.families import Families
from migrator.snapshot.redaction import Redaction
from tests.snapshots import NAMES, taken
from tests.support import MEMBERS, Shell, Tool, guid, job, put, shipped, tool_for
from tests.test_snapshot_redaction import SAMPLES
from tests.trial import MAP, TICKS, Tried, job_key

# Errors are text in which a mapping adds words of its own, nested JSON, escapes that the new shape spells otherwise.
ERRORS = ["the host is gone", "UNKNOWN", {"code": "TIMEOUT", "message": "no “answer”\n", "exception": None}, None]


@pytest.mark.parametrize("through", ["expand", "verify", "switch", "contract"])
def test_a_snapshot_from_the_middle_of_a_migration_that_adopted_targets_is_refused(server, tmp_path, through):
    """What was under their names is in a backup alone, and the way back looks for it."""
    put(server, b"{t}:times:a", {b"a": b"1"})
    put(server, b"{t}:sorted:a", {b"a": 9.0})
    tool = tool_for(server, tmp_path, MEMBERS)
    shell = Shell(server, tool.directory)
    shell("init", "0001", "--at", "pending", "--yes")
    tool.apply(through=through)
    snapshot = tmp_path / "s.ndjson"
    shell("snapshot", "take", str(snapshot))
    tried = Tried(tool.directory, snapshot)
    if through == "contract":  # there is no way back to be tried
        assert tried()["migrations"][0]["reached"] == "contracted"
        return
    plan = tried.plan(exit=60)
    [refused] = plan["migrations"][0]["refused"]
    assert (refused["code"], plan["snapshot"]["stopped"]) == ("half-way", [])
    assert "over target keys that were there before" in refused["text"]
    assert "then take another snapshot" in refused["next"]
    told = tried.shell.error("rehearse", "--snapshot", str(snapshot), exit=60, code="refused")
    assert "over target keys that were there before" in told


@pytest.mark.parametrize("through", ["expand", "backfill", "verify", "switch"])
def test_both_shapes_agree_in_a_redacted_snapshot_from_the_middle(server, tmp_path, through):
    for record in SAMPLES:
        put(server, record.key, record.text)
    for n, error in enumerate(ERRORS):
        put(server, job_key(10**6 + n), job(guid(10**6 + n), error=error, name="Ada Lovelace", payload='{"a":"Grüße"}'))
    put(server, MAP, {b"ada": b"%d" % TICKS, b"alan": b"%d" % (TICKS + 1)})
    tool = Tool(server, shipped(tmp_path / "m"), tmp_path / "b")
    if through != "expand":
        tool.apply(through="backfill")
        decide.quarantine_accept(tool.session(), "0001", everything=True)
    tool.apply(through=through)
    families = Families(NAMES, [module.migration for module in load(tool.directory).all])
    taken(server, tmp_path / "s.ndjson", families, redaction=Redaction())
    assert b"Lovelace" not in (tmp_path / "s.ndjson").read_bytes()
    report = Tried(tool.directory, tmp_path / "s.ndjson")(exit=32)
    assert (report["differing"], report["stopped"]) == (0, [])
    assert [one["reached"] for one in report["migrations"]] == ["contracted"] * 2


@pytest.mark.parametrize("redaction", [Redaction(), None], ids=["redacted", "plain"])
@pytest.mark.parametrize("processes", ["1", "3"])
def test_what_is_in_quarantine_half_way_is_counted_once(server, tmp_path, processes, redaction):
    """Redacted, what was accepted there is listed again, and with it what is accepted here; the ledger is in each
    share."""
    for n in range(9):
        put(server, b"{t}:times:%d" % n, {b"good": b"1", **({b"bad": b"soon"} if n < 3 else {})})
    tool = tool_for(server, tmp_path, MEMBERS)
    tool.apply(through="backfill")
    if redaction is not None:
        Shell(server, tool.directory)("quarantine", "accept", "0001", "{t}:times:0")
    families = Families(NAMES, [module.migration for module in load(tool.directory).all])
    taken(server, tmp_path / "s.ndjson", families, redaction=redaction)
    report = Tried(tool.directory, tmp_path / "s.ndjson")("--processes", processes, exit=32)
    assert (report["rejected"], report["differing"], report["stopped"]) == (3, 0, [])
    [reason] = report["migrations"][0]["reasons"]
    assert (reason["count"], reason["key"], reason["member"]) == (3, "{t}:times:0", "bad")
