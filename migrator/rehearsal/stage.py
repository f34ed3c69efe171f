"""Where a rehearsal plays: a primary, a replica to take its place, and one address that leads to whichever it is.

The address is a symbolic link to the socket of a server: whoever connects anew comes to the new one.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from migrator.client import Client, checked, connect
from migrator.errors import UnreachableError
from migrator.rehearsal.scratch import PATIENCE
from migrator.snapshot.embedded import EmbeddedServer, dismiss, free_port

_SECONDS = 30.0
_PAUSE_MS = 30_000
_ATTEMPTS = 5


@dataclass
class Stage:
    """`url` leads to the server there is. `home` is a directory that stays to the end."""

    url: str
    home: Path
    primary: EmbeddedServer
    replica: EmbeddedServer | None
    password: str

    @property
    def ready(self) -> bool:
        """Whether there is a replica to take the primary's place."""
        return self.replica is not None

    def fail_over(self) -> None:
        """The primary dies, and its replica is the primary. What was acknowledged is on it: the primary takes no more
        writes before the replica has all of them, as a WAIT for each would have it."""
        assert self.replica is not None
        old, new = self._client(self.primary), self._client(self.replica)
        _ask(old, "CLIENT", "PAUSE", _PAUSE_MS, "WRITE")
        _until(lambda: _offset(new, "slave_repl_offset") >= _offset(old, "master_repl_offset"), "the replica to follow")
        _ask(new, "REPLICAOF", "NO", "ONE")
        _lead(self.home, self.replica)
        assert self.primary.process is not None
        dismiss(self.primary.process, at_once=True)
        self.primary, self.replica = self.replica, None

    def _client(self, server: EmbeddedServer) -> Client:
        return connect(_socket(server.home, "sock", self.password), patience=PATIENCE)


def _socket(home: Path | None, name: str, password: str) -> str:
    login = f":{password}@" if password else ""
    return f"unix://{login}{home}/{name}?db=0"


@contextmanager
def stage(*, failover: bool) -> Iterator[Stage]:
    """A primary with nothing in it, and a replica if there is to be a failover.

    Replication needs a port, which anybody on the machine can reach: so there is a password then.
    """
    with ExitStack() as stack:
        primary = stack.enter_context(EmbeddedServer(tcp=False))
        replica = stack.enter_context(EmbeddedServer(tcp=False)) if failover else None
        password = secrets.token_hex(16) if failover else ""
        home = (replica or primary).home
        assert home is not None
        if replica is not None:
            _replicate(primary, replica, password)
        _lead(home, primary)
        yield Stage(_socket(home, "front", password), home, primary, replica, password)


def _replicate(primary: EmbeddedServer, replica: EmbeddedServer, password: str) -> None:
    first, second = (connect(server.socket_url, patience=PATIENCE) for server in (primary, replica))
    for client in (first, second):
        _ask(client, "CONFIG", "SET", "masterauth", password, "repl-diskless-sync-delay", 0, "requirepass", password)
    first, second = (
        connect(_socket(server.home, "sock", password), patience=PATIENCE) for server in (primary, replica)
    )
    port = _open(first)
    _ask(second, "REPLICAOF", "127.0.0.1", port)
    _until(lambda: b"master_link_status:up" in _info(second), "the replica to be linked")


def _open(client: Client) -> int:
    """A port somebody else takes in this moment is refused, and another one is tried."""
    for attempt in range(_ATTEMPTS):
        port = free_port()
        answer = client.on_node(client.nodes()[0], ("CONFIG", "SET", "port", port))[0]
        if not isinstance(answer, Exception):
            return port
        if attempt == _ATTEMPTS - 1:
            checked(answer)
    raise AssertionError


def _lead(home: Path, server: EmbeddedServer) -> None:
    assert server.home is not None
    (home / "front.new").symlink_to(server.home / "sock")
    (home / "front.new").replace(home / "front")


def _ask(client: Client, *words: str | int) -> None:
    checked(client.on_node(client.nodes()[0], words)[0])


def _info(client: Client) -> bytes:
    return bytes(checked(client.on_node(client.nodes()[0], ("INFO", "replication"))[0]))


def _offset(client: Client, field: str) -> int:
    found = re.search(rb"^%s:(\d+)" % field.encode(), _info(client), re.MULTILINE)
    return int(found[1]) if found else -1


def _until(holds: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + _SECONDS
    while not holds():
        if time.monotonic() > until:
            raise UnreachableError(f"waited {_SECONDS:g} s for {what}", next="run it again on a machine less busy")
        time.sleep(0.01)
