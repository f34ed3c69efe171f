"""`make bench`: one table, every ratio from one run. The results also go to bench.json, and a chart to bench.png.

`make bench ARGS=--quick` takes a tenth of everything: for a look, not for a claim.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tabulate import tabulate

from tests.bench import distance, foreground, growth, races
from tests.bench.adapters import costs
from tests.bench.chart import as_png, as_text
from tests.bench.races import Lap, Racer, median, race, track
from tests.servers import SERVER_NAMES, binary, find_servers

ROUNDS = 5
MAPS = 10_000


@dataclass(frozen=True)
class Row:
    """One line. `ratio` is what `aim` is about; `bars` are for the chart, in `unit`."""

    server: str
    what: str
    against: str
    ours: str
    theirs: str
    ratio: str
    aim: str = ""
    bars: tuple[tuple[str, float], ...] = ()
    unit: str = ""


Rows = Iterator[Row]


def adapters(home: Path, _: int) -> Rows:
    for (what, against, found), aim in zip(costs(binary(), home), ("≤ 1.6", "≤ 1.5"), strict=True):
        yield Row("valkey9", what, against, f"{found.ours:.0f} µs", f"{found.theirs:.0f} µs", f"{found.ratio:.2f}", aim)


def hash_to_zset(name: str, home: Path, share: int) -> Rows:
    racers = [
        Racer("hand", races.members_by_hand),
        Racer("ours", races.backfill("0002"), races.expand("0002")),
    ]
    with track(name, home) as here:
        laps = race(here, races.members(1_000_000 // share), racers, ROUNDS)
    aims = ("≤ 1.0", "≥ 1.1") if name == "valkey9" else ("≤ 0.75", "≥ 1.25")
    what, against = "hash to sorted set", "HSCAN page, one ZADD"
    yield _server(name, what, against, laps["ours"], laps["hand"], aims[0])
    yield _throughput(name, what, against, laps["ours"], laps["hand"], aims[1])


def json_to_hash(name: str, home: Path, share: int) -> Rows:
    number = 100_000 // share
    racers = [
        Racer("key by key", races.jobs_key_by_key),
        Racer("hand", races.jobs_by_hand),
        Racer("floor", races.write_ready, races.ready(number)),
        Racer("ours", races.backfill("0001"), races.expand("0001")),
    ]
    with track(name, home) as here:
        laps = race(here, races.jobs(number), racers, ROUNDS)
    what = "JSON to hash"
    yield _throughput(name, what, "key by key", laps["ours"], laps["key by key"], "≥ 12")
    yield _throughput(name, what, "MGET page, pipeline", laps["ours"], laps["hand"], "≥ 1.4")
    yield _server(name, what, "ready HSETs, the floor", laps["ours"], laps["floor"], "≤ 2.4")
    # What no tool can be: nothing is read, nothing mapped, nothing checked.
    yield _throughput(name, "ready HSETs, the floor", "key by key", laps["floor"], laps["key by key"], "")


def _server(name: str, what: str, against: str, ours: list[Lap], theirs: list[Lap], aim: str) -> Row:
    a, b = median(ours).server, median(theirs).server
    ratio = statistics.median(x.server / y.server for x, y in zip(ours, theirs, strict=True))
    bars = ((against, b), ("migrator", a))
    unit = "server µs a record"
    return Row(name, f"{what}: server time", against, f"{a:.2f} µs", f"{b:.2f} µs", f"{ratio:.2f}", aim, bars, unit)


def _throughput(name: str, what: str, against: str, ours: list[Lap], theirs: list[Lap], aim: str) -> Row:
    a, b = 1e3 / median(ours).wall, 1e3 / median(theirs).wall
    ratio = statistics.median(y.wall / x.wall for x, y in zip(ours, theirs, strict=True))
    bars = ((against, b), ("migrator", a)) if aim else ()
    unit = "thousand records a second"
    return Row(name, f"{what}: throughput", against, f"{a:.0f} k/s", f"{b:.0f} k/s", f"{ratio:.2f}", aim, bars, unit)


def sizes(name: str, home: Path, share: int) -> Rows:
    """100 thousand, 1 million and 10 million members."""
    aims = ("≥ 50", "≥ 100", "≥ 120")
    found = [growth.grown(name, number // share, home / str(number)) for number in (100_000, 1_000_000, 10_000_000)]
    for one, aim in zip(found, aims, strict=True):
        hash_, sorted_ = one.from_hash, one.from_sorted_set
        what, ratio = f"1,000 due of {one.members:,}", hash_.ms / sorted_.ms
        yield Row(name, what, "from the hash", f"{sorted_.ms:.1f} ms", f"{hash_.ms:,.0f} ms", f"{ratio:.0f}", aim)
        memory = f"{sorted_.mb:.2f} MB", f"{hash_.mb:.2f} MB", f"{hash_.mb / sorted_.mb:.1f}"
        yield Row(name, f"{what}: client memory", "from the hash", *memory)
    less, more = found[1:]
    yield Row(
        name,
        f"peak memory at {more.members:,}",
        f"at {less.members:,}",
        f"{more.rss:.0f} MB",
        f"{less.rss:.0f} MB",
        f"{more.rss / less.rss:.2f}",
        "≤ 1.2, < 200 MB",
    )
    yield Row(
        name,
        f"verify of {less.members:,}",
        "its backfill",
        f"{less.verify:.1f} s",
        f"{less.backfill:.1f} s",
        f"{less.verify / less.backfill:.2f}",
        "≤ 1.5",
    )


def felt(name: str, home: Path, share: int) -> Rows:
    for nice, how in ((0, ""), (10, " at nice 10")):
        one = foreground.felt(name, 1_000_000 // share, home / str(nice), nice=nice)
        yield Row(
            name,
            f"p99 of {foreground.RATE:,} GET and SET a second, in a backfill{how}",
            "before it",
            f"{one.during:.2f} ms",
            f"{one.before:.2f} ms",
            f"{one.during / one.before:.2f}",
            "≤ 2, + 1 ms",
            (("before", one.before), ("during", one.during), ("after", one.after)),
            "ms",
        )


def far(name: str, home: Path, share: int) -> Rows:
    for id, what, number in (("0001", "JSON to hash", 150_000), ("0002", "hash to sorted set", 1_000_000)):
        found = distance.reach(name, id, number // share, home / id)
        ratio = found.near / found.far
        away = f"{what}, {distance.ROUND_TRIP * 1e3:.0f} ms away: rate"
        yield Row(name, away, "0 ms away", f"{found.far:.1f} s", f"{found.near:.1f} s", f"{ratio:.2f}", "≥ 0.8")


def commands(name: str, home: Path, _: int) -> Rows:
    with track(name, home) as here:
        races.maps(here, MAPS)
        seconds = statistics.median(growth.run(here, "status", "0002")[1] for _ in range(ROUNDS))
        yield Row(name, f"status over {MAPS:,} maps", "", f"{seconds:.2f} s", "", "", "≤ 1 s")
    took = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-m", "migrator", "--help"], check=True, capture_output=True)
        took.append(time.perf_counter() - begun)
    yield Row("", "migrator --help", "", f"{statistics.median(took):.2f} s", "", "", "≤ 0.35 s")


def all_rows(share: int) -> Rows:
    with tempfile.TemporaryDirectory() as base:
        names = [name for name in SERVER_NAMES if name != "redis6" and find_servers()[name].path is not None]
        yield from adapters(Path(base) / "adapters", share)
        for name in names:
            yield from hash_to_zset(name, Path(base) / f"{name}-members", share)
            yield from json_to_hash(name, Path(base) / f"{name}-keys", share)
            yield from felt(name, Path(base) / f"{name}-felt", share)
        yield from sizes(names[-1], Path(base) / "sizes", share)
        yield from far(names[0], Path(base) / "far", share)
        yield from commands(names[0], Path(base) / "commands", share)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything: for a look, not for a claim")
    parser.add_argument("--output", type=Path, default=Path("bench.json"), help="where the results go as JSON")
    share = 10 if (given := parser.parse_args()).quick else 1
    machine = f"CPython {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores"
    print(f"{machine}, load {os.getloadavg()[0]:.1f}" + (", a tenth of everything" if share > 1 else ""), flush=True)
    rows: list[Row] = []
    for row in all_rows(share):
        rows.append(row)
        print(f"  {row.server:8} {row.what}: {row.ratio or row.ours}", file=sys.stderr, flush=True)
    head = ("server", "what", "against", "ours", "theirs", "ratio", "aim")
    print(tabulate([tuple(asdict(row).values())[: len(head)] for row in rows], head, disable_numparse=True))
    found = [asdict(row) for row in rows]
    print(f"\n{as_text(found)}")
    given.output.write_text(json.dumps({"machine": machine, "quick": given.quick, "rows": found}, indent=1))
    as_png(found, machine, given.output.with_suffix(".png"))


if __name__ == "__main__":
    main()
