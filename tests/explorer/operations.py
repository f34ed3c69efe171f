"""What an application does to a record through its adapter, and what each answer says about the record.

A record is `None` or (value, expiry); of a job the value is a `Store`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from migrator.adapters import KEEP, Found, Missing, Removed, Written
from migrator.errors import RefusedError
from tests.explorer.picture import Value
from tests.explorer.scene import LATER

Record = tuple[Value, int] | None
# Raises what cannot follow from that answer.
After = Callable[[Record, Any], Record]


class WrongAnswerError(Exception):
    """The record being as it was, that answer cannot come."""


@dataclass(frozen=True)
class Operation:
    """`call` gets an adapter; `after` the record before and the answer, and says what is there then."""

    name: str
    call: Callable[[Any], object]
    after: After
    writes: bool = True


def sure(true: bool) -> None:
    if not true:
        raise WrongAnswerError


def _put(text: bytes, expires: Any = KEEP) -> tuple[Callable[[Any], object], After]:
    def after(record: Record, answer: Any) -> Record:
        sure(isinstance(answer, Written))
        kept = record[1] if record else -1
        return text, kept if expires is KEEP else -1 if expires is None else expires

    return lambda records: records.put({b"id": b"1", b"text": text}, expires_at=expires, id=b"1"), after


def _deleted(record: Record, answer: Any) -> Record:
    sure(isinstance(answer, Removed if record else Missing))
    return None


def _read(record: Record, answer: Any) -> Record:
    sure(isinstance(answer, Found if record else Missing))
    if record:
        value = answer.value[b"text"] if isinstance(answer.value, dict) else answer.value
        wanted = record[0] if isinstance(record[0], bytes) else dict(record[0]).get(b"a")
        sure(value == wanted and (answer.expires_at or -1) == record[1])
    return record


def _set(member: bytes, score: float) -> tuple[Callable[[Any], object], After]:
    def after(record: Record, answer: Any) -> Record:
        sure(isinstance(answer, Written))
        members = dict(record[0]) if record else {}
        members[member] = score
        return tuple(sorted(members.items())), record[1] if record else -1

    return lambda members: members.set(member, score, name=b"1"), after


def _remove(member: bytes) -> tuple[Callable[[Any], object], After]:
    def after(record: Record, answer: Any) -> Record:
        members = dict(record[0]) if record else {}
        sure(isinstance(answer, Removed if member in members else Missing))
        members.pop(member, None)
        return (tuple(sorted(members.items())), record[1]) if members and record else None

    return lambda members: members.remove(member, name=b"1"), after


def _get_member(record: Record, answer: Any) -> Record:
    members = dict(record[0]) if record else {}
    sure(isinstance(answer, Found if b"a" in members else Missing))
    sure(not isinstance(answer, Found) or (answer.value == members[b"a"] and (answer.expires_at or -1) == record[1]))  # type: ignore[index]
    return record


def _operation(name: str, both: tuple[Callable[[Any], object], After], *, writes: bool = True) -> Operation:
    return Operation(name, *both, writes)


def refused(record: Record, answer: Any) -> Record:
    """By an application that has another version of the module, while the migration is under way."""
    sure(isinstance(answer, RefusedError))
    return record


_KEY_OPERATIONS = (
    Operation("stranger", _put(b"six")[0], refused, writes=False),
    _operation("set", _put(b"two")),
    _operation("update", _put(b"three")),
    _operation("expire", _put(b"four", LATER)),
    _operation("persist", _put(b"five", None)),
    _operation("delete", (lambda records: records.delete(id=b"1"), _deleted)),
    _operation("get", (lambda records: records.get(id=b"1"), _read), writes=False),
)
_MEMBER_OPERATIONS = (
    Operation("stranger", _set(b"a", 6.0)[0], refused, writes=False),
    _operation("set", _set(b"a", 2.0)),
    _operation("update", _set(b"a", 3.0)),
    _operation("create", _set(b"b", 4.0)),
    _operation("delete", _remove(b"a")),
    _operation("get", (lambda members: members.get(b"a", name=b"1"), _get_member), writes=False),
)


RECORDS = {one.name: one for one in _KEY_OPERATIONS}
MEMBERS = {one.name: one for one in _MEMBER_OPERATIONS}
