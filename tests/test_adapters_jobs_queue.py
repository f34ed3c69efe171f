"""The queue: who gets which job, what is set aside and what is passed over, and jobs whose workers are gone."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest

from migrator.adapters import Code, Done, Jobs, PassedOver
from migrator.adapters.jobs import core
from migrator.errors import Unmappable
from migrator.records.job.edit import edit_job
from tests.adapters.flavours import BOTH, OLD_IS_TRUE, flavour, init, module_of, through
from tests.adapters.jobs import CROSSED, OTHER, WORKER, code, jobs, raw, tool
from tests.support import guid, job, put

__all__ = ["flavour", "jobs", "raw", "tool"]


@CROSSED
def test_what_cannot_be_claimed_does_not_block_the_queue_and_can_be_found(client, tool, jobs, raw, monkeypatch):
    good, busy, done = guid(1), guid(2), guid(3)
    for stage in through(tool, monkeypatch):
        for id in (good, busy, done):
            jobs.create(id, "n")
        jobs.cancel(done)
        jobs.claim_job(busy, WORKER)
        bad, hashed = guid(4), stage in ("contracted", "swept")
        put(client, raw.key(bad), {b"Id": bad.encode(), b"Status": b"0x64"} if hashed else b'{"id":"cut')
        put(client, raw.key(guid(6)), [b"a list"])
        if stage not in OLD_IS_TRUE and not hashed:
            put(client, raw.staged(bad), {b"Id": bad.encode(), b"Status": b"0x64"})
        want = {b"not a guid": "junk", b"\xff": "junk", guid(5).encode(): "ghost", guid(6).encode(): "type",
                done.encode(): "WRONG_STATUS", busy.encode(): "ALREADY_ASSIGNED",
                bad.encode(): "DESERIALIZATION_ERROR"}  # fmt: skip
        client.raw.zadd(raw.queue_key, {member: number + 0.5 for number, member in enumerate(want)})
        assert jobs.claim(OTHER).job.id == good, stage
        assert code(jobs.claim(OTHER)) is Code.JOB_NOT_CLAIMED, stage
        aside = jobs.set_aside()
        assert {one.member: one.why for one in aside} == want, stage
        assert {one.member: one.score for one in aside} == {m: n + 0.5 for n, m in enumerate(want)}, stage
        assert aside[0].at == pytest.approx(datetime.now(UTC).timestamp() * 1000, abs=60_000), stage
        assert raw.queue() == {}, stage
        # Put right, it goes back to where it was.
        jobs.delete(busy)
        jobs.create(guid(5), "n", due=datetime.now(UTC) + timedelta(hours=1))
        assert guid(5).encode() not in {one.member for one in jobs.set_aside()}, stage
        assert jobs.put_back(b"not a guid") is True, stage
        assert jobs.put_back(b"not a guid") is False, stage
        assert raw.queue()[b"not a guid"] == 0.5, stage
        for id in (good, done, guid(5)):
            jobs.delete(id)
        client.raw.delete(raw.aside_key)
        for key in (raw.queue_key, raw.running_key, raw.key(bad), raw.staged(bad), raw.key(guid(6))):
            client.raw.delete(key)


@CROSSED
def test_jobs_come_in_the_order_they_are_due_and_never_early(client, tool, jobs, raw, monkeypatch):
    now = datetime.now(UTC)
    for stage in through(tool, monkeypatch):
        for number, seconds in ((1, -10), (2, -30), (3, 3600), (4, -20), (5, -40)):
            made = jobs.create(guid(number), "n", due=now + timedelta(seconds=seconds)).job
            assert made.status == 200
            due = now + timedelta(seconds=seconds)
            assert raw.queue()[guid(number).encode()] == pytest.approx(due.timestamp(), abs=1e-6), stage
        # The seed's own store ran a job whose score was wrong: here it goes to where it belongs.
        client.raw.zadd(raw.queue_key, {guid(3): 5})
        # An id in another form is found, and its member removed as it was read.
        client.raw.zrem(raw.queue_key, guid(4))
        client.raw.zadd(raw.queue_key, {guid(4).upper(): (now - timedelta(seconds=20)).timestamp()})
        client.raw.zrem(raw.queue_key, guid(2))
        client.raw.zadd(raw.queue_key, {guid(2).replace("-", ""): (now - timedelta(seconds=30)).timestamp()})
        assert [job.id for job in jobs.claim_many(WORKER, 3)] == [guid(5), guid(2), guid(4)], stage
        assert jobs.claim(WORKER).job.id == guid(1), stage
        assert code(jobs.claim(WORKER)) is Code.JOB_NOT_CLAIMED, stage
        later = (now + timedelta(hours=1)).timestamp()
        assert raw.queue() == {guid(3).encode(): pytest.approx(later, abs=1e-6)}, stage
        assert raw.running().keys() == {guid(number).encode() for number in (1, 2, 4, 5)}, stage
        assert jobs.set_aside() == [], stage
        for number in range(1, 6):
            jobs.delete(guid(number))


@CROSSED
def test_heads_that_were_told_before_are_claimed_only_if_they_are_the_head_by_then(client, tool, jobs, raw):
    now = datetime.now(UTC)
    for through_step in ("expand", "contract"):
        tool.apply(through=through_step)
        for number in (1, 2, 3):
            jobs.create(guid(number), "n", due=now + timedelta(seconds=number - 60))
        assert jobs.claim(WORKER).job.id == guid(1)
        client.raw.zrem(raw.queue_key, guid(2))
        jobs.create(guid(4), "n", due=now - timedelta(hours=1))
        assert [jobs.claim(WORKER).job.id for _ in range(2)] == [guid(4), guid(3)], through_step
        assert code(jobs.claim(WORKER)) is Code.JOB_NOT_CLAIMED, through_step
        assert jobs.get(guid(2)).job.status == 200, through_step
        for number in range(1, 5):
            jobs.delete(guid(number))


@CROSSED
def test_a_job_whose_worker_is_gone_is_recovered_and_the_worker_comes_too_late(client, tool, jobs, raw, monkeypatch):
    for stage in through(tool, monkeypatch):
        id, last, fresh = guid(1), guid(2), guid(3)
        jobs.create(id, "n", max_retries=1)
        jobs.create(last, "n", max_retries=0)
        jobs.create(fresh, "n")
        zombie, hopeless = jobs.claim(WORKER).job, jobs.claim(WORKER).job
        jobs.claim(WORKER)
        assert jobs.recover(3600) == [], stage
        hour_ago = zombie.started_at_unix - 3600
        # A worker that writes its job keeps the start it is judged by.
        client.raw.zadd(raw.running_key, {fresh: hour_ago + 1000})
        jobs.update(fresh, {"Payload": "half"}, version=2)
        assert raw.running()[fresh.encode()] == hour_ago + 1000, stage
        client.raw.zadd(raw.running_key, {id: hour_ago - 1, last: hour_ago, guid(7): 1, "junk": 1})
        assert jobs.recover(3600, limit=1)[0].id == id, stage
        (failed,) = jobs.recover(3600)
        assert (failed.id, failed.status, failed.retry_count) == (last, 500, 0), stage
        assert b"maximum retries" in failed.error, stage
        assert raw.running().keys() == {fresh.encode(), b"junk"}, stage
        # Late, and after another took it, and after that one had it back from another.
        assert code(jobs.complete(zombie)) is Code.WRONG_STATUS, stage
        assert code(jobs.complete(hopeless)) is Code.WRONG_STATUS, stage
        again = jobs.claim(OTHER).job
        assert (again.id, again.retry_count, again.started_at_unix >= zombie.started_at_unix) == (id, 1, True), stage
        assert code(jobs.complete(zombie, "late")) is Code.ALREADY_ASSIGNED, stage
        assert code(jobs.fail(zombie, "late")) is Code.ALREADY_ASSIGNED, stage
        jobs.update(id, {"WorkerId": WORKER}, version=again.version)
        assert code(jobs.complete(zombie, "late")) is Code.VERSION_CONFLICT, stage
        assert jobs.get(id).job.result is None, stage
        for number in (1, 2, 3):
            jobs.delete(guid(number))
        client.raw.delete(raw.running_key)


@CROSSED
def test_what_cannot_be_recovered_keeps_nothing_else_and_is_told(client, tool, jobs, raw, monkeypatch):
    stuck, bad, two, full = guid(1), guid(4), guid(5), guid(6)
    for stage in through(tool, monkeypatch):
        jobs.create(stuck, "n")
        assert jobs.claim(WORKER).job.id == stuck, stage
        # What an old application writes over a hash after the sweep is a string; any other type is wrong in any phase.
        put(client, raw.key(bad), job(bad, status=300) if stage == "swept" else [b"a list"])
        want = {b"junk": "junk", bad.encode(): "type"}
        if stage in BOTH:
            for key in (raw.key(two), raw.staged(two)):
                put(client, key, {b"Id": two.encode(), b"Status": b"300"})
            want[two.encode()] = "two"
        if stage in OLD_IS_TRUE:
            raw.lay(full, None, status=300, version=10**18 - 1)
            want[full.encode()] = "DESERIALIZATION_ERROR"
        elif stage != "swept":
            raw.lay(full, None, status=300)
            want[full.encode()] = "UNMOVED"
        left = {member: number + 0.5 for number, member in enumerate(want)}
        client.raw.zadd(raw.running_key, left)
        for page in (100, 2):  # of what is passed over there is more than a page
            monkeypatch.setattr(core, "_STUCK_PAGE", page)
            client.raw.zadd(raw.running_key, {stuck: 9})
            recovered = jobs.recover(3600)
            assert [job.id for job in recovered] == [stuck], stage
            assert {one.member: one.why for one in recovered.passed_over} == want, stage
            assert raw.running() == left, stage
            assert jobs.claim(OTHER).job.id == stuck, stage
        # Put right, it is recovered like any other.
        for key in (raw.key(bad), raw.staged(bad)):
            client.raw.delete(key)
        jobs.create(bad, "n")
        jobs.claim_job(bad, WORKER)
        client.raw.zadd(raw.running_key, {bad: 1})
        assert [job.id for job in jobs.recover(3600)] == [bad], stage
        for id in (stuck, bad):
            jobs.delete(id)
        for key in (raw.running_key, raw.key(two), raw.staged(two), raw.key(full), raw.staged(full)):
            client.raw.delete(key)


@CROSSED
def test_a_job_whose_version_can_go_no_higher_does_not_block_the_queue(client, tool, jobs, raw, monkeypatch):
    full, good, last = guid(1), guid(2), 10**18 - 1
    for stage in through(tool, monkeypatch):
        jobs.create(full, "n")
        if stage in OLD_IS_TRUE:
            raw.lay(full, None, version=last)
        else:
            (key,) = (key for key in (raw.key(full), raw.staged(full)) if client.raw.type(key) == b"hash")
            client.raw.hset(key, b"Version", b"%d" % last)
        client.raw.zadd(raw.queue_key, {full: 1})
        jobs.create(good, "n")
        assert jobs.claim(OTHER).job.id == good, stage
        assert {one.member: one.why for one in jobs.set_aside()} == {full.encode(): "DESERIALIZATION_ERROR"}, stage
        assert code(jobs.update(full, {"Name": "x"}, version=last)) is Code.DESERIALIZATION_ERROR, stage
        assert (jobs.get(full).job.status, jobs.get(full).job.version) == (100, last), stage
        for id in (full, good):
            jobs.delete(id)


@CROSSED
def test_a_job_that_the_mapping_does_not_take_once_it_is_changed_blocks_nothing(client, tool, jobs, raw, monkeypatch):
    bad, good = guid(1), guid(2)

    def edit(text, was, becomes):
        if was[b"Id"] == bad.encode():
            raise Unmappable("not like this")
        return edit_job(text, was, becomes)

    monkeypatch.setattr(core, "edit_job", edit)
    for step in (None, "expand"):
        if step:
            tool.apply(through=step)
        for number, id in enumerate((bad, good)):
            raw.lay(id, number)
        assert jobs.claim(WORKER).job.id == good, step
        assert {one.member: one.why for one in jobs.set_aside()} == {bad.encode(): "DESERIALIZATION_ERROR"}, step
        raw.lay(bad, None, status=300)
        client.raw.zadd(raw.running_key, {bad: 1, good: 2})
        recovered = jobs.recover(3600)
        assert [job.id for job in recovered] == [good], step
        assert recovered.passed_over == [PassedOver(bad.encode(), "DESERIALIZATION_ERROR")], step
        for id in (bad, good):
            jobs.delete(id)


@pytest.mark.parametrize("through_step", ["expand", "switch", "contract"])
def test_claimers_at_once_never_get_one_job_twice_and_leave_none(client, tool, through_step):
    init(tool)
    tool.apply(through=through_step)
    jobs = Jobs(client.raw, module_of(tool))
    for number in range(60):
        jobs.create(guid(number + 1), "n")
    got: list[str] = []
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            mine = Jobs(client.raw, module)
            while True:
                answer = mine.claim(guid(0xF0 + number))
                if isinstance(answer, Done):
                    got.append(answer.job.id)
                elif answer.code is Code.JOB_NOT_CLAIMED:
                    return
        except BaseException as error:
            failed.append(error)

    module = module_of(tool)
    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failed
    assert sorted(got) == [guid(number + 1) for number in range(60)]
    for number in range(60):
        assert jobs.get(guid(number + 1)).job.version == 2  # type: ignore[union-attr]
