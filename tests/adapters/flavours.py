"""One test body for sync and async adapters, RESP2 and RESP3, and the way through every phase."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from redis.asyncio.cluster import RedisCluster as AsyncCluster

from migrator import adapters
from migrator.engine import back, forward
from migrator.moves.loader import Module
from tests import support
from tests.servers import Cluster, Place
from tests.support import Crash, Tool, crashing

PAIR = (("sync", 2), ("async", 3))
# The walk through every phase is done with all four; what else a method does, with two.
ALL_FOUR = pytest.mark.parametrize(
    "flavour", [*PAIR, ("sync", 3), ("async", 2)], indirect=True, ids=lambda f: f"{f[0]}{f[1]}"
)
# Everything on the way there and back; "swept" is contracted when the removal is done.
STAGES = ("pending", "expanded", "backfilled", "verified", "switched", "contracted", "swept",
          "reverting", "switched", "expanded", "pending")  # fmt: skip
OLD_IS_TRUE = ("pending", "expanded", "backfilled", "verified")
BOTH = ("expanded", "backfilled", "verified", "switched", "reverting")


_tools: list[Tool] = []


def tool_for(place: Place, tmp_path: Path, *sources: str) -> Tool:
    """As in tests.support; its connections are closed with the flavour: a caught error may keep them in a cycle."""
    _tools.append(support.tool_for(place, tmp_path, *sources))
    return _tools[-1]


def _close_tools() -> None:
    while _tools:
        for node in _tools.pop().client.nodes():
            node.pool.disconnect()


class Flavour:
    """Makes clients and adapters of one kind; what is async is awaited here, so that a test reads like sync code."""

    def __init__(self, how: str, protocol: int) -> None:
        self.how, self.protocol = how, protocol
        self._runner = asyncio.Runner() if how == "async" else None
        self._open: list[Any] = []

    def client(self, place: Place, **options: Any) -> Any:
        options = {"protocol": self.protocol, **options}
        if self._runner is None:
            client: Any = place.behind.client(**options)
        elif isinstance(place.behind, Cluster):
            client = AsyncCluster(host="127.0.0.1", port=place.behind.nodes[0].port, **options)
        else:
            client = redis.asyncio.Redis(host="127.0.0.1", port=place.behind.port, **options)
        self._open.append(client)
        return client

    def make(self, name: str, place: Place, module: Module, **options: Any) -> Any:
        """`make("Records", …)`: an adapter whose calls return results, windows lists of pages."""
        return self.adapt(name, self.client(place), module, **options)

    def adapt(self, name: str, client: Any, module: Module, **options: Any) -> Any:
        if self._runner is None:
            return getattr(adapters, name)(client, module, **options)
        adapter = Awaited(self._runner, getattr(adapters, f"Async{name}")(client, module, **options))
        adapter.open()
        return adapter

    def idle(self) -> None:
        """Some time in which an event loop hears what comes in, as it does in an application."""
        if self._runner is not None:
            self._runner.run(asyncio.sleep(0.02))

    def close(self) -> None:
        _close_tools()
        for client in self._open:
            if self._runner is None:
                client.close()
            else:
                self._runner.run(client.aclose())
        if self._runner is not None:
            self._runner.close()


@pytest.fixture(params=PAIR, ids=lambda f: f"{f[0]}{f[1]}")
def flavour(request: pytest.FixtureRequest) -> Iterator[Flavour]:
    made = Flavour(*request.param)
    yield made
    made.close()


class Awaited:
    """Something async, to be called as if it were not."""

    def __init__(self, runner: asyncio.Runner, inner: Any) -> None:
        self._runner, self._inner = runner, inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*args: Any, **captures: Any) -> Any:
            result = found(*args, **captures)
            if asyncio.iscoroutine(result):
                return self._runner.run(result)
            return _Pages(self._runner, result)

        return call


class _Pages:
    """An async iterator as an iterator."""

    def __init__(self, runner: asyncio.Runner, pages: Any) -> None:
        self._runner, self._pages = runner, pages

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        async def following() -> Any:
            return await anext(self._pages, None)

        page = self._runner.run(following())
        if page is None:
            raise StopIteration
        return page

    @property
    def mark(self) -> Any:
        return self._pages.mark


def module_of(tool: Tool, id: str = "0001") -> Module:
    return tool.session().modules.find(id)


def init(tool: Tool) -> None:
    with tool.run():
        pass


def through(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Every stage, one after the other; the migration stands in it until the next is asked for."""
    init(tool)
    yield "pending"
    for stage, step in (("expanded", "expand"), ("backfilled", "backfill"), ("verified", "verify"),
                        ("switched", "switch")):  # fmt: skip
        tool.apply(through=step)
        yield stage
    stop_at_contracted(tool, monkeypatch)
    yield "contracted"
    tool.apply(through="contract")
    yield "swept"
    stop_at_reverting(tool, monkeypatch)
    yield "reverting"
    for stage in ("switched", "expanded", "pending"):
        assert tool.rollback(to=stage) == stage  # type: ignore[arg-type]
        yield stage


def stop_at_contracted(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The markers say `contracted`, nothing is removed yet."""
    with monkeypatch.context() as patch:
        patch.setitem(forward._STAGES, "contracted", crashing)
        _crash(lambda: tool.apply(through="contract"))
    assert {phase for phase, _ in tool.states()} == {"contracted"}


def stop_at_reverting(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The markers say `reverting`, nothing is rebuilt yet."""
    with monkeypatch.context() as patch:
        patch.setattr(back, "rebuild", crashing)
        _crash(lambda: tool.rollback(to="switched"))
    assert {phase for phase, _ in tool.states()} == {"reverting"}


def _crash(call: Callable[[], object]) -> None:
    with pytest.raises(Crash):
        call()
