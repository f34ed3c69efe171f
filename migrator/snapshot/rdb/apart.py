"""A program that reads a file in a process of its own, which ends with ours, and in time: a damaged file may keep it
busy for ever, as a module's fields cut off do with every checker there is."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from migrator.snapshot import embedded


def run(program: Path, *args: str, seconds: float, name: str = "") -> tuple[int | None, str]:
    """Its status, None where it did not come to an end, and what it wrote. `name`: what it is started as."""
    home = embedded.make_home()
    try:
        if name:
            (home / name).symlink_to(program)
            program = home / name
        process = embedded.spawn(home, str(program), *args)
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            embedded.dismiss(process, at_once=True)
        return status, (home / "log").read_text("utf-8", "replace")
    finally:
        shutil.rmtree(home, ignore_errors=True)
