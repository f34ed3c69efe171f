"""One record of a KeyMove, its two shapes under two names or under one: all that can happen, within bounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.model import actors
from tests.model.back import PROGRAM
from tests.model.checks import fault
from tests.model.search import Found, search
from tests.model.server import SWITCHED, Db, Rules, forward
from tests.model.tool import Step
from tests.model.world import Bounds, Budget, World, begin, fresh


@dataclass(frozen=True)
class Record:
    """A configuration. `switched` begins with a record that has come so far already."""

    bounds: Bounds
    left: Budget
    same_name: bool = False
    switched: bool = False
    versions: tuple[int, ...] = (0, 1)

    def search(self, without: str = "", limit: int = 10_000_000) -> Found[World]:
        rules = Rules(without, self.same_name)
        starts = [self._start(version) for version in self.versions]

        def judge(after: World) -> str:
            return fault(after, self.same_name)

        return search(starts, lambda w: moves(w, rules, self.bounds), judge, limit)

    def _start(self, version: int) -> World:
        db = fresh(version)
        if self.switched:
            db = Db(SWITCHED, 0, 1, version, forward(version), 0, False, version, True)
        return begin(db, self.left._replace(version=version + 1))


def moves(w: World, rules: Rules, bounds: Bounds) -> Iterator[tuple[str, World]]:
    yield from actors.moves(w, rules, bounds)
    if w.tool.at != "off":
        for label, after, tool in PROGRAM[w.tool.at](Step(w, w.tool, rules, bounds)):
            yield label, after._replace(tool=tool)
    if w.stalled is not None:
        for label, after, tool in PROGRAM[w.stalled.at](Step(w, w.stalled, rules, bounds)):
            gone = tool.at in ("off", "lost") or (tool.at == "idle" and rules.without != "fence")
            yield f"stalled: {label}", after._replace(stalled=None if gone else tool)
