"""What a record looks like in Redis: its two shapes, wherever their names are by now, and what contract set aside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from migrator.moves.values import from_items, from_reply, read_words
from migrator.snapshot import backup
from tests.explorer import jobs
from tests.explorer.jobs import QUEUE, Indexes
from tests.explorer.scene import NAMES, Scene

# Of the new shape, hashable: the text of a key, ((member, score), …) of a collection, ((field, value), …) of a job.
Value = Any


@dataclass(frozen=True)
class Shape:
    """One key: its type, what is in it, the same as the new shape has it, and its expiry in unix ms or -1."""

    kind: str
    exact: Any
    value: Value
    expires: int

    def agrees(self, other: Shape | None) -> bool:
        return other is not None and self.value == other.value and abs(self.expires - other.expires) <= 2


@dataclass(frozen=True)
class Picture:
    """Everything there is of a record. `faults`: what can be right in no phase; `indexes`: those of jobs."""

    phase: str
    epoch: int
    swept: bool
    cleaning: bool
    ledger_agrees: bool
    old: Shape | None
    new: Shape | None
    final: bool
    retired: Shape | None
    faults: tuple[str, ...]
    indexes: Indexes | None = None

    def truth(self) -> Shape | None:
        return self.old if self.phase in OLD_IS_TRUE else self.new


OLD_IS_TRUE = ("pending", "expanded", "backfilled", "verified")


def picture(scene: Scene) -> Picture:
    old, new, faults = _shape(scene, scene.pair.old), _shape(scene, scene.pair.new), []
    retired = _shape(scene, scene.family.retired(scene.pair))
    kinds, final = scene.family.kinds, False
    if scene.family.same_name and old is not None and old.kind == kinds["new"]:
        if new is not None:
            faults.append("two new records, under the final and the staged name")
        old, new, final = None, old, True
    for which, shape, kind in (
        ("old", old, kinds["old"]),
        ("new", new, kinds["new"]),
        ("retired", retired, kinds["old"]),
    ):
        if shape is not None and shape.kind != kind:
            faults.append(f"the {which} shape is a {shape.kind}")
    phase, epoch, checksum = scene.do("HMGET", NAMES.marker(scene.module.id, b"0"), "phase", "epoch", "checksum")
    entry = scene.entry()
    states = [(entry.phase, entry.epoch), *([(entry.intent.phase, entry.intent.epoch)] if entry.intent else [])]
    agrees = (phase.decode(), int(epoch)) in states
    swept = phase == b"contracted" and not checksum
    beside = NAMES.beside("aside", scene.module.id).name(QUEUE, lambda _: b"0")
    indexes = jobs.indexes(scene.do, beside) if scene.move == "jobs" else None
    return Picture(phase.decode(), int(epoch), swept, entry.cleaning, agrees, old, new, final, retired, tuple(faults),
                   indexes)  # fmt: skip


def _shape(scene: Scene, key: bytes) -> Shape | None:
    kind = scene.do("TYPE", key).decode()
    if kind == "none":
        return None
    exact = _sorted(from_reply(kind, scene.do(*read_words(kind, key))))
    return Shape(kind, exact, _value(scene, kind, exact), scene.do("PEXPIRETIME", key))


def _sorted(value: Any) -> Any:
    return (
        tuple(sorted(value.items())) if isinstance(value, dict) else tuple(value) if isinstance(value, list) else value
    )


def _value(scene: Scene, kind: str, exact: Any) -> Value:
    """As the new shape has it; of another type, as it is."""
    if kind == scene.family.kinds["new"]:
        return exact if scene.by_member or scene.move == "jobs" else dict(exact).get(b"text")
    if kind != scene.family.kinds["old"]:
        return exact
    if scene.move == "jobs":
        return _sorted(scene.family.map_key(scene.pair, exact)[0])
    if scene.by_member:
        return tuple((name, float(number)) for name, number in exact)
    return exact.strip()


def saved_shapes(scene: Scene, purpose: str) -> list[Shape]:
    """What the backups made for that hold of the record, the newest last."""
    found: list[Shape] = []
    for path in sorted(scene.backup.rglob(f"*-{purpose}-*/{backup.MANIFEST}")):
        for line in backup.lines(path.parent):
            assert line.kind != "stream"
            exact = _sorted(from_items(line.kind, line.items))
            at = -1 if line.expires_at is None else line.expires_at
            found.append(Shape(line.kind, exact, _value(scene, line.kind, exact), at))
    return found


def saved(scene: Scene) -> list[Any]:
    """What the backups of all contracts hold of the record, exactly."""
    return [shape.exact for shape in saved_shapes(scene, "contract")]
