"""How a process of the tool begins, also after a failover: the marker says where we are, never the ledger."""

from __future__ import annotations

from tests.model.server import CONTRACTED, EXPANDED, OLD_IS_TRUE, REVERTING, SWITCHED, forward
from tests.model.tool import Step, Ways
from tests.model.world import Tool, World


def recover(s: Step) -> Ways:
    """The fence goes up, the markers are read in the same script, and WAIT makes it stay; then marker and ledger are
    brought together."""
    db, ledger, fence = s.w.db, s.w.ledger, s.tool.fence
    if db.fence > fence or not s.holds_lease():
        yield s.off("the lease is another's")
        return
    w = s.w._replace(db=db._replace(fence=fence))
    if s.rules.without != "WAIT after the fence":
        w = w._replace(replica=None)
    seen, here = (db.phase, db.epoch), (ledger.phase, ledger.epoch)
    s.tool = Tool("recover", fence, *here)
    label = f"tool {fence}: raises the fence, reads the marker"
    if seen == here:
        yield s.go(label, "idle", w._replace(ledger=ledger._replace(intent=None)))
    elif seen == ledger.intent:
        yield s.go(label, "settle", w, reg=seen, source=here)
    elif db.epoch > max(ledger.epoch, ledger.intent[1] if ledger.intent else 0):
        yield s.go(label, "lost", w)
    else:
        yield from _behind(s, label, w, seen)


def _behind(s: Step, label: str, w: World, seen: tuple[int, int]) -> Ways:
    ledger = w.ledger
    here = (ledger.phase, ledger.epoch)
    if ledger.phase in OLD_IS_TRUE:
        again = (EXPANDED, max(ledger.epoch, seen[1]) + 1)
        ledger = ledger._replace(intent=again)
        yield s.go(f"{label}: walk again", "mark", w._replace(ledger=ledger), reg=again, source=seen)
    elif (ledger.phase, seen[0]) in ((CONTRACTED, CONTRACTED), (CONTRACTED, REVERTING)):
        yield s.go(f"{label}: set forward, old need not be whole", "mark", w, reg=here, source=seen)
    elif ledger.phase in (SWITCHED, CONTRACTED) and forward(w.db.old) != w.db.new:
        if ledger.phase == SWITCHED and seen[0] in (CONTRACTED, REVERTING):
            again = (REVERTING, max(ledger.epoch, seen[1]) + 1)
            ledger = ledger._replace(intent=again)
            yield s.go(f"{label}: rebuild again", "mark", w._replace(ledger=ledger), reg=again, source=seen)
        else:
            yield s.off("records differ after a failover")
    else:
        yield s.go(f"{label}: set forward", "mark", w, reg=here, source=seen)
