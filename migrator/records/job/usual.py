"""A job just as a process of the three eras wrote it, mapped in one go there and back; any other is left to the rules
of to_hash and to_json.

One expression takes the text apart and one decoding reads its strings. That costs a third of the rules, which
are asked value by value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from migrator.records.dates import seconds_of, trim
from migrator.records.job.fields import CANCELED, IN_PROGRESS, error_object
from migrator.records.split import write_string

# Behind `@` comes the next property's name: a value ends where its closing mark and that name follow. Whether it is
# JSON up to there is asked later. Nothing is tried twice (`*+`), so the time is linear whatever the text.
_TEXT = r'(?:null|"([^"]*+(?:"(?!,@)[^"]*+)*+)")'
_OBJECT = r"(?:null|(\{[^}]*+(?:\}(?!,@)[^}]*+)*+\}))"
_ARRAY = r"(?:null|(\[[^\]]*+(?:\](?!,@)[^\]]*+)*+\]))"
_FAILURE = r'(?:null|("[^"]*+(?:"(?!,@)[^"]*+)*+"|\{[^}]*+(?:\}(?!,@)[^}]*+)*+\}))'
_GUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_COUNT = r"(0|[1-9][0-9]{0,8})"
# Days that every year has; up to 7 digits behind the second.
_DAY = (
    "(?:02-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    "|(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01]))"
)
_TIME = rf"((?!0000)[0-9]{{4}}-{_DAY}T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{{1,7}})?)"
_DATE = rf'"{_TIME}\+00:00"'
_PROPERTIES = (
    ("[Ii]d", '"([0-9a-f-]*+)"'),
    ("[Nn]ame", _TEXT),
    ("[Ss]tatus", "([1-6]00)"),
    ("[Hh]eaders", _OBJECT),
    ("[Rr]outeParams", _OBJECT),
    ("[Qq]ueryParams", _ARRAY),
    ("[Pp]ayload", _TEXT),
    ("[Rr]esult", f'(?!""){_TEXT}'),  # of an empty one there is something to note
    ("(?:[Ee]rror|[Ee]xception)", _FAILURE),
    ("[Rr]etryCount", _COUNT),
    ("[Mm]axRetries", _COUNT),
    ("[Rr]etryDelayUntil", f'(?:null|"{_TIME}Z")'),
    ("[Ww]orkerId", f'(?:null|"({_GUID})")'),
    ("[Cc]reatedAt", _DATE),
    ("[Ss]tartedAt", f"(?:null|{_DATE})"),
    ("[Cc]ompletedAt", f"(?:null|{_DATE})"),
    ("[Ll]astUpdatedAt", _DATE),
    ("[Ii]sCanceled", "(?:true|false)"),
)


def _expression() -> bytes:
    spelled = [f'"{name}":' for name, _ in _PROPERTIES]
    values = [form.replace("@", after) for (_, form), after in zip(_PROPERTIES, [*spelled[1:], ""], strict=True)]
    return (r"\{" + ",".join(map(str.__add__, spelled, values)) + r"\}").encode()


_take_apart = re.compile(_expression()).fullmatch
_read = msgspec.json.Decoder(str).decode
_check = msgspec.json.Decoder(msgspec.Raw).decode
_DEEP = 200
# Length of a time -> what a hash has behind it; an absent time stays empty.
_ZEROS = {19: b".0000000"} | {27 - missing: b"0" * missing for missing in range(7)}
_UTC = {0: b""} | {length: zeros + b"+00:00" for length, zeros in _ZEROS.items()}
_Z = {0: b""} | {length: zeros + b"Z" for length, zeros in _ZEROS.items()}
_FIELDS = tuple(
    name.encode()
    for name in (
        *("Id", "Name", "Status", "Headers", "RouteParams", "QueryParams", "Payload", "Result", "Error"),
        *("RetryCount", "MaxRetries", "RetryDelayUntil", "WorkerId"),
        *("CreatedAt", "StartedAt", "CompletedAt", "LastUpdatedAt"),
    )
)
_JSON = b"{%b}" % b",".join(b'"%b%b":%%b' % (name[:1].lower(), name[1:]) for name in (*_FIELDS, b"IsCanceled"))


def usual_hash(job_id: bytes, text: bytes) -> dict[bytes, bytes] | None:
    """The fields that the rules give for a job of which they note nothing; None for any other, sound or not."""
    fields = _usual(job_id, text)
    return None if fields is None else fields.copy()


def usual_json(fields: Mapping[bytes, bytes]) -> bytes | None:
    """The JSON that the rules give for a hash as usual_hash makes it; None for any other, sound or not.

    It is written without a look at the values, and kept if reading it gives these very fields.
    """
    try:
        (id, name, status, headers, route, query, payload, result, error, count, most, delay, worker,
         created, started, completed, updated) = map(fields.__getitem__, _FIELDS)  # fmt: skip
        text = _JSON % (
            b'"%b"' % id, write_string(name), status, headers or b"null", route or b"null", query or b"null",
            write_string(payload), write_string(result) if result else b"null", error or b"null", count, most,
            b'"%sZ"' % trim(delay[:-1]) if delay else b"null", b'"%s"' % worker if worker else b"null",
            _utc_json(created), _utc_json(started), _utc_json(completed), _utc_json(updated),
            b"true" if status == CANCELED else b"false",
        )  # fmt: skip
    except (KeyError, UnicodeDecodeError):
        return None
    return text if id and _usual(id, text) == fields else None


def _utc_json(value: bytes) -> bytes:
    return b'"%s+00:00"' % trim(value[:-6]) if value else b"null"


# Whoever maps a job there and back asks of the same two texts several times over.
@lru_cache(maxsize=2)
def _usual(job_id: bytes, text: bytes) -> dict[bytes, bytes] | None:
    found = _take_apart(text)
    if found is None:
        return None
    (id, name, status, headers, route, query, payload, result, failure, count, most, delay, worker,
     created, started, completed, updated) = found.groups(b"")  # fmt: skip
    if id != job_id or int(count) > int(most):
        return None
    try:
        if not text.isascii():
            text.decode()
        # The text is a job if every part of it is JSON: then there is no other way to take it apart.
        for value in (headers, route, query):
            if value:
                _check_nested(value)
        # One call for three is twice as fast. JSON has a DEL as it is, so what a cut leaves open before it stays open.
        name, payload, result = _read(b'"%s\x7f%s\x7f%s"' % (name, payload, result)).encode().split(b"\x7f")
        error = _error(failure) if failure else b""
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    fields = dict(zip(_FIELDS, (
        id, name, status, headers, route, query, payload, result, error, count, most, delay + _Z[len(delay)], worker,
        created + _UTC[len(created)], started + _UTC[len(started)], completed + _UTC[len(completed)],
        updated + _UTC[len(updated)],
    ), strict=True))  # fmt: skip
    if status == IN_PROGRESS and started:
        fields[b"StartedAtUnix"] = b"%d" % seconds_of(started)
    return fields


def _check_nested(value: bytes) -> None:
    """Raises if this is not JSON, or so deep that the rules may refuse it: that depends on the calls they are in."""
    if len(value) > _DEEP and value.count(b"[") + value.count(b"{") > _DEEP:
        raise ValueError
    _check(value)


def _error(failure: bytes) -> bytes:
    if failure.startswith(b'"'):
        return error_object(_read(failure).encode())
    _check_nested(failure)
    return failure
