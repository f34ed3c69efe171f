"""Whatever the records are: applied to contract they verify clean, and rolled back they are what they were."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import MEMBERS, Tool, empty, guid, job, picture, put, shipped_tool, tool_for
from tests.test_values import KIND_MOVES, MEMBER_KINDS, MOVE

QUICK = settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
name = st.binary(min_size=1, max_size=12)
life = st.sampled_from([None, 3_600_000])
score = st.floats(allow_nan=False, allow_infinity=False, width=32).map(float)


def live(place, make) -> None:
    """A life from nothing, with everything empty before it."""
    with TemporaryDirectory() as folder:
        tool: Tool = make(Path(folder))
        ids = [module.id for module in tool.session().modules.all]
        before = picture(place)
        tool.apply(*ids)
        for id in ids:
            found = tool.verify(id)
            assert found.complete
            assert (found.missing, found.extra, found.different, found.ttl_drift, found.unreadable) == (0, 0, 0, 0, 0)
        tool.apply(*ids, through="contract")
        tool.apply(*ids, through="contract")
        for id in ids:
            assert tool.rollback(id, "pending") == "pending"
        assert picture(place) == before


jobs = st.fixed_dictionaries(
    {}, optional={
        "name": st.text(max_size=20), "status": st.sampled_from([100, 200, 300, 400, 500, 600, "Queued", "failed"]),
        "payload": st.text(max_size=50), "result": st.none() | st.text(max_size=20),
        "retryCount": st.integers(-5, 10), "maxRetries": st.integers(-5, 10),
        "headers": st.dictionaries(st.text(max_size=8), st.lists(st.none() | st.text(max_size=8)), max_size=3),
        "retryDelayUntil": st.none() | st.datetimes().map(lambda d: d.isoformat() + "Z"),
        "createdAt": st.datetimes().map(lambda d: d.isoformat() + "+05:30"),
        "unknown": st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    },
)  # fmt: skip
ticks = st.just(0) | st.integers(621355968000000000, 3155378975999999999)


@QUICK
@given(st.lists(st.tuples(jobs, life), max_size=6), st.dictionaries(name, st.dictionaries(name, ticks, min_size=1)))
def test_any_jobs_and_timestamps(client, records, maps):
    empty(client)
    prefix = (b"{ae}", b"{map}") if client.kind == "cluster" else (b"ae", b"map")
    for number, (changed, px) in enumerate(records):
        put(client, prefix[0] + b":job:" + guid(number).encode(), job(guid(number), **changed), px=px)
    for key, fields in maps.items():
        times = {field: b"%d" % value for field, value in fields.items()}
        put(client, prefix[1] + b":" + key + b":__meta:timestamps", times)
    live(client, lambda folder: shipped_tool(client, folder))


VALUES = {
    '"string"': st.binary(max_size=20), '"list"': st.lists(name, min_size=1, max_size=5),
    '"set"': st.sets(name, min_size=1, max_size=5), '"zset"': st.dictionaries(name, score, min_size=1, max_size=5),
    '"hash"': st.dictionaries(name, st.binary(max_size=8), min_size=1, max_size=5),
}  # fmt: skip


@QUICK
@given(st.data(), st.sampled_from(sorted(KIND_MOVES)), st.sampled_from(["old", "new"]))
def test_any_keys_of_any_kind(client, data, kind, target):
    empty(client)
    kinds = KIND_MOVES[kind]
    value = st.fixed_dictionaries({b"v": st.binary(max_size=8)}) if kind == "hash to string" else VALUES[kinds[0]]
    if kinds[0] == '"string"':  # the inverse joins words by one blank
        value = st.lists(st.sampled_from([b"a", b"bc", b"\xff"]), max_size=4).map(b" ".join)
    for key, (content, px) in data.draw(st.dictionaries(name, st.tuples(value, life), max_size=5)).items():
        put(client, b"{t}:old:" + key, content, px=px)
    live(client, lambda folder: tool_for(client, folder, MOVE.format(*kinds, target)))


@QUICK
@given(st.data(), st.sampled_from(["set to hash", "zset to hash"]))
def test_any_members_of_any_kind(client, data, kind):
    empty(client)
    kinds = MEMBER_KINDS[kind]
    drawn = data.draw(st.dictionaries(name, st.tuples(VALUES[kinds[0]], life), max_size=4))
    for key, (content, px) in drawn.items():
        put(client, b"{t}:old:" + key, content, px=px)
    source = MOVE.replace("KeyMove", "MemberMove").replace("lambda key, value", "lambda key, name, value")
    live(client, lambda folder: tool_for(client, folder, source.format(*kinds, "new")))


@QUICK
@given(st.dictionaries(name, st.integers(0, 2**53).map(lambda n: b"%d" % n), min_size=1, max_size=20), life)
def test_any_numbers_from_a_hash_to_a_sorted_set(client, fields, px):
    empty(client)
    put(client, b"{t}:times:a", fields, px=px)
    live(client, lambda folder: tool_for(client, folder, MEMBERS))
