"""What the tool does on the operator's word alone: restore, and settling what is foreign."""

from __future__ import annotations

from collections.abc import Iterator

from tests.explorer import cases, cases_jobs
from tests.explorer.case import Case
from tests.explorer.scene import Change, Scene

_WRITES = {
    "key": ("set", "delete"),
    "swap": ("set", "delete"),
    "members": ("set", "delete"),
    "jobs": ("claim", "update", "delete"),
}
_ABSENT = {"jobs": ("create", "claim")}


def restores(move: str, phase: str) -> Iterator[Case]:
    for operation in (*_WRITES[move], "get"):
        yield Case(move, phase, ("restore", operation))
    for operation in _ABSENT.get(move, ("set",)):
        yield Case(move, phase, ("restore", operation), "absent")
    if move in ("key", "members"):
        yield Case(move, phase, ("restore", "get"), "mortal")
        # Where both shapes have one name, what is removed late would be the record itself, before it is saved.
        yield Case(move, phase, ("restore", "late discard"))
    if phase == "reverting" and move != "jobs":
        yield Case(move, phase, ("restore", "get"), change=contracted_again)


def restores_taken_over(phase: str) -> Iterator[Case]:
    """It is the same for every move."""
    yield Case("key", phase, ("restore", "takeover"))
    yield Case("key", phase, ("restore", "takeover and restore"))


def foreign(move: str) -> Iterator[Case]:
    for truth in ("foreign old", "foreign new"):
        for record, change in (("there", rewritten), ("there", cases.deleted), ("absent", written)):
            for operation in (*_WRITES[move], "get"):
                yield _case(move, (truth, operation), record, change)
        yield _case(move, (truth, "old write"), "there", rewritten)
        yield _case(move, (truth, "old write"), "there", cases.deleted)
        yield _case(move, (truth, "rollback to expanded"), "there", rewritten)
        yield _case(move, (truth, "get"), "mortal", cases.persisted)
        if move == "key":
            yield _case(move, (truth, "takeover"), "there", rewritten)
    for operation in _ABSENT.get(move, ("set",)):
        yield _case(move, ("old write", operation), "absent", None)


def _case(move: str, parts: tuple[str, ...], record: str, change: Change | None) -> Case:
    return Case(move, "switched", parts, record, change=change, unsettled=True)


# What something without an adapter did.


def rewritten(scene: Scene) -> None:
    if scene.move == "jobs":
        cases_jobs.rewritten(scene)
    else:
        cases.rewritten(scene)


def written(scene: Scene) -> None:
    if scene.move == "jobs":
        cases_jobs.written(scene)
    else:
        cases.written(scene)


def contracted_again(scene: Scene) -> None:
    """A newer record, and the way back given up: it is set aside, and an older one lies in the same backup."""
    scene.old_write(b"newer ", b"07")
    words = (
        ("ZADD", scene.pair.new, 7, "a") if scene.by_member else ("HSET", scene.pair.new, "id", "1", "text", "newer")
    )
    scene.do(*words)
    scene.successor().change("contracted", swept=False)
