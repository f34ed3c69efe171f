"""Who acts on the phases: what adapters announced of themselves, as the tool reads it.

An application without an adapter cannot be fenced, so `status` shows who is alive, and `switch` and `contract` say who
would be left behind.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from migrator.client import Client
from migrator.names import Names

PROTOCOL = 1  # of the scripts and markers; an adapter of an older number is in the way of `switch` and `contract`
ALIVE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Announced:
    """One instance. `last_seen` is unix ms of the server, `ago_ms` how long before its time that was. `checksum` is
    that of its module."""

    instance: str
    id: str
    version: str
    protocol: int
    checksum: str
    last_seen: int
    ago_ms: int

    @property
    def alive(self) -> bool:
        """Seen within 60 s."""
        return self.ago_ms <= ALIVE_MS


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
                    str(said["checksum"]), seen, now_ms - seen,
                )
            )  # fmt: skip
        except (ValueError, KeyError, TypeError):
            continue
    return sorted(found, key=lambda one: -one.last_seen)


def read_announced(client: Client, names: Names, now_ms: int) -> list[Announced]:
    """All that were seen in the last hour, and what of the older ones is still there, of every migration."""
    flat = client.one(names.adapters, "HGETALL", names.adapters)
    return announced(dict(zip(flat[::2], flat[1::2], strict=True)), now_ms)
