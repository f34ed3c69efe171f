"""Options common to all commands: accepted before and after the command, read from the environment where named."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from migrator.errors import UsageError

Format = Literal["text", "json"]
DEFAULT_URL = "redis://localhost:6379/0"
_LONGEST = 1e6  # seconds; "inf" and "nan" are numbers too
_TAKES_VALUE = ("--url", "--migrations", "--namespace", "--format", "--lease", "--retry")


@dataclass(frozen=True)
class Common:
    """What every command knows. `lease` and `retry` are seconds."""

    url: str = DEFAULT_URL
    migrations: Path = Path("migrations")
    namespace: str = "migrator"
    format: Format = "text"
    lease: float = 30.0
    retry: float = 30.0


@dataclass(frozen=True)
class Asked:
    """What was asked of a `plan --snapshot`."""

    snapshot: Path
    at: Sequence[str] = ()
    junit: Path | None = None
    annotations: bool = False
    expect: Path | None = None
    processes: int | None = None


def split(argv: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Takes the common options out, wherever they stand before a `--`; the rest is the command's."""
    found: dict[str, str] = {}
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        name, equals, value = word.partition("=")
        if name in _TAKES_VALUE:
            given = value if equals else next(words, None)
            if given is None:
                raise UsageError(f"{name} needs a value", next="see: migrator --help")
            found[name] = given
        elif word == "--":
            rest += [word, *words]
        else:
            rest.append(word)
    return found, rest


def common(found: dict[str, str], environment: dict[str, str] | None = None) -> Common:
    """The options with their defaults. Raises UsageError for a value that is none."""
    env = os.environ if environment is None else environment
    form = found.get("--format", "text")
    if form not in ("text", "json"):
        raise UsageError(f"--format is text or json, not {form!r}", next="see: migrator --help")
    return Common(
        url=found.get("--url") or env.get("MIGRATOR_URL") or DEFAULT_URL,
        migrations=Path(found.get("--migrations") or env.get("MIGRATOR_MIGRATIONS") or "migrations"),
        namespace=found.get("--namespace", "migrator"),
        format="json" if form == "json" else "text",
        lease=_seconds("--lease", found.get("--lease", "30"), least=1),
        retry=_seconds("--retry", found.get("--retry", "30"), least=0),
    )


def _seconds(name: str, text: str, *, least: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not least <= value < _LONGEST:
        raise UsageError(f"{name} is a number of seconds, at least {least:g}", next="see: migrator --help")
    return value


def duration(text: str, name: str) -> float:
    """Seconds from `30`, `30s`, `500ms`, `2m` or `1h`. Raises UsageError for anything else."""
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
    number = text.rstrip("hms")
    unit = text[len(number) :] or "s"
    try:
        seconds = float(number) * units[unit]
    except (ValueError, KeyError):
        seconds = -1.0
    if not 0 <= seconds < _LONGEST:
        raise UsageError(f"{name} is a time like 30s, 500ms or 2m, not {text!r}", next="give it one of these forms")
    return seconds
