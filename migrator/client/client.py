"""Sends commands to the nodes that own their keys, and waits out restarts, failovers and moving slots."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import redis
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    NoPermissionError,
    NoScriptError,
    RedisClusterException,
    ResponseError,
)

from migrator.client.topology import Cluster, Single
from migrator.client.wire import Arg, Command, Node, Reply, checked, exchange, pack_each, where
from migrator.errors import NodeGoneError, RefusedError, UnreachableError
from migrator.keys import SLOTS, Kind, slot_of, slot_tags
from migrator.scripts import Script

R = TypeVar("R")
_NAMELESS = "connection-"

LOST = (redis.ConnectionError, redis.TimeoutError, BusyLoadingError, OSError)
# Refusals of a node that ran nothing: the slot is on the move, or a failover is under way.
# Inside a script Redis 6 says them as "-READONLY" in the middle of a sentence.
_NOT_RUN = re.compile(r"^(?:MOVED|ASK|TRYAGAIN)\b|(?:^|-)(?:CLUSTERDOWN|LOADING|MASTERDOWN|READONLY|BUSY|NOREPLICAS)\b")
_NOT_RUN_CLASSES = ("MovedError", "AskError", "TryAgainError", "ClusterDownError", "MasterDownError", "ReadOnlyError")


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
        topology: Single | Cluster,
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
        self.answered_wait: dict[str, int | None] = {}  # by node, where nothing else tells of replicas

    @property
    def cluster(self) -> bool:
        return isinstance(self._topology, Cluster)

    @property
    def db(self) -> int:
        return self._topology.db

    def in_database(self, db: int) -> Client:
        """A client of another database of the same server. Raises RefusedError where there is none."""
        topology = self._topology
        if isinstance(topology, Cluster):
            if db == topology.db:
                return self
            raise RefusedError(
                f"of a cluster only database 0 is known to this tool, not {db}",
                next="use database 0, or a single server",
            )
        answer, _ = self.on_node(self.nodes()[0], ("SELECT", db), ("SELECT", self.db))
        if isinstance(answer, ResponseError) and "out of range" in str(answer):
            raise RefusedError(f"the server has no database {db}", next="raise its setting `databases`")
        checked(answer)
        return Client(
            topology.in_database(db), patience=self.patience, on_wait=self.on_wait, before_retry=self.before_retry,
            sleep=self._sleep, clock=self._clock,
        )  # fmt: skip

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
        asked: dict[int, str] = {}
        while pending:
            again: list[int] = []
            for node, indexes in self._by_node(commands, pending, asked):
                try:
                    answers = exchange(
                        node, [commands[i].packed(whole=i in unknown) for i in indexes], asking=bool(asked)
                    )
                except LOST as error:
                    again += indexes
                    wait.for_reason(where(node.address, error), error)
                    continue
                for i, answer in zip(indexes, answers, strict=True):
                    if isinstance(answer, ResponseError) and self._again(i, answer, unknown, asked, wait):
                        again.append(i)
                    replies[i] = answer
            pending = sorted(again)
            if pending:
                wait.pause()
        return replies

    def each(self, name: str, keys: Sequence[bytes], *rest: Arg) -> list[Reply]:
        """One reading command for each of many keys, which stand behind its name: the replies, as of `run`."""
        if keys and not self.cluster:
            with suppress(*LOST):
                replies = exchange(self.nodes()[0], pack_each(name, keys, *rest))
                if not any(isinstance(reply, ResponseError) for reply in replies):
                    return replies
        words = name.split()
        return self.run([Command(key, (*words, key, *rest)) for key in keys])

    def one(self, key: bytes, *args: Arg) -> Reply:
        """One command; a refusal is raised."""
        return checked(self.run([Command(key, args)])[0])

    def run_one(self, key: bytes, *args: Arg) -> Reply:
        """One command; a refusal is a value."""
        return self.run([Command(key, args)])[0]

    def eval(self, script: Script, keys: Sequence[bytes], args: Sequence[Arg]) -> Reply:
        return checked(self.run([Command.eval(script, keys, args)])[0])

    def on_node(self, node: Node, *commands: tuple[Arg, ...]) -> list[Reply]:
        """Commands for one node, on one connection, in one go; a refusal is a value, also one of a slot that moved.

        Raises NodeGoneError if the node cannot be reached and another one has taken its place.
        """

        def go() -> list[Reply]:
            try:
                return exchange(node, commands)
            except LOST:
                if self.cluster and self._gone(node):
                    raise NodeGoneError(
                        f"{node.address} is no longer a primary", next="run the same command again"
                    ) from None
                raise

        return self._patiently(go, node.address)

    def _gone(self, node: Node) -> bool:
        try:
            self._topology.refresh()
            return node not in self._topology.nodes()
        except (*LOST, RedisClusterException):
            return False  # nobody can be asked: wait for somebody

    def page(self, node: Node, cursor: int, glob: bytes, count: int, kind: Kind | None = None) -> Page:
        scan: tuple[Arg, ...] = ("SCAN", cursor, "MATCH", glob, "COUNT", count)
        info, answer = self.on_node(node, ("INFO", "server"), scan if kind is None else (*scan, "TYPE", kind))
        following, keys = checked(answer)
        return Page(self.process(info), int(following), keys)

    def pages(self, glob: bytes, count: int, kind: Kind | None = None) -> Iterator[list[bytes]]:
        """All keys of a pattern, or those of one type, on every primary, a page at a time: to look, not to account for
        (see `Walk`)."""
        for node in self.nodes():
            cursor, begun = 0, False
            while cursor or not begun:
                page = self.page(node, cursor, glob, count, kind)
                yield page.keys
                cursor, begun = page.cursor, True

    def process(self, info: Reply) -> str:
        """The run_id in INFO server. Where INFO is denied, a name that changes with every lost connection instead,
        so that a walk then starts again."""
        found = re.search(rb"run_id:(\w+)", info) if isinstance(info, bytes) else None
        if found:
            return found[1].decode()
        return f"{_NAMELESS}{self._nonce}-{self._losses}-{sum(node.links.made for node in self.nodes())}"

    @staticmethod
    def named(process: str) -> bool:
        """Whether that is a run_id, and not what stands for it where INFO is denied."""
        return not process.startswith(_NAMELESS)

    def processes(self) -> str:
        """The run_ids of all primaries."""
        return ",".join(self.process(self.on_node(node, ("INFO", "server"))[0]) for node in self.nodes())

    def fingerprint(self) -> str:
        """Which node owns which slots; equal before and after means that no slot changed hands in between."""
        return self._patiently(self._topology.fingerprint)

    def migrating(self) -> bool:
        """Whether any slot is on the move."""
        return self._patiently(self._topology.migrating)

    def _by_node(
        self, commands: Sequence[Command], pending: Iterable[int], asked: dict[int, str]
    ) -> list[tuple[Node, list[int]]]:
        """Groups commands by the node that owns their key, or by the one that the owner of a moving slot named."""
        indexes = list(pending)
        topology = self._topology
        owners = self._patiently(
            lambda: [topology.named(asked[i]) if i in asked else topology.node_of(commands[i].key) for i in indexes]
        )
        groups: dict[str, tuple[Node, list[int]]] = {}
        for i, node in zip(indexes, owners, strict=True):
            groups.setdefault(node.id, (node, []))[1].append(i)
        return list(groups.values())

    def _again(self, i: int, error: ResponseError, unknown: set[int], asked: dict[int, str], wait: _Wait) -> bool:
        """Whether a refused command is to be sent again, and how: it ran nothing."""
        asked.pop(i, None)
        text = str(error)
        if isinstance(error, NoScriptError) or text.startswith("NOSCRIPT"):
            unknown.add(i)
            wait.soon()
            return True
        name = type(error).__name__
        if type(error) is AskError:
            # The key has left for the node the slot is moving to; only this command goes there, the slot map stays.
            asked[i] = f"{error.host}:{error.port}"
            wait.for_reason(f"a slot is moving: {text}", error)
            return True
        if _NOT_RUN.search(text) or name in _NOT_RUN_CLASSES:
            wait.for_reason(f"{name}: {text}", error)
            self._topology.refresh()
            return True
        return False

    def _patiently(self, call: Callable[[], R], address: str = "") -> R:
        wait = _Wait(self)
        while True:
            try:
                return call()
            except (*LOST, RedisClusterException) as error:
                wait.for_reason(where(address, error), error)
                wait.pause()


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
