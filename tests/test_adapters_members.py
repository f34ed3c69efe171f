"""Members: in every phase the new shape is read and written, and both shapes are what the phase wants."""

from __future__ import annotations

import pytest

from migrator.adapters import Batch, Found, Missing, Removed, Unmoved, Written
from migrator.errors import RefusedError, Unmappable, UsageError
from tests.adapters.flavours import ALL_FOUR, BOTH, OLD_IS_TRUE, STAGES, flavour, init, module_of, through, tool_for
from tests.support import MEMBERS, expires, put

__all__ = ["flavour"]
OLD, NEW = b"{t}:times:a", b"{t}:sorted:a"
FAR = 4_102_444_800_000
# Names change, and can be found from the new one; fields become members of a set.
RENAMED = """
from migrator import Keys, MemberMove, Migration

migration = Migration(MemberMove(
    source=Keys("{{t}}:times:{name}", type="hash"),
    target=Keys("{{t}}:sorted:{name}", type="set"),
    forward=lambda key, field, value: (b"m:" + field, None),
    inverse=lambda key, member, _: (member[2:], b"1"),
    origin=lambda key, member: member[2:],
))
"""


class Shapes:
    def __init__(self, place):
        self.place = place

    def old(self):
        return {bytes(k): bytes(v) for k, v in self.place.raw.hgetall(OLD).items()}

    def new(self):
        return {bytes(k): float(v) for k, v in self.place.raw.zrange(NEW, 0, -1, withscores=True)}


def check(tool, client, stage, live):
    """Both shapes hold what is live, as far as the phase wants them."""
    shapes = Shapes(client)
    if stage in ("pending", *BOTH[:-1]):
        assert shapes.old() == {name: b"%d" % ticks for name, ticks in live.items()}, stage
    if stage in BOTH[1:4] or stage in ("contracted", "swept", "reverting"):
        assert shapes.new() == {name: float(ticks) for name, ticks in live.items()}, stage
    if stage in BOTH[1:4]:
        result = tool.verify()
        assert (result.missing, result.extra, result.different, result.ttl_drift) == (0, 0, 0, 0), stage


@ALL_FOUR
def test_a_member_reads_and_writes_alike_in_every_phase(flavour, client, tmp_path, monkeypatch):
    live = {b"m%d" % n: 100 * n + 1 for n in range(1, 61)}
    put(client, OLD, {name: b"%d" % score for name, score in live.items()})
    tool = tool_for(client, tmp_path, MEMBERS)
    init(tool)
    members = flavour.make("Members", client, module_of(tool))
    for number, stage in enumerate(through(tool, monkeypatch)):
        at = 4 * number + 1
        one, two, gone, new = (b"m%d" % at, b"m%d" % (at + 1), b"m%d" % (at + 2), b"n%d" % number)
        assert members.get(one, name="a") == Found(float(live[one]), None, members.get(one, name="a").epoch), stage
        assert isinstance(members.set(one, 7.0, name="a"), Written), stage
        assert members.set_many({two: 8.0, new: 9}, name=b"a") == Batch(2, (), ()), stage
        live |= {one: 7, two: 8, new: 9}
        assert isinstance(members.remove(gone, name="a"), Removed), stage
        del live[gone]
        assert isinstance(members.remove(gone, name="a"), Missing), stage
        assert isinstance(members.get(gone, name="a"), Missing), stage
        last = b"m%d" % (at + 3)
        del live[last]
        assert members.remove_many([last, gone], name="a") == Batch(1, (gone,), ()), stage
        assert [members.get(name, name="a").value for name in (one, two, new)] == [7, 8, 9], stage
        want = sorted((float(score), name) for name, score in live.items() if 8 <= score <= 3000)
        got = [entry for page in members.range(8, 3000, 7, name="a") for entry in page]
        assert [(score, name) for name, score in got] == want, stage
        check(tool, client, stage, live)
    assert number == len(STAGES) - 1


def test_the_expiry_of_the_copy_follows_the_truth(flavour, client, tmp_path, monkeypatch):
    put(client, OLD, {b"x": b"1"})
    tool = tool_for(client, tmp_path, MEMBERS)
    init(tool)
    members = flavour.make("Members", client, module_of(tool))
    for stage in through(tool, monkeypatch):
        if stage not in BOTH:
            members.set(b"x", 1.0, name="a")
            continue
        truth, copy = (OLD, NEW) if stage in OLD_IS_TRUE else (NEW, OLD)
        client.raw.pexpireat(truth, FAR)
        members.set(b"x", 2.0, name="a")
        assert (expires(client, truth), expires(client, copy)) == (FAR, FAR), stage
        assert members.get(b"x", name="a").expires_at == FAR
        client.raw.persist(truth)
        members.set(b"x", 3.0, name="a")
        assert (expires(client, truth), expires(client, copy)) == (-1, -1), stage


def test_a_leftover_copy_never_comes_back(flavour, client, tmp_path):
    tool = tool_for(client, tmp_path, MEMBERS)
    tool.apply(through="expand")
    members = flavour.make("Members", client, module_of(tool))
    for write, left in ((lambda: members.set(b"x", 1.0, name="a"), {b"x": 1.0}),
                        (lambda: members.remove(b"x", name="a"), {})):  # fmt: skip
        client.raw.delete(OLD)
        put(client, NEW, {b"ghost": 5.0})
        assert isinstance(members.get(b"ghost", name="a"), Missing)
        write()
        assert Shapes(client).new() == left


def test_what_only_the_old_shape_has_after_the_switch_is_unmoved(flavour, client, tmp_path, monkeypatch):
    put(client, OLD, {b"x": b"1"})
    tool = tool_for(client, tmp_path, MEMBERS)
    init(tool)
    members = flavour.make("Members", client, module_of(tool))
    for stage in through(tool, monkeypatch):
        if stage in OLD_IS_TRUE or stage == "swept":
            continue
        members.get(b"x", name="a")  # in `contracted` this retires the old collection
        put(client, OLD, {b"foreign": b"5"})
        assert isinstance(members.get(b"foreign", name="a"), Unmoved), stage
        assert isinstance(members.set(b"foreign", 6.0, name="a"), Unmoved), stage
        assert isinstance(members.remove(b"foreign", name="a"), Unmoved), stage
        assert members.set_many({b"foreign": 6.0, b"x": 2.0}, name="a") == Batch(1, (), (b"foreign",)), stage
        assert members.remove_many([b"foreign", b"y"], name="a") == Batch(0, (b"y",), (b"foreign",)), stage
        assert client.raw.hget(OLD, b"foreign") == b"5", stage
        client.raw.hdel(OLD, b"foreign")


def test_an_old_collection_is_left_alone_where_the_new_one_is_missing_after_the_switch(flavour, client, tmp_path):
    tool = tool_for(client, tmp_path, MEMBERS)
    tool.apply(through="switch")
    members = flavour.make("Members", client, module_of(tool))
    put(client, OLD, {b"foreign": b"5"})
    assert isinstance(members.remove(b"x", name="a"), Missing)
    assert isinstance(members.set(b"x", 1.0, name="a"), Written)
    assert Shapes(client).old() == {b"foreign": b"5", b"x": b"1"}


def test_a_collection_of_another_type_is_refused_before_the_first_write(flavour, client, tmp_path, monkeypatch):
    tool = tool_for(client, tmp_path, MEMBERS)
    init(tool)
    members = flavour.make("Members", client, module_of(tool))
    for stage in through(tool, monkeypatch):
        for name in (OLD, NEW):
            if (name == OLD and stage in ("contracted", "swept")) or (name == NEW and stage == "pending"):
                continue
            put(client, name, [b"a list"])
            for call in (lambda: members.set(b"x", 1.0, name="a"), lambda: members.remove(b"x", name="a")):
                with pytest.raises(RefusedError, match=r"is a list.*nothing was written"):
                    call()
            assert [key for key in (OLD, NEW) if client.raw.exists(key)] == [name], stage
            client.raw.delete(name)


def test_names_that_change_are_found_by_origin(flavour, client, tmp_path, monkeypatch):
    put(client, OLD, {b"x": b"anything", b"y": b"1"})
    tool = tool_for(client, tmp_path, RENAMED)
    init(tool)
    members = flavour.make("Members", client, module_of(tool))
    for stage in through(tool, monkeypatch):
        assert members.get(b"m:x", name="a").value is None, stage
        assert isinstance(members.set(b"m:z", None, name="a"), Written), stage
        assert isinstance(members.get(b"m:z", name="a"), Found), stage
        assert isinstance(members.remove(b"m:z", name="a"), Removed), stage
        assert isinstance(members.get(b"m:z", name="a"), Missing), stage
        with pytest.raises(UsageError):
            members.set(b"m:z", 5.0, name="a")
        with pytest.raises(UsageError):
            list(members.range(0, 1, name="a"))


@pytest.mark.parametrize("origin", ["{b'm': member[2:]}[member[:1]]", "member[2:] if member[:1] == b'm' else None"])
def test_a_name_that_origin_does_not_take_is_refused_and_not_repeated(flavour, client, tmp_path, origin):
    put(client, OLD, {b"ada": b"1"})
    tool = tool_for(client, tmp_path, RENAMED.replace("member: member[2:]", f"member: {origin}"))
    init(tool)
    members = flavour.make("Members", client, module_of(tool))
    for call in (
        lambda: members.get(b"x:ada", name="a"),
        lambda: members.remove(b"x:ada", name="a"),
        lambda: members.remove_many([b"m:ada", b"x:ada"], name="a"),
    ):
        with pytest.raises(Unmappable) as caught:
            call()
        assert "ada" not in str(caught.value)
    assert client.raw.hgetall(OLD) == {b"ada": b"1"}
    assert isinstance(members.remove(b"m:ada", name="a"), Removed)


@pytest.mark.parametrize("inverse", ["member[2:]", 'member.removeprefix(b"m:")'])
def test_without_origin_a_mapping_may_not_change_names(flavour, client, tmp_path, inverse):
    source = RENAMED.replace("    origin=lambda key, member: member[2:],\n", "").replace("member[2:]", inverse)
    tool = tool_for(client, tmp_path, source)
    init(tool)
    with pytest.raises(UsageError, match="changes the names"):
        flavour.make("Members", client, module_of(tool))
    # Where the mapping takes no name that is made up, it is found out member by member.
    tool = tool_for(client, tmp_path / "picky", source.replace("+ field", "+ {1: field, 3: field}[len(field)]"))
    members = flavour.make("Members", client, module_of(tool))
    put(client, OLD, {b"m:x": b"1"})
    for call in (
        lambda: members.set(b"x", None, name="a"),
        lambda: members.set(b"m:x", None, name="a"),  # which `get` and `remove` would not find again
        lambda: members.get(b"m:x", name="a"),
        lambda: members.remove(b"m:x", name="a"),
    ):
        with pytest.raises((UsageError, Unmappable)):
            call()
    assert Shapes(client).old() == {b"m:x": b"1"}


VALUED = """
from migrator import Keys, MemberMove, Migration

migration = Migration(MemberMove(
    source=Keys("{{t}}:fields:{name}", type="hash"),
    target=Keys("{{t}}:pairs:{name}", type="set"),
    forward=lambda key, field, value: (field + b"=" + value, None),
    inverse=lambda key, member, _: tuple(member.split(b"=", 1)),
    origin=lambda key, member: member.split(b"=")[0],
))
"""


@pytest.mark.parametrize("origin", [True, False])
def test_names_that_hold_values_are_refused_before_anything_is_written(flavour, server, tmp_path, origin):
    """By a new name alone nobody can tell which old member it was: `remove(f=1)` would take an `f` that is 2 by now."""
    source = "\n".join(line for line in VALUED.splitlines() if origin or "origin=" not in line)
    tool = tool_for(server, tmp_path, source)
    init(tool)
    with pytest.raises(UsageError, match="depends on its value"):
        flavour.make("Members", server, module_of(tool))


# As above, of unix times only.
DATED = VALUED.replace(
    "migration =",
    """
def forward(key, field, value):
    assert len(value) == 10
    return field + b"=" + value, None

migration =""",
).replace('lambda key, field, value: (field + b"=" + value, None)', "forward")
# The made-up name stays as it is, by forward.
USERS = MEMBERS.replace("return field,", 'return field.removeprefix(b"user:"),').replace(
    "(member, b", '(b"user:" + member, b'
)


@pytest.mark.parametrize(("source", "name"), [(DATED, b"ada=1759385730"), (USERS, b"ada")], ids=["value", "prefix"])
def test_a_mapping_that_takes_no_plain_number_or_no_plain_name_is_seen_through_too(
    flavour, client, tmp_path, source, name
):
    key = b"{t}:fields:a" if source is DATED else OLD
    put(client, key, {b"ada": b"1759385999", b"user:ada": b"1759385999"})
    tool = tool_for(client, tmp_path, source)
    init(tool)
    with pytest.raises(UsageError, match="depends on its value" if source is DATED else "changes the names"):
        flavour.make("Members", client, module_of(tool)).remove(name, name="a")
    assert client.raw.hlen(key) == 2


def test_where_nothing_is_proved_a_removal_takes_no_member_that_has_another_value_by_now(flavour, client, tmp_path):
    put(client, b"{t}:fields:a", {b"ada": b"1759385730.5", b"eve": b"1759385730.5", b"bad": b"never"})
    tool = tool_for(client, tmp_path, DATED.replace("== 10", "== 12"))
    tool.apply(through="expand")
    members = flavour.make("Members", client, module_of(tool))
    assert isinstance(members.set(b"ada=1759385999.5", None, name="a"), Written)
    with pytest.raises(UsageError, match="depends on its value"):
        members.remove(b"ada=1759385730.5", name="a")
    with pytest.raises(UsageError, match="depends on its value"):
        members.remove_many([b"eve=1759385730.5", b"ada=1759385730.5"], name="a")
    with pytest.raises(Unmappable):
        members.remove(b"bad=1759385730.5", name="a")
    assert client.raw.hmget(b"{t}:fields:a", b"ada", b"eve", b"bad") == [b"1759385999.5", b"1759385730.5", b"never"]
    assert members.remove_many([b"eve=1759385730.5", b"ada=1759385999.5", b"x=1"], name="a") == Batch(2, (b"x=1",), ())
    assert client.raw.hkeys(b"{t}:fields:a") == [b"bad"]


def test_where_nothing_is_proved_a_removal_never_leaves_the_old_member_to_come_back(flavour, client, tmp_path):
    source = USERS.replace(
        "def forward(key, field, value):", "def forward(key, field, value):\n    assert b':' in field"
    )
    put(client, OLD, {b"user:ada": b"5", b"user:eve": b"6"})
    tool = tool_for(client, tmp_path, source)
    tool.apply(through="backfill")
    members = flavour.make("Members", client, module_of(tool))
    assert isinstance(members.remove(b"ada", name="a"), Missing)  # there is no old member of that name
    assert Shapes(client).new() == {b"ada": 5.0, b"eve": 6.0}
    tool.apply(through="switch")
    for remove in (lambda: members.remove(b"ada", name="a"), lambda: members.remove_many([b"x", b"ada"], name="a")):
        with pytest.raises(UsageError, match="changes the names"):
            remove()
    assert Shapes(client).new() == {b"ada": 5.0, b"eve": 6.0}
    assert Shapes(client).old() == {b"user:ada": b"5", b"user:eve": b"6"}


def test_where_nothing_is_proved_a_mapping_that_keeps_names_removes_as_others_do(
    flavour, client, tmp_path, monkeypatch
):
    tool = tool_for(client, tmp_path, MEMBERS.replace("not value.isdigit()", "not value.isdigit() or len(value) != 11"))
    init(tool)
    members = flavour.make("Members", client, module_of(tool))
    live = {b"m%04d" % n: 10**10 + n for n in range(1200)}
    for stage in through(tool, monkeypatch):
        assert members.set_many(live, name="a") == Batch(len(live), (), ()), stage
        if stage in BOTH[3:]:
            put(client, OLD, {b"foreign": b"%d" % 10**10})
        unmoved = (b"foreign",) if stage in BOTH[3:] else ()
        gone = [*live, *unmoved, b"none"]
        assert members.remove_many(gone, name="a") == Batch(len(live), (b"none",), unmoved), stage
        assert isinstance(members.remove(b"m0000", name="a"), Missing), stage
        assert not client.raw.exists(NEW), stage
        assert client.raw.hkeys(OLD) == list(unmoved), stage
        client.raw.delete(OLD)
