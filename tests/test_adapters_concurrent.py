"""Two writers and a reader at full speed, in processes of their own, while a migration goes there, back and there."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from migrator.adapters import Found, Missing, Records, Timestamps
from tests.adapters.flavours import module_of
from tests.adapters.writer import IDS, STOP
from tests.servers import ROOT, Server
from tests.support import KEYS, SAME_NAME, put, tool_for
from tests.test_adapters_timestamps import STAMPS

FORWARD = ("expand", "backfill", "verify", "switch", "contract")
IDS_OF = ("0001", "0002", "0003")
APART = KEYS.replace("{{t}}:text:", "{{t}}:apart:")
DWELL = 0.1  # seconds in each phase, at least
SIZE = 600  # records of each family that nobody touches


class Crew:
    """The processes, and what they account for."""

    def __init__(self, place, directory):
        node = place.behind if isinstance(place.behind, Server) else place.behind.nodes[0]
        where = ["127.0.0.1", str(node.port), str(int(place.kind == "cluster")), str(directory)]
        self.place, self.where, self.processes = place, where, []

    def start(self, role, number):
        command = [sys.executable, "-m", "tests.adapters.writer", *self.where, role, str(number)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        self.processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

    def check(self):
        for process in self.processes:
            assert process.poll() is None, process.stdout.read()

    def stop(self):
        put(self.place, STOP, b"1")
        accounts = [json.loads(process.communicate(timeout=20)[0]) for process in self.processes]
        assert [account["failed"] for account in accounts] == ["", "", ""]
        return accounts

    def close(self):
        for process in self.processes:
            process.kill()
            process.communicate()


@pytest.fixture
def tool(client, tmp_path):
    made = tool_for(client, tmp_path, APART, SAME_NAME, STAMPS)
    for i in range(SIZE):
        put(client, b"{t}:apart:o%d" % i, b"%d" % i)
        put(client, b"{t}:text:o%d" % i, b"%d" % i)
    put(client, b"{t}:times:m", {b"o%d" % i: b"%d" % (638_960_228_000_000_000 + 1280 * i) for i in range(SIZE)})
    with made.run():
        pass
    yield made
    for node in made.client.nodes():
        node.pool.disconnect()


def clean(tool, id):
    result = tool.verify(id)
    assert (result.complete, result.missing, result.extra, result.different, result.unreadable) == (
        True, 0, 0, 0, 0), (id, result)  # fmt: skip
    assert result.ttl_drift == 0, (id, result)


def test_nothing_is_lost_while_a_migration_goes_there_and_back_and_there_again(client, tool):
    crew = Crew(client, tool.directory)
    try:
        for role, number in (("writer", 0), ("writer", 1), ("reader", 2)):
            crew.start(role, number)
        for way in ("there", "again") if client.kind == "server" else ("there",):
            for through in FORWARD:
                for id in IDS_OF:
                    tool.apply(id, through=through)
                time.sleep(DWELL)
                crew.check()
                if through not in ("expand", "contract"):
                    for id in IDS_OF:
                        clean(tool, id)
            for to in ("switched", "expanded") if way == "there" else ():
                for id in reversed(IDS_OF):
                    assert tool.rollback(id, to) == to
                    clean(tool, id)
                time.sleep(DWELL)
                crew.check()
        accounts = crew.stop()
    finally:
        crew.close()
    _check_accounts(client, tool, accounts)


def _check_accounts(client, tool, accounts):
    records = [Records(client.raw, module_of(tool, id)) for id in ("0001", "0002")]
    stamps = Timestamps(client.raw, module_of(tool, "0003"))
    for number, account in enumerate(accounts[:2]):
        assert account["done"]["put"] > 200
        for family, owned in enumerate(account["counters"]):
            for i in range(IDS):
                id = f"w{number}-{i}"
                found = records[family].get(id=id)
                assert (int(found.value[b"text"]) if isinstance(found, Found) else None) == owned.get(id), (family, id)
        for i in range(IDS):
            id = f"w{number}-{i}"
            found = stamps.get(id.encode(), name="m")
            assert isinstance(found, (Found, Missing))
            assert (found.value if isinstance(found, Found) else None) == account["times"].get(id)
    assert accounts[2]["done"]["window"] > 3
    for i in range(0, SIZE, 37):
        for adapter in records:
            found = adapter.get(id=f"o{i}")
            assert isinstance(found, Found)
            assert found.value[b"text"] == b"%d" % i
    print(*(account["done"] for account in accounts), sep="\n")
