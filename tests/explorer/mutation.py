"""A check taken out of a script, and a group of actors that goes wrong without it."""

from __future__ import annotations

from dataclasses import dataclass

from tests.explorer.case import Case


@dataclass(frozen=True)
class Mutation:
    """`text` of the scripts becomes `into`, and `case` must end badly then."""

    name: str
    text: str
    into: str
    case: Case
