"""A large snapshot is tried in shares, and the report is that of the whole; in full with the marker `prove`."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from migrator.keys import Kind
from migrator.models import SnapshotReport
from migrator.names import Names
from migrator.rehearsal.division import Shares, divided, evenly
from migrator.rehearsal.expected import unexpected
from migrator.snapshot.ndjson import Line, encode
from tests.records import Records, job
from tests.support import KEYS, MEMBERS, Tool, guid, modules_of, put, shipped, write
from tests.support import job as text_of
from tests.trial import MAP, TICKS, Tried, job_key, jobs, written

LIMIT = 60.0  # seconds, on two cores of which nobody else takes any
NAMES = Names("migrator")


def test_shares_give_the_report_of_the_whole(tmp_path):
    maps = {b"map:%d:__meta:timestamps" % n: {b"a": b"%d" % TICKS, b"b": b"soon"} for n in range(6)}
    queue = {guid(n).encode(): float(n) for n in range(8)}
    records = {**jobs(8), job_key(20): b"{", job_key(21): b"{", **maps, b"ae:jobs:queue": queue, b"else": b"where"}
    tried = Tried(shipped(tmp_path / "m"), written(tmp_path / "s", records))
    whole, shared = (SnapshotReport.model_validate(tried("--processes", number, exit=32)) for number in ("1", "3"))
    assert unexpected(shared, whole) == ()
    assert shared.loaded == whole.loaded
    for one, other in zip(shared.migrations, whole.migrations, strict=True):
        assert (one.records, one.mapped, one.noted, one.unjudged) == (
            other.records, other.mapped, other.noted, other.unjudged,
        )  # fmt: skip
    assert (whole.loaded.records, whole.rejected, shared.rejected) == (len(records), 8, 8)
    assert [one.reached for one in shared.migrations] == ["contracted"] * 2


def test_what_is_staged_or_set_aside_is_in_the_share_of_its_record(server, tmp_path):
    for n in range(12):
        put(server, job_key(n), text_of(guid(n)))
    put(server, job_key(20), b"{")
    tool = Tool(server, shipped(tmp_path / "m"), tmp_path / "b")
    tool.apply("0001", exit=32)
    tried = Tried(tool.directory, tmp_path / "s.ndjson")
    tried.shell("quarantine", "accept", "0001", "--all", url=server.url)
    tool.apply("0001", through="switch")
    tried.shell("snapshot", "take", tried.snapshot, url=server.url)
    whole, shared = (tried("--processes", number, exit=32) for number in ("1", "3"))
    assert (whole["differing"], shared["differing"], shared["stopped"]) == (0, 0, [])
    assert shared["loaded"] == whole["loaded"]

    shares = Shares(modules_of(tool.directory), NAMES, evenly(16))
    for key in map(job_key, range(12)):
        beside = (NAMES.beside(role, "0001_jobs_to_hashes").name(key, lambda _: b"0") for role in ("staged", "old"))
        assert {shares.of(name) for name in beside} == {shares.of(key)}
    assert shares.of(b"migrator:marker:0001_jobs_to_hashes:{0}") == range(16)


def test_what_one_share_raises_is_raised(tmp_path):
    snapshot = written(tmp_path / "s", {MAP + b"-sorted": {b"a": 1.0}})
    tried = Tried(shipped(tmp_path / "m"), snapshot)
    told = tried.shell.error("plan", "--snapshot", str(snapshot), "--processes", "2", exit=62, code="ledger-backwards")
    assert "--at 0001=contracted" in told


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"{", "not a record of a snapshot"),
        (
            b'{"db":0,"key":"ae:job:x","type":"heap","expires_at":null,"value":"","part":0}',
            "not a record of a snapshot",
        ),
        (b'{"db":0,"key":"map:a","type":"hash","expires_at":null,"value":[],"part":1}', "part 1 of a record does not"),
    ],
)
def test_a_line_that_is_damaged_is_named_whoever_it_belongs_to(tmp_path, line, told):
    snapshot = tmp_path / "s"
    lines = [encode(Line(0, job_key(n), "string", None, [text_of(guid(n))])) for n in range(30)]
    snapshot.write_bytes(b"".join([*lines[:20], line + b"\n", *lines[20:]]))
    tried = Tried(shipped(tmp_path / "m"), snapshot)
    error = tried.shell.error("plan", "--snapshot", str(snapshot), "--processes", "2", exit=2, code="usage")
    assert f"{snapshot}:21: {told}" in error


def test_both_shapes_of_a_record_are_in_one_share_also_over_two_migrations(tmp_path):
    second = KEYS.replace('"{{t}}:text:{id}", type="string"', '"{{t}}:sorted:{id}", type="zset"')
    modules = modules_of(write(tmp_path / "m", MEMBERS, second))
    shares = Shares(modules, NAMES, evenly(16))
    for n in range(30):
        names = (b"{t}:times:%d", b"{t}:sorted:%d", b"{t}:hash:%d")
        assert len({shares.of(name % n) for name in names}) == 1
    assert len({shares.of(b"{t}:times:%d" % n) for n in range(30)}) > 5
    assert shares.of(b"migrator:{migrator}:ledger") == range(16)


def test_large_records_are_divided_by_their_size_and_the_rest_makes_up_for_them(tmp_path):
    modules = modules_of(shipped(tmp_path / "m"))
    flat = [word for n in range(3000) for word in (b"session-%d" % n, b"%d" % TICKS)]
    lines = [Line(0, b"map:m%d:__meta:timestamps" % n, "hash", None, flat, part) for n in range(3) for part in range(2)]
    # The new shape of one, and an index that is in all.
    lines.append(Line(0, b"map:m2:__meta:timestamps-sorted", "zset", None, flat))
    lines.append(Line(0, b"ae:jobs:queue", "zset", None, flat * 9))
    small = [Line(0, key, "string", None, [text]) for key, text in jobs(2000).items()]
    (tmp_path / "s").write_bytes(b"".join(map(encode, (*lines, *small))))
    division = divided(tmp_path / "s", modules, NAMES, 2)
    shares = Shares(modules, NAMES, division)
    assert shares.of(b"map:m2:__meta:timestamps") == shares.of(b"map:m2:__meta:timestamps-sorted")
    taken = Counter[int]()
    for line in (*lines, *small):
        if len(found := shares.of(line.key)) == 1:
            taken[found[0]] += len(encode(line)) + 60 * max(1, len(line.items) // 2)
    assert max(taken.values()) < 1.1 * min(taken.values())
    assert divided(tmp_path / "s", modules, NAMES, 7).number == 7


def test_a_record_larger_than_a_share_has_one_for_itself(tmp_path):
    modules = modules_of(shipped(tmp_path / "m"))
    flat = [word for n in range(3000) for word in (b"session-%d" % n, b"%d" % TICKS)]
    lines = [Line(0, MAP, "hash", None, flat), *(Line(0, k, "string", None, [t]) for k, t in jobs(20).items())]
    (tmp_path / "s").write_bytes(b"".join(map(encode, lines)))
    shares = Shares(modules, NAMES, divided(tmp_path / "s", modules, NAMES, 3))
    (alone,) = shares.of(MAP)
    others = {share for key in jobs(20) for share in shares.of(key)}
    assert others == {0, 1, 2} - {alone}


def test_nothing_is_divided_too(tmp_path):
    (tmp_path / "s").write_bytes(b"")
    assert divided(tmp_path / "s", modules_of(shipped(tmp_path / "m")), NAMES, 4) == evenly(4)


# In full. 25 records are broken, each in a way of its own kind.

BROKEN: list[bytes] = [
    b"{", b"[]", b"null", b"", b'{"id":"\xff"}', b'"text"', b"\xef\xbb\xbf{}", b'{"id":1}',
]  # fmt: skip
CHANGED: list[dict[str, Any]] = [
    {"id": 1}, {"status": 77}, {"status": "unheard of"}, {"createdAt": None}, {"createdAt": "yesterday"},
    {"startedAt": "2025-13-01T00:00:00Z"}, {"retryCount": 1.5}, {"retryCount": 2**40}, {"headers": []},
    {"queryParams": {}}, {"name": 5},
]  # fmt: skip
BAD_TICKS = [b"yesterday", b"1759385730", b"-1", b"1.5", b"9" * 20, b""]


def planted() -> list[Line]:
    numbers = range(10**6, 10**6 + len(BROKEN) + len(CHANGED))
    others = zip(numbers[len(BROKEN) :], map(dict, CHANGED), strict=True)
    changed = [text_of(guid(fields.pop("id", n)), **fields) for n, fields in others]  # an id: that of another job
    texts = [*BROKEN, *changed]
    lines = [Line(0, job_key(n), "string", None, [text]) for n, text in zip(numbers, texts, strict=True)]
    flat = [word for n, ticks in enumerate(BAD_TICKS) for word in (b"bad-%d" % n, ticks)]
    return [*lines, Line(0, b"map:broken:__meta:timestamps", "hash", None, flat)]


def write_records(path: Path, number: int, stamps: int) -> None:
    records = Records(number, stamps)
    kind: Kind = "string"
    with path.open("wb") as file:
        for n in range(number):
            one = job(n)
            file.write(encode(Line(0, one.key, kind, one.expires_at, [one.text])))
        for key, size in records.sizes().items():
            members = list(records.members(size))
            for part, start in enumerate(range(0, size, 1000)):
                flat = [word for pair in members[start : start + 1000] for word in pair]
                file.write(encode(Line(0, key, "hash", None, flat, part)))
        for line in planted():
            file.write(encode(line))


@pytest.mark.parametrize(
    ("number", "stamps", "seconds"),
    [
        pytest.param(300, 900, 20 * LIMIT, id="small"),
        pytest.param(100_000, 300_000, LIMIT, id="full", marks=[pytest.mark.prove, pytest.mark.timeout(1200)]),
    ],
)
def test_each_of_25_planted_records_is_found(tmp_path, number, stamps, seconds):
    write_records(tmp_path / "s.ndjson", number, stamps)
    tried = Tried(shipped(tmp_path / "m"), tmp_path / "s.ndjson")
    begun = time.monotonic()
    report = tried(exit=32)
    took = time.monotonic() - begun
    print(f"\n{number:,} jobs, {stamps:,} timestamps: {took:.1f} s, {json.dumps(report['seconds'])}")
    one, two = report["migrations"]
    assert (one["rejected"], two["rejected"]) == (len(BROKEN) + len(CHANGED), len(BAD_TICKS)) == (19, 6)
    assert (one["mapped"], two["mapped"], report["differing"]) == (number, stamps, 0)
    assert (one["reached"], two["reached"]) == ("contracted", "contracted")
    assert took < seconds
