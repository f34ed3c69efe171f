"""Entries, history, checkpoints and quarantine of one namespace. Reading is free; writing takes the lease."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from migrator.client import Arg, Client
from migrator.errors import RefusedError
from migrator.ledger.entries import Entry, Tally
from migrator.ledger.lease import Lease, Words, owner_name
from migrator.names import Names
from migrator.version import VERSION

_FORMAT_FIELD = b"#format"
_FORMAT = b"1"
_BATCH = 1000  # names in one command: Lua cannot unpack 8000 words


class Checkpoint(msgspec.Struct, frozen=True):
    """How far a walk has come on one node: the lowest batch that is not finished.

    It counts only for one process (run_id), slot map and epoch; `cursor` is SCAN's; inside that page, `key` (hex) is
    being read at `inner` and those of `finished` are done. The counts belong to it: never ahead of the place.
    """

    node: str
    run_id: str
    slots: str
    epoch: int
    cursor: int = 0
    key: str = ""
    inner: int = 0
    finished: tuple[str, ...] = ()
    done: bool = False
    counts: dict[str, int] = {}


class Rejected(msgspec.Struct, frozen=True):
    """A record in quarantine: why, and the digest of the value that was looked at. `accepted` is that digest again."""

    reason: str
    digest: str
    accepted: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the history. `at` is unix ms by the server's clock."""

    at: int
    id: str
    who: str
    what: str
    detail: str


class Ledger:
    def __init__(self, client: Client, names: Names) -> None:
        self._client, self.names = client, names

    def entries(self) -> dict[str, Entry] | None:
        """All entries by id, or None where there is no ledger."""
        pairs = self._client.one(self.names.ledger, "HGETALL", self.names.ledger)
        fields = dict(zip(pairs[::2], pairs[1::2], strict=True))
        if not fields:
            return None
        if fields.pop(_FORMAT_FIELD, _FORMAT) != _FORMAT:
            raise RefusedError(
                "the ledger was written by a newer migrator", next="use the version of migrator that wrote it"
            )
        return {name.decode(): Entry.model_validate_json(value) for name, value in fields.items()}

    def put(self, lease: Lease, entry: Entry, what: str = "", detail: str = "", also: Iterable[Words] = ()) -> Entry:
        """Writes an entry and, if `what` is given, a line of history, in one step. Returns the entry as written."""
        entry = entry.model_copy(update={"changed_at": int(time.time() * 1000)})
        words: list[Words] = [
            ("HSET", self.names.ledger, _FORMAT_FIELD, _FORMAT, entry.id, entry.model_dump_json()),
        ]
        if what:
            words.append(self._event(entry.id, what, detail))
        lease.write([*words, *also])
        return entry

    def note(self, lease: Lease, id: str, what: str, detail: str = "") -> None:
        """A line of history alone."""
        lease.write([self._event(id, what, detail)])

    def _event(self, id: str, what: str, detail: str) -> Words:
        return ("XADD", self.names.history, "*", "id", id, "who", owner_name(), "what", what, "detail", detail,
                "version", VERSION)  # fmt: skip

    def history(self, id: str = "", *, page: int = 1000) -> Iterable[Event]:
        """The history, oldest first, in pages; of one migration where an id is given."""
        start = "-"
        while True:
            lines = self._client.one(self.names.history, "XRANGE", self.names.history, start, "+", "COUNT", page)
            for stamp, flat in lines:
                f = {flat[i].decode(): flat[i + 1].decode() for i in range(0, len(flat), 2)}
                if not id or f.get("id") == id:
                    at = int(stamp.split(b"-")[0])
                    yield Event(at, f.get("id", ""), f.get("who", ""), f.get("what", ""), f.get("detail", ""))
            if len(lines) < page:
                return
            start = "(" + lines[-1][0].decode()

    # Checkpoints: one field a walk and node.

    def checkpoint(self, id: str, walk: str, node: str) -> Checkpoint | None:
        value = self._client.one(self.names.checkpoints, "HGET", self.names.checkpoints, _walk(id, walk, node))
        return msgspec.json.decode(value, type=Checkpoint) if value else None

    def tally_under_way(self, id: str, epoch: int) -> Tally:
        """The accounts of a backfill that is not finished: the sum over its checkpoints."""
        pairs = self._client.one(self.names.checkpoints, "HGETALL", self.names.checkpoints)
        prefix = f"{id}/copy-".encode()
        found = [msgspec.json.decode(pairs[i + 1], type=Checkpoint) for i in range(0, len(pairs), 2)
                 if pairs[i].startswith(prefix)]  # fmt: skip
        return tally_of(checkpoint for checkpoint in found if checkpoint.epoch == epoch)

    def checkpoint_words(self, id: str, walk: str, checkpoint: Checkpoint) -> Words:
        field = _walk(id, walk, checkpoint.node)
        return ("HSET", self.names.checkpoints, field, msgspec.json.encode(checkpoint))

    def forget_words(self, id: str, walk: str = "") -> list[Words]:
        """What removes the checkpoints of all walks whose name begins so; of a migration's all where none is given."""
        prefix = f"{id}/{walk}".encode()
        names = self._client.one(self.names.checkpoints, "HKEYS", self.names.checkpoints)
        gone = [name for name in names if name.startswith(prefix)]
        return [("HDEL", self.names.checkpoints, *gone)] if gone else []

    # Quarantine: one field a record.

    def rejected_words(self, id: str, records: dict[bytes, Rejected]) -> list[Words]:
        words: list[Words] = []
        for batch in _batches(list(records)):
            pairs: list[Arg] = []
            for name in batch:
                pairs += [name, msgspec.json.encode(records[name])]
            words.append(("HSET", self.names.quarantine(id), *pairs))
        return words

    def released_words(self, id: str, addresses: Iterable[bytes]) -> list[Words]:
        return [("HDEL", self.names.quarantine(id), *batch) for batch in _batches(list(addresses))]

    def rejected(self, id: str) -> dict[bytes, Rejected]:
        """All records in quarantine by address (see `address`); at most a little over 10,000 are open at a time."""
        fields = self._fields(self.names.quarantine(id))
        return {name: msgspec.json.decode(value, type=Rejected) for name, value in fields}

    def _fields(self, key: bytes) -> Iterator[tuple[bytes, bytes]]:
        """A hash in pages."""
        cursor = b"0"
        while True:
            cursor, flat = self._client.one(key, "HSCAN", key, cursor, "COUNT", 1000)
            yield from zip(flat[::2], flat[1::2], strict=True)
            if cursor == b"0":
                return

    # What was seen of the families, for `status`: see engine/census.

    def census_words(self, id: str, fields: dict[bytes, bytes]) -> list[Words]:
        return [
            ("HSET", self.names.census(id), *(word for name in batch for word in (name, fields[name])))
            for batch in _batches(list(fields))
        ]

    def census(self, id: str) -> dict[bytes, bytes]:
        return dict(self._fields(self.names.census(id)))


def address(key: bytes, member: bytes | None) -> bytes:
    """A record's name in the quarantine; a key of any bytes, and a member or none."""
    return b"k:" + key if member is None else b"m:%d:" % len(key) + key + member


def parse_address(name: bytes) -> tuple[bytes, bytes | None]:
    if name.startswith(b"k:"):
        return name[2:], None
    length, _, rest = name[2:].partition(b":")
    return rest[: int(length)], rest[int(length) :]


def _batches(names: list[bytes]) -> Iterable[list[bytes]]:
    return (names[i : i + _BATCH] for i in range(0, len(names), _BATCH))


def _walk(id: str, walk: str, node: str) -> bytes:
    return f"{id}/{walk}/{node}".encode()


def tally_of(checkpoints: Iterable[Checkpoint]) -> Tally:
    total = Tally()
    for checkpoint in checkpoints:
        total += Tally(**checkpoint.counts)
    return total


__all__ = ["Checkpoint", "Event", "Ledger", "Rejected", "address", "parse_address", "tally_of"]
