"""The backup's files: read in the order of fences, and no part that counts is lost to a process that stalled."""

from __future__ import annotations

import fcntl
import threading

import pytest

from migrator.errors import RefusedError
from migrator.snapshot import backup
from migrator.snapshot.backup import Backup
from migrator.snapshot.ndjson import Line


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
