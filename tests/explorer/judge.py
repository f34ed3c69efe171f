"""What must hold at the end of a schedule, as the protocol has it.

The answers of the adapters fit one order of the operations, and the shape that is the truth holds what that order
leaves; the other shape is as the phase wants it; marker and ledger agree. Then the tool does what comes next from
there (recovery, a repair or the rest of the phase), and all of it must hold once more, and the shapes be equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from migrator.engine import back, forward, recover, restore
from migrator.engine.compare import compare
from migrator.engine.copy import FORWARD
from migrator.engine.outcome import Outcome
from migrator.engine.run import Run
from migrator.errors import DifferencesError, FencedError, MigratorError, RefusedError
from migrator.models import FAULTS
from migrator.phases import FenceTakenError
from tests.explorer import apart
from tests.explorer.case import Case
from tests.explorer.effects import ALIEN, effects, restored
from tests.explorer.jobs_operations import Store, found_none
from tests.explorer.operations import After, Operation, Record
from tests.explorer.orders import Done, operations, outcomes
from tests.explorer.parts import AGAIN, LATE
from tests.explorer.picture import OLD_IS_TRUE, Picture, Shape, picture, saved, saved_shapes
from tests.explorer.scene import Scene
from tests.explorer.search import Schedule

_RESTORES = ("restore", "takeover and restore")


class Judge:
    """Judges the schedules of one case; ends that are alike once. `ends` are all that were seen."""

    def __init__(self, scene: Scene, case: Case, before: Picture) -> None:
        self._scene, self._case, self._before = scene, case, before
        self._operations: dict[str, Operation] = operations(scene.move)
        self._alien = any(part in ALIEN for part in case.parts)
        self._apart = any(part in apart.PARTS for part in case.parts)
        self._restores = any(part in _RESTORES for part in case.parts)
        self._known: dict[object, str] = {}
        self.ends: set[Picture] = set()

    def fault(self, schedule: Schedule) -> str:
        """What is wrong with the state the server is in after this schedule; empty if nothing is."""
        for actor in schedule.actors:
            if actor.error is not None and not self._may_raise(actor.name, actor.error):
                return f"{actor.name} raised {type(actor.error).__name__}: {actor.error}"
        end = picture(self._scene)
        self.ends.add(end)
        done = self._done(schedule, end)
        allowed = self._allowed(end, done)
        if not allowed and end.phase != "closed":
            return "the answers contradict each other: " + ", ".join(f"{d.name} {d.answer!r}" for d in done)
        untouched = not any(d.writes for d in done)
        if fault := self._name(end, done):
            return fault
        kept = tuple(saved(self._scene)) if end.phase == "contracted" else ()
        key = (end, frozenset(allowed), untouched, kept)
        if key not in self._known or end.phase == "closed":
            self._known[key] = self._look_twice(end, done, untouched)
        return self._known[key]

    def _name(self, end: Picture, done: Sequence[Done]) -> str:
        """Where both shapes have one name, the first operation of a phase gives a record its name of that phase."""
        worked = any(getattr(one.answer, "epoch", None) == end.epoch and not found_none(one.answer) for one in done)
        named = self._scene.family.same_name and worked and not self._case.unsettled
        if not named or end.new is None or end.phase not in ("contracted", "reverting"):
            return ""
        return "" if end.final == (end.phase == "contracted") else f"the record has the wrong name in {end.phase}"

    def _may_raise(self, name: str, error: Exception) -> bool:
        """Nobody is fenced but by somebody else's takeover, and what is late by the change of a phase."""
        case = self._case
        if name in self._operations:
            closed = self._restores and "closed" in str(error)
            return isinstance(error, RefusedError) and (case.odd or closed or name == "stranger")
        if isinstance(error, (FencedError, FenceTakenError)):
            taken = any(part.startswith("takeover") for part in case.parts)
            return name in LATE or (taken and not name.startswith("takeover"))
        return not name.startswith("foreign") and (case.unsettled or case.odd) and isinstance(error, MigratorError)

    def _done(self, schedule: Schedule, end: Picture) -> list[Done]:
        found: list[Done] = []
        for number, actor in enumerate(schedule.actors):
            at = [i for i, (who, _) in enumerate(schedule.steps) if who == number]
            answer, span = actor.error or actor.result, (at[0], at[-1])
            refused = self._restores and isinstance(answer, RefusedError)  # it was closed
            if (one := self._operations.get(actor.name)) and not refused:
                after = apart.lifted(one) if self._apart else one.after
                old_is_true = end.phase in OLD_IS_TRUE and getattr(answer, "epoch", None) == end.epoch
                found.append(Done(actor.name, after, answer, *span, one.writes, passes=not old_is_true))
            sure = actor.error is None and not self._may_leave(actor.name)
            found += [Done(actor.name, after, answer, *span, certain=sure) for after in self._effects(actor.name)]
        return found

    def _may_leave(self, name: str) -> bool:
        """A removal that finds something written meanwhile leaves that to the next comparison."""
        return name.startswith("foreign") and "old write" in self._case.parts

    def _effects(self, name: str) -> Sequence[After]:
        if name in apart.PARTS:
            return (apart.effect(self._scene, name),)
        return (restored(self._scene, self._before),) if name in _RESTORES else effects(name)

    def _allowed(self, end: Picture, done: Sequence[Done]) -> set[Any]:
        """Every record the operations can have left. One that is unmoved is there, whatever the phase."""
        if self._apart:
            both = apart.start(_record(self._before, self._before.new), self._before)
            return outcomes(both, done, unsettled=False, odd=False)
        initial = self._before.old if self._unmoved(end) else self._before.truth()
        return outcomes(_record(self._before, initial), done, unsettled=self._case.unsettled, odd=self._case.odd)

    def _unmoved(self, end: Picture) -> bool:
        """But of members contract asks only that they were compared."""
        compared = end.phase == "contracted" and self._case.move == "members"
        return self._case.unsettled and self._before.new is None and not compared

    def _look_twice(self, end: Picture, done: Sequence[Done], untouched: bool) -> str:
        """As it is, and after the tool has done what comes next. The server is as before then, the backup is not."""
        kept = self._scene.server.keep()
        fault = self._look(end, done, untouched) or self._finish(done, untouched)
        self._scene.server.put_back(kept)
        return fault

    def _look(self, end: Picture, done: Sequence[Done], untouched: bool) -> str:
        case = self._case
        allowed = self._allowed(end, done)
        if not end.ledger_agrees:
            return f"the marker says {end.phase} (epoch {end.epoch}), the ledger something else"
        if case.odd:
            there = [shape.kind for shape in (end.old, end.new) if shape]
            return "" if "list" in there else "a key of another type is gone"
        if end.faults:
            return "; ".join(end.faults)
        if end.phase == "closed":
            return ""
        if self._apart:
            new = _record(end, end.new)
            return "" if any(apart.fits(both, end, new) for both in allowed) else f"{end} is not one of {allowed}"
        if case.reused:
            again = any(AGAIN in str(shape.exact).encode() for shape in (end.old, end.new) if shape)
            return "" if again else "a key is gone that was written when its name was free again"
        if self._unmoved(end) and end.phase not in OLD_IS_TRUE:
            as_it_was = (end.old, end.indexes) == (self._before.old, self._before.indexes)
            return "" if as_it_was else f"an unmoved record is not what it was: {end}"
        truth = _record(end, end.truth())
        if not any(_is(record, truth) for record in allowed):
            return f"in {end.phase} the truth is {truth}, and not one of {allowed}"
        if case.unsettled or self._alien or (case.change is not None and untouched):
            return ""
        return self._owed(end)

    def _owed(self, end: Picture) -> str:
        """What the two shapes owe each other in each phase."""
        old, new = end.old, end.new
        if end.phase == "pending":
            return "something of the new shape is in pending" if (new or end.retired) and not end.cleaning else ""
        if end.phase in ("expanded", "backfilled"):
            return "" if self._follows(new, old) else f"a stale new shape: {old} {new}"
        if end.phase in ("verified", "switched"):
            return "" if (old is None and new is None) or (old and old.agrees(new)) else f"they differ: {old} {new}"
        if end.phase == "reverting":
            return "" if self._follows(old, new) else f"a stale old shape: {old} {new}"
        staged = self._scene.family.same_name and new is not None and not end.final
        left = end.swept and (old is not None or end.retired is not None or staged)
        return f"swept, and something of the old shape is left: {end}" if left else ""

    def _follows(self, copy: Shape | None, truth: Shape | None) -> bool:
        """A copy that is not made yet, or not of every member, and else the same."""
        if copy is None:
            return True
        partly = self._case.move == "members" and truth is not None and set(copy.value) <= set(truth.value)
        return copy.agrees(truth) or (partly and truth is not None and abs(copy.expires - truth.expires) <= 2)

    def _finish(self, done: Sequence[Done], untouched: bool) -> str:
        """Recovery, then what repairs or completes the phase; then everything is whole."""
        case = self._case
        if case.reused:
            return ""
        run = self._scene.successor()
        try:
            recover.reconcile(run)
            _complete(run)
        except (DifferencesError, RefusedError) as error:
            if not (case.unsettled or case.odd):
                return f"cannot be finished: {error}"
        except Exception as error:  # also what only a changed script can raise
            return f"cannot be finished: {type(error).__name__}: {error}"
        last = picture(self._scene)
        if case.unsettled and (fault := self._look(last, done, untouched)):
            return f"after a repair: {fault}"
        if not (case.odd or case.unsettled):
            if fault := self._look(last, done, untouched=False):
                return f"after a repair: {fault}"
            if last.phase in ("expanded", "backfilled") and last.old and not last.old.agrees(last.new):
                return f"a repair does not bring the shapes together: {last}"
        return "" if self._apart else self._lost(last, untouched)

    def _lost(self, last: Picture, untouched: bool) -> str:
        """The very bytes of the old shape are kept: where it was, set aside, or in the backup. In `contracted` they are
        kept whatever is done to the record, for there the old shape is frozen."""
        case = self._case
        places = [shape.exact for shape in (last.old, last.retired) if shape]
        if last.phase == "contracted":
            places += saved(self._scene)
        # The end of the sweep has an epoch of its own.
        frozen = last.phase == "contracted" and last.epoch - last.swept == self._before.epoch - self._before.swept
        owed = [self._before.old] if (untouched or frozen) and case.change is None and not self._alien else []
        owed += [self._before.retired] if frozen else []
        if self._restores and untouched:
            owed = [self._before.old or [None, *saved_shapes(self._scene, "contract")][-1]]
        lost = [shape for shape in owed if shape and shape.exact not in places]
        return f"the bytes of the old shape are lost: {lost[0].exact!r}" if lost else ""


def _record(seen: Picture, shape: Shape | None) -> Record:
    if seen.indexes is not None:
        return Store(shape.value if shape else None, seen.indexes), shape.expires if shape else -1
    return (shape.value, shape.expires) if shape else None


def _is(record: Record, other: Record) -> bool:
    if record is None or other is None:
        return record is None and other is None
    return bool(record[0] == other[0]) and abs(record[1] - other[1]) <= 2


def _complete(run: Run) -> None:
    phase = run.entry.phase
    if run.entry.cleaning:
        back.clean(run)
    elif phase in ("expanded", "backfilled", "verified"):
        _compare_to_zero(run, Outcome(repair=FORWARD, drop_extras=True))
    elif phase == "switched":
        _compare_to_zero(run, Outcome())
    elif phase == "contracted" and not run.entry.swept:
        forward._sweep(run, forward._Evidence())
    elif phase == "closed":
        restore.restore(run)
    elif phase == "reverting":
        back.rollback(run, "switched")


def _compare_to_zero(run: Run, outcome: Outcome) -> None:
    counts = compare(run, outcome, "finish")
    wrong = {fault: counts[fault] for fault in FAULTS if counts[fault]}
    if wrong:
        raise DifferencesError(f"{wrong}")
