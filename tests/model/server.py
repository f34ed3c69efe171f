"""One slot as the server has it: the marker, both shapes of one record, its retired copy; and the tool's scripts.

A value is a version, 0 for absent. `forward` makes versions 1 and 2 the same new record, so that only old bytes tell
them apart; `inverse` gives 2 for both. `last` and `exact` are no keys but what an onlooker knows: the last write that
was acknowledged, and whether the old shape was written by it. They go back with the data in a failover.
"""

from __future__ import annotations

from typing import NamedTuple

PENDING, EXPANDED, BACKFILLED, VERIFIED, SWITCHED, CONTRACTED, REVERTING, CLOSED = range(8)
NAMES = ("pending", "expanded", "backfilled", "verified", "switched", "contracted", "reverting", "closed")
OLD_IS_TRUE = (EXPANDED, BACKFILLED, VERIFIED)
FOREIGN = 5  # what an application without an adapter writes

forward = (0, 1, 1, 3, 4, 5).__getitem__
inverse = (0, 2, 2, 3, 4, 5).__getitem__


class Db(NamedTuple):
    """`final`: the new record bears the name both shapes share (only where they share one)."""

    phase: int
    epoch: int
    fence: int
    old: int
    new: int
    retired: int
    final: bool
    last: int
    exact: bool


class Script(NamedTuple):
    """One call: what it does, what it was planned under, and its values."""

    name: str
    fence: int
    epoch: int
    phases: tuple[int, ...]
    one: int = 0
    two: int = 0
    three: int = 0


class Rules(NamedTuple):
    """Which rule is left out (`without`), and whether both shapes have one name."""

    without: str = ""
    same_name: bool = False


REFUSED, DONE, CHANGED, VANISHED, LEFT = "refused", "done", "changed", "vanished", "left"
Reply = tuple[Db, str]


def run(db: Db, script: Script, rules: Rules) -> Reply:
    """One script, in one step. A refused one changed nothing."""
    if script.fence != db.fence and rules.without != "fence":
        return db, REFUSED
    if script.name == "mark":
        return _mark(db, script)
    if script.epoch != db.epoch and rules.without not in ("epoch", "guard"):
        return db, REFUSED
    if db.phase not in script.phases and rules.without != "guard":
        return db, REFUSED
    return _SCRIPTS[script.name](db, script, rules)


def _mark(db: Db, script: Script) -> Reply:
    """marker.lua: `phases` is (from, to), `epoch` the epoch it goes to, `one` the one it comes from."""
    source, target = script.phases
    if (db.phase, db.epoch) not in ((source, script.one), (target, script.epoch)):
        return db, REFUSED
    return db._replace(phase=target, epoch=script.epoch), DONE


def _copy(db: Db, script: Script, rules: Rules) -> Reply:
    """copy.lua, truth old: `one` is what was read, `two` what the new record becomes."""
    if not db.old and rules.without != "cas":
        return db, VANISHED
    if db.old != script.one and rules.without != "cas":
        return db, CHANGED
    return db._replace(new=script.two), DONE


def _drop(db: Db, script: Script, rules: Rules) -> Reply:
    return (db._replace(new=0), DONE) if not db.old else (db, DONE)


def _back(db: Db, script: Script, rules: Rules) -> Reply:
    """copy.lua, truth new: `one` the new record as read, `two` what the old becomes, `three` the old as read."""
    if not db.new or db.final:
        return db, VANISHED
    if db.new != script.one or (db.old != script.three and rules.without != "rebuild compares old"):
        return db, CHANGED
    return db._replace(old=script.two), DONE


def _retire(db: Db, script: Script, rules: Rules) -> Reply:
    return retired(db, rules)


def retired(db: Db, rules: Rules) -> Reply:
    """retire.lua, which is also the swap an adapter runs first in `contracted`."""
    if db.old and db.retired:
        return db, LEFT
    if db.old and not db.new and rules.without != "retire looks for the new":
        return db, LEFT
    if db.old:
        db = db._replace(retired=db.old, old=0)
    return db._replace(final=rules.same_name and db.new != 0), DONE


def _unlink_retired(db: Db, script: Script, rules: Rules) -> Reply:
    return db._replace(retired=0), DONE


def _revive(db: Db, script: Script, rules: Rules) -> Reply:
    return db._replace(final=False), DONE


def _unlink_new(db: Db, script: Script, rules: Rules) -> Reply:
    return db._replace(new=0), DONE


def _discard(db: Db, script: Script, rules: Rules) -> Reply:
    """Both shapes go, on the operator's word. `one`: what the onlooker expects to be there once it is restored."""
    return db._replace(old=0, new=0, final=False, last=script.one, exact=True), DONE


def _retired_back(db: Db, script: Script, rules: Rules) -> Reply:
    return (db._replace(old=db.retired, retired=0), DONE) if db.retired else (db, DONE)


def _put(db: Db, script: Script, rules: Rules) -> Reply:
    """A saved record takes its place again: never over one that is there, for there is none but a newer one."""
    over = rules.without == "restore overwrites nothing"
    return (db._replace(old=script.one), DONE) if over or not db.old else (db, DONE)


def _nothing(db: Db, script: Script, rules: Rules) -> Reply:
    """A write of the marker as it is: only the guard matters."""
    return db, DONE


_SCRIPTS = {
    "copy": _copy,
    "drop": _drop,
    "back": _back,
    "retire": _retire,
    "unlink retired": _unlink_retired,
    "revive": _revive,
    "unlink new": _unlink_new,
    "discard": _discard,
    "retired back": _retired_back,
    "put saved": _put,
    "same marker": _nothing,
}
