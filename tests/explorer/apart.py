"""After the switch something without an adapter writes the old shape: what each step leaves of the two shapes then.

In such a case the record of an order is both: the new shape, which is the truth, and the old one where it differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from migrator.adapters import Deleted, Done, Removed, Written
from tests.explorer.jobs_operations import shape_of, with_shape
from tests.explorer.operations import After, Operation, Record, sure
from tests.explorer.orders import unmoved
from tests.explorer.picture import OLD_IS_TRUE, Picture, Shape, picture, saved_shapes
from tests.explorer.scene import Scene

PARTS = ("foreign old", "foreign new", "old write")


class Same(Enum):
    """The old shape is what the new one is."""

    SAME = "same"


@dataclass(frozen=True)
class Apart:
    """`old`: (value, expiry) of the old shape alone, None if there is none."""

    new: Any
    old: Any


def start(new: Record, before: Picture) -> Apart:
    same = before.old.agrees(before.new) if before.old else before.new is None
    return Apart(new, Same.SAME if same else _plain(before.old))


def _plain(shape: Shape | None) -> Record:
    return (shape.value, shape.expires) if shape else None


def lifted(one: Operation) -> After:
    """An adapter writes both shapes, or neither: what only the old one has is unmoved, and stays."""

    def after(both: Any, answer: Any) -> Any:
        if shape_of(both.new) is None and isinstance(both.old, tuple):
            sure(unmoved(answer))
            return both
        wrote = one.writes and isinstance(answer, (Written, Removed, Done, Deleted))
        return Apart(one.after(both.new, answer), Same.SAME if wrote else both.old)

    return after


def effect(scene: Scene, name: str) -> After:
    """What is overwritten or removed is saved."""

    def written(both: Any, _: object) -> Any:
        return Apart(both.new, _plain(late(scene)))

    def settled(both: Any, _: object) -> Any:
        if both.old is Same.SAME:
            return both
        saved = [None, *(shape.value for shape in saved_shapes(scene, name.replace(" ", "-")))]
        if name == "foreign old":
            sure(_value(shape_of(both.new)) in saved)
            return Apart(with_shape(both.new, both.old), Same.SAME)
        if shape_of(both.new) is None:
            return both
        sure(_value(both.old) in saved)
        return Apart(both.new, Same.SAME)

    return written if name == "old write" else settled


def late(scene: Scene) -> Shape | None:
    """What the piece "old write" leaves of the old shape."""
    kept = scene.server.keep()
    scene.do(*scene.late_words())
    shape = picture(scene).old
    scene.server.put_back(kept)
    return shape


def _value(shape: Record) -> Any:
    return shape[0] if shape else None


def fits(both: Apart, end: Picture, new: Record) -> bool:
    """Whether the shapes are like that. Back before the switch the old one is the truth, and the new one may be old."""
    if both.old is Same.SAME:
        return new == both.new and (end.old.agrees(end.new) if end.old else end.new is None)
    if end.phase in OLD_IS_TRUE:
        return bool(_plain(end.old) == both.old)
    return bool(new == both.new and _plain(end.old) == both.old)
