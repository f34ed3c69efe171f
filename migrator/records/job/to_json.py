"""The fields of a job's hash become JSON again, as era C wrote it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from migrator.errors import Unmappable
from migrator.records.dates import Moment, offset_json, parse_iso, parse_unix, trim_usual, utc_json
from migrator.records.job.fields import (
    CANCELED,
    STATUS_NUMBERS,
    derived_start,
    error_object,
    give_back,
    int32,
    known_name,
    whole,
)
from migrator.records.job.usual import usual_json
from migrator.records.split import is_json, write_string

_NULL = b"null"


def json_from_hash(fields: Mapping[bytes, bytes]) -> bytes:
    """The fields of one job's hash -> JSON that a process of era C can read.

    Takes hashes as they are found: dates in unix seconds, bare text as Error, fields nobody knows. A missing
    field leaves its property out, which the library reads as its default. Raises Unmappable for a hash without
    Id, Status or CreatedAt, for numbers, dates or JSON that are none, and for text that is not UTF-8.
    """
    usual = usual_json(fields)
    return by_rules(fields) if usual is None else usual


def by_rules(fields: Mapping[bytes, bytes]) -> bytes:
    """What json_from_hash gives, found value by value."""
    for name in ("Id", "Status", "CreatedAt"):
        if not fields.get(name.encode()):
            raise Unmappable(f"{name} absent")
    try:
        return b"{%s}" % b",".join([*_known(fields), *_later(fields), *_unknown(fields)])
    except UnicodeDecodeError:
        raise Unmappable("not UTF-8") from None


def _known(fields: Mapping[bytes, bytes]) -> list[bytes]:
    properties = [head + write(fields[field]) for field, head, write in _WRITES if field in fields]
    canceled = b"true" if fields[b"Status"] == CANCELED else b"false"
    return [*properties, property_json(b"IsCanceled", canceled)]


def _later(fields: Mapping[bytes, bytes]) -> list[bytes]:
    """StartedAtUnix and Version. Recovery scripts wrote an empty StartedAtUnix for none."""
    properties = []
    started = fields.get(b"StartedAtUnix")
    if started and started != derived_start(fields):
        properties.append(property_json(b"StartedAtUnix", whole("StartedAtUnix", started)))
    version = fields.get(b"Version")
    if version:
        properties.append(property_json(b"Version", whole("Version", version)))
    return properties


def _unknown(fields: Mapping[bytes, bytes]) -> list[bytes]:
    properties: list[bytes] = []
    if not fields.keys() - _KNOWN:
        return properties
    for field, value in fields.items():
        if field in _KNOWN:
            continue
        if known_name(field.decode()) is not None:
            raise Unmappable("a field's name clashes with a property of the job")
        properties.append(b"%s:%s" % (write_string(field), give_back(value)))
    return properties


def property_json(field: bytes, value: bytes) -> bytes:
    return b'"%s%s":%s' % (field[:1].lower(), field[1:], value)


def _text_or_null(value: bytes) -> bytes:
    return write_string(value) if value else _NULL


def _status(value: bytes) -> bytes:
    if value not in STATUS_NUMBERS:
        raise Unmappable("undefined status")
    return value


def _nested(name: str, opening: bytes, value: bytes) -> bytes:
    if not value:
        return _NULL
    if not (value.startswith(opening) and is_json(value)):
        raise Unmappable(f"{name} is not a JSON {'object' if opening == b'{' else 'array'}")
    return value


def _error(value: bytes) -> bytes:
    if not value:
        return _NULL
    return value if value.startswith(b"{") and is_json(value) else error_object(value)


def _date(name: str, print_json: Callable[[Moment], bytes], value: bytes) -> bytes:
    if not value:
        return _NULL
    moment = parse_iso(value) or parse_unix(value)
    if moment is None:
        raise Unmappable(f"{name} is not a date")
    return b'"%s"' % print_json(moment)


def _offset_date(name: str, value: bytes) -> bytes:
    usual = trim_usual(value)
    return _date(name, offset_json, value) if usual is None else b'"%s"' % usual


WRITERS: dict[bytes, Callable[[bytes], bytes]] = {
    b"Id": write_string,
    b"Name": write_string,
    b"Status": _status,
    b"Headers": partial(_nested, "Headers", b"{"),
    b"RouteParams": partial(_nested, "RouteParams", b"{"),
    b"QueryParams": partial(_nested, "QueryParams", b"["),
    b"Payload": write_string,
    b"Result": _text_or_null,
    b"Error": _error,
    b"RetryCount": partial(int32, "RetryCount"),
    b"MaxRetries": partial(int32, "MaxRetries"),
    b"RetryDelayUntil": partial(_date, "RetryDelayUntil", utc_json),
    b"WorkerId": _text_or_null,
    b"CreatedAt": partial(_offset_date, "CreatedAt"),
    b"StartedAt": partial(_offset_date, "StartedAt"),
    b"CompletedAt": partial(_offset_date, "CompletedAt"),
    b"LastUpdatedAt": partial(_offset_date, "LastUpdatedAt"),
}
_KNOWN = WRITERS.keys() | {b"StartedAtUnix", b"Version"}
_WRITES = [(field, property_json(field, b""), write) for field, write in WRITERS.items()]
