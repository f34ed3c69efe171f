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
_LARGE = 1024 * 1024


def put_key(run: Run, phase: Phase, line: Line) -> bool:
    """A whole key, if there is none of that name; whether there was none."""
    if is_large(line) and run.client.one(line.key, "EXISTS", line.key):
        return False  # to be told so by a script, all of it would be sent to that
    return _put(run, phase, "put", line, line.items) == 1


def is_large(line: Line) -> bool:
    """Whether one script should not be given all of it, if that can be avoided."""
    return len(line.items) > _PAGE or sum(map(len, line.items)) > _LARGE


def put_members(run: Run, phase: Phase, line: Line) -> bool:
    """The members of a part of a collection that are not there; False where a key of another type is."""
    width = 1 if line.kind == "set" else 2
    pages = (line.items[start : start + _PAGE * width] for start in range(0, len(line.items), _PAGE * width))
    return all(_put(run, phase, "put_members", line, page) >= 0 for page in pages)


def _put(run: Run, phase: Phase, name: str, line: Line, items: Sequence[bytes]) -> int:
    expires = -1 if line.expires_at is None else line.expires_at
    args: list[Arg] = [*run.guard(phase).args(), line.kind, expires, *items]
    command = Command.eval(script(name), [run.markers.key_for(line.key), line.key], args)
    code: int = refusal(run.client.run([command])[0], run.id)
    return code


class Collections:
    """Puts collections of any size back from their lines, newest first (`backup.newest_lines`): of each the newest
    copy, if there is no such key.

    A copy is put together under a name of its own, so that one that a crash cut short never passes for whole.
    """

    def __init__(self, run: Run, phase: Phase) -> None:
        self._run, self._phase = run, phase
        self._last: tuple[bytes, int] | None = None
        self._there = False

    def put(self, family: Family, pair: Pair, line: Line) -> bool:
        """Whether the name was free, or is this copy's."""
        run, aside = self._run, family.aside(pair)
        if self._last != (line.key, line.part + 1):  # another copy begins, with its last part
            self._there = run.client.one(pair.old, "EXISTS", pair.old) == 1
            unlink(run, run.guard(self._phase), [aside])
        self._last = (line.key, line.part)
        if self._there:
            return False
        put_members(run, self._phase, Line(line.db, aside, line.kind, line.expires_at, line.items, line.part))
        if line.part == 0:
            # Not over what somebody made meanwhile.
            words: list[tuple[Arg, ...]] = [("RENAMENX", aside, pair.old), ("UNLINK", aside)]
            return bool(guarded(run, run.guard(self._phase), words)[0] != 0)
        return True
