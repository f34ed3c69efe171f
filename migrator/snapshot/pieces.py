"""The commands that make a record out of its lines, in an order and a form that may be repeated."""

from __future__ import annotations

from collections.abc import Iterator

from migrator.client import Arg
from migrator.snapshot.ndjson import Group, Line, StreamPart

Words = tuple[Arg, ...]

_ITEMS = 1000  # of a collection in one command
_NO_COUNTS = "this server counts neither the entries of a stream nor those a group has read: these counts are left out"
_REPEATED = {"XADD": "equal or smaller", "XGROUP": "BUSYGROUP"}


class Pieces:
    """Follows the lines of a file in their order. `counts_reads`: the server is Redis 7 or later, or a Valkey.

    A command that was sent twice does no harm: what is appended is appended behind what was there before the line.
    """

    def __init__(self, *, counts_reads: bool) -> None:
        self._counts_reads = counts_reads
        self._before = 0  # items, or bytes of a string, of the parts before
        self._groups: tuple[Group, ...] = ()
        self.notes: dict[str, None] = {}

    def words(self, line: Line) -> Iterator[Words]:
        if line.part == 0:
            self._before = 0
            yield ("UNLINK", line.key)
        if line.stream is not None:
            yield from self._stream(line.key, line.part, line.stream)
        elif line.kind == "string":
            yield self._string(line)
        elif line.kind == "list":
            yield from self._list(line)
        else:
            yield from _members(line)
        if line.expires_at is not None:
            # With every part: a key that expired in between would come back without.
            yield ("PEXPIREAT", line.key, line.expires_at)

    @staticmethod
    def harmless(words: Words, refusal: str) -> bool:
        """Whether a refusal only says that the command was sent before."""
        return _REPEATED.get(str(words[0]), "\0") in refusal

    def _string(self, line: Line) -> Words:
        value, at = line.items[0], self._before
        self._before += len(value)
        return ("SETRANGE", line.key, at, value) if line.part else ("SET", line.key, value)

    def _list(self, line: Line) -> Iterator[Words]:
        for start in range(0, len(line.items), _ITEMS):
            some = line.items[start : start + _ITEMS]
            if self._before:
                yield ("LTRIM", line.key, 0, self._before - 1)
            yield ("RPUSH", line.key, *some)
            self._before += len(some)

    def _stream(self, key: bytes, part: int, stream: StreamPart) -> Iterator[Words]:
        if part == 0:
            # The only way to a stream without an entry is by a group.
            yield ("XGROUP", "CREATE", key, b"-", "0-0", "MKSTREAM")
            yield ("XGROUP", "DESTROY", key, b"-")
        if part == 0:
            self._groups = stream.groups
        for group in stream.groups:
            yield ("XGROUP", "CREATE", key, group.name, group.last_id)
            yield from (("XGROUP", "CREATECONSUMER", key, group.name, name) for name in group.consumers)
        for id, fields in stream.entries:
            yield ("XADD", key, id, *(fields or (b"deleted", b"")))
        for one in stream.pending:
            yield ("XCLAIM", key, one.group, one.consumer, 0, one.id, "TIME", one.delivered_at,
                   "RETRYCOUNT", one.deliveries, "FORCE", "JUSTID")  # fmt: skip

    def afterwards(self, line: Line) -> Iterator[Words]:
        """What is sent once all of `words` is answered: a claim repeated after its entry went would be undone."""
        stream = line.stream or StreamPart()
        yield from (("XDEL", line.key, id) for id, fields in stream.entries if fields is None)
        if stream.last_id is None:
            return
        read = [group for group in self._groups if group.entries_read is not None]
        if stream.entries_added is None or stream.max_deleted_id is None or not self._counts_reads:
            if stream.entries_added is not None or read:
                self.notes[_NO_COUNTS] = None
            yield ("XSETID", line.key, stream.last_id)
            return
        yield ("XSETID", line.key, stream.last_id, "ENTRIESADDED", stream.entries_added,
               "MAXDELETEDID", stream.max_deleted_id)  # fmt: skip
        for group in read:  # only now: no group may have read more than was added
            yield ("XGROUP", "SETID", line.key, group.name, group.last_id, "ENTRIESREAD", group.entries_read or 0)


def _members(line: Line) -> Iterator[Words]:
    add, width = {"hash": ("HSET", 2), "set": ("SADD", 1), "zset": ("ZADD", 2)}[line.kind]
    items = line.items
    if line.kind == "zset":  # ZADD takes the score first
        items = [item for i in range(0, len(items), 2) for item in (items[i + 1], items[i])]
    for start in range(0, len(items), _ITEMS * width):
        yield (add, line.key, *items[start : start + _ITEMS * width])
    by_time: dict[int, list[bytes]] = {}
    for name, at in line.field_expires_at.items():
        by_time.setdefault(at, []).append(name)
    for at, names in by_time.items():
        yield ("HPEXPIREAT", line.key, at, "FIELDS", len(names), *names)
