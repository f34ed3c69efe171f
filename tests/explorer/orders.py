"""In which order operations can have happened, given what each answered; and what that order leaves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from migrator.adapters import Unmoved
from migrator.errors import RefusedError
from tests.explorer import jobs_operations
from tests.explorer.operations import MEMBERS, RECORDS, After, Operation, WrongAnswerError

JOBS = {one.name: one for one in jobs_operations.OPERATIONS}


def operations(move: str) -> dict[str, Operation]:
    return {"members": MEMBERS, "jobs": JOBS}.get(move, RECORDS)


@dataclass(frozen=True)
class Done:
    """Something that is over: what follows from it, its answer or error, and the first and the last step of it.
    `certain`: it was not cut off, so all of it has happened. `passes`: it may have been answered that the record is
    unmoved, for the old shape was not the truth."""

    name: str
    after: After
    answer: object
    first: int
    last: int
    writes: bool = False
    certain: bool = True
    passes: bool = True

    def before(self, other: Done) -> bool:
        return self.last < other.first


def outcomes(record: Any, done: Sequence[Done], *, unsettled: bool, odd: bool) -> set[Any]:
    """Every record that one order of these can leave, which keeps to what was over before what, and in which each
    gives the answer it gave. Empty if there is none: then the answers contradict each other.

    `unsettled`: an application without an adapter wrote it after the switch, so it may be answered to be unmoved, and
    is then as it was. `odd`: one of its keys has another type, so an operation may be refused.
    """
    found: set[Any] = set()
    for order in _orders(done):
        now = record
        try:
            for one in order:
                passes = (unsettled and one.passes and unmoved(one.answer)) or (
                    odd and isinstance(one.answer, RefusedError)
                )
                now = now if passes else one.after(now, one.answer)
        except WrongAnswerError:
            continue
        found.add(now)
    return found


def unmoved(answer: object) -> bool:
    return isinstance(answer, Unmoved) or jobs_operations.passed_over(answer)


def _orders(done: Sequence[Done]) -> Iterator[Sequence[Done]]:
    certain = [one for one in done if one.certain]
    for happened in [done, certain] if len(certain) < len(done) else [done]:
        for order in permutations(happened):
            if not any(later.before(one) for i, one in enumerate(order) for later in order[i + 1 :]):
                yield order
