"""One record and its migration, brought to a phase by the tool itself, and kept there to begin schedules from."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import redis

from migrator.adapters import Jobs, Members, Records
from migrator.client import Client, Reply
from migrator.client.topology import Single
from migrator.engine import forward
from migrator.engine.observe import Silent, Stop
from migrator.engine.run import Options, Run
from migrator.engine.session import Session
from migrator.ledger import Entry, Lease, Ledger, take_lease
from migrator.moves.family import Family, Pair
from migrator.moves.loader import Module, Modules
from migrator.names import Names
from migrator.phases import Fence, Phase
from tests.explorer import jobs
from tests.explorer.footprint import Words
from tests.explorer.server import FakeServer, Pool
from tests.support import KEYS, MEMBERS, SAME_NAME, modules_of, shipped, write

MOVES = {"swap": SAME_NAME, "key": KEYS, "members": MEMBERS}
# Where a schedule can begin. `reverting`: nothing is rebuilt yet, and what contract retired is in the backup alone.
STARTS: tuple[str, ...] = (
    "pending", "expanded", "backfilled", "verified", "switched", "contracted", "swept", "reverting",
)  # fmt: skip
AT = 4_102_444_800_000  # 2100, unix ms: when the record expires
LATER = AT + 86_400_000
_HOUR = 3600.0  # a lease that no schedule renews
NAMES = Names("migrator")
_ADAPTERS: dict[str, type[Records | Members | Jobs]] = {"members": Members, "jobs": Jobs}
_CAPTURES = {"members": {"name": b"1"}, "jobs": {"id": jobs.ID}}
_APPLICATION = redis.Redis()  # never used itself


@dataclass(frozen=True)
class Start:
    """The server as it was at the start, the directory of the backup so far, and the fence of the lease's holder."""

    state: dict[bytes, Any]
    backup: Path
    fence: Fence


Change = Callable[["Scene"], None]


@dataclass
class Scene:
    """A move on a fake server, one of MOVES or "jobs", which is the migration 0001. One scene serves all its schedules,
    one after the other."""

    move: str
    home: Path
    server: FakeServer = field(default_factory=FakeServer)

    def __post_init__(self) -> None:
        self.modules: Modules = modules_of(_migrations(self.home / "migrations", self.move))
        self.module: Module = self.modules.all[0]
        self.backup = self.home / "backup"
        self._options = Options(yes=True, backup=self.backup)
        self.by_member = self.move == "members"
        tool = self.client(Pool(self.server.run))
        self.ledger = Ledger(tool, NAMES)
        self.family = Family(tool, NAMES, self.module.id, self.module.migration.moves[0])
        old = self.module.migration.moves[0].source.format(_CAPTURES.get(self.move, {"id": b"1"}))
        pair = self.family.from_old(old)
        assert pair is not None
        self.pair: Pair = pair
        self._starts: dict[tuple[str, str, Change | None], Start] = {}
        self._copies = count()

    # Clients, as actors have them.

    def client(self, pool: Pool) -> Client:
        return Client(Single(pool, "fake", 0))  # type: ignore[arg-type] # it has all that is asked of a pool

    def adapter(self, pool: Pool, *, stranger: bool = False) -> Records | Members | Jobs:
        """An application's; a stranger has another version of the module."""
        application = copy.copy(_APPLICATION)
        module = replace(self.module, checksum="another") if stranger else self.module
        application.connection_pool = pool  # type: ignore[assignment] # it has all that is asked of a pool
        return _ADAPTERS.get(self.move, Records)(application, module)

    def session(self, pool: Pool) -> Session:
        return Session(self.client(pool), NAMES, self.modules, _HOUR, options=self._options)

    def run(self, pool: Pool, start: Start) -> Run:
        """The tool at work under the lease it held at the start, with the ledger as it was then."""
        client = self.client(pool)
        return self._run(client, Lease(client, NAMES, start.fence, _HOUR))

    def _run(self, client: Client, lease: Lease) -> Run:
        return Run(
            client,
            NAMES,
            Ledger(client, NAMES),
            lease,
            self.module,
            self.entry(),
            Silent(),
            Stop(),
            options=self._options,
        )

    # Where schedules begin.

    def start(self, phase: str, record: str = "there", change: Change | None = None) -> Start:
        """`record`: "there", "absent", "mortal" (it expires in 2100), and of a job, which else is queued, "running".
        `change` does something to it at the end, as an application without an adapter would."""
        name = (phase, record, change)
        if name not in self._starts:
            self._starts[name] = self._bring(*name)
        return self._starts[name]

    def _bring(self, phase: str, record: str, change: Change | None) -> Start:
        if change is not None:
            before = self.start(phase, record)
            self.server.put_back(before.state)
            change(self)
            return Start(self.server.keep(), before.backup, before.fence)
        if phase != STARTS[0]:
            return self._carry(phase, self.start(STARTS[STARTS.index(phase) - 1], record))
        if record != "absent":
            before = self.start(phase, "absent")
            self.server.put_back(before.state)
            self._lay(record)
            if record == "mortal":
                self.do("PEXPIREAT", self.pair.old, AT)
            return Start(self.server.keep(), before.backup, before.fence)
        self.server.put_back({})
        session = self.session(Pool(self.server.run))
        with session.leased() as lease:
            session.init(lease)
        lease = take_lease(session.client, NAMES, _HOUR)
        session._raise_fences(lease)
        return Start(self.server.keep(), self.home / "none", lease.fence)

    def _lay(self, record: str) -> None:
        if self.move == "jobs":
            jobs.lay(self.do, self.pair.old, running=record == "running")
        else:
            self.old_write(b"one ", b"01")

    def _carry(self, phase: str, before: Start) -> Start:
        """One stage on, as `apply` does it, or as `rollback` begins to."""
        self.server.put_back(before.state)
        self.begin_backup(before)
        run = self.run(Pool(self.server.run), before)
        if phase == "reverting":
            run.change("reverting", rolled_back=True)
        else:
            forward._STAGES[run.entry.phase](run, forward._Evidence())
        backup = self.home / f"start-{next(self._copies)}"
        if self.backup.exists():
            shutil.copytree(self.backup, backup)
        return Start(self.server.keep(), backup, before.fence)

    def begin_backup(self, start: Start) -> None:
        """Where schedules have their backup, as the start left it. Always one directory: its name is in the ledger."""
        if _files(self.backup) == _files(start.backup):
            return
        shutil.rmtree(self.backup, ignore_errors=True)
        if start.backup.exists():
            shutil.copytree(start.backup, self.backup)

    def entry(self) -> Entry:
        entries = self.ledger.entries()
        assert entries is not None
        return entries[self.module.id]

    def successor(self) -> Run:
        """The tool at work after a schedule, under the lease as it is then; its own, if nobody holds it."""
        client = self.client(Pool(self.server.run))
        number, token = client.one(NAMES.lease, "HMGET", NAMES.lease, "number", "token")
        if not token:
            lease = take_lease(client, NAMES, _HOUR)
        else:
            lease = Lease(client, NAMES, Fence(int(number), token.decode()), _HOUR)
        return self._run(client, lease)

    def do(self, *words: Any) -> Reply:
        """A command at once, by nobody in particular."""
        reply = self.server.run(words)
        assert not isinstance(reply, Exception), reply
        return reply

    def late_words(self) -> Words:
        """Something without an adapter writes the record in its old shape, in one step."""
        if self.by_member:
            return ("HSET", self.pair.old, "a", "08")
        return ("SET", self.pair.old, jobs.text(name="late") if self.move == "jobs" else "late ")

    def old_write(self, text: bytes, number: bytes) -> None:
        """The record in its old shape, written by something without an adapter."""
        words: Words = ("HSET", self.pair.old, "a", number) if self.by_member else ("SET", self.pair.old, text)
        self.do(*words)


def _migrations(home: Path, move: str) -> Path:
    if move != "jobs":
        return write(home, MOVES[move])
    shipped(home)
    (home / "0002_timestamps_to_sorted_sets.py").unlink()
    return home


def _files(directory: Path) -> dict[Path, tuple[int, int]]:
    found = ((path.relative_to(directory), path.stat()) for path in directory.rglob("*"))
    return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in found}


__all__ = ["AT", "LATER", "MOVES", "STARTS", "Phase", "Scene", "Start"]
