"""Ctrl-C and SIGTERM stop between batches; the same command goes on. The lease is free at once."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from migrator.scripts import script
from tests.proxy import Proxy
from tests.servers import wait_for
from tests.support import KEYS, MEMBERS, Shell, all_keys, own_keys, picture, put, write


@pytest.fixture
def shell(server, tmp_path):
    put(server, b"{t}:times:a", {b"field-%d" % n: b"%d" % n for n in range(6000)})
    return Shell(server, write(tmp_path / "migrations", MEMBERS))


def copied(place):
    return int(place.raw.execute_command("ZCARD", b"{t}:sorted:a"))


@pytest.mark.parametrize(
    ("number", "exit", "form"),
    [(signal.SIGINT, 130, "json"), (signal.SIGTERM, 143, "json"), (signal.SIGINT, 130, "text")],
)
def test_a_signal_stops_an_apply_which_goes_on_with_the_same_command(server, shell, start_migrator, number, exit, form):
    words = ["apply", "--rate", "3000", "--migrations", str(shell.directory), "--format", form]
    process = start_migrator(*words, url=server.url)
    wait_for(lambda: copied(server) > 1500, "a few batches")
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert process.returncode == exit
    assert "Traceback" not in err
    part = copied(server)
    assert 0 < part < 6000
    if form == "json":
        stopped = json.loads(out)["stopped"]
        assert (stopped["exit"], stopped["phase"]) == (exit, "expanded")
        assert "same command" in stopped["next"]
    else:
        assert "the checkpoint is saved" in out
    status = shell("status")["migrations"][0]
    since = part - status["tally"]["scanned"]  # copied after the checkpoint: one window on its way and one being filled
    assert 0 <= since < 4000
    assert status["owner"] is None
    resumed = shell("apply")
    tally = resumed["migrations"][0]["tally"]
    assert (tally["scanned"], tally["unchanged"]) == (6000, since)  # nothing else was looked at twice
    assert shell("verify", "0001")["missing"] == 0


def test_a_job_in_the_background_which_ignores_ctrl_c_hears_it_all_the_same(server, shell, start_migrator):
    # What a shell's `&` does to its children; the child of an ignoring process inherits that.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = start_migrator("apply", "--rate", "3000", "--migrations", str(shell.directory), url=server.url)
    finally:
        signal.signal(signal.SIGINT, before)
    wait_for(lambda: copied(server) > 0, "the first batch")
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130


def test_a_process_that_was_killed_leaves_a_lease_and_all_it_copied(server, shell, start_migrator):
    words = ("apply", "--rate", "3000", "--migrations", str(shell.directory))
    process = start_migrator(*words, url=server.url)
    wait_for(lambda: copied(server) > 0, "the first batch")
    process.kill()
    process.wait()
    told = shell.error("apply", exit=20, code="lease-held")
    token = told.rpartition(" ")[2]
    assert token
    assert str(process.pid) in told
    shell("lock", "break", token)
    assert shell("apply")["migrations"][0]["tally"]["scanned"] == 6000
    assert "no lease has the token" in shell.error("lock", "break", token, exit=60, code="refused")


def test_ctrl_c_ends_a_wait_for_redis(server, shell, start_migrator):
    nobody = "redis://127.0.0.1:9/0"
    process = start_migrator("apply", "--migrations", str(shell.directory), url=nobody)
    assert process.stderr is not None
    assert "waiting for Redis" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130


def test_a_contract_that_is_interrupted_goes_on(server, tmp_path, start_migrator):
    shell = Shell(server, write(tmp_path / "migrations", KEYS))
    for number in range(900):  # of which a batch takes 400
        put(server, b"{t}:text:%d" % number, b"text")
    before = picture(server)
    backup = ["--backup", str(tmp_path / "backup"), "--yes"]
    shell("apply", "--through", "switch")
    words = ["apply", "--through", "contract", *backup, "--migrations", str(shell.directory), "--format", "json"]
    with Proxy(server.behind.port) as proxy:
        held = proxy.hold(lambda command: script("retire").sha in command[:200])
        process = start_migrator(*words, url=proxy.url)
        held.wait(30)
        process.send_signal(signal.SIGTERM)
        held.release()
        out, err = process.communicate(timeout=20)
    assert process.returncode == 143, err
    stopped = json.loads(out)["stopped"]
    assert (stopped["exit"], stopped["phase"]) == (143, "contracted")
    assert any(key.startswith(b"{t}:text:") for key in all_keys(server))  # and it was not through
    shell("apply", "--through", "contract", *backup)
    assert own_keys(server) == set()
    assert len(picture(server)) == 900
    shell("rollback", "0001", "--to", "pending", *backup)
    assert picture(server) == before


@pytest.mark.parametrize(("number", "exit"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_modules_are_loaded_is_told_too(tmp_path, start_migrator, number, exit):
    begun = tmp_path / "begun"
    slow = f"import pathlib, time\npathlib.Path({str(begun)!r}).touch()\ntime.sleep(60)\n"
    words = ("--migrations", str(write(tmp_path / "migrations", slow)), "--format", "json")
    process = start_migrator("plan", *words)
    wait_for(begun.exists, "the module to be imported")
    process.send_signal(number)
    out, _ = process.communicate(timeout=20)
    assert (process.returncode, json.loads(out)["error"]["exit"]) == (exit, exit)


# A mapping that takes a minute over one record, while it is asked to.
SLOW = """
import pathlib, time
from migrator import KeyMove, Keys, MemberMove, Migration

def slow(name):
    if pathlib.Path("SLOW").exists() and name == b"slow":
        pathlib.Path("BEGUN").touch()
        time.sleep(60)
    return name
"""
SLOW_KEYS = f"""{SLOW}
migration = Migration(KeyMove(
    source=Keys("{{{{t}}}}:text:{{id}}", type="string"),
    target=Keys("{{{{t}}}}:hash:{{id}}", type="hash"),
    forward=lambda key, text: {{b"text": slow(text)}},
    inverse=lambda key, fields: fields[b"text"],
))
"""
SLOW_MEMBERS = f"""{SLOW}
migration = Migration(MemberMove(
    source=Keys("{{{{t}}}}:times:{{id}}", type="hash"),
    target=Keys("{{{{t}}}}:sorted:{{id}}", type="zset"),
    forward=lambda key, field, value: (slow(field), float(value)),
    inverse=lambda key, member, score: (member, b"%d" % score),
))
"""


@pytest.fixture
def slow(server, tmp_path):
    """Two records; the mapping is slow at one of them."""
    for text in (b"slow", b"other"):
        put(server, b"{t}:text:" + text, text)
    return slowly(server, tmp_path, SLOW_KEYS)


def slowly(server, tmp_path, source):
    (tmp_path / "slow").touch()
    source = source.replace("SLOW", str(tmp_path / "slow")).replace("BEGUN", str(tmp_path / "begun"))
    return Shell(server, write(tmp_path / "migrations", source))


def signalled(start_migrator, tmp_path, words, url, number, times=1):
    """Sends the signal while the mapping is at work; the process's exit code and its document."""
    process = start_migrator(*words, "--format", "json", url=url)
    wait_for((tmp_path / "begun").exists, "the mapping")
    for _ in range(times):
        process.send_signal(number)
        time.sleep(0.3)  # two at once would be heard as one
    out, err = process.communicate(timeout=20)
    assert "Traceback" not in err
    (tmp_path / "begun").unlink()
    return process.returncode, json.loads(out)


@pytest.mark.parametrize("command", [("plan",), ("verify", "0001")])
def test_a_signal_in_a_mapping_ends_what_only_reads(server, slow, tmp_path, start_migrator, command):
    if command[0] == "verify":
        (tmp_path / "slow").unlink()
        slow("apply")
        (tmp_path / "slow").touch()
    words = (*command, "--migrations", str(slow.directory))
    assert signalled(start_migrator, tmp_path, words, server.url, signal.SIGTERM)[0] == 143


@pytest.mark.parametrize("source", [SLOW_KEYS, SLOW_MEMBERS], ids=["key", "member"])
def test_a_second_signal_in_a_mapping_ends_an_apply_and_no_record_is_taken_for_bad(
    server, tmp_path, start_migrator, source
):
    put(server, b"{t}:text:a", b"slow")
    put(server, b"{t}:times:a", {b"slow": b"1"})
    shell = slowly(server, tmp_path, source)
    words = ("apply", "--migrations", str(shell.directory))
    exit, told = signalled(start_migrator, tmp_path, words, server.url, signal.SIGINT, times=2)
    assert (exit, told["stopped"]["exit"]) == (130, 130)
    assert shell("quarantine", "list", "0001")["records"] == []
    (tmp_path / "slow").unlink()
    tally = shell("apply")["migrations"][0]["tally"]
    assert (tally["scanned"], tally["quarantined"]) == (1, 0)


def test_a_signal_in_a_mapping_ends_a_dry_run(server, slow, tmp_path, start_migrator):
    file = tmp_path / "snapshot.ndjson.gz"
    slow("snapshot", "take", str(file), "--live-values")
    words = ("plan", "--snapshot", str(file), "--processes", "1", "--migrations", str(slow.directory))
    assert signalled(start_migrator, tmp_path, words, server.url, signal.SIGTERM, times=2)[0] == 143
