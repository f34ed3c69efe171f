"""The way out of a ledger that is lost or went backwards: what markers, the data beside them and backups tell."""

from __future__ import annotations

from pathlib import Path

from migrator.engine.adopt import UNKNOWN, has_adopted
from migrator.engine.guards import moves_of
from migrator.engine.run import Run
from migrator.engine.saving import backup_in
from migrator.engine.session import Session, any_marker
from migrator.engine.sweep import any_old
from migrator.errors import RefusedError
from migrator.ledger import Entry, Lease
from migrator.ledger.lease import server_ms
from migrator.moves.loader import Module
from migrator.phases import PHASES, Marker, Phase
from migrator.snapshot import backup

# The epochs of a first way there: whoever stands elsewhere has been back, so that is not undone unasked.
_FIRST: dict[Phase, tuple[int, ...]] = {
    "pending": (0,), "expanded": (1,), "backfilled": (1,), "verified": (1,), "switched": (2,),
}  # fmt: skip
_CONTRACT_BEGUN = ("contracted", "reverting", "closed")
_COPYING = ("expanded", "backfilled", "verified")
State = tuple[Phase, int, str]  # with the checksum of the mapping


def init_at(session: Session, lease: Lease, module: Module, known: Entry | None, at: str) -> list[str]:
    """Writes the entry anew; `known` is what the ledger says so far. Returns what is to be said of it."""
    if not session.options.yes:
        raise RefusedError(f"init --at {at} overrules the ledger", next="add --yes to have that done")
    now = server_ms(session.client, session.names)
    entry = Entry(id=module.id, moves=moves_of(module), known_at=now)
    notes: list[str] = []
    if at == "markers":
        found = _from_markers(session, module, known, entry)
        if found is None:
            return []  # it stands as the markers do, and knows more than they
        entry, notes = found
    elif at == "contracted" and known and known.phase == at and known.swept and not known.backup:
        entry = known.model_copy(update={"backup_epoch": 0})  # on the operator's word: it had nothing to save
    elif any_marker(session.client, session.names, module) is not None or (known and known.phase != "pending"):
        raise RefusedError(
            f"{module.id} has markers or a ledger entry", next=f"migrator init {module.number} --at markers --yes"
        )
    elif at == "contracted":
        if any_old(session.reader(module, entry)):
            raise RefusedError(f"{module.id}: there are records in the old shape",
                               next=f"migrator init {module.number} --at pending --yes")  # fmt: skip
        entry = entry.model_copy(update={"phase": "contracted", "epoch": 1, "swept": True, "expanded_at": now})
    session.ledger.put(lease, entry, f"init --at {at}")
    return notes


def _from_markers(
    session: Session, module: Module, known: Entry | None, fresh: Entry
) -> tuple[Entry, list[str]] | None:
    """The entry that the markers tell, what was known kept, and what is to be said; None where nothing is amiss."""
    markers = session.reader(module, fresh).markers.read()
    if known is not None and _agree(known, markers):
        return None
    (phase, epoch, named), *others = _states(module, markers, known)
    checksum = next((checksum for checksum in (named, *(state[2] for state in others)) if checksum), "")
    if checksum and checksum != module.checksum:
        raise RefusedError(
            f"{module.path} is not the module the markers were made with", next="put the file back as it was"
        )
    entry, earlier = known or fresh, known if known and known.phase in _CONTRACT_BEGUN else None
    swept = phase == "contracted" and not named
    # Where the step into `pending` is not over, all of it is there still: the end of a removal has a later epoch.
    left = {state[0] for state in others if (phase, state[1]) == ("pending", epoch - 1)} & {*_COPYING, "closed"}
    entry = entry.model_copy(update={
        "phase": phase, "epoch": epoch, "intent": None, "comparison": None, "swept": swept,
        "mapping": checksum or (entry.mapping if entry.phase != "pending" else "") or module.checksum,
        "moves": fresh.moves if checksum else entry.moves,
        "expanded_at": entry.expanded_at or fresh.known_at,
        "rolled_back": bool(left) or (known is not None and known.rolled_back) or _was_back(phase, epoch, known),
        # Else the markers do not tell whether all of it was removed: what is left is adopted by the next expand.
        "cleaning": bool(left), "slots_to_clean": "", "discarded": False, "restored": "closed" in left,
        "saved": swept or (earlier is not None and earlier.saved),
        "life": "",  # the one it knows may be over: a backup that is named tells
    })  # fmt: skip
    run = session.reader(module, entry)
    entry = entry.model_copy(update=_backup(run, earlier, {state[0] for state in others}))
    behind = f"{module.id}: some markers are behind {phase}; the next command looks at them again, as after a failover"
    notes = [behind] if others else []
    if not has_adopted(run):
        return entry.model_copy(update={"adopted": ""}), notes
    name = known.adopted if known is not None else ""
    run.entry = entry
    entry = entry.model_copy(update=_adopted_backup(run, name))
    note = (
        f"{module.id}: there were target keys before it was expanded; what they held comes back with "
        f"migrator rollback {module.number} --to pending --backup DIR --yes, DIR as it was given to expand"
    )
    return entry, [*notes, note]


def _agree(known: Entry, markers: dict[int, Marker | None]) -> bool:
    """Whether the markers are where the ledger has them, or where a change under way leads."""
    come = {(known.phase, known.epoch)}
    if known.intent is not None:
        come.add((known.intent.phase, known.intent.epoch))
    return all(marker is not None and (marker.phase, marker.epoch) in come for marker in markers.values())


def _states(module: Module, markers: dict[int, Marker | None], known: Entry | None) -> list[State]:
    """What the markers say, the latest first, which the ledger is to say.

    Whether a crash in a change of phase or a failover left the others, nobody knows any more. So they are taken for
    what a failover took back: the next command compares them, and never just sets them forward (see `recover`).
    """
    found = {(m.phase, m.epoch, m.checksum) for m in markers.values() if m is not None}
    if not found:
        told = "init" if known is not None and known.phase != "pending" else f"init {module.number} --at pending --yes"
        raise RefusedError(f"{module.id}: there are no markers", next=f"migrator {told}")
    states = sorted(found, key=lambda state: (state[1], PHASES.index(state[0]), state[2]), reverse=True)
    phase, epoch, _ = states[0]
    before = {state[0] for state in states} - {phase}
    at_once = {state[0] for state in states if state[1] == epoch} - {phase, *_COPYING}
    if at_once or (phase in _COPYING and not before.isdisjoint(_CONTRACT_BEGUN)):
        # In `expanded` what the old shape lacks is removed from the new one, and there it is the old one that is lost.
        raise RefusedError(
            f"{module.id}: markers say {phase}, others {', '.join(sorted(before))}: no phase is true of them all",
            next="put a copy of the data back in which the markers agree; nothing was changed",
        )
    return states


def _was_back(phase: Phase, epoch: int, known: Entry | None) -> bool:
    if phase in ("reverting", "closed"):
        return True
    return known is None and epoch not in _FIRST.get(phase, (epoch,))


def _backup(run: Run, earlier: Entry | None, others: set[Phase]) -> dict[str, object]:
    """Where the old shape was saved. Where it lies may be lost, what it is called is not: `rollback` and `restore` look
    for it in their --backup DIR. `earlier`: the entry from within that contract, if there is one. `others`: what other
    markers say than the latest.

    Raises RefusedError where the way back is under way, and cannot be gone without it.
    """
    phase, epoch, base = run.entry.phase, run.entry.epoch, run.options.backup
    if phase not in _CONTRACT_BEGUN and (phase != "switched" or others.isdisjoint(_CONTRACT_BEGUN)):
        return {}
    lies = backup.newest(base, run.names.namespace, run.id, "contract", epoch) if base is not None else None
    if base is not None and lies is not None:
        life = backup.read_manifest(backup_in(run, base, "contract", lies)).life
        return {"backup": str(base.resolve()), "backup_epoch": lies, "life": life} | _discarded(run, base, life)
    if earlier is not None and (phase == "reverting" or (phase == "contracted" and earlier.backup)):
        return {"backup": earlier.backup, "backup_epoch": earlier.backup_epoch, "life": earlier.life}
    if phase == "contracted":
        return {"backup": "", "backup_epoch": epoch - run.entry.swept}  # the end of the sweep has an epoch of its own
    where = (
        f"in {base} there is no backup of its contract" if base else "the old shape lies in the backup of its contract"
    )
    raise RefusedError(
        f"{run.id} is {phase}, and {where}",
        next=f"name the one contract used: migrator init {run.module.number} --at markers --backup DIR --yes",
    )


def _discarded(run: Run, base: Path, life: str) -> dict[str, object]:
    """A restore ends the epoch it discarded in, so the directory of the epoch before says that it is over: done again,
    it would discard what was put back."""
    before = run.entry.epoch - 1
    path = backup_in(run, base / f"discarded-{before}", "discarded", before)
    over = run.entry.phase == "closed" and (path / backup.MANIFEST).exists()
    return {"discarded": over and backup.read_manifest(path).is_of(life)}


def _adopted_backup(run: Run, name: str) -> dict[str, object]:
    """What the backup of adopted targets is called, if it is known or is found, and whose it is."""
    base = run.options.backup
    if base is not None and not name:
        epoch = backup.newest(base, run.names.namespace, run.id, "adopted", run.entry.epoch)
        name = "" if epoch is None else backup_in(run, base, "adopted", epoch).name
    if base is None or not name or run.entry.life or not (base / name / backup.MANIFEST).exists():
        return {"adopted": name or UNKNOWN}
    return {"adopted": name, "life": backup.read_manifest(base / name).life}
