"""Steps of jobs' operations that were on their way while the phase or the job changed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from migrator.adapters import Code, Deleted, Done, NotDone
from migrator.adapters.core import Patience
from migrator.adapters.jobs import core, rules
from tests.adapters.flavours import STAGES, flavour, through
from tests.adapters.jobs import CROSSED, OTHER, WORKER, jobs, raw, tool
from tests.between import WAYS, before_a_batch
from tests.support import guid

__all__ = ["flavour", "jobs", "raw", "tool"]


class Paused:
    """An operation, carried out call by call."""

    def __init__(self, adapter, steps):
        self._adapter, self._steps, self._step = adapter, steps, steps.send(None)
        self.replies: list[Any] = []

    def step(self):
        """Sends the next call; the result, once there is one."""

        def one():
            return (yield self._step)

        reply = self._adapter._run(one())
        self.replies.append(reply)
        try:
            self._step = self._steps.send(reply)
        except StopIteration as done:
            return done.value
        return None

    def rest(self):
        while (done := self.step()) is None:
            pass
        return done


def claim_read(jobs) -> Paused:
    """A claim that has read its job."""
    held = Paused(jobs, jobs._core.claim(WORKER.encode()))
    while not (held.replies and len(held.replies[-1]) > 5 and held.replies[-1][5]):
        assert held.step() is None
    return held


@CROSSED
def test_step_two_of_an_earlier_epoch_writes_nothing_and_is_done_again(tool, jobs, raw, monkeypatch):
    """A claim, a completion and an update whose first step was in one phase and the second in the next."""
    waiting: list[tuple[str, str, Paused, Paused]] = []
    for number, stage in enumerate(through(tool, monkeypatch)):
        for was, id, held, changed in waiting:
            before = jobs.get(id).job
            done, late = held.rest(), changed.rest()
            assert done.job.id == id, (was, stage)
            assert (done.job.status, done.job.version) == (300, before.version + 1), (was, stage)
            assert (late.job.name, late.job.version) == ("later", 3), (was, stage)
            if (was, stage) not in (("expanded", "backfilled"), ("backfilled", "verified"), ("contracted", "swept")):
                assert [reply[-1] for reply in held.replies if b"retry" in reply], (was, stage)
            raw.settled(id, stage)
            assert jobs.complete(done.job).job.version == before.version + 2, (was, stage)
        waiting = []
        if stage in ("contracted", "swept"):  # one call: there is no second step
            continue
        id, other = guid(2 * number + 1), guid(2 * number + 2)
        jobs.create(id, "n")
        jobs.create(other, "n")
        jobs.claim_job(other, OTHER)
        held = claim_read(jobs)
        changed = Paused(jobs, jobs._core.do(other.encode(), rules.update({b"Name": b"later"}, 2)))
        assert changed.step() is None
        waiting.append((stage, id, held, changed))
    assert len(STAGES) == 11


@CROSSED
def test_step_two_writes_nothing_over_a_job_that_changed_meanwhile(client, tool, jobs, raw):
    for through_step in (None, "expand", "switch"):
        if through_step:
            tool.apply(through=through_step)
        made = jobs.create(guid(1), "n").job
        held = claim_read(jobs)
        changed = Paused(jobs, jobs._core.do(made.id.encode(), rules.update({b"Name": b"late"}, 1)))
        changed.step()
        assert jobs.claim(OTHER).job.worker == OTHER
        assert held.rest() == NotDone(Code.JOB_NOT_CLAIMED)
        assert changed.rest() == NotDone(Code.VERSION_CONFLICT)
        assert jobs.get(guid(1)).job.worker == OTHER
        # Taken off the queue in between, by an application without an adapter that has yet to write the job.
        jobs.create(guid(3), "n")
        held = claim_read(jobs)
        client.raw.zrem(raw.queue_key, guid(3))
        assert held.rest() == NotDone(Code.JOB_NOT_CLAIMED)
        assert jobs.get(guid(3)).job.status == 100
        jobs.delete(guid(3))
        # Deleted in between: it does not come back.
        jobs.delete(guid(1))
        jobs.create(guid(1), "n")
        changed = Paused(jobs, jobs._core.do(made.id.encode(), rules.update({b"Name": b"late"}, 1)))
        changed.step()
        created = Paused(jobs, jobs._core.do(guid(2).encode(), rules.create({**made.fields, b"Id": guid(2).encode()})))
        created.step()
        jobs.delete(guid(1))
        jobs.create(guid(2), "first")
        assert changed.rest() == NotDone(Code.JOB_NOT_FOUND)
        assert created.rest() == NotDone(Code.JOB_CREATE_FAILED)
        assert (raw.text(guid(1)), raw.hash(guid(1))) == (None, None)
        assert jobs.get(guid(2)).job.name == "first"
        jobs.delete(guid(2))
    # An application without an adapter writes one in between, after the switch: it is unmoved, and stays as it is.
    created = Paused(jobs, jobs._core.do(guid(2).encode(), rules.create({**made.fields, b"Id": guid(2).encode()})))
    created.step()
    raw.lay(guid(2), None)
    assert created.rest() == NotDone(Code.UNMOVED)
    assert raw.json(guid(2))["name"] == "send-report"


@CROSSED
def test_a_job_that_keeps_changing_is_told_as_retry(client, jobs, raw, monkeypatch):
    jobs.create(guid(1), "n")
    patience = 0.0
    monkeypatch.setattr(core, "Patience", lambda: Patience(clock=lambda: patience))
    held = Paused(jobs, jobs._core.do(guid(1).encode(), rules.update({b"Name": b"late"}, 1)))
    text = raw.text(guid(1)) or b""
    while True:
        client.raw.set(raw.key(guid(1)), text + b" " * len(held.replies))
        step = held._step
        if hasattr(step, "seconds"):
            patience += step.seconds
            held._step = held._steps.send(None)
            continue
        if (done := held.step()) is not None:
            break
    assert done == NotDone(Code.RETRY)
    assert patience == pytest.approx(5.0)
    assert json.loads(raw.text(guid(1)) or b"")["name"] == "n"


@CROSSED
def test_a_process_that_was_stopped_between_the_steps_tries_again_though_its_patience_is_over(
    client, jobs, raw, monkeypatch
):
    jobs.create(guid(1), "n")
    now = 0.0
    monkeypatch.setattr(core, "Patience", lambda: Patience(clock=lambda: now))
    held = Paused(jobs, jobs._core.do(guid(1).encode(), rules.update({b"Name": b"late"}, 1)))
    held.step()
    now = 60.0
    client.raw.set(raw.key(guid(1)), (raw.text(guid(1)) or b"") + b" ")
    assert held.rest().job.name == "late"


@CROSSED
@WAYS
def test_a_job_deleted_while_a_batch_of_the_backfill_is_held_stays_deleted(tool, jobs, raw, quick, monkeypatch):
    for number in (1, 2, 3):
        jobs.create(guid(number), "n")
    tool.apply(through="expand")

    def happens(_):
        assert isinstance(jobs.delete(guid(1)), Deleted)
        assert isinstance(jobs.claim_job(guid(2), WORKER), Done)

    held = before_a_batch(monkeypatch, happens, quick=quick)
    tool.apply(through="backfill")
    assert held == [3]
    assert (raw.text(guid(1)), raw.hash(guid(1))) == (None, None)
    for number in (2, 3):
        raw.settled(guid(number), "backfilled")
    tool.apply(through="switch")
    assert jobs.get(guid(1)) == NotDone(Code.JOB_NOT_FOUND)
    assert jobs.get(guid(2)).job.status == 300
    assert raw.queue().keys() == {guid(3).encode()}


@CROSSED
def test_a_job_claimed_anew_while_recovery_looks_is_not_taken_from_its_worker(client, tool, jobs, raw):
    for through_step in (None, "switch", "contract"):
        if through_step:
            tool.apply(through=through_step)
        jobs.create(guid(1), "n")
        first = jobs.claim(WORKER).job
        client.raw.zadd(raw.running_key, {guid(1): first.started_at_unix - 4000})
        held = Paused(jobs, jobs._core.recover(3600.0, 0, 10))
        assert held.step() is None
        jobs.fail(first, "gives it back", retry_in=0)
        again = jobs.claim(OTHER).job
        assert held.rest() == []
        assert jobs.get(guid(1)).job == again
        jobs.delete(guid(1))


@CROSSED
def test_a_job_behind_one_that_was_claimed_anew_meanwhile_is_recovered(client, tool, jobs, raw, monkeypatch):
    monkeypatch.setattr(core, "_STUCK_PAGE", 1)
    for through_step in (None, "switch", "contract"):
        if through_step:
            tool.apply(through=through_step)
        for number in (1, 2):
            jobs.create(guid(number), "n")
        first = jobs.claim_job(guid(1), WORKER).job
        jobs.claim_job(guid(2), WORKER)
        client.raw.zadd(raw.running_key, {guid(1): 1, guid(2): 2})
        held = Paused(jobs, jobs._core.recover(3600.0, 0, 10))
        assert held.step() is None
        jobs.fail(first, "gives it back", retry_in=0)
        again = jobs.claim_job(guid(1), OTHER).job
        assert [job.id for job in held.rest()] == [guid(2)], through_step
        assert jobs.get(guid(1)).job == again
        for number in (1, 2):
            jobs.delete(guid(number))


@CROSSED
def test_recovery_ends_where_jobs_are_listed_as_stuck_and_then_are_not(jobs, monkeypatch):
    """As after a clock that goes back and forth."""
    monkeypatch.setattr(core, "_STUCK_PAGE", 2)
    listed = [guid(number).encode() for number in range(1, 6)]
    steps, answer = jobs._core.recover(3600.0, 0, 10), [b"1", b"NOT_STUCK", None]

    def recovered():
        call = next(steps)
        for _ in range(30):
            stays, page = call.args[-2:]
            said = [listed[stays : stays + page]] if call.script.name == "adapter_jobs_stuck" else answer
            try:
                call = steps.send([b"ok", b"contracted", b"1", *said])
            except StopIteration as done:
                return done.value
        return pytest.fail("it goes on")

    found = recovered()
    assert (found, found.passed_over) == ([], [])


@CROSSED
def test_a_head_that_was_put_right_meanwhile_is_not_set_aside(client, tool, jobs, raw):
    client.raw.set(raw.key(guid(1)), b'{"id":"cut')
    client.raw.zadd(raw.queue_key, {guid(1): 1})
    held = claim_read(jobs)
    raw.lay(guid(1), 1)
    assert held.rest().job.id == guid(1)
    assert jobs.set_aside() == []
    client.raw.set(raw.key(guid(2)), b'{"id":"cut')
    client.raw.zadd(raw.queue_key, {guid(2): 1})
    held = claim_read(jobs)
    tool.apply(through="expand")
    assert held.rest() == NotDone(Code.JOB_NOT_CLAIMED)
    assert [b"retry" in reply for reply in held.replies].count(True) == 1
    assert [one.member for one in jobs.set_aside()] == [guid(2).encode()]
