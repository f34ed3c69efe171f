"""Helpers of the behavioural tests: small migrations, the commands in process or as processes, pictures of the data."""

from __future__ import annotations

import gc
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from redis.exceptions import ResponseError

from migrator.cli import opened
from migrator.cli.main import main
from migrator.client import Client, connect
from migrator.client.topology import Cluster
from migrator.engine import commands, verify
from migrator.engine.plan import plan
from migrator.engine.run import Options, Run
from migrator.engine.session import Session
from migrator.engine.status import status
from migrator.models import ApplyResult, MigrationPlan, MigrationStatus, VerifyResult
from migrator.moves.loader import Modules, load
from migrator.names import Names
from migrator.phases import Phase
from tests.servers import ROOT, Place, Server

# One hash tag in every template: on a cluster such a migration has one marker, not 16,384.
MEMBERS = """
from migrator import Keys, MemberMove, Migration, Unmappable

def forward(key, field, value):
    if not value.isdigit():
        raise Unmappable("not a number")
    return field, float(value)

migration = Migration(MemberMove(
    source=Keys("{{t}}:times:{name}", type="hash"),
    target=Keys("{{t}}:sorted:{name}", type="zset"),
    forward=forward,
    inverse=lambda key, member, score: (member, b"%d" % score),
))
"""
KEYS = """
from migrator import KeyMove, Keys, Migration, Unmappable

def forward(key, text):
    if text.startswith(b"bad"):
        raise Unmappable("a bad one")
    return {b"id": key["id"], b"text": text.strip()}

migration = Migration(KeyMove(
    source=Keys("{{t}}:text:{id}", type="string"),
    target=Keys("{{t}}:SAME:{id}", type="hash"),
    forward=forward,
    inverse=lambda key, fields: fields[b"text"],
))
""".replace("SAME", "hash")
SAME_NAME = KEYS.replace("{{t}}:hash:", "{{t}}:text:")
OTHER = KEYS.replace("{{t}}:text:", "{{o}}:text:").replace("{{t}}:hash:", "{{o}}:hash:")


def write(directory: Path, *sources: str) -> Path:
    """A directory of migrations: 0001_first.py, 0002_second.py, …"""
    directory.mkdir(parents=True, exist_ok=True)
    for number, (name, source) in enumerate(zip(("first", "second", "third"), sources, strict=False), 1):
        (directory / f"{number:04}_{name}.py").write_text(source)
    return directory


def shipped(directory: Path, *, tagged: bool = False) -> Path:
    """The two migrations of this repository; `tagged`: each family in one cluster slot, `{ae}:job:…`, `{map}:…`."""
    directory.mkdir(parents=True, exist_ok=True)
    for path in (ROOT / "migrations").glob("000[12]_*.py"):
        source = path.read_text()
        (directory / path.name).write_text(source.replace('"map:', '"{{map}}:') if tagged else source)
    (directory / "_prefix.py").write_text(f"AE = {'{{ae}}' if tagged else 'ae'!r}\n")
    return directory


def modules_of(directory: Path) -> Modules:
    # `_prefix` is imported by name: two directories in one process would share it.
    sys.modules.pop("_prefix", None)
    return load(directory)


class Tool:
    """The commands in this process, on one place with one directory of migrations; `--yes` and `--backup` given."""

    def __init__(self, place: Place, directory: Path, backup: Path, namespace: str = "migrator") -> None:
        self.place, self.directory, self.backup, self.namespace = place, directory, backup, namespace
        self.client: Client = connect(place.url, patience=10.0)

    def session(self, *, yes: bool = True, backup: bool = True, lease: float = 30.0) -> Session:
        options = Options(yes=yes, backup=self.backup if backup else None)
        return Session(self.client, Names(self.namespace), modules_of(self.directory), lease, options=options)

    def apply(self, *ids: str, through: str = "verify", exit: int = 0, **how: bool) -> ApplyResult:
        result = commands.apply(self.session(**how), ids, through)
        found = (result.stopped.exit, result.stopped.reason) if result.stopped else (0, "")
        assert found[0] == exit, f"apply --through {through}: {found}, wanted {exit}"
        return result

    def rollback(self, id: str = "0001", to: Phase | None = None, *, exit: int = 0, **how: bool) -> Phase:
        result = commands.rollback(self.session(**how), id, to)
        assert (result.stopped.exit if result.stopped else 0) == exit, result.stopped
        return result.migrations[0].phase  # type: ignore[return-value]

    def restore(self, id: str = "0001") -> Phase:
        return commands.restore(self.session(), id).migrations[0].phase  # type: ignore[return-value]

    def verify(self, id: str = "0001", **how: Any) -> VerifyResult:
        return verify.verify(self.session(), id, **how)

    def status(self, id: str = "0001") -> MigrationStatus:
        return status(self.session(), [id]).migrations[0]

    def plan(self, id: str = "0001", **how: bool) -> MigrationPlan:
        return plan(self.session(**how), [id], "verified").migrations[0]

    @contextmanager
    def run(self, id: str = "0001") -> Iterator[Run]:
        """A migration with the lease held, for what no command does."""
        session = self.session()
        with session.leased() as lease:
            session.init(lease)
            yield session.run(lease, session.modules.find(id))

    def states(self, id: str = "0001") -> set[tuple[Phase, int]]:
        """The phases and epochs that markers state."""
        session = self.session()
        found = session.reader(session.modules.find(id)).markers.read().values()
        return {(marker.phase, marker.epoch) for marker in found if marker is not None}

    def phase(self, id: str = "0001") -> Phase:
        """The one phase all markers and the ledger agree on."""
        phases = {phase for phase, _ in self.states(id)}
        assert phases == {self.session().entries()[f"{self.session().modules.find(id).id}"].phase}
        return phases.pop()


def tool_for(place: Place, tmp_path: Path, *sources: str) -> Tool:
    return Tool(place, write(tmp_path / "migrations", *sources), tmp_path / "backup")


def shipped_tool(place: Place, tmp_path: Path) -> Tool:
    """The shipped migrations; on a cluster each family shares one slot."""
    return Tool(place, shipped(tmp_path / "migrations", tagged=place.kind == "cluster"), tmp_path / "backup")


def in_process(*args: str, url: str) -> subprocess.CompletedProcess[str]:
    """The command line without a process of its own: much quicker."""
    sys.modules.pop("_prefix", None)  # imported by name: two directories in one process would share it
    out, err = io.StringIO(), io.StringIO()
    with _ended(), redirect_stdout(out), redirect_stderr(err):
        code = main([*args, "--url", url])
    return subprocess.CompletedProcess(args, code, out.getvalue(), err.getvalue())


@contextmanager
def _ended() -> Iterator[None]:
    """What else the end of a process does: no connection outlives the command, and no garbage is kept for good."""
    clients: list[Client] = []

    def connected(*args: Any, **how: Any) -> Client:
        clients.append(connect(*args, **how))
        return clients[-1]

    with patch.object(opened, "connect", connected), patch.object(gc, "freeze", lambda: None):
        try:
            yield
        finally:
            for client in clients:
                disconnect(client)


def disconnect(client: Client) -> None:
    """Every node that it knows, without asking any: it may be gone."""
    topology = client._topology
    nodes = topology._nodes.values() if isinstance(topology, Cluster) else topology.nodes()
    for node in nodes:
        node.pool.disconnect()
    if isinstance(topology, Cluster) and topology._found is not None:
        topology._found.close()


class Shell:
    """The command line, in JSON: `shell("verify", "0001", exit=30)["different"]`. `run` starts processes."""

    def __init__(self, place: Place | str, directory: Path, run: Callable[..., Any] = in_process) -> None:
        self._run, self.directory = run, directory
        self.url = place if isinstance(place, str) else place.url

    def __call__(self, *args: str, exit: int = 0, url: str = "") -> Any:
        done = self._done(args, exit, url, "--format", "json")
        try:
            return json.loads(done.stdout)  # exactly one document: `Extra data` otherwise
        except ValueError as error:
            raise AssertionError(f"{args}: {error} in {done.stdout!r}") from error

    def text(self, *args: str, exit: int = 0, url: str = "") -> str:
        """Standard output and error of the same in text."""
        done = Shell(self.url, self.directory)._done(args, exit, url)
        return str(done.stdout + done.stderr)

    def _done(self, args: tuple[str, ...], exit: int, url: str, *more: str) -> Any:
        done = self._run(*args, "--migrations", str(self.directory), *more, url=url or self.url)
        assert done.returncode == exit, f"{args}: exit {done.returncode}, wanted {exit}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def error(self, *args: str, exit: int, code: str, url: str = "") -> str:
        """What an error tells, in JSON and in text: message and next step."""
        told = self(*args, exit=exit, url=url)["error"]
        assert (told["code"], told["exit"]) == (code, exit)
        assert told["next"], f"{args}: no next step after {told['message']!r}"
        text = self.text(*args, exit=exit, url=url)
        assert "error: " in text
        assert "next:  " in text
        return f"{told['message']} / {told['next']}"


@dataclass(frozen=True, eq=False, slots=True)
class Seen:
    """A key as it lies in Redis: its DUMP, or its content where the encoding keeps no order; its absolute expiry."""

    type: str
    content: object
    expires: int

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Seen) or (self.type, self.content) != (other.type, other.content):
            return False
        mortal = min(self.expires, other.expires) > 0
        # Before Redis 7 an expiry can be read to 2 ms only.
        return self.expires == other.expires or (mortal and abs(self.expires - other.expires) <= 2)

    __hash__ = None  # type: ignore[assignment]


def seen(place: Place, key: bytes) -> Seen:
    ask: Callable[..., Any] = place.raw.execute_command
    kind = bytes(ask("TYPE", key)).decode()
    content: object = ask("DUMP", key)
    if bytes(ask("OBJECT", "ENCODING", key)) in (b"hashtable", b"skiplist"):
        words = {"hash": ("HGETALL", key), "set": ("SMEMBERS", key), "zset": ("ZRANGE", key, 0, -1, "WITHSCORES")}
        content = sorted(_pairs(ask(*words[kind])))
    return Seen(kind, content, expires(place, key))


def expires(place: Place, key: bytes) -> int:
    """The absolute expiry in unix ms, -1 for none."""
    try:
        return int(place.raw.execute_command("PEXPIRETIME", key))
    except ResponseError:  # before Redis 7
        script = (
            "local t = redis.call('TIME') local l = redis.call('PTTL', KEYS[1]) "
            "return l < 0 and l or t[1] * 1000 + math.floor(t[2] / 1000) + l"
        )
        return int(place.raw.execute_command("EVAL", script, 1, key))


def _pairs(reply: Any) -> Iterable[Any]:
    return (
        reply.items()
        if isinstance(reply, dict)
        else [tuple(item) if isinstance(item, list) else item for item in reply]
    )


def all_keys(place: Place) -> set[bytes]:
    """Every key there is, on every primary."""
    nodes = [place.behind] if isinstance(place.behind, Server) else place.behind.primaries()
    return {bytes(key) for node in nodes for key in node.command("KEYS", "*")}


def picture(place: Place, prefix: bytes = b"") -> dict[bytes, Seen]:
    """All that lies in Redis under a prefix, this tool's own keys aside."""
    names = sorted(k for k in all_keys(place) if k.startswith(prefix) and not k.startswith((b"migrator:", b"other:")))
    return {name: seen(place, name) for name in names}


def empty(place: Place) -> None:
    if isinstance(place.behind, Server):
        place.behind.command("FLUSHALL")
    else:
        place.behind.flush()


def own_keys(place: Place, namespace: bytes = b"migrator") -> set[bytes]:
    """The tool's keys beside the data: staged and retired records."""
    return {k for k in all_keys(place) if k.startswith((namespace + b":staged:", namespace + b":old:"))}


def put(place: Place, key: bytes, value: Any, *, px: int | None = None) -> None:
    """Any key: bytes is a string, a dict a hash or (of floats) a sorted set, then list and set."""
    ask: Callable[..., Any] = place.raw.execute_command
    if isinstance(value, bytes):
        ask("SET", key, value)
    elif isinstance(value, Mapping) and all(isinstance(v, float) for v in value.values()):
        ask("ZADD", key, *[word for name, score in value.items() for word in (repr(score), name)])
    elif isinstance(value, Mapping):
        ask("HSET", key, *[word for pair in value.items() for word in pair])
    else:
        ask("RPUSH" if isinstance(value, list) else "SADD", key, *value)
    if px is not None:
        ask("PEXPIRE", key, px)


def job(id: str, **changed: Any) -> bytes:
    """A job as era C wrote it."""
    fields: dict[str, Any] = {
        "id": id, "name": "send-report", "status": 400, "headers": {"Host": ["api"]}, "routeParams": {},
        "queryParams": [], "payload": '{"reportId":17}', "result": None, "error": None, "retryCount": 1,
        "maxRetries": 3, "retryDelayUntil": None, "workerId": None, "createdAt": "2025-10-02T06:15:30+00:00",
        "startedAt": None, "completedAt": None, "lastUpdatedAt": "2025-10-02T06:15:30.12+00:00", "isCanceled": False,
    }  # fmt: skip
    return json.dumps(fields | changed, separators=(",", ":"), ensure_ascii=False).encode()


def guid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012x}"


class Crash(Exception):  # noqa: N818 - it is one
    """What a test raises in the middle of something: nobody handles it."""


def crashing(*_: object, **__: object) -> None:
    raise Crash


def failover_after(monkeypatch: Any, module: Any, step: str, lose: Callable[[], object]) -> list[int]:
    """Once, after that function of a module: `lose` does what a failover does that had not replicated what it wrote.

    The list gets an entry whenever the function has been called.
    """
    whole, done = getattr(module, step), list[int]()

    def once(*args: Any, **how: Any) -> Any:
        result = whole(*args, **how)
        done.append(1)
        if len(done) == 1:
            lose()
            monkeypatch.setattr(Client, "processes", lambda _: "another")
        return result

    monkeypatch.setattr(module, step, once)
    return done
