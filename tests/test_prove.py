"""Nothing is lost when the tool is killed at any moment: in numbers, every record checked by an oracle of its own.

The same tests run at a sixtieth in `make test`; with the marker `prove` they run in full and print what they measure.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import HELD, JOBS, KILLED, STAMPS, Moment, Tale, Watch, hunted, live, moments, totals
from tests.records import EXPIRES_AT, MAPS, Nodes, Records, job, saved
from tests.servers import Cluster, Server, binary

RSS_LIMIT_MB = 200
CHUNK = 1000
BEFORE = [(JOBS, "backfill"), (JOBS, "verify"), (STAMPS, "backfill"), (STAMPS, "verify")]
AFTER = [(JOBS, "save"), (JOBS, "retire"), (JOBS, "switch"), (JOBS, "compare"), (STAMPS, "compare"), (STAMPS, "save")]


@dataclass(frozen=True)
class Size:
    """How many records, and how many kills before and after `verified`."""

    jobs: int
    stamps: int
    before: int
    after: int
    lease: int
    jitter: float


IN_FULL = Size(300_000, 1_000_000, before=14, after=6, lease=2, jitter=0.5)
SIXTIETH = Size(5_000, 16_500, before=2, after=1, lease=1, jitter=0.1)
SIZES = [
    pytest.param(SIXTIETH, id="sixtieth"),
    pytest.param(IN_FULL, id="full", marks=[pytest.mark.prove, pytest.mark.timeout(7200)]),
]


@pytest.fixture
def seed() -> int:
    number = random.SystemRandom().randrange(10**6)
    print(f"\nseed {number}")
    return number


@pytest.fixture
def own_server() -> Iterator[Server]:
    with Server(binary()) as server:
        yield server


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    with Cluster(binary(), "--appendonly", "yes", "--appendfsync", "no") as cluster:
        yield cluster


@pytest.mark.parametrize("size", SIZES)
def test_a_server_is_migrated_whole_though_the_tool_is_killed_again_and_again(own_server, size, seed, tmp_path):
    Story(own_server, size, seed, tmp_path).told()


@pytest.mark.parametrize("size", SIZES)
def test_a_cluster_is_migrated_whole_though_a_primary_dies_too(own_cluster, size, seed, tmp_path):
    story = Story(own_cluster, size, seed, tmp_path)
    struck = threading.Thread(target=story.strike_a_primary)
    struck.start()
    story.told()
    struck.join()
    assert story.struck_at, "the primary was not killed in the middle of the backfill"


class Story:
    """Load, migrate under fire, check every record."""

    def __init__(self, behind: Server | Cluster, size: Size, seed: int, home: Path) -> None:
        self.behind, self.size, self.home, self.dice = behind, size, home, random.Random(seed)
        self.records = Records(size.jobs, size.stamps, tagged=isinstance(behind, Cluster))
        self.watch = Watch(behind, totals(size.jobs, size.stamps, MAPS))
        self.struck_at = ""

    def told(self) -> None:
        nodes = Nodes(self.behind)
        begun = time.monotonic()
        self.records.load(nodes)
        print(f"loaded {self.size.jobs:,} jobs and {self.size.stamps:,} timestamps in {time.monotonic() - begun:.1f} s")
        there = self.hunted("verify", BEFORE, self.size.before)
        self.check_accounts(there)
        self.check_verified()
        done = self.hunted("contract", AFTER, self.size.after)
        self.check_accounts(done)
        assert [one["phase"] for one in done.result["migrations"]] == ["contracted", "contracted"]
        begun = time.monotonic()
        nodes.close()
        self.check_records(Nodes(self.behind))
        self.check_backup()
        print(f"every record checked in {time.monotonic() - begun:.1f} s")

    def hunted(self, through: str, stages: list[tuple[str, str]], kills: int) -> Tale:
        """`kills` in all; one in seven in the first second of a process, before it has done anything."""
        lease, backup = str(self.size.lease), str(self.home / "b")
        args = ["apply", "--through", through, "--lease", lease, "--yes", "--backup", backup]
        early = kills // 7
        plan = moments(self.dice, stages, kills - early)
        jitter, watch = self.size.jitter, self.watch
        tale = hunted(args, self.behind.url, self.home, watch, plan, self.dice, jitter=jitter, early=early)
        print(f"apply --through {through}: {tale}")
        assert tale.lives[-1].exit == 0, tale.lives[-1].err[-2000:] + tale.lives[-1].out[-2000:]
        assert set(tale.exits) <= {0, KILLED, HELD}
        assert tale.kills == kills
        assert tale.rss_mb < RSS_LIMIT_MB
        return tale

    def strike_a_primary(self) -> None:
        """Kills a primary when half of the jobs are copied, and starts it again a moment later."""
        assert isinstance(self.behind, Cluster)
        half = Moment(JOBS, 0, 0.5)
        while not self.watch.passed(half):
            time.sleep(0.01)
        victim = self.behind.nodes[self.dice.randrange(3)]
        victim.kill()
        time.sleep(1.0)
        victim.start()
        self.behind.wait_ok()
        self.struck_at = "backfill"

    def check_accounts(self, tale: Tale) -> None:
        """Every visit is accounted for, and there were at least as many as there are records."""
        for one, number in zip(tale.result["migrations"], (self.size.jobs, self.size.stamps), strict=True):
            tally = one["tally"]
            assert tally["scanned"] == sum(tally[n] for n in ("moved", "unchanged", "quarantined", "vanished")), tally
            assert tally["scanned"] >= number
            assert (tally["quarantined"], tally["vanished"]) == (0, 0)
            assert one["quarantine"] == {"open": 0, "accepted": 0}

    def check_verified(self) -> None:
        for id, number in ((JOBS, self.size.jobs), (STAMPS, self.size.stamps)):
            begun = time.monotonic()
            life = live(["verify", id], self.behind.url, self.home)
            found = Tale([life]).result
            print(f"verify {id[:4]}: {found['compared']:,} in {life.seconds:.1f} s ({number / life.seconds:,.0f}/s)")
            columns = ("missing", "extra", "different", "ttl_drift", "unreadable")
            assert (life.exit, [found[column] for column in columns]) == (0, [0] * 5)
            assert found["complete"] is True
            assert found["compared"] >= number
            assert time.monotonic() - begun < 1000

    def check_records(self, nodes: Nodes) -> None:
        """Every record in its new shape, and not one key more."""
        for start in range(0, self.size.jobs, CHUNK):
            chunk = [job(number) for number in range(start, min(start + CHUNK, self.size.jobs))]
            hashes = nodes.ask([(one.key, ("HGETALL", one.key)) for one in chunk])
            expiries = nodes.ask([(one.key, ("PEXPIRETIME", one.key)) for one in chunk])
            for one, flat, at in zip(chunk, hashes, expiries, strict=True):
                assert dict(zip(flat[::2], flat[1::2], strict=True)) == one.fields
                assert at == (one.expires_at or -1)
        for key, size in self.records.sizes().items():
            self._check_map(nodes, key, size)
        ours = sum(1 for node in nodes.all for key in self._names(node) if key.startswith(b"migrator:"))
        assert self.behind.size() - ours == self.size.jobs + MAPS
        nodes.close()

    def _check_map(self, nodes: Nodes, key: bytes, size: int) -> None:
        target = key + b"-sorted"
        wanted = [(field, float(int(ticks))) for field, ticks in self.records.members(size)]
        for start in range(0, size, CHUNK):
            part = wanted[start : start + CHUNK]
            (scores,) = nodes.ask([(key, ("ZMSCORE", target, *(field for field, _ in part)))])
            assert [float(score) for score in scores] == [score for _, score in part]
        count, kind, at = nodes.ask([(key, ("ZCARD", target)), (key, ("TYPE", key)), (key, ("PEXPIRETIME", target))])
        assert (count, kind, at) == (size, b"none", EXPIRES_AT if key == self.records.fleeting else -1)

    def _names(self, node: Server) -> Iterator[bytes]:
        with node.client() as client:
            yield from client.scan_iter(count=5000)

    def check_backup(self) -> None:
        """Every old record, byte for byte: nothing missing, nothing that was never there."""
        numbers = {job(number).key: number for number in range(self.size.jobs)}
        maps: dict[bytes, dict[bytes, bytes]] = {key: {} for key in self.records.sizes()}
        for key, kind, at, value in saved(self.home / "b"):
            if key in maps:
                assert (kind, at) == ("hash", EXPIRES_AT if key == self.records.fleeting else None)
                maps[key].update(value)
                continue
            found: Any = numbers[key]
            one = job(abs(found) - 1 if found < 0 else found)
            assert (kind, at, value) == ("string", one.expires_at, one.text)
            numbers[key] = -1 - abs(found) if found >= 0 else found
        assert not [key for key, number in numbers.items() if number >= 0]
        for key, size in self.records.sizes().items():
            assert maps[key] == dict(self.records.members(size))
