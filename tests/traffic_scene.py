"""Where the harness plays: the data of an application, its processes, and what they account for."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from migrator.adapters import Done, Jobs
from tests.notes import MODULE, NOTES, note_id
from tests.records import Bulk, Nodes
from tests.servers import ROOT, Place, Server
from tests.support import guid, job, modules_of, shipped
from tests.traffic import TICKS, map_of, member_name, sort_of

FAR = "2099-01-01T00:00:00Z"
FAR_SCORE = 4_070_908_800
WORKER_WAIT = 60  # seconds


@dataclass(frozen=True)
class Size:
    jobs: int
    stamps: int
    writers: int
    readers: int
    dwell: float  # seconds of traffic in each phase, at least


class Scene:
    """The data of an application, its processes, and what they account for."""

    def __init__(self, place: Place, size: Size, home: Path) -> None:
        self.place, self.size, self.home = place, size, home
        self.tagged = place.kind == "cluster"
        self.ae = b"{ae}" if self.tagged else b"ae"
        self.directory = shipped(home / "migrations", tagged=self.tagged)
        (self.directory / "0003_notes.py").write_text(MODULE)
        self.crew: list[subprocess.Popen[str]] = []
        self.dice = random.Random()

    def map_key(self, name: str) -> bytes:
        return (b"{map}:" if self.tagged else b"map:") + name.encode() + b":__meta:timestamps"

    def job_key(self, id: str) -> bytes:
        return self.ae + b":job:" + id.encode()

    def load(self) -> None:
        nodes = Nodes(self.place.behind)
        with Bulk(nodes) as bulk:
            for number in range(self.size.jobs):
                status, more = {"work": (100, {}), "canceled": (200, {"retryDelayUntil": FAR})}.get(
                    sort_of(number), (400, {})
                )
                key, queue = self.job_key(guid(number)), self.ae + b":jobs:queue"
                bulk.send(key, b"SET", key, job(guid(number), status=status, payload="0", **more))
                if status != 400:
                    score = FAR_SCORE if status == 200 else number
                    bulk.send(queue, b"ZADD", queue, b"%d" % score, guid(number).encode())
            for member in range(self.size.stamps):
                key = self.map_key(map_of(member))
                bulk.send(key, b"HSET", key, member_name(member), b"%d" % TICKS)
            for writer, i in product(range(self.size.writers), range(NOTES)):
                for key in (b"{t}:apart:" + note_id(writer, i).encode(), b"{t}:text:" + note_id(writer, i).encode()):
                    bulk.send(key, b"SET", key, b"0")
        nodes.close()

    def start(self) -> None:
        node = self.place.behind if isinstance(self.place.behind, Server) else self.place.behind.nodes[0]
        where = ["127.0.0.1", str(node.port), str(int(self.tagged)), str(self.directory)]
        sizes = [str(number) for number in (self.size.jobs, self.size.stamps, self.size.writers)]
        roles = [("writer", n) for n in range(self.size.writers)] + [("reader", n) for n in range(self.size.readers)]
        for role, number in roles:
            command = [sys.executable, "-m", "tests.traffic", *where, *sizes, role, str(number)]
            self.crew.append(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True))
        for process in self.crew:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"

    def check(self) -> None:
        """Nobody has stopped because of what it saw."""
        for process in self.crew:
            if process.poll() is not None:
                raise AssertionError(process.communicate()[0])

    def dwell(self) -> None:
        time.sleep(self.size.dwell)
        self.check()

    def stop(self) -> list[dict[str, Any]]:
        for process in self.crew:
            process.send_signal(signal.SIGTERM)
        accounts = [json.loads(process.communicate(timeout=WORKER_WAIT)[0]) for process in self.crew]
        for account in accounts:
            assert account["failed"] == ""
        return accounts

    def close(self) -> None:
        for process in self.crew:
            process.kill()
            process.communicate()

    def drained(self) -> Counter[str]:
        """What was left in the queue and due, claimed here."""
        jobs = Jobs(self.place.raw, modules_of(self.directory).find("0001"))
        claimed: Counter[str] = Counter()
        while found := jobs.claim_many(guid(10**9), 100):
            for one in found:
                claimed[one.id] += 1
                assert isinstance(jobs.complete(one), Done)
        return claimed
