"""The commands about snapshots, as they are typed: what they print, what they leave, and what never leaves."""

from __future__ import annotations

import gzip
import signal
from pathlib import Path

import pytest

from migrator.cli.render_snapshots import as_text
from migrator.models import FamilyInfo, SnapshotInfo
from migrator.names import Names
from tests.servers import Server, binary, wait_for
from tests.snapshots import FAR, fill
from tests.support import Shell, guid, in_process, job, put, shipped

SECRETS = ("s3cretPassword", "BearerTokenOfAda", "cardOfAda", "resultForAda", "cookieMonster", "stackOfFrames",
           "mailOfAda", "streamedPayload", "listedPayload", "memberPayload")  # fmt: skip


@pytest.fixture
def shell(server, tmp_path):
    return Shell(server, shipped(tmp_path / "migrations"))


def secretly(raw):
    """Secrets wherever the systems of the documents keep them."""
    raw.set(f"ae:job:{guid(1)}", job(
        guid(1), headers={"Authorization": ["BearerTokenOfAda"], "Cookie": ["sid=cookieMonster"]},
        payload='{"card":"cardOfAda","n":17}', result="resultForAda",
        error={"code": "E", "message": "x", "exception": {"type": "T", "stackTrace": "stackOfFrames"}},
    ))  # fmt: skip
    raw.hset(
        "task:7", mapping={"payload": '{"to":"mailOfAda"}', "Headers": '{"X":["BearerTokenOfAda"]}', "status": "new"}
    )
    raw.set("task:8", '"{\\"payload\\":{\\"to\\":\\"mailOfAda\\"}}"')
    raw.set("binary", b"\xff\xferesultForAda\x00")
    raw.set("truncated", '{"payload":"cardOfAda')
    raw.xadd("stream", {"payload": "streamedPayload"})
    raw.rpush("list", '{"args":["listedPayload"]}', "listedPayload")
    raw.zadd("retry", {'{"args":["memberPayload"]}': 1.5, "memberPayload": 2})
    raw.sadd("set", "memberPayload")


def test_no_secret_of_the_source_leaves_it(tmp_path, run_migrator, monkeypatch):
    monkeypatch.chdir(tmp_path)
    modules = ("--migrations", str(shipped(tmp_path / "migrations")))
    with Server(binary(), requirepass="s3cretPassword") as source, Server(binary()) as target:
        with source.client() as raw:
            secretly(raw)
        said = [run_migrator("snapshot", "take", "file.ndjson.gz", *modules, url=source.url, cwd=tmp_path)]
        for words, url in (
            (("take", "file.ndjson", "--sample", "100", "--format", "json"), source.url),
            (("take", "file.ndjson"), source.url),  # refused: it is there
            (("take", "other.ndjson"), source.url.replace("s3cretPassword", "s3cretPasswordNot")),
            (("load", "file.ndjson.gz"), target.url),
            (("load", "file.ndjson.gz"), target.url),  # refused: they are there
            (("info", "file.ndjson.gz"), target.url),
            (("info", "file.ndjson", "--format", "json"), target.url),
        ):
            said.append(in_process("snapshot", *words, *modules, "--retry", "0", url=url))
        assert [done.returncode for done in said] == [0, 0, 60, 3, 0, 60, 0, 0]
        plain = gzip.decompress(Path("file.ndjson.gz").read_bytes()) + Path("file.ndjson").read_bytes()
        everything = plain.decode() + "".join(done.stdout + done.stderr for done in said)
        assert [secret for secret in SECRETS if secret in everything] == []
        # They are found where they are: this test can fail.
        in_process("snapshot", "take", "live", "--live-values", *modules, url=source.url)
        live = Path("live").read_text()
        assert [secret for secret in SECRETS if secret not in live] == ["s3cretPassword"]


def test_no_secret_leaves_that_lies_under_the_namespace_and_a_plan_refuses_it(shell, server, tmp_path):
    """Where an ACL allows `~ae:*` alone, `ae` is what one would choose."""
    secretly(server.raw)
    put(server, b"ae:{ae}:sessions", {b"7": b"cookieMonster"})
    file, under = tmp_path / "file", ("--namespace", "ae")
    assert shell("snapshot", "take", str(file), *under)["redacted"] is True
    assert [secret for secret in SECRETS if secret in file.read_text()] == []
    assert f'"ae:job:{guid(1)}"' in file.read_text()
    assert {one["family"] for one in shell("snapshot", "info", str(file), *under)["families"]} >= {"ae:job:{id}"}
    [refused] = shell("plan", "0001", *under, exit=60)["migrations"][0]["refused"]
    assert (refused["code"], "ae:job:{id}" in refused["text"]) == ("namespace", True)
    assert refused["next"] == "choose another, for instance --namespace ae:migrator, for the adapters too"
    assert "begin like this tool's own" in shell("apply", "0001", *under, exit=60)["stopped"]["reason"]
    shell("apply", "0001", "--namespace", "ae:migrator", "--through", "expand")


def test_what_was_in_quarantine_cannot_be_tried_out(shell, server, tmp_path):
    put(server, f"ae:job:{guid(1)}".encode(), job(guid(1), status="cookieMonster"))
    shell("apply", "0001", "--yes", exit=32)
    shell("quarantine", "accept", "0001", "--all")
    [record] = server.raw.hvals(Names("migrator").quarantine("0001_jobs_to_hashes"))
    digests = {word for word in record.decode().split('"') if len(word) == 32}
    assert len(digests) == 1
    shell("snapshot", "take", str(tmp_path / "live"), "--live-values")
    shell("snapshot", "take", str(tmp_path / "file"))
    assert [max(digests) in (tmp_path / name).read_text() for name in ("live", "file")] == [True, False]


def test_take_load_and_info_in_json(shell, server, tmp_path):
    file = str(tmp_path / "file.ndjson.gz")
    fill(server.raw.execute_command, many=1100)
    taken = shell("snapshot", "take", file)
    assert (taken["records"], taken["redacted"], taken["sample"], taken["databases"]) == (17, True, None, [0])
    found = shell("snapshot", "info", file)
    assert (found["records"], found["redacted"], found["databases"]) == (17, True, {"0": 17})
    assert found["server"].startswith("valkey 9")
    families = {(one["family"], one["type"]): one for one in found["families"]}
    wide, stream = families["wide", "hash"], families["stream", "stream"]
    assert (wide["keys"], wide["members"], wide["field_expiries"], wide["with_expiry"]) == (1, 1100, 2, 0)
    assert (stream["members"], families["long", "list"]["with_expiry"]) == (547, 1)
    assert families["text", "string"]["bytes"] == len('a "text" with \\ and \u00fc'.encode())
    assert (found["first_expiry"], found["last_expiry"]) == (
        "2100-01-01T00:00:00.000+00:00",
        "2100-01-01T00:00:00.123+00:00",
    )
    assert [one["key"] for one in found["largest"]][:3] == ["ranks", "wide", "many"]
    assert [one["bytes"] for one in found["largest"]] == sorted(
        (one["bytes"] for one in found["largest"]), reverse=True
    )
    told = shell.error("snapshot", "load", file, exit=60, code="refused")
    assert "17 keys of the snapshot are there already" in told
    assert shell("snapshot", "load", file, "--replace") == {"records": 17, "expired": 0, "not_visible": 0, "notes": []}


def test_the_same_in_text(shell, server, tmp_path):
    file = str(tmp_path / "file")
    put(server, f"ae:job:{guid(1)}".encode(), job(guid(1)))
    put(server, b"soon", b"v")
    server.raw.pexpireat("soon", FAR)
    told = shell.text("snapshot", "take", file, "--sample", "50%")
    assert "wrote" in told
    assert "a sample: about 50 % of the keys" in told
    assert "ae:job:{id}" in told
    assert "values are redacted" in told
    assert "TAKE CARE: this file holds values as they were" in shell.text(
        "snapshot", "take", file, "--live-values", "--overwrite"
    )
    server.raw.flushall()
    passed(file)
    assert "loaded 1 record\nexpired, not loaded: 1" in shell.text("snapshot", "load", file)
    found = shell.text("snapshot", "info", file)
    assert "2 records" in found
    assert "secrets among them" in " ".join(found.split())


def test_what_is_in_a_snapshot_fits_the_width_of_a_terminal():
    families = [
        FamilyInfo(family=name, type=type, keys=number, members=number, bytes=999_900_000, with_expiry=number,
                   field_expiries=number // 1000, largest=999_900_000)
        for name, type in (("map:{name}:__meta:timestamps-sorted", "stream"), ("f", "string"), ("x" * 60, "hash"))
        for number in (1, 12_345_678)
    ]  # fmt: skip
    told = as_text(SnapshotInfo(file="f", bytes=1, lines=1, records=1, databases={}, first_expiry=None,
                                last_expiry=None, families=tuple(families), largest=()))  # fmt: skip
    assert max(map(len, told.splitlines())) <= 80
    assert "fields 12,345" in told


def test_databases_are_chosen_by_number_or_all(shell, server, tmp_path):
    for db in (0, 2, 9):
        with server.behind.client(db=db) as raw:
            raw.set(f"k{db}", "v")
    assert shell("snapshot", "take", str(tmp_path / "1"))["databases"] == [0]
    assert shell("snapshot", "take", str(tmp_path / "2"), "--db", "2", "--db", "9")["databases"] == [2, 9]
    assert shell("snapshot", "take", str(tmp_path / "3"), "--db", "all")["databases"] == [0, 2, 9]
    assert shell("snapshot", "take", str(tmp_path / "4"), url=f"{server.url[:-1]}2")["databases"] == [2]
    assert [shell("snapshot", "info", str(tmp_path / name))["records"] for name in "1234"] == [1, 2, 3, 1]


@pytest.mark.parametrize(("words", "exit", "code", "fact"), [
    (("take", "f", "--sample", "lots"), 2, "usage", "--sample is a share"),
    (("take", "f", "--db", "-1"), 2, "usage", "--db is the number"),
    (("take", "f", "--db", "99"), 60, "refused", "no database 99"),
    (("take", "f", "--rate", "-1"), 2, "usage", "rate"),
    (("take",), 2, "usage", "FILE"),
    (("load", "none"), 2, "usage", "cannot read none: No such file"),
    (("info", "none"), 2, "usage", "cannot read none: No such file"),
    (("info", "."), 2, "usage", "cannot read .: Is a directory"),
    (("take", "no/such/file"), 2, "usage", "there is no directory no/such"),
])  # fmt: skip
def test_bad_input_is_told_with_a_next_step(shell, tmp_path, monkeypatch, words, exit, code, fact):
    monkeypatch.chdir(tmp_path)
    assert fact in shell.error("snapshot", *words, exit=exit, code=code)


def test_a_cluster_is_one_database(cluster, tmp_path):
    shell = Shell(cluster, shipped(tmp_path / "migrations"))
    put(cluster, b"k", b"v")
    assert shell("snapshot", "take", str(tmp_path / "f"), "--db", "all")["records"] == 1
    told = shell.error("snapshot", "take", str(tmp_path / "g"), "--db", "1", exit=60, code="refused")
    assert "of a cluster only database 0" in told


def test_a_snapshot_needs_no_migrations(server, tmp_path):
    put(server, b"user:7", b"v")
    file = str(tmp_path / "f")
    assert (
        Shell(server, tmp_path / "none")("snapshot", "take", file, "--sample", "9")["families"][0]["family"]
        == "user:{n}"
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_no_file(server, tmp_path, start_migrator, number):
    for i in range(50):
        put(server, b"k%d" % i, b"v")
    process = start_migrator("snapshot", "take", "f", "--rate", "10", url=server.url, cwd=tmp_path)
    wait_for(lambda: list(tmp_path.glob(".f.*.tmp")) != [], "the file to be begun")
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, list(tmp_path.iterdir())) == (128 + number, [])
    assert "stopped by" in err


@pytest.mark.parametrize("begun", [True, False])
def test_a_load_that_was_stopped_says_how_to_go_on(shell, server, tmp_path, monkeypatch, begun):
    from migrator.engine.observe import Stop

    for i in range(1200):
        put(server, b"k%d" % i, b"v")
    file = str(tmp_path / "f")
    shell("snapshot", "take", file)
    server.raw.flushall()
    again = f"part of it is loaded; whole with: migrator snapshot load {file} --replace"
    with monkeypatch.context() as stopping:
        stopping.setattr(Stop, "check", lambda self: None if begun and not server.raw.dbsize() else _interrupt())
        told = shell("snapshot", "load", file, exit=130)["error"]
        expected = again if begun else "nothing was loaded; run the same command again"
        assert (told["code"], told["next"]) == ("interrupted", expected)
    assert (0 < server.raw.dbsize() < 1200) == begun
    shell("snapshot", "load", file, *(["--replace"] if begun else []))
    assert server.raw.dbsize() == 1200


def _interrupt():
    from migrator.errors import InterruptedRunError

    raise InterruptedRunError(2)


def passed(file):
    """A time that was to come has passed."""
    text = Path(file).read_text()
    assert str(FAR) in text
    Path(file).write_text(text.replace(str(FAR), "1700000000000"))


def test_an_expired_field_is_left_out_and_said(shell, server, tmp_path):
    server.raw.hset("h", mapping={"soon": 1, "later": 2, "never": 3})
    server.raw.hpexpireat("h", FAR, "soon")
    server.raw.hpexpireat("h", FAR + 1, "later")
    file = str(tmp_path / "f")
    shell("snapshot", "take", file)
    server.raw.flushall()
    passed(file)
    loaded = shell("snapshot", "load", file)
    assert loaded["notes"] == ["left out, because its time had passed: 1 hash field"]
    assert server.raw.hgetall("h") == {b"later": b"2", b"never": b"3"}
