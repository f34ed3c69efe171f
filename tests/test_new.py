"""`migrator new`: a module that works as it is written, its test too; a bad name writes nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from migrator.cli.templates import write
from migrator.errors import UsageError
from tests.servers import ROOT, Place, Run
from tests.support import in_process
from tests.trial import NOWHERE

RECORDS = {
    "key": ("SET", "orders:7", '{"name":"Ada","total":19.90}'),
    "member": ("HSET", "orders:web:seen", "ada", "7"),
}
NEW = {"key": ("HGET", "orders:7:fields", "total"), "member": ("ZSCORE", "orders:web:seen-sorted", "ada")}
VALUE = {"key": b"19.90", "member": 7.0}


@pytest.mark.parametrize("kind", ["key", "member"])
def test_what_is_written_goes_all_the_way_and_back_as_it_is(
    server: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    server.raw.execute_command(*RECORDS[kind])
    before = server.raw.dump(RECORDS[kind][1])
    write(tmp_path / "migrations", "orders", kind)

    plan = in_process("plan", url=server.url)
    assert (plan.returncode, "records  1; 1 looked at" in plan.stdout) == (0, True), plan.stdout + plan.stderr

    there = ("apply", "--through", "contract", "--backup", "backups", "--yes")
    assert in_process(*there, url=server.url).returncode == 0
    assert server.raw.execute_command(*NEW[kind]) == VALUE[kind]
    assert not server.raw.exists(RECORDS[kind][1])

    back = ("rollback", "1", "--to", "pending", "--backup", "backups", "--yes")
    assert in_process(*back, url=server.url).returncode == 0
    assert server.raw.dump(RECORDS[kind][1]) == before


def test_the_tests_written_with_them_pass(tmp_path: Path) -> None:
    for kind in ("key", "member"):
        write(tmp_path, f"orders_{kind}", kind)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:valkey",
        "-p",
        "no:cacheprovider",
        "-c",
        "/dev/null",
        ".",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_numbers_go_up_from_the_highest_and_gaps_stay(tmp_path: Path) -> None:
    (tmp_path / "0001_first.py").touch()
    (tmp_path / "0007_seventh.py").touch()
    (tmp_path / "_prefix.py").touch()
    result = write(tmp_path, "orders", "key")
    assert (str(tmp_path / "0008_orders.py"), str(tmp_path / "test_0008_orders.py")) == (result.module, result.test)


def test_the_directory_is_made_if_there_is_none(run_migrator: Run, tmp_path: Path) -> None:
    done = run_migrator("new", "orders", "--kind", "key", "--migrations", "deep/down", cwd=tmp_path)
    assert done.stdout.startswith("wrote deep/down/0001_orders.py\nwrote deep/down/test_0001_orders.py\n")
    assert (tmp_path / "deep/down/0001_orders.py").is_file()


BAD = [
    "",
    "Orders",
    "orders-to-hashes",
    "a/b",
    "../up",
    "a\\b",
    "1st",
    "_x",
    "x_",
    "a__b",
    "naïve",
    "a b",
    "x" * 61,
    "a\n",
]


@pytest.mark.parametrize("name", BAD)
def test_a_bad_name_is_refused_and_writes_nothing(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        write(tmp_path / "migrations", name, "key")
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_taken_is_refused_under_any_number(tmp_path: Path) -> None:
    write(tmp_path / "migrations", "orders", "key")
    before = {path: path.read_bytes() for path in (tmp_path / "migrations").iterdir()}
    done = in_process("new", "orders", "--kind", "member", "--migrations", str(tmp_path / "migrations"), url=NOWHERE)
    assert (done.returncode, done.stdout) == (2, "")
    assert "0001_orders.py is there already" in done.stderr
    assert before == {path: path.read_bytes() for path in (tmp_path / "migrations").iterdir()}


def test_a_test_that_is_there_is_not_overwritten_either(tmp_path: Path) -> None:
    (tmp_path / "test_0001_orders.py").write_text("mine")
    with pytest.raises(UsageError, match="is there already"):
        write(tmp_path, "orders", "key")
    assert [path.name for path in tmp_path.iterdir()] == ["test_0001_orders.py"]


def test_a_place_that_cannot_be_written_to_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot write to"):
        write(tmp_path / "file", "orders", "key")


def test_after_the_last_number_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "9999_last.py").touch()
    with pytest.raises(UsageError, match="9999"):
        write(tmp_path, "orders", "key")


def test_kinds_that_come_later_are_not_offered(tmp_path: Path) -> None:
    done = in_process("new", "orders", "--kind", "drain", "--migrations", str(tmp_path / "migrations"), url=NOWHERE)
    assert (done.returncode, "drain" in done.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []
