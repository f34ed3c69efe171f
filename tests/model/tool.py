"""The tool as one process: a step is one script, one write of the ledger, or one write of a file.

`at` names the next step. The way there is here; sweep and way back are in `back.py`, how a process begins in
`recovery.py`, and restore in `restore.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.model.server import (
    BACKFILLED,
    CHANGED,
    CLOSED,
    CONTRACTED,
    EXPANDED,
    NAMES,
    OLD_IS_TRUE,
    PENDING,
    REFUSED,
    REVERTING,
    SWITCHED,
    VERIFIED,
    Db,
    Rules,
    Script,
    forward,
    run,
)
from tests.model.world import Bounds, Ledger, Pair, Tool, World

KEEPS_EPOCH = ((EXPANDED, BACKFILLED), (BACKFILLED, VERIFIED))
Ways = Iterator[tuple[str, World, Tool]]


class Step:
    """One step of one process: the world before it, and what it takes to say the world after it."""

    def __init__(self, w: World, tool: Tool, rules: Rules, bounds: Bounds) -> None:
        self.w, self.tool, self.rules, self.bounds = w, tool, rules, bounds

    def go(self, label: str, at: str, w: World | None = None, **changes: Any) -> tuple[str, World, Tool]:
        return label, self.w if w is None else w, self.tool._replace(at=at, **changes)

    def off(self, why: str) -> tuple[str, World, Tool]:
        return self.go(f"the tool stops: {why}", "off")

    def known(self) -> tuple[Pair, ...]:
        """What a process remembers of the backup, if they all share one manifest."""
        return self.w.backup if self.rules.without == "files of its own" else ()

    def holds_lease(self) -> bool:
        return self.w.ledger.fence == self.tool.fence or self.rules.without == "fence"

    def send(self, script: Script) -> Iterator[tuple[Db, str, World]]:
        """Runs a script; it may have been sent twice, the second still on its way."""
        db, reply = run(self.w.db, script, self.rules)
        w = self.w._replace(db=db)
        yield db, reply, w
        if self.w.left.duplicates and reply != REFUSED:
            left = self.w.left._replace(duplicates=self.w.left.duplicates - 1)
            yield db, reply, w._replace(flight=script, left=left)

    def script(self, name: str, phases: tuple[int, ...], one: int = 0, two: int = 0, three: int = 0) -> Script:
        return Script(name, self.tool.fence, self.tool.epoch, phases, one, two, three)

    def sent(
        self, name: str, phases: tuple[int, ...], onward: dict[str, str] | str, values: tuple[int, ...] = ()
    ) -> Ways:
        """Sends a script of the plan; `onward` says where to go after each reply."""
        for _, reply, w in self.send(self.script(name, phases, *values)):
            if reply == REFUSED:
                yield self.off("refused by the guard")
            else:
                at = onward if isinstance(onward, str) else onward.get(reply, onward["done"])
                twice = ", sent twice" if w.flight is not self.w.flight else ""
                yield self.go(f"tool {self.tool.fence}: {name} -> {reply}{twice}", at, w)

    def intend(self, target: int) -> Ways:
        """The first step of a phase change: the intent into the ledger."""
        keeps = (self.tool.phase, target) in KEEPS_EPOCH
        epoch = self.tool.epoch + (0 if keeps else 1)
        if epoch > self.bounds.epoch:
            return
        if not self.holds_lease():
            yield self.off("the lease is another's")
            return
        ledger = self.w.ledger._replace(intent=(target, epoch))
        source = (self.tool.phase, self.tool.epoch)
        label = f"tool {self.tool.fence}: intends {NAMES[target]}"
        yield self.go(label, "mark", self.w._replace(ledger=ledger), reg=(target, epoch), source=source)

    def at_end_of_walk(self, target: int) -> Ways:
        """A walk ends by asking whether the server is still the same process."""
        if self.tool.stale:
            yield self.go("the server is another process: markers first", "recover")
        else:
            yield from self.intend(target)


def mark(s: Step) -> Ways:
    source, target = s.tool.source, s.tool.reg
    script = Script("mark", s.tool.fence, target[1], (source[0], target[0]), source[1])
    for _, reply, w in s.send(script):
        if reply == REFUSED:
            yield s.off("the marker is not where it should be")
        else:
            yield s.go(f"tool {s.tool.fence}: marker -> {NAMES[target[0]]}/{target[1]}", "settle", w)


def settle(s: Step) -> Ways:
    """WAIT, the markers read back, then the ledger. A change that keeps the epoch needs neither of the first two."""
    target, epoch = s.tool.reg
    w, before = s.w, s.w.ledger
    if not s.holds_lease():
        yield s.off("the lease is another's")
        return
    if epoch != before.epoch or target not in (BACKFILLED, VERIFIED):
        w = w if s.rules.without == "WAIT" else w._replace(replica=None)
        if (w.db.phase, w.db.epoch) != (target, epoch):
            yield s.off("the marker did not stay")
            return
    if target == CONTRACTED and before.phase == SWITCHED:
        w = w._replace(backup=())  # each contract has a directory of its own
    w = w._replace(ledger=_settled(before, target, epoch, s.rules))
    at = "ready" if target == VERIFIED else "idle"
    label = f"tool {s.tool.fence}: WAIT, ledger -> {NAMES[target]}"
    yield s.go(label, at, w, phase=target, epoch=epoch, reg=(0, 0), source=(0, 0))


def _settled(before: Ledger, phase: int, epoch: int, rules: Rules) -> Ledger:
    cleaning = phase == PENDING and rules.without != "marker first"
    swept = before.swept and phase == CONTRACTED
    return Ledger(phase, epoch, None, cleaning, swept, before.discarded and phase == CLOSED, before.fence)


def idle(s: Step) -> Ways:
    """Where an operator, or the next stage of the same command, decides. A new command begins with recovery."""
    if s.tool.stale:
        yield s.go("another command begins with the markers", "recover")
    phase, without = s.tool.phase, s.rules.without
    for at in _STAGES.get(phase, ()):
        yield s.go(f"tool {s.tool.fence}: begins '{at}'", at, stale=False)
    if phase == PENDING:
        if s.w.ledger.cleaning:
            yield s.go(f"tool {s.tool.fence}: begins 'clean'", "clean")
        else:
            yield from s.intend(EXPANDED)
    elif phase in OLD_IS_TRUE:
        yield from s.sent("unlink new", OLD_IS_TRUE, "unmark") if without == "marker first" else s.intend(PENDING)
    elif phase == SWITCHED:
        yield from s.intend(EXPANDED)
    elif phase == CONTRACTED:
        yield from _contracted(s)
    elif phase == REVERTING:
        later = without == "giving up saves first"
        yield from s.intend(CONTRACTED) if later else (s.go(f"tool {s.tool.fence}: begins 'give up'", "give up"),)


def _contracted(s: Step) -> Ways:
    """On with the sweep, back, or restore, which needs a manifest: that of a sweep, or of its first part."""
    swept = s.w.ledger.swept
    if s.w.left.restores and (swept or s.w.backup):
        w = s.w._replace(left=s.w.left._replace(restores=s.w.left.restores - 1))
        yield s.go(f"tool {s.tool.fence}: begins 'restore'", "close" if swept else "retire all", w)
    if not swept:
        yield s.go(f"tool {s.tool.fence}: begins 'sweep'", "sweep")
    yield from s.intend(SWITCHED if s.rules.without == "reverting" else REVERTING)


_STAGES = {
    EXPANDED: ("copy",),
    BACKFILLED: ("compare",),
    VERIFIED: ("compare",),
    SWITCHED: ("compare",),
    REVERTING: ("rebuild",),
    CLOSED: ("restore",),
}


def ready(s: Step) -> Ways:
    """`verified` by this very run: its comparison spares `switch` another one."""
    if not s.tool.stale:
        yield from s.intend(SWITCHED)
    yield s.go(f"tool {s.tool.fence}: stops at verified", "idle")


def copy(s: Step) -> Ways:
    old = s.w.db.old
    at = "copy it" if old else "copied"
    yield s.go(f"tool {s.tool.fence}: reads old to copy it", at, reg=(old, 0))


def copy_it(s: Step) -> Ways:
    read = s.tool.reg[0]
    yield from s.sent("copy", OLD_IS_TRUE, {CHANGED: "copy", "done": "copied"}, (read, forward(read)))


def copied(s: Step) -> Ways:
    if s.tool.phase == EXPANDED:
        yield from s.at_end_of_walk(BACKFILLED)
    else:
        yield s.go(f"tool {s.tool.fence}: compares what it repaired", "compare")


def compare(s: Step) -> Ways:
    """Both shapes in one script. Before the switch differences are repaired; after it they are in the way."""
    db = s.w.db
    label = f"tool {s.tool.fence}: compares"
    if forward(db.old) == db.new:
        yield s.go(f"{label}: equal", "compared")
    elif s.tool.phase == SWITCHED:
        yield s.go(f"{label}: different, refused", "idle")
    elif db.old:
        yield s.go(f"{label}: different", "copy")
    else:
        yield s.go(f"{label}: extra", "drop")


def drop(s: Step) -> Ways:
    yield from s.sent("drop", OLD_IS_TRUE, "compare")


def compared(s: Step) -> Ways:
    yield from s.at_end_of_walk({BACKFILLED: VERIFIED, VERIFIED: SWITCHED, SWITCHED: CONTRACTED}[s.tool.phase])


THERE: dict[str, Callable[[Step], Ways]] = {
    "mark": mark,
    "settle": settle,
    "idle": idle,
    "ready": ready,
    "copy": copy,
    "copy it": copy_it,
    "copied": copied,
    "compare": compare,
    "drop": drop,
    "compared": compared,
    "unmark": lambda s: s.intend(PENDING),
}
