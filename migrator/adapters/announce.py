"""Adapters say that they are there: who, which version, and when last, by the server's clock.

No thread: an announcement goes with a call, at most every 15 s.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Callable

from migrator.adapters.core import Call
from migrator.names import Names
from migrator.phases.announced import PROTOCOL
from migrator.scripts import script
from migrator.version import VERSION

EVERY = 15.0  # seconds
_NONCE = secrets.token_hex(3)


class Herald:
    """The announcements of one process about one migration. A forked process has a name of its own."""

    def __init__(self, names: Names, id: str, checksum: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._names, self._id, self._clock = names, id, clock
        self._told = json.dumps({"id": id, "version": VERSION, "protocol": PROTOCOL, "checksum": checksum})
        self._last: tuple[int, float] | None = None

    def due(self) -> Call | None:
        """See `Announcer`."""
        now, pid = self._clock(), os.getpid()
        if self._last is not None and self._last[0] == pid and now - self._last[1] < EVERY:
            return None
        self._last = (pid, now)
        instance = f"{socket.gethostname()}:{pid}:{_NONCE}:{self._id}"
        return Call(script("adapter_announce"), (self._names.adapters,), (instance, self._told[:-1]), writes=False)

    def again(self) -> None:
        """See `Announcer`."""
        self._last = None
