"""Puts saved records in place as they were, expiry included, and never over what is there."""

from __future__ import annotations

from collections.abc import Sequence

from migrator.client import Arg, Command
from migrator.engine.guarded import guarded, unlink
from migrator.engine.run import Run
from migrator.moves.family import Family, Pair
from migrator.phases import Phase
from migrator.phases.markers import refusal
from migrator.scripts import script
from migrator.snapshot.ndjson import Line

_PAGE = 1000


def put_key(run: Run, phase: Phase, line: Line, *others: bytes) -> bool:
    """A whole key of at most 16 MB, if neither it nor any of `others` (in its slot) is there; whether it was put."""
    return _put(run, phase, "put", (line.key, *others), line, line.items) == 1


def put_members(run: Run, phase: Phase, line: Line) -> None:
    """The members of a part of a collection that are not there."""
    width = 1 if line.kind == "set" else 2
    for start in range(0, len(line.items), _PAGE * width):
        _put(run, phase, "put_members", (line.key,), line, line.items[start : start + _PAGE * width])


def _put(run: Run, phase: Phase, name: str, keys: Sequence[bytes], line: Line, items: Sequence[bytes]) -> int:
    expires = -1 if line.expires_at is None else line.expires_at
    args: list[Arg] = [*run.guard(phase).args(), line.kind, expires, *items]
    command = Command.eval(script(name), [run.markers.key_for(line.key), *keys], args)
    reply: int = refusal(run.client.run([command])[0], run.id)
    return reply


class Collections:
    """Puts collections of any size back from their lines, newest first (`backup.newest_lines`): of each the newest
    copy, if there is no such key.

    A copy is put together under a name of its own, so that one that a crash cut short never passes for whole.
    """

    def __init__(self, run: Run, phase: Phase) -> None:
        self._run, self._phase = run, phase
        self._last: tuple[bytes, int] | None = None
        self._there = False

    def put(self, family: Family, pair: Pair, line: Line) -> None:
        run, aside = self._run, family.aside(pair)
        if self._last != (line.key, line.part + 1):  # another copy begins, with its last part
            self._there = run.client.one(pair.old, "EXISTS", pair.old) == 1
            unlink(run, run.guard(self._phase), [aside])
        self._last = (line.key, line.part)
        if self._there:
            return
        put_members(run, self._phase, Line(line.db, aside, line.kind, line.expires_at, line.items, line.part))
        if line.part == 0:
            guarded(run, run.guard(self._phase), [("RENAME", aside, pair.old)])


def put_line(run: Run, phase: Phase, line: Line) -> None:
    """Writes a saved record as it was, expiry included; a first part replaces what is there."""
    name = line.key
    words: list[tuple[Arg, ...]] = [("UNLINK", name)] if line.part == 0 else []
    for start in range(0, len(line.items), _PAGE):
        items = line.items[start : start + _PAGE]
        if line.kind == "zset":
            items = [item for i in range(0, len(items), 2) for item in (items[i + 1], items[i])]
        write = {"string": "SET", "hash": "HSET", "list": "RPUSH", "set": "SADD", "zset": "ZADD"}[line.kind]
        words.append((write, name, *items))
    if line.expires_at is not None:
        words.append(("PEXPIREAT", name, line.expires_at))
    guarded(run, run.guard(phase), words)
