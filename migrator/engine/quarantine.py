"""The book of records that cannot be mapped: what is open, what is accepted, what is to be written."""

from __future__ import annotations

from collections.abc import Iterable

from migrator.errors import QuarantineError
from migrator.ledger import Ledger, Rejected, address, parse_address
from migrator.ledger.lease import Words
from migrator.moves.family import Pair

OPEN_LIMIT = 10_000


class Quarantine:
    """One migration's quarantine. Changes are kept until `words()` takes them along with a checkpoint, so that the
    accounts and the list never disagree."""

    def __init__(self, ledger: Ledger, id: str) -> None:
        self._ledger, self._id = ledger, id
        self._records = ledger.rejected(id)
        self._changed: dict[bytes, Rejected] = {}
        self._released: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._records)

    @property
    def open(self) -> int:
        return sum(not record.accepted for record in self._records.values())

    @property
    def accepted(self) -> int:
        return len(self._records) - self.open

    def get(self, pair: Pair, member: bytes | None = None) -> Rejected | None:
        return self._records.get(address(pair.key.raw, member))

    def is_accepted(self, pair: Pair, member: bytes | None, digest: str) -> bool:
        """Whether the operator accepted this record, and it still is what was accepted."""
        record = self.get(pair, member)
        return record is not None and record.accepted == digest

    def accepted_members(self, key: bytes) -> set[bytes]:
        """The accepted members of one collection."""
        prefix = address(key, b"")
        return {name[len(prefix) :] for name, r in self._records.items() if r.accepted and name.startswith(prefix)}

    def keys_with_accepted_members(self) -> set[bytes]:
        found = (parse_address(name) for name, record in self._records.items() if record.accepted)
        return {key for key, member in found if member is not None}

    def accepted_key(self, key: bytes) -> bool:
        record = self._records.get(address(key, None))
        return record is not None and bool(record.accepted)

    def reject(self, pair: Pair, member: bytes | None, reason: str, digest: str) -> bool:
        """Lists a record; returns whether it stands accepted. Raises QuarantineError above the limit of open ones."""
        name = address(pair.key.raw, member)
        known = self._records.get(name)
        if known is not None and known.accepted == digest:
            return True
        record = Rejected(reason, digest)
        if known != record:
            self._records[name] = self._changed[name] = record
            self._released.discard(name)
            if len(self._records) > OPEN_LIMIT and self.open > OPEN_LIMIT:
                raise QuarantineError(
                    f"{self._id}: more than {OPEN_LIMIT:,} records cannot be mapped",
                    next=f"look at the reasons with: migrator quarantine list {self._id[:4]}",
                )
        return False

    def release(self, pair: Pair, member: bytes | None = None) -> None:
        """Takes a record off the list, if it is on it and not accepted."""
        if self._records:
            self._drop(address(pair.key.raw, member))

    def accept(self, name: bytes) -> None:
        record = self._records[name]
        self._records[name] = self._changed[name] = Rejected(record.reason, record.digest, record.digest)

    def items(self) -> Iterable[tuple[bytes, Rejected]]:
        return sorted(self._records.items())

    def open_records(self) -> list[tuple[bytes, bytes | None]]:
        """(key, member) of every open record."""
        return [parse_address(name) for name, record in sorted(self._records.items()) if not record.accepted]

    def clear_open(self) -> None:
        """Forgets what was found; what the operator decided stays, bound to the value it was decided on."""
        for name in [name for name, record in self._records.items() if not record.accepted]:
            self._drop(name)

    def _drop(self, name: bytes) -> None:
        if self._records.pop(name, None) is not None:
            self._changed.pop(name, None)
            self._released.add(name)

    def words(self) -> list[Words]:
        """What brings Redis up to date; afterwards nothing is left to write."""
        words = [
            *self._ledger.rejected_words(self._id, self._changed),
            *self._ledger.released_words(self._id, self._released),
        ]
        self._changed, self._released = {}, set()
        return words
