"""What is in a snapshot: families, types, sizes, expiries, the largest keys. Memory does not grow with the file."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from migrator.models import FamilyInfo, KeyInfo, SnapshotInfo, iso, show
from migrator.snapshot.families import Families
from migrator.snapshot.files import SnapshotFile
from migrator.snapshot.load import refuse_server
from migrator.snapshot.ndjson import Line
from migrator.snapshot.rdb.content import Content, opened
from migrator.snapshot.rdb.header import is_rdb

LARGEST = 10


@dataclass
class _Count:
    keys: int = 0
    members: int = 0
    bytes: int = 0
    with_expiry: int = 0
    field_expiries: int = 0
    largest: int = 0


@dataclass(order=True)
class _Record:
    size: int
    key: bytes
    db: int
    kind: str = field(compare=False)
    expires_at: int | None = field(compare=False)
    members: int = field(default=0, compare=False)
    field_expiries: int = field(default=0, compare=False)


def info(path: Path, families: Families, server: Path | None = None) -> SnapshotInfo:
    """Reads the file once. A key that stands there twice is counted twice. `server`: see `load`.

    Raises what `SnapshotFile` does, and for an RDB file what `rdb.content.opened` does.
    """
    if is_rdb(path):
        with opened(path, server) as content:
            return _of_rdb(path, content, _Looking(families))
    refuse_server(path, server)
    looking, file = _Looking(families), SnapshotFile(path)
    found = looking.all_of(path, file)
    header = file.header
    return found if header is None else found.model_copy(update={
        "taken_at": iso(header.taken_at), "server": header.server, "namespace": header.namespace,
        "redacted": header.redacted, "sample": header.sample,
    })  # fmt: skip


def _of_rdb(path: Path, content: Content, looking: _Looking) -> SnapshotInfo:
    found, told, header = looking.all_of(path, content), content.report, content.header
    return found.model_copy(update={
        "taken_at": iso(header.written_at) if header.written_at else None, "server": header.writer or None,
        "format": str(header), "reader": told.reader, "expired": told.expired, "not_visible": told.not_visible,
        "notes": told.notes,
    })  # fmt: skip


class _Looking:
    def __init__(self, families: Families) -> None:
        self._families = families
        self.counts: defaultdict[tuple[str, str], _Count] = defaultdict(_Count)
        self.databases: defaultdict[int, int] = defaultdict(int)
        self.first: int | None = None
        self.last: int | None = None
        self._heap: list[_Record] = []
        self._now: _Record | None = None

    def all_of(self, path: Path, lines: Iterable[Line]) -> SnapshotInfo:
        """What the records tell, without what stands in a first line."""
        number = 0
        for line in lines:
            self.see(line)
            number += 1
        self.close()
        return SnapshotInfo(
            file=str(path),
            bytes=path.stat().st_size,
            lines=number,
            records=sum(count.keys for count in self.counts.values()),
            databases={str(db): keys for db, keys in sorted(self.databases.items())},
            first_expiry=iso(self.first) if self.first is not None else None,
            last_expiry=iso(self.last) if self.last is not None else None,
            families=self.families(),
            largest=self.largest(),
        )

    def see(self, line: Line) -> None:
        if line.part == 0:
            if line.holds_nothing and self._now and (self._now.db, self._now.key) == (line.db, line.key):
                self._now = None
            self.close()
            fresh = _Record(0, line.key, line.db, line.kind, line.expires_at)
            self._now = None if line.holds_nothing else fresh
        if self._now is None:
            return
        self._now.size += sum(map(len, line.items))
        self._now.field_expiries += len(line.field_expires_at)
        self._now.members += _members(line)
        if line.stream is not None:
            self._now.size += sum(len(item) for _, fields in line.stream.entries for item in fields or ())

    def close(self) -> None:
        """The record before is whole."""
        record = self._now
        if record is None:
            return
        count = self.counts[self._families.of(record.key).label, record.kind]
        count.keys += 1
        count.members += record.members
        count.bytes += record.size
        count.with_expiry += record.expires_at is not None
        count.field_expiries += record.field_expiries
        count.largest = max(count.largest, record.size)
        self.databases[record.db] += 1
        if record.expires_at is not None:
            self.first = min(self.first or record.expires_at, record.expires_at)
            self.last = max(self.last or 0, record.expires_at)
        (heapq.heappush if len(self._heap) < LARGEST else heapq.heappushpop)(self._heap, record)
        self._now = None

    def families(self) -> tuple[FamilyInfo, ...]:
        """The largest first."""
        found = sorted(self.counts.items(), key=lambda item: (-item[1].bytes, item[0]))
        return tuple(FamilyInfo(family=label, type=kind, **vars(count)) for (label, kind), count in found)

    def largest(self) -> tuple[KeyInfo, ...]:
        return tuple(
            KeyInfo(db=one.db, key=show(one.key), type=one.kind, members=one.members, bytes=one.size)
            for one in sorted(self._heap, reverse=True)
        )


def _members(line: Line) -> int:
    if line.stream is not None:
        return sum(fields is not None for _, fields in line.stream.entries)
    if line.kind == "string":
        return int(line.part == 0)
    return len(line.items) // (2 if line.kind in ("hash", "zset") else 1)
