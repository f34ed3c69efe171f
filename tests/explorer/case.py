"""A group of actors, and where they begin."""

from __future__ import annotations

from dataclasses import dataclass

from tests.explorer.scene import Change


@dataclass(frozen=True)
class Case:
    """`parts` are operations of applications or pieces of the tool. `change` is what something without an adapter did
    last; with it, what the shapes owe each other holds only after a repair. `unsettled` and `odd` as for `outcomes`;
    `reused`: a name is written again, by something else, once it is free."""

    move: str
    phase: str
    parts: tuple[str, ...]
    record: str = "there"
    change: Change | None = None
    unsettled: bool = False
    odd: bool = False
    reused: bool = False

    @property
    def id(self) -> str:
        changed = f"-{self.change.__name__}" if self.change else ""
        return f"{self.move}-{self.phase}-{self.record}{changed}: {' | '.join(self.parts)}"
