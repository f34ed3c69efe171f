"""The names of everything this tool keeps in Redis; all begin with the namespace, so one ACL pattern covers them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from migrator.errors import UsageError
from migrator.keys import tag_of

CLAIMS = b"migrator:claims"  # the only name outside the namespace: which namespace moves which keys
_NAMESPACE = re.compile(r"[A-Za-z0-9_.:-]+")
_OWN = (  # what stands for ID is the name of a migration's file
    rb"NS:(?:\{NS\}:(?:(ledger|history|lease|checkpoints|adapters)|(quarantine|census):ID)"
    rb"|(marker|adopted):ID:\{\d+\}|(aside):ID:\{.+)"
)
_ID = rb"\d{4}_[a-z0-9_]+"
_BESIDE = re.compile(rb"(staged|old):([^:{]+):\{")


class Beside:
    """Names of one role, each in the slot of the key it stands beside: `<ns>:<role>:<id>:{<tag>}[:<key>]`."""

    __slots__ = ("_prefix", "glob")

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self.glob = prefix + b"*"

    def name(self, key: bytes, slot_tag: Callable[[bytes], bytes]) -> bytes:
        """The slot-mate of a key.

        The tag is the key's own, else the key itself if it can stand between braces, else what `slot_tag` says of it.
        """
        if key and b"{" not in key and b"}" not in key:
            return self._prefix + key + b"}"  # what nearly all are: the rest of this says the same of it
        tag = tag_of(key) or (key if key and b"}" not in key else slot_tag(key))
        name = self._prefix + tag + b"}"
        return name if tag == key else name + b":" + key

    def key(self, name: bytes) -> bytes | None:
        """The key whose slot-mate this is, or None."""
        if not name.startswith(self._prefix):
            return None
        tag, brace, rest = name[len(self._prefix) :].partition(b"}")
        if not brace:
            return None
        return rest[1:] if rest.startswith(b":") else (tag if not rest else None)


@dataclass(frozen=True)
class Names:
    """Names of one namespace. What concerns the whole namespace shares one slot; the rest stands beside the data."""

    namespace: str

    def __post_init__(self) -> None:
        if not _NAMESPACE.fullmatch(self.namespace):
            raise UsageError(
                f"the namespace {self.namespace!r} is not usable",
                next="use letters, digits and . _ : - only",
            )

    def _central(self, what: str) -> bytes:
        return f"{self.namespace}:{{{self.namespace}}}:{what}".encode()

    @cached_property
    def prefix(self) -> bytes:
        return f"{self.namespace}:".encode()

    @cached_property
    def _own(self) -> re.Pattern[bytes]:
        namespace = re.escape(self.namespace.encode())
        return re.compile(_OWN.replace(b"ID", _ID).replace(b"NS", namespace), re.DOTALL)

    def role(self, key: bytes) -> str:
        """What this tool keeps under a key: `ledger`, `marker` and their like; empty for what is not its own.

        The prefix alone says nothing: data may begin with it, and what is staged or retired is somebody's record.
        """
        found = self._own.fullmatch(key) if key.startswith(self.prefix) else None
        return found[found.lastindex or 0].decode() if found else ""

    @property
    def ledger(self) -> bytes:
        return self._central("ledger")

    @property
    def history(self) -> bytes:
        return self._central("history")

    @property
    def lease(self) -> bytes:
        return self._central("lease")

    @property
    def checkpoints(self) -> bytes:
        return self._central("checkpoints")

    @property
    def adapters(self) -> bytes:
        return self._central("adapters")

    def quarantine(self, id: str) -> bytes:
        return self._central(f"quarantine:{id}")

    def census(self, id: str) -> bytes:
        return self._central(f"census:{id}")

    def marker(self, id: str, tag: bytes) -> bytes:
        return f"{self.namespace}:marker:{id}:".encode() + b"{" + tag + b"}"

    def adopted(self, id: str, tag: bytes) -> bytes:
        return f"{self.namespace}:adopted:{id}:".encode() + b"{" + tag + b"}"

    def beside(self, role: str, id: str) -> Beside:
        """The slot-mates of keys in a role: `staged`, `old` or `aside`."""
        return Beside(f"{self.namespace}:{role}:{id}:{{".encode())

    def stands_beside(self, key: bytes) -> tuple[str, bytes] | None:
        """Of a record that is staged or retired, which of these it is (`staged`, `old`) and whose slot-mate."""
        found = _BESIDE.match(key, len(self.prefix)) if key.startswith(self.prefix) else None
        if found is None:
            return None
        role = found[1].decode()
        record = self.beside(role, found[2].decode()).key(key)
        return None if record is None else (role, record)
