"""Members read in bulk: what is still under way counts as not compared, whatever is settled after it without asking."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext

import pytest

from migrator.engine import bulk
from migrator.engine.batches import PageSize
from migrator.engine.overlap import undone
from migrator.engine.walk import Place
from migrator.moves.family import Family, OneSlot
from migrator.names import Names
from tests.support import MEMBERS, modules_of, write

NOW_HERE, NEVER = 1_700_000_000_000, -1
PAGE_1, PAGE_2 = [b"a", b"1"], [b"b", b"2"]


class Sent:
    """Lanes that send nothing anywhere; the number of requests."""

    number = 0

    def send(self, *_):
        self.number += 1


class All:
    def wanted(self):
        return True

    def equal(self, number):
        return Counter(equal=number)


@pytest.fixture
def side(tmp_path):
    module = modules_of(write(tmp_path / "migrations", MEMBERS)).find("0001")
    family = Family(OneSlot(), Names("migrator"), module.id, module.migration.moves[0])
    pair = family.from_old(b"{t}:times:a")
    assert pair is not None
    return bulk._Old(
        family, pair, 3, PageSize("hash", 1), All(), lambda _, members: Counter(different=len(members)), []
    )


@pytest.mark.parametrize("last", [True, False], ids=["the last page", "a page"])
@pytest.mark.parametrize("page_2", [[NOW_HERE, NEVER, PAGE_2], [NEVER, NEVER, []]], ids=["all odd", "empty"])
def test_a_page_of_which_nothing_is_asked_waits_for_the_one_before(side, last, page_2):
    lanes = Sent()
    work = side.work(lanes, lambda: 10)
    next(work)
    work.send([NEVER, NEVER, [b"7", PAGE_1]])  # now page 2 and the other side of page 1 are asked for
    assert lanes.number == 3
    *expiries, members = page_2
    work.send([*expiries, [b"0" if last else b"9", members]])
    # Lost here, or stopped: all of page 1 is to be compared again.
    assert undone([side]) == [(side.pair, 3)]
    assert side._told == []

    with pytest.raises(StopIteration) if last else nullcontext():
        work.send([[b"1"]])
    assert [told.place for told in side._told] == [Place(side.pair.old, 7), Place(side.pair.old, 0 if last else 9)]
    assert [told.counts["equal"] for told in side._told] == [1, 0]
    assert undone([side]) == ([] if last else [(side.pair, 9)])


def test_a_page_alone_of_which_nothing_is_asked_is_settled_at_once(side):
    work = side.work(Sent(), lambda: 10)
    next(work)
    work.send([NOW_HERE, NEVER, [b"7", PAGE_1]])
    assert undone([side]) == [(side.pair, 7)]
    assert [told.counts["different"] for told in side._told] == [1]
