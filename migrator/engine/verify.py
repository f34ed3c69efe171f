"""Verify: all is compared, or a sample, or what a budget of time allows; on request differences are settled."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from migrator.engine import recover
from migrator.engine.compare import compare, evidence
from migrator.engine.copy import FORWARD
from migrator.engine.foreign import settle
from migrator.engine.judge import HAS_GROWN, Difference
from migrator.engine.outcome import EXAMPLES, Outcome
from migrator.engine.run import Run
from migrator.engine.session import Session
from migrator.engine.walk import MarkersMovedError, check_markers
from migrator.errors import (
    DifferencesError,
    IncompleteError,
    QuarantineError,
    RefusedError,
    StoppedByLoadError,
    UsageError,
)
from migrator.ledger import Entry
from migrator.models import DIFFERENCES, FAULTS, DifferenceResult, Stopped, VerifyResult, show

_COUNTED = {"compared", *FAULTS}


def verify(
    session: Session,
    id: str,
    *,
    sample: float = 1.0,
    budget: float | None = None,
    repair: bool = False,
    foreign: Literal["old", "new"] | None = None,
) -> VerifyResult:
    """Compares everything, or a sample, or what a budget of seconds allows; then it is not complete."""
    module = session.modules.find(id)
    known = session.ledger.entries()
    entry = (known or {}).get(module.id) or Entry(id=module.id)
    if entry.phase in ("contracted", "closed"):
        raise RefusedError(f"{module.id} is {entry.phase}: there is only one shape to look at",
                           next="see where it stands with: migrator status")  # fmt: skip
    if repair and foreign is not None:
        raise UsageError("--repair is for before the switch, --foreign for after it", next="leave one of the two away")
    if known is None:
        session.check_markers()
    session.check_drift(known or {})  # under other names all would be clean, as nothing is there
    if not repair and foreign is None:
        try:
            return _look(session.reader(module, entry), sample, budget)
        except MarkersMovedError:
            raise IncompleteError(f"{module.id}: markers moved while comparing",
                                  next="run it again; where it stands says: migrator status") from None  # fmt: skip
    with session.leased() as lease:
        session.init(lease)
        run = session.run(lease, module)
        return recover.persist(run, lambda: _mended(run, sample, budget, foreign))


def _look(run: Run, sample: float, budget: float | None) -> VerifyResult:
    """Without the lease another process may change the phase meanwhile; what is found then is no difference.

    Raises MarkersMovedError.
    """
    marked = None not in run.markers.read().values()  # else it was never applied, or some of them are lost
    result = _verify(run, Outcome(), sample, budget)
    if marked:
        check_markers(run)
    return result


def _mended(run: Run, sample: float, budget: float | None, foreign: Literal["old", "new"] | None) -> VerifyResult:
    """After a repair, or after the side that is right was settled."""
    settled = _settled(run, foreign) if foreign is not None else None
    before = run.client.fingerprint()
    if settled is not None and settled.stopped is not None:
        result = settled
    else:
        result = _verify(run, Outcome() if foreign is not None else _repairing(run), sample, budget)
    what = "verify --repair" if foreign is None else f"verify --foreign {foreign}"
    found = {"comparison": evidence(run, before, Counter(result.model_dump(include=_COUNTED)))}
    # What an interrupted apply has counted before is not so any more.
    earlier = run.ledger.forget_words(run.id, "compare")
    run.put(what, f"{result.repaired} repaired", earlier, **(found if result.complete else {}))
    return result


def _settled(run: Run, truth: Literal["old", "new"]) -> VerifyResult:
    """What was found to be settled; where it is stopped, some of that is not."""
    outcome = Outcome()
    return _result(run, outcome, lambda: settle(run, truth, outcome))


def _repairing(run: Run) -> Outcome:
    if run.entry.phase not in FORWARD.phases:
        raise RefusedError(f"{run.id} is {run.entry.phase}: repairs run from the old shape, before the switch",
                           next="in switched, settle a difference with --foreign old or --foreign new")  # fmt: skip
    return Outcome(repair=FORWARD, drop_extras=not run.entry.adopted or run.options.yes)


def _verify(run: Run, outcome: Outcome, sample: float, budget: float | None) -> VerifyResult:
    outcome.share = sample
    outcome.until = time.monotonic() + budget if budget is not None else None
    return _result(run, outcome, lambda: compare(run, outcome, "verify"))


def _result(run: Run, outcome: Outcome, work: Callable[[], Counter[str]]) -> VerifyResult:
    """What a comparison counted, also where it is stopped on its way."""
    stopped = None
    try:
        counts = work()
    except (StoppedByLoadError, QuarantineError) as error:
        outcome.cut_short, counts = True, outcome.counts()
        stopped = Stopped(id=run.id, phase=run.entry.phase, exit=error.exit_code, reason=error.message,
                          next=error.next)  # fmt: skip
    complete = outcome.share >= 1.0 and not outcome.cut_short
    return VerifyResult(
        id=run.id, complete=complete, compared=counts["compared"], missing=counts["missing"], extra=counts["extra"],
        different=counts["different"], ttl_drift=counts["ttl_drift"], unreadable=counts["unreadable"],
        examples=tuple(_difference(d) for d in outcome.examples[:EXAMPLES]), repaired=counts["repaired"],
        next=_after_verify(run, counts, outcome.examples), stopped=stopped,
    )  # fmt: skip


def _after_verify(run: Run, counts: Mapping[str, int], examples: Sequence[Difference]) -> str:
    number, phase = run.module.number, run.entry.phase
    if not any(counts[fault] for fault in FAULTS):
        return ""
    if phase == "pending":
        return f"migrator apply {number}"
    if not any(counts[fault] for fault in DIFFERENCES):
        return f"migrator quarantine list {number}"
    if phase == "switched":
        differ = [d for d in examples if d.verdict in DIFFERENCES]
        if differ and all(d.why == HAS_GROWN for d in differ):  # --foreign could neither save it nor map it
            return f"move or remove that key by hand: {show(differ[0].pair.new)}; then: migrator verify {number}"
        return f"migrator verify {number} --foreign SIDE --backup DIR"  # which side is right, only a person knows
    if phase == "reverting":
        return f"migrator rollback {number} --to switched --backup DIR --yes"
    # What an adopted target holds may be somebody's, and is removed on the operator's word only.
    return f"migrator verify {number} --repair{' --yes' if run.entry.adopted and counts['extra'] else ''}"


def verify_exit(result: VerifyResult) -> int:
    if result.differs:
        return DifferencesError.exit_code
    if result.unreadable:
        return QuarantineError.exit_code
    if result.stopped is not None:
        return result.stopped.exit
    return 0 if result.complete else 31


def _difference(d: Difference) -> DifferenceResult:
    member = None if d.member is None else show(d.member)
    return DifferenceResult(key=show(d.pair.old), member=member, verdict=d.verdict, why=d.why)
