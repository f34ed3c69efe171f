"""What the readers of a job's hash ask of it, and what of a job's JSON has to come back: for tries on a snapshot."""

from __future__ import annotations

import re
from collections.abc import Mapping

from migrator.errors import Unmappable
from migrator.records.dates import pad_usual, parse_iso
from migrator.records.job.fields import DEFAULTS, STATUS_NUMBERS, int32
from migrator.records.job.to_hash import hash_from_json
from migrator.records.job.usual import usual_hash
from migrator.records.split import is_json, split

# Seven fraction digits: dates are compared as text where that is quicker, and `.12` sorts behind `.1199999`.
_SEVEN = rb"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{7}"
_SHIFTED = re.compile(_SEVEN + rb"[+-][0-9]{2}:[0-9]{2}").fullmatch


def _offset(value: bytes) -> bool:
    """Whether it is a date with 7 fraction digits and an offset."""
    if len(value) == 33 and pad_usual(value):  # of UTC, which takes a fifth of the rest
        return True
    return _SHIFTED(value) is not None and parse_iso(value) is not None


def _utc(value: bytes) -> bool:
    """Whether it is a date with 7 fraction digits and `Z`."""
    return len(value) == 28 and value.endswith(b"Z") and pad_usual(value[:-1] + b"+00:00") is not None


_DATES = dict.fromkeys((b"CreatedAt", b"StartedAt", b"CompletedAt", b"LastUpdatedAt"), _offset)
_DATES[b"RetryDelayUntil"] = _utc
_ALWAYS = (b"Id", b"CreatedAt", b"LastUpdatedAt")
_FIELDS = (*_ALWAYS, *(name.encode() for name in DEFAULTS))
_ALL = frozenset(_FIELDS)
_NESTED = {b"Headers": b"{", b"RouteParams": b"{", b"QueryParams": b"[", b"Error": b"{"}
_FIRST = re.compile(rb'\{"[Ii]d":"([^"\\]*)"').match  # where processes of all eras wrote the id
WHOLE = "the job as a whole"


def read_hash(job_id: bytes, fields: Mapping[bytes, bytes]) -> None:
    """Raises Unmappable for a hash that a reader of jobs could not take as it is; the reason names the field."""
    absent = [] if fields.keys() >= _ALL else [name for name in _FIELDS if name not in fields]
    absent += [name for name in _ALWAYS if fields.get(name) == b""]
    if absent:
        raise Unmappable(f"{absent[0].decode()} absent")
    if fields[b"Id"].lower() != job_id.lower():
        raise Unmappable("Id differs from the key")
    if fields[b"Status"] not in STATUS_NUMBERS:
        raise Unmappable("undefined status")
    for name in ("RetryCount", "MaxRetries"):
        int32(name, fields[name.encode()])
    for field, opening in _NESTED.items():
        value = fields[field]
        if value and not (value.startswith(opening) and is_json(value)):
            raise Unmappable(f"{field.decode()} is not JSON of its kind")
    for field, sound in _DATES.items():
        value = fields[field]
        if value and not sound(value):
            raise Unmappable(f"{field.decode()} is not a date with 7 fraction digits and its zone")


def lost(old: bytes, again: bytes) -> list[str]:
    """The fields that the JSON of a job says otherwise than the one it was made from, LOSSES apart; no values."""
    try:
        before, after = _read(old), _read(again)
    except Unmappable as error:
        return [f"{WHOLE}: {error.reason}"]
    if before == after:
        return []
    return sorted(name.decode() for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _read(text: bytes) -> dict[bytes, bytes]:
    """The fields of a job under the id it states."""
    first = _FIRST(text)
    if first is not None and (usual := usual_hash(first[1], text)) is not None:
        return usual
    properties, _ = split(text)
    stated = next((value for name, value in properties.items() if name.lower() == "id"), b'""')
    return hash_from_json(stated.strip(b'"'), text)[0]
