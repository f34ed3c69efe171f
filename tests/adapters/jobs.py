"""Jobs for tests: the migration alone, what lies in Redis as an application without an adapter would see it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from migrator.adapters import Code, NotDone
from migrator.records.job import hash_from_json
from tests.adapters.flavours import Flavour, init, module_of, tool_for
from tests.servers import Place
from tests.support import Tool, expires, guid, job, put, shipped

WORKER, OTHER = guid(0xA), guid(0xB)
# Half of server and cluster by sync and async: a walk through all phases takes seconds.
CROSSED = pytest.mark.parametrize(
    ("flavour", "client"),
    [(("sync", 2), "server"), (("async", 3), "cluster")],
    indirect=True,
    ids=["server", "cluster"],
)
ALL_CROSSED = pytest.mark.parametrize(
    ("flavour", "client"),
    [(("sync", 2), "server"), (("async", 3), "cluster"), (("async", 2), "server"), (("sync", 3), "cluster")],
    indirect=True,
    ids=lambda param: param if isinstance(param, str) else f"{param[0]}{param[1]}",
)
FAR = 4_102_444_800_000
ID = "0001_jobs_to_hashes"


def jobs_tool(place: Place, tmp_path: Path) -> Tool:
    """Migration 0001 alone; on a cluster all its keys are in one slot."""
    tool = tool_for(place, tmp_path)
    shipped(tool.directory, tagged=place.kind == "cluster")
    (tool.directory / "0002_timestamps_to_sorted_sets.py").unlink()
    return tool


def make_jobs(flavour: Flavour, place: Place, tool: Tool) -> Any:
    init(tool)
    return flavour.make("Jobs", place, module_of(tool))


def code(answer: Any) -> Code:
    assert isinstance(answer, NotDone), answer
    return answer.code


@pytest.fixture
def tool(client: Place, tmp_path: Path) -> Tool:
    return jobs_tool(client, tmp_path)


@pytest.fixture
def jobs(flavour: Flavour, client: Place, tool: Tool) -> Any:
    """The store, on a migration that is pending."""
    return make_jobs(flavour, client, tool)


@pytest.fixture
def raw(client: Place) -> Raw:
    return Raw(client)


class Raw:
    """The bare keys."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.raw: Any = place.raw
        self.ae = b"{ae}" if place.kind == "cluster" else b"ae"
        tag = b"{ae}" if place.kind == "cluster" else b"{ae:jobs:queue}"
        self.queue_key, self.running_key = self.ae + b":jobs:queue", self.ae + b":jobs:inprogress"
        self.aside_key = b"migrator:aside:" + ID.encode() + b":" + tag
        if place.kind == "cluster":
            self.aside_key += b":" + self.queue_key

    def key(self, id: str) -> bytes:
        return self.ae + b":job:" + id.encode()

    def staged(self, id: str) -> bytes:
        key = self.key(id)
        if self.place.kind == "cluster":
            return b"migrator:staged:" + ID.encode() + b":{ae}:" + key
        return b"migrator:staged:" + ID.encode() + b":{" + key + b"}"

    def text(self, id: str) -> bytes | None:
        """The JSON; None if no string lies there."""
        is_string = self.raw.execute_command("TYPE", self.key(id)) == b"string"
        return self.raw.get(self.key(id)) if is_string else None

    def json(self, id: str) -> dict[str, Any]:
        """The JSON, read; it has to be there."""
        text = self.text(id)
        assert text is not None
        return dict(json.loads(text))

    def hash(self, id: str) -> dict[bytes, bytes] | None:
        """The hash, under whichever name it has."""
        for key in (self.staged(id), self.key(id)):
            if self.raw.execute_command("TYPE", key) == b"hash":
                return {bytes(name): bytes(value) for name, value in self.raw.hgetall(key).items()}
        return None

    def expiries(self, id: str) -> set[int]:
        return {expires(self.place, key) for key in (self.key(id), self.staged(id)) if self.raw.exists(key)}

    def queue(self) -> dict[bytes, float]:
        return self._scores(self.queue_key)

    def running(self) -> dict[bytes, float]:
        return self._scores(self.running_key)

    def _scores(self, key: bytes) -> dict[bytes, float]:
        flat = self.raw.execute_command("ZRANGE", key, 0, -1)
        return {bytes(member): float(self.raw.execute_command("ZSCORE", key, member)) for member in flat}

    def lay(self, id: str, score: float | None = 1.0, *, member: bytes | None = None, **changed: Any) -> None:
        """A job as an application of era C without an adapter puts it there, in the queue too."""
        put(self.place, self.key(id), job(id, status=100) if not changed else job(id, **{"status": 100, **changed}))
        if score is not None:
            self.raw.zadd(self.queue_key, {member or id.encode(): score})

    def settled(self, id: str, stage: str) -> None:
        """Both shapes are what the phase wants, and of one mind."""
        old, new = self.text(id), self.hash(id)
        if stage == "pending":
            assert new is None, stage
        elif stage in ("contracted", "swept"):
            assert old is None, stage
        else:
            assert old is not None, stage
            assert hash_from_json(id.encode(), old)[0] == new, stage
