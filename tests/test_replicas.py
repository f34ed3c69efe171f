"""Replicas and failovers: a phase is relied on once the replicas have it; what a failover takes back is repeated."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from migrator.names import Names
from tests.servers import Cluster, Run, Server, binary, wait_for

TIMESTAMPS: Mapping[Any, Any] = {str(i): str(638960564401234567 + 1000 * i) for i in range(300)}
NAMES = Names("migrator")
ID = "0002_timestamps_to_sorted_sets"


@pytest.fixture
def pair() -> Iterator[tuple[Server, Server]]:
    """A server and its replica."""
    with Server(binary()) as primary, Server(binary()) as replica:
        replica.command("REPLICAOF", "127.0.0.1", primary.port)
        wait_for(lambda: replica.command("ROLE")[3] == b"connected", "the replica to be linked")
        yield primary, replica


def test_a_switch_waits_for_the_replica_and_reaches_it(pair: tuple[Server, Server], run_migrator: Run) -> None:
    primary, replica = pair
    primary.client().hset("map:m:__meta:timestamps", mapping=TIMESTAMPS)
    done = run_migrator("apply", "0002", "--through", "switch", url=primary.url)
    assert done.returncode == 0, done.stderr
    wait_for(lambda: replica.command("HGET", NAMES.marker(ID, b"0"), "phase") == b"switched", "the marker", 2)
    assert replica.command("ZCARD", "map:m:__meta:timestamps-sorted") == len(TIMESTAMPS)


def test_a_switch_is_refused_while_a_replica_does_not_follow(pair: tuple[Server, Server], run_migrator: Run) -> None:
    primary, replica = pair
    primary.client().hset("map:m:__meta:timestamps", mapping=TIMESTAMPS)
    assert run_migrator("apply", "0002", url=primary.url).returncode == 0
    replica.pause()
    try:
        held = run_migrator("apply", "0002", "--through", "switch", "--retry", "1", "--format", "json", url=primary.url)
    finally:
        replica.resume()
    assert held.returncode == 60, held.stdout
    assert "replicas follow" in json.loads(held.stdout)["stopped"]["reason"]
    assert run_migrator("apply", "0002", "--through", "switch", url=primary.url).returncode == 0


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
