"""Which searches are run. `SMALL` ends in seconds, `LARGE` takes minutes; `WITHOUT` and `FOUND` leave out a rule each.

What no search here has: accepted records, targets that were there before, expiry (but for collections), slots that
move, markers that differ from slot to slot (there is one slot), a failover that takes the ledger back too, and a
failover together with a late script before the switch: a second delivery of `expanded -> backfilled`, which keeps the
epoch, could then cover up that copies were lost. Such a record is unmoved after the switch, found by contract.
"""

from __future__ import annotations

from tests.model.record import Record
from tests.model.windows import Members
from tests.model.world import Bounds, Budget


def _record(epoch: int, version: int, start: tuple[int, ...] = (0, 1), ops: int = 1, **left: int) -> Record:
    return Record(Bounds(epoch, version, ops), Budget(**left), versions=start)


def _switched(epoch: int, version: int, start: tuple[int, ...] = (0, 1), ops: int = 1, **left: int) -> Record:
    return Record(Bounds(epoch, version, ops), Budget(**left), switched=True, versions=start)


def _same(epoch: int, version: int, start: tuple[int, ...] = (0, 1), ops: int = 1, **left: int) -> Record:
    return Record(Bounds(epoch, version, ops), Budget(**left), True, True, start)


SMALL = {
    "there and back and there": _record(6, 3, deletes=1),
    "two adapters": _record(4, 3, (1,), ops=2),
    "two holders, from pending": _record(2, 2, (1,), processes=1),
    "two holders, from switched": _switched(3, 2, (1,), processes=1),
    "failover": _record(5, 2, failovers=1),
    "failover and two holders": _record(1, 2, (1,), failovers=1, processes=1),
    "failover and a late script": _switched(2, 2, (1,), failovers=1, duplicates=1),
    "a late script": _record(3, 2, duplicates=1),
    "a late script, from switched": _switched(3, 2, (1,), duplicates=1),
    "a foreign application": _switched(5, 2, deletes=1, foreign=1),
    "restore": _switched(4, 2, (1,), deletes=1, restores=1),
    "restore and failover": _switched(4, 2, (1,), failovers=1, restores=1),
    "restore and a late script": _switched(4, 2, (1,), duplicates=1, restores=1),
    "one name, there and back and there": Record(Bounds(6, 2), Budget(deletes=1), True),
    "one name, two holders": _same(2, 2, (1,), processes=1),
    "one name, failover": _same(3, 2, failovers=1),
    "one name, a late script": _same(3, 2, (1,), deletes=1, duplicates=1),
    "one name, a foreign application": _same(4, 2, (0,), deletes=1, foreign=1),
}
LARGE = {
    "there and back and there": _record(8, 3, ops=2, deletes=1),
    "two holders, from pending": _record(3, 2, processes=1),
    "two holders, from switched": _switched(4, 2, processes=1),
    "three holders": _switched(1, 2, (1,), processes=2),
    "failover": _record(6, 3, deletes=1, failovers=1),
    "failover and two holders": _record(2, 2, (1,), failovers=1, processes=1),
    "failover and two holders, from switched": _switched(2, 2, (1,), failovers=1, processes=1),
    "a late script": _record(5, 3, duplicates=1),
    "a late script, from switched": _switched(5, 2, deletes=1, duplicates=1),
    "a foreign application": _switched(6, 3, deletes=1, foreign=1),
    "restore": _switched(6, 3, (1,), deletes=1, restores=1),
    "restore and two holders": _switched(4, 2, (1,), processes=1, restores=1),
    "one name, there and back and there": Record(Bounds(8, 3, 2), Budget(deletes=1), True),
    "one name, two holders": _same(3, 2, deletes=1, processes=1),
    "one name, failover": _same(5, 2, deletes=1, failovers=1),
    "one name, a late script": _same(4, 2, deletes=1, duplicates=1),
    "one name, restore": _same(6, 3, (1,), deletes=1, restores=1),
}
MEMBERS_SMALL, MEMBERS_LARGE = Members(5, 4), Members(11, 5)

# The rule that is left out, and where to look for what it guards against.
WITHOUT = {
    "guard": _record(5, 2, duplicates=1),
    "epoch": _switched(6, 2, (1,), duplicates=1),
    "cas": _record(3, 3),
    "reverting": _switched(5, 2),
    "the epoch of step two": _switched(2, 4, (1,)),
    "fence": _record(5, 2, (1,), processes=1),
    "marker first": _record(3, 2),
    "unmoved is no ghost": _record(3, 2, foreign=1),
    "retire looks for the new": _switched(5, 2, (0,), foreign=1),
    "WAIT": _switched(2, 2, (1,), failovers=1, duplicates=1),
}
# Rules that a search found to be needed besides.
FOUND = {
    "WAIT after the fence": _record(3, 2, (1,), failovers=1, processes=1),
    "WAIT after removal": _switched(5, 2, (1,), failovers=1),
    "WAIT after rebuild": _switched(5, 2, (1,), failovers=1),
    "files of its own": _switched(5, 2, (1,), processes=1),
    "rebuild compares old": _switched(5, 2, (1,)),
    "giving up saves first": _switched(5, 2, (1,), processes=1),
    "unmoved may go back": _switched(5, 2, (0,), foreign=1),
    "WAIT after restore": _switched(5, 2, (1,), failovers=1, restores=1),
    "an epoch between discarding and putting back": _switched(4, 2, (1,), duplicates=1, restores=1),
    "restore overwrites nothing": _same(6, 3, (1,), restores=1),
}
# Found by minutes, not by seconds.
FOUND_LATE = {"the order of fences": _switched(5, 2, (1,), processes=1)}
MEMBERS_WITHOUT = (
    "the epoch of window and log",
    "deletes are logged",
    "a new collection is logged",
    "the source exists",
)
