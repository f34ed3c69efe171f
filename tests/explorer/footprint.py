"""What a command reads and writes, by the keys it names: two commands that share none, or only read, commute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from migrator.client import Reply
from migrator.scripts import script

Words = Sequence[Any]

_NOTHING = {b"INFO", b"ROLE", b"TIME", b"PING", b"WAIT", b"EVAL", b"SCRIPT"}
_READS = {
    b"GET", b"STRLEN", b"HGET", b"HMGET", b"HGETALL", b"HKEYS", b"HLEN", b"HSCAN", b"ZSCAN", b"SSCAN", b"ZRANGE",
    b"ZMSCORE", b"ZCARD", b"ZSCORE", b"SMEMBERS", b"SISMEMBER", b"SMISMEMBER", b"LRANGE", b"TYPE", b"EXISTS", b"MEMORY",
    b"GETRANGE", b"PEXPIRETIME", b"PTTL", b"XRANGE",
}  # fmt: skip
_REFUSALS = (b"layout", b"phase", b"fenced", b"no-marker", b"mapping", b"closed", b"newer")
_READING_SCRIPTS = {"adapter_open", "adapter_jobs_stuck", "pair", "pair_members"}
# These read the marker, and write it or not as their names say; all others but `leased` write what they name besides.
_COUNTING_SCRIPTS = {"adapter_members_set", "adapter_members_remove"}  # deletions, in the marker
_MARKING_SCRIPTS = {"marker", "marker_init", "fence", "lease_take", "lease_break"}


def script_names() -> list[str]:
    """Every script that is called, without the libraries."""
    found = (path.name for path in files("migrator.scripts").iterdir() if path.name.endswith(".lua"))
    return sorted(name[:-4] for name in found if not name.startswith("lib_"))


@dataclass(frozen=True)
class Footprint:
    """Keys, and the literal beginnings of patterns that are scanned for. `kept`: those written that neither come nor
    go, which no scan can tell."""

    reads: frozenset[bytes] = frozenset()
    writes: frozenset[bytes] = frozenset()
    scans: bytes | None = None
    kept: frozenset[bytes] = frozenset()

    def meets(self, other: Footprint) -> bool:
        """Whether the order of the two can matter."""
        return bool(
            self.writes & (other.reads | other.writes)
            or self.reads & other.writes
            or self._scans_any(other.writes - other.kept)
            or other._scans_any(self.writes - self.kept)
        )

    def done(self, wrote: frozenset[bytes], kept: frozenset[bytes]) -> Footprint:
        """What it was in the end: it wrote these only, and of them these were there before and are after."""
        return Footprint(self.reads | (self.writes - wrote), self.writes & wrote, self.scans, kept)

    def _scans_any(self, keys: frozenset[bytes]) -> bool:
        return self.scans is not None and any(key.startswith(self.scans) for key in keys)


def footprint(words: Words, reply: Reply = None) -> Footprint:
    """What the command may touch; with its reply, what it did: a script that was refused has read the marker alone."""
    name = as_bytes(words[0]).upper()
    if name in _NOTHING:
        return Footprint()
    if name == b"EVALSHA":
        refused = isinstance(reply, list) and bool(reply) and reply[0] in _REFUSALS
        return Footprint(reads=frozenset({as_bytes(words[3])})) if refused else _of_script(words)
    if name == b"RANDOMKEY":
        return Footprint(scans=b"")
    if name == b"SCAN":
        glob = as_bytes(words[3])
        return Footprint(scans=glob.split(b"*")[0].replace(b"\\", b""))
    if name in (b"EXISTS", b"WATCH"):
        return Footprint(reads=frozenset(map(as_bytes, words[1:])))
    if name == b"EXEC":
        watched, queued = words[1:]
        writes = frozenset[bytes]().union(*(footprint(one).writes for one in queued))
        return Footprint(reads=frozenset(key for key, _ in watched), writes=writes)
    if name == b"RENAME":
        return Footprint(writes=frozenset({as_bytes(words[1]), as_bytes(words[2])}))
    key = frozenset({as_bytes(words[2 if name == b"MEMORY" else 1])})
    return Footprint(reads=key) if name in _READS else Footprint(writes=key)


def _of_script(words: Words) -> Footprint:
    name, keys = _names()[as_bytes(words[1])], [as_bytes(word) for word in words[3 : 3 + int(words[2])]]
    first, rest = frozenset(keys[:1]), frozenset(keys[1:])
    if name in _MARKING_SCRIPTS:
        return Footprint(writes=first)
    if name in _COUNTING_SCRIPTS:
        return Footprint(writes=first | rest)
    if name == "leased":
        # That it is renewed is nobody's business but who takes it over; a release is.
        released = as_bytes(words[3 + len(keys) + 2]) == b"0"
        return Footprint(writes=first | rest) if released else Footprint(reads=first, writes=rest)
    reads_only = name in _READING_SCRIPTS
    return Footprint(reads=first | rest) if reads_only else Footprint(reads=first, writes=rest)


@cache
def _names() -> dict[bytes, str]:
    return {script(name).sha: name for name in script_names()}


def script_of(words: Words) -> str:
    """The script a command calls; empty if it calls none."""
    return _names().get(as_bytes(words[1]), "") if as_bytes(words[0]) == b"EVALSHA" else ""


def described(words: Words) -> str:
    """A step in a schedule, for people."""
    name = script_of(words)
    if not name:
        return b" ".join(as_bytes(word) for word in words[:2]).decode(errors="replace")
    return f"{name}.lua"


def as_bytes(word: object) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode()
