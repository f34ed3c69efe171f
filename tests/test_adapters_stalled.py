"""Writes that were on their way while the phase changed, and backfill batches held back while applications write."""

from __future__ import annotations

import time

import pytest

from migrator.adapters import Found, Missing
from tests.adapters.flavours import (
    BOTH,
    STAGES,
    flavour,
    init,
    module_of,
    stop_at_contracted,
    stop_at_reverting,
    through,
    tool_for,
)
from tests.between import WAYS, before_a_batch, before_a_chunk
from tests.support import KEYS, MEMBERS, SAME_NAME, put

__all__ = ["flavour"]
SOURCES = {"key": KEYS, "swap": SAME_NAME}


class Stalled:
    """A write whose first script call is built, and sent only when told."""

    def __init__(self, adapter, steps):
        self._adapter, self._steps, self._call = adapter, steps, steps.send(None)

    def go(self):
        def rest():
            reply = yield self._call
            while True:
                try:
                    step = self._steps.send(reply)
                except StopIteration as done:
                    return done.value
                reply = yield step

        return self._adapter._run(rest())


def shapes(client, mode, stage, id):
    """(old text, new text) as the phase has them."""
    final = b"{t}:text:" + id
    new = b"{t}:hash:" + id
    if mode == "swap":
        new = final if stage in ("contracted", "swept") else b"migrator:staged:0001_first:{t}:" + final
    is_string = client.raw.execute_command("TYPE", final) == b"string"
    return client.raw.get(final) if is_string else None, client.raw.hget(new, b"text")


@pytest.mark.parametrize("mode", SOURCES)
def test_a_write_of_an_earlier_phase_does_what_the_phase_wants_by_then(flavour, client, tmp_path, mode, monkeypatch):
    tool = tool_for(client, tmp_path, SOURCES[mode])
    for id in ("a", "b"):
        for number in range(len(STAGES)):
            put(client, f"{{t}}:text:{id}{number}".encode(), b"0")
    init(tool)
    records = flavour.make("Records", client, module_of(tool))
    core = records._core
    stalled: list[tuple[str, int, Stalled, Stalled]] = []
    for number, stage in enumerate(through(tool, monkeypatch)):
        for was, n, put_, delete in stalled:
            put_.go()
            delete.go()
            old, new = shapes(client, mode, stage, b"a%d" % n)
            assert old == (b"1" if stage in ("pending", *BOTH) else None), (was, stage)
            assert new == (None if stage == "pending" else b"1"), (was, stage)
            assert records.get(id=f"a{n}").value[b"text"] == b"1", (was, stage)
            assert shapes(client, mode, stage, b"b%d" % n) == (None, None), (was, stage)
            assert isinstance(records.get(id=f"b{n}"), Missing), (was, stage)
        written = Stalled(records, core.put({b"text": b"1"}, None, {"id": f"a{number}"}))
        stalled = [(stage, number, written, Stalled(records, core.delete({"id": f"b{number}"})))]


@pytest.mark.parametrize("mode", SOURCES)
def test_an_hour_later_everything_has_changed(flavour, client, tmp_path, mode):
    tool = tool_for(client, tmp_path, SOURCES[mode])
    put(client, b"{t}:text:a", b"0")
    init(tool)
    records = flavour.make("Records", client, module_of(tool))
    first = Stalled(records, records._core.put({b"text": b"1"}, None, {"id": "a"}))
    tool.apply(through="expand")
    second = Stalled(records, records._core.put({b"text": b"2"}, None, {"id": "a"}))
    tool.apply(through="contract")
    for number, write in ((b"1", first), (b"2", second)):
        write.go()
        assert shapes(client, mode, "swept", b"a") == (None, number)
    tool.rollback(to="switched")
    assert shapes(client, mode, "switched", b"a") == (b"2", b"2")


def test_a_member_written_across_the_switch_and_across_contract(flavour, client, tmp_path, monkeypatch):
    put(client, b"{t}:times:a", {b"x": b"1", b"y": b"1"})
    tool = tool_for(client, tmp_path, MEMBERS)
    tool.apply(through="verify")
    members = flavour.make("Members", client, module_of(tool))
    core = members._core

    def both():
        return [Stalled(members, core.set_one(b"x", 2.0, {"name": "a"})),
                Stalled(members, core.remove_one(b"y", {"name": "a"}))]  # fmt: skip

    waiting = both()
    tool.apply(through="switch")
    for write in waiting:
        write.go()
    assert client.raw.hgetall(b"{t}:times:a") == {b"x": b"2"}
    assert client.raw.zrange(b"{t}:sorted:a", 0, -1) == [b"x"]
    waiting = both()
    stop_at_contracted(tool, monkeypatch)
    for write in waiting:
        write.go()
    assert not client.raw.exists(b"{t}:times:a")  # out of the way, for the sweep to save
    waiting = both()
    tool.apply(through="contract")
    stop_at_reverting(tool, monkeypatch)
    for write in waiting:
        write.go()
    assert client.raw.hgetall(b"{t}:times:a") == {b"x": b"2"}


@WAYS
@pytest.mark.parametrize("mode", SOURCES)
def test_what_is_deleted_or_expires_while_a_batch_is_held_stays_so(flavour, client, tmp_path, mode, quick, monkeypatch):
    tool = tool_for(client, tmp_path, SOURCES[mode])
    for name in (b"deleted", b"changed", b"expired", b"mortal", b"still"):
        put(client, b"{t}:text:" + name, b"before")
    tool.apply(through="expand")
    records = flavour.make("Records", client, module_of(tool))

    def happens(_):
        records.delete(id="deleted")
        records.put({b"text": b"after"}, id="changed")
        records.put({b"text": b"brief"}, expires_at=int(time.time() * 1000) + 20, id="expired")
        records.put({b"text": b"before"}, expires_at=4_102_444_800_000, id="mortal")
        time.sleep(0.04)

    held = before_a_batch(monkeypatch, happens, quick=quick)
    tool.apply(through="backfill")
    assert held == [5]
    ids = (b"deleted", b"changed", b"expired", b"mortal", b"still")
    new = [shapes(client, mode, "backfilled", id)[1] for id in ids]  # before verify could repair anything
    assert new == [None, b"after", None, b"before", b"before"]
    tool.apply(through="switch")
    for id in ("deleted", "expired"):
        assert isinstance(records.get(id=id), Missing)
    assert records.get(id="changed").value[b"text"] == b"after"
    assert records.get(id="mortal").expires_at == 4_102_444_800_000
    assert records.get(id="still").value[b"text"] == b"before"


@WAYS
def test_members_that_are_removed_while_a_batch_is_held_stay_removed(flavour, client, tmp_path, quick, monkeypatch):
    put(client, b"{t}:times:a", {b"removed": b"1", b"changed": b"1", b"still": b"1"})
    put(client, b"{t}:times:b", {b"last": b"1"})
    put(client, b"{t}:times:c", {b"gone": b"1"}, px=60_000)
    tool = tool_for(client, tmp_path, MEMBERS)
    tool.apply(through="expand")
    members = flavour.make("Members", client, module_of(tool))

    def happens(name):
        if name.endswith(b":a"):
            members.remove(b"removed", name="a")
            members.set(b"changed", 2.0, name="a")
        elif name.endswith(b":c"):
            client.raw.pexpire(b"{t}:times:c", 1)  # as it does by itself: the batch is of its life before
            time.sleep(0.01)
            members.set(b"born", 3.0, name="c")
        else:
            members.remove(b"last", name="b")

    held = before_a_chunk(monkeypatch, happens, quick=quick)
    tool.apply(through="backfill")
    assert len(held) == 3
    assert client.raw.zrange(b"{t}:sorted:c", 0, -1) == [b"born"]
    assert dict(client.raw.zrange(b"{t}:sorted:a", 0, -1, withscores=True)) == {b"changed": 2.0, b"still": 1.0}
    tool.apply(through="switch")
    assert isinstance(members.get(b"removed", name="a"), Missing)
    assert isinstance(members.get(b"last", name="b"), Missing)
    assert members.get(b"changed", name="a").value == 2.0
    assert isinstance(members.get(b"still", name="a"), Found)
    assert not client.raw.exists(b"{t}:sorted:b")
