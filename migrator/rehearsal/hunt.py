"""Runs a command of this tool as a process, kills it again and again, and starts it again until it is done."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import migrator
from migrator.client import Client
from migrator.engine import commands
from migrator.engine.session import Session
from migrator.errors import MigratorError
from migrator.ledger.lease import show_lease
from migrator.moves.loader import Modules
from migrator.names import Names

_POLL = 0.01
_LEASE = "1"  # seconds; the least there is: a process that was killed holds it for so long
_AGAIN = (20, 21)  # the lease is held by one that was killed, or was taken over by its successor
_PAUSE = 0.1
_PATIENCE = 600.0  # seconds without a step forward


@dataclass
class Hunter:
    """Kills after a drawn time, `every` seconds on average, from the moment a process holds the lease.

    While no phase is reached between two kills, the next process is given more time: some stages begin anew in each,
    as the comparison before the switch does, and would never end on much data. Checkpoints do not tell: those are
    written anew as well.
    """

    client: Client
    names: Names
    modules: Modules
    environment: dict[str, str]
    home: Path
    every: float
    check: Callable[[], None]
    dice: random.Random = field(default_factory=random.Random)
    kills: Counter[str] = field(default_factory=Counter)
    processes: int = 0

    def run(self, *words: str, begun: Callable[[], None] | None = None) -> tuple[int, Any]:
        """The exit code of the process that came to its end, and its document. `begun` is called once, while a
        process is at work. Raises MigratorError if nothing goes forward for ten minutes."""
        patience, reached, stood, seen = 1.0, self._phases(), self._state(), time.monotonic()
        while True:
            exit, out = self._life(words, self.every * patience, begun)
            if exit in _AGAIN:
                time.sleep(_PAUSE)
                continue
            if exit >= 0:
                return exit, json.loads(out)
            if begun is not None and self._called:
                begun = None
            self.kills[words[0]] += 1
            if self.dice.random() < 0.5:
                self._break()
            phases, now = self._phases(), self._state()
            patience, reached = (1.0 if phases != reached else patience * 1.5), phases
            if now != stood:
                stood, seen = now, time.monotonic()
            elif time.monotonic() - seen > _PATIENCE:
                raise MigratorError(f"{' '.join(words)} does not come further", next="give --kill-every more time")

    def _life(self, words: Sequence[str], mean: float, begun: Callable[[], None] | None) -> tuple[int, str]:
        """One process, from its start to its end: its exit code, negative where it was killed, and its output."""
        common = ["--namespace", self.names.namespace, "--format", "json", "--lease", _LEASE]
        command = [sys.executable, "-m", "migrator", *words, *common]
        self.processes += 1
        self._called = False
        holder, at = self._holder(), 0.0
        with (self.home / "out").open("w+") as out, (self.home / "err").open("w") as err:
            process = subprocess.Popen(command, env=self.environment, stdout=out, stderr=err, stdin=subprocess.DEVNULL)
            try:
                while process.poll() is None:
                    if not at and self._holder() not in (holder, b""):
                        at = time.monotonic() + self.dice.random() * 2 * mean
                        if begun is not None:
                            begun()
                            self._called = True
                    if at and time.monotonic() >= at and self.every:
                        process.kill()
                    self.check()
                    time.sleep(_POLL)
            finally:
                process.kill()
                process.wait()
            out.seek(0)
            return process.returncode, out.read()

    def _break(self) -> None:
        """What an operator does who knows that the process is gone; else its lease has to run out."""
        session = Session(self.client, self.names, self.modules)
        if (holder := show_lease(self.client, self.names)) is not None:
            commands.lock_break(session, holder.token)

    def _holder(self) -> bytes:
        return self.client.one(self.names.lease, "HGET", self.names.lease, "token") or b""

    def _phases(self) -> object:
        """What only goes forward while a command is at work: the epoch rises with each step, or the phase is the
        next."""
        entries = Session(self.client, self.names, self.modules).ledger.entries() or {}
        return {id: (entry.phase, entry.epoch) for id, entry in entries.items()}

    def _state(self) -> object:
        """The ledger and the checkpoints: what tells whether processes do anything."""
        keys = (self.names.ledger, self.names.checkpoints)
        return [self.client.one(key, "HGETALL", key) for key in keys]


def environment(url: str, migrations: Path) -> dict[str, str]:
    """None of the user's own settings; the package is found from any directory. The URL may hold a password: it is
    not among the words of a command, which everybody sees."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MIGRATOR_") or "PREFIX" in name}
    here = str(Path(migrator.__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, [here, kept.get("PYTHONPATH")]))
    own = {"MIGRATOR_URL": url, "MIGRATOR_MIGRATIONS": str(migrations.resolve())}
    return {**kept, "PYTHONPATH": path, "PYTHONUTF8": "1", **own}
