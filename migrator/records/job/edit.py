"""A changed field as JSON spells it, in the way the job at hand spells it already."""

from __future__ import annotations

import json
from collections.abc import Mapping

from migrator.records.job.fields import CANCELED, STATUSES, derived_start, give_back, known_name, whole
from migrator.records.job.to_json import WRITERS, property_json
from migrator.records.split import Span, edit, read_string, spans, write_string

_NULL = b"null"
_STATUS_NAMES = {
    b"100": "Queued", b"200": "Scheduled", b"300": "InProgress", b"400": "Completed", b"500": "Failed",
    b"600": "Canceled",
}  # fmt: skip


def edit_job(text: bytes, before: Mapping[bytes, bytes], after: Mapping[bytes, bytes]) -> bytes:
    """One job's JSON with the fields of its hash that differ written into it; every other byte stays.

    `before` is what hash_from_json makes of `text`. Names keep the casing found, a status its form (number, quoted
    number or name), a failure its property: the `Exception` of the first two eras is text, so the code of an error
    object is lost there. Raises Unmappable for values that are no job's.
    """
    found = spans(text)
    # Of several spellings of one name the last wins, as for the reader.
    places = {known_name(span.name) or span.name: span for span in found}
    pascal = "Id" in places and places["Id"].name == "Id"
    changed: dict[str, bytes] = {}
    for field in dict.fromkeys([*after, *before]):
        if after.get(field) != before.get(field):
            changed |= _spell(text, places, field, after.get(field))
    started = after.get(b"StartedAtUnix")
    if started not in (None, _stated(text, places, "StartedAtUnix"), derived_start(after)):
        # It followed from other fields before, and would be lost now.
        changed["StartedAtUnix"] = started or _NULL
    if "Status" in changed and "IsCanceled" in places:
        changed["IsCanceled"] = b"true" if after[b"Status"] == CANCELED else b"false"
    replaced = [(places[name], value) for name, value in changed.items() if name in places]
    added = [_property(name, value, pascal=pascal) for name, value in changed.items() if name not in places]
    return edit(text, found, replaced, added)


def _spell(text: bytes, places: Mapping[str, Span], field: bytes, value: bytes | None) -> dict[str, bytes]:
    name = field.decode()
    if value is None:
        return {name: _NULL} if name in places else {}
    if field == b"Error":
        return _spell_error(places, value)
    if field == b"Status":
        return {name: _like(_stated(text, places, name) or b"100", value)}
    if field in WRITERS:
        return {name: WRITERS[field](value)}
    if name == "StartedAtUnix" and name not in places:
        return {}
    return {name: whole(name, value) if known_name(name) else give_back(value)}


def _stated(text: bytes, places: Mapping[str, Span], name: str) -> bytes | None:
    return text[places[name].start : places[name].end] if name in places else None


def _spell_error(places: Mapping[str, Span], value: bytes) -> dict[str, bytes]:
    error = WRITERS[b"Error"](value)
    if "Exception" not in places:
        return {"Error": error}
    if "Error" in places:
        return {"Error": error, "Exception": _NULL}
    if error == _NULL:
        return {"Exception": _NULL}
    message = json.loads(error).get("message")
    return {"Exception": write_string(message.encode()) if isinstance(message, str) else write_string(value)}


def _like(found: bytes, status: bytes) -> bytes:
    """A status as a host with that converter writes it."""
    if not found.startswith(b'"'):
        return status
    was = read_string(found)
    if was.lower() not in STATUSES:
        return b'"%s"' % status
    name = _STATUS_NAMES[status]
    return write_string((name if was[:1].isupper() else name[:1].lower() + name[1:]).encode())


def _property(name: str, value: bytes, *, pascal: bool) -> bytes:
    if known_name(name) is None:
        return b"%s:%s" % (write_string(name.encode()), value)
    return b'"%s":%s' % (name.encode(), value) if pascal else property_json(name.encode(), value)
