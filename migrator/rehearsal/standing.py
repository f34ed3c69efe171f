"""Where the migrations of a snapshot stand: as its ledger says, else as the operator does."""

from __future__ import annotations

from collections.abc import Mapping

from migrator.engine.session import Session, any_marker
from migrator.engine.sweep import any_old
from migrator.errors import LedgerBackwardsError, RefusedError, UsageError
from migrator.ledger import Entry
from migrator.ledger.lease import server_ms
from migrator.models import Remark
from migrator.moves.loader import Module
from migrator.phases import FORWARD, Phase


def check_ledger(session: Session, at: Mapping[str, Phase]) -> None:
    """Puts migrations in the phases of `at`. Raises what `plan` raises for a ledger or a module that does not fit, and
    UsageError or RefusedError for a phase that cannot be."""
    if at:
        _set(session, at, session.entries())
    known = session.ledger.entries()
    if known is None:
        _fresh(session)
    session.check_drift(known or {})
    session.check_order(known or {})


def _fresh(session: Session) -> None:
    try:
        session.check_fresh()
    except LedgerBackwardsError as error:
        raise LedgerBackwardsError(
            error.message, next="say where it stands with --at ID=PHASE, for instance --at 0001=contracted"
        ) from None


def _set(session: Session, at: Mapping[str, Phase], known: Mapping[str, Entry]) -> None:
    """Ledger entries in the phases asked for, as if they had come there; markers follow with the first apply."""
    with session.leased() as lease:
        session.know(lease)
        for name, phase in at.items():
            module = session.modules.find(name)
            if module.id in known:
                raise UsageError(
                    f"--at {name}={phase}: the snapshot's ledger says {known[module.id].phase}",
                    next="leave --at away; it is for a snapshot without a ledger",
                )
            entry = session.entries()[module.id]
            if phase == "contracted" and any_old(session.reader(module, entry)):
                raise RefusedError(f"--at {name}=contracted: the snapshot has records in the old shape",
                                   next=f"it may stand at --at {name}=pending")  # fmt: skip
            now = server_ms(session.client, session.names)
            marker = any_marker(session.client, session.names, module)
            changed = _as_if(module, phase, marker.epoch if marker else 1, now)
            session.ledger.put(lease, entry.model_copy(update=changed), f"plan --at {phase}")
        session.init(lease)


def half_way(module: Module, entry: Entry) -> Remark | None:
    """Where part of what the way back needs is in a backup, which the snapshot does not have: of the old shape, or of
    target keys that were there before."""
    under_way = entry.phase == "contracted" and not entry.swept
    adopted = bool(entry.adopted) and entry.phase not in ("pending", "contracted")
    if entry.phase in FORWARD and not (under_way or entry.cleaning or adopted):
        return None
    what = "being contracted" if under_way else "being cleaned up" if entry.cleaning else entry.phase
    over = ", over target keys that were there before" if adopted else ""
    return Remark(
        code="half-way", text=f"the snapshot was taken while {module.id} was {what}{over}",
        next=f"finish that where it was taken (migrator status {module.number}), then take another snapshot",
    )  # fmt: skip


def _as_if(module: Module, phase: Phase, epoch: int, now: int) -> dict[str, object]:
    """What the ledger of a migration says that has come to this phase."""
    if phase == "pending":
        return {}
    mapping = "" if phase == "contracted" else module.checksum
    return {"phase": phase, "epoch": epoch, "mapping": mapping, "expanded_at": now, "swept": phase == "contracted"}
