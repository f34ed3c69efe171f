"""Slots that move under a walk, and records in the middle of a move, lose nothing."""

from __future__ import annotations

import threading
import time

import pytest

from migrator.engine import backfill, copy, sweep
from migrator.errors import UnreachableError
from migrator.keys import slot_of
from tests.between import WAYS, before_a_batch
from tests.servers import Cluster
from tests.support import KEYS, MEMBERS, SAME_NAME, own_keys, picture, put, tool_for

SLOT = slot_of(b"{t}")


@pytest.fixture
def tool(cluster, tmp_path):
    for number in range(50):
        put(cluster, b"{t}:text:%d" % number, b"text")
    return tool_for(cluster, tmp_path, KEYS)


def elsewhere(behind: Cluster):
    source = behind.owner(SLOT)
    return source, next(node for node in behind.primaries() if node is not source)


@WAYS
def test_a_slot_that_moves_during_the_backfill_has_it_walked_again(cluster, tool, quick, monkeypatch):
    tool.apply(through="expand")
    walked: list[int] = []
    parse_old = backfill.parse_old

    def note(family, keys):
        walked.append(len(keys))
        return parse_old(family, keys)

    monkeypatch.setattr(backfill, "parse_old", note)
    move = lambda _: cluster.behind.move_slot(SLOT, *elsewhere(cluster.behind))  # noqa: E731
    held = before_a_batch(monkeypatch, move, quick=quick)
    tally = tool.apply(through="switch").migrations[0].tally
    assert len(held) == 1
    assert walked.count(50) > 1
    assert (tally.scanned, tally.moved + tally.unchanged) == (50, 50)
    found = tool.verify()
    assert (found.compared, found.missing) == (50, 0)
    assert tool.states() == {("switched", 2)}  # the marker went with its slot


def test_half_moved_records_wait_until_the_move_is_over(cluster, tool):
    tool.apply(through="backfill")
    source, target = elsewhere(cluster.behind)
    cluster.behind.begin_move(SLOT, source, target)
    cluster.behind.move_keys(SLOT, source, target, 30)

    def finish():
        time.sleep(0.5)
        while cluster.behind.move_keys(SLOT, source, target):
            pass
        cluster.behind.finish_move(SLOT, source, target)

    mover = threading.Thread(target=finish)
    mover.start()
    try:
        tool.apply(through="switch")
    finally:
        mover.join()
    assert len(picture(cluster)) == 100
    assert tool.verify().compared == 50
    assert tool.phase() == "switched"


@pytest.mark.parametrize(("way", "wrong"), [(copy.FORWARD, b"{t}:hash:7"), (copy.BACKWARD, b"{t}:text:7")])
def test_a_record_that_is_wrong_is_written_over_although_its_slot_is_on_the_move(cluster, tool, way, wrong):
    tool.apply(through="verify" if way is copy.FORWARD else "contract")
    with tool.run() as run:
        if way is copy.BACKWARD:
            run.change("reverting", rolled_back=True, swept=False)
        put(cluster, wrong, b"wrong" if way is copy.BACKWARD else {b"text": b"wrong", b"more": b"wrong"})
        source, target = elsewhere(cluster.behind)
        cluster.behind.begin_move(SLOT, source, target)
        try:
            pair = run.families[0].from_old(b"{t}:text:7")
            assert copy.copy_keys(run, run.families[0], way, [pair])["moved"] == 1
        finally:
            cluster.behind.finish_move(SLOT, target, source)
    old = tool.place.raw.get(b"{t}:text:7")
    assert (old, cluster.raw.hgetall(b"{t}:hash:7")) == (b"text", {b"id": b"7", b"text": b"text"})


@pytest.mark.parametrize("source", [KEYS, SAME_NAME], ids=["two names", "one name"])
@pytest.mark.parametrize("ends", [True, False])
def test_records_step_aside_in_a_slot_on_the_move_or_the_tool_says_why_not(
    cluster, tmp_path, monkeypatch, source, ends
):
    """The move begins when the markers say `contracted` already: to begin with, it would be refused."""
    tool = tool_for(cluster, tmp_path, source)
    for number in range(50):
        put(cluster, b"{t}:text:%d" % number, b"text")
    tool.apply(through="switch")
    tool.client.patience = 20.0 if ends else 0.5
    moves: list[threading.Thread] = []
    ended, rename = threading.Event(), sweep.rename

    def finish(home, away):
        ended.wait(0.5 if ends else None)
        while cluster.behind.move_keys(SLOT, home, away):
            pass
        cluster.behind.finish_move(SLOT, home, away)

    def move_first(*words, **named):
        if not moves:
            home, away = elsewhere(cluster.behind)
            cluster.behind.begin_move(SLOT, home, away)
            cluster.behind.move_keys(SLOT, home, away, 40)
            moves.append(threading.Thread(target=finish, args=(home, away)))
            moves[0].start()
        return rename(*words, **named)

    monkeypatch.setattr(sweep, "rename", move_first)
    try:
        if ends:
            tool.apply(through="contract")
        else:
            with pytest.raises(UnreachableError, match=r"slot|TRYAGAIN"):
                tool.apply(through="contract")
            assert tool.phase() == "contracted"
    finally:
        ended.set()
        moves[0].join()
    if not ends:
        assert len(picture(cluster)) + len(own_keys(cluster)) == 100
        tool.client.patience = 20.0
        tool.apply(through="contract")
    name = b"{t}:text:%d" if source == SAME_NAME else b"{t}:hash:%d"
    assert set(picture(cluster)) == {name % number for number in range(50)}
    assert cluster.raw.hgetall(name % 7) == {b"id": b"7", b"text": b"text"}
    assert tool.rollback(to="pending") == "pending"
    assert cluster.raw.get(b"{t}:text:7") == b"text"


def test_a_move_that_does_not_end_is_named_and_nothing_is_switched(cluster, tool):
    tool.apply()
    tool.client.patience = 1.0
    source, target = elsewhere(cluster.behind)
    cluster.behind.begin_move(SLOT, source, target)
    try:
        stopped = tool.apply(through="switch", exit=60).stopped
        assert stopped is not None
        assert "slots" in stopped.reason
    finally:
        cluster.behind.finish_move(SLOT, target, source)
    assert tool.states() == {("verified", 1)}


def test_a_collection_is_copied_whole_while_its_slot_moves(cluster, tmp_path):
    tool = tool_for(cluster, tmp_path, MEMBERS)
    put(cluster, b"{t}:times:a", {b"%d" % n: b"%d" % n for n in range(3000)})
    tool.apply(through="expand")
    mover = threading.Thread(target=lambda: cluster.behind.move_slot(SLOT, *elsewhere(cluster.behind)))
    mover.start()
    tool.apply(through="contract")
    mover.join()
    assert cluster.raw.execute_command("ZCARD", b"{t}:sorted:a") == 3000
    assert tool.rollback(to="pending") == "pending"
    assert cluster.raw.execute_command("HLEN", b"{t}:times:a") == 3000
