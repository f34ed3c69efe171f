"""What tests of `plan --snapshot` and `rehearse` stand on: snapshots by hand, wrong versions of right migrations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from migrator.keys import Kind
from migrator.snapshot.ndjson import Line, encode
from tests.support import Shell, guid, job, shipped

NOWHERE = "redis://127.0.0.1:1/0"  # nobody listens there: a plan on a snapshot must not mind
JOB = b"ae:job:%s"
MAP = b"map:users:__meta:timestamps"
TICKS = 638_960_228_601_234_560


def written(path: Path, records: Mapping[bytes, Any], expires: Mapping[bytes, int] | None = None) -> Path:
    """A snapshot of these: bytes is a string, a dict a hash or (of floats) a sorted set, then list and set."""
    at = expires or {}
    path.write_bytes(b"".join(encode(Line(0, key, *_kind(value, at.get(key)))) for key, value in records.items()))
    return path


def _kind(value: Any, at: int | None) -> tuple[Kind, int | None, list[bytes]]:
    if isinstance(value, bytes):
        return "string", at, [value]
    if isinstance(value, Mapping) and all(isinstance(v, float) for v in value.values()):
        return "zset", at, [word for name, score in value.items() for word in (name, repr(score).encode())]
    if isinstance(value, Mapping):
        return "hash", at, [word for pair in value.items() for word in pair]
    return "list" if isinstance(value, list) else "set", at, list(value)


def job_key(number: int) -> bytes:
    return JOB % guid(number).encode()


def jobs(number: int = 3, **changed: Any) -> dict[bytes, bytes]:
    return {job_key(n): job(guid(n), **changed) for n in range(number)}


def edited(directory: Path, **changes: tuple[str, str]) -> Path:
    """The shipped migrations, in one of which (by its number, as `m0001`) a piece of text is another one."""
    shipped(directory)
    for number, (old, new) in changes.items():
        (path,) = directory.glob(f"{number[1:]}_*.py")
        text = path.read_text()
        assert text.count(old) == 1, old
        path.write_text(text.replace(old, new))
    return directory


class Tried:
    """`plan --snapshot` in this process, on a directory of migrations, with a URL where nobody is."""

    def __init__(self, directory: Path, snapshot: Path) -> None:
        self.shell, self.snapshot = Shell(NOWHERE, directory), str(snapshot)

    def __call__(self, *more: str, exit: int = 0) -> Any:
        """The report."""
        return self.plan(*more, exit=exit)["snapshot"]

    def plan(self, *more: str, exit: int = 0) -> Any:
        return self.shell("plan", "--snapshot", self.snapshot, *more, exit=exit)

    def both(self, *more: str, exit: int = 0) -> tuple[str, Any]:
        """What is printed, and the plan that `--out` saves, of one run."""
        out = self.shell.directory.parent / "both.json"
        return self.text("--out", str(out), *more, exit=exit), json.loads(out.read_text())

    def text(self, *more: str, exit: int = 0) -> str:
        return self.shell.text("plan", "--snapshot", self.snapshot, *more, exit=exit)

    def named(self, *more: str, exit: int = 30) -> dict[str, str]:
        """Each difference: its record and what is said of it."""
        found = [d for one in self(*more, exit=exit)["migrations"] for d in one["differences"]]
        return {d["key"] if d["member"] is None else f"{d['key']} [{d['member']}]": d["why"] for d in found}
