"""Puts a snapshot into a server or a cluster: the file is read once whole before the first write.

Each piece may be sent twice, as everything this tool sends. A part 0 begins its key anew, so of a key that stands in a
file twice (SCAN may return it twice) the later copy is what stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from migrator.client import Client, Command, ResponseError, checked
from migrator.errors import RefusedError, UsageError
from migrator.models import Loaded, number_of, show
from migrator.snapshot.files import Mine, SnapshotFile
from migrator.snapshot.ndjson import Line
from migrator.snapshot.pieces import Pieces
from migrator.snapshot.places import Places
from migrator.snapshot.rdb.content import opened
from migrator.snapshot.rdb.header import is_rdb

__all__ = ["Loaded", "is_rdb", "load"]

_BATCH_BYTES = 1 << 20
_BATCH_KEYS = 500
_NAMED = 3

Place = tuple[int, bytes]  # a database and a key
Sent = tuple[int, Command]  # a database and what is sent to it
Tick = Callable[[int], None]  # so many records further; may raise, to stop
Begin = Callable[[], None]  # what follows writes


def load(
    path: Path,
    client: Client,
    *,
    server: Path | None = None,
    replace: bool = False,
    empty: bool = False,
    mine: Mine | None = None,
    tick: Tick = lambda _: None,
    begin: Begin = lambda: None,
) -> Loaded:
    """Loads a snapshot or an RDB file into the databases behind a client, which nobody else may write to meanwhile.

    `server` is a program that reads the RDB file, in the place of those at hand. `empty`: nothing is there, and all of
    it is thrown away if this raises; then the file is read once only. `mine`: of a snapshot, only these lines.
    `begin` is called before the first write.

    Does not flush. Raises RefusedError, before anything is written, where a key is there already (unless `replace`),
    or where the server lacks what the file needs: the database, an expiry of hash fields. Raises UsageError for a file
    that is damaged.
    """
    if not is_rdb(path):
        refuse_server(path, server)
        return load_lines(SnapshotFile(path, mine), client, replace=replace, empty=empty, tick=tick, begin=begin)
    with opened(path, server) as content:
        loaded = load_lines(content, client, replace=replace, empty=empty, tick=tick, begin=begin)
        told = content.report
    return loaded.model_copy(
        update={
            "expired": loaded.expired + told.expired,
            "not_visible": told.not_visible,
            "notes": (*told.notes, *loaded.notes),
        }
    )


def refuse_server(path: Path, server: Path | None) -> None:
    """Raises UsageError where a program is named that nobody would ask."""
    if server is not None:
        raise UsageError(f"{path} is no RDB file, and only such a one is read by a server",
                         next="leave --server out")  # fmt: skip


def load_lines(
    file: Iterable[Line],
    client: Client,
    *,
    replace: bool = False,
    empty: bool = False,
    tick: Tick = lambda _: None,
    begin: Begin = lambda: None,
) -> Loaded:
    """The same with lines from anywhere, which are gone through twice unless it is `empty`."""
    places = Places(client)
    passed = set[Place]() if empty else _check(file, places, replace=replace, tick=tick)
    begin()
    loading = _Loading(places, passed)
    for batch in _batches(file):
        loading.put(batch)
        tick(sum(line.part == 0 for line in batch))
    return loading.result()


def _check(file: Iterable[Line], places: Places, *, replace: bool, tick: Tick) -> set[Place]:
    """Reads it all. Raises before anything is written. Returns what the file does not load, as its time has passed, and
    somebody else may have there: nothing unless it is to `replace`."""
    clashes, there, timed = 0, list[bytes](), b""
    passed, now = set[Place](), places.now()
    for batch in _batches(file):
        passed.update((line.db, line.key) for line in batch if replace and _expired(line, now))
        for db in {line.db for line in batch}:
            keys = [line.key for line in batch if line.db == db and line.part == 0]
            client = places.of(db)
            found = [] if replace else _existing(client, keys)
            clashes, there = clashes + len(found), [*there, *found][:_NAMED]
        timed = timed or next((line.key for line in batch if line.field_expires_at), b"")
        tick(0)
    if timed and not places.knows("HPEXPIRETIME", "?", "FIELDS", "1", "?"):
        raise RefusedError(
            f"hash fields with an expiry of their own, first in {show(timed)}, and a server that has none; "
            "nothing was loaded", next="load it into Redis 7.4 or later, or Valkey 9 or later",
        )  # fmt: skip
    if clashes:
        named = ", ".join(map(show, there))
        raise RefusedError(
            f"{number_of(clashes, 'key')} of the snapshot {'is' if clashes == 1 else 'are'} there already, "
            f"for instance {named}; nothing was loaded",
            next="load it into an empty database, or add --replace to overwrite what is there",
        )
    return passed


def _existing(client: Client, keys: list[bytes]) -> list[bytes]:
    replies = client.each("EXISTS", keys)
    return [key for key, reply in zip(keys, replies, strict=True) if checked(reply)]


def _batches(file: Iterable[Line]) -> Iterator[list[Line]]:
    """A stream whose key comes once more ends its batch: what is sent after all else would go to the later copy."""
    batch, size, streams = list[Line](), 0, set[tuple[int, bytes]]()
    for line in file:
        if streams and line.part == 0 and (line.db, line.key) in streams:
            yield batch
            batch, size, streams = [], 0, set()
        batch.append(line)
        size += weight(line)
        if line.stream is not None:
            streams.add((line.db, line.key))
        if size > _BATCH_BYTES or len(batch) >= _BATCH_KEYS:
            yield batch
            batch, size, streams = [], 0, set()
    if batch:
        yield batch


def weight(line: Line) -> int:
    """Its bytes in memory, about."""
    inner = sum(map(len, line.items))
    if line.stream is not None:
        inner += sum(50 + sum(map(len, fields or ())) for _, fields in line.stream.entries)
        inner += 100 * len(line.stream.pending)
    return len(line.key) + inner


class _Loading:
    """`passed`: keys that are left alone where the file has nothing to load for them."""

    def __init__(self, places: Places, passed: set[Place]) -> None:
        self._places, self._passed = places, passed
        self._pieces = Pieces(counts_reads=places.knows("FUNCTION", "STATS"))
        self._last: Place | None = None  # the record that was counted last
        self._records = self._expired = self._expired_fields = 0

    def put(self, batch: list[Line]) -> None:
        now = self._places.now()
        first, second = list[Sent](), list[Sent]()
        for line in batch:  # in the order of the file, whatever its databases
            if _expired(line, now):
                first += self._expire(line)
                continue
            self._count(line)
            self._passed.discard((line.db, line.key))
            first += [(line.db, Command(line.key, words)) for words in self._pieces.words(line)]
            second += [(line.db, Command(line.key, words)) for words in self._pieces.afterwards(line)]
        for commands in (first, second):
            for db in dict.fromkeys(db for db, _ in commands):
                self._send(db, [command for of, command in commands if of == db])

    def _expire(self, line: Line) -> Iterator[Sent]:
        """Of a key that stands in the file twice the earlier copy goes: it may have had no expiry yet."""
        if line.part:
            return
        self._expired += 1
        self._uncount(line)
        if (line.db, line.key) not in self._passed:
            yield line.db, Command(line.key, ("UNLINK", line.key))

    def _count(self, line: Line) -> None:
        if line.part:
            return
        if line.holds_nothing:
            self._uncount(line)
        else:
            self._records, self._last = self._records + 1, (line.db, line.key)

    def _uncount(self, line: Line) -> None:
        if self._last == (line.db, line.key):
            self._records, self._last = self._records - 1, None

    def _send(self, db: int, commands: list[Command]) -> None:
        for command, reply in zip(commands, self._places.of(db).run(commands), strict=True):
            if isinstance(reply, ResponseError) and self._pieces.harmless(command.args, str(reply)):
                continue
            answer = checked(reply)
            if command.args[0] == "HPEXPIREAT":
                self._expired_fields += sum(one == 2 for one in answer)  # 2: its time had passed, so it was removed

    def result(self) -> Loaded:
        notes = list(self._pieces.notes)
        if self._expired_fields:
            notes.append(f"left out, because its time had passed: {number_of(self._expired_fields, 'hash field')}")
        return Loaded(records=self._records, expired=self._expired, notes=tuple(notes))


def _expired(line: Line, now: int) -> bool:
    return line.expires_at is not None and line.expires_at <= now
