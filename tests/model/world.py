"""The whole world around one record: server, ledger, backup file, adapters, tool processes, network, replica."""

from __future__ import annotations

from typing import NamedTuple

from tests.model.server import NAMES, PENDING, Db, Script

Pair = tuple[int, int]  # (phase, epoch), or (what was read, …)


class Ledger(NamedTuple):
    """It lies in another slot than the record, and its writes are the lease holder's only (`fence`)."""

    phase: int
    epoch: int
    intent: Pair | None
    cleaning: bool
    swept: bool
    discarded: bool
    fence: int


class Tool(NamedTuple):
    """A process of the tool: where it is in its program, what it holds in memory.

    `stale`: a failover came since it last looked at the markers, which the end of each walk tells it (the run_id).
    """

    at: str
    fence: int
    phase: int
    epoch: int
    reg: Pair = (0, 0)
    source: Pair = (0, 0)
    lines: tuple[Pair, ...] = ()
    stale: bool = False


class Op(NamedTuple):
    """An adapter between the two steps of one operation, for as long as it likes."""

    value: int
    from_old: bool
    epoch: int


class Budget(NamedTuple):
    """What may still happen. `version` is the next to be written; a bound, the highest of each kind."""

    version: int = 1
    deletes: int = 0
    duplicates: int = 0
    failovers: int = 0
    processes: int = 0
    foreign: int = 0
    restores: int = 0


class World(NamedTuple):
    db: Db
    ledger: Ledger
    backup: tuple[Pair, ...]  # (fence of the process that wrote it, record)
    ops: tuple[Op, ...]
    tool: Tool
    stalled: Tool | None  # held the lease before, and may wake at any time
    flight: Script | None  # sent twice; the second may be delivered at any time
    replica: Db | None  # what a replica has that no longer follows
    left: Budget


class Bounds(NamedTuple):
    """How far a search goes."""

    epoch: int
    version: int
    ops: int = 1


def begin(db: Db, left: Budget) -> World:
    """A tool process that has just begun, its marker set, ledger and marker agreeing."""
    ledger = Ledger(db.phase, db.epoch, None, False, False, False, db.fence)
    return World(db, ledger, (), (), Tool("idle", db.fence, db.phase, db.epoch), None, None, None, left)


def fresh(version: int) -> Db:
    """Nothing has been migrated yet; a record of that version, or none."""
    return Db(PENDING, 0, 1, version, 0, 0, False, version, True)


def show(w: World) -> str:
    """A state in one line."""
    db, tool = w.db, w.tool
    parts = [
        f"{NAMES[db.phase]}/{db.epoch} fence {db.fence}",
        f"old {db.old or '-'} new {db.new or '-'}{'*' if db.final else ''} retired {db.retired or '-'}",
        f"last {db.last or '-'}{'' if db.exact else '~'}",
        f"ledger {NAMES[w.ledger.phase]}/{w.ledger.epoch}",
        f"tool {tool.fence}: {tool.at}",
    ]
    if w.backup:
        parts.append(f"backup {','.join(str(line) for _, line in w.backup)}")
    if w.flight:
        parts.append(f"in flight: {w.flight.name}")
    return " | ".join(parts)
