"""A run leaves the server alone while it is in need, says why, and is small beside an application."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from migrator.client import connect
from migrator.engine.load import MB, PRODUCTION, Limits, Load, reasons
from migrator.engine.throttle import Throttle
from migrator.engine.walk import Progress, Visit, Walk
from migrator.errors import StoppedByLoadError
from tests.conftest import Servers
from tests.servers import Server, binary, wait_for
from tests.support import KEYS, MEMBERS, Shell, put, tool_for, write

QUIET = Load({"used_memory": "10", "mem_clients_normal": "0", "evicted_keys": "5"}, 0.001)


def why(facts: dict[str, str], ping: float = 0.001, limits: Limits = PRODUCTION) -> list[str]:
    return list(reasons(Load({**QUIET.facts, **facts}, ping), QUIET, QUIET, limits))


@pytest.mark.parametrize(
    ("reason", "facts"),
    [
        ("replica r:7 is 40 MB behind", {"slave0": f"ip=r,port=7,state=online,offset={10 * MB},lag=0"}),
        ("replica r:7 has not answered for 11 s", {"slave0": f"ip=r,port=7,state=online,offset={49 * MB},lag=11"}),
        ("memory is near its limit: 96 of 100 MB", {"used_memory": str(96 * MB), "maxmemory": str(100 * MB)}),
        ("keys are being evicted: 3 since the last look", {"evicted_keys": "8"}),
        ("a save is under way (BGSAVE), and every write costs memory twice", {"rdb_bgsave_in_progress": "1"}),
        (
            "the append-only file is being rewritten, and every write costs memory twice",
            {"aof_rewrite_in_progress": "1"},
        ),
        ("clients do not read their answers: 65 MB wait for them", {"mem_clients_normal": str(65 * MB)}),
    ],
)
def test_each_need_is_a_reason_in_words(reason, facts):
    assert why({"connected_slaves": "1", "master_repl_offset": str(50 * MB), **facts}) == [reason]


def test_a_slow_ping_is_a_reason():
    assert why({}, ping=0.06) == ["it answers slowly: 60 ms for a PING, 1.0 at best"]


def test_nothing_is_a_reason_just_below_the_limits():
    facts = {
        "connected_slaves": "2",
        "master_repl_offset": str(32 * MB),
        "slave0": "ip=r,port=7,state=online,offset=0,lag=10",
        "slave1": "ip=r,port=8,state=wait_bgsave,offset=0,lag=99",
        "used_memory": str(95 * MB),
        "maxmemory": str(100 * MB),
        "mem_clients_normal": str(64 * MB),
    }
    assert why(facts, ping=0.05) == []


def test_a_server_that_says_nothing_is_no_reason():
    assert list(reasons(Load({}, 0.0), Load({}, 0.0), Load({}, 0.0), PRODUCTION)) == []


class Watched:
    """A throttle on a server, asked without end; what it told."""

    def __init__(self, server: Server, **limits: Any) -> None:
        self.told: list[str] = []
        self.client = connect(server.url)
        self.throttle = Throttle(self.client, replace(PRODUCTION, **limits), self.told.append)

    def look(self, records: int = 0) -> None:
        self.throttle._due = 0.0
        self.throttle.between(self.client.nodes()[0], records, lambda: None)

    def watch(self) -> None:
        for _ in range(50):
            self.look()
            time.sleep(0.1)  # the server counts what waits for its clients ten times a second


@pytest.fixture
def here(servers: Servers) -> Server:
    return servers.single("valkey9")


@contextmanager
def beside(work: Callable[[], object]) -> Iterator[None]:
    """Does it again and again meanwhile."""
    over = threading.Event()

    def again() -> None:
        while not over.is_set():
            work()

    thread = threading.Thread(target=again)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_it_pauses_until_the_replica_has_caught_up():
    with Server(binary()) as primary, Server(binary()) as replica, primary.client() as raw:
        primary.command("CONFIG", "SET", "repl-diskless-sync-delay", 0)
        primary.command("CONFIG", "SET", "client-output-buffer-limit", "replica 0 0 0")
        replica.command("REPLICAOF", "127.0.0.1", primary.port)
        wait_for(lambda: replica.command("ROLE")[3] == b"connected", "the replica to be linked")
        watched = Watched(primary, replica_bytes=4 * MB)
        watched.look()
        assert watched.told == []
        replica.pause()
        for n in range(6):
            raw.set(f"large:{n}", b"x" * MB)
        threading.Timer(0.5, replica.resume).start()
        watched.look()
        assert watched.told[0] == f"replica 127.0.0.1:{replica.port} is 6 MB behind"
        assert watched.told[-1] == ""


def test_it_pauses_while_keys_are_evicted(here):
    with here.client() as raw:
        watched = Watched(here, memory=9.0)
        watched.look()
        raw.config_set("maxmemory-policy", "volatile-lru")
        raw.config_set("maxmemory", raw.info("memory")["used_memory"] + 2 * MB)
        for n in range(60):
            raw.set(f"mortal:{n}", b"x" * 100_000, ex=1000)
        watched.look()
    assert watched.told[0].startswith("keys are being evicted: ")
    assert watched.told[-1] == ""


def test_it_pauses_while_the_server_answers_slowly(here):
    busy = "local t = redis.call('TIME'); local n = 0; for i = 1, 15000000 do n = n + 1 end; return n"
    with here.client() as raw:
        watched = Watched(here, latency=0.02, longest=1.0)
        watched.look()
        assert watched.told == []
        with beside(lambda: raw.eval(busy, 0)), pytest.raises(StoppedByLoadError, match="it answers slowly"):
            watched.watch()
    watched.look()
    assert watched.told[-1] == ""


def test_it_pauses_while_clients_do_not_read(here):
    with here.client() as raw, socket.create_connection(("127.0.0.1", here.port)) as deaf:
        raw.rpush("large", *[b"x" * 1000] * 1000)
        watched = Watched(here, buffers=8 * MB, longest=0.5)
        watched.look()
        deaf.sendall(b"LRANGE large 0 -1\r\n" * 30)
        with pytest.raises(StoppedByLoadError, match=r"clients do not read their answers: \d+ MB"):
            watched.watch()


def test_it_never_pauses_where_that_was_asked_for(here):
    with here.client() as raw:
        raw.config_set("maxmemory", raw.info("memory")["used_memory"] + 1000)
        watched = Watched(here, longest=None)
        watched.look()
    assert watched.told == []


def test_batches_are_small_beside_an_application_and_large_without_one(here):
    watched = Watched(here)
    with here.client() as raw:
        raw.mset({f"k:{n}": n for n in range(100)})
        script = raw.register_script("for i = 1, 1000 do redis.call('SET', KEYS[1], i) end")

        def worked() -> int:
            script(keys=["ours"])
            watched.look(1000)
            time.sleep(0.05)
            return watched.throttle.at_once(100_000, 1)

        with beside(lambda: raw.get("k:1")):
            shared = [worked() for _ in range(4)][-1]
        worked()  # of this look, a part was still beside it
        worked()
        alone = watched.throttle.at_once(100_000, 1)
    assert 1 < shared < alone / 3


def test_it_begins_gently_before_it_knows_what_a_record_costs(here):
    slept: list[float] = []
    client = connect(here.url)
    for limits, rests in ((PRODUCTION, True), (replace(PRODUCTION, longest=None), False)):
        throttle = Throttle(client, limits, lambda _: None, sleep=slept.append)
        throttle.between(client.nodes()[0], 100, lambda: None)
        assert (throttle.at_once(100_000, 1) < 100, sum(slept) > 0.001) == (rests, rests)
        slept.clear()


class Busy:
    """A server whose others run scripts for a share of the time. The clock is ours."""

    def __init__(self, share: float = 0.0) -> None:
        self.links: Any = cast(Any, self)
        self.share, self.sent, self.written = share, 0, 0.0
        self.now = 0.0
        self.throttle = Throttle(self.links, PRODUCTION, lambda _: None, sleep=self.sleep, clock=lambda: self.now)

    def on_node(self, _: object, *words: tuple[str, ...]) -> tuple[bytes, ...]:
        usec = int(self.now * 1e6 * self.share + self.written)
        told = f"total_net_input_bytes:{int(self.now * 1e6)}\r\ncmdstat_evalsha:calls=1,usec={usec},usec_per_call=1\r\n"
        return tuple(told.encode() if word[0] == "INFO" else b"PONG" for word in words)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def work(self, records: int, each: float) -> None:
        """Records of ours, each so many µs of the server's time; to read one takes 20 µs more."""
        until = self.now + 300
        while records > 0 and self.now < until:
            batch = self.throttle.at_once(1000, 10)
            self.written += each * batch
            self.sleep(batch * (each + 20) / 1e6)
            self.throttle.between(self.links, batch, lambda: None)
            records -= batch
        assert records <= 0


def test_rests_do_not_grow_with_what_others_run_in_scripts():
    Busy(share=0.5).work(100_000, each=20)


@pytest.mark.parametrize(("each", "anew"), [(2, True), (0.15, False)], ids=["another walk", "only read"])
def test_what_was_cheap_before_does_not_hurry_the_writing_of_records(each, anew):
    busy = Busy()
    busy.work(100_000, each)
    if anew:
        busy.throttle.begin()
    busy.work(100_000, each=20)
    assert busy.throttle.at_once(1000, 1) <= 20  # half of what they cost, at least: one look may see both


def test_what_a_record_costs_is_known_where_few_are_written_in_a_second():
    busy = Busy()
    busy.throttle.between(busy.links, 0, lambda: None)
    for _ in range(250):
        busy.written += 10_000
        busy.sleep(0.1)
        busy.throttle.between(busy.links, 1, lambda: None)
    assert busy.throttle._cost == pytest.approx(0.01, rel=0.1)


def test_every_walk_begins_with_nothing_known_of_what_its_records_cost(server, tmp_path):
    put(server, b"{t}:text:a", b"text")
    seen: list[float] = []

    def step(visit: Visit) -> Iterator[Progress]:
        seen.append(run.throttle._cost)
        yield Progress({"scanned": len(visit.keys)})

    with tool_for(server, tmp_path, KEYS).run() as run:
        run.throttle._cost = 1e-7
        Walk(run, "any", b"{t}:text:*", step).all()
    assert set(seen) == {0.0}


@pytest.fixture
def shell(server, tmp_path):
    put(server, b"{t}:times:a", {b"field-%d" % n: b"%d" % n for n in range(3000)})
    return Shell(server, write(tmp_path / "migrations", MEMBERS))


def test_an_apply_waits_for_a_save_and_status_says_so(server, shell, start_migrator):
    server.raw.config_set("rdb-key-save-delay", 10_000_000)
    server.raw.bgsave()
    process = start_migrator("apply", "--migrations", str(shell.directory), url=server.url)
    wait_for(lambda: shell("status")["migrations"][0]["paused"] is not None, "a pause", 20)
    assert "  paused: a save is under way (BGSAVE)" in shell.text("status")
    server.raw.config_set("rdb-key-save-delay", 0)
    server.raw.execute_command("BGSAVE", "CANCEL")
    _, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert "paused: a save is under way" in err
    assert "going on" in err
    assert shell("status")["migrations"][0]["paused"] is None
    assert shell("verify", "0001")["compared"] == 3000


def test_a_signal_is_heard_in_a_pause(server, shell, start_migrator):
    server.raw.config_set("rdb-key-save-delay", 10_000_000)
    server.raw.bgsave()
    process = start_migrator("apply", "--migrations", str(shell.directory), "--format", "json", url=server.url)
    wait_for(lambda: shell("status")["migrations"][0]["paused"] is not None, "a pause", 20)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 143
    assert json.loads(out)["stopped"]["exit"] == 143
    assert shell("status")["migrations"][0]["paused"] is None
    server.raw.execute_command("BGSAVE", "CANCEL")


@pytest.mark.parametrize("source", [MEMBERS, KEYS])
def test_too_long_a_pause_is_exit_50_and_the_same_command_goes_on(server, tmp_path, source):
    put(server, b"{t}:times:a", {b"field-%d" % n: b"%d" % n for n in range(300)})
    for n in range(300):
        put(server, b"{t}:text:%d" % n, b"text")
    for n in range(64):
        server.raw.set(f"large:{n}", b"x" * MB)
    shell = Shell(server, write(tmp_path / "migrations", source))
    server.raw.config_set("maxmemory", server.raw.info("memory")["used_memory"] * 26 // 25)
    stopped = shell("apply", "--max-pause", "500ms", exit=50)["stopped"]
    assert stopped["reason"].startswith(f"127.0.0.1:{server.raw.connection_pool.connection_kwargs['port']} was in need")
    assert "memory is near its limit" in stopped["reason"]
    assert "same command" in stopped["next"]
    # Before adapters begin to write a second shape, which takes memory too.
    assert "stopped at pending" in shell.text("apply", "--max-pause", "500ms", exit=50)
    assert shell("apply", "--ignore-load")["migrations"][0]["phase"] == "verified"
    again = shell("verify", "0001", "--max-pause", "0s", exit=50)
    assert (again["complete"], again["stopped"]["exit"]) == (False, 50)
    server.raw.config_set("maxmemory", 0)
    assert shell("verify", "0001")["complete"]


def test_the_way_back_hears_of_load_as_apply_does_and_what_only_removes_does_not_wait_for_memory(server, tmp_path):
    for n in range(300):
        put(server, b"{t}:text:%d" % n, b"text")
    for n in range(64):  # not sent: the buffer of whoever sends that much counts for a while, and is gone then
        server.raw.setrange(f"large:{n}", MB - 1, b"x")
    shell, backup = Shell(server, write(tmp_path / "migrations", KEYS)), ("--backup", str(tmp_path / "backup"), "--yes")
    shell("apply", "--through", "contract", *backup)
    server.raw.config_set("maxmemory", server.raw.info("memory")["used_memory"] * 26 // 25)
    stopped = shell("rollback", "0001", *backup, "--max-pause", "0s", exit=50)["stopped"]
    assert "memory is near its limit" in stopped["reason"]
    assert shell("rollback", "0001", *backup, "--ignore-load")["migrations"][0]["phase"] == "switched"
    shell("quarantine", "retry", "0001", "--ignore-load")
    discard = ("restore", "0001", "--discard-later-writes", *backup)
    assert "--max-pause is a time" in shell.error(*discard, "--max-pause", "soon", exit=2, code="usage")
    gone = shell("rollback", "0001", "--to", "pending", *backup, "--max-pause", "0s")
    assert gone["migrations"][0]["phase"] == "pending"


def test_a_max_pause_that_is_no_time_is_a_usage_error(shell):
    assert "--max-pause is a time" in shell.error("apply", "--max-pause", "soon", exit=2, code="usage")
