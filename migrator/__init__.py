"""Carries data in Redis from one shape to another while applications keep reading and writing it."""

from migrator.errors import Unmappable
from migrator.keys import GUID, Key, Keys
from migrator.moves import NOW, Index, KeyMove, Mapped, MemberMove, Migration
from migrator.version import VERSION

__version__ = VERSION

__all__ = ["GUID", "NOW", "Index", "Key", "KeyMove", "Keys", "Mapped", "MemberMove", "Migration", "Unmappable"]
