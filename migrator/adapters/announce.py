"""Adapters say that they are there: who, which version, and when last, by the server's clock.

An application without an adapter cannot be fenced, so `status` shows who is alive, and `switch` and `contract` say who
would be left behind. No thread: an announcement goes with a call, at most every 15 s.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from migrator.adapters.core import Call
from migrator.names import Names
from migrator.scripts import script
from migrator.version import VERSION

PROTOCOL = 1  # of the scripts and markers; an adapter of an older number is in the way of `switch` and `contract`
EVERY = 15.0  # seconds
ALIVE_MS = 60_000
_NONCE = secrets.token_hex(3)


class Herald:
    """The announcements of one process about one migration. A forked process has a name of its own."""

    def __init__(self, names: Names, id: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._names, self._id, self._clock = names, id, clock
        self._last: tuple[int, float] | None = None

    def due(self) -> Call | None:
        """The announcement to send now, if it is time."""
        now, pid = self._clock(), os.getpid()
        if self._last is not None and self._last[0] == pid and now - self._last[1] < EVERY:
            return None
        self._last = (pid, now)
        instance = f"{socket.gethostname()}:{pid}:{_NONCE}:{self._id}"
        told = json.dumps({"id": self._id, "version": VERSION, "protocol": PROTOCOL})
        return Call(script("adapter_announce"), (self._names.adapters,), (instance, told[:-1]), writes=False)


@dataclass(frozen=True, slots=True)
class Announced:
    """One instance. `last_seen` is unix ms of the server; `alive` within 60 s of its time."""

    instance: str
    id: str
    version: str
    protocol: int
    last_seen: int
    alive: bool


def announced(fields: Mapping[bytes, bytes], now_ms: int) -> list[Announced]:
    """What `HGETALL <ns>:{<ns>}:adapters` says, the last seen first; what nobody can read is left out."""
    found: list[Announced] = []
    for instance, told in fields.items():
        try:
            said = json.loads(told)
            seen = int(said["last_seen"])
            found.append(
                Announced(
                    instance.decode(errors="replace"), str(said["id"]), str(said["version"]), int(said["protocol"]),
                    seen, now_ms - seen <= ALIVE_MS,
                )
            )  # fmt: skip
        except (ValueError, KeyError, TypeError):
            continue
    return sorted(found, key=lambda one: -one.last_seen)
