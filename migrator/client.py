"""How this tool speaks to Redis: a single server or a cluster is a list of nodes, and only this module knows which."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import redis
from hiredis import pack_command
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    NoPermissionError,
    RedisClusterException,
    RedisError,
    ResponseError,
)
from redis.retry import Retry
from redis.sentinel import Sentinel

from migrator.errors import RefusedError, UnreachableError, UsageError
from migrator.keys import SLOTS, slot_of, slot_tags
from migrator.scripts import Script

Arg = bytes | str | int | float
R = TypeVar("R")
Reply = Any  # RESP2: bytes, int, None, list of these, or ResponseError

_SOCKET_SECONDS = 30.0
_LOST = (redis.ConnectionError, redis.TimeoutError, BusyLoadingError, OSError)
# Refusals of a node that ran nothing: the slot is on the move, or a failover is under way.
_NOT_RUN = ("MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "READONLY", "BUSY ", "NOREPLICAS")


@dataclass(frozen=True, slots=True)
class Command:
    """A command and the key whose slot it goes to. A script is sent by its digest and, if unknown, by its text."""

    key: bytes
    args: tuple[Arg, ...]
    script: Script | None = None

    @staticmethod
    def eval(script: Script, keys: Sequence[bytes], args: Sequence[Arg]) -> Command:
        return Command(keys[0], ("EVALSHA", script.sha, len(keys), *keys, *args), script)

    def packed(self, *, whole: bool = False) -> tuple[Arg, ...]:
        if whole and self.script:
            return ("EVAL", self.script.text, *self.args[2:])
        return self.args


@dataclass(frozen=True, slots=True)
class Node:
    """A primary. `id` is stable while the node is the same; the run_id is read with every page of a walk."""

    id: str
    address: str
    pool: redis.ConnectionPool


@dataclass(frozen=True, slots=True)
class Page:
    """One page of SCAN: the run_id of the process that answered, the next cursor, the keys."""

    run_id: str
    cursor: int
    keys: list[bytes]


class Client:
    """Sends commands to the nodes that own their keys, and waits out restarts and moving slots.

    Everything this tool sends may be sent twice: writes compare before they set. So a connection that is lost is
    tried again, with the same commands, for `patience` seconds; then UnreachableError. `on_wait` hears what it
    waits for, once a wait; `before_retry` may raise to end it.
    """

    def __init__(
        self,
        topology: _Single | _Cluster,
        *,
        patience: float = 30.0,
        on_wait: Callable[[str], None] = lambda _: None,
        before_retry: Callable[[], None] = lambda: None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._topology = topology
        self.patience = patience
        self.on_wait = on_wait
        self._sleep = sleep
        self._clock = clock
        self.before_retry = before_retry
        self._nonce = secrets.token_hex(4)
        self._losses = 0

    @property
    def cluster(self) -> bool:
        return isinstance(self._topology, _Cluster)

    @property
    def db(self) -> int:
        return self._topology.db

    def slot(self, key: bytes) -> int:
        """The slot of a key; a single server is one slot, 0."""
        return slot_of(key) if self.cluster else 0

    def slots(self) -> range:
        return range(SLOTS if self.cluster else 1)

    def slot_tag(self, slot: int) -> bytes:
        return slot_tags()[slot] if self.cluster else b"0"

    def nodes(self) -> list[Node]:
        """The primaries, in a stable order."""
        return self._patiently(self._topology.nodes)

    def node_of(self, key: bytes) -> Node:
        return self._patiently(lambda: self._topology.node_of(key))

    def run(self, commands: Sequence[Command]) -> list[Reply]:
        """The replies, in order. A refusal that retrying cannot mend is a ResponseError in its place."""
        replies: list[Reply] = [None] * len(commands)
        pending = list(range(len(commands)))
        wait = _Wait(self)
        unknown: set[int] = set()
        while pending:
            again: list[int] = []
            for node, indexes in self._by_node(commands, pending):
                try:
                    answers = exchange(node, [commands[i].packed(whole=i in unknown) for i in indexes])
                except _LOST as error:
                    again += indexes
                    wait.for_reason(where(node.address, error), error)
                    continue
                for i, answer in zip(indexes, answers, strict=True):
                    if isinstance(answer, ResponseError) and self._again(i, answer, unknown, wait):
                        again.append(i)
                    replies[i] = answer
            pending = sorted(again)
            if pending:
                wait.pause()
        return replies

    def one(self, key: bytes, *args: Arg) -> Reply:
        """One command; a refusal is raised."""
        return checked(self.run([Command(key, args)])[0])

    def run_one(self, key: bytes, *args: Arg) -> Reply:
        """One command; a refusal is a value."""
        return self.run([Command(key, args)])[0]

    def eval(self, script: Script, keys: Sequence[bytes], args: Sequence[Arg]) -> Reply:
        return checked(self.run([Command.eval(script, keys, args)])[0])

    def on_node(self, node: Node, *commands: tuple[Arg, ...]) -> list[Reply]:
        """Commands for one node, on one connection, in one go; replies as in `run`."""
        return self._patiently(lambda: exchange(node, commands), node.address)

    def page(self, node: Node, cursor: int, glob: bytes, count: int) -> Page:
        info, answer = self.on_node(node, ("INFO", "server"), ("SCAN", cursor, "MATCH", glob, "COUNT", count))
        following, keys = checked(answer)
        return Page(self.process(info), int(following), keys)

    def process(self, info: Reply) -> str:
        """The run_id in INFO server. Where INFO is denied, a name that changes with every lost connection instead,
        so that a walk then starts again."""
        found = re.search(rb"run_id:(\w+)", info) if isinstance(info, bytes) else None
        return found[1].decode() if found else f"connection-{self._nonce}-{self._losses}"

    def processes(self) -> str:
        """The run_ids of all primaries."""
        return ",".join(self.process(self.on_node(node, ("INFO", "server"))[0]) for node in self.nodes())

    def fingerprint(self) -> str:
        """Which node owns which slots; equal before and after means that no slot changed hands in between."""
        return self._patiently(self._topology.fingerprint)

    def migrating(self) -> bool:
        """Whether any slot is on the move."""
        return self._patiently(self._topology.migrating)

    def _by_node(self, commands: Sequence[Command], pending: Iterable[int]) -> list[tuple[Node, list[int]]]:
        indexes = list(pending)
        owners = self._patiently(lambda: [self._topology.node_of(commands[i].key) for i in indexes])
        groups: dict[str, tuple[Node, list[int]]] = {}
        for i, node in zip(indexes, owners, strict=True):
            groups.setdefault(node.id, (node, []))[1].append(i)
        return list(groups.values())

    def _again(self, i: int, error: ResponseError, unknown: set[int], wait: _Wait) -> bool:
        text = str(error)
        if isinstance(error, redis.exceptions.NoScriptError) or text.startswith("NOSCRIPT"):
            unknown.add(i)
            wait.soon()
            return True
        name = type(error).__name__
        if text.startswith(_NOT_RUN) or name in _NOT_RUN_CLASSES:
            wait.for_reason(f"{name}: {text}", error)
            self._topology.refresh()
            return True
        return False

    def _patiently(self, call: Callable[[], R], address: str = "") -> R:
        wait = _Wait(self)
        while True:
            try:
                return call()
            except (*_LOST, RedisClusterException) as error:
                wait.for_reason(where(address, error), error)
                wait.pause()


_NOT_RUN_CLASSES = ("MovedError", "AskError", "TryAgainError", "ClusterDownError", "MasterDownError", "ReadOnlyError")


class _Wait:
    """Growing pauses, until the client's patience is over."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._until: float | None = None
        self._pause = 0.0
        self._error: BaseException | None = None
        self._what = ""

    def soon(self) -> None:
        self._pause = self._pause or 0.0

    def for_reason(self, what: str, error: BaseException) -> None:
        if isinstance(error, (AuthenticationError, AuthorizationError, NoPermissionError)):
            raise UnreachableError(
                f"Redis does not let us in: {error}", next="check the user and the password in --url"
            ) from None
        self._client._losses += 1
        self._what, self._error = what, error
        if self._until is None:
            self._until = self._client._clock() + self._client.patience
            self._client.on_wait(what)
        self._pause = min(1.0, self._pause * 2 or 0.05)

    def pause(self) -> None:
        if self._until is not None and self._client._clock() + self._pause > self._until:
            raise UnreachableError(
                f"Redis is unreachable: {self._what}",
                next="check --url and the server; the same command goes on where this one stopped",
            ) from self._error
        self._client._sleep(self._pause)
        self._client.before_retry()
        if self._until is not None:
            self._client._topology.refresh()


class _Single:
    """One server, also behind a sentinel or a unix socket."""

    def __init__(self, pool: redis.ConnectionPool, address: str, db: int) -> None:
        self._node = Node("server", address, pool)
        self.db = db

    def nodes(self) -> list[Node]:
        return [self._node]

    def node_of(self, key: bytes) -> Node:  # noqa: ARG002 - a single server owns every key
        return self._node

    def fingerprint(self) -> str:
        return "server"

    def migrating(self) -> bool:
        return False

    def refresh(self) -> None: ...


class _Cluster:
    """The primaries of a cluster; the slot map is read again whenever a node refuses."""

    db = 0

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self._url, self._options = url, options
        self._owners: list[Node] = []
        self._nodes: dict[str, Node] = {}

    def nodes(self) -> list[Node]:
        self._load()
        return sorted(set(self._owners), key=lambda node: node.address)

    def node_of(self, key: bytes) -> Node:
        self._load()
        return self._owners[slot_of(key)]

    def fingerprint(self) -> str:
        self.refresh()
        self._load()
        runs: list[str] = []
        for slot, node in enumerate(self._owners):
            if not runs or not runs[-1].endswith(node.id):
                runs.append(f"{slot}-{node.id}")
        return ",".join(runs)

    def migrating(self) -> bool:
        for node in self.nodes():
            nodes, moves = exchange(node, [("CLUSTER", "NODES"), ("CLUSTER", "GETSLOTMIGRATIONS")])
            if b"[" in checked(nodes):
                return True
            # Valkey 9 moves slots without showing it in CLUSTER NODES; other servers do not know the question.
            if not isinstance(moves, ResponseError) and any(_under_way(move) for move in moves):
                return True
        return False

    def refresh(self) -> None:
        self._owners = []

    def _load(self) -> None:
        if self._owners:
            return
        try:
            found = RedisCluster.from_url(self._url, **self._options)
        except RedisClusterException as error:
            cause = error.__cause__ or error
            raise redis.ConnectionError(reason(cause)) from error
        cache = found.nodes_manager.slots_cache
        if len(cache) < SLOTS:
            raise redis.ConnectionError(f"the cluster serves {len(cache)} of {SLOTS} slots")
        self._owners = [self._node(found, cache[slot][0]) for slot in range(SLOTS)]

    def _node(self, found: RedisCluster, node: Any) -> Node:
        known = self._nodes.get(node.name)
        if known is None:
            pool = found.get_redis_connection(node).connection_pool
            known = self._nodes[node.name] = Node(node.name, node.name, pool)
        return known


def _under_way(move: Reply) -> bool:
    fields = {bytes(k): v for k, v in zip(move[::2], move[1::2], strict=False)} if isinstance(move, list) else {}
    return fields.get(b"state") not in (b"success", b"failed", b"cancelled", b"canceled")


def exchange(node: Node, commands: Sequence[tuple[Arg, ...]]) -> list[Reply]:
    """Sends all commands in one go on one connection and reads as many replies; refusals are values."""
    connection = node.pool.get_connection()
    try:
        # Packed in C: a phase change on a cluster is 16384 commands, and redis-py packs each in Python first.
        packed = [b"".join([pack_command(words) for words in commands])]  # type: ignore[arg-type] # its stub is for one
        connection.send_packed_command(packed, check_health=False)
        replies: list[Reply] = []
        for _ in commands:
            try:
                replies.append(connection.read_response(disable_decoding=True))
            except ResponseError as error:
                replies.append(error)
            # READONLY, CLUSTERDOWN and MASTERDOWN are ResponseErrors in the parser but connection errors by class.
    except BaseException:
        connection.disconnect()
        raise
    finally:
        node.pool.release(connection)
    return replies


def checked(reply: Reply) -> Reply:
    """The reply, unless it is a refusal: then it is raised in this tool's words."""
    if isinstance(reply, NoPermissionError) or (isinstance(reply, ResponseError) and "NOPERM" in str(reply)):
        raise RefusedError(
            f"this user may not do that: {reply}", next="grant the command or key in the ACL, then run it again"
        )
    if isinstance(reply, ResponseError) and str(reply).startswith("OOM"):
        raise RefusedError(f"Redis is out of memory: {reply}", next="free memory or raise maxmemory; the run resumes")
    if isinstance(reply, ResponseError):
        raise reply
    return reply


def where(address: str, error: BaseException) -> str:
    """What went wrong and where; many errors of the socket say the address themselves."""
    text = reason(error)
    return text if not address or address in text else f"{address}: {text}"


def reason(error: BaseException) -> str:
    return str(error) or type(error).__name__


def connect(url: str, **settings: Any) -> Client:
    """A client for `redis://`, `rediss://`, `unix://`, `redis+cluster://` or `redis+sentinel://host:port/service/db`.

    Connects at once. Raises UsageError for a URL that is not one and UnreachableError after `patience` seconds.
    """
    options: dict[str, Any] = {
        "protocol": 2,  # one shape of replies on every server
        "retry": Retry(NoBackoff(), 0),  # retries are ours: we know what may be sent twice
        "socket_timeout": _SOCKET_SECONDS,
        "socket_connect_timeout": 5.0,
    }
    client = Client(_topology(url, options), **settings)
    for node in client.nodes():
        answer = client.on_node(node, ("PING",))[0]
        if isinstance(answer, ResponseError):
            raise UnreachableError(
                f"Redis does not let us in: {answer}", next="check the user and the password in --url"
            )
    return client


def _topology(url: str, options: dict[str, Any]) -> _Single | _Cluster:
    parts = urlsplit(url)
    try:
        if parts.scheme == "redis+cluster":
            return _Cluster(url.replace("redis+cluster://", "redis://", 1), options)
        if parts.scheme == "redis+sentinel":
            return _sentinel(url, options)
        if parts.scheme in ("redis", "rediss", "unix"):
            pool = redis.ConnectionPool.from_url(url, **options)
            db = int(pool.connection_kwargs.get("db") or 0)
            return _Single(pool, parts.path if parts.scheme == "unix" else _address(parts), db)
    except ValueError:
        pass  # the message of the library may repeat the URL, and with it a password
    raise UsageError(
        f"--url is not a Redis URL: {redacted(url)}",
        next="use redis://, rediss://, unix://, redis+cluster:// or redis+sentinel://",
    )


def _address(parts: Any) -> str:
    return f"{parts.hostname or 'localhost'}:{parts.port or 6379}"


def _sentinel(url: str, options: dict[str, Any]) -> _Single:
    """`redis+sentinel://[user:password@]host:port[,host:port]/service[/db]`."""
    parts = urlsplit(url)
    credentials, _, hosts = parts.netloc.rpartition("@")
    service, _, db = parts.path.strip("/").partition("/")
    if not service:
        raise ValueError("no service")
    pairs = [(host.partition(":")[0], int(host.partition(":")[2] or 26379)) for host in hosts.split(",")]
    user, _, password = credentials.partition(":")
    login = {"username": unquote(user) or None, "password": unquote(password) or None} if credentials else {}
    master = Sentinel(pairs, sentinel_kwargs=dict(options), **options).master_for(
        service, db=int(db or 0), **login, **options
    )
    return _Single(master.connection_pool, f"{service} (sentinel)", int(db or 0))


def redacted(url: str) -> str:
    """The URL without its password, whatever its form."""
    head, at, tail = url.rpartition("@")
    if at:
        scheme, slashes, login = head.partition("://")
        user = login.partition(":")[0] if slashes else ""
        url = f"{scheme}{slashes}{user}:***@{tail}" if slashes else f"***@{tail}"
    return re.sub(r"(?i)([?&](?:password|username)=)[^&]*", r"\1***", url)


__all__ = [
    "Arg",
    "Client",
    "Command",
    "Node",
    "Page",
    "RedisError",
    "Reply",
    "ResponseError",
    "checked",
    "connect",
    "exchange",
    "redacted",
]
