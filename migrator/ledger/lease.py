"""The lease: one apply a namespace. Its expiry is a field judged by the server's clock, never a TTL."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from migrator.client import Arg, Client, Command, Reply, checked, replicate
from migrator.errors import FencedError, LeaseHeldError, RefusedError
from migrator.names import Names
from migrator.phases import Fence
from migrator.scripts import script

Words = tuple[Arg, ...]


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds the lease. `expires_in` is in ms by the server's clock; a holder past it can be taken over. `paused`
    is why nothing is done, of which migration; mostly empty."""

    owner: str
    token: str
    number: int
    expires_in: int
    paused: str = ""


@dataclass
class Lease:
    """The right to write. Everything the tool writes to its own keys goes through here and fails once it is lost."""

    client: Client
    names: Names
    fence: Fence
    seconds: float
    clock: Callable[[], float] = time.monotonic
    _renewed: float = field(init=False)

    def __post_init__(self) -> None:
        self._renewed = self.clock()

    def write(self, commands: Sequence[Words]) -> None:
        """Runs commands on keys of the namespace's own slot, all or none, and renews the lease.

        The first word of a command is its name, the second its key. Raises FencedError if the lease is lost.
        """
        self._leased(commands, int(self.seconds * 1000))

    @property
    def due(self) -> bool:
        """Whether a third of the lease has passed since it was renewed."""
        return self.clock() - self._renewed > self.seconds / 3

    def keep(self) -> None:
        """Renews the lease if a third of it has passed."""
        if self.due:
            self.write(())

    def note_pause(self, why: str) -> None:
        """Lets others see why its holder does nothing; empty once it goes on."""
        self.write([("HSET", self.names.lease, "paused", why)])

    def durable(self, tick: Callable[[], None] = lambda: None) -> str:
        """Waits until every replica has what was written to the namespace's own keys. Returns what it could not do.

        Raises RefusedError if too few replicas follow within the client's patience, FencedError if the lease is lost.
        """
        args = (self.fence.number, self.fence.token, int(self.seconds * 1000))
        renewal = Command.eval(script("leased"), [self.names.lease], args)
        return replicate(self.client, renewal, self._accept, tick, self.clock)

    def release(self) -> None:
        """Gives the lease back; nothing happens if it is lost already, or where no write is taken: then it ends by
        itself, and what the command has to tell is told."""
        with suppress(FencedError, RefusedError):
            self._leased((), 0)

    def _leased(self, commands: Sequence[Words], ms: int) -> None:
        keys = [self.names.lease, *sorted({_key(words) for words in commands})]
        flat: list[Arg] = [self.fence.number, self.fence.token, ms]
        for words in commands:
            flat += [len(words), *words]
        self._accept(self.client.eval(script("leased"), keys, flat))

    def _accept(self, reply: Reply) -> None:
        if reply[0] == b"fenced":
            raise FencedError(
                "another process took the lease over; this one stops without another write",
                next="see who holds it with: migrator lock show",
            )
        self._renewed = self.clock()


def _key(words: Words) -> bytes:
    key = words[1]
    assert isinstance(key, bytes)
    return key


def owner_name() -> str:
    """Who we are to others: host and process."""
    return f"{socket.gethostname()}:{os.getpid()}"


def take_lease(client: Client, names: Names, seconds: float, *, least: int = 1) -> Lease:
    """Takes the lease for so many seconds; its number is at least `least`.

    Raises LeaseHeldError, with owner and expiry, while somebody holds it.
    """
    token = secrets.token_hex(8)
    return Lease(client, names, take_fence(client, names, token, seconds, least), seconds)


def take_fence(client: Client, names: Names, token: str, seconds: float, least: int) -> Fence:
    """Takes the lease under this token, also once more: its number is then at least `least`.

    Raises LeaseHeldError, with owner and expiry, while somebody else holds it.
    """
    reply = client.eval(script("lease_take"), [names.lease], [token, owner_name(), int(seconds * 1000), least])
    if not reply[0]:
        raise LeaseHeldError(
            f"{reply[1].decode()} holds the lease for another {max(1, round(reply[2] / 1000))} s",
            next=f"wait for it, or, if that process is gone: migrator lock break {reply[3].decode()}",
        )
    return Fence(int(reply[1]), token)


def show_lease(client: Client, names: Names) -> Holder | None:
    """Who holds the lease, or None. Reads only."""
    words = client.one(names.lease, "HMGET", names.lease, "owner", "token", "number", "expires_ms", "paused")
    owner, token, number, expires, paused = words
    if not token:
        return None
    left = int(expires) - server_ms(client, names)
    return Holder(owner.decode(), token.decode(), int(number), left, (paused or b"").decode())


def break_lease(client: Client, names: Names, token: str) -> int:
    """Breaks the lease that this token holds; raises the fence, so that its holder stops. Returns the new number.

    May be repeated until somebody takes the lease: the reply can be lost. Raises RefusedError for another token.
    """
    reply = client.eval(script("lease_break"), [names.lease], [token])
    if not reply[0]:
        raise RefusedError(f"no lease has the token {token!r}", next="see the token with: migrator lock show")
    return int(reply[1])


def server_ms(client: Client, names: Names) -> int:
    """The server's clock, unix ms."""
    node = client.node_of(names.lease)
    seconds, micros = checked(client.on_node(node, ("TIME",))[0])
    return int(seconds) * 1000 + int(micros) // 1000
