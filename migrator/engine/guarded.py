"""Plain commands under the marker's guard: removal, and what the way back puts in place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from migrator.client import Arg, Command
from migrator.engine.run import Run
from migrator.phases import Guard
from migrator.phases.markers import refusal
from migrator.scripts import script

BATCH = 100

T = TypeVar("T")


def guarded(run: Run, guard: Guard, commands: Sequence[tuple[Arg, ...]]) -> None:
    """Runs commands whose keys stand in second place (RENAME: also in third), if the markers are as planned."""
    groups: dict[int, list[tuple[Arg, ...]]] = {}
    for words in commands:
        assert isinstance(words[1], bytes)
        groups.setdefault(run.client.slot(words[1]), []).append(words)
    _send(run, [_call(run, guard, slot, batch) for slot, group in groups.items() for batch in _batches(group)])


def unlink(run: Run, guard: Guard, names: Sequence[bytes]) -> None:
    """Removes keys, if the markers are as planned."""
    groups: dict[int, list[bytes]] = {}
    for name in names:
        groups.setdefault(run.client.slot(name), []).append(name)
    remove, args = script("unlink"), guard.args()
    _send(run, [
        Command.eval(remove, [run.markers.key(slot), *batch], args)
        for slot, group in groups.items()
        for batch in _batches(group)
    ])  # fmt: skip


def _batches(group: Sequence[T]) -> Iterator[Sequence[T]]:
    return (group[i : i + BATCH] for i in range(0, len(group), BATCH))


def _send(run: Run, calls: Sequence[Command]) -> None:
    for reply in run.client.run(calls):
        refusal(reply, run.id)


def _call(run: Run, guard: Guard, slot: int, group: Sequence[tuple[Arg, ...]]) -> Command:
    keys: dict[bytes, None] = {}
    args: list[Arg] = [*guard.args()]
    for words in group:
        for word in words[1 : 3 if words[0] == "RENAME" else 2]:
            assert isinstance(word, bytes)
            keys[word] = None
        args += (len(words), *words)
    return Command.eval(script("guarded"), [run.markers.key(slot), *keys], args)
