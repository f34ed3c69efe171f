"""Loading a snapshot: every type comes back, and nothing is written where it cannot be whole."""

from __future__ import annotations

import gzip
from dataclasses import replace

import pytest

from migrator.client import connect
from migrator.errors import RefusedError, UsageError
from migrator.snapshot.load import load
from migrator.snapshot.ndjson import Group, Line, Pending, StreamPart, decode, encode

FAR = 4102444800000  # the year 2100, in unix ms
STREAM = StreamPart(
    entries=(("1-1", (b"a", b"b")), ("2-0", None), ("3-0", (b"c", b"\xff"))),
    pending=(Pending(b"g", "2-0", b"c", 1700000000000, 3), Pending(b"g", "3-0", b"c", 1700000000001, 1)),
    groups=(Group(b"g", "3-0", 3, (b"c", b"idle")),),
    last_id="9-0",
    entries_added=12,
    max_deleted_id="2-0",
)


def write(path, *lines):
    path.write_bytes(b"".join(map(encode, lines)))
    return path


def string(key, value=b"v", expires_at=None, part=0, db=0):
    return Line(db, key, "string", expires_at, [value], part)


def into(place, path, **how):
    return load(path, connect(place.url), **how)


@pytest.mark.parametrize(
    "line",
    [
        string(b"k\x00\xff", b"\xff\x00"),
        Line(3, b"l", "list", FAR, [b"1", b"\xff", b""], 2),
        Line(0, b"h", "hash", None, [b"f", b"v", b"\xff", b"w"], 0, {b"\xff": FAR}),
        Line(0, b"z", "zset", None, [b"m", b"-inf"]),
        Line(0, b"s", "set", None, [b"m", b"n"]),
        Line(0, b"x", "stream", FAR, [], 0, {}, STREAM),
        Line(0, b"x", "stream", None, [], 7, {}, StreamPart()),
    ],
    ids=lambda line: line.kind,
)
def test_a_line_is_read_as_it_was_written(line):
    assert decode(encode(line), "here") == line


@pytest.mark.parametrize(
    "changed",
    [
        ('"db":0', '"db":-1'), ('"db":0', '"db":"0"'), ('"part":0', '"part":true'), ('"type":"hash"', '"type":"json"'),
        ('["f","v"]', '["f"]'), ('["f","v"]', '["f","v","1"]'), ('["f","v"]', '["f","v",1,2]'), ('[["f","v"]]', '"fv"'),
        ('"h"', '{"b64":"?"}'), ('"expires_at":null', '"expires_at":"soon"'), ('"part":0', '"parts":0'),
    ],
    ids=lambda changed: changed[1],
)  # fmt: skip
def test_a_line_that_is_none_is_refused_with_its_place(changed):
    raw = encode(Line(0, b"h", "hash", None, [b"f", b"v"])).decode()
    with pytest.raises(UsageError, match="file:7: not a record"):
        decode(raw.replace(*changed).encode(), "file:7")


def test_parts_come_together_and_databases_stay_apart(server, tmp_path):
    lines = [string(b"k", b"abc"), string(b"k", b"de", part=1), string(b"k", b"other", db=5)]
    lines += [Line(0, b"l", "list", FAR, [b"1", b"2"]), Line(0, b"l", "list", FAR, [b"3"], 1)]
    loaded = into(server, write(tmp_path / "file", *lines))
    assert loaded.records == 3
    assert server.raw.get("k") == b"abcde"
    assert server.raw.lrange("l", 0, -1) == [b"1", b"2", b"3"]
    assert server.raw.execute_command("PEXPIRETIME", "l") == FAR
    with server.behind.client(db=5) as other:
        assert other.get("k") == b"other"


def test_a_gzipped_file_is_known_by_its_content(server, tmp_path):
    (tmp_path / "file.ndjson").write_bytes(gzip.compress(encode(string(b"k"))))
    assert into(server, tmp_path / "file.ndjson").records == 1
    assert server.raw.get("k") == b"v"


def test_the_later_copy_stays_of_a_key_that_stands_there_twice(server, tmp_path):
    lines = [Line(0, b"l", "list", None, [b"old", b"older"]), string(b"k"), Line(0, b"l", "list", None, [b"new"])]
    into(server, write(tmp_path / "file", *lines))
    assert server.raw.lrange("l", 0, -1) == [b"new"]


@pytest.mark.parametrize(
    "later",
    [
        Line(0, b"x", "stream", None, [], 0, {}, replace(STREAM, entries=(*STREAM.entries, ("9-1", (b"e", b"f"))),
                                                         last_id="9-1", entries_added=13)),
        string(b"x"),
    ],
    ids=lambda line: line.kind,
)  # fmt: skip
def test_the_later_copy_stays_of_a_stream_that_grew_or_went_meanwhile(server, tmp_path, later):
    first = Line(0, b"x", "stream", None, [], 0, {}, STREAM)
    into(server, write(tmp_path / "file", first, string(b"k"), later))
    if later.kind == "string":
        assert server.raw.get("x") == b"v"
        return
    info = server.raw.xinfo_stream("x")
    assert (info["last-generated-id"], info["length"]) == (b"9-1", 3)


def test_records_whose_time_has_passed_are_counted_and_not_loaded(server, tmp_path):
    lines = [Line(0, b"l", "list", 1, [b"1"]), Line(0, b"l", "list", 1, [b"2"], 1), string(b"k")]
    loaded = into(server, write(tmp_path / "file", *lines))
    assert (loaded.records, loaded.expired) == (1, 1)
    assert server.raw.keys() == [b"k"]


@pytest.mark.parametrize("entry", ["2-0", "1-9"])
def test_entries_of_a_stream_are_in_order_over_its_parts_too(server, tmp_path, entry):
    """Else they would be taken for entries that were sent twice, and dropped."""
    first, second = (StreamPart(((id, (b"f", b"v")),), last_id="2-0") for id in ("2-0", entry))
    lines = [Line(0, b"x", "stream", None, [], part, {}, stream) for part, stream in enumerate((first, second))]
    with pytest.raises(UsageError, match="file:3: the entries of a stream are out of order"):
        into(server, write(tmp_path / "file", string(b"a"), *lines))
    assert not server.raw.dbsize()
    for part, id in ((0, "1-9"), (1, "2-0")):  # of another key, or of a later copy, they begin anew
        lines.append(Line(0, b"y" if part else b"x", "stream", None, [], 0, {}, StreamPart(((id, (b"f", b"v")),))))
    into(server, write(tmp_path / "file", lines[0], *lines[2:]))
    assert server.raw.xlen("x") == server.raw.xlen("y") == 1


@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize("between", [(), (string(b"k"),), tuple(string(b"k%d" % n) for n in range(600))])
def test_a_key_whose_later_copy_has_expired_is_gone(server, tmp_path, replace, between):
    """The earlier one was read before the key was given its expiry."""
    lines = [Line(0, b"l", "list", None, [b"1"]), *between, Line(0, b"l", "list", 1, [b"1"])]
    loaded = into(server, write(tmp_path / "file", *lines), replace=replace)
    assert server.raw.exists("l") == 0
    assert (server.raw.dbsize(), loaded.expired) == (len(between), 1)


def test_a_key_that_has_expired_in_the_file_is_left_alone_where_another_one_is_there(server, tmp_path):
    server.raw.set("k", "mine")
    into(server, write(tmp_path / "file", string(b"a"), string(b"k", b"theirs", 1)), replace=True)
    assert server.raw.get("k") == b"mine"


def test_a_key_that_is_there_already_refuses_the_whole_file(server, tmp_path):
    server.raw.set("k", "mine")
    path = write(tmp_path / "file", string(b"a"), string(b"k", b"theirs"))
    with pytest.raises(RefusedError, match="1 key of the snapshot is there already, for instance k;"):
        into(server, path)
    assert server.raw.keys() == [b"k"]
    assert into(server, path, replace=True).records == 2
    assert server.raw.get("k") == b"theirs"


def test_a_database_the_server_has_not_refuses_the_whole_file(client, tmp_path):
    path = write(tmp_path / "file", string(b"a"), string(b"k", db=400))
    with pytest.raises(RefusedError, match=r"no database 400|only database 0 .* not 400"):
        into(client, path, replace=True)
    assert not client.raw.exists("a")


@pytest.mark.parametrize("content", ["cut", "empty", "pointer", "missing part", "disordered", "other", "gzip cut"])
def test_a_damaged_file_loads_nothing(server, tmp_path, content):
    path = write(tmp_path / "file", string(b"a"), string(b"b"))
    stream = Line(0, b"x", "stream", None, [], 0, {}, StreamPart((("2-0", (b"f", b"v")), ("1-0", (b"f", b"v")))))
    contents = {
        "cut": path.read_bytes()[:-20],
        "empty": b"",
        "pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        "missing part": path.read_bytes() + encode(string(b"b", part=2)),
        "disordered": encode(string(b"a")) + encode(stream),
        "other": b"\x00" * 100,
        "gzip cut": gzip.compress(path.read_bytes())[:-10],
    }
    path.write_bytes(contents[content])
    with pytest.raises(UsageError):
        into(server, path)
    assert not server.raw.dbsize()
