"""Two at once, stalled holders, batches delivered late, replies lost: only the holder of the lease writes.

Who stalls, dies or is replaced is a real process, on a real server; what comes before and after it runs in this one.
"Nothing was written" means: every key of the server, ours too, dumps the same.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from migrator.scripts import script
from tests.chaos import HELD, JOBS, MIGRATIONS, STAMPS, Watch, totals
from tests.proxy import Hold, Predicate, Proxy
from tests.records import MAPS, Nodes, Records, job
from tests.servers import Place, Server, wait_for
from tests.support import in_process

NUMBER, STAMP_NUMBER = 1200, 3000
SLOW = ("--rate", "600")  # two seconds for the jobs
FENCED = 21
LEASE = b"migrator:{migrator}:lease"


class Scene:
    """A loaded server, and the command on it as processes."""

    def __init__(self, place: Place, start: Callable[..., Any], home: Path) -> None:
        assert isinstance(place.behind, Server)
        self.place, self.server, self._start, self.home = place, place.behind, start, home
        self.nodes = Nodes(place.behind)
        Records(NUMBER, STAMP_NUMBER).load(self.nodes)
        self.old = self.dumps()

    def start(self, *args: str, url: str = "", lease: str = "1") -> subprocess.Popen[str]:
        process: subprocess.Popen[str] = self._start(*args, *self._common(lease), url=url or self.place.url)
        return process

    def _common(self, lease: str) -> tuple[str, ...]:
        return ("--lease", lease, "--migrations", str(MIGRATIONS), "--format", "json")

    def apply(self, *args: str, through: str = "verify", url: str = "", **how: str) -> subprocess.Popen[str]:
        backup = str(self.home / "backup")
        return self.start("apply", *args, "--through", through, "--yes", "--backup", backup, url=url, **how)

    def finish(self, *args: str, url: str = "") -> Any:
        """Runs a command to its end, here; again while a dead one's lease still holds it off."""
        allowed = () if args[0] in ("lock", "verify") else ("--yes", "--backup", str(self.home / "backup"))
        words = (*args, *allowed, *self._common("1"))
        while (done := in_process(*words, url=url or self.place.url)).returncode == HELD:
            time.sleep(0.05)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def bury(self, process: subprocess.Popen[str]) -> None:
        """Kills it, and ends its lease now: that nobody has to wait for."""
        process.kill()
        self.place.raw.hset(LEASE, "expires_ms", 0)

    def wait_for_backfill(self) -> None:
        """Until a part of the jobs is copied, and by far not all."""
        watch = self.server.client()
        wait_for(lambda: watch.dbsize() > NUMBER + MAPS + 150, "the backfill to be under way")
        watch.close()

    def dumps(self) -> dict[bytes, Any]:
        """Every key there is: type, content and expiry."""
        keys = sorted(self.server.command("KEYS", "*"))
        words = {b"string": ("GET",), b"hash": ("HGETALL",), b"zset": ("ZRANGE", 0, -1, "WITHSCORES"),
                 b"set": ("SMEMBERS",), b"stream": ("XRANGE", "-", "+")}  # fmt: skip
        types = self.nodes.ask([(key, ("TYPE", key)) for key in keys])
        asked = [(words[t][0], key, *words[t][1:]) for key, t in zip(keys, types, strict=True)]
        contents = self.nodes.ask([(key, ask) for key, ask in zip(keys, asked, strict=True)])
        expiries = self.nodes.ask([(key, ("PEXPIRETIME", key)) for key in keys])
        whole = [sorted(c) if t in (b"hash", b"set") else c for t, c in zip(types, contents, strict=True)]
        return dict(zip(keys, zip(types, whole, expiries, strict=True), strict=True))

    def deliver(self, held: Hold) -> None:
        """Until the server has carried out what was held: a script, or a transaction to its end."""
        transactions = self._transactions()
        held.release()
        if held.reply().startswith(b"+QUEUED"):
            wait_for(lambda: self._transactions() > transactions, "the transaction to be delivered")

    def _transactions(self) -> int:
        return int(self.place.raw.info("commandstats").get("cmdstat_exec", {"calls": 0})["calls"])

    def check_contracted(self, result: Any) -> None:
        assert (result["stopped"], len(result["migrations"]) in (1, 2)) == (None, True)
        for one, number in zip(result["migrations"], (NUMBER, STAMP_NUMBER), strict=False):
            tally = one["tally"]
            assert one["phase"] == "contracted"
            assert tally["scanned"] == tally["moved"] + tally["unchanged"] >= number
        wanted = [job(number) for number in range(NUMBER)]
        found = self.nodes.ask([(one.key, ("HGETALL", one.key)) for one in wanted])
        for one, flat in zip(wanted, found, strict=True):
            assert dict(zip(flat[::2], flat[1::2], strict=True)) == one.fields


@pytest.fixture
def scene(server: Place, start_migrator: Callable[..., Any], tmp_path: Path) -> Scene:
    return Scene(server, start_migrator, tmp_path)


@pytest.fixture
def proxy(scene: Scene) -> Iterator[Proxy]:
    with Proxy(scene.server.port) as proxy:
        yield proxy


_FIRST = {"multi": b"HSET", "window": b"ZADD", "alike": b"GET"}


def calls(name: str) -> Predicate:
    """A script; or the first command of a transaction or a comparison, with all that follows it."""
    if name in _FIRST:
        return lambda command: b"\r\n%b\r\n" % _FIRST[name] in command[:20]
    sha = script(name).sha
    return lambda command: sha in command[:200] and b"EVALSHA" in command[:30]


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out + err


def test_a_second_apply_ends_at_once_and_says_who_is_at_work_and_for_how_long(scene):
    first = scene.apply("0001", *SLOW, lease="30")
    scene.wait_for_backfill()
    begun = time.monotonic()
    code, said = end(scene.apply("0001"))
    assert code == HELD
    assert f"{socket.gethostname()}:{first.pid} holds the lease for another" in said
    assert time.monotonic() - begun < 10
    assert end(first)[0] == 0


def test_a_holder_that_stalled_beyond_its_lease_writes_nothing_after_it_was_replaced(scene):
    first = scene.apply(*SLOW)
    scene.wait_for_backfill()
    first.send_signal(signal.SIGSTOP)
    scene.check_contracted(scene.finish("apply", "--through", "contract"))
    before = scene.dumps()
    first.send_signal(signal.SIGCONT)
    assert end(first)[0] == FENCED
    assert scene.dumps() == before


def test_a_holder_that_stalled_in_the_middle_of_contract_does_not_touch_the_backup_either(scene, proxy):
    held = proxy.hold(lambda command: b"PEXPIRETIME" in command[:40])  # the old records are read, nothing is saved yet
    scene.finish("apply", "0001", "--through", "switch")
    first = scene.apply("0001", through="contract", url=proxy.url)
    held.wait(30)
    first.send_signal(signal.SIGSTOP)
    held.release()
    scene.check_contracted(scene.finish("apply", "0001", "--through", "contract"))
    before, files = scene.dumps(), contents(scene.home)
    first.send_signal(signal.SIGCONT)
    assert end(first)[0] == FENCED
    assert scene.dumps() == before
    assert contents(scene.home) == files


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file() and path.suffix != ".tmp"}


# What is held, what was done before, in which command it comes.
HELD_BATCHES = {
    "multi": ("", "verify"), "window": ("", "verify"), "marker": ("", "verify"), "leased": ("", "verify"),
    "fence": ("expand", "verify"), "drop": ("backfill", "verify"), "drop_members": ("backfill", "verify"),
    "retire": ("switch", "contract"), "unlink": ("switch", "contract"),
}  # fmt: skip


@pytest.mark.parametrize("name", HELD_BATCHES)
def test_a_batch_of_a_dead_process_that_comes_after_contract_writes_nothing(scene, proxy, name):
    before, through = HELD_BATCHES[name]
    if before:
        scene.finish("apply", "--through", before)
    if name.startswith("drop"):
        scene.place.raw.hset("migrator:staged:" + JOBS + ":{ae:job:00000000-0000-4000-8000-000000000000}", "x", "y")
        scene.place.raw.zadd("map:m3:__meta:timestamps-sorted", {"extra": 1.0})
    held = proxy.hold(calls(name))
    first = scene.apply(through=through, url=proxy.url)
    held.wait(30)
    scene.bury(first)
    scene.check_contracted(scene.finish("apply", "--through", "contract"))
    if name == "retire":
        scene.finish("rollback", "0001", "--to", "switched")  # the old records are there again to be set aside
    picture = scene.dumps()
    scene.deliver(held)
    assert b"NOSCRIPT" not in held.reply()
    if name in _FIRST:
        assert held.reply().startswith(b"+QUEUED")  # and `deliver` has waited for its EXEC
    if name == "unlink":  # what it names is gone by then, and no picture tells whether it was refused
        assert b"fenced" in held.reply()
    assert scene.dumps() == picture


@pytest.mark.parametrize("name", ["copy", "copy_members", "multi", "window"])
def test_a_batch_that_comes_after_a_rollback_to_pending_writes_nothing(scene, proxy, name):
    quick = {"copy": "multi", "copy_members": "window"}.get(name, name)
    if name != quick:
        scene.place.raw.script_load(script(name).text)
    held = proxy.hold(calls(quick))
    first = scene.apply(url=proxy.url)
    held.wait(30)
    if name != quick:  # what is not so plain any more is compared
        for id in (JOBS, STAMPS):
            scene.place.raw.hincrby(f"migrator:marker:{id}:{{0}}", "deletes", 1)
        held, plain = proxy.hold(calls(name)), held
        plain.release()
        held.wait(30)
    scene.bury(first)
    for id in ("0001", "0002"):
        scene.finish("rollback", id, "--to", "pending")
    picture = scene.dumps()
    assert {k: v for k, v in picture.items() if not k.startswith(b"migrator:")} == scene.old
    scene.deliver(held)
    if name == quick:
        assert held.reply().startswith(b"+QUEUED")  # and `deliver` has waited for its EXEC
    else:
        assert b"fenced" in held.reply() or b"phase" in held.reply()
    assert scene.dumps() == picture


def test_a_lease_that_ran_out_without_a_rival_is_taken_up_again(scene):
    first = scene.apply("0001", *SLOW, through="backfill")
    scene.wait_for_backfill()
    first.send_signal(signal.SIGSTOP)
    wait_for(lambda: int(scene.place.raw.hget(LEASE, "expires_ms")) < time.time() * 1000 - 500, "the lease to end")
    first.send_signal(signal.SIGCONT)
    assert end(first)[0] == 0


def test_a_broken_lease_stops_its_holder(scene):
    first = scene.apply("0001", *SLOW, lease="30")
    scene.wait_for_backfill()
    assert end(scene.start("lock", "break", scene.finish("lock", "show")["token"]))[0] == 0
    copied = scene.server.size()
    assert end(first)[0] == FENCED
    assert scene.server.size() - copied <= 0
    assert scene.finish("apply", "0001")["stopped"] is None


@pytest.mark.parametrize("name", ["lease_take", "fence", "marker_init", "marker", "leased", "multi", "window",
                                  "alike", "pair", "retire", "unlink"])  # fmt: skip
def test_a_reply_that_is_lost_changes_nothing(scene, proxy, name):
    if name not in _FIRST:  # else what is lost says no more than that the script is not known yet
        scene.place.raw.script_load(script(name).text)
    if name == "pair":  # which is asked of what is not plainly alike
        scene.finish("apply", "--through", "backfill")
        scene.place.raw.hset(b"migrator:staged:%s:{%s}" % (JOBS.encode(), job(0).key), "Name", "another")
    proxy.lose_reply(calls(name))
    result = scene.finish("apply", "--through", "contract", url=proxy.url)
    assert proxy._losing is None, "nothing was lost"
    scene.check_contracted(result)


def test_scripts_flushed_again_and_again_are_sent_again(scene):
    first = scene.apply("0001", through="contract", lease="30")
    flushed = 0
    while first.poll() is None:
        scene.place.raw.script_flush()
        flushed += 1
        time.sleep(0.05)
    code, said = end(first)
    assert (code, flushed > 10) == (0, True), said
    scene.check_contracted(json.JSONDecoder().raw_decode(said)[0])


def test_the_watch_sees_a_backfill(scene):
    watch = Watch(scene.server, totals(NUMBER, STAMP_NUMBER, MAPS))
    scene.finish("apply", "--through", "backfill")
    assert watch._walked(JOBS, "copy-0", 1) == (NUMBER, True)
    assert watch._walked(STAMPS, "copy-0", 1) == (STAMP_NUMBER, True)
    watch.close()
