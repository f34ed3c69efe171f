"""The rest of the tool's program: sweep, cleaning and rebuild; and the program as a whole."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter

from tests.model.recovery import recover
from tests.model.restore import RESTORE
from tests.model.server import (
    CHANGED,
    CONTRACTED,
    LEFT,
    PENDING,
    REVERTING,
    SWITCHED,
    forward,
    inverse,
)
from tests.model.tool import THERE, Step, Ways
from tests.model.world import Ledger, Pair, World


def sweep(s: Step) -> Ways:
    """Opens the backup; `lines` is what its manifest says now."""
    yield s.go(f"tool {s.tool.fence}: opens the backup", "retire", lines=s.known(), stale=False)


def give_up(s: Step) -> Ways:
    """Back to `contracted`. What lies retired is saved and removed first, so that its name is free there: one name
    is retired once an epoch, or a removal delivered late could meet what is not saved yet."""
    at = "save first" if s.w.db.retired else "given up"
    yield s.go(f"tool {s.tool.fence}: gives the way back up", at, lines=s.known(), stale=False)


def given_up(s: Step) -> Ways:
    """A failover must not bring the retired name back into `contracted`."""
    if s.rules.without != "WAIT after removal":
        s.w = s.w._replace(replica=None)
    yield from s.at_end_of_walk(CONTRACTED)


def retire(s: Step) -> Ways:
    yield from s.sent("retire", (CONTRACTED,), {LEFT: "left", "done": "save"})


def left(s: Step) -> Ways:
    yield s.go(f"tool {s.tool.fence}: a record is left, refused", "idle", lines=())


def save(s: Step) -> Ways:
    """Reads the retired record into the part that is being written."""
    read = s.w.db.retired
    first = s.tool.at == "save first"
    onward = ("commit first" if first else "commit") if read else ("given up" if first else "finish")
    yield s.go(f"tool {s.tool.fence}: reads retired", onward, reg=(read, 0))


def commit(s: Step) -> Ways:
    """A file knows no fence, so each process has files of its own, which are read in the order of their fences: what
    a stalled process writes late is not the newest for that."""
    onward = "unlink first" if s.tool.at == "commit first" else "unlink"
    known = s.tool.lines if s.rules.without == "files of its own" else s.w.backup
    lines = (*known, (s.tool.fence, s.tool.reg[0]))
    if s.rules.without not in ("files of its own", "the order of fences"):
        lines = tuple(sorted(lines, key=itemgetter(0)))
    w = s.w._replace(backup=lines)
    yield s.go(f"tool {s.tool.fence}: backup is durable", onward, w, lines=lines, reg=(0, 0))


def unlink(s: Step) -> Ways:
    yield from s.sent("unlink retired", (s.tool.phase,), "given up" if s.tool.phase == REVERTING else "finish")


def finish(s: Step) -> Ways:
    if s.rules.without == "files of its own":
        s.w = s.w._replace(backup=s.tool.lines)
    yield from s.sent("same marker", (CONTRACTED,), "swept")


def swept(s: Step) -> Ways:
    yield from _ended(s, "swept", s.w.ledger._replace(swept=True))


def _ended(s: Step, what: str, ledger: Ledger) -> Ways:
    """A removal is over once the replicas have it; only then does the ledger say so."""
    if s.tool.stale:
        yield s.go("the server is another process: markers first", "recover", lines=())
    elif not s.holds_lease():
        yield s.off("the lease is another's")
    else:
        w = s.w if s.rules.without == "WAIT after removal" else s.w._replace(replica=None)
        w = w._replace(ledger=ledger)
        yield s.go(f"tool {s.tool.fence}: ledger -> {what}", "idle", w, lines=())


def clean(s: Step) -> Ways:
    """Passes until one finds nothing."""
    label = f"tool {s.tool.fence}: looks for new records"
    yield s.go(label, "clean it" if s.w.db.new else "cleaned", stale=False)


def clean_it(s: Step) -> Ways:
    yield from s.sent("unlink new", (PENDING,), "clean")


def cleaned(s: Step) -> Ways:
    yield from _ended(s, "cleaned", s.w.ledger._replace(cleaning=False))


def rebuild(s: Step) -> Ways:
    onward = "revive" if s.rules.same_name else "put back"
    yield s.go(f"tool {s.tool.fence}: opens the backup", onward, lines=_saved(s.w), stale=False)


def _saved(w: World) -> tuple[Pair, ...]:
    """From the oldest to the newest: the backup, then what lies retired."""
    return (*w.backup, (w.tool.fence, w.db.retired)) if w.db.retired else w.backup


def revive(s: Step) -> Ways:
    yield from s.sent("revive", (REVERTING,), "put back")


def put_back(s: Step) -> Ways:
    """The newest saved bytes serve that the mapping makes the new record of, where the old one is not right yet."""
    db, fence = s.w.db, s.tool.fence
    if s.rules.without == "rebuild compares old" and s.tool.lines:
        (_, line), rest = s.tool.lines[0], s.tool.lines[1:]  # each line over the one before
        yield s.go(f"tool {fence}: takes saved {line}", "put it", lines=rest, reg=(forward(line), line))
        return
    fitting = [line for _, line in s.tool.lines if forward(line) == db.new != forward(db.old)]
    if fitting:
        yield s.go(f"tool {fence}: takes saved {fitting[-1]}", "put it", reg=(db.new, fitting[-1]), source=(db.old, 0))
    else:
        yield from _saved_are_in(s)


def _saved_are_in(s: Step) -> Ways:
    """Before the inverse fills gaps: a gap must not be the work of a failover."""
    if s.rules.without != "WAIT after rebuild":
        s.w = s.w._replace(replica=None)
    if s.tool.stale:
        yield s.go("the server is another process: markers first", "recover")
    else:
        yield s.go(f"tool {s.tool.fence}: no saved line is of use", "unmap", lines=())


def put_it(s: Step) -> Ways:
    values = (*s.tool.reg, s.tool.source[0])
    again = "put back" if s.rules.without == "rebuild compares old" else {CHANGED: "put back", "done": "saved"}
    yield from s.sent("back", (REVERTING,), again, values)


def unmap(s: Step) -> Ways:
    """What no saved bytes could give, the inverse gives."""
    db = s.w.db
    if db.new and forward(db.old) != db.new:
        yield s.go(f"tool {s.tool.fence}: reads new to invert it", "unmap it", reg=(db.new, 0), source=(db.old, 0))
    else:
        yield s.go(f"tool {s.tool.fence}: nothing to invert", "compare back")


def unmap_it(s: Step) -> Ways:
    new = s.tool.reg[0]
    yield from s.sent("back", (REVERTING,), {CHANGED: "unmap", "done": "compare back"},
                      (new, inverse(new), s.tool.source[0]))  # fmt: skip


def compare_back(s: Step) -> Ways:
    """An unmoved record is no fault of the rebuild: it is in the way of the next contract, not of the way back."""
    db = s.w.db
    unmoved = db.old and not db.new and s.rules.without != "unmoved may go back"
    good = forward(db.old) == db.new or unmoved
    label = f"tool {s.tool.fence}: compares back"
    if good:
        yield s.go(f"{label}: whole", "unlink back", reg=(0, 0), source=(0, 0))
    else:
        yield s.go(f"{label}: not whole, refused", "barred", reg=(0, 0), source=(0, 0))


def barred(s: Step) -> Ways:
    yield s.go(f"tool {s.tool.fence}: stops in reverting", "idle")


def unlink_back(s: Step) -> Ways:
    if s.tool.stale:
        yield s.go("the server is another process: markers first", "recover")
    elif s.w.db.retired:
        yield from s.sent("unlink retired", (REVERTING,), "whole")
    else:
        yield s.go(f"tool {s.tool.fence}: nothing retired is left", "whole")


def whole(s: Step) -> Ways:
    """`reverting` has no later marker than the rebuild, by which a lost rebuild would show: so WAIT, then look."""
    if s.rules.without != "WAIT after rebuild":
        s.w = s.w._replace(replica=None)
    yield from s.at_end_of_walk(SWITCHED)


PROGRAM: dict[str, Callable[[Step], Ways]] = {
    **THERE,
    **RESTORE,
    "sweep": sweep,
    "retire": retire,
    "left": left,
    "save": save,
    "give up": give_up,
    "given up": given_up,
    "save first": save,
    "commit": commit,
    "commit first": commit,
    "unlink": unlink,
    "unlink first": unlink,
    "finish": finish,
    "swept": swept,
    "clean": clean,
    "clean it": clean_it,
    "cleaned": cleaned,
    "rebuild": rebuild,
    "revive": revive,
    "put back": put_back,
    "put it": put_it,
    "saved": _saved_are_in,
    "unmap": unmap,
    "unmap it": unmap_it,
    "compare back": compare_back,
    "barred": barred,
    "unlink back": unlink_back,
    "whole": whole,
    "recover": recover,
}
