"""Windows over scores that are disturbed: a read fails, a call is cancelled."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import redis

from migrator.errors import UnreachableError, UsageError
from migrator.scripts import script
from tests.adapters.flavours import flavour, init, module_of, tool_for
from tests.proxy import Hold, Proxy
from tests.servers import Place
from tests.support import Tool
from tests.test_adapters_timestamps import STAMPS, TICKS

__all__ = ["flavour"]
ONLY_ASYNC = pytest.mark.parametrize("flavour", [("async", 3)], indirect=True, ids=["async3"])
END = TICKS + 10**8


def stamps_of(number: int) -> dict[bytes, int]:
    """Far enough apart for each to have a double of its own."""
    return {b"s%05d" % n: TICKS + 1000 * n for n in range(number)}


def stamped(flavour: Any, place: Place, tmp_path: Any, ticks: dict[bytes, int]) -> Tool:
    """A migration that has begun, and a collection."""
    tool = tool_for(place, tmp_path, STAMPS)
    init(tool)
    flavour.make("Timestamps", place, module_of(tool)).set_many(ticks, name="a")
    return tool


class Reads:
    """The reads of an adapter: what happens before each, given its number, and to each answer."""

    def __init__(self, adapter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        bridge = adapter._core.bridge
        self._ask, self.number = bridge.ask, 0
        self.before: Callable[[int], None] = lambda number: None
        self.after: Callable[[Any], None] = lambda answer: None
        monkeypatch.setattr(bridge, "ask", self._seen)

    def _seen(self, *args: Any, **how: Any) -> Any:
        self.number += 1
        self.before(self.number)
        answer = yield from self._ask(*args, **how)
        self.after(answer)
        return answer


class Failing:
    """Fails before one read, once."""

    def __init__(self, at: int) -> None:
        self.at, self.failed = at, False

    def __call__(self, number: int) -> None:
        if number == self.at:
            self.failed = True
            raise UnreachableError("down")


def read_on(pages: Any, *, marked: bool) -> list[bytes]:
    """The members, for a caller who asks again after an error; before the end there is no mark."""
    got: list[bytes] = []
    while True:
        try:
            page = next(pages, None)
        except UnreachableError:
            if marked:
                no_mark(pages)
            continue
        if page is None:
            return got
        got += [one.member if marked else one[0] for one in page]


def no_mark(window: Any) -> None:
    with pytest.raises(UsageError, match="not read to its end"):
        _ = window.mark


@pytest.mark.parametrize("step", ["", "switch"], ids=["pending", "switched"])
@pytest.mark.parametrize("name", ["Timestamps", "Members"])
def test_the_members_of_a_read_that_failed_come_when_the_caller_goes_on(
    flavour, client, tmp_path, monkeypatch, name, step
):
    ticks = stamps_of(1200)
    tool = stamped(flavour, client, tmp_path, ticks)
    if step:
        tool.apply(through=step)
    adapter = flavour.make(name, client, module_of(tool))
    reads = Reads(adapter, monkeypatch)
    for at in itertools.count(1):
        failing = Failing(at)
        reads.number, reads.before = 0, failing
        if name == "Timestamps":
            pages = adapter.due(TICKS, END, 400, name="a")
        else:
            pages = adapter.range(float(TICKS), float(END), 400, name="a")
        assert read_on(pages, marked=name == "Timestamps") == list(ticks), at
        if not failing.failed:
            break
    assert at > 4  # each read of a window was the one that failed


class Behind:
    """All that a flavour needs of a server: here of one behind a proxy."""

    def __init__(self, proxy: Proxy) -> None:
        self.port = proxy.port

    def client(self, **options: Any) -> redis.Redis:
        return redis.Redis(port=self.port, **options)


def through(proxy: Proxy, place: Place) -> Place:
    return Place(proxy.url, "server", place.raw, Behind(proxy))  # type: ignore[arg-type] # a port is all it needs


@ONLY_ASYNC
@pytest.mark.parametrize("step", ["", "switch"], ids=["pending", "switched"])
def test_the_members_of_a_call_that_was_cancelled_come_with_the_next(flavour, server, tmp_path, step):
    ticks = stamps_of(1200)
    tool = stamped(flavour, server, tmp_path, ticks)
    if step:
        tool.apply(through=step)
    read = script("adapter_window" if step else "adapter_members_get").sha
    with Proxy(server.behind.port) as proxy:
        times = flavour.make("Timestamps", through(proxy, server), module_of(tool))
        window = times.due(TICKS, END, 400, name="a")
        got = [stamp.member for stamp in next(window)]
        for _ in range(2):
            cancel(window, proxy.hold(lambda command: read in command))
            no_mark(window)
            got += [stamp.member for stamp in next(window)]
        got += [stamp.member for page in window for stamp in page]
    assert got == list(ticks)


def cancel(window: Any, hold: Hold) -> None:
    """Asks for a page, and is cancelled while the server is asked."""

    async def run() -> None:
        page = asyncio.ensure_future(anext(window._pages))
        await asyncio.to_thread(hold.wait)
        while not page.done():  # before Python 3.12 wait_for, which the client sends by, can swallow one
            page.cancel()
            await asyncio.sleep(0)
        assert page.cancelled()

    window._runner.run(run())
    hold.release()
