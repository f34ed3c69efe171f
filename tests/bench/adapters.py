"""What an adapter costs, against the code an application would write by hand without any migration in mind."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from migrator.adapters import Done, Jobs, Timestamps, Written
from tests.bench.duel import Contestant, Outcome, duel
from tests.servers import Place, Server
from tests.support import shipped_tool

OPERATIONS, ROUNDS = 300, 31
FIRST_TICKS = 638_950_000_000_000_000
OLD = "map:m:__meta:timestamps"
QUEUE, RUNNING = "ae:jobs:queue", "ae:jobs:inprogress"
# The head of the queue, its checks, the claim and both indexes, in one step.
CLAIM = """
local now = redis.call('TIME')
local due = string.format('%.6f', now[1] + now[2] / 1000000)
local heads = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', due, 'LIMIT', 0, 1)
if not heads[1] then return false end
local key = 'ae:job:' .. heads[1]
local had = redis.call('HMGET', key, 'Status', 'WorkerId', 'RetryDelayUntil', 'Version')
if had[2] and had[2] ~= '' then return {'ALREADY_ASSIGNED'} end
if had[1] ~= '100' and had[1] ~= '200' then return {'WRONG_STATUS'} end
if had[3] and had[3] ~= '' and had[3] > ARGV[2] then return {'RETRY_DELAY'} end
redis.call('HSET', key, 'Status', '300', 'WorkerId', ARGV[1], 'StartedAt', ARGV[2], 'LastUpdatedAt', ARGV[2],
  'StartedAtUnix', now[1], 'Version', (had[4] or 0) + 1)
redis.call('ZREM', KEYS[1], heads[1])
redis.call('ZADD', KEYS[2], now[1], heads[1])
return redis.call('HGETALL', key)
"""


def costs(binary: Path, home: Path) -> Iterator[tuple[str, str, Outcome]]:
    """What, against what, and how it came out."""
    with _place(binary, home / "set") as (place, tool):
        tool.apply("0002", through="expand")
        outcome = _setting(place, tool.session().modules.find("0002"))
        yield "Timestamps.set in expanded", "MULTI: HSET, ZADD", outcome
    with _place(binary, home / "claim") as (place, tool):
        tool.apply("0001", through="contract")
        yield "Jobs.claim on hashes", "a claim script by hand", _claiming(place, tool.session().modules.find("0001"))


@contextmanager
def _place(binary: Path, home: Path) -> Iterator[tuple[Place, Any]]:
    with Server(binary) as server, server.client() as raw:
        place = Place(server.url, "server", raw, server)
        yield place, shipped_tool(place, home)


def _setting(place: Place, module: Any) -> Outcome:
    stamps, raw = Timestamps(place.raw, module), place.raw
    members = [b'"session-%d"' % number for number in range(OPERATIONS)]

    def ours() -> None:
        for number, member in enumerate(members):
            assert isinstance(stamps.set(member, FIRST_TICKS + number * 128, name="m"), Written)

    def theirs() -> None:
        for number, member in enumerate(members):
            ticks = FIRST_TICKS + number * 128
            pipe = raw.pipeline(transaction=True)
            pipe.hset(OLD, member, ticks)
            pipe.zadd(f"{OLD}-sorted", {member: ticks})
            pipe.execute()

    return duel(Contestant("ours", ours), Contestant("theirs", theirs), operations=OPERATIONS, rounds=ROUNDS)


def _claiming(place: Place, module: Any) -> Outcome:
    raw = place.raw
    jobs, script, worker = Jobs(raw, module), raw.register_script(CLAIM), str(uuid.uuid4())

    payload = '{"reportId":17,"notes":"%s"}' % ("x" * 300)

    def fill() -> None:
        raw.delete(QUEUE, RUNNING)
        for _ in range(OPERATIONS):
            assert isinstance(jobs.create(uuid.uuid4(), "send-report", payload), Done)

    def ours() -> None:
        for _ in range(OPERATIONS):
            assert isinstance(jobs.claim(worker), Done)

    def theirs() -> None:
        for _ in range(OPERATIONS):
            flat = script(keys=[QUEUE, RUNNING], args=[worker, datetime.now(UTC).isoformat()])
            assert len(dict(zip(flat[::2], flat[1::2], strict=True))) > 16

    return duel(
        Contestant("ours", ours, fill), Contestant("theirs", theirs, fill), operations=OPERATIONS, rounds=ROUNDS
    )
