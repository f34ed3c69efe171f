"""What an application without an adapter writes after the switch: found, in the way of contract, and settled only in
the direction the operator names. Nothing that is overwritten is lost."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from migrator.engine import batches, copy, copy_members, foreign, quarantine, throttle
from migrator.names import Names
from tests.records import saved
from tests.support import KEYS, MEMBERS, SAME_NAME, Shell, Tool, expires, picture, put, tool_for

FAULTS = ("missing", "extra", "different", "ttl_drift")
NEVER = 4_000_000_000_000
OLD, NEW = b"{t}:times:a", b"{t}:sorted:a"


def faults(result):
    return {fault: number for fault in FAULTS if (number := getattr(result, fault))}


@pytest.fixture(params=["key", "swap"])
def records(request, client, tmp_path):
    """Four records, switched; an old application then changes one, makes one, deletes one, and changes an expiry."""
    tool = tool_for(client, tmp_path, KEYS if request.param == "key" else SAME_NAME)
    for id in ("changed", "deleted", "mortal", "same"):
        put(client, text(id), b"1")
    tool.apply(through="switch")
    put(client, text("changed"), b"2")
    put(client, text("made"), b"3")
    client.raw.delete(text("deleted"))
    client.raw.execute_command("PEXPIREAT", text("mortal"), NEVER)
    assert faults(tool.verify()) == {"missing": 1, "extra": 1, "different": 1, "ttl_drift": 1}
    tool.apply(through="contract", exit=30)
    return Switched(tool, request.param)


@dataclass
class Switched:
    tool: Tool
    how: str

    def new(self, id):
        if self.how == "key":
            return b"{t}:hash:%s" % id.encode()
        return Names("migrator").beside("staged", "0001_first").name(text(id), lambda _: b"0")

    def field(self, id):
        return self.tool.place.raw.hgetall(self.new(id)).get(b"text")


def text(id):
    return b"{t}:text:%s" % id.encode()


def test_old_wins_what_it_changed_made_and_deleted_and_the_new_records_are_saved_first(client, records, tmp_path):
    assert faults(records.tool.verify(foreign="old")) == {}
    assert [records.field(id) for id in ("changed", "made", "deleted")] == [b"2", b"3", None]
    assert expires(client, records.new("mortal")) == pytest.approx(NEVER, abs=2)
    kept = {key: dict(value).get(b"text") for key, _, _, value in saved(tmp_path / "backup", "*foreign-old*")}
    assert kept == {records.new(id): b"1" for id in ("changed", "deleted", "mortal")}
    records.tool.apply(through="contract")


def test_new_wins_but_a_record_that_only_the_old_shape_has_stays(client, records, tmp_path):
    assert faults(records.tool.verify(foreign="new")) == {"missing": 1}
    assert [client.raw.get(text(id)) for id in ("changed", "made", "deleted")] == [b"1", b"3", b"1"]
    assert expires(client, text("mortal")) == -1
    kept = {key: value for key, _, _, value in saved(tmp_path / "backup", "*foreign-new*")}
    assert kept == {text("changed"): b"2", text("mortal"): b"1"}
    records.tool.apply(through="contract", exit=30)
    assert faults(records.tool.verify(foreign="old")) == {}
    records.tool.apply(through="contract")


def test_of_all_that_differs_only_so_much_is_kept_at_once(client, tmp_path, monkeypatch):
    """Settled while the comparison goes on; the differences of all records are never in memory together."""
    tool = tool_for(client, tmp_path, KEYS)
    for number in range(40):
        put(client, text(str(number)), b"1")
    tool.apply(through="switch")
    for number in range(0, 40, 2):
        put(client, text(str(number)), b"2")
    kept: list[int] = []
    settle = foreign._Settling.settle

    def counted(settling):
        kept.append(len(settling._found))
        settle(settling)

    monkeypatch.setattr(foreign, "_PAGE", 3)
    monkeypatch.setattr(batches, "BATCH_RECORDS", 5)
    monkeypatch.setattr(batches, "LEAST_RECORDS", 5)
    monkeypatch.setattr(foreign._Settling, "settle", counted)
    assert faults(tool.verify(foreign="old")) == {}
    assert sum(kept) == 20
    assert max(kept) <= 3 + 5
    assert {client.raw.hget(b"{t}:hash:%d" % number, "text") for number in range(0, 40, 2)} == {b"2"}


@pytest.fixture
def members(client, tmp_path):
    tool = tool_for(client, tmp_path, MEMBERS)
    put(client, OLD, {b"changed": b"1", b"deleted": b"1", b"same": b"1"})
    put(client, b"{t}:times:whole", {b"x": b"1"})
    put(client, b"{t}:times:mortal", {b"x": b"1"})
    tool.apply(through="switch")
    put(client, OLD, {b"changed": b"2", b"made": b"3"})
    client.raw.hdel(OLD, b"deleted")
    client.raw.delete(b"{t}:times:whole")
    client.raw.execute_command("PEXPIREAT", b"{t}:times:mortal", NEVER)
    assert faults(tool.verify()) == {"missing": 1, "extra": 2, "different": 1, "ttl_drift": 1}
    tool.apply(through="contract", exit=30)
    return tool


def test_old_wins_member_by_member(client, members, tmp_path):
    assert faults(members.verify(foreign="old")) == {}
    scores = {name: client.raw.zscore(NEW, name) for name in (b"same", b"changed", b"made", b"deleted")}
    assert scores == {b"same": 1.0, b"changed": 2.0, b"made": 3.0, b"deleted": None}
    assert not client.raw.exists(b"{t}:sorted:whole")
    assert expires(client, b"{t}:sorted:mortal") == pytest.approx(NEVER, abs=2)
    kept = {(key, member) for key, _, _, value in saved(tmp_path / "backup", "*foreign-old*") for member, _ in value}
    assert kept == {(NEW, b"changed"), (NEW, b"deleted"), (b"{t}:sorted:whole", b"x"), (b"{t}:sorted:mortal", b"x")}
    members.apply(through="contract")


def test_new_wins_member_by_member_but_one_that_only_the_old_shape_has_stays(client, members):
    assert faults(members.verify(foreign="new")) == {"missing": 1}
    assert client.raw.hgetall(OLD) == {b"changed": b"1", b"deleted": b"1", b"same": b"1", b"made": b"3"}
    assert client.raw.hgetall(b"{t}:times:whole") == {b"x": b"1"}
    assert expires(client, b"{t}:times:mortal") == -1


@pytest.mark.parametrize("kind", ["key", "swap"])
def test_what_the_old_application_writes_in_that_very_moment_is_saved_too(client, tmp_path, kind, monkeypatch):
    tool = tool_for(client, tmp_path, KEYS if kind == "key" else SAME_NAME)
    put(client, text("a"), b"1")
    tool.apply(through="switch")
    put(client, text("a"), b"2")
    write = copy.write_keys

    def meanwhile(*args):
        monkeypatch.setattr(foreign, "write_keys", write)
        put(client, text("a"), b"3")
        return write(*args)

    monkeypatch.setattr(foreign, "write_keys", meanwhile)
    assert faults(tool.verify(foreign="new")) == {}
    assert client.raw.get(text("a")) == b"1"
    assert [value for _, _, _, value in saved(tmp_path / "backup", "*foreign-new*")] == [b"2", b"3"]


def test_a_member_written_in_that_very_moment_is_saved_too(client, tmp_path, monkeypatch):
    tool = tool_for(client, tmp_path, MEMBERS)
    put(client, OLD, {b"a": b"1"})
    tool.apply(through="switch")
    put(client, OLD, {b"a": b"2"})
    write = copy_members.write_members

    def meanwhile(*args):
        monkeypatch.setattr(foreign, "write_members", write)
        put(client, OLD, {b"a": b"3"})
        return write(*args)

    monkeypatch.setattr(foreign, "write_members", meanwhile)
    assert faults(tool.verify(foreign="new")) == {}
    assert client.raw.hget(OLD, b"a") == b"1"
    assert [value for _, _, _, value in saved(tmp_path / "backup", "*foreign-new*")] == [[(b"a", b"2")], [(b"a", b"3")]]


def test_the_command_says_what_to_do_and_refuses_without_a_place_to_save_to(client, tmp_path):
    tool = tool_for(client, tmp_path, MEMBERS)
    put(client, OLD, {b"a": b"1"})
    shell = Shell(client, tool.directory)
    shell("apply", "--through", "switch")
    put(client, OLD, {b"a": b"2"})
    told = shell("verify", "0001", exit=30)
    assert told["next"] == "migrator verify 0001 --foreign SIDE --backup DIR"
    stopped = shell("apply", "--through", "contract", "--backup", str(tmp_path / "b"), "--yes", exit=30)
    assert stopped["stopped"]["next"].endswith(stopped["migrations"][0]["next"])
    assert shell("status")["migrations"][0]["next"] == "migrator verify 0001"
    before = picture(client)
    assert "where it is saved first" in shell.error("verify", "0001", "--foreign", "old", exit=60, code="refused")
    assert picture(client) == before
    done = shell("verify", "0001", "--foreign", "old", "--backup", str(tmp_path / "b"))
    assert (done["different"], done["complete"]) == (0, True)
    state = shell("status")["migrations"][0]
    assert (state["families"][0]["is_complete"], state["waiting_for"]) == (True, None)
    assert "--through contract" in state["next"]
    assert client.raw.zscore(NEW, b"a") == 2.0
    shell("rollback", "0001", "--yes")
    assert "in switched only" in shell.error(
        "verify", "0001", "--foreign", "old", "--backup", str(tmp_path / "b"), exit=60, code="refused"
    )


@pytest.fixture
def switched(client, tmp_path):
    """A record that an application without an adapter changed after the switch; `verify --foreign old` settles it."""
    tool = tool_for(client, tmp_path, KEYS)
    put(client, text("a"), b"1")
    tool.apply(through="switch")
    put(client, text("a"), b"2")
    return Shell(client, tool.directory), ("verify", "0001", "--foreign", "old", "--backup", str(tool.backup))


def test_stopped_by_load_it_tells_what_it_found_and_the_same_command_goes_on(switched, monkeypatch):
    shell, settle = switched
    monkeypatch.setattr(throttle, "reasons", lambda *_: iter(["it is tired"]))
    found = shell(*settle, "--max-pause", "0s", exit=50)
    assert (found["complete"], found["stopped"]["exit"], found["stopped"]["phase"]) == (False, 50, "switched")
    assert "it is tired" in found["stopped"]["reason"]
    assert "stopped: " in shell.text(*settle, "--max-pause", "0s", exit=50)
    monkeypatch.undo()
    assert shell(*settle)["complete"]


def test_with_too_many_records_that_cannot_be_mapped_it_tells_what_it_found(client, switched, monkeypatch):
    shell, settle = switched
    put(client, text("a"), b"1")
    for n in range(5):
        put(client, text(f"bad{n}"), b"bad")
    monkeypatch.setattr(quarantine, "OPEN_LIMIT", 3)
    monkeypatch.setattr(batches, "BATCH_RECORDS", 1)
    monkeypatch.setattr(batches, "LEAST_RECORDS", 1)
    found = shell(*settle, exit=32)
    assert (found["complete"], found["stopped"]["exit"]) == (False, 32)
    assert (found["unreadable"], len(shell("quarantine", "list", "0001")["records"])) == (3, 4)
    monkeypatch.undo()
    put(client, text("a"), b"2")
    assert shell(*settle, exit=32)["unreadable"] == 5
    assert client.raw.hget(b"{t}:hash:a", "text") == b"2"
