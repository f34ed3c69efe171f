"""Ctrl-C and SIGTERM stop between batches; the same command goes on. The lease is free at once."""

from __future__ import annotations

import json
import os
import signal

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
