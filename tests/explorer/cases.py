"""Which actors are put together, and where they begin: pairs, and triples for a longer run."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product

from tests.explorer.case import Case
from tests.explorer.parts import AGAIN, LIST
from tests.explorer.scene import Scene

# What the tool can be at in each phase: `stage` is the next stage of `apply`, which ends with a phase change or, in
# `contracted`, is the sweep. A batch and a repair that belong to `expanded … verified` are also there, under the same
# lease, while the phase changes: a script can be delivered late.
TOOL: dict[str, tuple[str, ...]] = {
    "pending": ("stage",),
    "expanded": ("batch", "quick batch", "repair", "stage", "rollback to pending"),
    "backfilled": ("batch", "repair", "stage", "rollback to pending"),
    "verified": ("batch", "repair", "stage", "rollback to pending"),
    "switched": ("stage", "rollback to expanded"),
    "contracted": ("stage", "rollback to switched"),
    "swept": ("rollback to switched",),
    "reverting": ("stage", "rollback to switched"),
}
_WITH_TOOL = (("there", "set"), ("there", "delete"))
# What does not depend on how the names go is looked at with one move.
_BESIDES = {
    "swap": (("absent", "set"), ("there", "get")),
    "key": (("mortal", "set"), ("mortal", "persist"), ("there", "expire")),
    "members": (("absent", "set"), ("mortal", "set")),
}
_APPLICATIONS = (("set", "update"), ("set", "delete"), ("delete", "get"))


def pairs(move: str, phase: str) -> Iterator[Case]:
    for piece, (record, operation) in product(TOOL[phase], _WITH_TOOL + _BESIDES[move]):
        yield Case(move, phase, (piece, operation), record)
    for operations in _APPLICATIONS:
        yield Case(move, phase, operations)
    yield Case(move, phase, ("set", "delete"), "absent")
    yield from _two_of_the_tool(move, phase)
    yield from _without_adapter(move, phase)


def _two_of_the_tool(move: str, phase: str) -> Iterator[Case]:
    pieces = TOOL[phase]
    if "batch" in pieces:
        for other in pieces:
            yield Case(move, phase, ("batch", other), "mortal")
    if move == "key":
        yield from takeovers(move, phase)
    if phase == "pending":
        yield Case(move, phase, ("late init", "stage"))
    if phase == "expanded":
        yield Case(move, phase, ("second apply", "stage"))
    if phase not in ("pending", "swept"):
        yield Case(move, phase, ("stranger", "set"))
    if phase == "contracted":
        yield Case(move, phase, ("late removal", "there again"))


def takeovers(move: str, phase: str) -> Iterator[Case]:
    """Another process takes the lease over; the one before may only be stalled. What the two do to ledger and markers
    is the same for every move; two that go on afterwards are explored with the checks that stand against them."""
    pieces = TOOL[phase]
    for piece in {pieces[0]: None, pieces[-1]: None}:
        yield Case(move, phase, (piece, "takeover"))
    if phase == "expanded":
        yield Case(move, phase, ("stage", "takeover and stage"))


def _without_adapter(move: str, phase: str) -> Iterator[Case]:
    """Something without an adapter wrote last: the shapes differ until a repair."""
    if phase in ("expanded", "backfilled", "verified"):
        for change in (rewritten, deleted):
            for operation in ("set", "delete"):
                yield Case(move, phase, ("repair", operation), change=change)
        yield Case(move, phase, ("repair", "get"), "mortal", change=persisted)
        for part in ("set", "delete", "batch"):
            yield Case(move, phase, (part, "get"), change=old_is_a_list, odd=True)
            yield Case(move, phase, (part, "get"), change=new_is_a_list, odd=True)
        for part in ("batch", "quick batch"):
            yield Case(move, phase, (part, "old becomes a list"), change=list_beside, odd=True)
            yield Case(move, phase, (part, "new becomes a list"), change=list_beside, odd=True)
    if phase == "switched":
        for operation in ("set", "get"):
            yield Case(move, phase, ("misplaced batch", operation), change=rewritten, unsettled=True)
        for operation in ("set", "delete", "get"):
            for piece in TOOL[phase]:
                yield Case(move, phase, (piece, operation), "absent", change=written, unsettled=True)
    if phase == "swept" and move == "key":
        yield Case(move, phase, ("set", "get"), change=reused, reused=True)
    if phase == "contracted":
        for operation in ("set", "delete", "get"):
            yield Case(move, phase, ("stage", operation), "absent", change=written, unsettled=True)
        yield Case(move, phase, ("stage", "get"), change=set_aside_and_written, unsettled=True)


def triples(move: str, phase: str) -> Iterator[Case]:
    for piece in TOOL[phase]:
        for operations in combinations(("set", "update", "delete", "get"), 2):
            yield Case(move, phase, (piece, *operations))
        yield Case(move, phase, (piece, "set", "delete"), "absent")
        yield Case(move, phase, (piece, "set", "delete"), "mortal")
    for one, other in combinations(TOOL[phase], 2):
        if "batch" in (one, other):
            yield Case(move, phase, (one, other, "set"))
            yield Case(move, phase, (one, other, "delete"))
    yield Case(move, phase, ("set", "update", "delete"))


# What something without an adapter does.


def rewritten(scene: Scene) -> None:
    scene.old_write(b"alien ", b"09")


def written(scene: Scene) -> None:
    scene.old_write(b"alien ", b"09")


def reused(scene: Scene) -> None:
    scene.old_write(AGAIN, b"09")


def deleted(scene: Scene) -> None:
    scene.do("DEL", scene.pair.old)


def left_over(scene: Scene) -> None:
    """It was copied, and the old one is gone."""
    words = ("ZADD", scene.pair.new, 7, "a", 8, "z") if scene.by_member else ("HSET", scene.pair.new, "text", "left")
    scene.do(*words)
    deleted(scene)


def persisted(scene: Scene) -> None:
    scene.do("PERSIST", scene.pair.old)


def set_aside_and_written(scene: Scene) -> None:
    """Contract has begun: it lies retired already when something writes it anew."""
    scene.do("RENAME", scene.pair.old, scene.family.retired(scene.pair))
    written(scene)


def old_is_a_list(scene: Scene) -> None:
    _make_list(scene, scene.pair.old)


def new_is_a_list(scene: Scene) -> None:
    _make_list(scene, scene.pair.new)


def list_beside(scene: Scene) -> None:
    scene.do("RPUSH", LIST, "odd")


def _make_list(scene: Scene, key: bytes) -> None:
    scene.do("DEL", key)
    scene.do("RPUSH", key, "odd")


# Faults that are known: removals carry an epoch that goes on after them.
LATE_RETIRING = Case("key", "contracted", ("late retiring", "sweep and reuse"), reused=True)
LATE_CLEANING = Case("key", "verified", ("late cleaning", "rollback and reuse"), reused=True)
