"""Kills a running `migrator` at moments spread over all its work, and starts it again until it is done.

A moment is a stage of a migration and a share of that stage, both drawn; the stage is watched from outside, in the
ledger. A drawn pause follows, so that a kill does not come just after a checkpoint.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from tests.servers import ROOT, Cluster, Server

MIGRATIONS = ROOT / "migrations"
JOBS, STAMPS = "0001_jobs_to_hashes", "0002_timestamps_to_sorted_sets"
HELD, KILLED = 20, -9
POLL = 0.01

# What is watched in each stage: the phase the ledger has, and the walk whose checkpoints count up to all records.
STAGES: Mapping[str, tuple[str, str]] = {
    "backfill": ("expanded", "copy-0"),
    "verify": ("backfilled", "compare-0-old"),
    "switch": ("verified", "compare-0-old"),
    "compare": ("switched", "compare-0-old"),
    "retire": ("contracted", "retire-0"),
    "save": ("contracted", ""),
}
_PHASES = ("pending", "expanded", "backfilled", "verified", "switched", "contracted")


@dataclass(frozen=True, order=True)
class Moment:
    """When to kill: at this share of this stage. Moments are in the order of the run."""

    migration: str
    place: int
    share: float

    @property
    def stage(self) -> str:
        return list(STAGES)[self.place]


def moments(dice: random.Random, stages: Sequence[tuple[str, str]], number: int) -> list[Moment]:
    """So many moments, in each of these (migration, stage) at least one if the number allows it."""
    chosen = [*stages, *(dice.choice(stages) for _ in range(number - len(stages)))][:number]
    places = list(STAGES)
    return sorted(Moment(id, places.index(stage), dice.random() * 0.95) for id, stage in chosen)


@dataclass
class Life:
    """One process, from its start to its end."""

    exit: int
    seconds: float
    rss_kb: int
    out: str
    err: str
    at: str = ""


@dataclass
class Tale:
    """All lives of one command."""

    lives: list[Life] = field(default_factory=list)

    @property
    def kills(self) -> int:
        return sum(life.exit == KILLED for life in self.lives)

    @property
    def exits(self) -> Counter[int]:
        return Counter(life.exit for life in self.lives)

    @property
    def rss_mb(self) -> float:
        return max(life.rss_kb for life in self.lives) / 1024

    @property
    def result(self) -> Any:
        return json.loads(self.lives[-1].out)

    def __str__(self) -> str:
        at = Counter(life.at for life in self.lives if life.exit == KILLED)
        where = ", ".join(f"{stage} {number}" for stage, number in at.items())
        return (
            f"{sum(life.seconds for life in self.lives):.1f} s in {len(self.lives)} processes, {self.kills} killed "
            f"({where or 'none'}), {self.exits[HELD]} found the lease held, peak RSS {self.rss_mb:.0f} MB"
        )


class Watch:
    """Where a migration stands, seen from outside the process that carries it."""

    def __init__(self, behind: Server | Cluster, totals: Mapping[str, int], namespace: str = "migrator") -> None:
        options: dict[str, Any] = {"socket_timeout": 5}
        self._client: Any = behind.client(**options)
        self._totals = totals
        self._name = f"{namespace}:{{{namespace}}}:"

    def passed(self, moment: Moment) -> bool:
        """Whether this moment has come, or is over."""
        try:
            return self._passed(moment)
        except (redis.RedisError, OSError):
            return False  # the server is down just now

    def _passed(self, moment: Moment) -> bool:
        entry = self._client.hget(self._name + "ledger", moment.migration)
        if entry is None:
            return False
        found = json.loads(entry)
        phase, walk = STAGES[moment.stage]
        if found["phase"] != phase:
            return _PHASES.index(found["phase"]) > _PHASES.index(phase)
        if moment.stage == "save":
            return found["swept"] or self._walked(moment.migration, "retire-0", found["epoch"])[1]
        done, _ = self._walked(moment.migration, walk, found["epoch"])
        return done >= moment.share * self._totals[f"{moment.migration}/{walk}"]

    def _walked(self, id: str, walk: str, epoch: int) -> tuple[int, bool]:
        prefix = f"{id}/{walk}/".encode()
        fields = self._client.hgetall(self._name + "checkpoints")
        found = [json.loads(text) for name, text in fields.items() if name.startswith(prefix)]
        mine = [one for one in found if one["epoch"] == epoch]
        counts = sum(one["counts"].get("scanned", sum(one["counts"].values())) for one in mine)
        return counts, bool(mine) and all(one["done"] for one in mine)

    def close(self) -> None:
        self._client.close()


def totals(jobs: int, stamps: int, maps: int) -> dict[str, int]:
    """What each watched walk counts up to."""
    numbers = {f"{id}/{walk}": n for id, n in ((JOBS, jobs), (STAMPS, stamps)) for walk in ("copy-0", "compare-0-old")}
    return {**numbers, f"{JOBS}/retire-0": jobs, f"{STAMPS}/retire-0": maps}


def live(
    args: Sequence[str],
    url: str,
    home: Path,
    kill_now: Callable[[float], bool] = lambda _: False,
    timeout: float = 3000,
) -> Life:
    """Starts one process and polls it; `kill_now` gets the seconds it has lived."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MIGRATOR_")}
    env |= {"PYTHONPATH": str(ROOT), "MIGRATOR_URL": url, "MIGRATOR_MIGRATIONS": str(MIGRATIONS)}
    command = [sys.executable, "-m", "migrator", *args, "--format", "json"]
    start, rss = time.monotonic(), 0
    with (home / "out").open("w") as out, (home / "err").open("w") as err:
        process = subprocess.Popen(command, env=env, stdout=out, stderr=err, stdin=subprocess.DEVNULL)
        try:
            while process.poll() is None:
                rss = max(rss, peak(process.pid))
                lived = time.monotonic() - start
                if kill_now(lived):
                    process.kill()
                    process.wait()
                assert lived < timeout, (home / "err").read_text()[-2000:]
                time.sleep(POLL)
        finally:
            process.kill()
            process.wait()
    lived = time.monotonic() - start
    return Life(process.returncode, lived, rss, (home / "out").read_text(), (home / "err").read_text())


def peak(pid: int) -> int:
    """The most memory a process ever had, in kB."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)


def hunted(
    args: Sequence[str],
    url: str,
    home: Path,
    watch: Watch,
    plan: Sequence[Moment],
    dice: random.Random,
    *,
    jitter: float,
    early: int = 0,
) -> Tale:
    """Runs a command to its end, killed at every moment of the plan and `early` times at a drawn second of its start.

    While the lease of a dead process runs, a start exits 20 and is repeated.
    """
    tale, ahead = Tale(), list(plan)
    while tale.kills < early:
        at = dice.random() * 0.8
        tale.lives.append(live(args, url, home, lambda lived, at=at: lived >= at))  # type: ignore[misc]
        tale.lives[-1].at = "start"
    while True:
        moment = ahead[0] if ahead else None
        seen: list[float] = []

        def kill_now(lived: float, moment: Moment | None = moment, seen: list[float] = seen) -> bool:
            if moment is not None and not seen and watch.passed(moment):
                seen.append(lived + dice.random() * jitter)
            return bool(seen) and lived >= seen[0]

        life = live(args, url, home, kill_now)
        tale.lives.append(life)
        if life.exit == KILLED and moment is not None:
            life.at = f"{moment.migration[:4]} {moment.stage}"
            ahead.pop(0)
        elif life.exit != HELD:
            return tale
