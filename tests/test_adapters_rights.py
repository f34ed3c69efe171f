"""What an adapter's user may have to do: what README names, and no more, is enough in every phase."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from migrator.adapters import Done, Found, Missing, Removed, UncertainError, Written, announced
from migrator.errors import RefusedError
from migrator.names import Names
from tests.adapters.flavours import Flavour, flavour, init, module_of, through, tool_for
from tests.adapters.jobs import CROSSED, WORKER, jobs_tool
from tests.conftest import Servers
from tests.servers import ROOT, Place, find_servers
from tests.support import KEYS, MEMBERS, SAME_NAME, Tool, guid, put
from tests.test_adapters_timestamps import STAMPS, TICKS

__all__ = ["flavour"]
FAR = 4_102_444_800_000
LOGIN = {"username": "app", "password": "pw"}
CLIENT = ("+@connection", "+cluster", "+command")  # what redis-py needs itself; a cluster's asks for the last two


def named_in_readme() -> list[str]:
    """The rules of the paragraph about the application's user."""
    paragraph = (ROOT / "README.md").read_text().split("application's user has an ACL")[1]
    found = re.search(r"`(\+@scripting [^`]*)`", paragraph)
    assert found is not None
    return found[1].split()


@contextmanager
def user(place: Place, *rules: str) -> Iterator[None]:
    nodes = getattr(place.behind, "nodes", [place.behind])
    for node in nodes:
        node.command("ACL", "SETUSER", "app", "on", ">pw", *CLIENT, *rules)
    try:
        yield
    finally:
        for node in nodes:
            node.command("ACL", "DELUSER", "app")


def use_records(records: Any, number: int) -> None:
    one, two = f"a{number}", f"b{number}"
    assert isinstance(records.get(id=one), Found)
    assert isinstance(records.put({b"text": b"2"}, id=one), Written)
    assert isinstance(records.put({b"text": b"2"}, id=one, expires_at=FAR), Written)
    assert isinstance(records.put({b"text": b"3"}, id=one), Written)
    assert isinstance(records.put({b"text": b"4"}, id=one, expires_at=None), Written)
    assert isinstance(records.delete(id=two), Removed)
    assert isinstance(records.get(id=two), Missing)


def use_members(members: Any, number: int) -> None:
    assert isinstance(members.set(b"x", 5.0, name="a"), Written)
    assert isinstance(members.get(b"x", name="a"), Found)
    assert list(members.range(5, 5, name="a"))
    assert isinstance(members.set(b"x", 5.0, name="b"), Written)
    assert isinstance(members.remove(b"x", name="b"), Removed)
    assert isinstance(members.remove(b"m%d" % number, name="a"), Removed)


def use_timestamps(times: Any, number: int) -> None:
    assert isinstance(times.set(b"x", TICKS, name="a"), Written)
    assert times.due_count(TICKS, TICKS, name="a") == 1
    assert len(times.latest(1, name="a")) == 1
    assert list(times.due(TICKS, TICKS, name="a"))
    assert isinstance(times.remove(b"x", name="a"), Removed)


def use_jobs(jobs: Any, number: int) -> None:
    one, two = guid(2 * number + 1), guid(2 * number + 2)
    assert isinstance(jobs.create(one, "send-report"), Done)
    claimed = jobs.claim(WORKER)
    assert isinstance(jobs.complete(claimed.job, b"1"), Done)
    assert isinstance(jobs.create(two, "send-report"), Done)
    assert isinstance(jobs.fail(jobs.claim(WORKER).job, "no", retry_in=0.0), Done)
    assert isinstance(jobs.claim(WORKER), Done)
    assert jobs.recover(0.0)
    assert not jobs.set_aside()
    assert jobs.delete(two)


def records_in(place: Place) -> None:
    for number in range(12):
        put(place, b"{t}:text:a%d" % number, b"1", px=10**9)
        put(place, b"{t}:text:b%d" % number, b"1")


def members_in(place: Place) -> None:
    put(place, b"{t}:times:a", {b"m%d" % number: b"1" for number in range(12)}, px=10**9)


Case = tuple[str, str, tuple[str, ...], Callable[[Place], object], Callable[[Any, int], None]]
CASES: dict[str, Case] = {
    "records": ("Records", KEYS, ("+@string", "~{t}:*"), records_in, use_records),
    "same-name": ("Records", SAME_NAME, ("+@string", "~{t}:*"), records_in, use_records),
    "members": ("Members", MEMBERS, ("+@sortedset", "~{t}:*"), members_in, use_members),
    "timestamps": ("Timestamps", STAMPS, ("+@sortedset", "~{t}:*"), lambda _: None, use_timestamps),
    "jobs": ("Jobs", "", ("+@string", "+@sortedset", "~ae:*", "~{ae}:*"), lambda _: None, use_jobs),
}


def tool_of(case: Case, place: Place, tmp_path: Path) -> Tool:
    tool = tool_for(place, tmp_path, case[1]) if case[1] else jobs_tool(place, tmp_path)
    case[3](place)
    init(tool)
    return tool


def walk(flavour: Flavour, place: Place, tool: Tool, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """An adapter of that user, through every phase."""
    adapter = flavour.adapt(case[0], flavour.client(place, **LOGIN), module_of(tool))
    raw: Any = place.raw
    assert len(announced(raw.hgetall(Names("migrator").adapters), 0)) == 1
    for number, _ in enumerate(through(tool, monkeypatch)):
        case[4](adapter, number)


@CROSSED
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_with_the_rights_that_readme_names_an_adapter_goes_through_every_phase(
    flavour: Flavour, client: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    tool = tool_of(case, client, tmp_path)
    with user(client, *named_in_readme(), *case[2]):
        walk(flavour, client, tool, case, monkeypatch)


@pytest.mark.parametrize("flavour", [("sync", 2)], indirect=True, ids=["sync2"])
@pytest.mark.parametrize("right", [rule for rule in named_in_readme() if rule.startswith("+")])
def test_each_of_these_rights_is_needed_and_named_by_the_refusal(
    flavour: Flavour, server: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right: str
) -> None:
    case, rules = CASES["records"], [rule for rule in named_in_readme() if rule != right]
    tool = tool_of(case, server, tmp_path)
    with user(server, *rules, *case[2]), pytest.raises((RefusedError, UncertainError), match="may not do") as caught:
        walk(flavour, server, tool, case, monkeypatch)
    assert [rule for rule in named_in_readme() if rule.startswith("+") and rule not in caught.value.next] == []


def test_before_redis_7_it_is_another_right(
    flavour: Flavour, servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if find_servers()["redis6"].path is None:
        pytest.skip("no Redis 6")
    behind = servers.single("redis6")
    rules = ["+pttl" if rule == "+pexpiretime" else rule for rule in named_in_readme()]
    with behind.client() as raw:
        place = Place(behind.url, "server", raw, behind)
        tool = tool_of(CASES["records"], place, tmp_path)
        with user(place, *rules, *CASES["records"][2]):
            walk(flavour, place, tool, CASES["records"], monkeypatch)
