"""Servers that are restarted under a run, and ways back that are killed: the same command finishes what it began."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator

import pytest

from migrator.client import connect
from tests.chaos import KILLED, live
from tests.conftest import _place
from tests.servers import Place, Server, binary
from tests.test_fencing import Scene, end

NO_INFO = "user default on nopass ~* &* +@all -info"


@pytest.fixture(params=["", NO_INFO], ids=["info", "no-info"])
def durable(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A server that comes back with its data; once without INFO, so that its run_id cannot be read."""
    with Server(binary(), appendonly=True, acl=request.param) as server:
        yield from _place(server, "server")


def test_a_server_that_came_back_is_another_process_even_if_no_command_failed(durable):
    assert isinstance(durable.behind, Server)
    client = connect(durable.url)
    (node,) = client.nodes()
    first = client.page(node, 0, b"*", 10).run_id
    assert client.page(node, 0, b"*", 10).run_id == first
    durable.behind.restart()
    assert client.page(node, 0, b"*", 10).run_id != first
    node.pool.disconnect()


def test_a_server_restarted_again_and_again_loses_no_record(durable, start_migrator, tmp_path):
    assert isinstance(durable.behind, Server)
    scene = Scene(durable, start_migrator, tmp_path)
    first = scene.apply(through="contract", lease="30")
    dice, restarts = random.Random(), 0
    while True:
        try:
            # The first time after it has begun, and long before a quick machine is through.
            first.wait(0.6 + dice.random() * (1.5 if restarts else 0.3))
            break
        except subprocess.TimeoutExpired:
            durable.behind.kill()
            durable.behind.start()
            restarts += 1
    code, said = end(first)
    assert code == 0, said
    assert restarts
    scene.check_contracted(json.JSONDecoder().raw_decode(said)[0])


BACK = {
    "contracted to switched": ("contract", ["rollback", "0001", "--to", "switched"]),
    "contracted to pending": ("contract", ["rollback", "0001", "--to", "pending"]),
    "verified to pending": ("verify", ["rollback", "0001", "--to", "pending"]),
    "restore": ("contract", ["restore", "0001", "--discard-later-writes"]),
}


@pytest.mark.parametrize("name", BACK)
def test_a_way_back_that_was_killed_three_times_ends_as_if_it_had_not_been(server, start_migrator, tmp_path, name):
    through, words = BACK[name]
    scene = Scene(server, start_migrator, tmp_path)
    assert end(scene.apply("0001", through=through))[0] == 0
    args = [*words, "--yes", "--backup", str(tmp_path / "backup"), "--lease", "1"]
    kills = 0
    while kills < 3:
        at = random.random() * 2
        life = live(args, server.url, tmp_path, lambda lived, at=at: lived >= at)  # type: ignore[misc]
        kills += life.exit == KILLED
        if life.exit == 0:
            break
    if life.exit != 0:
        scene.finish(*words)
    if "switched" in name:
        found = scene.finish("verify", "0001")
        assert [found[n] for n in ("missing", "extra", "different", "ttl_drift", "unreadable")] == [0] * 5
        assert found["compared"] >= 1200
    else:
        assert {k: v for k, v in scene.dumps().items() if not k.startswith(b"migrator:")} == scene.old
