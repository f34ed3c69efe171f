"""Everybody but the tool: adapters, an application without one, the network, the replica, and the operator."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.server import (
    CLOSED,
    CONTRACTED,
    FOREIGN,
    OLD_IS_TRUE,
    PENDING,
    SWITCHED,
    Db,
    Rules,
    forward,
    retired,
    run,
)
from tests.model.world import Bounds, Budget, Op, Tool, World

Moves = Iterator[tuple[str, World]]


def put(db: Db, version: int, rules: Rules) -> Db:
    """A blind write by an adapter: one script, which reads the marker in the same step."""
    if db.phase == PENDING:
        return db._replace(old=version, last=version, exact=True)
    if db.phase == CONTRACTED:
        db = _in_contracted(db, rules)
        final = rules.same_name and not db.old
        return db._replace(new=forward(version), final=final, last=version, exact=False)
    return db._replace(old=version, new=forward(version), final=False, last=version, exact=True)


def delete(db: Db, rules: Rules) -> Db:
    """A record exists if either shape exists, so both go: until the end of the sweep the old one too."""
    if db.phase == PENDING:
        return db._replace(old=0, last=0, exact=True)
    if db.phase == CONTRACTED:
        db = _in_contracted(db, rules)
    return db._replace(old=0, new=0, final=False, last=0, exact=True)


def _in_contracted(db: Db, rules: Rules) -> Db:
    """Where both shapes have one name, the swap script runs first."""
    return retired(db, rules)[0] if rules.same_name else db


def moves(w: World, rules: Rules, bounds: Bounds) -> Moves:
    yield from _adapters(w, rules, bounds)
    if w.left.foreign and w.db.phase == SWITCHED and not w.db.last:
        db = w.db._replace(old=FOREIGN, last=FOREIGN, exact=True)
        yield "an application without adapter creates it", w._replace(db=db, left=_spend(w, "foreign"))
    if w.flight is not None:
        db, _ = run(w.db, w.flight, rules)
        yield f"the second '{w.flight.name}' is delivered", w._replace(db=db, flight=None)
    yield from _failover(w)
    yield from _new_process(w)


def _adapters(w: World, rules: Rules, bounds: Bounds) -> Moves:
    if w.db.phase != CLOSED:
        version = w.left.version
        if version <= bounds.version:
            left = w.left._replace(version=version + 1)
            yield f"an adapter puts {version}", w._replace(db=put(w.db, version, rules), left=left)
        if w.left.deletes and w.db.last:
            yield "an adapter deletes", w._replace(db=delete(w.db, rules), left=_spend(w, "deletes"))
        yield from _step_one(w, bounds)
    if rules.without == "unmoved is no ghost" and w.db.phase >= SWITCHED and w.db.old and not w.db.new:
        yield "an adapter reads, and clears away a ghost", w._replace(db=w.db._replace(old=0))
    for number, op in enumerate(w.ops):
        rest = w._replace(ops=w.ops[:number] + w.ops[number + 1 :])
        yield from _step_two(rest, op, rules, bounds)


def _step_one(w: World, bounds: Bounds) -> Moves:
    """Reads the shape that is the truth. Both adapters are alike, so only what is pending between the steps counts."""
    from_old = w.db.phase in (PENDING, *OLD_IS_TRUE)
    value = w.db.old if from_old else w.db.new
    if value and len(w.ops) < bounds.ops and w.left.version <= bounds.version:
        op = Op(value, from_old, w.db.epoch)
        if op not in w.ops:
            yield "an adapter reads, to change it", w._replace(ops=tuple(sorted((*w.ops, op))))


def _step_two(w: World, op: Op, rules: Rules, bounds: Bounds) -> Moves:
    """Writes if nothing changed. Without its rule it knows no epoch, and compares the shape it read from."""
    db, version = w.db, w.left.version
    remembers = rules.without == "the epoch of step two"
    if db.phase == CLOSED or version > bounds.version or (op.epoch != db.epoch and not remembers):
        yield "an adapter's second step: retry", w
        return
    from_old = db.phase in (PENDING, *OLD_IS_TRUE)
    if from_old != op.from_old and not remembers:
        yield "an adapter's second step: changed", w
        return
    if (db.old if op.from_old else db.new) != op.value:
        yield "an adapter's second step: changed", w
        return
    read = forward(op.value) if op.from_old else op.value
    after = put(db, version, rules)
    if read != forward(db.last):
        after = after._replace(last=-1)  # judged as a lost update
    yield f"an adapter's second step puts {version}", w._replace(db=after, left=w.left._replace(version=version + 1))


def _failover(w: World) -> Moves:
    """A replica falls behind; later it becomes the primary. WAIT makes it catch up (`settle` clears it)."""
    if w.left.failovers and w.replica is None:
        yield "a replica falls behind", w._replace(replica=w.db)
    if w.replica is not None and w.replica != w.db:
        stalled = w.stalled._replace(stale=True) if w.stalled else None
        yield (
            "failover: the replica that fell behind takes over",
            w._replace(
                db=w.replica,
                replica=None,
                tool=w.tool._replace(stale=True),
                stalled=stalled,
                left=_spend(w, "failovers"),
            ),
        )


def _new_process(w: World) -> Moves:
    """The lease ran out or the holder ended: another process takes it. The one before may only be stalled."""
    if not w.left.processes:
        return
    fence = w.ledger.fence + 1
    tool = Tool("recover", fence, w.ledger.phase, w.ledger.epoch)
    after = w._replace(tool=tool, ledger=w.ledger._replace(fence=fence), left=_spend(w, "processes"), stalled=None)
    yield "another process takes the lease", after
    if w.tool.at not in ("off", "idle", "ready"):
        yield "another process takes the lease; this one is stalled", after._replace(stalled=w.tool)


def _spend(w: World, kind: str) -> Budget:
    return w.left._replace(**{kind: getattr(w.left, kind) - 1})
