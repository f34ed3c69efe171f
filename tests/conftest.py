"""Servers, clients and the command line for every test.

The session's servers start when first asked for, one set a pytest process (so xdist workers share nothing), and are
empty and at their first settings before each test. A test that kills nodes or shuts doors takes its own `Server`.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis.utils

from tests.servers import ROOT, SERVER_NAMES, Cluster, Place, Run, Server, Start, binary, find_servers

# redis-py reads its own package's metadata for each client that is made, and here are thousands.
redis.utils.get_lib_version = functools.cache(redis.utils.get_lib_version)


class Servers:
    """The session's servers by name, started when first asked for."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._single: dict[str, Server] = {}
        self._cluster: Cluster | None = None

    def single(self, name: str) -> Server:
        if name not in self._single:
            self._single[name] = self._stack.enter_context(Server(binary(name)))
        self._single[name].freshen()
        return self._single[name]

    def cluster(self) -> Cluster:
        if self._cluster is None:
            self._cluster = self._stack.enter_context(Cluster(binary()))
        self._cluster.freshen()
        return self._cluster


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack)


@pytest.fixture
def server(servers: Servers) -> Iterator[Place]:
    """An empty single server."""
    yield from _place(servers.single("valkey9"), "server")


@pytest.fixture
def cluster(servers: Servers) -> Iterator[Place]:
    """An empty cluster of three primaries."""
    yield from _place(servers.cluster(), "cluster")


@pytest.fixture(params=["server", "cluster"])
def client(request: pytest.FixtureRequest) -> Place:
    """The same test over a single server and over a cluster."""
    place: Place = request.getfixturevalue(request.param)
    return place


@pytest.fixture(params=SERVER_NAMES)
def every_server(request: pytest.FixtureRequest, servers: Servers) -> Iterator[Place]:
    """The same test over every server this machine has; `kind` is the server's name."""
    found = find_servers()[request.param]
    if found.path is None:
        pytest.skip(f"{found.name}: {found.missing}")
    yield from _place(servers.single(found.name), found.name)


@pytest.fixture(params=["server", "no MEMORY"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A server; once one whose users may not ask how large a key is."""
    if request.param == "server":
        yield request.getfixturevalue("server")
        return
    with Server(binary(), acl="user default on nopass ~* &* +@all -memory") as server:
        yield from _place(server, "server")


def _place(behind: Server | Cluster, kind: str) -> Iterator[Place]:
    with behind.client() as raw:
        yield Place(behind.url, kind, raw, behind)


def _surroundings(url: str | None, extra: Mapping[str, str] | None) -> dict[str, str]:
    """The caller's environment without its own MIGRATOR_* settings; the package is found from any directory."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MIGRATOR_")}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), env.get("PYTHONPATH")]))
    if url is not None:
        env["MIGRATOR_URL"] = url
    return {**env, **(extra or {})}


@pytest.fixture
def run_migrator() -> Run:
    """`run_migrator("plan", url=…, env=…, cwd=…, timeout=60)`: the command as a process of its own, and its result."""

    def run(
        *args: str,
        url: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "migrator", *args]
        return subprocess.run(
            command, env=_surroundings(url, env), cwd=cwd, timeout=timeout, capture_output=True, text=True, check=False
        )

    return run


@pytest.fixture
def start_migrator() -> Iterator[Start]:
    """The same, under way: a Popen with pipes. What still runs when the test ends is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(
        *args: str, url: str | None = None, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "migrator", *args]
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            command, env=_surroundings(url, env), cwd=cwd, stdout=pipe, stderr=pipe, stdin=subprocess.DEVNULL, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
