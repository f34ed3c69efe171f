"""Nothing is lost while applications write at full speed and the migrations go there, back and there again.

Eight writers and four readers, each a process, account for all they did: in full with the marker `prove`, at a
thirtieth in `make test`; without a migration first, which proves the harness.
"""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from tests.notes import NOTES, note_id
from tests.records import Nodes
from tests.support import Shell, guid, own_keys
from tests.traffic import TICKS, map_of, member_name, sort_of
from tests.traffic_scene import Scene, Size

FAULTS = ("missing", "extra", "different", "ttl_drift", "unreadable")
IDS = ("0001", "0002", "0003")


THIRTIETH = Size(1_680, 3_360, writers=4, readers=2, dwell=0.3)
IN_FULL = Size(50_000, 100_000, writers=8, readers=4, dwell=3.0)
SIZES = [
    pytest.param(THIRTIETH, id="thirtieth"),
    pytest.param(IN_FULL, id="full", marks=[pytest.mark.prove, pytest.mark.timeout(7200)]),
]


class Story:
    """The way of all migrations, command by command."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.backup = scene, str(scene.home / "backup")
        self.shell = Shell(scene.place, scene.directory)

    def told(self) -> None:
        self.apply("expand")
        self.apply("backfill")
        self.verified()
        self.apply("verify")
        self.verified()
        self.stopping_a_writer("switch")
        self.verified()
        for id in reversed(IDS):
            self.shell("rollback", id, "--yes")
        self.expect("expanded")
        self.verified()
        self.apply("switch", *IDS)
        self.stopping_a_writer("contract")
        for id in reversed(IDS):
            self.shell("rollback", id, "--to", "switched", "--backup", self.backup, "--yes")
        self.expect("switched")
        self.verified()
        self.apply("contract", *IDS)

    def apply(self, through: str, *ids: str) -> None:
        begun = time.monotonic()
        self.shell("apply", *ids, "--through", through, "--backup", self.backup, "--yes", "--ignore-load")
        print(f"apply --through {through}: {time.monotonic() - begun:.1f} s")
        self.scene.dwell()

    def verified(self) -> None:
        for id in IDS:
            found = self.shell("verify", id)
            assert [found[fault] for fault in FAULTS] == [0] * 5
            assert found["complete"]

    def expect(self, phase: str) -> None:
        assert [one["phase"] for one in self.shell("status")["migrations"]] == [phase] * len(IDS)
        self.scene.dwell()

    def stopping_a_writer(self, through: str) -> None:
        """A writer stops in the middle of something, and wakes in another phase."""
        victim = self.scene.dice.choice(self.scene.crew[: self.scene.size.writers])
        victim.send_signal(signal.SIGSTOP)
        try:
            self.apply(through)
        finally:
            victim.send_signal(signal.SIGCONT)
        self.scene.dwell()


@pytest.fixture
def scene(client, request, tmp_path) -> Iterator[Scene]:
    made = Scene(client, request.param, tmp_path)
    made.load()
    yield made
    made.close()


@pytest.mark.parametrize("scene", SIZES, indirect=True)
@pytest.mark.parametrize("migrating", [False, True], ids=["harness", "migrating"])
def test_nothing_is_lost_while_applications_write_at_full_speed(scene, migrating):
    story = Story(scene)
    story.shell("init")
    scene.start()
    if migrating:
        story.told()
    else:
        for _ in range(6):
            scene.dwell()
    accounts = scene.stop()
    drained = scene.drained()
    done = sum((Counter(account["done"]) for account in accounts), Counter())
    print("\n" + ", ".join(f"{name} {number:,}" for name, number in sorted(done.items())))
    for what in ("update", "claim", "create", "doomed", "canceled", "fleeting", "stamp", "stamp many", "unstamp",
                 "get own stamp", "get", "get stamp", "window", "put note", "get own note", "delete note",
                 "expired note", "read note"):  # fmt: skip
        assert done[what], f"nobody did {what}"
    check = Check(scene, accounts[: scene.size.writers], drained, migrated=migrating)
    check.jobs()
    check.gone()
    check.queue()
    check.stamps()
    check.notes()


class Check:
    """Every record against the accounts of all writers, read without an adapter."""

    def __init__(self, scene: Scene, accounts: list[dict[str, Any]], drained: Counter[str], *, migrated: bool) -> None:
        self.scene, self.accounts, self.migrated = scene, accounts, migrated
        self.counted = self._sum("counted")
        self.claimed = self._sum("claimed") + drained
        self.ended = {id: what for account in accounts for id, what in account["ended"].items()}
        self.created = [id for account in accounts for id in account["created"]]
        self.nodes = Nodes(scene.place.behind)

    def _sum(self, what: str) -> Counter[str]:
        return sum((Counter(account[what]) for account in self.accounts), Counter())

    def _read(self, ids: list[str]) -> Iterator[tuple[str, dict[str, Any] | None]]:
        """Status, payload and version of each job as it lies in Redis."""
        for start in range(0, len(ids), 500):
            part = ids[start : start + 500]
            keys = [self.scene.job_key(id) for id in part]
            word = "HGETALL" if self.migrated else "GET"
            for id, raw in zip(part, self.nodes.ask([(key, (word, key)) for key in keys]), strict=True):
                if not raw:
                    yield id, None
                elif self.migrated:
                    fields = dict(zip(raw[::2], raw[1::2], strict=True))
                    yield (
                        id,
                        {name: fields.get(name.encode(), b"0").decode() for name in ("Status", "Payload", "Version")},
                    )
                else:
                    told = json.loads(raw)
                    yield id, {"Status": str(told["status"]), "Payload": told["payload"],
                               "Version": str(told.get("version", 0))}  # fmt: skip

    def jobs(self) -> None:
        claims_wanted: dict[str, int] = {}
        for id, found in self._read([guid(number) for number in range(self.scene.size.jobs)]):
            sort = sort_of(int(id[-12:], 16))
            if sort == "doomed" and id in self.ended:
                assert found is None, id
                continue
            status = {"work": "400", "canceled": "600" if id in self.ended else "200"}.get(sort, "400")
            version = self.counted[id] if sort != "work" else 2
            version += sort == "canceled" and id in self.ended
            assert found == {"Status": status, "Payload": str(self.counted[id]), "Version": str(version)}, id
            claims_wanted |= {id: 1} if sort == "work" else {}
        for id, found in self._read(self.created):
            assert found is not None, id
            assert (found["Status"], found["Payload"]) == ("400", "0"), id
            claims_wanted[id] = 1
        assert dict(self.claimed) == claims_wanted

    def gone(self) -> None:
        """What had some ms to live has nothing left of it, in no shape."""
        time.sleep(0.6)
        ids = [id for account in self.accounts for id in account["fleeting"]]
        assert [found for _, found in self._read(ids) if found is not None] == []
        if self.migrated:
            assert own_keys(self.scene.place) == set()

    def queue(self) -> None:
        queue, busy = self.scene.ae + b":jobs:queue", self.scene.ae + b":jobs:inprogress"
        (waiting,), (running,) = (self.nodes.ask([(key, ("ZRANGE", key, 0, -1))]) for key in (queue, busy))
        later = {guid(n) for n in range(self.scene.size.jobs) if sort_of(n) == "canceled"} - self.ended.keys()
        assert {member.decode() for member in waiting} == later
        assert running == []

    def stamps(self) -> None:
        times: dict[int, int | None] = {}
        for account in self.accounts:
            times |= {int(member): ticks for member, ticks in account["times"].items()}
        assert any(ticks is None for ticks in times.values())
        asked = []
        for member in range(self.scene.size.stamps):
            key = self.scene.map_key(map_of(member))
            word = ("ZSCORE", key + b"-sorted") if self.migrated else ("HGET", key)
            asked.append((key, (*word, member_name(member))))
        for member, raw in enumerate(self.nodes.ask(asked)):
            assert (None if raw is None else int(float(raw))) == times.get(member, TICKS), member

    def notes(self) -> None:
        same, apart = ("HGET", "{t}:text:"), ("HGET", "{t}:hash:")
        if not self.migrated:
            same, apart = ("GET", "{t}:text:"), ("GET", "{t}:apart:")
        asked, wanted = [], []
        for writer, i in product(range(self.scene.size.writers), range(NOTES)):
            for family, (word, prefix) in enumerate((apart, same)):
                id = note_id(writer, i)
                key = (prefix + id).encode()
                asked.append((key, (word, key, *([b"text"] if self.migrated else []))))
                wanted.append(self.accounts[writer]["notes"][family].get(id, 0))
        for (key, _), raw, want in zip(asked, self.nodes.ask(asked), wanted, strict=True):
            assert (None if raw is None else int(raw)) == want, key
