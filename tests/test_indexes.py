"""Repairs of an index that shares no slot with its records, while the records are written."""

from __future__ import annotations

import pytest

from migrator.client import Client
from tests.support import Shell, put, write

TEXT, QUEUE = b"{t}:text:a", b"{q}:queue"
QUEUED = """
from migrator import Index, KeyMove, Keys, Migration

def score(key, new):
    return float(new[b"at"]) if b"at" in new else None

migration = Migration(KeyMove(
    source=Keys("{{t}}:text:{id}", type="string"),
    target=Keys("{{t}}:hash:{id}", type="hash"),
    forward=lambda key, text: {b"at": text[3:]} if text.startswith(b"at ") else {b"text": text},
    indexes=(Index(keys=Keys("{{q}}:queue", type="zset"), member=lambda key: key["id"], score=score),),
))
"""


@pytest.fixture
def shell(cluster, tmp_path):
    return Shell(cluster, write(tmp_path / "migrations", QUEUED))


def once(monkeypatch, command, before=lambda: None, after=lambda: None):
    """Something happens before and after that command of the tool on the queue, the first time."""
    one, done = Client.one, list[bool]()

    def watched(self, key, *args):
        first = key == QUEUE and args[0] == command and not done
        if first:
            done.append(True)
            before()
        reply = one(self, key, *args)
        if first:
            after()
        return reply

    monkeypatch.setattr(Client, "one", watched)
    return done


@pytest.mark.parametrize("has", [True, False], ids=["is removed", "is added"])
def test_a_membership_follows_from_its_record(cluster, shell, has):
    put(cluster, TEXT, b"done" if has else b"at 5")
    if has:
        put(cluster, QUEUE, {b"a": 1.0})
    assert "1 index membership" in shell.text("apply", "--repair-indexes")
    assert cluster.raw.zrange(QUEUE, 0, -1) == ([] if has else [b"a"])


@pytest.mark.parametrize("through", ["switch", "contract"])
def test_indexes_that_are_to_be_repaired_too_late_are_refused(cluster, shell, tmp_path, through):
    put(cluster, TEXT, b"at 5")
    shell("apply", "--through", "switch")
    words = ("--repair-indexes", "--backup", str(tmp_path / "backup"), "--yes")
    assert "before the switch" in shell("apply", "--through", through, *words, exit=60)["stopped"]["reason"]
    assert cluster.raw.zcard(QUEUE) == 0
    assert shell("status")["migrations"][0]["phase"] == "switched"


def test_a_job_that_is_queued_again_while_its_entry_is_removed_is_in_the_queue(cluster, shell, monkeypatch):
    put(cluster, TEXT, b"done")
    put(cluster, QUEUE, {b"a": 1.0})

    def queue():
        cluster.raw.set(TEXT, "at 7")
        cluster.raw.zadd(QUEUE, {"a": 7})

    done = once(monkeypatch, "ZREM", before=queue)
    shell("apply", "--through", "backfill", "--repair-indexes")
    assert done
    assert cluster.raw.zscore(QUEUE, "a") == 7.0


def test_a_job_that_is_done_while_its_entry_is_added_is_not_in_the_queue(cluster, shell, monkeypatch):
    put(cluster, TEXT, b"at 5")
    done = once(monkeypatch, "ZADD", after=lambda: cluster.raw.set(TEXT, "done"))
    shell("apply", "--through", "backfill", "--repair-indexes")
    assert done
    assert cluster.raw.zcard(QUEUE) == 0


def test_a_job_that_is_gone_while_its_entry_is_added_is_not_in_the_queue(cluster, shell, monkeypatch):
    put(cluster, TEXT, b"at 5")
    done = once(monkeypatch, "ZADD", after=lambda: cluster.raw.delete(TEXT))
    shell("apply", "--through", "backfill", "--repair-indexes")
    assert done
    assert cluster.raw.zcard(QUEUE) == 0


def test_a_job_that_is_queued_anew_while_its_entry_is_added_stays_in_the_queue(cluster, shell, monkeypatch):
    put(cluster, TEXT, b"at 5")

    def queue():
        cluster.raw.set(TEXT, "at 7")
        cluster.raw.zadd(QUEUE, {"a": 7})

    done = once(monkeypatch, "ZADD", after=queue)
    shell("apply", "--through", "backfill", "--repair-indexes")
    assert done
    assert cluster.raw.zscore(QUEUE, "a") == 7.0


@pytest.mark.parametrize("part", ["member", "score"])
def test_an_index_that_fails_is_left_as_it_is_and_nothing_it_says_is_repeated(client, tmp_path, part):
    failing = {
        "member": ('key["id"]', 'b"%d" % int(key["id"])'),
        "score": ('float(new[b"at"]) if b"at" in new else None', 'float(new[b"text"])'),
    }[part]
    shell = Shell(client, write(tmp_path / "migrations", QUEUED.replace(*failing)))
    put(client, TEXT, b"swordfish")
    shell("plan", "0001")
    told = shell("apply", "--repair-indexes")
    assert [note for note in told["notes"] if "ValueError" in note and "{q}:queue" in note]
    text = shell.text("apply", "--repair-indexes")
    assert "could not convert" not in text
    assert "invalid literal" not in text
