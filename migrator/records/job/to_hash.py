"""A job's JSON becomes the fields of its hash."""

from __future__ import annotations

import re
from collections.abc import Mapping

from migrator.errors import Unmappable
from migrator.records.dates import Moment, offset_text, pad_usual, parse_iso, parse_unix, utc_text
from migrator.records.job.fields import (
    DEFAULTS,
    KNOWN,
    STATUS_NUMBERS,
    STATUSES,
    derived_start,
    error_object,
    int32,
    keep,
    known_name,
    whole,
)
from migrator.records.job.usual import usual_hash
from migrator.records.split import read_string, split

_NULL = b"null"
_GUID = re.compile(rb"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def hash_from_json(job_id: bytes, text: bytes) -> tuple[dict[bytes, bytes], tuple[str, ...]]:
    """One job as JSON -> the fields of its hash, and a note for all that was assumed or looks wrong.

    `job_id` is the id as the key has it. Raises Unmappable where the library itself could not read the job, and
    where something would have to be invented: the id, the time of creation, the meaning of a status.
    """
    usual = usual_hash(job_id, text)
    return by_rules(job_id, text) if usual is None else (usual, ())


def by_rules(job_id: bytes, text: bytes) -> tuple[dict[bytes, bytes], tuple[str, ...]]:
    """What hash_from_json gives, found value by value: all that is taken, noted or refused is said here."""
    notes: list[str] = []
    stated, unknown = _sort(text, notes)
    _settle(stated, notes)
    _check_id(job_id, _text("Id", stated["Id"]), notes)
    fields = _fields(stated, notes)
    _note_retries(fields, notes)
    _add_later_fields(fields, stated, notes)
    return fields | unknown, tuple(notes)


def _sort(text: bytes, notes: list[str]) -> tuple[dict[str, bytes], dict[bytes, bytes]]:
    """Split the JSON into the values we know, under the library's names, and the fields for those we do not."""
    properties, repeated = split(text)
    # Of several casings of one name the last wins, as `split` keeps the order.
    stated: dict[str, bytes] = {}
    unknown: dict[bytes, bytes] = {}
    for name, value in properties.items():
        known = KNOWN.get(name) or known_name(name)
        if known is not None:
            stated[known] = value
        else:
            unknown[name.encode()] = keep(value)
            notes.append(f"unknown property kept: {name}")
    repeated |= len(stated) + len(unknown) < len(properties)
    if repeated:
        notes.append("duplicate property")
    return stated, unknown


def _settle(stated: dict[str, bytes], notes: list[str]) -> None:
    """Give every field a value: what the library's constructor would put there, unless that is invented."""
    if "Exception" in stated:
        if "Error" in stated:
            notes.append("both Error and Exception present")
        if stated.get("Error", _NULL) == _NULL:
            stated["Error"] = stated["Exception"]
    for name in ("Id", "CreatedAt"):
        if stated.get(name, _NULL) == _NULL:
            raise Unmappable(f"{name} absent")
    if stated.get("LastUpdatedAt", _NULL) == _NULL:
        stated["LastUpdatedAt"] = stated["CreatedAt"]
        notes.append("LastUpdatedAt absent: CreatedAt taken")
    for name, default in DEFAULTS.items():
        if name not in stated:
            stated[name] = default
            notes.append(f"{name} absent: default taken")


def _check_id(job_id: bytes, stated: bytes, notes: list[str]) -> None:
    if stated.lower() != job_id.lower():
        raise Unmappable("Id differs from the key")
    # The library asks for lower-case keys only, so it will never find this one.
    if job_id != job_id.lower():
        notes.append("upper-case key")
    if stated != stated.lower():
        notes.append("upper-case Id")


def _fields(stated: Mapping[str, bytes], notes: list[str]) -> dict[bytes, bytes]:
    """The 17 fields of the library's hash, in its order."""
    return {
        b"Id": _text("Id", stated["Id"]),
        b"Name": _text("Name", stated["Name"]),
        b"Status": _status(stated["Status"], notes),
        b"Headers": _nested("Headers", stated["Headers"], b"{"),
        b"RouteParams": _nested("RouteParams", stated["RouteParams"], b"{"),
        b"QueryParams": _nested("QueryParams", stated["QueryParams"], b"["),
        b"Payload": _text("Payload", stated["Payload"]),
        b"Result": _result(stated["Result"], notes),
        b"Error": _error(stated["Error"]),
        b"RetryCount": int32("RetryCount", stated["RetryCount"]),
        b"MaxRetries": int32("MaxRetries", stated["MaxRetries"]),
        b"RetryDelayUntil": _retry_delay(stated["RetryDelayUntil"], notes),
        b"WorkerId": _worker(stated["WorkerId"], notes),
        b"CreatedAt": _date("CreatedAt", stated["CreatedAt"], notes),
        b"StartedAt": _date("StartedAt", stated["StartedAt"], notes),
        b"CompletedAt": _date("CompletedAt", stated["CompletedAt"], notes),
        b"LastUpdatedAt": _date("LastUpdatedAt", stated["LastUpdatedAt"], notes),
    }


def _add_later_fields(fields: dict[bytes, bytes], stated: Mapping[str, bytes], notes: list[str]) -> None:
    """StartedAtUnix and Version came later: absent where nothing states or implies them.."""
    start = derived_start(fields)
    if stated.get("StartedAtUnix", _NULL) != _NULL:
        try:
            start = whole("StartedAtUnix", stated["StartedAtUnix"])
        except Unmappable as fault:
            notes.append(f"{fault.reason}: ignored")
    if start is not None:
        fields[b"StartedAtUnix"] = start
    if stated.get("Version", _NULL) != _NULL:
        fields[b"Version"] = whole("Version", stated["Version"])


def _note_retries(fields: Mapping[bytes, bytes], notes: list[str]) -> None:
    count, most = int(fields[b"RetryCount"]), int(fields[b"MaxRetries"])
    if count < 0 or most < 0:
        notes.append("negative retry number")
    if count > most:
        notes.append("RetryCount above MaxRetries")


def _text(name: str, value: bytes) -> bytes:
    if value == _NULL:
        return b""
    if not value.startswith(b'"'):
        raise Unmappable(f"{name} is not a string")
    return read_string(value)


def _nested(name: str, value: bytes, opening: bytes) -> bytes:
    """An object or array, byte for byte."""
    if value.startswith(opening):
        return value
    if value == _NULL:
        return b""
    raise Unmappable(f"{name} is not an {'object' if opening == b'{' else 'array'}")


def _status(value: bytes, notes: list[str]) -> bytes:
    if value in STATUS_NUMBERS:
        return value
    if value.startswith(b'"'):
        text = read_string(value)
        if text in STATUS_NUMBERS:
            notes.append("Status is a quoted number")
            return text
        if text.lower() in STATUSES:
            return STATUSES[text.lower()]
    raise Unmappable("undefined status")


def _result(value: bytes, notes: list[str]) -> bytes:
    if value == b'""':
        notes.append("empty result")
    return _text("Result", value)


def _error(value: bytes) -> bytes:
    if value.startswith(b'"'):
        return error_object(read_string(value))
    return _nested("Error", value, b"{")


def _worker(value: bytes, notes: list[str]) -> bytes:
    worker = _text("WorkerId", value)
    if value != _NULL and _GUID.fullmatch(worker) is None:
        notes.append("WorkerId is not a guid")
    return worker


def _date(name: str, value: bytes, notes: list[str]) -> bytes:
    """A DateTimeOffset: the offset stays as written."""
    if value == _NULL:
        return b""
    # No JSON but a string has a date between its first and last byte.
    return pad_usual(value[1:-1]) or offset_text(_noted(name, parse_iso(_text(name, value)), notes))


def _retry_delay(value: bytes, notes: list[str]) -> bytes:
    """A DateTime, or unix seconds as the recovery wrote them, text or number: in UTC."""
    if value == _NULL:
        return b""
    text = read_string(value) if value.startswith(b'"') else value
    moment = parse_iso(text)
    if moment is None:
        moment = parse_unix(text)
        notes.append("RetryDelayUntil is in unix seconds")
    return utc_text(_noted("RetryDelayUntil", moment, notes))


def _noted(name: str, moment: Moment | None, notes: list[str]) -> Moment:
    if moment is None:
        raise Unmappable(f"{name} is not a date")
    if moment.zoneless:
        notes.append(f"{name} has no zone: UTC taken")
    if moment.cut:
        notes.append(f"{name} cut to 7 fraction digits")
    return moment
