"""A server far away: the same backfill through a proxy that takes no time, and through one that takes its time."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.growth import run
from tests.bench.races import Track, jobs, members, track
from tests.servers import ROOT, choose_port

ROUND_TRIP = 0.005  # seconds
ROUNDS = 5


@dataclass(frozen=True)
class Reach:
    """Seconds of a backfill near and far, medians of the rounds."""

    near: float
    far: float


def reach(server: str, migration: str, number: int, home: Path) -> Reach:
    """Each round loads anew; near and far take turns."""
    load = jobs(number) if migration == "0001" else members(number)
    took: dict[float, list[float]] = {0.0: [], ROUND_TRIP: []}
    with track(server, home) as here:
        for turn in range(ROUNDS):
            for seconds in sorted(took, reverse=bool(turn % 2)):
                here.raw.flushall()
                load(here)
                here.tool.apply(migration, through="expand")
                with _proxy(here, seconds) as url:
                    took[seconds].append(run(here, "apply", migration, "--through", "backfill", url=url)[1])
    return Reach(statistics.median(took[0.0]), statistics.median(took[ROUND_TRIP]))


@contextmanager
def _proxy(here: Track, seconds: float) -> Iterator[str]:
    port = choose_port()
    words = [sys.executable, "-m", "tests.bench.distance", str(port), str(here.server.port), str(seconds / 2)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("the proxy did not start")
        yield f"redis://127.0.0.1:{port}/0"
        process.terminate()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float) -> None:
    """Passes on what comes, each piece so much later; order is kept, and pieces wait at the same time."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[tuple[float, bytes]]()

    async def deliver() -> None:
        while True:
            due, piece = await queue.get()
            if (left := due - loop.time()) > 0:
                await asyncio.sleep(left)
            writer.write(piece)

    delivering = asyncio.create_task(deliver())
    while piece := await reader.read(1 << 18):
        queue.put_nowait((loop.time() + seconds, piece))
    await asyncio.sleep(seconds)
    delivering.cancel()
    writer.close()


async def _serve(port: int, behind: int, seconds: float) -> None:
    async def link(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", behind)
        await asyncio.gather(_pump(reader, to_server, seconds), _pump(from_server, writer, seconds))

    server = await asyncio.start_server(link, "127.0.0.1", port)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
