"""The backup's files: read in the order of fences, and no part that counts is lost to a process that stalled."""

from __future__ import annotations

import errno
import fcntl
import gzip
import os
import threading
from pathlib import Path

import pytest

from migrator.engine import commands
from migrator.errors import RefusedError, UsageError
from migrator.snapshot import backup
from migrator.snapshot.backup import Backup
from migrator.snapshot.ndjson import Line
from tests.support import KEYS, MEMBERS, Shell, picture, put, tool_for


def open_backup(directory, fence, life=""):
    return Backup.create(directory, "migrator", "0001_first", 3, "contract", fence, life)


def line(value):
    return Line(0, b"key", "string", None, [value])


def values(lines):
    return [found.items[0] for found in lines]


def test_what_a_stalled_process_adds_late_is_not_the_newest(tmp_path):
    stalled, successor = open_backup(tmp_path, 4), open_backup(tmp_path, 5)
    for value in (b"newer", b"newest"):
        successor.write(line(value))
    successor.finish()
    stalled.write(line(b"old"))
    stalled.finish()
    assert values(backup.lines(tmp_path)) == [b"old", b"newer", b"newest"]
    assert values(backup.newest_lines(tmp_path)) == [b"newest", b"newer", b"old"]


def test_two_that_merge_the_manifest_at_once_lose_no_part(tmp_path, monkeypatch):
    one, other = open_backup(tmp_path, 4), open_backup(tmp_path, 5)
    one.finish()
    one.write(line(b"one"))
    other.write(line(b"other"))
    beside, read = threading.Thread(target=other.finish), backup.read_manifest

    def slowly(directory):
        found = read(directory)
        if not beside.ident:
            beside.start()
            beside.join(0.3)  # as long as it is given, unless it has to wait for us
        return found

    monkeypatch.setattr(backup, "read_manifest", slowly)
    one.finish()
    beside.join()
    assert values(backup.lines(tmp_path)) == [b"one", b"other"]


def test_a_process_that_is_stopped_while_it_holds_the_manifest_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(backup, "_LOCK_SECONDS", 0.0)
    saving = open_backup(tmp_path, 5)
    with (tmp_path / "manifest.lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(RefusedError, match="does not go on") as told:
            saving.finish()
    assert "end that process" in told.value.next
    saving.finish()


def test_what_is_not_redacted_is_for_its_owner_alone(tmp_path):
    before = os.umask(0o022)
    try:
        saving = open_backup(tmp_path / "new" / "backup", 4)
        saving.write(line(b"secret"))
        saving.finish()
    finally:
        os.umask(before)
    assert (tmp_path / "new" / "backup").stat().st_mode & 0o777 == 0o700
    parts = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "new" / "backup").iterdir()}
    assert parts.pop("manifest.lock", 0) in (0, 0o644)  # it is empty
    assert {*parts.values()} == {0o600}


def test_two_servers_that_begin_in_one_directory_at_once_are_not_merged(tmp_path):
    one, other = open_backup(tmp_path, 4, "2-one"), open_backup(tmp_path, 4, "2-other")
    one.write(line(b"one"))
    one.finish()
    other.write(line(b"other"))
    with pytest.raises(RefusedError, match="of another database"):
        other.finish()
    with pytest.raises(RefusedError, match="of another database"):
        open_backup(tmp_path, 5, "2-other")
    unknown = open_backup(tmp_path, 5)  # as an earlier version left it
    unknown.write(line(b"two"))
    unknown.finish()
    assert (values(backup.lines(tmp_path)), backup.read_manifest(tmp_path).life) == ([b"one", b"two"], "2-one")


def begun_anew(place, value) -> None:
    """As another server would be, or this one once the tool's own keys are lost."""
    place.raw.flushdb()
    put(place, b"{t}:text:a", value)


def test_a_directory_that_holds_the_backup_of_another_life_is_refused_before_anything_is_changed(server, tmp_path):
    tool = tool_for(server, tmp_path, KEYS)
    put(server, b"{t}:text:a", b" first")
    put(server, b"{t}:text:gone", b"deleted since")
    tool.apply(through="contract")
    first = tool.backup
    begun_anew(server, b" second")
    stopped = tool.apply(through="contract", exit=60).stopped
    assert stopped is not None
    assert "another database" in stopped.reason
    assert "another --backup DIR" in stopped.next
    assert (tool.phase(), server.raw.get(b"{t}:text:a")) == ("switched", b" second")
    tool.backup = tmp_path / "another"
    tool.apply(through="contract")
    second, tool.backup = tool.backup, first
    for go in (tool.restore, tool.rollback):
        with pytest.raises(RefusedError, match="another database"):
            go()
    assert tool.phase() == "contracted"
    tool.backup = second
    held = second / "discarded-5" / "migrator-0001_first-discarded-5"
    held.parent.mkdir()
    (first / "migrator-0001_first-contract-3").rename(held)
    whole = (held / backup.MANIFEST).read_text()
    (held / backup.MANIFEST).write_text(whole.replace('"contract"', '"discarded"').replace('"epoch": 3', '"epoch": 5'))
    with pytest.raises(RefusedError, match="another database"):
        tool.restore()  # also where only what it discards would come there
    assert tool.phase() == "contracted"
    held.rename(tmp_path / "elsewhere")
    assert tool.restore() == "pending"
    assert {key: server.raw.get(key) for key in picture(server)} == {b"{t}:text:a": b" second"}


def test_adopted_targets_come_back_from_the_backup_of_their_own_life(server, tmp_path):
    tool = tool_for(server, tmp_path, MEMBERS)
    for score in (3.0, 4.0):
        server.raw.flushdb()
        put(server, b"{t}:sorted:a", {b"ghost": score})
        put(server, b"{t}:times:a", {b"a": b"1"})
        Shell(server, tool.directory)("init", "0001", "--at", "pending", "--yes")
        if score == 4.0:
            tool.apply(through="expand", exit=60)
            first, tool.backup = tool.backup, tmp_path / "another"
        tool.apply()
    second, tool.backup = tool.backup, first
    with pytest.raises(RefusedError, match="another database"):
        tool.rollback()
    tool.backup = second
    assert tool.rollback() == "pending"
    assert server.raw.zscore(b"{t}:sorted:a", "ghost") == 4.0


def test_a_repeated_life_saves_under_a_word_of_its_own_and_a_rebuilt_ledger_finds_it_again(server, tmp_path):
    tool, lives = tool_for(server, tmp_path, KEYS), []
    put(server, b"{t}:text:a", b" a")
    for _ in range(2):
        tool.apply("0001", through="contract")
        lives.append(tool.session().entries()["0001_first"].life)
        tool.rollback(to="pending")
    assert len({*lives}) == 2
    tool.apply("0001", through="contract")
    known = tool.session().entries()["0001_first"].life
    for given in (False, True):
        server.raw.delete(tool.session().names.ledger)
        commands.init(tool.session(backup=given), None, "markers")
        assert tool.session().entries()["0001_first"].life == (known if given else "")
    assert tool.restore() == "pending"


def no_such_thing(*_):
    raise PermissionError(errno.EPERM, "Operation not permitted")


def test_a_backup_needs_no_hard_links(server, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", no_such_thing)
    put(server, b"{t}:text:a", b" a")
    before = picture(server)
    tool = tool_for(server, tmp_path, KEYS)
    tool.apply(through="contract")
    assert tool.rollback(to="pending") == "pending"
    assert picture(server) == before


def test_a_name_that_a_stalled_process_has_made_stays_its_own(tmp_path, monkeypatch):
    stalled, successor = open_backup(tmp_path, 4), open_backup(tmp_path, 5)
    stalled.write(line(b"old"))
    replace = Path.replace

    def meanwhile(self, target):
        monkeypatch.setattr(Path, "replace", replace)
        successor.write(line(b"new"))
        successor.finish()
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", meanwhile)
    stalled.finish()
    assert values(backup.lines(tmp_path)) == [b"old", b"new"]
    assert [part.lines for part in backup.check(tmp_path).parts] == [1, 1]


@pytest.mark.parametrize("missing", ["rename", "lock"])
def test_where_no_part_can_be_kept_nothing_is_begun(server, tmp_path, monkeypatch, missing):
    put(server, b"{t}:text:a", b" a")
    tool = tool_for(server, tmp_path, KEYS)
    tool.apply(through="switch")
    before = picture(server)
    monkeypatch.setattr(*{"rename": (Path, "replace"), "lock": (fcntl, "flock")}[missing], no_such_thing)
    with pytest.raises(UsageError, match="Operation not permitted") as told:
        tool.apply(through="contract")
    assert "another --backup DIR" in told.value.next
    assert (tool.phase(), picture(server)) == ("switched", before)
    assert {path.name for path in tool.backup.rglob("*") if path.is_file()} == {"manifest.lock"}


@pytest.mark.parametrize("broken", ["write", "close"])
def test_a_full_disk_stops_a_contract_which_goes_on_when_there_is_room(client, tmp_path, monkeypatch, broken):
    put(client, b"{t}:text:a", b"a")
    tool = tool_for(client, tmp_path, KEYS)
    before = picture(client)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(gzip.GzipFile, broken, full)
        stopped = tool.apply(through="contract", exit=60).stopped
    assert stopped is not None
    assert "No space left on device" in stopped.reason
    assert "same command" in stopped.next
    assert list(tool.backup.rglob("part-*")) == []
    tool.apply(through="contract")
    tool.rollback(to="pending")
    assert picture(client) == before
