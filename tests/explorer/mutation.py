"""A check taken out, and a group of actors that goes wrong without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from tests.explorer.case import Case
from tests.explorer.server import FakeServer


@dataclass(frozen=True)
class Mutation:
    """`text` of the scripts becomes `into`, and `case` must end badly then."""

    name: str
    text: str
    into: str
    case: Case

    def on(self, server: FakeServer) -> AbstractContextManager[None]:
        return server.changed(self.text, self.into)


@dataclass(frozen=True)
class Left:
    """The same for a check of the engine's own: a member of a class gives what `into` makes of what it gave."""

    name: str
    owner: type
    member: str
    into: Callable[[Any], Any]
    case: Case

    @contextmanager
    def on(self, _: FakeServer) -> Iterator[None]:
        was = self.owner.__dict__[self.member]
        is_property = isinstance(was, property)
        gives = was.fget if is_property else was

        def now(*args: Any) -> Any:
            return self.into(gives(*args))

        with patch.object(self.owner, self.member, property(now) if is_property else now):
            yield
