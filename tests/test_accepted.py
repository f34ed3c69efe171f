"""What the operator accepted as it is comes back from contract, and nothing newer is lost for it."""

from __future__ import annotations

import pytest

from migrator.adapters import Found, Members, Records
from migrator.engine import commands, decide, rebuild, sweep
from migrator.engine import put as engine_put
from migrator.models import show
from migrator.snapshot import backup
from tests.support import (
    KEYS,
    MEMBERS,
    SAME_NAME,
    Crash,
    Shell,
    Tool,
    all_keys,
    crashing,
    failover_after,
    own_keys,
    picture,
    put,
    tool_for,
)

TEXT, TIMES, SORTED = b"{t}:text:", b"{t}:times:a", b"{t}:sorted:a"


def accept_all(tool: Tool) -> None:
    decide.quarantine_accept(tool.session(), "0001", everything=True)


def contracted(tool: Tool) -> Tool:
    """With what cannot be mapped accepted, and set aside."""
    tool.apply(exit=32)
    accept_all(tool)
    tool.apply("0001", through="contract")
    return tool


@pytest.fixture(params=[KEYS, SAME_NAME], ids=["keys", "same-name"])
def tool(request, server, tmp_path):
    put(server, TEXT + b"x", b"bad old")
    put(server, TEXT + b"y", b"fine")
    return contracted(tool_for(server, tmp_path, request.param))


@pytest.fixture
def maps(server, tmp_path):
    put(server, TIMES, {b"x": b"garbage", b"y": b"1", b"z": b"2"})
    return contracted(tool_for(server, tmp_path, MEMBERS))


def adapter(tool: Tool) -> Records:
    return Records(tool.place.raw, tool.session().modules.find("0001"))


def saved(tool: Tool) -> list[tuple[bytes, list[bytes]]]:
    """What contract's backup holds, from the oldest to the newest."""
    [directory] = tool.backup.glob("*-contract-*")
    return [(line.key, line.items) for line in backup.lines(directory)]


def test_a_record_that_an_adapter_wrote_since_comes_before_the_one_that_was_accepted(tool):
    adapter(tool).put({b"id": b"x", b"text": b"FRESH"}, id="x")
    assert tool.rollback() == "switched"
    assert tool.verify().complete
    assert (TEXT + b"x", [b"bad old"]) in saved(tool)
    assert tool.rollback(to="expanded") == "expanded"
    assert adapter(tool).get(id="x") == Found({b"id": b"x", b"text": b"FRESH"}, None, tool.states().pop()[1])
    assert tool.rollback(to="pending") == "pending"
    assert tool.place.raw.mget(TEXT + b"x", TEXT + b"y") == [b"FRESH", b"fine"]
    assert own_keys(tool.place) == set()


def test_and_so_does_a_member(maps):
    Members(maps.place.raw, maps.session().modules.find("0001")).set(b"x", 77.0, name="a")
    assert maps.rollback() == "switched"
    assert maps.verify().complete
    assert any(b"garbage" in items for _, items in saved(maps))
    assert maps.rollback(to="expanded") == "expanded"
    maps.apply("0001")
    assert maps.place.raw.hgetall(TIMES) == {b"x": b"77", b"y": b"1", b"z": b"2"}
    assert maps.place.raw.zscore(SORTED, "x") == 77
    assert own_keys(maps.place) == set()


def test_a_member_that_cannot_be_mapped_is_not_right_beside_a_new_one(maps):
    """An application without an adapter wrote the very value that was accepted."""
    Members(maps.place.raw, maps.session().modules.find("0001")).set(b"x", 77.0, name="a")
    maps.place.raw.hset(TIMES, "x", "garbage")
    assert maps.rollback() == "switched"
    assert maps.place.raw.hgetall(TIMES) == {b"x": b"77", b"y": b"1", b"z": b"2"}


def test_what_was_accepted_is_not_lost_to_a_failover_that_takes_its_name_back(tool, monkeypatch):
    raw, [retired] = tool.place.raw, own_keys(tool.place)
    done = failover_after(monkeypatch, rebuild, "_accepted_back", lambda: raw.rename(TEXT + b"x", retired))
    assert tool.rollback() == "switched"
    assert len(done) > 1
    assert raw.get(TEXT + b"x") == b"bad old"


def test_accepted_members_are_not_lost_to_one_either(maps, monkeypatch):
    raw, [retired] = maps.place.raw, own_keys(maps.place)
    done = failover_after(monkeypatch, rebuild, "_accepted_back", lambda: raw.rename(TIMES, retired))
    assert maps.rollback() == "switched"
    assert len(done) > 1
    assert raw.hgetall(TIMES) == {b"x": b"garbage", b"y": b"1", b"z": b"2"}


def test_a_collection_is_restored_whole_though_what_was_accepted_of_it_was_mended_since(maps):
    assert maps.rollback(to="expanded") == "expanded"
    Members(maps.place.raw, maps.session().modules.find("0001")).set(b"x", 77.0, name="a")
    maps.apply("0001", through="switch")
    assert decide.quarantine_list(maps.session(), "0001").records == ()
    assert maps.restore() == "pending"
    assert maps.place.raw.hgetall(TIMES) == {b"x": b"garbage", b"y": b"1", b"z": b"2"}
    assert own_keys(maps.place) == set()


def without_ledger(tool: Tool) -> Tool:
    """The markers alone tell what there was; what had been accepted is not known any more."""
    tool.place.raw.delete(*[key for key in all_keys(tool.place) if key.startswith(b"migrator:{migrator}:")])
    commands.init(tool.session(), "0001", "markers")
    return tool


def test_a_collection_is_restored_whole_though_nothing_tells_any_more_what_was_accepted(maps):
    assert without_ledger(maps).restore() == "pending"
    assert maps.place.raw.hgetall(TIMES) == {b"x": b"garbage", b"y": b"1", b"z": b"2"}


def test_a_backup_from_before_that_mark_is_read_by_the_list_of_what_is_accepted(maps, monkeypatch):
    lines = backup.newest_lines
    monkeypatch.setattr(backup, "newest_lines", lambda path: (line._replace(kept=None) for line in lines(path)))
    assert maps.rollback() == "switched"
    assert maps.restore() == "pending"
    assert maps.place.raw.hgetall(TIMES) == {b"x": b"garbage", b"y": b"1", b"z": b"2"}


LATE = {b"id": b"late"}  # the inverse asks for its text


@pytest.fixture(params=[KEYS, SAME_NAME], ids=["keys", "same-name"])
def late(request, server, tmp_path):
    """On the way back, with a new record that no inverse carries back and that was accepted."""
    tool = tool_for(server, tmp_path, request.param)
    put(server, TEXT + b"y", b"fine")
    tool.apply(through="contract")
    put(server, TEXT + b"late" if request.param == SAME_NAME else b"{t}:hash:late", LATE)
    tool.rollback(exit=32)
    accept_all(tool)
    return tool


@pytest.mark.parametrize("to", ["expanded", "pending"])
def test_a_new_record_that_was_accepted_without_an_old_one_is_no_extra_in_any_phase(late, to):
    assert late.rollback(to=to) == to
    late.apply("0001")
    assert late.verify(repair=True).complete
    late.apply("0001", through="contract")
    assert LATE in (late.place.raw.hgetall(key) for key in picture(late.place))


def test_beside_an_old_one_it_follows_that(late):
    late.rollback(to="expanded")
    put(late.place, TEXT + b"late", b"old")
    late.apply("0001", through="contract")
    assert {b"id": b"late", b"text": b"old"} in (late.place.raw.hgetall(key) for key in picture(late.place))


def restored(tool: Tool) -> str:
    return " / ".join(commands.restore(tool.session(), "0001").notes)


def test_a_restore_leaves_somebodys_own_key_of_another_type_where_a_record_was_set_aside(tool):
    [retired] = own_keys(tool.place)
    tool.place.raw.delete(TEXT + b"x")
    put(tool.place, TEXT + b"x", [b"somebody's own"])
    said = restored(tool)
    assert tool.place.raw.lrange(TEXT + b"x", 0, -1) == [b"somebody's own"]
    assert (tool.place.raw.get(retired), tool.place.raw.get(TEXT + b"y")) == (b"bad old", b"fine")
    assert (
        f"1 record set aside by contract cannot have the old name again, which is taken: {show(retired)} stays" in said
    )
    assert "1 saved record not put back, as a key of another type has the name: {t}:text:x stays as it is" in said


@pytest.mark.parametrize("mark", [True, False, None])
def test_and_where_a_collection_was(maps, monkeypatch, mark):
    lines = backup.newest_lines
    monkeypatch.setattr(backup, "newest_lines", lambda path: (line._replace(kept=mark) for line in lines(path)))
    put(maps.place, TIMES, [b"somebody's own"])
    assert "1 saved record not put back" in restored(maps)
    assert maps.place.raw.lrange(TIMES, 0, -1) == [b"somebody's own"]


def test_a_restore_that_puts_all_back_says_nothing_of_that(tool):
    assert restored(tool) == ""
    assert tool.place.raw.mget(TEXT + b"x", TEXT + b"y") == [b"bad old", b"fine"]


def test_nothing_is_put_over_a_key_that_came_while_a_collection_was_put_together(server, tmp_path, monkeypatch):
    put(server, TIMES, {b"y": b"1"})
    tool = tool_for(server, tmp_path, MEMBERS)
    tool.apply(through="contract")
    whole = engine_put.put_members

    def overtaken(*rest):
        put(server, TIMES, [b"somebody's own"])
        return whole(*rest)

    monkeypatch.setattr(engine_put, "put_members", overtaken)
    assert "{t}:times:a stays as it is" in restored(tool)
    assert tool.place.raw.lrange(TIMES, 0, -1) == [b"somebody's own"]
    assert own_keys(server) == set()


def test_a_key_of_another_type_under_the_name_of_accepted_members_is_listed_on_the_way_back(maps):
    put(maps.place, TIMES, [b"somebody's own"])
    shell = Shell(maps.place, maps.directory)
    words = ("rollback", "0001", "--backup", str(maps.backup), "--yes")
    shell(*words, exit=30)  # the members that were moved have no place either
    listed = {(one["key"], one["member"]): one["reason"] for one in shell("quarantine", "list", "0001")["records"]}
    assert listed["{t}:times:a", None] == "foreign-type: a list under the source template"
    maps.place.raw.delete(TIMES)
    shell(*words)
    assert maps.place.raw.hgetall(TIMES) == {b"x": b"garbage", b"y": b"1", b"z": b"2"}
    assert not any(one["member"] is None for one in shell("quarantine", "list", "0001")["records"])


def test_what_nothing_tells_of_any_more_comes_back_all_the_same_and_is_listed(tool):
    without_ledger(tool).rollback(exit=32)
    assert [one.key for one in decide.quarantine_list(tool.session(), "0001").records] == ["{t}:text:x"]
    accept_all(tool)
    assert tool.rollback(to="pending") == "pending"
    assert tool.place.raw.mget(TEXT + b"x", TEXT + b"y") == [b"bad old", b"fine"]
    assert own_keys(tool.place) == set()


def test_and_so_does_a_member_of_which_nothing_tells(maps):
    without_ledger(maps).rollback(exit=32)
    assert [one.member for one in decide.quarantine_list(maps.session(), "0001").records] == ["x"]
    accept_all(maps)
    assert maps.rollback(to="pending") == "pending"
    assert maps.place.raw.hgetall(TIMES) == {b"x": b"garbage", b"y": b"1", b"z": b"2"}
    assert own_keys(maps.place) == set()


def reverting(tool: Tool) -> None:
    with tool.run() as run:
        run.change("reverting", rolled_back=True, swept=False)


def test_what_was_mended_and_then_deleted_after_a_second_contract_does_not_come_back(tool):
    """Its acceptance, which was of other bytes, is still in the list."""
    reverting(tool)
    records = adapter(tool)
    records.put({b"id": b"x", b"text": b"FRESH"}, id="x")
    assert tool.rollback() == "switched"
    tool.apply("0001", through="contract")
    records.delete(id="x")
    assert tool.rollback() == "switched"
    assert tool.place.raw.exists(TEXT + b"x") == 0
    assert tool.verify().complete


def test_nor_does_such_a_member(maps):
    reverting(maps)
    members = Members(maps.place.raw, maps.session().modules.find("0001"))
    members.set(b"x", 77.0, name="a")
    assert maps.rollback() == "switched"
    maps.apply("0001", through="contract")
    members.remove(b"x", name="a")
    assert maps.rollback() == "switched"
    assert maps.place.raw.hgetall(TIMES) == {b"y": b"1", b"z": b"2"}
    assert maps.verify().complete


def test_of_what_was_set_aside_that_alone_comes_back_that_cannot_be_mapped(server, tmp_path, monkeypatch):
    """Of a contract that was cut off; what was deleted since stays deleted."""
    tool = tool_for(server, tmp_path, KEYS)
    names = [b"%d" % n for n in range(12)]
    bad, gone, left = names[::3], names[1::3], names[2::3]
    for name in names:
        put(server, TEXT + name, b"bad" if name in bad else b"fine")
    tool.apply(exit=32)
    accept_all(tool)
    with monkeypatch.context() as broken:
        broken.setattr(sweep, "save_retired", crashing)
        with pytest.raises(Crash):
            tool.apply("0001", through="contract")
    server.raw.delete(*[b"{t}:hash:" + name for name in gone])
    assert tool.rollback(to="pending") == "pending"
    assert set(picture(server)) == {TEXT + name for name in (*bad, *left)}
    assert own_keys(server) == set()
