"""Replicas and failovers: a phase is relied on once the replicas have it; what a failover takes back is repeated."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from migrator.client import Client, following, replicas
from migrator.engine.recover import reconcile
from migrator.errors import FencedError, RefusedError
from migrator.ledger import Lease
from migrator.names import Names
from migrator.phases import Markers, Phase
from tests.servers import ROOT, Cluster, Place, Run, Server, binary, wait_for
from tests.support import KEYS, Tool, in_process, tool_for

TIMESTAMPS: Mapping[Any, Any] = {str(i): str(638960564401234567 + 1000 * i) for i in range(300)}
NAMES = Names("migrator")
ID = "0002_timestamps_to_sorted_sets"


@pytest.fixture(scope="module")
def linked() -> Iterator[tuple[Server, Server]]:
    with Server(binary()) as primary, Server(binary()) as replica:
        primary.command("CONFIG", "SET", "repl-diskless-sync-delay", 0)
        replica.command("REPLICAOF", "127.0.0.1", primary.port)
        yield primary, replica


@pytest.fixture
def pair(linked: tuple[Server, Server]) -> tuple[Server, Server]:
    """A server and its replica."""
    primary, replica = linked
    primary.command("ACL", "SETUSER", "default", "+@all")
    primary.command("FLUSHALL")
    wait_for(lambda: replica.command("ROLE")[3] == b"connected", "the replica to be linked")
    return linked


def test_a_switch_waits_for_the_replica_and_reaches_it(pair: tuple[Server, Server]) -> None:
    primary, replica = pair
    primary.client().hset("map:m:__meta:timestamps", mapping=TIMESTAMPS)
    done = in_process("apply", "0002", "--through", "switch", "--migrations", str(ROOT / "migrations"), url=primary.url)
    assert done.returncode == 0, done.stderr
    wait_for(lambda: replica.command("HGET", NAMES.marker(ID, b"0"), "phase") == b"switched", "the marker", 2)
    assert replica.command("ZCARD", "map:m:__meta:timestamps-sorted") == len(TIMESTAMPS)


@pytest.fixture
def tool(pair: tuple[Server, Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    primary, _ = pair
    raw = primary.client()
    for name in ("a", "b"):
        raw.set(f"{{t}}:text:{name}", name)
    tool = tool_for(Place(primary.url, "server", raw, primary), tmp_path, KEYS)
    monkeypatch.setattr(following, "_WAIT_MS", 100)
    return tool


@contextmanager
def stalls(
    tool: Tool, replica: Server, monkeypatch: pytest.MonkeyPatch, owner: Any, method: str, when: Callable[..., bool]
) -> Iterator[None]:
    """The replica no longer follows once `method` was called with what `when` says."""
    whole, stalled = getattr(owner, method), list[bool]()

    def stalling(*args: Any, **how: Any) -> Any:
        done = whole(*args, **how)
        if when(*args) and not stalled:
            stalled.append(True)
            replica.pause()
            tool.client.patience = 0.0
        return done

    with monkeypatch.context() as patched:
        patched.setattr(owner, method, stalling)
        try:
            yield
        finally:
            replica.resume()
            tool.client.patience = 10.0
    assert stalled


def change_to(source: str, target: str) -> tuple[Any, str, Callable[..., bool]]:
    return Markers, "change", lambda markers, fence, now, to, *_: (now[0], to) == (source, target)


@pytest.mark.parametrize(("through", "source", "target"), [
    ("switch", "verified", "switched"), ("contract", "contracted", "contracted"),
], ids=["switched", "swept"])  # fmt: skip
def test_what_a_removal_stands_on_is_refused_while_a_replica_does_not_follow(
    pair: tuple[Server, Server], tool: Tool, monkeypatch: pytest.MonkeyPatch, through: str, source: str, target: str
) -> None:
    tool.apply()
    with stalls(tool, pair[1], monkeypatch, *change_to(source, target)):
        stopped = tool.apply(through=through, exit=60).stopped
    assert stopped is not None
    assert "0 of 1 replicas follow" in stopped.reason
    tool.apply(through=through)


def test_a_finished_clean_up_is_refused_while_a_replica_does_not_follow(
    pair: tuple[Server, Server], tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool.apply()
    with (
        stalls(tool, pair[1], monkeypatch, *change_to("pending", "pending")),
        pytest.raises(RefusedError, match="0 of 1"),
    ):
        tool.rollback()
    assert tool.rollback() == "pending"


@pytest.mark.parametrize("phase", ["switched", "reverting"])
def test_markers_that_are_set_again_after_a_failover_are_relied_on_once_the_replica_has_them(
    pair: tuple[Server, Server], tool: Tool, monkeypatch: pytest.MonkeyPatch, phase: Phase
) -> None:
    tool.apply(through="switch" if phase == "switched" else "contract")
    with tool.run() as run:
        if phase == "reverting":
            run.change("reverting", rolled_back=True, swept=False)
        key = run.markers.key(0)
    tool.place.raw.hincrby(key, "epoch", -1)
    with tool.run() as run:
        with (
            stalls(tool, pair[1], monkeypatch, Markers, "set", lambda *_: True),
            pytest.raises(RefusedError, match="0 of 1"),
        ):
            reconcile(run)
        assert run.entry.epoch == int(tool.place.raw.hget(key, "epoch") or 0)
        reconcile(run)


def test_a_command_that_takes_the_lease_does_nothing_before_every_replica_has_its_fence(
    pair: tuple[Server, Server], tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool.apply()
    with (
        stalls(tool, pair[1], monkeypatch, Lease, "durable", lambda *_: True),
        pytest.raises(RefusedError, match="0 of 1"),
        tool.run(),
    ):
        raise AssertionError("it went on")


def test_the_fence_is_raised_again_where_a_server_was_replaced_before_the_replicas_had_it(
    server: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tool_for(server, tmp_path, KEYS)
    tool.apply()
    key, durable = NAMES.marker("0001_first", b"0"), Lease.durable

    def failover(lease: Lease, *rest: Any) -> str:
        if lease.client.processes() != "another":
            server.raw.hset(key, mapping={"fence": 1, "token": "of the holder before"})
            monkeypatch.setattr(Client, "processes", lambda _: "another")
        return durable(lease, *rest)

    monkeypatch.setattr(Lease, "durable", failover)
    tool.apply(through="switch")
    assert tool.phase() == "switched"


def test_waiting_for_replicas_is_no_success_once_the_lease_is_lost(pair: tuple[Server, Server], tool: Tool) -> None:
    with tool.run() as run:
        tool.place.raw.hset(NAMES.lease, "token", "of another")
        with pytest.raises(FencedError):
            run.lease.durable()


# What is denied or permitted one after the other, what can be known of one replica then, and whether the plan warns.
PERMITTED = {"-info": (1, False), "-wait": (1, True), "-role": (None, True), "+wait": (1, False), "+info": (1, False)}


def test_replicas_are_known_by_info_else_by_role_else_by_wait_and_the_plan_says_where_none_is_permitted(
    pair: tuple[Server, Server], tool: Tool
) -> None:
    tool.apply()
    for change, (known, warns) in PERMITTED.items():
        pair[0].command("ACL", "SETUSER", "default", change)
        tool.client.answered_wait.clear()
        assert [replicas(tool.client, node) for node in tool.client.nodes()] == [known], change
        assert {one.code for one in tool.plan().risks} & {"no-wait", "no-replica"} == (
            {"no-wait"} if warns else set()
        ), change
        tool.apply()
    tool.apply(through="switch")
    assert pair[1].command("HGET", NAMES.marker("0001_first", b"0"), "phase") == b"switched"


@pytest.fixture
def replicated() -> Iterator[Cluster]:
    with Cluster(binary(), replicas=True) as cluster:
        yield cluster


def test_a_primary_lost_for_good_costs_nothing_that_its_replica_had(replicated: Cluster, run_migrator: Run) -> None:
    with replicated.client() as raw:
        for i in range(30):
            raw.hset(f"map:{{m{i}}}:__meta:timestamps", mapping=TIMESTAMPS)
    assert run_migrator("apply", "0002", "--through", "backfill", url=replicated.url).returncode == 0
    url = replicated.url  # names the node that is lost: the others are found through what it said before
    lost = replicated.nodes[0]
    wait_for(lambda: lost.command("WAIT", 1, 1000) >= 1, "the replica of the node that is lost")
    lost.kill()
    wait_for(lambda: len(replicated.primaries()) == 3, "a replica to take over", 30)
    replicated.wait_ok()
    assert url != replicated.url
    done = run_migrator("apply", "0002", "--format", "json", url=replicated.url)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["migrations"][0]["phase"] == "verified"
    with replicated.client() as raw:
        for i in range(30):
            assert raw.zcard(f"map:{{m{i}}}:__meta:timestamps-sorted") == len(TIMESTAMPS)
