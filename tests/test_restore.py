"""Restore loses nothing that was saved, whatever fails over, comes late, or lies there several times."""

from __future__ import annotations

import pytest

from migrator.client import Client
from migrator.engine import restore, sweep
from migrator.engine.guarded import unlink
from migrator.errors import FencedError
from migrator.phases import Guard
from tests.support import KEYS, picture, put, tool_for

TEXT = b"{t}:text:"


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


def failover_after(monkeypatch, step, lose) -> list[int]:
    """Once, after a step of restore: `lose` does what a failover does that had not replicated the step."""
    whole, done = getattr(restore, step), list[int]()

    def once(*args):
        whole(*args)
        done.append(1)
        if len(done) == 1:
            lose()
            monkeypatch.setattr(Client, "processes", lambda _: "another")

    monkeypatch.setattr(restore, step, once)
    return done


def test_what_a_failover_takes_back_of_putting_back_is_put_back_again(tool, contracted, monkeypatch):
    done = failover_after(monkeypatch, "_put_saved", lambda: tool.place.raw.delete(TEXT + b"a"))
    assert tool.restore() == "pending"
    assert (len(done), picture(tool.place)) == (2, contracted)


def test_what_a_failover_takes_back_of_discarding_is_discarded_again(tool, contracted, monkeypatch):
    done = failover_after(monkeypatch, "_discard", lambda: put(tool.place, TEXT + b"late", b"late"))
    assert tool.restore() == "pending"
    assert (len(done), picture(tool.place)) == (2, contracted)


def test_a_failover_while_records_step_aside_for_a_restore_has_them_step_aside_again(tool, monkeypatch):
    before = picture(tool.place)
    tool.apply(through="switch")
    with tool.run() as run:
        backup_epoch = run.entry.epoch + 1
        sweep.open_backup(run, backup_epoch).finish()
        run.change("contracted", backup=str(tool.backup.resolve()), backup_epoch=backup_epoch, swept=False)
    names = tool.session().names

    def lose():
        tool.place.raw.rename(names.beside("old", "0001_first", TEXT + b"a", b""), TEXT + b"a")
        tool.place.raw.delete(names.checkpoints)  # they belong to a process that is gone

    done = failover_after(monkeypatch, "retire_all", lose)
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
