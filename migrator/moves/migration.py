"""A migration: its moves, and what has to come before."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from migrator.moves.move import KeyMove, MemberMove

Move = KeyMove[Any, Any] | MemberMove[Any, Any]


class Migration:
    """One numbered step. `after` names migrations (ID or number) that must be contracted first."""

    def __init__(self, *moves: Move, after: Iterable[str] = ()) -> None:
        if not moves:
            raise ValueError("a migration needs at least one move")
        sources = [move.source.template for move in moves]
        if len(set(sources)) != len(sources):
            raise ValueError("two moves have the same source")
        self.moves: tuple[Move, ...] = moves
        self.after: tuple[str, ...] = (after,) if isinstance(after, str) else tuple(after)

    @property
    def invertible(self) -> bool:
        return all(move.inverse is not None for move in self.moves)
