"""Results as a person reads them on 80 columns; JSON is the model itself."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Sequence

from pydantic import BaseModel
from tabulate import tabulate

from migrator import models

WIDTH = 80
_EXAMPLES = 10
_FAMILIES = 20
_REST = {True: "nothing to do", False: "the old shape is still to be removed"}


def as_json(result: BaseModel) -> str:
    return result.model_dump_json(indent=2, by_alias=True)


def as_text(result: BaseModel) -> str:
    """The text of any result."""
    if isinstance(result, models.RehearsalReport) or (isinstance(result, models.PlanResult) and result.snapshot):
        from migrator.cli import render_trial

        return render_trial.as_text(result)
    if isinstance(result, models.PlanResult):
        return "\n\n".join(_plan(one, result.through) for one in result.migrations) or "There is no migration."
    if isinstance(result, models.ApplyResult):
        return _apply(result)
    if isinstance(result, models.StatusResult):
        return "\n\n".join(_status(one) for one in result.migrations) or "There is no migration."
    if isinstance(result, models.InitResult):
        parts = [_status(one) for one in result.migrations] or ["There is no migration."]
        return "\n\n".join([*parts, *(wrapped(note, first="note: ") for note in result.notes)])
    if isinstance(result, models.VerifyResult):
        return _verify(result)
    if isinstance(result, models.QuarantineResult):
        return _quarantine(result)
    if isinstance(result, models.HistoryResult):
        return "\n".join(map(_event, result.events)) or "Nothing has been done yet."
    if isinstance(result, models.LockResult):
        return _lock(result)
    if isinstance(result, models.NewResult):
        return f"wrote {result.module}\nwrote {result.test}\nnext: read it, write the mapping, then: migrator plan"
    if isinstance(result, (models.Taken, models.Loaded, models.SnapshotInfo)):
        from migrator.cli import render_snapshots

        return render_snapshots.as_text(result)
    raise TypeError(type(result).__name__)


def wrapped(text: str, indent: str = "", first: str | None = None) -> str:
    head = indent if first is None else first
    return textwrap.fill(text, WIDTH, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False,
                         break_long_words=False)  # fmt: skip


def table(rows: Sequence[Sequence[object]], headers: Sequence[str], widths: Sequence[int | None] = ()) -> str:
    if not rows:
        return ""
    # Only digits in a cell must not make tabulate drop leading zeros of an ID.
    return tabulate(rows, headers, tablefmt="simple", disable_numparse=True, maxcolwidths=list(widths) or None)


def _counts(pairs: Iterable[tuple[str, int]], first: str) -> str:
    """Names with their numbers, which stay beside them where a line is full."""
    return wrapped("  ".join(f"{name}\xa0{number:,}" for name, number in pairs), first=first).replace("\xa0", " ")


def _event(event: models.EventResult) -> str:
    """Times are in UTC."""
    when = event.at[:19].replace("T", " ")
    head = f"{when}  {event.id[:4]:4}  "
    told = wrapped(f"{event.detail + ', ' if event.detail else ''}by {event.who}", indent=" " * len(head))
    return f"{head}{event.what}\n{told}"


def _plan(one: models.MigrationPlan, through: str) -> str:
    counts = one.counts
    exact = counts.low == counts.high
    number = f"{counts.estimate:,}" if exact else f"about {counts.estimate:,} ({counts.low:,} to {counts.high:,})"
    way = f"{one.from_} -> {one.to}" if one.from_ != one.to else f"{one.from_}, {_REST[one.done]}"
    out = [f"{one.id}: {way}"]
    if one.waits_for:
        out.append(wrapped(one.waits_for, first="  waits: "))
    out.append(f"  records  {number}; {one.sampled:,} looked at")
    out.append(f"  memory   {size(one.memory_bytes)} more until contract")
    out.append(f"  time     about {_seconds(one.seconds)} to {through}, at the speed of this look")
    out += [*examples_of(one), *plan_lists(one)]
    return "\n".join(out)


def examples_of(one: models.MigrationPlan) -> list[str]:
    """A few records before and after."""
    out: list[str] = []
    for example in one.examples:
        out += ["", wrapped(example.key, first="  e.g. "), wrapped(example.before, first="    before  ")]
        out.append(wrapped(example.after, first="    after   "))
        out += [wrapped(note, first="    note    ") for note in example.notes]
    return out


def plan_lists(one: models.MigrationPlan) -> list[str]:
    """What an operator has to know: what cannot be mapped, losses, risks, refusals."""
    out: list[str] = []
    if one.rejected:
        out += ["", "  cannot be mapped (they stay untouched, in quarantine):"]
        out += [wrapped(f"{_where(r.key, r.member)}: {r.reason}", first="  - ") for r in one.rejected[:_EXAMPLES]]
    if one.index_repairs_total:
        out += ["", f"  {one.index_repairs_total:,} index memberships are wrong; --repair-indexes mends them:"]
        for repair in one.index_repairs[:_EXAMPLES]:
            age = f", due {_seconds(repair.age_seconds)} ago" if (repair.age_seconds or 0) > 0 else ""
            out.append(wrapped(f"{repair.repair} {repair.member} in {repair.index}{age}", first="  - "))
    if one.losses:
        out += ["", "  what a way back without the backup cannot give back:"]
        out += [wrapped(loss, first="  - ") for loss in one.losses]
    if one.risks:
        out += ["", "  know before you start:"]
        out += [wrapped(risk.text, first="  - ") for risk in one.risks]
    for refusal in one.refused:
        out += ["", wrapped(refusal.text, first="  REFUSED: ")]
        if refusal.next:
            out.append(wrapped(refusal.next, first="    next: "))
    return out


def _apply(result: models.ApplyResult) -> str:
    parts = [_status(one) for one in result.migrations]
    parts += [wrapped(note, first="note: ") for note in result.notes]
    if result.stopped is not None:
        stopped = result.stopped
        lines = [wrapped(f"stopped at {stopped.phase}: {stopped.reason}")]
        if stopped.next:
            lines.append(
                f"next: {stopped.next}"
                if stopped.next.startswith("migrator ")
                else wrapped(stopped.next, first="next: ")
            )
        parts.append("\n".join(lines))
    return "\n\n".join(parts) or "There is no migration."


def _status(one: models.MigrationStatus) -> str:
    out = [f"{one.id}: {one.phase}"]
    rows = [
        (f.name, f"{f.source_type} {f.source_count:,}", f"{f.target_type} {f.target_count:,}",
         _smoke(one, f), "yes" if f.is_complete else "no")
        for f in one.families[:_FAMILIES]
    ]  # fmt: skip
    head = ("family", "old", "new", "counts", "complete")
    others = sum(2 + max(map(len, column)) for column in list(zip(head, *rows, strict=True))[1:])
    counts = table(rows, head, widths=(max(12, WIDTH - 2 - others), None, None, None, None))
    out += [textwrap.indent(counts, "  ")] if counts else []
    if (more := len(one.families) - _FAMILIES) > 0:
        out.append(f"  and {more:,} more; --format json lists them all")
    tally = one.tally
    if tally.scanned:
        names = ("scanned", "moved", "unchanged", "quarantined", "vanished", "ignored")
        out.append(_counts(((name, getattr(tally, name)) for name in names), "  "))
    if one.progress is not None:
        eta = f", about {_seconds(one.eta_seconds)} left" if one.eta_seconds is not None else ""
        out.append(f"  progress {one.progress:.0%} at {one.rate_per_second or 0:,.0f} records/s{eta}")
    if one.quarantine.open or one.quarantine.accepted:
        out.append(f"  quarantine: {one.quarantine.open:,} open, {one.quarantine.accepted:,} accepted")
    if one.drift:
        out.append(_drift(one.drift))
    out += _adapters(one.adapters)
    if one.owner:
        out.append(f"  at work: {one.owner}")
    if one.paused:
        out.append(wrapped(one.paused, first="  paused: "))
    if one.waiting_for:
        out.append(wrapped(one.waiting_for, first="  waits for: "))
    if one.next:
        out.append(f"  next: {one.next}")
    return "\n".join(out)


def _smoke(one: models.MigrationStatus, family: models.FamilyStatus) -> str:
    """What HLEN against ZCARD says, or where the counts come from if they are not of now."""
    if family.counted != "now":
        return f"seen {family.counted_at[11:16]}" if family.counted_at else family.counted
    return "" if one.phase == "contracted" else "equal" if family.counts_equal else "differ"


def _drift(drift: models.Drift) -> str:
    found = [(name.replace("_", "\xa0"), number) for name in models.FAULTS if (number := getattr(drift, name))]
    head = f"  compared {drift.compared:,} at {drift.at[:19].replace('T', ' ')} UTC: "
    return _counts(found, head) if found else f"{head}no difference"


def _adapters(found: Sequence[models.AdapterStatus]) -> list[str]:
    """The last seen first."""
    if not found:
        return []
    alive = sum(one.alive for one in found)
    out = [f"  adapters: {alive:,} alive, {len(found) - alive:,} not seen for a minute"]
    for one in found[:_EXAMPLES]:
        seen = "alive" if one.alive else f"last seen {_seconds(one.seconds_ago)} ago"
        out.append(wrapped(f"{one.instance}, version {one.version}, {seen}", first="  - "))
    return out


def _verify(result: models.VerifyResult) -> str:
    if result.differs:
        verdict = "DIFFERENCES"
    elif result.unreadable:
        verdict = "RECORDS THAT CANNOT BE MAPPED"
    else:
        verdict = "ok" if result.complete else "incomplete"
    rows = [[f"{result.compared:,}", *(f"{getattr(result, name):,}" for name in models.FAULTS)]]
    out = [
        f"{result.id}: {verdict}",
        table(rows, ("compared", "missing", "extra", "different", "ttl drift", "unreadable")),
    ]
    if result.repaired:
        out.append(f"repaired {result.repaired:,}")
    if result.stopped is not None:
        out += [wrapped(result.stopped.reason, first="stopped: "), wrapped(result.stopped.next, first="next: ")]
    if not result.complete:
        out.append("Not everything was compared: this is no proof.")
    out += [wrapped(f"{d.verdict}: {_where(d.key, d.member)} ({d.why})", first="- ") for d in result.examples]
    if result.next:
        out.append(f"next: {result.next}")
    return "\n".join(out)


def _quarantine(result: models.QuarantineResult) -> str:
    """A record stands on a line of its own and is never wrapped: it is there to be copied."""
    if not result.records:
        return f"{result.id}: no record is in quarantine"
    out: list[str] = []
    for record in result.records:
        out.append(f"{'accepted' if record.accepted else 'open':8}  {_where(record.key, record.member)}")
        out.append(wrapped(record.reason, indent=" " * 10))
    still_open = [record for record in result.records if not record.accepted]
    out.append(f"\n{models.number_of(len(result.records), 'record')}, {len(still_open):,} open.")
    if still_open:
        first = still_open[0]
        member = [] if first.member is None else ["--member", first.member]
        out.append(f"Mend what can be mended, then: migrator quarantine retry {result.id[:4]}")
        out.append("Or leave a record as it is, for instance the first:")
        out.append(shlex.join(["migrator", "quarantine", "accept", result.id[:4], first.key, *member]))
    return "\n".join(out)


def _lock(result: models.LockResult) -> str:
    if not result.held:
        return "Nobody holds the lease."
    return (
        f"{result.owner} holds the lease for another {result.expires_in_seconds:g} s\n"
        f"  token {result.token}, fence {result.fence}\n"
        f"  if that process is gone: migrator lock break {result.token}"
    )


def _where(key: str, member: str | None) -> str:
    return key if member is None else f"{key} [{member}]"


def size(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000 or unit == "GB":
            return f"{number:,.0f} {unit}" if unit == "B" else f"{number:,.1f} {unit}"
        number /= 1000
    raise AssertionError


def _seconds(number: float | None) -> str:
    seconds = number or 0.0
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 1 else "a second"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172800 else f"{seconds / 86400:.0f} days"
