"""What the two directions of the job's mapping share: its names, its numbers, and how unknown values are kept."""

from __future__ import annotations

import re
from collections.abc import Mapping

from migrator.errors import Unmappable
from migrator.records.dates import parse_iso, unix_seconds
from migrator.records.split import is_json, read_string, write_string

DEFAULTS = {
    "Name": b'""',
    "Status": b"100",
    "Headers": b"{}",
    "RouteParams": b"{}",
    "QueryParams": b"[]",
    "Payload": b'""',
    "Result": b"null",
    "Error": b"null",
    "RetryCount": b"0",
    "MaxRetries": b"3",
    "RetryDelayUntil": b"null",
    "WorkerId": b"null",
    "StartedAt": b"null",
    "CompletedAt": b"null",
}
"""What the library's constructor puts where a property is absent, as JSON; what it would invent is left out."""

STATUSES = {
    b"queued": b"100",
    b"scheduled": b"200",
    b"inprogress": b"300",
    b"completed": b"400",
    b"failed": b"500",
    b"canceled": b"600",
}
STATUS_NUMBERS = frozenset(STATUSES.values())
IN_PROGRESS = b"300"
CANCELED = b"600"


KNOWN = {
    spelling: name
    for name in (
        *("Id", *DEFAULTS, "CreatedAt", "LastUpdatedAt"),
        *("Exception", "IsCanceled", "StartedAtUnix", "Version"),
    )
    for spelling in (name, name[:1].lower() + name[1:], name.lower())
}
"""Each property in the usual casings -> the library's name."""

# Eighteen digits fit the 64 bits that Redis counts in.
_WHOLE = re.compile(rb"-?(?:0|[1-9][0-9]{0,17})")


def known_name(name: str) -> str | None:
    """The library's name for a property in any casing. Only ASCII folds: the Kelvin sign is no K to .NET."""
    return KNOWN.get(name) or (KNOWN.get(name.lower()) if name.isascii() else None)


def keep(value: bytes) -> bytes:
    """The JSON of an unknown property -> its field; keep(give_back(field)) == field for what it returns."""
    if not value.startswith(b'"'):
        return value
    text = read_string(value)
    return value if is_json(text) else text


def give_back(field: bytes) -> bytes:
    """The field of an unknown property -> its JSON."""
    return field if is_json(field) else write_string(field)


def whole(name: str, value: bytes) -> bytes:
    """Decimal text of a whole number -> the same in its one usual form. Raises Unmappable for anything else."""
    if _WHOLE.fullmatch(value) is None:
        raise Unmappable(f"{name} is not a whole number")
    return b"0" if value == b"-0" else value


def int32(name: str, value: bytes) -> bytes:
    number = whole(name, value)
    if len(number) > 9 and not -(2**31) <= int(number) < 2**31:
        raise Unmappable(f"{name} out of range")
    return number


def error_object(text: bytes) -> bytes:
    """A failure that is only text, as the object that readers of era C and of the hash expect."""
    return b'{"code":"UNKNOWN","message":%s,"exception":null}' % write_string(text)


def derived_start(fields: Mapping[bytes, bytes]) -> bytes | None:
    """When a job in progress was started, in whole seconds since 1970: the recovery looks for nothing else."""
    if fields.get(b"Status") != IN_PROGRESS:
        return None
    started = parse_iso(fields.get(b"StartedAt", b""))
    return None if started is None else b"%d" % unix_seconds(started)
