"""An application in pieces: writers and readers at full speed, each a process, that account for all they did.

`python -m tests.traffic HOST PORT CLUSTER DIRECTORY JOBS STAMPS WRITERS ROLE NUMBER`, until SIGTERM, and for LEAST
turns; its account is one JSON document on standard output. What a record has to be at the end follows from all of them.

Jobs by number: six in ten are *steady* (completed, updated by anybody, never deleted), two *work* (in the queue, to be
claimed once and completed), one *canceled* by its owner (scheduled for a far day before), one *doomed* (deleted by its
owner). Timestamps: every tenth member is removed by its owner, the others only ever grow. Notes: see tests/notes.py.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import redis
from redis.cluster import RedisCluster

from migrator.adapters import (
    Code,
    Deleted,
    Done,
    Found,
    Jobs,
    Missing,
    NotDone,
    Records,
    Removed,
    Timestamps,
    Written,
)
from migrator.moves.loader import Modules, load
from tests.notes import Notes, WrongError
from tests.support import guid

MAPS = 20
SMALL = 40  # members of the one small map whose whole window is read
STEP = 1280  # ticks; a whole number of doubles: the same before and after the switch
TICKS = 638_960_228_000_000_000 // STEP * STEP
BATCH = 5
LEAST = 300  # turns of each process, however busy the machine is: enough for each kind of turn
Sort = Literal["steady", "work", "canceled", "doomed"]
SORTS: tuple[Sort, ...] = ("steady",) * 6 + ("work",) * 2 + ("canceled", "doomed")


def sort_of(number: int) -> Sort:
    return SORTS[number % len(SORTS)]


def map_of(member: int) -> str:
    """Member numbers below SMALL lie in a map of their own."""
    return "small" if member < SMALL else f"m{member % MAPS}"


def member_name(member: int) -> bytes:
    return b'"session-%d"' % member


def removable(member: int) -> bool:
    return member >= SMALL and member % 10 == 0


def fresh(writer: int, n: int) -> str:
    """The id of a job that a writer makes."""
    return f"{writer + 1:08x}-0000-4000-8000-{n:012x}"


class Party:
    """What writers and readers have in common."""

    def __init__(self, client: Any, modules: Modules, number: int, jobs: int, stamps: int, writers: int) -> None:
        self.number, self.size, self.stamps_size, self.writers = number, jobs, stamps, writers
        self.jobs = Jobs(client, modules.find("0001"))
        self.records = Records(client, modules.find("0001"))
        self.stamps = Timestamps(client, modules.find("0002"))
        self.dice = random.Random(number)
        self.done: Counter[str] = Counter()
        self.notes = Notes(client, modules.find("0003"), number, writers, self.done)

    def job(self, *sorts: Sort) -> int:
        while True:
            number = self.dice.randrange(self.size)
            if sort_of(number) in sorts:
                return number


class Writer(Party):
    """Owns members by their number modulo that of the writers, jobs by their block of ten. Steady jobs and the queue
    are everybody's."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.worker = guid(10**9 + self.number)
        self.counted: Counter[str] = Counter()  # by job id: how often this writer added one
        self.claimed: Counter[str] = Counter()
        self.ended: dict[str, str] = {}  # by job id: what its owner made of it
        self.created: list[str] = []
        self.fleeting: list[str] = []
        self.times: dict[int, int | None] = {}
        self.n = 0

    def turn(self) -> None:
        what = self.dice.random()
        if what < 0.15:
            self.notes.turn()
        elif what < 0.3:
            self.count()
        elif what < 0.42:
            self.work()
        elif what < 0.47:
            self.end()
        elif what < 0.52:
            self.create()
        elif what < 0.56:
            self.create_fleeting()
        elif what < 0.9:
            self.stamp()
        elif what < 0.95:
            self.stamp_many()
        else:
            self.unstamp()
        self.n += 1

    def count(self) -> None:
        """Adds one to a counter that all writers share, by optimistic locking."""
        id = guid(self.job("steady"))
        found = self.jobs.get(id)
        if not isinstance(found, Done):
            raise WrongError(f"get {id}: {found}")
        more = {"Payload": b"%d" % (int(found.job.payload) + 1)}
        answer = self.jobs.update(id, more, version=found.job.version)
        if isinstance(answer, Done):
            self.counted[id] += 1
            self.done["update"] += 1
        elif answer.code in (Code.VERSION_CONFLICT, Code.RETRY):
            self.done["conflict"] += 1
        else:
            raise WrongError(f"update {id}: {answer}")

    def work(self) -> None:
        answer = self.jobs.claim(self.worker)
        if isinstance(answer, NotDone):
            if answer.code not in (Code.JOB_NOT_CLAIMED, Code.RETRY):
                raise WrongError(f"claim: {answer}")
            self.done["nothing due"] += 1
            return
        self.claimed[answer.job.id] += 1
        self.done["claim"] += 1
        done = self.jobs.complete(answer.job, b'"ok"')
        if not isinstance(done, Done):
            raise WrongError(f"complete {answer.job.id}: {done}")

    def end(self) -> None:
        block = self.dice.randrange(self.size // (self.writers * len(SORTS))) * self.writers + self.number
        number = block * len(SORTS) + self.dice.choice((8, 9))
        id = guid(number)
        if id in self.ended:
            return
        wanted: Any = Deleted if sort_of(number) == "doomed" else Done
        answer = self.jobs.delete(id) if wanted is Deleted else self.jobs.cancel(id)
        if not isinstance(answer, wanted):
            raise WrongError(f"{sort_of(number)} {id}: {answer}")
        self.ended[id] = sort_of(number)
        self.done[sort_of(number)] += 1

    def create(self) -> None:
        id = fresh(self.number, self.n)
        if not isinstance(answer := self.jobs.create(id, "made", b"0"), Done):
            raise WrongError(f"create {id}: {answer}")
        again = self.jobs.create(id, "again", b"0")
        if not (isinstance(again, NotDone) and again.code is Code.JOB_CREATE_FAILED):
            raise WrongError(f"create {id} again: {again}")
        self.created.append(id)
        self.done["create"] += 1

    def create_fleeting(self) -> None:
        """A job with 50 to 500 ms to live, outside the queue."""
        id = fresh(self.number + 100, self.n)
        known = self.jobs.get(guid(self.job("steady")))
        if not isinstance(known, Done):
            raise WrongError(f"get: {known}")
        fields = known.job.fields | {b"Id": id.encode()}
        at = int(time.time() * 1000) + self.dice.randint(50, 500)
        if not isinstance(answer := self.records.put(fields, id=id, expires_at=at), Written):
            raise WrongError(f"put {id}: {answer}")
        self.fleeting.append(id)
        self.done["fleeting"] += 1

    def member(self) -> int:
        return self.dice.randrange(self.stamps_size // self.writers) * self.writers + self.number

    def stamp(self) -> None:
        member = self.member()
        ticks = TICKS + (self.n + 1) * STEP
        answer = self.stamps.set(member_name(member), ticks, name=map_of(member))
        if not isinstance(answer, Written):
            raise WrongError(f"stamp {member}: {answer}")
        self.times[member] = ticks
        self.done["stamp"] += 1

    def read_own_stamp(self, member: int) -> None:
        answer, want = self.stamps.get(member_name(member), name=map_of(member)), self.times.get(member, TICKS)
        if (answer.value if isinstance(answer, Found) else None) != want or not isinstance(answer, (Found, Missing)):
            raise WrongError(f"stamp of {member}: {answer}, wanted {want}")
        self.done["get own stamp"] += 1

    def stamp_many(self) -> None:
        first = self.member()
        members = [m for i in range(BATCH) if (m := first + i * MAPS * self.writers) < self.stamps_size]
        if first < SMALL:
            return
        ticks = TICKS + (self.n + 1) * STEP
        answer = self.stamps.set_many({member_name(m): ticks for m in members}, name=map_of(first))
        if answer.unmoved or answer.done != len(members):
            raise WrongError(f"stamp {members}: {answer}")
        self.times |= dict.fromkeys(members, ticks)
        self.done["stamp many"] += 1

    def unstamp(self) -> None:
        member = self.member()
        if not removable(member):
            self.read_own_stamp(member)
            return
        answer = self.stamps.remove(member_name(member), name=map_of(member))
        gone = member in self.times and self.times[member] is None
        if not isinstance(answer, Missing if gone else Removed):
            raise WrongError(f"unstamp {member}: {answer}, gone {gone}")
        self.times[member] = None
        self.done["unstamp"] += 1
        self.read_own_stamp(member)

    def account(self) -> dict[str, Any]:
        return {
            "counted": self.counted, "claimed": self.claimed, "ended": self.ended, "created": self.created,
            "fleeting": self.fleeting, "times": self.times, "notes": self.notes.texts,
        }  # fmt: skip


class Reader(Party):
    """Reads what is never deleted: it has to be there, and never older than it was."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.counters: dict[str, int] = {}
        self.times: dict[int, int] = {}

    def turn(self) -> None:
        what = self.dice.random()
        if what < 0.1:
            self.notes.read()
        elif what < 0.5:
            self.read_job()
        elif what < 0.95:
            self.read_stamp()
        else:
            self.read_window()

    def read_job(self) -> None:
        id = guid(self.job("steady", "work"))
        found = self.jobs.get(id)
        if not isinstance(found, Done):
            raise WrongError(f"get {id}: {found}")
        counter = int(found.job.payload)
        if counter < self.counters.get(id, 0):
            raise WrongError(f"{id} went back from {self.counters[id]} to {counter}")
        self.counters[id] = counter
        self.done["get"] += 1

    def read_stamp(self) -> None:
        member = self.dice.randrange(self.stamps_size)
        if removable(member):
            return
        found = self.stamps.get(member_name(member), name=map_of(member))
        if not isinstance(found, Found):
            raise WrongError(f"stamp of {member}: {found}")
        self.seen(member, found.value)
        self.done["get stamp"] += 1

    def seen(self, member: int, ticks: int) -> None:
        if ticks < self.times.get(member, 0):
            raise WrongError(f"stamp of {member} went back from {self.times[member]} to {ticks}")
        self.times[member] = ticks

    def read_window(self) -> None:
        """Times only grow, so whoever is not read yet stays ahead of the page."""
        due = self.stamps.due(0, TICKS + 10**15, 7, name="small")
        last: dict[bytes, int] = {stamp.member: stamp.ticks for page in due for stamp in page}
        missed = [m for m in range(SMALL) if member_name(m) not in last]
        if missed:
            raise WrongError(f"a window missed {missed}")
        for member in range(SMALL):
            self.seen(member, last[member_name(member)])
        self.done["window"] += 1

    def account(self) -> dict[str, Any]:
        return {}


def main(
    host: str, port: str, cluster: str, directory: str, jobs: str, stamps: str, writers: str, role: str, number: str
) -> None:
    client: Any = RedisCluster(host=host, port=int(port)) if int(cluster) else redis.Redis(host=host, port=int(port))
    kind = Writer if role == "writer" else Reader
    party = kind(client, load(Path(directory)), int(number), int(jobs), int(stamps), int(writers))
    os.nice(10)  # twelve at full speed leave nothing of two cores to the migration that is to be watched
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    print("ready", flush=True)
    try:
        turns = 0
        while not stopped or turns < LEAST:
            party.turn()
            turns += 1
    except Exception:
        # Nothing else: more than a pipe holds would keep this process, and nobody would hear of it before the end.
        print(json.dumps({"failed": traceback.format_exc(limit=-3)}), flush=True)
        sys.exit(1)
    print(json.dumps({"failed": "", "done": party.done, **party.account()}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
