"""The tool's parts in a schedule: each a piece of the real engine, under the lease it held at the start."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from migrator.engine import back, foreign, forward, indexes, recover, restore
from migrator.engine.backfill import copy_collection, step_of
from migrator.engine.batches import PageSize
from migrator.engine.compare import compare
from migrator.engine.copy import FORWARD, copy_keys
from migrator.engine.guarded import unlink
from migrator.engine.outcome import Outcome
from migrator.engine.run import Run
from migrator.engine.sweep import rename
from migrator.engine.walk import Place, Visit, current_run_id
from migrator.errors import LeaseHeldError
from migrator.ledger import break_lease, take_lease
from migrator.moves.family import Side
from migrator.phases import Guard, Phase
from tests.explorer.actor import Body
from tests.explorer.jobs import ID, NOW, QUEUE, RUNNING, text
from tests.explorer.scene import Scene, Start
from tests.explorer.server import Pool

LIST = b"{t}:list"
AGAIN = b"again"
Piece = Callable[[Run, Scene], object]


def _batch(run: Run, scene: Scene) -> None:
    """One batch of the backfill: reads, maps, and sends one script."""
    if not scene.by_member:
        copy_keys(run, scene.family, FORWARD, [scene.pair])
        return
    for _ in copy_collection(run, scene.family, _visit(run, scene), scene.pair, PageSize(scene.family.kinds["old"], 1)):
        pass


def _quick_batch(run: Run, scene: Scene) -> None:
    """The same, by the way that does not compare in a script; what that leaves, by comparing."""
    for _ in step_of(run, scene.family)(_visit(run, scene)):
        pass


def _visit(run: Run, scene: Scene) -> Visit:
    node = run.client.node_of(scene.pair.old)
    return Visit(node, current_run_id(run.client, node), [scene.pair.old], Place())


def _stage(run: Run, scene: Scene) -> None:
    """The next stage of `apply`, as a whole: work, comparison, phase change; in `contracted` the sweep."""
    forward._STAGES[run.entry.phase](run, forward._Evidence())


def _repair(run: Run, scene: Scene) -> None:
    compare(run, Outcome(repair=FORWARD, drop_extras=True), "repair")


def _foreign(truth: Side) -> Piece:
    return lambda run, scene: foreign.settle(run, truth, Outcome())


def _old_write(run: Run, scene: Scene) -> object:
    return run.client.one(scene.pair.old, *scene.late_words())


def _index_repair(run: Run, scene: Scene) -> None:
    indexes.repair(run)


def _old_claim(run: Run, scene: Scene) -> bool:
    """An application without an adapter: it takes the job off the queue, then writes it. Whether it got it."""
    if run.client.one(QUEUE, "ZREM", QUEUE, ID) == 0:
        return False
    run.client.one(RUNNING, "ZADD", RUNNING, NOW, ID)
    run.client.one(scene.pair.old, "SET", scene.pair.old, text(running=True))
    return True


def _rollback(to: Phase) -> Piece:
    return lambda run, scene: back.rollback(run, to)


def _again(run: Run, scene: Scene) -> None:
    """Back from `contracted`, and there again, the sweep included."""
    back.rollback(run, "switched")
    while not (run.entry.phase == "contracted" and run.entry.swept):
        _stage(run, scene)


def _late_removal(run: Run, scene: Scene) -> None:
    """A removal of what was set aside, delivered a second time."""
    unlink(run, run.guard("contracted"), [scene.family.retired(scene.pair)])


def _turns_into_list(side: Side) -> Piece:
    """Something without an adapter puts a key of another type under the record's name, in one step."""

    def piece(run: Run, scene: Scene) -> object:
        return run.client.one(LIST, "RENAME", LIST, scene.pair.old if side == "old" else scene.pair.new)

    return piece


def _restore(run: Run, scene: Scene) -> None:
    restore.restore(run)


def _late_discard(run: Run, scene: Scene) -> None:
    """A removal of what a restore discards, delivered a second time."""
    unlink(run, Guard(("closed",), run.entry.epoch + 1, run.lease.fence), [scene.pair.old])


def _late_retiring(run: Run, scene: Scene) -> None:
    """The retiring of the old record, delivered a second time."""
    rename(run, scene.family, "retire", ("contracted",), [scene.pair], [False])


def _late_cleaning(run: Run, scene: Scene) -> None:
    """The removal of the new record in `pending`, delivered a second time."""
    unlink(run, Guard(("pending",), run.entry.epoch + 1, run.lease.fence), [scene.pair.new])


def _rollback_and_reuse(run: Run, scene: Scene) -> None:
    """Once it is cleaned the new name is free, for anything."""
    back.rollback(run, "pending")
    run.client.one(scene.pair.new, "HSET", scene.pair.new, "text", AGAIN)


def _late_fence(run: Run, scene: Scene) -> None:
    """The raising of its fence, delivered a second time."""
    run.markers.raise_fence(run.lease.fence)


def _late_change(run: Run, scene: Scene) -> None:
    """The change of the marker to `switched`, delivered a second time."""
    run.markers.set(run.lease.fence, ("verified", run.entry.epoch - 1), ("switched", run.entry.epoch),
                    run.entry.mapping, run.markers.slots)  # fmt: skip


def _late_init(run: Run, scene: Scene) -> None:
    """The creation of a marker, delivered a second time."""
    run.markers.create("pending", 0, run.lease.fence, "", run.markers.slots)


def _second_apply(run: Run, scene: Scene) -> None:
    """Another process, while somebody holds the lease."""
    with suppress(LeaseHeldError):
        take_lease(run.client, run.names, 60.0)
        raise AssertionError("two hold the lease")


def _sweep_and_reuse(run: Run, scene: Scene) -> None:
    """Once it is swept the old name is free, for anything."""
    _stage(run, scene)
    run.client.one(scene.pair.old, "SET", scene.pair.old, AGAIN)


PIECES: dict[str, Piece] = {
    "batch": _batch,
    "quick batch": _quick_batch,
    "repair": _repair,
    "index repair": _index_repair,
    "old claim": _old_claim,
    "old write": _old_write,
    "foreign old": _foreign("old"),
    "foreign new": _foreign("new"),
    "restore": _restore,
    "late discard": _late_discard,
    "stage": _stage,
    "rollback to pending": _rollback("pending"),
    "rollback to expanded": _rollback("expanded"),
    "rollback to switched": _rollback("switched"),
    "there again": _again,
    "late removal": _late_removal,
    "late retiring": _late_retiring,
    "late cleaning": _late_cleaning,
    "sweep and reuse": _sweep_and_reuse,
    "rollback and reuse": _rollback_and_reuse,
    "late fence": _late_fence,
    "late init": _late_init,
    "late change": _late_change,
    "second apply": _second_apply,
    "misplaced batch": _batch,
    "old becomes a list": _turns_into_list("old"),
    "new becomes a list": _turns_into_list("new"),
}


# What may come after the phase has changed, and is refused then.
LATE = (
    "batch",
    "quick batch",
    "repair",
    "index repair",
    "foreign old",
    "foreign new",
    "late discard",
    "late removal",
    "late fence",
    "late change",
    "late retiring",
    "late cleaning",
    "misplaced batch",
)


def body_of(name: str, scene: Scene, pool: Pool, start: Start) -> Body:
    if name == "takeover":
        return lambda: _take_over(scene, pool, start)
    if name in _THEN:
        return lambda: _take_over(scene, pool, start, _THEN[name])
    run = scene.run(pool, start)
    return lambda: PIECES[name](run, scene)


def _take_over(scene: Scene, pool: Pool, start: Start, then: Piece | None = None) -> None:
    """Another process breaks the lease, takes it, and looks where things stand."""
    session = scene.session(pool)
    break_lease(session.client, session.names, start.fence.token)
    with session.leased() as lease:
        run = session.run(lease, scene.module)
        recover.reconcile(run)
        if then is not None:
            then(run, scene)


_THEN: dict[str, Piece] = {
    "takeover and stage": _stage,
    "takeover and reuse": _sweep_and_reuse,
    "takeover and restore": _restore,
}
