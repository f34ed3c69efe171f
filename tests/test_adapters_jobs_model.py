"""Any sequence of operations gives the same answers and the same records in Redis, in any phase, as in memory, where
there is a store for asyncio too."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migrator.adapters import AsyncMemoryJobs, Code, Deleted, Done, Job, Jobs, MemoryJobs, NotDone, PassedOver, SetAside
from tests.adapters.flavours import Awaited, init, module_of
from tests.adapters.jobs import OTHER, WORKER, Raw, jobs_tool
from tests.support import guid

_DATE = re.compile(rb"\d{4}-\d\d-\d\dT.*")
_HOUR = 3600.0
IDS = st.sampled_from([guid(1), guid(2), guid(3)])
WORKERS = st.sampled_from([WORKER, OTHER])
VERSIONS = st.integers(0, 4)
CHANGES = st.sampled_from([
    {"Name": "é"}, {"Status": "100"}, {"Status": "100", "WorkerId": ""}, {"Status": "400"}, {"Status": "300"},
    {"RetryDelayUntil": ""}, {"Payload": '{"a":1}', "Result": "ok"}, {"MaxRetries": "1"}, {"tenant": "7"},
])  # fmt: skip
DUE = st.sampled_from([None, -30, -20, _HOUR])
RETRY = st.sampled_from([None, 0, _HOUR])
STEPS = st.one_of(
    st.tuples(st.just("create"), IDS, DUE, st.integers(0, 2)),
    st.tuples(st.just("create"), IDS, DUE, st.integers(0, 2)),
    st.tuples(st.just("get"), IDS),
    st.tuples(st.just("claim"), WORKERS),
    st.tuples(st.just("claim"), WORKERS),
    st.tuples(st.just("claim_many"), WORKERS, st.integers(1, 3)),
    st.tuples(st.just("claim_job"), IDS, WORKERS),
    st.tuples(st.just("complete"), IDS),
    st.tuples(st.just("fail"), IDS, RETRY),
    st.tuples(st.just("update"), IDS, CHANGES, VERSIONS),
    st.tuples(st.just("cancel"), IDS, st.none() | VERSIONS),
    st.tuples(st.just("recover"), st.sampled_from([0, _HOUR]), RETRY.filter(lambda delay: delay is not None)),
    st.tuples(st.just("delete"), IDS),
    st.tuples(st.just("spoil"), st.sampled_from(["junk", *(guid(n) for n in range(1, 5))]), st.integers(-1, 1)),
    st.tuples(st.just("set_aside")),
    st.tuples(st.just("put_back"), IDS),
)


class Side:
    """One of the stores, and the jobs it gave to workers."""

    def __init__(self, jobs: Any, base: datetime) -> None:
        self.jobs, self.base = jobs, base
        self.held: dict[str, Job] = {}

    def do(self, name: str, *words: Any) -> Any:
        answer = getattr(self if hasattr(self, name) else self.jobs, name)(*words)
        for job in [answer.job] if isinstance(answer, Done) else answer if isinstance(answer, list) else []:
            if isinstance(job, Job) and job.worker:
                self.held[job.id] = job
        return answer

    def create(self, id: str, due: float | None, retries: int) -> Any:
        when = None if due is None else self.base + timedelta(seconds=due)
        return self.jobs.create(id, "n", "{}", max_retries=retries, due=when)

    def complete(self, id: str) -> Any:
        return self.jobs.complete(self.held[id], "ok") if id in self.held else None

    def fail(self, id: str, retry: float | None) -> Any:
        return self.jobs.fail(self.held[id], "no", retry_in=retry) if id in self.held else None

    def update(self, id: str, changes: dict[str, str], version: int) -> Any:
        return self.jobs.update(id, changes, version=version)

    def cancel(self, id: str, version: int | None) -> Any:
        return self.jobs.cancel(id, version=version)

    def put_back(self, id: str) -> Any:
        return self.jobs.put_back(id.encode())

    def recover(self, seconds: float, retry: float) -> Any:
        return self.jobs.recover(seconds, retry_in=retry)


@pytest.fixture(params=["sync", "async"])
def in_memory(request):
    """Makes stores in memory that are called alike."""
    if request.param == "sync":
        yield MemoryJobs
        return
    with asyncio.Runner() as runner:
        yield lambda **named: Awaited(runner, AsyncMemoryJobs(**named))


def plain(answer: Any, now: float) -> Any:
    """An answer with its times as so many hours from now."""
    if isinstance(answer, Done):
        return Done(plain(answer.job, now))
    if isinstance(answer, Job):
        return fields_of(answer.fields, now)
    if isinstance(answer, SetAside):
        return replace(answer, score=hours(answer.score, now), at=0)
    if isinstance(answer, list):
        found = [plain(one, now) for one in answer]
        # In the order of when they were set aside: for one of the two that may be a single millisecond.
        return sorted(found, key=lambda one: one.member) if answer and isinstance(answer[0], SetAside) else found
    assert answer is None or isinstance(answer, (bool, Deleted, NotDone))
    return answer


def hours(seconds: float, now: float) -> float:
    return round((seconds - now) / _HOUR) if abs(seconds - now) < 9e5 else seconds


def fields_of(fields: dict[bytes, bytes], now: float) -> Any:
    found: dict[bytes, Any] = {}
    for name, value in fields.items():
        if _DATE.fullmatch(value):
            text = value.decode().replace("Z", "+00:00")
            found[name] = (len(value), hours(datetime.fromisoformat(text[:26] + text[-6:]).timestamp(), now))
        else:
            found[name] = hours(int(value), now) if name == b"StartedAtUnix" else value
    return found


@pytest.mark.parametrize("phase", ["pending", "expanded", "switched", "contracted"])
def test_redis_and_memory_agree_on_every_answer_and_on_what_is_left(server, tmp_path, phase, in_memory):
    tool, raw = jobs_tool(server, tmp_path), Raw(server)
    init(tool)
    if phase != "pending":
        tool.apply(through=phase.removesuffix("ed"))
    redis = Jobs(server.raw, module_of(tool))

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(STEPS, min_size=4, max_size=25))
    def check(steps: list[tuple[Any, ...]]) -> None:
        for key in (*(k for n in range(5) for k in (raw.key(guid(n)), raw.staged(guid(n)))),
                    raw.queue_key, raw.running_key, raw.aside_key):  # fmt: skip
            raw.raw.delete(key)
        base, now = datetime.now(UTC), time.time()
        memory = in_memory()
        one, two = Side(redis, base), Side(memory, base)
        for step in steps:
            if step[0] == "spoil":
                raw.raw.zadd(raw.queue_key, {step[1]: step[2]})
                memory.queue[step[1].encode()] = float(step[2])
                continue
            assert plain(one.do(*step), now) == plain(two.do(*step), now), step
        for id in (guid(1), guid(2), guid(3)):
            left = redis.get(id)
            assert plain(left, now) == plain(memory.get(id), now)
            if isinstance(left, Done):
                raw.settled(id, phase)
        for mine, theirs in ((raw.queue(), memory.queue), (raw.running(), memory.running)):
            assert {m: hours(s, now) for m, s in mine.items()} == {m: hours(s, now) for m, s in theirs.items()}
        aside = [sorted(plain(store.set_aside(), now), key=str) for store in (redis, memory)]
        assert aside[0] == aside[1]

    check()


def test_memory_has_a_clock_of_its_own(in_memory):
    now = [1_800_000_000_000_000]
    jobs = in_memory(clock=lambda: now[0])
    jobs.create(guid(1), "n", due=datetime.fromtimestamp(1_800_000_010, UTC))
    assert jobs.claim(WORKER) == NotDone(Code.JOB_NOT_CLAIMED)
    now[0] += 10_000_000
    answer = jobs.claim(WORKER)
    assert isinstance(answer, Done)
    assert answer.job.fields[b"StartedAt"] == b"2027-01-15T08:00:10.0000000+00:00"
    assert answer.job.started_at_unix == 1_800_000_010
    jobs.update(
        guid(1), {"Status": "200", "WorkerId": "", "RetryDelayUntil": "2027-01-15T08:00:10.5000009Z"}, version=2
    )
    for micros, code in ((10_500_000, Code.RETRY_DELAY), (10_500_001, None)):  # due a little later: never early
        now[0] = 1_800_000_000_000_000 + micros
        answer = jobs.claim_job(guid(1), WORKER)
        assert answer == NotDone(code) if code else isinstance(answer, Done)
    now[0] += 60_000_000
    jobs.running.update({b"junk": 1.0, guid(2).encode(): 1.0})
    recovered = jobs.recover(60)
    assert [job.id for job in recovered] == [guid(1)]
    assert recovered.passed_over == [PassedOver(b"junk", "junk")]
    assert jobs.running == {b"junk": 1.0}
