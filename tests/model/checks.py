"""What must hold, in every state that can be reached."""

from __future__ import annotations

from tests.model.server import (
    CLOSED,
    CONTRACTED,
    EXPANDED,
    OLD_IS_TRUE,
    PENDING,
    REVERTING,
    SWITCHED,
    VERIFIED,
    forward,
)
from tests.model.world import World


def fault(w: World, same_name: bool) -> str:
    """The first thing that is wrong with a state; empty if nothing is."""
    db = w.db
    if db.last < 0:
        return "a two-step operation wrote over a write it had not read"
    if db.phase == CLOSED:
        return ""
    wrong = _old_is_true(w) if db.phase in (PENDING, *OLD_IS_TRUE) else _new_is_true(w)
    return wrong or _tool(w, same_name)


def _right_old(w: World) -> bool:
    """The old shape holds the last write: its very bytes, where a write of both shapes brought them."""
    db = w.db
    return db.old == db.last if db.exact else db.old != 0 and forward(db.old) == forward(db.last)


def _old_is_true(w: World) -> str:
    db = w.db
    if not _right_old(w):
        return _words(db.old, db.last, "the old shape")
    if db.phase >= EXPANDED and db.new not in (0, forward(db.old)):
        return "a stale or deleted value lies in the new shape"
    if db.phase == VERIFIED and db.new != forward(db.old):
        return "verified, and the shapes do not agree"
    return ""


def _new_is_true(w: World) -> str:
    db = w.db
    unmoved = db.old != 0 and not db.new and db.old == db.last
    if db.new != forward(db.last) and not unmoved:
        return _words(db.new, db.last, "the new shape")
    if db.phase == SWITCHED and not _right_old(w):
        return _words(db.old, db.last, "the old shape, to which a rollback goes at once,")
    if db.phase in (CONTRACTED, REVERTING) and db.last and db.exact:
        kept = (db.old, db.retired, *(line for _, line in w.backup))
        if db.last not in kept:
            return "bytes of the old shape are nowhere any more"
    return ""


def _words(value: int, last: int, where: str) -> str:
    if not value:
        return f"{where} misses a live record"
    return f"{where} has a deleted record" if not last else f"{where} has an older value, or other bytes"


def _tool(w: World, same_name: bool) -> str:
    """The ledger never goes backwards, and what is said to be done is done."""
    db, ledger = w.db, w.ledger
    if w.tool.at == "lost":
        return "the ledger went backwards"
    if w.tool.at == "barred" and db.old and not db.new:
        return "an unmoved record bars the way back, as it bars the sweep: there is no way out"
    if w.tool.at == "left" and db.new and db.new == forward(db.old):
        return "a record that was moved is refused as unmoved, and so for ever"
    if w.tool.at != "idle" or (db.phase, db.epoch) != (ledger.phase, ledger.epoch):
        return ""
    if db.phase == PENDING and not ledger.cleaning and (db.new or db.retired):
        return "cleaned, and something of the new shape is left"
    unnamed = same_name and db.new and not db.final
    if db.phase == CONTRACTED and ledger.swept and (db.old or db.retired or unnamed):
        return "swept, and something of the old shape is left"
    return ""
