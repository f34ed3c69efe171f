"""What an operator decides on records that could not be mapped: to look, to accept them as they are, to try again."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence

from migrator.engine import recover
from migrator.engine.batches import key_batches
from migrator.engine.copy import FORWARD, copy_keys
from migrator.engine.copy_members import copy_members
from migrator.engine.judge import judge_keys, judge_members, read_old
from migrator.engine.run import Run
from migrator.engine.session import Session
from migrator.errors import UsageError
from migrator.ledger import parse_address
from migrator.ledger.lease import Words
from migrator.models import QuarantinedRecord, QuarantineResult, number_of, show
from migrator.moves.family import COLLISION, Family, Pair


def quarantine_list(session: Session, id: str) -> QuarantineResult:
    module = session.modules.find(id)
    run = session.reader(module)
    return QuarantineResult(id=module.id, records=tuple(_quarantined(run)))


def _quarantined(run: Run) -> Iterator[QuarantinedRecord]:
    for name, record in run.quarantine.items():
        key, member = parse_address(name)
        yield QuarantinedRecord(
            key=show(key), key_b64=base64.b64encode(key).decode(), member=None if member is None else show(member),
            member_b64=None if member is None else base64.b64encode(member).decode(),
            reason=record.reason, accepted=bool(record.accepted),
        )  # fmt: skip


def quarantine_accept(
    session: Session,
    id: str,
    *,
    keys: Sequence[bytes] = (),
    member: bytes | None = None,
    reason: str | None = None,
    everything: bool = False,
) -> QuarantineResult:
    """Accepts records as they are: they stay in the old shape and no longer hold the migration up."""
    module = session.modules.find(id)
    if (bool(keys), reason is not None, everything).count(True) != 1 or (member is not None and not keys):
        raise UsageError(
            "name the records in one way: KEY… (of one member with --member), --reason R or --all",
            next=f"migrator quarantine list {module.number}",
        )
    with session.leased() as lease:
        run = session.run(lease, module)
        names = {name for name, record in run.quarantine.items() if everything or record.reason == reason}
        for key in keys:
            listed = [name for name, _ in run.quarantine.items() if _named(name, key, member)]
            if not listed:
                raise UsageError(f"{show(key)} is not in quarantine", next=f"migrator quarantine list {module.number}")
            names |= {*listed}
        if not names:
            raise UsageError(f"no record has the reason {reason!r}" if reason else "the quarantine is empty",
                             next=f"migrator quarantine list {module.number}")  # fmt: skip
        for name in names:
            run.quarantine.accept(name)
        run.put("quarantine accept", number_of(len(names), "record"), _counted_before(run))
        return QuarantineResult(id=module.id, records=tuple(_quarantined(run)))


def _counted_before(run: Run) -> list[Words]:
    """What removes the counts of an interrupted apply: they name records that are settled now."""
    return run.ledger.forget_words(run.id, "compare")


def _named(name: bytes, key: bytes, member: bytes | None) -> bool:
    """Whether this entry is of that key, and of that member if one is said."""
    its_key, its_member = parse_address(name)
    return its_key == key and (member is None or its_member == member)


def quarantine_retry(session: Session, id: str) -> QuarantineResult:
    """Tries every open record again: what has been mended is carried over and taken off the list."""
    module = session.modules.find(id)
    session.check_drift(session.entries())  # it would be mapped otherwise than the rest
    with session.leased() as lease:
        run = session.run(lease, module)
        recover.persist(run, lambda: _retry_all(run))
        return QuarantineResult(id=module.id, records=tuple(_quarantined(run)))


def _retry_all(run: Run) -> None:
    before = run.quarantine.open
    for key, member in run.quarantine.open_records():
        for family in run.families:
            pair = family.from_old(key)
            if pair is not None:
                _retry(run, family, pair, member)
        run.tick()
    mended = f"{before - run.quarantine.open} of {before} records mended"
    run.put("quarantine retry", mended, _counted_before(run))


def _retry(run: Run, family: Family, pair: Pair, member: bytes | None) -> None:
    may_copy = run.entry.phase in FORWARD.phases
    if member is not None:
        members = read_old(run, family, pair, [member])
        if not members:
            run.quarantine.release(pair, member)
            return
        found = judge_members(run, family, pair, members)
        if may_copy and all(d.why != COLLISION for d in found):
            copy_members(run, family, FORWARD, pair, members)
        elif all(d.verdict != "unreadable" for d in found):
            run.quarantine.release(pair, member)
        return
    if family.by_member:
        if run.client.one(pair.old, "TYPE", pair.old).decode() in ("none", family.kinds["old"]):
            run.quarantine.release(pair)
        return
    for batch in key_batches(run, family, "old", [pair]):  # one that is too large is never read whole, and stays listed
        if may_copy:
            copy_keys(run, family, FORWARD, batch)
        elif judge_keys(run, family, batch)[0].verdict != "unreadable":
            run.quarantine.release(pair)
