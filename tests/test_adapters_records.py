"""Records: in every phase an application reads and writes the new shape, and both shapes are what the phase wants."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from migrator.adapters import Found, Missing, Removed, Unmoved, Written
from migrator.errors import RefusedError, Unmappable, UsageError
from tests.adapters.flavours import (
    ALL_FOUR,
    BOTH,
    OLD_IS_TRUE,
    STAGES,
    flavour,
    init,
    module_of,
    stop_at_contracted,
    through,
    tool_for,
)
from tests.support import KEYS, SAME_NAME, all_keys, expires, put

__all__ = ["flavour"]
SOURCES = {"key": KEYS, "swap": SAME_NAME}
FAR = 4_102_444_800_000


@pytest.fixture(params=SOURCES)
def mode(request):
    return request.param


@pytest.fixture
def tool(client, tmp_path, mode):
    for number in range(30):
        put(client, b"{t}:text:r%d" % number, b"v%d" % number)
    return tool_for(client, tmp_path, SOURCES[mode])


def fields(id: bytes, text: bytes) -> dict[bytes, bytes]:
    return {b"id": id, b"text": text}


class Shapes:
    """The bare keys of one record."""

    def __init__(self, place, mode, id: bytes):
        self.place, self.mode = place, mode
        self.final = b"{t}:text:" + id
        self.staged = b"migrator:staged:0001_first:{t}:" + self.final
        self.retired = b"migrator:old:0001_first:{t}:" + self.final
        self.new = self.staged if mode == "swap" else b"{t}:hash:" + id

    def there(self):
        """Those of its keys that exist."""
        return {name for name in (self.final, self.new) if self.place.raw.exists(name)}

    def old(self):
        is_type = self.place.raw.execute_command("TYPE", self.final)
        return self.place.raw.get(self.final) if is_type == b"string" else None

    def new_in(self, stage):
        name = self.final if self.mode == "swap" and stage in ("contracted", "swept") else self.new
        return {bytes(k): bytes(v) for k, v in self.place.raw.hgetall(name).items()} or None

    def expiries(self):
        """Of every key that holds the record."""
        names = self.there()
        assert names
        return [expires(self.place, name) for name in names]


@ALL_FOUR
def test_a_record_reads_and_writes_alike_in_every_phase(flavour, client, tool, mode, monkeypatch):
    init(tool)
    records = flavour.make("Records", client, module_of(tool))
    seen = []
    for number, stage in enumerate(through(tool, monkeypatch)):
        seen.append(stage)
        old, kept, new = b"r%d" % (2 * number), b"r%d" % (2 * number + 1), b"n%d" % number
        # what was there before, never touched
        found = records.get(id=old.decode())
        assert found == Found(fields(old, b"v%d" % (2 * number)), None, found.epoch), stage
        # changed, created, removed
        for id in (old, new):
            assert isinstance(records.put(fields(id, b"by-" + id), id=id), Written), stage
            shape = Shapes(client, mode, id)
            assert records.get(id=id).value == fields(id, b"by-" + id), stage
            is_old, is_new = stage in ("pending", *BOTH), stage not in ("pending",)
            assert shape.old() == (b"by-" + id if is_old else None), stage
            assert shape.new_in(stage) == (fields(id, b"by-" + id) if is_new else None), stage
        removed = records.delete(id=kept)
        assert isinstance(removed, Removed), stage
        assert isinstance(records.get(id=kept), Missing), stage
        assert isinstance(records.delete(id=kept), Missing), stage
        assert not Shapes(client, mode, kept).there(), stage
        if stage in BOTH[1:-1] or (stage == "expanded" and number > 1):
            result = tool.verify()
            assert (result.complete, result.missing, result.extra, result.different, result.ttl_drift) == (
                True, 0, 0, 0, 0), stage  # fmt: skip
    assert tuple(seen) == STAGES
    # every change made on the way came through to the end, and nothing that was deleted came back
    for number in range(len(STAGES)):
        for id in (b"r%d" % (2 * number), b"n%d" % number):
            assert records.get(id=id).value == fields(id, b"by-" + id)
        assert isinstance(records.get(id=b"r%d" % (2 * number + 1)), Missing)


def test_expiries_of_both_shapes_are_one(flavour, client, tool, mode, monkeypatch):
    init(tool)
    records = flavour.make("Records", client, module_of(tool))
    for stage in through(tool, monkeypatch):
        for id in (b"r1", b"fresh"):
            shape = Shapes(client, mode, id)
            records.put(fields(id, b"a"), expires_at=FAR, id=id)
            assert set(shape.expiries()) == {FAR}, stage
            assert records.get(id=id).expires_at == FAR, stage
            records.put(fields(id, b"b"), id=id)  # keeps it
            assert set(shape.expiries()) == {FAR}, stage
            records.put(fields(id, b"c"), expires_at=datetime.fromtimestamp(FAR / 1000 + 1, UTC), id=id)
            assert set(shape.expiries()) == {FAR + 1000}, stage
            records.put(fields(id, b"d"), expires_at=None, id=id)
            assert set(shape.expiries()) == {-1}, stage
            assert records.get(id=id).expires_at is None, stage
        records.delete(id="fresh")
        records.put(fields(b"brief", b"x"), expires_at=int(time.time() * 1000) + 20, id="brief")
        time.sleep(0.03)
        assert isinstance(records.get(id="brief"), Missing), stage


def test_what_only_the_old_shape_has_after_the_switch_is_unmoved(flavour, client, tool, mode, monkeypatch):
    init(tool)
    records = flavour.make("Records", client, module_of(tool))
    for stage in through(tool, monkeypatch):
        if stage in OLD_IS_TRUE or stage == "swept":
            continue
        name = b"foreign"
        put(client, b"{t}:text:" + name, b"old application")
        for answer in (records.get(id=name), records.put(fields(name, b"x"), id=name), records.delete(id=name)):
            assert isinstance(answer, Unmoved), stage
        assert client.raw.get(b"{t}:text:" + name) == b"old application", stage
        client.raw.delete(b"{t}:text:" + name)


def test_a_leftover_copy_never_comes_back_as_a_record(flavour, client, tool, mode):
    tool.apply(through="expand")
    records = flavour.make("Records", client, module_of(tool))
    shape = Shapes(client, mode, b"gone")
    put(client, shape.new, {b"id": b"gone", b"more": b"left over"}, px=50_000)
    assert isinstance(records.get(id="gone"), Missing)
    records.put(fields(b"gone", b"again"), id="gone")
    assert shape.new_in("expanded") == fields(b"gone", b"again")
    assert set(shape.expiries()) == {-1}
    put(client, shape.new, {b"id": b"gone"})
    client.raw.delete(shape.final)
    assert isinstance(records.delete(id="gone"), Missing)
    assert not shape.there()


def test_what_is_written_is_what_the_mapping_makes_of_it(flavour, client, tool, mode):
    tool.apply(through="expand")
    records = flavour.make("Records", client, module_of(tool))
    records.put({b"id": b"wrong", b"text": b" blanks ", b"more": b"lost"}, id="x")
    assert Shapes(client, mode, b"x").old() == b" blanks "
    assert Shapes(client, mode, b"x").new_in("expanded") == fields(b"x", b"blanks")
    for value, error in (({b"no": b"text"}, Unmappable), ({b"text": b"bad"}, Unmappable), ({}, UsageError),
                         (b"bytes", UsageError), ({"text": "str"}, UsageError)):  # fmt: skip
        with pytest.raises(error):
            records.put(value, id="y")
    assert isinstance(records.get(id="y"), Missing)
    put(client, b"{t}:text:q", b"bad, in quarantine")
    with pytest.raises(Unmappable):
        records.get(id="q")
    for captures in ({}, {"other": "x"}, {"id": "x", "more": "y"}, {"id": ""}, {"id": 7}):
        with pytest.raises(UsageError):
            records.get(**captures)
    with pytest.raises(UsageError):
        records.put(fields(b"x", b"x"), expires_at=datetime(2030, 1, 1), id="x")  # noqa: DTZ001


def test_a_value_the_mapping_makes_nothing_of_is_refused(flavour, client, tmp_path):
    nothing = KEYS.replace(
        '    if text.startswith(b"bad"):', '    if text == b"void":\n        return {}\n    if text == b"bad":'
    )
    tool = tool_for(client, tmp_path, nothing)
    tool.apply(through="expand")
    records = flavour.make("Records", client, module_of(tool))
    with pytest.raises(Unmappable, match="empty"):
        records.put(fields(b"x", b"void"), id="x")
    assert isinstance(records.get(id="x"), Missing)


def test_keys_of_another_type_are_refused_before_the_first_write(flavour, client, tool, mode, monkeypatch):
    init(tool)
    records = flavour.make("Records", client, module_of(tool))
    for stage in through(tool, monkeypatch):
        old_names, new_names = stage in ("pending", *BOTH), stage != "pending"
        shape = Shapes(client, mode, b"odd")
        names = {shape.final} if mode == "swap" else set()
        names |= {shape.final} if old_names else set()
        names |= {shape.new} if new_names and not (mode == "swap" and stage in ("contracted", "swept")) else set()
        for name in names:
            put(client, name, [b"a list"])
            for call in (lambda: records.put(fields(b"odd", b"x"), id="odd"), lambda: records.delete(id="odd")):
                with pytest.raises(RefusedError, match="is a list") as caught:
                    call()
                assert "nothing was written" in str(caught.value)
            assert shape.there() == {name}, stage
            client.raw.delete(name)


def test_in_contracted_a_staged_record_does_not_take_the_name_of_a_foreign_key(flavour, client, tmp_path, monkeypatch):
    tool = tool_for(client, tmp_path, SAME_NAME)
    tool.apply(through="switch")
    records = flavour.make("Records", client, module_of(tool))
    records.put(fields(b"odd", b"x"), id="odd")
    stop_at_contracted(tool, monkeypatch)
    shape = Shapes(client, "swap", b"odd")
    client.raw.delete(shape.final)
    put(client, shape.final, [b"a list"])
    for call in (lambda: records.get(id="odd"), lambda: records.delete(id="odd")):
        with pytest.raises(RefusedError, match="is a list"):
            call()
    assert shape.there() == {shape.final, shape.staged}


def test_a_record_that_has_the_new_shape_already_keeps_its_place(flavour, client, tmp_path, monkeypatch):
    tool = tool_for(client, tmp_path, SAME_NAME)
    init(tool)
    put(client, b"{t}:text:native", fields(b"native", b"one"))
    records = flavour.make("Records", client, module_of(tool))
    for number, stage in enumerate(through(tool, monkeypatch)):
        if stage == "reverting":
            break
        records.get(id="native")
        assert isinstance(records.put(fields(b"native", b"%d" % number), id="native"), Written)
        assert records.get(id="native").value == fields(b"native", b"%d" % number)
        assert client.raw.execute_command("TYPE", b"{t}:text:native") == b"hash"
        assert not [key for key in all_keys(client) if b"native" in key and key != b"{t}:text:native"], stage


def test_two_new_records_of_one_name_are_refused(flavour, client, tmp_path):
    tool = tool_for(client, tmp_path, SAME_NAME)
    tool.apply(through="expand")
    records = flavour.make("Records", client, module_of(tool))
    shape = Shapes(client, "swap", b"x")
    records.put(fields(b"x", b"one"), id="x")
    client.raw.delete(shape.final)
    put(client, shape.final, fields(b"x", b"two"))
    for call in (lambda: records.get(id="x"), lambda: records.put(fields(b"x", b"3"), id="x")):
        with pytest.raises(RefusedError, match="two new records"):
            call()
    assert client.raw.hget(shape.final, b"text") == b"two"
    assert shape.new_in("expanded") == fields(b"x", b"one")
