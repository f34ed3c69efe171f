"""Restore loses nothing that was saved, whatever fails over, comes late, or lies there several times."""

from __future__ import annotations

from dataclasses import replace

import pytest

from migrator.engine import decide, dump, rebuild, restore, sweep
from migrator.engine import put as engine_put
from migrator.engine.back import backup_of
from migrator.engine.guarded import guarded, unlink
from migrator.errors import FencedError
from migrator.phases import Guard
from tests.support import KEYS, MEMBERS, Crash, failover_after, own_keys, picture, put, tool_for

TEXT = b"{t}:text:"
TIMES = b"{t}:times:a"


@pytest.fixture
def tool(client, tmp_path):
    put(client, TEXT + b"a", b" a")
    put(client, TEXT + b"b", b"b ")
    return tool_for(client, tmp_path, KEYS)


@pytest.fixture
def contracted(tool):
    """A migration that has come to its end, and the picture before it began."""
    before = picture(tool.place)
    tool.apply(through="contract")
    return before


def test_what_a_failover_takes_back_of_putting_back_is_put_back_again(tool, contracted, monkeypatch):
    done = failover_after(monkeypatch, restore, "_put_saved", lambda: tool.place.raw.delete(TEXT + b"a"))
    assert tool.restore() == "pending"
    assert (len(done), picture(tool.place)) == (2, contracted)


def test_a_key_of_the_new_type_under_the_old_name_is_somebodys_own_and_stays(tool):
    """And one of the old type under the new name: neither is a record in one of the shapes."""
    tool.apply(through="contract")
    put(tool.place, TEXT + b"mine", {b"a": b"hash"})
    put(tool.place, b"{t}:hash:mine", b"a string")
    tool.restore()
    assert tool.place.raw.hgetall(TEXT + b"mine") == {b"a": b"hash"}
    assert tool.place.raw.get(b"{t}:hash:mine") == b"a string"


def test_what_could_not_be_saved_is_not_discarded(tool, contracted, monkeypatch):
    bounded = dump.bounded

    def in_between(*args):
        tool.place.raw.delete(b"{t}:hash:a")
        put(tool.place, b"{t}:hash:a", [b"written past the adapters"])
        return bounded(*args)

    monkeypatch.setattr(dump, "bounded", in_between)
    tool.restore()
    assert tool.place.raw.lrange(b"{t}:hash:a", 0, -1) == [b"written past the adapters"]


def test_what_a_failover_takes_back_of_discarding_is_discarded_again(tool, contracted, monkeypatch):
    done = failover_after(monkeypatch, restore, "_discard", lambda: put(tool.place, TEXT + b"late", b"late"))
    assert tool.restore() == "pending"
    assert (len(done), picture(tool.place)) == (2, contracted)


def test_a_failover_while_records_step_aside_for_a_restore_has_them_step_aside_again(tool, monkeypatch):
    before = picture(tool.place)
    tool.apply(through="switch")
    with tool.run() as run:
        backup_epoch = run.entry.epoch + 1
        sweep.contract_backup(run, backup_epoch).finish()
        run.change("contracted", backup=str(tool.backup.resolve()), backup_epoch=backup_epoch, swept=False)
    names = tool.session().names

    def lose():
        tool.place.raw.rename(names.beside("old", "0001_first").name(TEXT + b"a", lambda _: b""), TEXT + b"a")
        tool.place.raw.delete(names.checkpoints)  # they belong to a process that is gone

    done = failover_after(monkeypatch, restore, "retire_all", lose)
    assert tool.restore() == "pending"
    assert (len(done), picture(tool.place)) == (2, before)


def test_a_batch_of_discarding_that_comes_late_takes_nothing_that_was_put_back(tool, contracted, monkeypatch):
    discard, put_saved, guards = restore._discard, restore._put_saved, list[Guard]()

    def discarding(run, *rest):
        guards.append(run.guard("closed"))
        discard(run, *rest)

    def then_the_late_one(run, path):
        put_saved(run, path)
        with pytest.raises(FencedError, match="changed underfoot"):
            unlink(run, guards[0], [TEXT + b"a"])

    monkeypatch.setattr(restore, "_discard", discarding)
    monkeypatch.setattr(restore, "_put_saved", then_the_late_one)
    assert tool.restore() == "pending"
    assert (len(guards), picture(tool.place)) == (1, contracted)


def contracted_twice(tool, between) -> None:
    """A contract, its way back given up after `between` was done in it, and the contract again, in the same backup."""
    tool.apply(through="contract")
    with tool.run() as run:
        run.change("reverting", rolled_back=True, swept=False)
        rebuild.rebuild(run, backup_of(run))
    between()
    tool.apply("0001", through="contract")


def test_of_a_record_that_was_saved_twice_the_newer_one_is_restored(tool):
    def write_both():
        put(tool.place, TEXT + b"a", b"newer ")
        put(tool.place, b"{t}:hash:a", {b"id": b"a", b"text": b"newer"})

    contracted_twice(tool, write_both)
    assert tool.restore() == "pending"
    assert tool.place.raw.get(TEXT + b"a") == b"newer "


def test_a_record_that_was_set_aside_and_not_yet_removed_is_newer_than_the_saved_one(tool, monkeypatch):
    put(tool.place, TEXT + b"a", b"a")
    tool.apply(through="contract")
    with tool.run() as run:
        put(tool.place, run.families[0].retired(run.families[0].from_old(TEXT + b"a")), b"newer")
        run.put(swept=False)
    assert tool.restore() == "pending"
    assert tool.place.raw.get(TEXT + b"a") == b"newer"


@pytest.fixture
def maps(server, tmp_path):
    put(server, TIMES, {b"%d" % n: b"%d" % n for n in range(2100)} | {b"odd": b"no number"}, px=600_000)
    tool = tool_for(server, tmp_path, MEMBERS)
    tool.apply(exit=32)
    return tool


def test_a_collection_of_which_accepted_members_alone_are_left_is_restored_whole(maps):
    before = picture(maps.place)[TIMES]
    decide.quarantine_accept(maps.session(), "0001", everything=True)
    contracted_twice(maps, lambda: None)
    assert own_keys(maps.place), "the accepted member stays where it is"
    assert maps.restore() == "pending"
    assert picture(maps.place) == {TIMES: before}
    assert own_keys(maps.place) == set()


def test_of_a_collection_that_was_saved_twice_the_newer_one_alone_is_restored(maps):
    maps.place.raw.hdel(TIMES, "odd")
    before = picture(maps.place)[TIMES]

    def remove_both():
        maps.place.raw.hdel(TIMES, "7")
        maps.place.raw.zrem(b"{t}:sorted:a", "7")

    contracted_twice(maps, remove_both)
    assert maps.restore() == "pending"
    assert maps.place.raw.hlen(TIMES) == 2099
    assert picture(maps.place)[TIMES].expires == before.expires


def test_a_restore_that_died_in_the_middle_of_a_collection_puts_it_back_whole(maps, monkeypatch):
    maps.place.raw.hdel(TIMES, "odd")
    before = picture(maps.place)[TIMES]
    maps.apply(through="contract")
    put_members, parts = engine_put.put_members, list[int]()

    def dying(run, phase, line):
        put_members(run, phase, line)
        parts.append(line.part)
        if len(parts) == 2:
            raise Crash

    with monkeypatch.context() as broken:
        broken.setattr(engine_put, "put_members", dying)
        with pytest.raises(Crash):
            maps.restore()
    assert picture(maps.place) == {}
    assert len(own_keys(maps.place)) == 1
    put(maps.place, own_keys(maps.place).pop(), {b"of an older copy": b"1"})
    assert maps.restore() == "pending"
    assert (picture(maps.place), own_keys(maps.place)) == ({TIMES: before}, set())


def test_a_record_that_expires_before_it_takes_its_own_name_again_is_passed_over(tool):
    tool.apply(through="expand")
    with tool.run() as run:
        guarded(run, run.guard(), [("RENAMENX", b"{t}:gone", b"{t}:back"), ("RENAMENX", TEXT + b"a", b"{t}:back")])
    assert set(picture(tool.place)) == {b"{t}:back", TEXT + b"b"}


@pytest.mark.parametrize("remove", [unlink, lambda run, guard, names: guarded(run, guard, [("DEL", n) for n in names])])
def test_what_another_epoch_had_planned_is_refused(tool, remove):
    tool.apply(through="expand")
    before = picture(tool.place)
    with tool.run() as run, pytest.raises(FencedError):
        remove(run, replace(run.guard(), epoch=run.entry.epoch + 1), [TEXT + b"a"])
    assert picture(tool.place) == before
