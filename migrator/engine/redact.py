"""Values as they may be shown: their shape, never their content. Headers, cookies and payloads are secrets."""

from __future__ import annotations

from migrator.keys import Kind
from migrator.models import show
from migrator.moves.values import MemberValue, Value
from migrator.records.scores import format_score

_FIELDS = 24


def shape(kind: Kind, value: Value) -> str:
    """What a value looks like: type, sizes and field names, no field's content."""
    if kind == "string":
        return f"string of {len(value)} bytes"
    if kind == "hash":
        names = [f"{show(name)}[{len(content)}]" for name, content in list(value.items())[:_FIELDS]]
        more = f" and {len(value) - _FIELDS} more" if len(value) > _FIELDS else ""
        return f"hash of {len(value)}: {' '.join(names)}{more}"
    return f"{kind} of {len(value)} members"


def member_shape(kind: Kind, name: bytes, value: MemberValue, *, plain: bool) -> str:
    """A member; `plain` where the move makes a score of it: what orders things is no secret."""
    if kind == "zset":
        # In full where it is whole: 6.389e+17 would hide what became of the last digits.
        return f"{show(name)} {int(value) if float(value).is_integer() else format_score(value).decode()}"
    if kind == "hash":
        return f"{show(name)} {value.decode() if plain and value.isdigit() else f'[{len(value)}]'}"
    return show(name)
