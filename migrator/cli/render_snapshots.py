"""What was taken, loaded or found in a snapshot, as a person reads it."""

from __future__ import annotations

from collections.abc import Sequence

from migrator import models
from migrator.cli.render import WIDTH, size, table, wrapped

_FAMILIES = 30
_LEAST = 12  # columns of a family's name
_LIVE = "this file holds values as they were in the database, secrets among them"
_HIDDEN = "values are redacted: letters are others, digits and structure are as they were"


def as_text(result: models.Taken | models.Loaded | models.SnapshotInfo) -> str:
    if isinstance(result, models.Taken):
        return _taken(result)
    return _loaded(result) if isinstance(result, models.Loaded) else _info(result)


def _taken(result: models.Taken) -> str:
    out = [f"wrote {result.file}: {models.number_of(result.records, 'record')}, {size(result.bytes)}"]
    if result.sample:
        rows = [(one.family, f"{one.seen:,}", f"{one.taken:,}") for one in result.families[:_FAMILIES]]
        out += [wrapped(result.sample, first="a sample: "), table(rows, ("family", "keys", "taken"), (44, None, None))]
        out += _more(len(result.families))
    if result.vanished or result.changed:
        out.append(f"vanished before they were read: {result.vanished:,}; changed while they were: {result.changed:,}")
    out += [wrapped(note, first="note: ") for note in result.notes]
    out.append(wrapped(_HIDDEN if result.redacted else _LIVE, first="" if result.redacted else "TAKE CARE: "))
    return "\n".join(out)


def _loaded(result: models.Loaded) -> str:
    out = [f"loaded {models.number_of(result.records, 'record')}"]
    if result.expired:
        out.append(f"expired, not loaded: {result.expired:,}")
    if result.not_visible:
        out.append(f"not visible to the reader of this file, not loaded: {result.not_visible:,}")
    out += [wrapped(note, first="note: ") for note in result.notes]
    return "\n".join(out)


def _info(result: models.SnapshotInfo) -> str:
    out = [f"{result.file}: {models.number_of(result.records, 'record')}, {size(result.bytes)}"]
    if result.reader:
        out.append(f"{result.format}, read by {result.reader}")
    if result.taken_at or result.server:
        when = f" {result.taken_at[:19].replace('T', ' ')} UTC" if result.taken_at else ""
        out.append(f"taken{when} from {result.server or 'a server that the file does not name'}")
    if result.redacted is not None:
        out.append(wrapped(result.sample, first="a sample: ") if result.sample else "all keys of its databases")
    if result.redacted is not None:
        out.append(wrapped(_HIDDEN if result.redacted else _LIVE))
    if set(result.databases) - {"0"}:
        out.append("databases: " + "  ".join(f"{db} {number:,}" for db, number in result.databases.items()))
    if result.first_expiry and result.last_expiry:
        first, last = (text[:19].replace("T", " ") for text in (result.first_expiry, result.last_expiry))
        out.append(f"keys expire from {first} to {last} UTC")
    rows = [
        (one.family, one.type, f"{one.keys:,}", f"{one.members:,}", size(one.bytes), size(one.largest), _expiry(one))
        for one in result.families[:_FAMILIES]
    ]
    headers = ("family", "type", "keys", "members", "size", "largest", "expire")
    out += ["", table(rows, headers, _widths(rows, headers)), *_more(len(result.families))] if rows else []
    if result.largest:
        out += ["", "the largest:"]
        out += [f"  {size(one.bytes):>9}  {one.type} {one.key}" for one in result.largest]
    if result.expired:
        out.append(f"expired, not counted: {result.expired:,}")
    if result.not_visible:
        out.append(f"not visible to {result.reader}, not counted: {result.not_visible:,}")
    out += [wrapped(note, first="note: ") for note in result.notes]
    return "\n".join(out)


def _widths(rows: Sequence[Sequence[str]], headers: Sequence[str]) -> tuple[int | None, ...]:
    """The names of families get what the numbers leave of a line."""
    padded = [f"{header}  " for header in headers]  # so wide is a column at least
    lines = [[line for cell in column for line in cell.split("\n")] for column in zip(padded, *rows, strict=True)]
    others = sum(2 + max(map(len, column)) for column in lines[1:])
    return (max(_LEAST, WIDTH - others), *[None] * (len(headers) - 1))


def _expiry(one: models.FamilyInfo) -> str:
    return f"{one.with_expiry:,}" + (f",\nfields {one.field_expiries:,}" if one.field_expiries else "")


def _more(families: int) -> list[str]:
    return [f"and {families - _FAMILIES:,} families more"] if families > _FAMILIES else []
