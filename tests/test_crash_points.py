"""The tool dies before, in the middle of, and after each of its exchanges with Redis and each fsync, one at a time.

Every path of the phase table is walked: the same command, given once more, has to end as if nothing had happened.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from migrator.client import client as client_module
from migrator.engine import batches, throttle
from migrator.engine.sweep import contract_backup, rename
from migrator.errors import FencedError, RefusedError
from migrator.snapshot import backup
from tests.records import EXPIRES_AT, saved
from tests.servers import Place
from tests.support import KEYS, MEMBERS, SAME_NAME, Crash, Tool, own_keys, picture, put, tool_for

MOVES = {"keys": KEYS, "same-name": SAME_NAME, "members": MEMBERS}
WAYS = ("before", "half", "after")
MANY = [b"%d" % number for number in range(9)]
Step = Callable[[Tool], object]


class Mortal:
    """Dies at the exchange or fsync of a number, in one of three ways, and does nothing after; 0 lives on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dies_at, self.way, self.count = 0, "before", 0
        self._exchange: Callable[..., list[Any]] = client_module.exchange  # type: ignore[attr-defined] # where it is used, not where it is from
        self._fsync = os.fsync
        monkeypatch.setattr(client_module, "exchange", self.exchange)
        monkeypatch.setattr(backup, "_sync", self.sync)
        monkeypatch.setattr(os, "fsync", self.fsync)

    def live(self, dies_at: int = 0, way: str = "before") -> None:
        self.dies_at, self.way, self.count = dies_at, way, 0

    def exchange(self, node: Any, commands: Sequence[Any], **how: Any) -> list[Any]:
        self.count += 1
        if self.dies_at and self.count >= self.dies_at:
            sent = {"before": 0, "half": (len(commands) + 1) // 2, "after": len(commands)}[self.way]
            if sent and self.count == self.dies_at:
                self._exchange(node, commands[:sent], **how)
            raise Crash
        return self._exchange(node, commands, **how)

    def sync(self, file: Any) -> None:
        file.flush()
        self.fsync(file.fileno())

    def fsync(self, handle: int) -> None:
        self.count += 1
        if self.dies_at and self.count >= self.dies_at:
            raise Crash
        self._fsync(handle)


@pytest.fixture
def mortal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mortal]:
    monkeypatch.setattr(batches, "BATCH_RECORDS", 4)
    # One look at the load a walk: how many more there are, and whether they pause it, is this machine's affair.
    monkeypatch.setattr(throttle, "_FIRST", float("inf"))
    monkeypatch.setattr(throttle, "reasons", lambda *_: ())
    monkeypatch.setattr(throttle, "_PINGS", 1)
    return Mortal(monkeypatch)  # type: ignore[return-value]


def load(place: Place, move: str) -> None:
    if move == "members":
        for name in (b"a", b"b"):
            put(place, b"{t}:times:" + name, {b"m" + number: number for number in MANY})
        put(place, b"{t}:times:c", {b"m": b"1"})
        place.raw.execute_command("PEXPIREAT", b"{t}:times:c", EXPIRES_AT)
        return
    for number in MANY:
        put(place, b"{t}:text:" + number, b" text %s" % number)
    place.raw.execute_command("PEXPIREAT", b"{t}:text:3", EXPIRES_AT)


def change(place: Place, move: str) -> None:
    """What an application writes after contract: a record changed, one added, one removed."""
    if move == "members":
        put(place, b"{t}:sorted:a", {b"m1": 77.0, b"new": 5.0})
        place.raw.execute_command("ZREM", b"{t}:sorted:b", b"m2")
        return
    base = b"{t}:text:" if move == "same-name" else b"{t}:hash:"
    put(place, base + b"1", {b"text": b"changed"})
    put(place, base + b"new", {b"id": b"new", b"text": b"born"})
    place.raw.execute_command("DEL", base + b"2")


def cut_short(tool: Tool) -> None:
    """Contract dies when one record is set aside and the others are not."""
    tool.apply(through="switch")
    with tool.run() as run:
        contract_backup(run, run.entry.epoch + 1).finish()
        backup_epoch = run.entry.epoch + 1
        run.change("contracted", backup=str(tool.backup.resolve()), backup_epoch=backup_epoch, swept=False, saved=False)
        pair = run.families[0].from_old(b"{t}:times:a" if run.families[0].by_member else b"{t}:text:1")
        assert pair is not None
        assert rename(run, run.families[0], "retire", ("contracted",), [pair], [False]) == [1]


def restored(tool: Tool) -> None:
    """Repeating what was finished already is refused, and says so."""
    try:
        tool.restore()
    except RefusedError as error:
        if "nothing to restore" not in error.message:
            raise


def interrupted(tool: Tool) -> None:
    """On the way back from contract, in the middle of the rebuild."""
    with tool.run() as run:
        run.change("reverting", rolled_back=True, swept=False)


# What is done before, what is killed, whether an application writes in between.
PATHS: dict[str, tuple[list[Step], Step, bool]] = {
    "verify": ([], lambda tool: tool.apply(), False),
    "contract": ([lambda tool: tool.apply(through="switch")],
                 lambda tool: tool.apply(through="contract"), False),
    "all the way": ([], lambda tool: tool.apply(through="contract"), False),
    "expanded to pending": ([lambda tool: tool.apply()],
                            lambda tool: tool.rollback(to="pending"), False),
    "contracted to switched": ([lambda tool: tool.apply(through="contract")],
                               lambda tool: tool.rollback(to="switched"), True),
    "contracted to pending": ([lambda tool: tool.apply(through="contract")],
                              lambda tool: tool.rollback(to="pending"), True),
    "reverting to contracted": ([lambda tool: tool.apply(through="contract"), interrupted],
                                lambda tool: tool.apply("0001", through="contract"), True),
    "restore": ([lambda tool: tool.apply(through="contract")], restored, True),
    "restore half a contract": ([cut_short], restored, False),
}  # fmt: skip


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=[pytest.mark.prove, pytest.mark.timeout(300)])])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("move", MOVES)
# The file a dying process had open is closed by nobody.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_command_that_died_anywhere_ends_well_when_it_is_given_again(server, mortal, tmp_path, move, path, every):
    tool = tool_for(server, tmp_path, MOVES[move])
    before, killed, written = PATHS[path]

    def prepare() -> None:
        mortal.live()
        server.raw.flushall()
        shutil.rmtree(tool.backup, ignore_errors=True)
        load(server, move)
        for step in before:
            step(tool)
            if written and step is before[0]:
                change(server, move)

    for _ in range(2):  # the first time, scripts are unknown and sent twice
        prepare()
        mortal.live()
        killed(tool)
    steps, wanted, phase = mortal.count, picture(server), tool.phase()
    kept = backed_up(tool)
    assert steps > 10
    first = random.SystemRandom().randint(1, every)
    for number in range(first, steps + 1, every):
        for way in WAYS if every == 1 else [WAYS[number % 3]]:
            where = f"{path}: died {way} step {number} of {steps}"
            prepare()
            mortal.live(number, way)
            with pytest.raises(Crash):
                killed(tool)
            assert mortal.count >= number, where
            mortal.live()
            server.raw.hset("migrator:{migrator}:lease", "expires_ms", 0)
            killed(tool)
            assert (picture(server), tool.phase()) == (wanted, phase), where
            assert not (phase in ("contracted", "pending") and own_keys(server)), where
            assert backed_up(tool) == kept, where


def test_a_contract_that_stalled_while_it_saved_leaves_the_backup_of_its_successor_whole(server, tmp_path, monkeypatch):
    tool = tool_for(server, tmp_path, SAME_NAME)
    load(server, "same-name")
    tool.apply(through="switch")
    successor, sync = Tool(server, tool.directory, tool.backup), backup._sync
    whole: list[Any] = []

    def stalled(file: Any) -> None:
        if "part" in file.name and not whole:
            whole.append(False)
            server.raw.hset("migrator:{migrator}:lease", "expires_ms", 0)
            successor.apply(through="contract")
            whole[0] = backed_up(tool)
        sync(file)

    monkeypatch.setattr(backup, "_sync", stalled)
    with pytest.raises(FencedError):
        tool.apply(through="contract")
    assert len(whole[0]) == len(MANY)
    assert backed_up(tool) == whole[0]


def backed_up(tool: Tool) -> dict[tuple[bytes, str], object]:
    """What the backup of contract holds, lines of a collection put together."""
    found: dict[tuple[bytes, str], Any] = {}
    for directory in tool.backup.glob("*contract*"):
        for key, kind, at, value in saved(directory.parent, directory.name):
            before = found.get((key, kind), (0, frozenset()))[1]
            found[key, kind] = (bool(at), frozenset(value) | before if isinstance(value, list) else value)
    return found
