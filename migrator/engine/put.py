"""Puts a saved record in place as it was."""

from __future__ import annotations

from migrator.client import Arg
from migrator.engine import dump
from migrator.engine.guarded import guarded
from migrator.engine.run import Run
from migrator.phases import Phase
from migrator.snapshot.ndjson import Line


def put_line(run: Run, phase: Phase, line: Line) -> None:
    """Writes a saved record as it was, expiry included; a first part replaces what is there."""
    name = line.key
    words: list[tuple[Arg, ...]] = [("UNLINK", name)] if line.part == 0 else []
    for start in range(0, len(line.items), dump.PAGE):
        items = line.items[start : start + dump.PAGE]
        if line.kind == "zset":
            items = [item for i in range(0, len(items), 2) for item in (items[i + 1], items[i])]
        write = {"string": "SET", "hash": "HSET", "list": "RPUSH", "set": "SADD", "zset": "ZADD"}[line.kind]
        words.append((write, name, *items))
    if line.expires_at is not None:
        words.append(("PEXPIREAT", name, line.expires_at))
    guarded(run, run.guard(phase), words)
