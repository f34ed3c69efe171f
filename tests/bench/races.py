"""Moving everything once, the product and scripts by hand in turn, on data that is loaded anew for each."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.records import Bulk, Nodes, job
from tests.servers import Place, Server, binary
from tests.support import Tool, shipped_tool

OLD, NEW = b"map:m:__meta:timestamps", b"map:m:__meta:timestamps-sorted"
PAGE = 1000
FIRST_TICKS = 638_950_000_000_000_000
STEP = 1280  # ticks; a whole number of doubles


@dataclass(frozen=True)
class Lap:
    """Wall time and the server's own, in µs a record."""

    wall: float
    server: float


@dataclass(frozen=True)
class Racer:
    """`prepare` is not timed and may return what `run` is to get."""

    name: str
    run: Callable[[Any, Any], None]
    prepare: Callable[[Track], Any] = lambda _: None


@dataclass
class Track:
    """A server, and the tool on it."""

    server: Server
    raw: Any
    tool: Tool

    @property
    def directory(self) -> Path:
        """Of its migrations."""
        return self.tool.directory


def command(track: Track, *words: str, url: str = "") -> list[str]:
    """A command of the tool, as a process runs it."""
    where = ("--url", url or track.server.url, "--migrations", str(track.directory))
    return [sys.executable, "-m", "migrator", *words, *where]


@contextmanager
def track(name: str, home: Path) -> Iterator[Track]:
    with Server(binary(name)) as server, server.client() as raw:
        yield Track(server, raw, shipped_tool(Place(server.url, "server", raw, server), home))


def race(track: Track, load: Callable[[Track], int], racers: list[Racer], rounds: int) -> dict[str, list[Lap]]:
    """Laps of each racer, every round beginning with another one."""
    laps: dict[str, list[Lap]] = {racer.name: [] for racer in racers}
    for number in range(rounds):
        turn = number % len(racers)
        for racer in racers[turn:] + racers[:turn]:
            track.raw.flushall()
            records = load(track)
            prepared = racer.prepare(track)
            cpu, begun = cpu_seconds(track.raw), time.perf_counter()
            racer.run(track, prepared)
            wall = time.perf_counter() - begun
            laps[racer.name].append(Lap(wall / records * 1e6, (cpu_seconds(track.raw) - cpu) / records * 1e6))
    return laps


def cpu_seconds(raw: Any) -> float:
    """The CPU time of the server's main thread, or of the process where it does not say that."""
    info = raw.info("cpu")
    names = ("used_cpu_user_main_thread", "used_cpu_sys_main_thread")
    return float(sum(info.get(name, info[name.removesuffix("_main_thread")]) for name in names))


def median(laps: list[Lap]) -> Lap:
    return Lap(statistics.median(lap.wall for lap in laps), statistics.median(lap.server for lap in laps))


# Hash to sorted set.


def members(number: int) -> Callable[[Track], int]:
    def load(track: Track) -> int:
        nodes = Nodes(track.server)
        with Bulk(nodes) as bulk:
            for start in range(0, number, PAGE):
                words = [
                    w
                    for n in range(start, start + PAGE)
                    for w in (b'"session-%d"' % n, b"%d" % (FIRST_TICKS + n * STEP))
                ]
                bulk.send(OLD, b"HSET", OLD, *words)
        nodes.close()
        return number

    return load


def maps(track: Track, number: int) -> None:
    """Many small collections."""
    nodes = Nodes(track.server)
    with Bulk(nodes) as bulk:
        for m in range(number):
            key = b"map:m%d:__meta:timestamps" % m
            bulk.send(key, b"HSET", key, *(word for n in range(20) for word in (b"%d" % n, b"%d" % (FIRST_TICKS + n))))
    nodes.close()


def members_by_hand(track: Track, _: Any) -> None:
    """Pages of 1,000: HSCAN, then one ZADD."""
    cursor = 0
    while True:
        cursor, page = track.raw.hscan(OLD, cursor, count=PAGE)
        if page:
            track.raw.zadd(NEW, {member: float(ticks) for member, ticks in page.items()})
        if not cursor:
            return


def expand(id: str) -> Callable[[Track], None]:
    def prepare(track: Track) -> None:
        track.tool.apply(id, through="expand")

    return prepare


def backfill(id: str) -> Callable[[Track, Any], None]:
    def run(track: Track, _: Any) -> None:
        track.tool.apply(id, through="backfill")

    return run


# JSON string to hash.


def jobs(number: int) -> Callable[[Track], int]:
    def load(track: Track) -> int:
        nodes = Nodes(track.server)
        with Bulk(nodes) as bulk:
            for n in range(number):
                one = job(n)
                bulk.send(one.key, b"SET", one.key, one.text)
        nodes.close()
        return number

    return load


def _fields(text: bytes) -> dict[str, str]:
    """What a script of an afternoon makes of a job."""
    return {
        name: value if isinstance(value, str) else "" if value is None else json.dumps(value)
        for name, value in json.loads(text).items()
    }


def jobs_key_by_key(track: Track, _: Any) -> None:
    for key in track.raw.scan_iter(b"ae:job:*", count=PAGE):
        text = track.raw.get(key)
        track.raw.delete(key)
        track.raw.hset(key, mapping=_fields(text))


def jobs_by_hand(track: Track, _: Any) -> None:
    """Pages of 1,000: MGET, then DEL and HSET in one pipeline."""
    cursor = 0
    while True:
        cursor, keys = track.raw.scan(cursor, match=b"ae:job:*", count=PAGE, _type="string")
        if keys:
            pipe = track.raw.pipeline(transaction=False)
            for key, text in zip(keys, track.raw.mget(keys), strict=True):
                pipe.delete(key)
                pipe.hset(key, mapping=_fields(text))
            pipe.execute()
        if not cursor:
            return


def ready(number: int) -> Callable[[Track], list[tuple[bytes, ...]]]:
    """Whole commands that write hashes of their own; nothing has to be read or made."""

    def prepare(_: Track) -> list[tuple[bytes, ...]]:
        made = (job(n) for n in range(number))
        return [(b"HSET", b"new:" + one.key, *(w for pair in one.fields.items() for w in pair)) for one in made]

    return prepare


def write_ready(track: Track, commands: list[tuple[bytes, ...]]) -> None:
    nodes = Nodes(track.server)
    with Bulk(nodes) as bulk:
        for words in commands:
            bulk.send(words[1], *words)
    nodes.close()
