"""A process of the harness: writes its own records at full speed, or reads everybody's; accounts for what it did.

`python -m tests.adapters.writer HOST PORT CLUSTER DIRECTORY ROLE NUMBER`, until the key `stop` is there; its account
is one JSON document on standard output.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import redis
from redis.cluster import RedisCluster

from migrator.adapters import Found, Missing, Records, Removed, Timestamps, Written
from migrator.moves.loader import load

IDS = 60  # of each writer and family
TICKS = 638_960_228_000_000_000
STOP = b"{t}:stop"


class WrongError(Exception):
    """An answer that cannot be."""


def step(n: int) -> int:
    return TICKS + n * 1280  # a whole number of doubles: the same before and after the switch


class Writer:
    """Owns its ids, so it knows what each must hold. Ids below `STEADY` are never deleted."""

    STEADY = 20

    def __init__(self, number: int, records: list[Records], stamps: Timestamps) -> None:
        self.number, self.records, self.stamps = number, records, stamps
        self.dice = random.Random(number)
        self.counters: list[dict[bytes, int]] = [{} for _ in records]
        self.until: dict[bytes, float] = {}
        self.times: dict[bytes, int] = {}
        self.done: Counter[str] = Counter()
        self.n = 0

    def id(self, i: int) -> bytes:
        return b"w%d-%d" % (self.number, i)

    def fill(self) -> None:
        for i in range(IDS):
            for family in range(len(self.records)):
                self.write(family, self.id(i))
            self.stamp(self.id(i))

    def turn(self) -> None:
        i = self.dice.randrange(IDS)
        id, family, what = self.id(i), self.dice.randrange(len(self.records)), self.dice.random()
        if what < 0.35:
            self.write(family, id)
        elif what < 0.5:
            self.read(family, id)
        elif what < 0.6 and i >= self.STEADY:
            self.delete(family, id)
        elif what < 0.8:
            self.stamp(id)
        elif what < 0.9:
            self.read_stamp(id)
        elif i >= self.STEADY:
            self.unstamp(id)
        if what > 0.97:
            self.fleeting()

    def write(self, family: int, id: bytes) -> None:
        self.n += 1
        answer = self.records[family].put({b"id": id, b"text": b"%d" % self.n}, id=id)
        if not isinstance(answer, Written):
            raise WrongError(f"put {id!r} of {family}: {answer}")
        self.counters[family][id] = self.n
        self.done["put"] += 1

    def read(self, family: int, id: bytes) -> None:
        answer, want = self.records[family].get(id=id), self.counters[family].get(id)
        got = int(answer.value[b"text"]) if isinstance(answer, Found) else None
        if got != want or not isinstance(answer, (Found, Missing)):
            raise WrongError(f"get {id!r} of {family}: {answer}, wanted {want}")
        self.done["get"] += 1

    def delete(self, family: int, id: bytes) -> None:
        answer, was = self.records[family].delete(id=id), self.counters[family].pop(id, None)
        if type(answer) is not (Missing if was is None else Removed):
            raise WrongError(f"delete {id!r} of {family}: {answer}, had {was}")
        self.done["delete"] += 1

    def stamp(self, id: bytes) -> None:
        self.n += 1
        if not isinstance(answer := self.stamps.set(id, step(self.n), name="m"), Written):
            raise WrongError(f"stamp {id!r}: {answer}")
        self.times[id] = step(self.n)
        self.done["stamp"] += 1

    def read_stamp(self, id: bytes) -> None:
        answer, want = self.stamps.get(id, name="m"), self.times.get(id)
        if (answer.value if isinstance(answer, Found) else None) != want or not isinstance(answer, (Found, Missing)):
            raise WrongError(f"stamp of {id!r}: {answer}, wanted {want}")
        self.done["read stamp"] += 1

    def unstamp(self, id: bytes) -> None:
        answer, was = self.stamps.remove(id, name="m"), self.times.pop(id, None)
        if type(answer) is not (Missing if was is None else Removed):
            raise WrongError(f"remove {id!r}: {answer}, had {was}")
        self.done["unstamp"] += 1

    def fleeting(self) -> None:
        """A record that expires: gone when its time is over, whatever the phase does meanwhile."""
        family, now = self.dice.randrange(len(self.records)), time.time()
        id = b"f%d-%d-%d" % (self.number, family, self.dice.randrange(5))
        if id in self.until and now > self.until[id] + 0.005:
            if not isinstance(answer := self.records[family].get(id=id), Missing):
                raise WrongError(f"{id!r} should have expired: {answer}")
            self.done["expired"] += 1
        at = int(1000 * now) + self.dice.randrange(50, 500)
        self.records[family].put({b"id": id, b"text": b"x"}, expires_at=at, id=id)
        self.until[id] = at / 1000

    def account(self) -> dict[str, Any]:
        return {
            "counters": [{id.decode(): n for id, n in owned.items()} for owned in self.counters],
            "times": {id.decode(): ticks for id, ticks in self.times.items()},
            "done": self.done,
        }


class Reader:
    """Reads what is never deleted: it is always there, and its counter never goes back."""

    def __init__(self, number: int, records: list[Records], stamps: Timestamps) -> None:
        self.records, self.stamps, self.dice = records, stamps, random.Random(number)
        self.seen: dict[tuple[int, bytes], int] = {}
        self.done: Counter[str] = Counter()

    def fill(self) -> None: ...

    def turn(self) -> None:
        id = b"w%d-%d" % (self.dice.randrange(2), self.dice.randrange(Writer.STEADY))
        family = self.dice.randrange(len(self.records) + 1)
        if family < len(self.records):
            answer = self.records[family].get(id=id)
            value = int(answer.value[b"text"]) if isinstance(answer, Found) else None
        else:
            answer = self.stamps.get(id, name="m")
            value = answer.value if isinstance(answer, Found) else None
        if value is None or value < self.seen.get((family, id), 0):
            raise WrongError(f"read {id!r} of {family}: {answer}, saw {self.seen.get((family, id))}")
        self.seen[family, id] = value
        self.done["read"] += 1
        if self.dice.random() < 0.02:
            steady = {b"w%d-%d" % (w, i) for w in (0, 1) for i in range(Writer.STEADY)}
            got = {stamp.member for page in self.stamps.due(TICKS, step(10**7), 50, name="m") for stamp in page}
            if not steady <= got:
                raise WrongError(f"due passed over {sorted(steady - got)}")
            self.done["window"] += 1

    def account(self) -> dict[str, Any]:
        return {"done": self.done}


def main(host: str, port: str, cluster: str, directory: str, role: str, number: str) -> None:
    client: Any = (RedisCluster if cluster == "1" else redis.Redis)(host=host, port=int(port))
    modules = load(Path(directory))
    records = [Records(client, modules.find(id)) for id in ("0001", "0002")]
    actor = (Writer if role == "writer" else Reader)(int(number), records, Timestamps(client, modules.find("0003")))
    failed = ""
    try:
        actor.fill()
        print("ready", flush=True)
        while not client.exists(STOP):
            for _ in range(100):
                actor.turn()
    except Exception as error:  # everything that goes wrong is the harness's finding
        failed = f"{type(error).__name__}: {error}"
    print(json.dumps(actor.account() | {"failed": failed}))


if __name__ == "__main__":
    main(*sys.argv[1:])
