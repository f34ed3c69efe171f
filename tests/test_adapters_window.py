"""Windows over scores that are disturbed: a read fails, a call is cancelled, another process answers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from migrator.errors import RefusedError, UnreachableError, UsageError
from migrator.keys import slot_of
from migrator.scripts import script
from tests.adapters.flavours import flavour, init, module_of, tool_for
from tests.adapters.jobs import Raw, jobs_tool
from tests.proxy import Hold, Proxy
from tests.servers import Place, Server, binary, wait_for
from tests.support import Tool, put
from tests.test_adapters_members import OLD
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
    """The reads of an adapter: their scripts, what happens before each, given its number, and to each answer."""

    def __init__(self, adapter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        bridge = adapter._core.bridge
        self._ask, self.scripts = bridge.ask_beside, list[str]()
        self.before: Callable[[int], None] = lambda number: None
        self.after: Callable[[Any], None] = lambda answer: None
        monkeypatch.setattr(bridge, "ask_beside", self._seen)

    def _seen(self, key: bytes, first: Any, pairs: Any, name: str, args: Any, **how: Any) -> Any:
        self.scripts.append(name)
        self.before(len(self.scripts))
        answer = yield from self._ask(key, first, pairs, name, args, **how)
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
        reads.scripts.clear()
        reads.before = failing
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


def at_one_time(flavour: Any, place: Place, tmp_path: Any, number: int) -> tuple[Any, list[bytes]]:
    """An adapter where the sorted set is the truth, and members that are all due at once."""
    names = [b"m%05d" % n for n in range(number)]
    tool = stamped(flavour, place, tmp_path, dict.fromkeys(names, TICKS))
    tool.apply(through="switch")
    return flavour.make("Timestamps", place, module_of(tool)), names


def sizes_of(reads: Reads) -> list[int]:
    """Of the pages of a sorted set that come from now on: how many members the server gave."""
    sizes = list[int]()
    reads.after = lambda answer: sizes.append(len(answer.rest[1]) // 2) if answer.rest[0] == b"new" else None
    return sizes


def members_of(window: Any) -> list[bytes]:
    return [stamp.member for page in window for stamp in page]


def test_of_many_members_at_one_score_each_is_read_once(flavour, client, tmp_path, monkeypatch):
    times, names = at_one_time(flavour, client, tmp_path, 3000)
    sizes = sizes_of(Reads(times, monkeypatch))
    window = times.due(TICKS, END, 200, name="a")
    assert members_of(window) == names
    assert sizes == [200] * 15 + [0]
    sizes.clear()
    window = times.due(TICKS - 1000, TICKS, 200, name="a")
    assert members_of(window) == names
    assert sizes == [200] * 15 + [0]
    times.set_many({b"a-new-one": TICKS, b"z-new-one": TICKS}, name="a")
    sizes.clear()
    window = times.due(window.mark, END, 200, name="a")  # where a mark is, no page is larger either
    assert members_of(window) == [b"a-new-one", b"z-new-one"]
    assert sizes == [200] * 15 + [2]


@pytest.mark.parametrize("gone", [True, False], ids=["removed", "another-time"])
def test_a_window_goes_on_though_the_last_member_it_gave_is_there_no_more(flavour, client, tmp_path, monkeypatch, gone):
    times, names = at_one_time(flavour, client, tmp_path, 40)
    times.set_many({b"later": TICKS + 1000, b"at-the-end": TICKS + 2000, b"beyond": TICKS + 3000}, name="a")
    sizes = sizes_of(Reads(times, monkeypatch))
    window, got = times.due(TICKS, TICKS + 2000, 10, name="a"), list[bytes]()
    for page in window:
        got += [stamp.member for stamp in page]
        if len(got) == 20:
            times.remove(got[-1], name="a") if gone else times.set(got[-1], TICKS + 3000, name="a")
            sizes.clear()
    assert got == [*names, b"later", b"at-the-end"]
    assert max(sizes) <= 10
    assert window.mark.seen == {b"at-the-end"}


def test_a_handler_that_removes_what_it_was_given_is_given_the_rest(flavour, client, tmp_path):
    times, names = at_one_time(flavour, client, tmp_path, 100)
    got = list[bytes]()
    for page in times.due(TICKS, END, 7, name="a"):
        got += [stamp.member for stamp in page]
        times.remove_many([stamp.member for stamp in page], name="a")
    assert got == names


READINGS = ("due", "due_count", "latest", "range")
Changing = tuple[Place, Callable[[], object]]


def reader_of(what: str) -> str:
    """The adapter that has this reading."""
    return "Members" if what == "range" else "Timestamps"


def reading(adapter: Any, what: str) -> Any:
    if what == "due":
        return [stamp.member for page in adapter.due(TICKS, END, 900, name="a") for stamp in page]
    if what == "range":
        return [name for page in adapter.range(float(TICKS), float(END), 900, name="a") for name, _ in page]
    if what == "latest":
        return [stamp.member for stamp in adapter.latest(700, name="a")]
    return adapter.due_count(TICKS, END, name="a")


def whole(ticks: dict[bytes, int], what: str) -> Any:
    """What a reading of all of them gives."""
    names = list(ticks)
    return len(names) if what == "due_count" else names[:-701:-1] if what == "latest" else names


@pytest.fixture
def restarted() -> Iterator[Changing]:
    """A server that ends and comes back with its data."""
    with Server(binary(), appendonly=True) as server, server.client() as raw:
        yield Place(server.url, "server", raw, server), server.restart


@pytest.fixture
def replaced() -> Iterator[Changing]:
    """A server whose replica takes over, at the same address."""
    with Server(binary()) as primary, Server(binary()) as replica, Proxy(primary.port) as proxy:
        primary.command("CONFIG", "SET", "repl-diskless-sync-delay", 0)
        replica.command("REPLICAOF", "127.0.0.1", primary.port)
        wait_for(lambda: replica.command("ROLE")[3] == b"connected", "the replica to be linked")

        def change() -> None:
            size = primary.command("HLEN", OLD)
            wait_for(lambda: replica.command("HLEN", OLD) == size, "the replica to have all")
            replica.command("REPLICAOF", "NO", "ONE")
            proxy.target = replica.port
            proxy.cut()

        with primary.client() as raw:
            yield through(proxy, Place(primary.url, "server", raw, primary)), change


@pytest.fixture
def moved(cluster: Place) -> Changing:
    """A slot that goes to another node, with the marker and the phase it had."""
    behind: Any = cluster.behind

    def change() -> None:
        slot = slot_of(OLD)
        source = behind.owner(slot)
        behind.move_slot(slot, source, next(node for node in behind.primaries() if node is not source))

    return cluster, change


@pytest.mark.parametrize("how", ["restarted", "replaced", "moved"])
@pytest.mark.parametrize("what", READINGS)
def test_a_scan_begins_again_where_another_process_answers(flavour, tmp_path, monkeypatch, request, what, how):
    """The same cursor in another process: of 4,000 members it would pass over some hundreds without a word."""
    ticks = stamps_of(4000)
    place, change = request.getfixturevalue(how)
    tool = stamped(flavour, place, tmp_path, ticks)
    adapter = flavour.make(reader_of(what), place, module_of(tool))
    reads = Reads(adapter, monkeypatch)
    reads.before = lambda number: change() if number == 4 else None
    assert reading(adapter, what) == whole(ticks, what)


def jobs_aside(place: Place, tmp_path: Any, number: int) -> tuple[Tool, set[bytes]]:
    """A move of jobs, and so many that were set aside."""
    tool = jobs_tool(place, tmp_path)
    init(tool)
    aside = {b"junk%05d" % n: b"junk %d 1000" % n for n in range(number)}
    put(place, Raw(place).aside_key, aside)
    return tool, set(aside)


def test_what_was_set_aside_is_told_whole_where_another_process_answers(flavour, restarted, tmp_path, monkeypatch):
    place, change = restarted
    tool, aside = jobs_aside(place, tmp_path, 4000)
    jobs = flavour.make("Jobs", place, module_of(tool))
    reads = Reads(jobs, monkeypatch)
    reads.before = lambda number: change() if number == 4 else None
    assert {one.member for one in jobs.set_aside()} == aside
    assert len(reads.scripts) > 10  # begun again


@pytest.fixture
def no_info(every_server: Place) -> Iterator[dict[str, str]]:
    """The login of a user who may do all but INFO."""
    every_server.raw.execute_command("ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", "-info")
    yield {"username": "app", "password": "pw"}
    every_server.raw.execute_command("ACL", "DELUSER", "app")


def test_where_info_is_denied_a_collection_is_read_in_one_step(flavour, every_server, no_info, tmp_path, monkeypatch):
    ticks = stamps_of(2500)
    tool = stamped(flavour, every_server, tmp_path, ticks)
    for what in READINGS:
        for login in (dict[str, str](), no_info):
            adapter = flavour.adapt(reader_of(what), flavour.client(every_server, **login), module_of(tool))
            with monkeypatch.context() as patch:
                reads = Reads(adapter, patch)
                assert reading(adapter, what) == whole(ticks, what)
            assert (reads.scripts.count("adapter_window") == 1) == bool(login), what
        monkeypatch.setattr("migrator.adapters.window._AT_ONCE", 2499)
        with pytest.raises(RefusedError, match="nothing was written") as caught:
            reading(adapter, what)
        assert caught.value.next == "grant +info in the ACL"
        monkeypatch.setattr("migrator.adapters.window._AT_ONCE", 2500)


def test_where_info_is_denied_what_was_set_aside_is_told_in_one_step(
    flavour, every_server, no_info, tmp_path, monkeypatch
):
    tool, aside = jobs_aside(every_server, tmp_path, 2500)
    jobs = flavour.adapt("Jobs", flavour.client(every_server, **no_info), module_of(tool))
    reads = Reads(jobs, monkeypatch)
    assert {one.member for one in jobs.set_aside()} == aside
    assert reads.scripts == ["adapter_jobs_aside"]
    monkeypatch.setattr("migrator.adapters.window._AT_ONCE", 2499)
    with pytest.raises(RefusedError, match="nothing was written") as caught:
        jobs.set_aside()
    assert caught.value.next == "grant +info in the ACL"


def test_a_scan_that_finds_another_process_each_time_is_given_up(flavour, server, tmp_path, monkeypatch):
    ticks = stamps_of(1200)
    tool = stamped(flavour, server, tmp_path, ticks)

    def rename(answer: Any) -> None:
        answer.rest[3:] = [b"%d" % len(reads.scripts)]

    for what in READINGS:
        adapter = flavour.make(reader_of(what), server, module_of(tool))
        with monkeypatch.context() as patch:
            reads = Reads(adapter, patch)
            reads.after = rename
            with pytest.raises(UnreachableError, match="changed in each of 5") as caught:
                reading(adapter, what)
        assert caught.value.next
        assert len(reads.scripts) == 10, what  # the first page and one more, each time
    times = flavour.make("Timestamps", server, module_of(tool))
    window = times.due(TICKS, END, name="a")
    with monkeypatch.context() as patch:
        reads = Reads(times, patch)
        reads.after = rename
        with pytest.raises(UnreachableError):
            next(window)
    no_mark(window)
    assert [stamp.member for page in window for stamp in page] == list(ticks)


def test_a_member_that_the_scan_gives_twice_is_there_once(flavour, server, tmp_path, monkeypatch):
    ticks = stamps_of(1200)
    tool = stamped(flavour, server, tmp_path, ticks)
    first = list[bytes]()

    def again(answer: Any) -> None:
        if len(answer.rest) == 4:
            first.extend(answer.rest[2][: 100 - len(first)])
            answer.rest[2] += first

    for what in READINGS:
        first.clear()
        adapter = flavour.make(reader_of(what), server, module_of(tool))
        Reads(adapter, monkeypatch).after = again
        assert reading(adapter, what) == whole(ticks, what)
