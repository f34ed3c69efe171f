"""The backup's files: read in the order of fences, and no part that counts is lost to a process that stalled."""

from __future__ import annotations

import errno
import fcntl
import gzip
import os
import threading

import pytest

from migrator.errors import RefusedError
from migrator.snapshot import backup
from migrator.snapshot.backup import Backup
from migrator.snapshot.ndjson import Line
from tests.support import KEYS, picture, put, tool_for


def open_backup(directory, fence):
    return Backup.create(directory, "migrator", "0001_first", 3, "contract", fence)


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
