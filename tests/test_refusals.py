"""What a server refuses within a script, in the words of every version: waited out, or told as what it is."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from migrator.client import Client, ResponseError, connect
from migrator.client.wire import READ_ONLY, is_refusal
from migrator.engine import commands, sweep
from migrator.errors import LeaseHeldError, RefusedError, UnreachableError
from migrator.ledger import take_lease
from migrator.names import Names
from migrator.phases import Markers
from migrator.scripts import script
from tests.proxy import Proxy
from tests.servers import SERVER_NAMES, Place, Server, find_servers, wait_for
from tests.support import KEYS, put, tool_for

NAMES = Names("migrator")


@pytest.fixture(params=SERVER_NAMES)
def own(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """A server to be spoiled, of each that this machine has."""
    found = find_servers()[request.param]
    if found.path is None:
        pytest.skip(f"{found.name}: {found.missing}")
    (tmp_path / "data").mkdir()
    with Server(found.path, dir=tmp_path / "data") as server:
        yield server


def full(server: Server) -> None:
    server.command("CONFIG", "SET", "maxmemory", 1)


def disk_lost(server: Server) -> None:
    """The directory it saves to is gone, which it finds out when it saves."""
    shutil.rmtree(server.dir)
    server.command("CONFIG", "SET", "save", "900 1")
    server.command("BGSAVE")
    wait_for(lambda: b"rdb_last_bgsave_status:err" in server.command("INFO", "persistence"), "the save to fail")


def demoted(server: Server) -> None:
    server.command("REPLICAOF", "127.0.0.1", 1)


def write(client: Client) -> object:
    """The first that any command writes."""
    return take_lease(client, NAMES, 30.0)


@pytest.mark.parametrize(("spoil", "said"), [(full, "out of memory"), (disk_lost, "cannot save to disk")])
def test_a_server_that_takes_no_writes_is_a_refusal_that_says_why(
    own: Server, spoil: Callable[[Server], None], said: str
) -> None:
    spoil(own)
    with pytest.raises(RefusedError, match=said) as refused:
        write(connect(own.url))
    assert (refused.value.exit_code, bool(refused.value.next)) == (60, True)


def test_a_primary_that_was_demoted_is_waited_out(own: Server) -> None:
    demoted(own)
    waited: list[str] = []

    def promote(why: str) -> None:
        waited.append(why)
        own.command("REPLICAOF", "NO", "ONE")

    client = connect(own.url)
    client.on_wait = promote
    assert write(client)
    assert len(waited) == 1
    assert "READONLY" in waited[0] or "read only" in waited[0]


def test_a_demoted_primary_that_nobody_promotes_is_unreachable_in_the_end(own: Server) -> None:
    demoted(own)
    with pytest.raises(UnreachableError, match="unreachable"):
        write(connect(own.url, patience=0.2))


@pytest.mark.parametrize("text", [
    "READONLY You can't write against a read only replica.",
    "Error running script (call to f_1): @user_script:7: @user_script: 7: -READONLY You can't write against a replica",
])  # fmt: skip
def test_a_replica_is_known_by_what_it_says_wherever_that_stands(text: str) -> None:
    assert is_refusal(ResponseError(text), READ_ONLY)
    assert not is_refusal(text.encode(), READ_ONLY)
    assert not is_refusal(ResponseError("no such key: not-READONLYx"), READ_ONLY)


def test_memory_that_runs_out_in_a_contract_is_exit_60_and_the_same_command_goes_on(
    own: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with own.client() as raw:
        tool = tool_for(Place(own.url, "server", raw, own), tmp_path, KEYS)
        put(tool.place, b"{t}:text:a", b" a")
        tool.apply(through="switch")
        whole = sweep.retire_all

        def and_full(run: Any) -> object:
            full(own)
            return whole(run)

        with monkeypatch.context() as broken:
            broken.setattr(sweep, "retire_all", and_full)
            stopped = tool.apply(through="contract", exit=60).stopped  # the lease could not be given back either
        assert stopped is not None
        assert "out of memory" in stopped.reason
        own.command("CONFIG", "SET", "maxmemory", 0)
        raw.hset(NAMES.lease, "expires_ms", 0)
        tool.apply(through="contract")
        assert raw.hgetall("{t}:hash:a") == {b"id": b"a", b"text": b"a"}


# The lease.


def test_a_lease_that_somebody_else_took_meanwhile_is_told_as_held(
    server: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tool_for(server, tmp_path, KEYS)
    tool.apply(through="expand")
    server.raw.hset(NAMES.marker("0001_first", b"0"), mapping={"fence": 99, "token": "of a lost holder"})
    whole = Markers.raise_fence

    def meanwhile(*args: Any) -> Any:
        # It ran out while we looked, and another process took it.
        server.raw.hset(NAMES.lease, mapping={"token": "another's", "owner": "elsewhere:7", "expires_ms": 1 << 45})
        return whole(*args)

    monkeypatch.setattr(Markers, "raise_fence", meanwhile)
    with pytest.raises(LeaseHeldError, match="elsewhere:7 holds the lease"):
        tool.apply()


@pytest.fixture
def proxy(server: Place) -> Iterator[Proxy]:
    assert isinstance(server.behind, Server)
    with Proxy(server.behind.port) as proxy:
        yield proxy


def test_a_lock_is_broken_although_the_reply_is_lost_and_its_holder_is_fenced_off(
    server: Place, proxy: Proxy, tmp_path: Path
) -> None:
    tool = tool_for(Place(proxy.url, "server", server.raw, server.behind), tmp_path, KEYS)
    tool.apply(through="expand")
    server.raw.script_load(script("lease_break").text.decode())
    session = tool.session()
    with session.leased() as lease:
        proxy.lose_reply(lambda command: script("lease_break").sha in command)
        assert not commands.lock_break(session, lease.fence.token).held
        assert proxy._losing is None, "nothing was lost"
        marker = tool.session().reader(tool.session().modules.find("0001")).markers.read()[0]
        assert marker is not None
        assert marker.fence.number == lease.fence.number + 1
        assert marker.fence.token.startswith("broken-")
    assert not commands.lock_break(session, lease.fence.token).held, "nobody has taken it since"
    take_lease(tool.client, NAMES, 30.0)
    with pytest.raises(RefusedError, match="no lease has the token"):
        commands.lock_break(session, lease.fence.token)
    assert commands.lock_show(session).held
