"""Targets that were there before the migration: adopted into a backup, mended, and put back as they were."""

from __future__ import annotations

import pytest

from migrator.client import Client, Page
from migrator.engine import back, commands
from migrator.errors import UsageError
from tests.support import KEYS, MEMBERS, SAME_NAME, Crash, Shell, all_keys, crashing, picture, put, tool_for

TEXT = b"{t}:text:"


@pytest.fixture
def there(client, tmp_path):
    put(client, b"{t}:times:a", {b"a": b"1", b"b": b"2"})
    put(client, b"{t}:sorted:a", {b"a": 9.0, b"ghost": 3.0}, px=600_000)
    tool = tool_for(client, tmp_path, MEMBERS)
    Shell(client, tool.directory)("init", "0001", "--at", "pending", "--yes")
    return tool


def test_targets_that_are_there_are_adopted_only_with_a_backup(client, there):
    assert [one.code for one in there.plan(backup=False).refused] == ["target-exists"]
    there.apply(exit=60, backup=False)
    there.apply(exit=30, yes=False)  # the ghost is removed only with --yes
    found = there.verify()
    assert (found.extra, found.next) == (1, "migrator verify 0001 --repair --yes")
    assert Shell(client, there.directory)("verify", "0001", "--repair", exit=30)["extra"] == 1
    assert client.raw.execute_command("ZSCORE", b"{t}:sorted:a", "ghost") is not None
    there.apply()
    there.apply(through="contract")
    assert client.raw.execute_command("ZCARD", b"{t}:sorted:a") == 2


def test_a_repair_removes_what_an_adopted_target_has_too_many_on_the_operators_word(client, there):
    there.apply(exit=30, yes=False)
    shell = Shell(client, there.directory)
    assert shell("verify", "0001", "--repair", "--yes")["extra"] == 0
    assert client.raw.execute_command("ZSCORE", b"{t}:sorted:a", "ghost") is None


def test_targets_are_all_seen_where_another_process_answers_meanwhile(client, there, monkeypatch):
    """The cursor of a scan means nothing to another process: what it leaves out would be overwritten."""
    whole, asked = Client.page, list[bytes]()

    def page(self, node, cursor, glob, count, kind=None):
        found = whole(self, node, cursor, glob, count, kind)
        if not found.keys or b"sorted" not in glob:
            return found
        asked.append(glob)
        return Page("of another", 0, []) if len(asked) == 1 else found

    before = picture(client)
    monkeypatch.setattr(Client, "page", page)
    there.apply(through="expand")
    monkeypatch.undo()
    there.apply()
    assert there.rollback(to="pending") == "pending"
    assert picture(client) == before


@pytest.mark.parametrize("backup", [True, False])
def test_a_lost_ledger_does_not_make_an_adopted_target_the_tools_own(client, there, backup):
    before = picture(client)
    there.apply(through="expand")
    client.raw.delete(there.session().names.ledger)
    (note,) = commands.init(there.session(backup=backup), None, "markers").notes
    assert "--to pending --backup DIR" in note
    there.apply("0001", exit=30, yes=False)  # the ghost is removed only with --yes
    there.apply("0001")
    assert there.rollback(to="pending") == "pending"
    assert picture(client) == before


def test_a_backup_that_expand_did_not_use_is_told_from_the_one_it_used(client, there, tmp_path):
    before = picture(client)
    there.apply(through="switch")
    first, there.backup = there.backup, tmp_path / "another"
    there.apply(through="contract")
    with pytest.raises(
        UsageError, match=r"are saved in a directory migrator-0001_first-adopted-0, and .*another"
    ) as told:
        there.restore()
    assert "given to expand" in told.value.next
    there.backup = first
    assert there.restore() == "pending"
    assert picture(client) == before


def test_what_a_restore_discarded_is_not_said_to_be_as_it_is(client, there, tmp_path):
    there.apply(through="switch")
    there.backup = tmp_path / "another"
    there.apply(through="contract")
    with pytest.raises(UsageError):
        there.restore()
    assert "discarded by the restore" in " ".join(commands.rollback(there.session(backup=False), "0001", None).notes)


@pytest.mark.parametrize("through", ["verify", "contract"])
def test_an_adopted_target_is_as_it_was_after_a_rollback_to_pending(client, there, through):
    before = picture(client)
    there.apply(through=through)
    assert there.rollback(to="pending") == "pending"
    assert picture(client) == before


def test_an_adopted_target_of_a_key_move_is_as_it_was_too(client, tmp_path):
    source = KEYS.replace('type="hash"', 'type="list"')
    source = source.replace('{b"id": key["id"], b"text": text.strip()}', "[text]")
    source = source.replace('fields[b"text"]', "fields[0]")
    tool = tool_for(client, tmp_path, source)
    put(client, TEXT + b"a", b"good")
    put(client, b"{t}:hash:a", [b"older"], px=600_000)
    put(client, b"{t}:hash:z", [b"ghost"])
    before = picture(client)
    Shell(client, tool.directory)("init", "0001", "--at", "pending", "--yes")
    tool.apply()
    assert client.raw.execute_command("LRANGE", b"{t}:hash:a", 0, -1) == [b"good"]
    assert tool.rollback() == "pending"
    assert picture(client) == before


def test_without_the_backup_an_adopted_target_is_left(client, there):
    there.apply()
    assert there.rollback(backup=False) == "pending"
    assert b"{t}:sorted:a" in picture(client)


def test_a_clean_up_that_died_at_its_end_leaves_an_adopted_target_too(client, there, monkeypatch):
    there.apply()
    with monkeypatch.context() as broken:
        broken.setattr(back, "release_claim", crashing)
        with pytest.raises(Crash):
            there.rollback(backup=False)
    assert there.rollback(backup=False) == "pending"
    assert b"{t}:sorted:a" in picture(client)
    assert not [key for key in all_keys(client) if b":adopted:" in key]


def test_what_was_adopted_in_an_earlier_life_alone_is_not_kept(client, there, monkeypatch):
    there.apply()
    with monkeypatch.context() as broken:
        broken.setattr(back, "forget_adopted", crashing)
        with pytest.raises(Crash):
            there.rollback()
    client.raw.delete(b"{t}:sorted:a")
    put(client, b"{t}:times:b", {b"a": b"1"})
    put(client, b"{t}:sorted:b", {b"a": 1.0})
    there.apply("0001")
    assert there.rollback() == "pending"
    assert set(picture(client)) == {b"{t}:times:a", b"{t}:times:b", b"{t}:sorted:b"}


def test_records_of_the_new_shape_under_the_final_name_count_as_unchanged(client, tmp_path):
    tool = tool_for(client, tmp_path, SAME_NAME)
    put(client, TEXT + b"a", b"good")
    put(client, TEXT + b"native", {b"id": b"native", b"text": b"was a hash before"})
    before = picture(client)
    Shell(client, tool.directory)("init", "0001", "--at", "pending", "--yes")
    tally = tool.apply(through="contract").migrations[0].tally
    assert (tally.scanned, tally.moved, tally.unchanged) == (2, 1, 1)
    assert {one.type for one in picture(client).values()} == {"hash"}
    tool.restore()
    assert picture(client) == before


TWO = """
from migrator import KeyMove, Keys, Migration

def move(name):
    return KeyMove(
        source=Keys("{{t}}:%s:{id}" % name, type="string"), target=Keys("{{t}}:%s-new:{id}" % name, type="hash"),
        forward=lambda key, text: {b"text": text}, inverse=lambda key, fields: fields[b"text"],
    )

migration = Migration(move("one"), move("two"))
"""


@pytest.mark.parametrize("backup", [True, False])
def test_the_targets_of_every_move_are_adopted_and_left_or_put_back(client, tmp_path, backup):
    tool = tool_for(client, tmp_path, TWO)
    for name in (b"one", b"two"):
        put(client, b"{t}:%s:a" % name, b"text")
        put(client, b"{t}:%s-new:a" % name, {b"text": b"older"})
        put(client, b"{t}:%s-new:z" % name, {b"text": b"ghost"})
    before = picture(client)
    Shell(client, tool.directory)("init", "0001", "--at", "pending", "--yes")
    tool.apply(through="backfill")
    assert tool.rollback(backup=backup) == "pending"
    after = picture(client)
    assert set(after) == set(before)
    assert (after == before) == backup
