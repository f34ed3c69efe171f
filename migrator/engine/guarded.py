"""Plain commands under the marker's guard: removal, and what the way back puts in place."""

from __future__ import annotations

from collections.abc import Sequence

from migrator.client import Arg, Command
from migrator.engine.run import Run
from migrator.phases import Guard
from migrator.phases.markers import refusal
from migrator.scripts import script

BATCH = 100


def guarded(run: Run, guard: Guard, commands: Sequence[tuple[Arg, ...]]) -> None:
    """Runs commands whose keys stand in second place (RENAME: also in third), if the markers are as planned."""
    groups: dict[int, list[tuple[Arg, ...]]] = {}
    for words in commands:
        assert isinstance(words[1], bytes)
        groups.setdefault(run.client.slot(words[1]), []).append(words)
    calls = [
        _call(run, guard, slot, group[i : i + BATCH])
        for slot, group in groups.items()
        for i in range(0, len(group), BATCH)
    ]
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


def unlink(run: Run, guard: Guard, names: Sequence[bytes]) -> None:
    guarded(run, guard, [("UNLINK", name) for name in names])
