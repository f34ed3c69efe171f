"""What an inverse did not give back: of a record as it was, and as `inverse(forward(record))` has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from migrator.moves.migration import Move
from migrator.moves.values import Value

WHOLE = "the record as a whole"


def undeclared(move: Move, old: Value, again: Value) -> list[str] | None:
    """The parts that are lost although the move does not declare it; None where its declaration cannot be checked.

    `lost` of the move decides where there is one. Without it, a move that declares no `losses` has to give everything
    back exactly; of one that declares some, nothing may be gone altogether: a declaration in words cannot be checked
    further.
    """
    if move.lost is not None:
        return [str(part) for part in move.lost(old, again)]
    if old == again:
        return []
    if not move.losses:
        return changed(old, again) or [WHOLE]
    return gone(old, again) or None


def gone(old: Value, again: Value) -> list[str]:
    """The fields of a hash, or properties of a JSON object in any casing, that had a value and have none now."""
    before, after = _parts(old), _parts(again)
    return sorted(name for name, value in before.items() if not _empty(value) and _empty(after.get(name)))


def changed(old: Value, again: Value) -> list[str]:
    """Those that have another value now, or none."""
    before, after = _parts(old), _parts(again)
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _empty(value: object) -> bool:
    return value is None or value in (b"", "", [], {})


def _parts(value: Value) -> Mapping[str, Any]:
    """By name; nothing for what has no named parts."""
    if isinstance(value, dict):
        return {name.decode(errors="backslashreplace"): content for name, content in value.items()}
    if not isinstance(value, bytes):
        return {}
    try:
        found = msgspec.json.decode(value)
    except msgspec.MsgspecError:
        return {}
    return {name.casefold(): content for name, content in found.items()} if isinstance(found, dict) else {}
