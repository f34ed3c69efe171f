"""After a crash or a failover: the markers, never the ledger, say where a migration is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from migrator.engine.compare import compare
from migrator.engine.judge import FAULTS
from migrator.engine.outcome import Outcome
from migrator.engine.run import Run
from migrator.engine.walk import MarkersMovedError
from migrator.errors import DifferencesError, LedgerBackwardsError
from migrator.ledger import Intent
from migrator.phases import Marker, Phase

State = tuple[Phase, int]
_RECOVERIES = 5


def persist(run: Run, go: Callable[[], None]) -> None:
    """Goes on from where the markers are, also when they went back meanwhile.

    Raises LedgerBackwardsError where they keep going back.
    """
    for _ in range(_RECOVERIES):
        try:
            reconcile(run)  # first of all: where we are is what the markers say
            return go()
        except MarkersMovedError:
            run.note("a server was replaced while working; looking at the markers first")
    raise LedgerBackwardsError(
        f"{run.id}: markers keep going back", next="let the failovers settle, then run this again"
    )


def reconcile(run: Run) -> None:
    """Brings markers and ledger together before anything else is done. Does nothing where they agree."""
    markers, run.seen = run.seen or run.markers.raise_fence(run.lease.fence), None
    missing = [slot for slot, marker in markers.items() if marker is None]
    if missing:
        entry = run.entry
        run.markers.create(entry.phase, entry.epoch, run.lease.fence, entry.checksum, missing)
        markers = run.markers.read()
    states = {(m.phase, m.epoch) for m in markers.values() if m is not None}
    here: State = (run.entry.phase, run.entry.epoch)
    intent = run.entry.intent
    if states == {here}:
        if intent is not None:
            run.put(intent=None)  # the crash came before the first marker: nothing has happened
        return
    if intent is not None and states <= {here, (intent.phase, intent.epoch)}:
        _finish(run, markers, intent)
        return
    _behind(run, markers, states)


def _finish(run: Run, markers: dict[int, Marker | None], intent: Intent) -> None:
    """The crash came between the first marker and the ledger: the change is completed."""
    here = (run.entry.phase, run.entry.epoch)
    rest = [slot for slot, m in markers.items() if m is not None and (m.phase, m.epoch) == here]
    run.markers.set(run.lease.fence, here, (intent.phase, intent.epoch), intent.checksum, rest)
    run.settle(intent, detail="completed after a crash")


def _behind(run: Run, markers: dict[int, Marker | None], states: set[State]) -> None:
    """Some slots do not stand where the ledger has them: a failover lost writes, or the ledger itself went back."""
    top = max(run.entry.epoch, run.entry.intent.epoch if run.entry.intent else 0)
    ahead = [state for state in states if state[1] > top]
    if ahead:
        raise LedgerBackwardsError(
            f"{run.id}: the ledger says {run.entry.phase} (epoch {run.entry.epoch}), but a marker says "
            f"{ahead[0][0]} (epoch {ahead[0][1]}): the ledger went backwards",
            next="rebuild it with: migrator init --at markers --yes",
        )
    run.observer.say(f"{run.id}: markers went back in a failover; repeating the steps they lost")
    if run.entry.phase in ("expanded", "backfilled", "verified"):
        _walk_again(run, markers)
    elif run.entry.phase in ("switched", "contracted"):
        _compare_again(run, markers)
    else:
        _set_forward(run, markers)


def _walk_again(run: Run, markers: dict[int, Marker | None]) -> None:
    """Before the switch the old shape is whole: every slot to `expanded`, walked and verified again."""
    # Above that of a change that was under way too: some slots may have come to it already.
    epoch = max(run.entry.epoch, run.entry.intent.epoch if run.entry.intent else 0) + 1
    intent = Intent(phase="expanded", epoch=epoch, checksum=run.entry.mapping)
    run.put(intent=intent)
    _set(run, markers, (intent.phase, epoch), intent.checksum)
    run.settle(intent, detail="markers went back in a failover: walking again")


def _compare_again(run: Run, markers: dict[int, Marker | None]) -> None:
    """Slots that missed a step are compared before they are set: nothing is lost that both shapes still have."""
    here = (run.entry.phase, run.entry.epoch)
    slots = {slot for slot, m in markers.items() if m is not None and (m.phase, m.epoch) != here}
    # Where `contracted` was said already, the new shape is the truth, and there need be no old one to compare with.
    doubtful = {slot for slot in slots if (m := markers[slot]) is not None and m.phase != "contracted"}
    counts = compare(run, Outcome(slots=doubtful), "compare-failover") if doubtful else Counter[str]()
    wrong = sum(counts[fault] for fault in FAULTS)
    if wrong:
        raise DifferencesError(
            f"{run.id}: a failover took {len(slots)} slots back from {run.entry.phase}; {wrong} records in them differ",
            next=f"look at them with: migrator verify {run.module.number}",
        )
    _set(run, {slot: markers[slot] for slot in slots}, here, run.entry.checksum)
    run.make_durable(*here, run.entry.checksum)
    run.put("recovered", f"{len(slots)} slots compared again and set to {run.entry.phase}",
            run.ledger.forget_words(run.id), intent=None, swept=False)  # fmt: skip


def _set_forward(run: Run, markers: dict[int, Marker | None]) -> None:
    """On the way back every step of the phase is repeated from its start anyway."""
    here = (run.entry.phase, run.entry.epoch)
    behind = {slot: m for slot, m in markers.items() if m is not None and (m.phase, m.epoch) != here}
    _set(run, behind, here, run.entry.checksum)
    run.make_durable(*here, run.entry.checksum)
    run.put("recovered", f"{len(behind)} slots set to {run.entry.phase}", run.ledger.forget_words(run.id),
            intent=None, cleaning=run.entry.cleaning or run.entry.phase == "pending")  # fmt: skip


def _set(run: Run, markers: Mapping[int, Marker | None], to: State, checksum: str) -> None:
    groups: dict[State, list[int]] = {}
    for slot, marker in markers.items():
        if marker is not None:
            groups.setdefault((marker.phase, marker.epoch), []).append(slot)
    for source, slots in groups.items():
        run.markers.set(run.lease.fence, source, to, checksum, slots)
