"""The demo: the whole story with the real commands, and nothing left behind."""

from __future__ import annotations

import shlex
import signal
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.cli import demo
from tests.servers import ROOT, Run, Start, wait_for


def left_behind(directory: Path) -> list[str]:
    """Files of the demo, and processes that name its directory."""
    asked = ["ps", "-ww", "-eo", "args"]  # in full: their lines would be cut at 80 characters
    processes = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()
    return [str(path) for path in directory.iterdir()] + [line for line in processes if str(directory) in line]


@pytest.fixture
def temporary() -> Iterator[Path]:
    """With a short name: a server goes elsewhere if that of its socket would be too long."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        yield Path(directory)


def test_it_runs_every_command_of_the_story_proves_the_way_back_and_leaves_nothing(
    run_migrator: Run, temporary: Path
) -> None:
    # A setting of the user's own must not reach it: this one would find no jobs.
    env = {"TMPDIR": str(temporary), "MIGRATOR_JOBS_PREFIX": "elsewhere", "MIGRATOR_URL": "redis://127.0.0.1:1/0"}
    done = run_migrator("demo", env=env, cwd=temporary, timeout=110)
    assert (done.returncode, done.stderr) == (0, "")
    told = [f"migrator {shlex.join(step.words)}" for step in demo.STORY if isinstance(step, demo.Run)]
    assert told == [line[2:] for line in done.stdout.splitlines() if line.startswith("$ migrator ")]
    assert "byte for byte" in done.stdout
    assert "Where to go from here" in done.stdout.split("\n\n")[-1]
    assert left_behind(temporary) == []


@pytest.mark.parametrize(("signum", "exit"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_whatever_ends_it_its_server_and_its_files_go_too(
    start_migrator: Start, temporary: Path, signum: signal.Signals, exit: int
) -> None:
    process = start_migrator("demo", env={"TMPDIR": str(temporary)})
    assert process.stdout is not None
    while not process.stdout.readline().startswith("$ "):
        assert process.poll() is None
    assert len(left_behind(temporary)) > 1, "a directory and a process would be left"
    process.send_signal(signum)
    assert exit == process.wait(timeout=30)
    wait_for(lambda: not left_behind(temporary), "the server and its files to go")


def test_it_fails_loudly_if_a_command_ends_otherwise_than_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "STORY", (demo.Run("A command that is refused.", ("rollback", "0002")),))
    assert demo.play() == 1
    assert "The demo failed: exit code 60 where 0 was expected" in capsys.readouterr().err


def test_it_fails_loudly_if_the_data_is_not_what_it_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "STORY", ())  # so that nothing was mended
    assert demo.play() == 1
    assert "not what was loaded" in capsys.readouterr().err


def test_a_wheel_has_the_migrations_it_plays() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    included = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert {f"migrations/{name}": f"migrator/shipped/{name}" for name in demo._MIGRATIONS} == included
