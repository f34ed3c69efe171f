"""Jobs on a slot that is half way to another primary: each operation is done whole, or not at all and says so."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import Any

import pytest

from migrator.adapters import Done, UncertainError, bridge
from migrator.adapters.core import Patience
from migrator.errors import UnreachableError
from migrator.keys import slot_of
from tests.adapters.flavours import flavour, through
from tests.adapters.jobs import OTHER, WORKER, jobs, raw, tool
from tests.support import guid

__all__ = ["flavour", "jobs", "raw", "tool"]
pytestmark = pytest.mark.parametrize("client", ["cluster"], indirect=True)
SLOT = slot_of(b"{ae}")


class Move:
    """The slot of all jobs, on its way from one primary to another."""

    def __init__(self, behind):
        self.behind, self.source = behind, behind.owner(SLOT)
        self.target = next(node for node in behind.primaries() if node is not self.source)
        behind.begin_move(SLOT, self.source, self.target)

    def carry(self, most: int | None = None) -> None:
        while self.behind.move_keys(SLOT, self.source, self.target, most or 100) and most is None:
            pass

    def finish(self) -> None:
        self.carry()
        self.behind.finish_move(SLOT, self.source, self.target)


@contextmanager
def impatient(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(bridge, "Patience", lambda: Patience(0.02))
        yield


def tried(call, *words: Any, **named: Any) -> Any:
    """What it answers; None where it says that nothing was written."""
    try:
        return call(*words, **named)
    except UncertainError:
        raise
    except UnreachableError as error:
        says = str(error)
    assert "nothing was written" in says
    return None


class Store:
    """Jobs as they have to be, by status, from what the operations answered."""

    def __init__(self, jobs, raw, stage):
        self.jobs, self.raw, self.stage = jobs, raw, stage
        self.is_in: dict[str, int] = {}
        self.waits = 0

    def fill(self) -> None:
        for number in range(1, 21):
            self.is_in[guid(number)] = self.jobs.create(guid(number), "n").job.status
        # The other keys of jobs are there too: a named key that is absent makes a call wait.
        self.raw.raw.zadd(self.raw.queue_key, {"junk": 0})
        self.take(self.jobs.claim(WORKER))
        assert [one.member for one in self.jobs.set_aside()] == [b"junk"]

    def take(self, done: Any) -> None:
        self.waits += done is None
        if isinstance(done, Done):
            self.is_in[done.job.id] = done.job.status

    def each(self, number: int) -> None:
        """Every operation once, on jobs of their own."""
        held = tried(self.jobs.claim, WORKER)
        self.take(held)
        if isinstance(held, Done):
            self.take(tried(self.jobs.complete, held.job))
        self.take(tried(self.jobs.create, guid(100 + number), "n"))
        waiting = sorted(id for id, status in self.is_in.items() if status == 100)
        self.take(tried(self.jobs.cancel, waiting[0]))
        self.take(tried(self.jobs.claim_job, waiting[1], OTHER))
        self.take(tried(self.jobs.update, waiting[2], {"Status": "500"}, version=1))
        gone = tried(self.jobs.delete, waiting[3])
        self.waits += gone is None
        if gone is not None:
            del self.is_in[waiting[3]]

    def check(self) -> None:
        found = {id: self.jobs.get(id) for id in self.is_in}
        assert {id: done.job.status for id, done in found.items()} == self.is_in, self.stage
        for status, index in ((100, self.raw.queue()), (300, self.raw.running())):
            assert {m.decode() for m in index} == {id for id, now in self.is_in.items() if now == status}, self.stage
        for id in (guid(n) for n in (*range(1, 21), *range(100, 105))):
            if id in self.is_in:
                self.raw.settled(id, self.stage)
            else:
                assert (self.raw.text(id), self.raw.hash(id)) == (None, None), (self.stage, id)

    def clear(self) -> None:
        for id in self.is_in:
            self.jobs.delete(id)
        self.raw.raw.delete(self.raw.aside_key)


def test_operations_on_a_slot_half_way_are_whole_or_not_done_in_every_phase(client, tool, jobs, raw, monkeypatch):
    for stage in through(tool, monkeypatch):
        store = Store(jobs, raw, stage)
        store.fill()
        move = Move(client.behind)
        try:
            with impatient(monkeypatch):
                store.each(0)  # nothing has gone: what is there is served, what names an absent key waits
                move.carry(5)
                store.each(1)  # TRYAGAIN
                move.carry()
                store.each(2)  # ASK
                assert store.waits > 3, stage
        finally:
            move.finish()
        store.waits = 0
        store.each(3)  # MOVED
        assert store.waits == 0, stage
        store.check()
        store.clear()


def test_a_call_that_waits_for_a_slot_is_done_once_when_it_has_moved(client, tool, jobs, raw):
    for step in (None, "switch", "contract"):
        if step:
            tool.apply(through=step)
        stage = {None: "pending", "switch": "switched", "contract": "swept"}[step]
        jobs.create(guid(1), "n")
        move = Move(client.behind)
        move.carry(2)
        mover = threading.Timer(0.3, move.finish)
        mover.start()
        held = jobs.claim(WORKER)
        mover.join()
        assert (held.job.id, held.job.version) == (guid(1), 2), stage
        assert (raw.queue(), raw.running()) == ({}, {guid(1).encode(): held.job.started_at_unix}), stage
        raw.settled(guid(1), stage)
        assert jobs.complete(held.job).job.version == 3, stage
        jobs.delete(guid(1))


@pytest.mark.parametrize("step", [None, "switch", "contract"])
def test_the_last_head_of_a_queue_is_claimed_whole_however_its_guid_is_written(client, tool, jobs, raw, step):
    """Taken out of the queue it leaves no queue; on a slot on the move no script can touch that key again."""
    if step:
        tool.apply(through=step)
    Store(jobs, raw, "").fill()
    jobs.create(guid(0xAB), "n")
    raw.raw.delete(raw.queue_key)
    raw.raw.zadd(raw.queue_key, {guid(0xAB).upper(): 1})
    move = Move(client.behind)
    try:
        done = jobs.claim(WORKER)
        assert (done.job.id, done.job.status) == (guid(0xAB), 300)
    finally:
        move.finish()
    assert raw.queue() == {}
    assert guid(0xAB).encode() in raw.running()


def test_a_job_that_is_in_the_queue_twice_is_claimed_once_on_a_slot_on_the_move(client, tool, jobs, raw):
    tool.apply(through="contract")
    Store(jobs, raw, "").fill()
    jobs.create(guid(0xAB), "n")
    raw.raw.delete(raw.queue_key)
    raw.raw.zadd(raw.queue_key, {guid(0xAB).upper(): 1, guid(0xAB): 2})
    move = Move(client.behind)
    try:
        assert [job.id for job in jobs.claim_many(WORKER, 3)] == [guid(0xAB)]
    finally:
        move.finish()
    assert (jobs.get(guid(0xAB)).job.status, jobs.get(guid(0xAB)).job.version) == (300, 2)
    assert (raw.queue(), [one.member for one in jobs.set_aside()]) == ({}, [b"junk"])
