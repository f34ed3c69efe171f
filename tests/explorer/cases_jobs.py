"""Which actors work on one job: applications with each other, and with the tool."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from tests.explorer import jobs
from tests.explorer.case import Case
from tests.explorer.cases import TOOL
from tests.explorer.jobs import ID, QUEUE, RUNNING
from tests.explorer.scene import Scene

OLD_IS_TRUE = ("expanded", "backfilled", "verified")
# Each operation on a job that it is meant for.
_ALONE = (
    ("absent", "create"), ("there", "claim"), ("there", "update"), ("there", "delete"), ("there", "get"),
    ("running", "complete"), ("running", "recover"), ("mortal", "cancel"),
)  # fmt: skip
_TOGETHER = {
    "absent": (("create", "create"), ("create", "claim"), ("create", "delete")),
    "there": (
        ("claim", "other claim"), ("claim", "update"), ("claim", "cancel"), ("claim", "delete"), ("claim", "get"),
        ("update", "other update"), ("update", "delete"), ("claim", "create"),
    ),
    "running": (
        ("complete", "recover"), ("complete", "update"), ("complete", "delete"), ("complete", "cancel"),
        ("fail", "claim"), ("recover", "other claim"),
    ),
}  # fmt: skip


# Three: its worker comes back when it is another's; and while recovery looks, it is given back and claimed anew.
THREE = (("recover", "other claim", "complete"), ("recover", "fail", "other claim"))


def tool(phase: str) -> tuple[str, ...]:
    return (*TOOL[phase], "index repair") if phase in OLD_IS_TRUE else TOOL[phase]


def pairs(phase: str) -> Iterator[Case]:
    yield from _with_tool(phase, tool(phase))
    for record, groups in _TOGETHER.items():
        yield from (Case("jobs", phase, operations, record) for operations in groups)
    if phase not in ("pending", "swept"):
        yield Case("jobs", phase, ("stranger", "claim"))
    if phase in ("pending", "swept"):
        yield from (Case("jobs", phase, three, "running") for three in THREE)
    yield from _without_adapter(phase)


def chosen(phase: str) -> Iterator[Case]:
    """Fewer of them: `verified` differs from `expanded` only in its next stage; and beside a rollback from contract,
    which takes long, one operation stands for those like it."""
    if phase == "verified":
        yield from _with_tool(phase, ("stage",))
        return
    alike = {"update", "get", "cancel", "recover"} if phase in ("swept", "reverting") else set[str]()
    yield from (case for case in pairs(phase) if "rollback to switched" not in case.parts or not alike & {*case.parts})


def _with_tool(phase: str, pieces: tuple[str, ...]) -> Iterator[Case]:
    for piece in pieces:
        for record, operation in _ALONE:
            yield Case("jobs", phase, (piece, operation), record)


def _without_adapter(phase: str) -> Iterator[Case]:
    if phase in OLD_IS_TRUE:
        yield Case("jobs", phase, ("old claim", "claim"))
        for operation in ("claim", "update", "delete"):
            yield Case("jobs", phase, ("repair", operation), change=rewritten)
            yield Case("jobs", phase, ("index repair", operation), change=unqueued)
        yield Case("jobs", phase, ("index repair", "cancel"), change=unqueued)
        yield Case("jobs", phase, ("repair", "claim"), change=deleted)
        yield Case("jobs", phase, ("claim", "hasten"), change=too_early)
        for operation in ("complete", "recover", "delete"):
            yield Case("jobs", phase, ("index repair", operation), "running", change=queued_still)
    if phase in ("switched", "contracted"):
        for operation in ("claim", "update", "delete", "create", "get"):
            for piece in TOOL[phase]:
                if (phase, piece) != ("contracted", "rollback to switched"):
                    yield Case("jobs", phase, (piece, operation), "absent", change=written, unsettled=True)


def triples(phase: str) -> Iterator[Case]:
    for piece in tool(phase):
        for one, other in combinations(("claim", "update", "delete"), 2):
            yield Case("jobs", phase, (piece, one, other))
        yield Case("jobs", phase, (piece, "claim", "other claim"))
        yield Case("jobs", phase, (piece, "complete", "recover"), "running")
        yield Case("jobs", phase, (piece, "create", "claim"), "absent")
    yield Case("jobs", phase, ("claim", "other claim", "cancel"))
    yield from (Case("jobs", phase, three, "running") for three in THREE)


# What something without an adapter does.


def written(scene: Scene) -> None:
    jobs.lay(scene.do, scene.pair.old, name="alien")


def rewritten(scene: Scene) -> None:
    scene.do("SET", scene.pair.old, jobs.text(name="alien"))


def deleted(scene: Scene) -> None:
    """Its place in the queue stays: a ghost."""
    scene.do("DEL", scene.pair.old)


def unqueued(scene: Scene) -> None:
    """It died between taking the job off the queue and writing it."""
    scene.do("ZREM", QUEUE, ID)


def too_early(scene: Scene) -> None:
    """Not due for an hour, but the queue says it is."""
    until = "2030-03-17T18:46:40Z"
    scene.do("SET", scene.pair.old, jobs.text(status=200, retryDelayUntil=until))


def queued_still(scene: Scene) -> None:
    """Of a job in progress: in the wrong index."""
    scene.do("ZADD", QUEUE, jobs.CREATED, ID)
    scene.do("ZREM", RUNNING, ID)
