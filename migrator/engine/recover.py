"""After a crash or a failover: the markers, never the ledger, say where a migration is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from migrator.engine import dump
from migrator.engine.adopt import UNKNOWN, has_adopted, slots_to_clean
from migrator.engine.compare import compare
from migrator.engine.guards import to_pending
from migrator.engine.judge import Difference
from migrator.engine.lasting import never_through
from migrator.engine.outcome import Outcome
from migrator.engine.run import Run
from migrator.engine.saving import open_backup
from migrator.engine.walk import MarkersMovedError
from migrator.errors import DifferencesError, FencedError, LedgerBackwardsError, RefusedError
from migrator.ledger import Intent
from migrator.models import FAULTS, number_of, show
from migrator.phases import FenceTakenError, Marker, Phase
from migrator.snapshot.backup import Backup

T = TypeVar("T")
State = tuple[Phase, int]
_RECOVERIES = 5
_OLD_IS_WHOLE: frozenset[Phase] = frozenset({"pending", "expanded", "backfilled", "verified"})
_OLD_IS_NOT: frozenset[Phase] = frozenset({"contracted", "reverting"})
_SWITCHED: frozenset[Phase] = frozenset({"switched"})
# In slots that are behind a phase, and stand in these, records may differ: the new shape is the truth in both, and the
# phase looks at the old one again, or has no need of it.
_SURE: dict[Phase, frozenset[Phase]] = {"switched": _SWITCHED, "contracted": _OLD_IS_NOT}


def persist(run: Run, go: Callable[[], T], *, back: bool = False) -> T:
    """What `go` returns. Goes on from where the markers are, also when they went back meanwhile. `back`: see
    `reconcile`.

    Raises UnreachableError where servers are replaced again and again in one phase, so that no step of it gets through.
    """
    replaced: Counter[Phase] = Counter()
    while True:
        try:
            reconcile(run, back=back)  # first of all: where we are is what the markers say
            return go()
        except MarkersMovedError:
            phase = run.entry.phase
            replaced[phase] += 1
            if replaced[phase] == _RECOVERIES:
                raise never_through(run, f"{_RECOVERIES} times since it was {phase}") from None
            run.note("a server was replaced while working; looking at the markers first")


def reconcile(run: Run, *, back: bool = False) -> None:
    """Brings markers and ledger together before anything else is done. Does nothing where they agree.

    `back`: what follows is a rollback or a restore, so records that differ are no reason to stop where it settles them.
    Raises DifferencesError where they are, LedgerBackwardsError where a marker is ahead, MarkersMovedError.
    """
    markers, run.seen = run.seen or _fenced(run), None
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
    _behind(run, markers, states, back=back)


def _fenced(run: Run) -> dict[int, Marker | None]:
    """The markers, once they know nobody else. Raises FencedError where another process was faster."""
    try:
        return run.markers.raise_fence(run.lease.fence)
    except FenceTakenError:
        raise FencedError(
            f"{run.id}: another process took over the lease; this one stops without another write",
            next="see who holds it with: migrator lock show",
        ) from None


def _finish(run: Run, markers: dict[int, Marker | None], intent: Intent) -> None:
    """The crash came between the first marker and the ledger: the change is completed."""
    here = (run.entry.phase, run.entry.epoch)
    rest = [slot for slot, m in markers.items() if m is not None and (m.phase, m.epoch) == here]
    run.markers.set(run.lease.fence, here, (intent.phase, intent.epoch), intent.checksum, rest)
    run.settle(intent, detail="completed after a crash")


def _behind(run: Run, markers: dict[int, Marker | None], states: set[State], *, back: bool) -> None:
    """Some slots do not stand where the ledger has them: a failover lost writes, or the ledger itself went back."""
    top = max(run.entry.epoch, run.entry.intent.epoch if run.entry.intent else 0)
    ahead = [state for state in states if state[1] > top]
    if ahead:
        raise LedgerBackwardsError(
            f"{run.id}: the ledger says {run.entry.phase} (epoch {run.entry.epoch}), but a marker says "
            f"{ahead[0][0]} (epoch {ahead[0][1]}): the ledger went backwards",
            next=f"rebuild it with: migrator init {run.module.number} --at markers [--backup DIR] --yes",
        )
    run.observer.say(f"{run.id}: markers went back in a failover; repeating the steps they lost")
    if run.entry.phase in ("expanded", "backfilled", "verified"):
        _walk_again(run, markers)
    elif run.entry.phase in _SURE:
        _compare_again(run, markers, back=back)
    else:
        _set_forward(run, markers)


def _walk_again(run: Run, markers: dict[int, Marker | None], **changes: bool) -> None:
    """Before the switch the old shape is whole: every slot to `expanded`, walked and verified again."""
    _all_to(run, markers, "expanded", "markers went back in a failover: walking again", **changes)


def _all_to(run: Run, markers: dict[int, Marker | None], phase: Phase, detail: str, **changes: bool) -> None:
    # Above the epoch of a change that was under way too: some slots may have come to it already.
    epoch = max(run.entry.epoch, run.entry.intent.epoch if run.entry.intent else 0) + 1
    checksum = run.entry.model_copy(update={"phase": phase}).checksum
    intent = Intent(phase=phase, epoch=epoch, checksum=checksum, changes={**changes})
    run.put(intent=intent)
    _set(run, markers, (phase, epoch), intent.checksum)
    run.settle(intent, what="recovered", detail=detail)


def _compare_again(run: Run, markers: dict[int, Marker | None], *, back: bool) -> None:
    """Slots that missed a step are compared before they are set: nothing is lost that both shapes still have.

    Those that came further than the ledger stay there, and the change that was under way is completed: where a marker
    says `contracted`, the old shape is frozen or gone, and no other phase may take it for whole.
    """
    entry, here, intent = run.entry, (run.entry.phase, run.entry.epoch), _begun(run, markers)
    come = {here} if intent is None else {here, (intent.phase, intent.epoch)}
    behind = {slot: m for slot, m in markers.items() if m is not None and (m.phase, m.epoch) not in come}
    goal = entry.phase if intent is None or intent.phase != "contracted" else intent.phase
    doubtful = {slot: m.phase for slot, m in behind.items() if m.phase not in _SURE[goal]}
    saving = _OldSaved(run) if back and goal == "contracted" and set(doubtful.values()) <= _SWITCHED else None
    found = Outcome(slots=set(doubtful), each=saving.take if saving else None)
    counts = compare(run, found, "compare-failover") if doubtful else {}
    wrong = sum(counts.get(fault, 0) for fault in FAULTS)
    if saving is not None:
        saving.finish(wrong)
    elif wrong and _turned_back(run, markers, goal, doubtful, wrong, found.examples, back=back):
        return
    # Written down before the first marker is set: nothing else tells later that these slots are to be swept as well.
    if intent is not None and intent.phase == "contracted":
        undone = {"swept": False, "saved": False}
        intent = intent.model_copy(update={"checksum": entry.mapping, "changes": intent.changes | undone})
    run.put("recovered", f"{number_of(len(behind), 'slot')} looked at again and set to {entry.phase}",
            run.ledger.forget_words(run.id), intent=intent, swept=False)  # fmt: skip
    _set(run, behind, here, run.entry.checksum)
    if intent is None:
        run.make_durable(*here, run.entry.checksum)
    else:
        _finish(run, run.markers.read(), intent)


def _begun(run: Run, markers: Mapping[int, Marker | None]) -> Intent | None:
    """The change that was under way, if it has come to any marker; else nothing has happened of it."""
    intent = run.entry.intent
    states = {(m.phase, m.epoch) for m in markers.values() if m is not None}
    return intent if intent is not None and (intent.phase, intent.epoch) in states else None


def _turned_back(
    run: Run,
    markers: dict[int, Marker | None],
    goal: Phase,
    doubtful: Mapping[int, Phase],
    wrong: int,
    examples: Sequence[Difference],
    *,
    back: bool,
) -> bool:
    """Records differ in slots that a failover took back: True if all slots went to a phase whose steps settle that.
    Raises DifferencesError where the operator has to choose."""
    where, number = set(doubtful.values()), run.module.number
    if goal == "switched" and where <= _OLD_IS_NOT and _begun(run, markers) is None:
        # Of an earlier way back: the new shape is the truth everywhere, the old one is to be rebuilt.
        _all_to(run, markers, "reverting", "markers went back in a failover: rebuilding again", rolled_back=True)
        return True
    if goal == "switched" and where <= _OLD_IS_WHOLE:
        if back:
            _walk_again(run, markers, rolled_back=True)
            return True
        way = f"go back with: migrator rollback {number} --to expanded --yes"
    elif goal == "contracted" and where <= _SWITCHED:
        way = f"go back with: migrator rollback {number} --to switched --backup DIR --yes (the new shape counts)"
    else:
        way = "make both shapes of each alike by hand, then run the same command again"
    raise DifferencesError(
        f"{run.id}: a failover took {number_of(len(doubtful), 'slot')} back from {goal} to "
        f"{', '.join(sorted(where))}; {number_of(wrong, 'record')} in them differ, "
        f"for instance {show(examples[0].pair.old)}",
        next=way,
    )


class _OldSaved:
    """What differs where the way back makes the old record follow the new one, as `verify --foreign new` would: saved
    first, as it does."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._saving: Backup | None = None
        self._collections: set[bytes] = set()

    def take(self, found: Sequence[Difference]) -> None:
        """Raises RefusedError without a directory to save to."""
        run = self._run
        for family in run.families:
            kind = family.kinds["old"]
            for name in dict.fromkeys(d.pair.old for d in found if family.from_old(d.pair.old) is not None):
                if name in self._collections or run.client.one(name, "TYPE", name).decode() != kind:
                    continue
                if family.by_member:
                    self._collections.add(name)  # its members come in many batches, and it is saved whole
                for line in dump.record(run, kind, name, by_member=family.by_member):
                    self._into().write(line)
            run.tick()
        if self._into().full:
            self._into().commit()

    def _into(self) -> Backup:
        if self._saving is None:
            run, base = self._run, self._run.options.backup
            if base is None:
                raise RefusedError(f"{run.id}: the way back overwrites old records that differ",
                                   next="add --backup DIR, where they are saved first")  # fmt: skip
            self._saving = open_backup(run, base, "foreign-new", run.entry.epoch)
        return self._saving

    def finish(self, wrong: int) -> None:
        if self._saving is not None:
            self._saving.finish()
            told = f"{number_of(wrong, 'difference')} after a failover: the old records are saved in"
            self._run.note(f"{told} {self._saving.directory.name}")


def _set_forward(run: Run, markers: dict[int, Marker | None]) -> None:
    """In `pending`, `reverting` and `closed` every step of the phase is repeated from its start anyway.

    Slots that came further than the ledger stay there if the change that was under way is true of the others too; else
    all repeat the phase, above an epoch that some have seen.
    """
    here, intent = (run.entry.phase, run.entry.epoch), _begun(run, markers)
    come = {here} if intent is None else {here, (intent.phase, intent.epoch)}
    behind = {slot: m for slot, m in markers.items() if m is not None and (m.phase, m.epoch) not in come}
    told = f"{number_of(len(behind), 'slot')} set to {run.entry.phase}"
    refused = _clean_again(run, markers, behind, intent) if run.entry.phase == "pending" else None
    if intent is not None and not (intent.phase == "contracted" and {m.phase for m in behind.values()} <= _OLD_IS_NOT):
        _all_to(run, markers, run.entry.phase, f"markers went back in a failover: {told}")
    else:
        # Written down before the first marker is set: nothing else tells later which slots went back.
        run.put("recovered", told, run.ledger.forget_words(run.id), intent=intent)
        _set(run, behind, here, run.entry.checksum)
        if intent is None:
            run.make_durable(*here, run.entry.checksum)
        else:
            _finish(run, run.markers.read(), intent)
    if refused is not None:
        raise refused


def _clean_again(
    run: Run, markers: Mapping[int, Marker | None], behind: Mapping[int, Marker], intent: Intent | None
) -> RefusedError | None:
    """Where slots went back, the new shape may be there again, and what was adopted as the migration had made it: to be
    removed there, and nowhere else. Returns what asks for the operator's word, if nobody has given it yet."""
    entry, slots = run.entry, set(behind)
    if intent is not None and intent.phase != "pending":  # adapters wrote the new shape there already
        slots |= {slot for slot, m in markers.items() if m is not None and m.epoch == intent.epoch}
    cleaned = intent is not None and intent.changes.get("cleaning") is False
    if entry.cleaning and not cleaned:
        slots |= slots_to_clean(entry) or set(markers)
    unsure = {slot for slot, m in behind.items() if m.phase in _OLD_IS_NOT or m.phase == "closed"}
    if unsure:
        run.note(f"{number_of(len(unsure), 'slot')} went back to where the old shape may not be whole: what the new "
                 "shape has there is left")  # fmt: skip
    slots -= unsure
    if not slots:
        return None
    asked = entry.cleaning
    run.put(
        cleaning=True, slots_to_clean="" if slots == set(markers) else ",".join(map(str, sorted(slots))),
        adopted=entry.adopted or (UNKNOWN if has_adopted(run) else ""),
    )  # fmt: skip
    return None if asked else RefusedError(
        f"{run.id}: a failover took {number_of(len(behind), 'slot')} back to before it was rolled back; what the new "
        "shape has there is to be removed again",
        next=to_pending(run.entry, run.module.number),
    )  # fmt: skip


def _set(run: Run, markers: Mapping[int, Marker | None], to: State, checksum: str) -> None:
    groups: dict[State, list[int]] = {}
    for slot, marker in markers.items():
        if marker is not None:
            groups.setdefault((marker.phase, marker.epoch), []).append(slot)
    for source, slots in groups.items():
        run.markers.set(run.lease.fence, source, to, checksum, slots)
