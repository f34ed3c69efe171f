"""A report against the one that was expected: only what is wrong with the data or the mapping.

How many records there are is left out, and how many of them were noted or not judged: that is another number the next
night, and once one has expired.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from migrator.errors import UsageError
from migrator.models import PlanResult, SnapshotReport

_MIGRATION = {"reached", "rejected", "reasons", "differing", "differences"}
_REPORT = {"loaded": {"not_visible"}, "elsewhere": True, "differing": True, "rejected": True}


def read(path: Path) -> SnapshotReport:
    """The report of a plan that was saved. Raises UsageError for a file that is none."""
    try:
        report = PlanResult.model_validate_json(path.read_bytes()).snapshot
    except (OSError, ValidationError) as error:
        raise UsageError(f"--expect {path}: no saved plan ({type(error).__name__})", next=_anew(path)) from None
    if report is None:
        raise UsageError(f"--expect {path}: a plan that was not tried on a snapshot", next=_anew(path))
    return report


def _anew(path: Path) -> str:
    return f"write it with: migrator plan --snapshot FILE --out {path}"


def unexpected(report: SnapshotReport, expected: SnapshotReport) -> tuple[str, ...]:
    """What is otherwise than expected, a sentence each."""
    return tuple(_unlike("", _stable(expected), _stable(report)))


def _stable(report: SnapshotReport) -> dict[str, Any]:
    whole: dict[str, Any] = report.model_dump(mode="json", include=_REPORT)  # type: ignore[arg-type] # a nested include
    for one in report.migrations:
        noted = sorted(note.reason for note in one.noted)
        told = one.model_dump(mode="json", include=_MIGRATION)
        whole[one.id] = told | {"noted": noted, "unjudged": "some" if one.unjudged else "none"}
    return whole


def _unlike(where: str, expected: Any, found: Any) -> Iterator[str]:
    if expected == found:
        return
    if isinstance(expected, dict) and isinstance(found, dict):
        for name in dict.fromkeys((*expected, *found)):
            yield from _unlike(f"{where} {name}".strip(), expected.get(name), found.get(name))
    elif isinstance(expected, list) and isinstance(found, list):
        yield from (f"{where}: no longer {_said(one)}" for one in expected if one not in found)
        yield from (f"{where}: new is {_said(one)}" for one in found if one not in expected)
    else:
        yield f"{where}: {_said(expected)} was expected, {_said(found)} was found"


def _said(value: Any) -> str:
    if value is None:
        return "nothing"
    if not isinstance(value, dict):
        return f"{value:,}" if isinstance(value, int) else str(value)
    return ", ".join(f"{name} {content}" for name, content in value.items() if content is not None)
