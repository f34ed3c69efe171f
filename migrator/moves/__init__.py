"""What an author writes: which keys, and one pure function from the old shape to the new."""

from migrator.moves.migration import Migration, Move
from migrator.moves.move import NOW, Index, KeyMove, Mapped, MemberMove, Now

__all__ = ["NOW", "Index", "KeyMove", "Mapped", "MemberMove", "Migration", "Move", "Now"]
