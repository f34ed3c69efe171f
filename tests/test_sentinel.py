"""Behind a sentinel: a migration goes on with the server that took over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from redis.exceptions import ReadOnlyError

from migrator.client import Client, connect
from migrator.client.wire import Replies
from migrator.engine import backfill
from migrator.snapshot import embedded
from tests.servers import Place, Server, binary, wait_for
from tests.support import KEYS, Tool, tool_for

NUMBER = 300
CONFIG = """
port {port}
unixsocket {home}/sock
dir {home}
sentinel monitor main 127.0.0.1 {primary} 1
sentinel down-after-milliseconds main 1000
sentinel failover-timeout main 5000
"""


@pytest.fixture
def servers() -> Iterator[tuple[Server, Server]]:
    with Server(binary()) as primary, Server(binary()) as replica:
        primary.command("CONFIG", "SET", "repl-diskless-sync-delay", 0)
        replica.command("REPLICAOF", "127.0.0.1", primary.port)
        wait_for(lambda: replica.command("ROLE")[3] == b"connected", "the replica to be linked")
        yield primary, replica


@pytest.fixture
def sentinel(servers: tuple[Server, Server]) -> Iterator[Sentinel]:
    one = Sentinel(servers[0])
    try:
        one.start()
        yield one
    finally:
        one.close()


class Sentinel:
    def __init__(self, primary: Server) -> None:
        self.home, self.port, self._primary = embedded.make_home(), embedded.free_port(), primary

    @property
    def url(self) -> str:
        return f"redis+sentinel://127.0.0.1:{self.port}/main/0"

    def start(self) -> None:
        config = self.home / "sentinel.conf"
        config.write_text(CONFIG.format(port=self.port, home=self.home, primary=self._primary.port))
        self._process = embedded.spawn(self.home, str(binary()), str(config), "--sentinel")
        embedded.wait_until_up(self._process, self.home)
        # Else it looks at the others every ten seconds, and tells a primary of before what it is after eight.
        self.asked("SENTINEL", "DEBUG", "info-period", "200", "publish-period", "200")
        wait_for(lambda: self.asked("SENTINEL", "REPLICAS", "main"), "the sentinel to see the replica", 20)

    def asked(self, *words: str) -> Any:
        with Server.client(self, decode_responses=True) as raw:  # type: ignore[arg-type] # all it needs is a port
            return raw.execute_command(*words)

    def fail_over(self) -> None:
        wait_for(self._ordered, "the sentinel to find the replica good enough", 30)
        wait_for(self._demoted, "the primary to be demoted", 30)

    def _ordered(self) -> bool:
        try:
            return bool(self.asked("SENTINEL", "FAILOVER", "main"))
        except redis.ResponseError:
            return False

    def _demoted(self) -> bool:
        try:
            return bool(self._primary.command("ROLE")[0] == b"slave")
        except redis.ConnectionError:
            return False  # who is connected meanwhile is thrown out

    def close(self) -> None:
        embedded.dismiss(self._process)

    password = ""


@pytest.fixture
def tool(servers: tuple[Server, Server], sentinel: Sentinel, tmp_path: Any) -> Tool:
    raw = servers[0].client()
    raw.mset({f"{{t}}:text:{number}": number for number in range(NUMBER)})
    return tool_for(Place(sentinel.url, "server", raw, servers[0]), tmp_path, KEYS)


def test_a_backfill_goes_on_with_the_server_that_took_over(servers, sentinel, tool, monkeypatch):
    parse, failed = backfill.parse_old, list[bool]()

    def failing_over(*args):
        if not failed:
            failed.append(True)
            sentinel.fail_over()
        return parse(*args)

    monkeypatch.setattr(backfill, "parse_old", failing_over)
    tool.apply(through="verify")
    assert failed
    with servers[1].client() as now:
        assert now.execute_command("ROLE")[0] == b"master"
        assert now.hget("{t}:hash:7", "text") == b"7"
        assert len(now.keys("{t}:hash:*")) == NUMBER


def test_a_primary_that_became_a_replica_is_left(sentinel, servers, monkeypatch):
    client = connect(sentinel.url)
    take, refused = Replies.take, list[bool]()

    def refusing(self, number):
        replies = take(self, number)
        if not refused:
            refused.append(True)
            return [ReadOnlyError("You can't write against a read only replica.")] * number
        return replies

    (node,) = client.nodes()
    before = node.links.made
    monkeypatch.setattr(Replies, "take", refusing)
    assert _written(client) == b"OK"
    assert (refused, node.links.made) == ([True], before + 1)


def _written(client: Client) -> bytes:
    written: bytes = client.one(b"key", "SET", b"key", b"value")
    return written
