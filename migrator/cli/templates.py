"""Writes a new migration and its test. Their comments are the tutorial, so they are files one can read as they are."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from string import Template

from migrator.errors import UsageError
from migrator.models import NewResult

_NAME = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
_NUMBERED = re.compile(r"(\d{4})_(.+)\.py")
_LONGEST = 60
_LAST = 9999


def write(directory: Path, name: str, kind: str) -> NewResult:
    """Two new files under the next free number.

    Raises UsageError for a name that is none or is taken, and for a directory that cannot be written to.
    """
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise UsageError(
            f"{name!r} is not a name for a migration: lower-case words joined by _, {_LONGEST} letters at most",
            next="for instance: migrator new orders_to_hashes --kind key",
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return _write(directory, f"{_next_number(directory, name):04}_{name}", name, kind)
    except OSError as error:
        raise UsageError(
            f"cannot write to {directory}: {error.strerror}", next="name another: --migrations DIR"
        ) from None


def _next_number(directory: Path, name: str) -> int:
    """One more than the highest: a gap in the numbers is a migration somebody else may still have."""
    highest = 0
    for path in directory.iterdir():
        found = _NUMBERED.fullmatch(path.name.removeprefix("test_"))
        if found is None:
            continue
        if found[2] == name:
            raise UsageError(f"{path} is there already", next="choose another name")
        highest = max(highest, int(found[1]))
    if highest == _LAST:
        raise UsageError(f"{_LAST} is the last number, and it is taken", next="start another: --migrations DIR")
    return highest + 1


def _write(directory: Path, id: str, name: str, kind: str) -> NewResult:
    module, test = directory / f"{id}.py", directory / f"test_{id}.py"
    words = {"id": id, "number": id[:4], "word": name.partition("_")[0], "module": module.name, "test": test.as_posix()}
    for path, skeleton in ((module, f"{kind}.py.txt"), (test, f"{kind}_test.py.txt")):
        text = resources.files("migrator.cli").joinpath("skeletons", skeleton).read_text("utf-8")
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(Template(text).substitute(words))
    return NewResult(module=str(module), test=str(test))
