"""Plain commands under the marker's guard: removal, and what the way back puts in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from migrator.client import Arg, Command, Reply
from migrator.engine.batches import by_slot
from migrator.engine.run import Run
from migrator.phases import Guard
from migrator.phases.markers import refusal
from migrator.scripts import script

BATCH = 100

T = TypeVar("T")


def guarded(run: Run, guard: Guard, commands: Sequence[tuple[Arg, ...]]) -> list[Reply]:
    """Runs commands whose keys stand in second place (RENAMENX: also in third), if the markers are as planned. Their
    replies, slot by slot; None of a RENAMENX whose key is not there."""
    replies = _send(run, [_call(run, guard, slot, batch) for slot, batch in _batches(run, commands, _key)])
    return [answer for reply in replies for answer in reply[1]]


def unlink(run: Run, guard: Guard, names: Sequence[bytes]) -> None:
    """Removes keys, if the markers are as planned."""
    remove, args = script("unlink"), guard.args()
    batches = _batches(run, names, lambda name: name)
    _send(run, [Command.eval(remove, [run.markers.key(slot), *batch], args) for slot, batch in batches])


def _batches(run: Run, items: Sequence[T], key: Callable[[T], bytes]) -> Iterator[tuple[int, list[T]]]:
    """Those of one slot together, so many at a time."""
    for slot, group in by_slot(run.client, items, key).items():
        for start in range(0, len(group), BATCH):
            yield slot, group[start : start + BATCH]


def _key(words: tuple[Arg, ...]) -> bytes:
    assert isinstance(words[1], bytes)
    return words[1]


def _send(run: Run, calls: Sequence[Command]) -> list[Reply]:
    return [refusal(reply, run.id) for reply in run.client.run(calls)]


def _call(run: Run, guard: Guard, slot: int, group: Sequence[tuple[Arg, ...]]) -> Command:
    keys: dict[bytes, None] = {}
    args: list[Arg] = [*guard.args()]
    for words in group:
        for word in words[1 : 3 if words[0] == "RENAMENX" else 2]:
            assert isinstance(word, bytes)
            keys[word] = None
        args += (len(words), *words)
    return Command.eval(script("guarded"), [run.markers.key(slot), *keys], args)
