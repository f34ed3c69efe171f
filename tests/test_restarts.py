"""Servers that are restarted under a run, and ways back that are killed: the same command finishes what it began."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator
from contextlib import suppress

import pytest

from migrator.client import connect
from tests.conftest import _place
from tests.proxy import Predicate
from tests.servers import Place, Server, binary
from tests.support import own_keys
from tests.test_fencing import Scene, end, proxy, scene

__all__ = ["proxy", "scene"]

UNREACHABLE = 3
MOST = 15  # restarts: where the machine is slow, no step would ever get through
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
    dice, restarts, code = random.Random(), 0, UNREACHABLE
    while code == UNREACHABLE:
        life = scene.apply(through="contract", lease="30")
        while life.poll() is None:
            # The first time after it has begun, and long before a quick machine is through.
            with suppress(subprocess.TimeoutExpired):
                life.wait(0.6 + dice.random() * (1.5 if restarts else 0.3))
                break
            if restarts < MOST:
                durable.behind.kill()
                durable.behind.start()
                restarts += 1
        code, said = end(life)
        assert code == 0 or "servers were replaced 5 times since it was" in said, said
    assert code == 0, said
    assert restarts
    scene.check_contracted(json.JSONDecoder().raw_decode(said)[0])


# From where, by which command, and at which of its scripts each life is killed, at most: so many there surely are. Not
# killed, they call 24, 50, 25 and 1,236; a later life has less to do, but for `restore`, which puts each record again.
BACK = {
    "contracted to switched": ("contract", ["rollback", "0001", "--to", "switched"], (14, 7, 6)),
    "contracted to pending": ("contract", ["rollback", "0001", "--to", "pending"], (30, 7, 6)),
    "verified to pending": ("verify", ["rollback", "0001", "--to", "pending"], (14, 7, 6)),
    "restore": ("contract", ["restore", "0001", "--discard-later-writes"], (1200, 1200, 1200)),
}


def script_call(number: int) -> Predicate:
    """The call of a script after so many others."""
    left = iter(range(number))

    def here(command: bytes) -> bool:
        return b"EVALSHA" in command[:30] and next(left, None) is None

    return here


@pytest.mark.parametrize("name", BACK)
def test_a_way_back_that_was_killed_three_times_ends_as_if_it_had_not_been(scene, proxy, name):
    through, words, numbers = BACK[name]
    scene.finish("apply", "0001", "--through", through)
    for most in numbers:
        held = proxy.hold(script_call(random.randrange(most)))
        life = scene.start(*words, "--yes", "--backup", str(scene.home / "backup"), url=proxy.url)
        held.wait(30)
        assert life.poll() is None
        scene.bury(life)
        held.release()
        held.reply()  # what was on its way has arrived
        scene.bury(life)  # and may have renewed its lease
    scene.finish(*words)
    if "switched" in name:
        found = scene.finish("verify", "0001")
        assert [found[n] for n in ("missing", "extra", "different", "ttl_drift", "unreadable")] == [0] * 5
        assert found["compared"] >= 1200
    else:
        assert own_keys(scene.place) == set()
        assert {k: v for k, v in scene.dumps().items() if not k.startswith(b"migrator:")} == scene.old
