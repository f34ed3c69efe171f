"""A migration: its moves, and what has to come before."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, product
from typing import Any

from migrator.moves.move import KeyMove, MemberMove

Move = KeyMove[Any, Any] | MemberMove[Any, Any]


class Migration:
    """One numbered step. `after` names migrations (ID or number) that must be contracted first."""

    def __init__(self, *moves: Move, after: Iterable[str] = ()) -> None:
        if not moves:
            raise ValueError("a migration needs at least one move")
        for one, other in combinations(moves, 2):
            for mine, keys in product((one.source, one.target), (other.source, other.target)):
                if mine.overlaps(keys):
                    raise ValueError(f"two moves are about the same keys: {mine.template} and {keys.template}")
        self.moves: tuple[Move, ...] = moves
        self.after: tuple[str, ...] = (after,) if isinstance(after, str) else tuple(after)

    @property
    def invertible(self) -> bool:
        return all(move.inverse is not None for move in self.moves)
