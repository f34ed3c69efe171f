"""One group of actors from one start: every schedule of theirs, and what must hold at the end of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from migrator.engine import back, forward, recover
from migrator.engine.compare import FAULTS, Outcome, compare
from migrator.engine.copy import FORWARD
from migrator.engine.run import Run
from migrator.errors import DifferencesError, FencedError, MigratorError, RefusedError
from tests.explorer.actor import Actor, foreseeable
from tests.explorer.operations import Done, Record, operations, outcomes
from tests.explorer.parts import AGAIN, LATE, body_of
from tests.explorer.picture import OLD_IS_TRUE, Picture, Shape, picture, saved
from tests.explorer.scene import Change, Scene, Start
from tests.explorer.search import Schedule, schedules
from tests.explorer.server import Pool


@dataclass(frozen=True)
class Case:
    """`parts` are operations of applications or pieces of the tool. `change` is what something without an adapter did
    last; with it, what the shapes owe each other holds only after a repair. `unsettled` and `odd` as for `outcomes`;
    `reused`: the old name is written again after the sweep."""

    move: str
    phase: str
    parts: tuple[str, ...]
    record: str = "there"
    change: Change | None = None
    unsettled: bool = False
    odd: bool = False
    reused: bool = False

    @property
    def id(self) -> str:
        changed = f"-{self.change.__name__}" if self.change else ""
        return f"{self.move}-{self.phase}-{self.record}{changed}: {' | '.join(self.parts)}"


@dataclass
class Told:
    """What exploring a case came to. `orders`: in how many orders the same steps could be put."""

    schedules: int = 0
    orders: int = 0
    fault: str = ""
    schedule: str = ""
    ends: set[object] = field(default_factory=set)


def explore(scene: Scene, case: Case, *, prune: bool = True) -> Told:
    """All schedules up to the first fault."""
    with foreseeable():
        return _explore(scene, case, prune)


def _explore(scene: Scene, case: Case, prune: bool) -> Told:
    told = Told()
    start = scene.start(case.phase, case.record, case.change)
    scene.server.put_back(start.state)
    before = picture(scene)
    checked: dict[object, str] = {}
    for schedule in _schedules(scene, case, start, prune):
        told.schedules += 1
        told.orders = max(told.orders, schedule.orders)
        end = picture(scene)
        told.ends.add(end)
        fault = _judge(scene, case, schedule, before, end, checked)
        if fault:
            told.fault, told.schedule = fault, schedule.told()
            return told
    return told


def _schedules(scene: Scene, case: Case, start: Start, prune: bool) -> Iterator[Schedule]:
    def cast() -> Sequence[Actor]:
        scene.begin_backup(start)
        return [_actor(scene, name, start) for name in case.parts]

    return schedules(scene.server, start.state, cast, prune=prune)


def _actor(scene: Scene, name: str, start: Start) -> Actor:
    """Made on the server as it is at the start: it knows the phase of then, as a process that is stalled does."""
    pool = Pool(scene.server.run)
    known = operations(scene.by_member)
    if name in known:
        adapter = scene.members(pool) if scene.by_member else scene.records(pool)
        return Actor(name, pool, lambda: known[name].call(adapter))
    return Actor(name, pool, body_of(name, scene, pool, start))


# What must hold.


def _judge(
    scene: Scene, case: Case, schedule: Schedule, before: Picture, end: Picture, checked: dict[object, str]
) -> str:
    if fault := _errors(case, scene, schedule):
        return fault
    initial = before.old if end.phase in OLD_IS_TRUE and case.unsettled else before.truth()
    done = _done(scene, schedule)
    allowed = outcomes(_record(initial), done, unsettled=case.unsettled, odd=case.odd)
    if not allowed:
        return "the answers contradict each other: " + ", ".join(f"{d.operation.name} {d.answer!r}" for d in done)
    untouched = not any(d.operation.writes for d in done)
    kept = tuple(saved(scene)) if end.phase == "contracted" else ()
    key = (end, frozenset(allowed), untouched, _ledger(scene), kept)
    if key not in checked:
        checked[key] = _end(scene, case, before, end, allowed, untouched)
    return checked[key]


def _errors(case: Case, scene: Scene, schedule: Schedule) -> str:
    for actor in schedule.actors:
        if actor.error is not None and not _may_raise(case, scene, actor.name, actor.error):
            return f"{actor.name} raised {type(actor.error).__name__}: {actor.error}"
    return ""


def _may_raise(case: Case, scene: Scene, name: str, error: Exception) -> bool:
    if name in operations(scene.by_member):
        return case.odd and isinstance(error, RefusedError)
    if isinstance(error, FencedError):
        return name in LATE or any(part.startswith("takeover") for part in case.parts)
    return (case.unsettled or case.odd) and isinstance(error, MigratorError)


def _done(scene: Scene, schedule: Schedule) -> list[Done]:
    known, found = operations(scene.by_member), []
    for number, actor in enumerate(schedule.actors):
        if actor.name in known:
            at = [i for i, (who, _) in enumerate(schedule.steps) if who == number]
            found.append(Done(known[actor.name], actor.error or actor.result, at[0], at[-1]))
    return found


def _record(shape: Shape | None) -> Record:
    return (shape.value, shape.expires) if shape else None


def _ledger(scene: Scene) -> tuple[object, ...]:
    entry = scene.entry()
    return entry.phase, entry.epoch, entry.intent, entry.swept


def _end(scene: Scene, case: Case, before: Picture, end: Picture, allowed: set[Record], untouched: bool) -> str:
    """Looked at as it is, and once more after the tool has done what the protocol has it do from there."""
    kept = scene.server.keep()
    fault = (
        _look(scene, case, end, allowed, untouched)
        or _finish(scene, case, end)
        or _look_again(scene, case, before, picture(scene), allowed, untouched)
    )
    scene.server.put_back(kept)
    return fault


def _look(scene: Scene, case: Case, end: Picture, allowed: set[Record], untouched: bool) -> str:
    if end.faults and not case.odd:
        return "; ".join(end.faults)
    if case.odd:
        return "" if "list" in (end.old and end.old.kind, end.new and end.new.kind) else "a key of another type is gone"
    if case.reused:
        return "" if end.old and end.old.exact == AGAIN else "a key is gone that was written after the sweep"
    if not any(_is(record, end.truth()) for record in allowed):
        return f"in {end.phase} the truth is {_record(end.truth())}, and not one of {allowed}"
    strict = case.change is None or not untouched
    return _shapes(case, end) if strict and not case.unsettled else ""


def _is(record: Record, shape: Shape | None) -> bool:
    if record is None or shape is None:
        return record is None and shape is None
    return record[0] == shape.value and abs(record[1] - shape.expires) <= 2


def _shapes(case: Case, end: Picture) -> str:
    """What the two shapes owe each other in each phase."""
    old, new = end.old, end.new
    if end.phase == "pending":
        return "something of the new shape is in pending" if (new or end.retired) and not end.cleaning else ""
    if end.phase in ("expanded", "backfilled"):
        partly = new is None or (case.move == "members" and _part_of(new, old))
        return "" if partly or new.agrees(old) else f"a stale new shape: {old} {new}"  # type: ignore[union-attr]
    if end.phase in ("verified", "switched"):
        return "" if (old is None and new is None) or (old and old.agrees(new)) else f"they differ: {old} {new}"
    if end.phase == "reverting":
        partly = old is None or (case.move == "members" and _part_of(old, new))
        return "" if partly or old.agrees(new) else f"a stale old shape: {old} {new}"  # type: ignore[union-attr]
    if end.swept and (old or end.retired or (case.move == "swap" and new and not end.final)):
        return f"swept, and something of the old shape is left: {end}"
    return ""


def _part_of(copy: Shape, truth: Shape | None) -> bool:
    """Some members, none that the truth has not."""
    return truth is not None and set(copy.value) <= set(truth.value) and abs(copy.expires - truth.expires) <= 2


def _finish(scene: Scene, case: Case, end: Picture) -> str:
    """Recovery, then what repairs or completes the phase."""
    if case.reused:
        return ""
    run = scene.successor()
    try:
        recover.reconcile(run)
        _complete(run)
    except (DifferencesError, RefusedError) as error:
        return "" if case.unsettled or case.odd else f"cannot be finished: {error}"
    except Exception as error:
        return f"cannot be finished: {type(error).__name__}: {error}"
    return ""


def _complete(run: Run) -> None:
    if run.entry.cleaning:
        back.clean(run)
    elif run.entry.phase in ("expanded", "backfilled", "verified"):
        _compare_to_zero(run, Outcome(repair=FORWARD, drop_extras=True))
    elif run.entry.phase == "switched":
        _compare_to_zero(run, Outcome())
    elif run.entry.phase == "contracted" and not run.entry.swept:
        forward._sweep(run, forward._Evidence())
    elif run.entry.phase == "reverting":
        back.rollback(run, "switched")


def _compare_to_zero(run: Run, outcome: Outcome) -> None:
    counts = compare(run, outcome, "finish")
    wrong = {fault: counts[fault] for fault in FAULTS if counts[fault]}
    if wrong:
        raise DifferencesError(f"{wrong}")


def _look_again(scene: Scene, case: Case, before: Picture, last: Picture, allowed: set[Record], untouched: bool) -> str:
    if case.odd or case.unsettled or case.reused:
        return ""
    if fault := _look(scene, Case(case.move, case.phase, case.parts), last, allowed, untouched):
        return f"after a repair: {fault}"
    if last.phase in ("expanded", "backfilled") and last.old and not last.old.agrees(last.new):
        return f"a repair does not bring the shapes together: {last}"
    if not untouched or before.old is None or case.change is not None:
        return ""
    places = [last.old.exact] if last.old else []
    if last.phase == "contracted":
        places = saved(scene)
    return "" if before.old.exact in places else f"the bytes of the old shape are lost: {last}"
