"""The records of an RDB file, by whichever reader takes it, in `snapshot load` and `snapshot info`."""

from __future__ import annotations

import gzip
import time
from pathlib import Path

import pytest

from migrator.errors import UsageError
from migrator.snapshot.rdb import library, programs
from migrator.snapshot.rdb.content import LibraryContent, ServedContent, opened
from migrator.snapshot.rdb.server import NotServedError
from tests.conftest import Servers
from tests.rdb_bytes import FUTURE, PAST, announce, aux, db, file, short, string
from tests.rdb_seen import through_lines, through_server
from tests.servers import Place, Run, Server, binary, find_servers, wait_for
from tests.support import Shell, all_keys, put

# A value of a module, of a name nobody has: id, no content, end.
MODULE = b"\x07" + short(b"m") + b"\x81" + b"\x12\x34\x56\x78\x9a\xbc\xde\x01" + b"\x00"
WRITER = (aux(b"redis-ver", b"7.2.5"), aux(b"ctime", b"1700000000"))
WORKS = (*WRITER, db(0), announce(3, 2), string(b"a", b"1"), string(b"b", b"2", FUTURE), string(b"gone", b"3", PAST))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "dump.rdb"


@pytest.fixture
def shell(server: Place, tmp_path: Path) -> Shell:
    return Shell(server, tmp_path / "none")


def with_module(path: Path) -> Path:
    return file(path, *WRITER, db(0), announce(3, 1), string(b"a", b"1"), MODULE, string(b"gone", b"3", PAST))


def test_the_server_comes_first_and_rdb_py_where_it_meets_what_it_does_not_know(path: Path):
    with opened(file(path, *WORKS)) as content:
        assert isinstance(content, ServedContent)
        assert through_lines(content).keys.keys() == {(0, b"a"), (0, b"b")}
        assert through_lines(content).keys.keys() == {(0, b"a"), (0, b"b")}  # as often as one likes
        assert (content.report.expired, content.report.not_visible) == (1, 0)
    with opened(with_module(path)) as content:
        assert isinstance(content, LibraryContent)
        assert through_lines(content).keys.keys() == {(0, b"a")}
        assert through_lines(content).keys.keys() == {(0, b"a")}
        assert (content.report.expired, content.report.not_visible) == (1, 1)


def test_a_damaged_file_is_not_given_to_rdb_py(path: Path):
    whole = bytearray(file(path, *WORKS, checksum=True).read_bytes())
    whole[-4] ^= 1
    path.write_bytes(whole)
    with pytest.raises(NotServedError, match="RDB CRC error") as refused, opened(path):
        pass
    assert not refused.value.unknown


def test_a_program_that_is_given_is_the_only_reader(path: Path):
    with pytest.raises(NotServedError, match="module"), opened(with_module(path), binary()):
        pass


def test_without_rdb_py_it_is_the_other_next_step(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(library, "installed", lambda: False)
    with pytest.raises(UsageError, match="module") as refused, opened(with_module(path)):
        pass
    assert "; or in part: install the extra `rdb`" in refused.value.next


def test_without_any_server_rdb_py_reads_what_it_sees(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(programs, "_paths", lambda: iter(()))
    with opened(file(path, *WORKS)) as content:
        assert isinstance(content, LibraryContent)
        assert len(through_lines(content).keys) == 2
        assert content.report.notes == ()  # the checksum was compared all the same


def test_what_a_server_of_any_version_saved_comes_back_as_it_was(every_server: Place, server: Place, tmp_path: Path):
    behind = every_server.behind
    assert isinstance(behind, Server)
    ask = every_server.raw.execute_command
    put(every_server, b"s\xff", b"\x00\xff", px=3_600_000)
    put(every_server, b"h", {b"f": b"v", b"\xfe": b""})
    put(every_server, b"z", {b"a": float("inf"), b"b": -0.5, b"c": 1e25})
    put(every_server, b"l", [b"%d" % number for number in range(3000)])
    put(every_server, b"set", {b"1", b"x"})
    ask("XADD", "st", "1-1", "f", "v")
    ask("XGROUP", "CREATE", "st", "g", "0")
    ask("XREADGROUP", "GROUP", "g", "c", "STREAMS", "st", ">")
    if every_server.kind in ("valkey9", "redis8"):
        ask("HPEXPIREAT", "h", FUTURE, "FIELDS", 1, "f")
        before = through_server(behind.url)
    ask("SAVE")
    ask("FLUSHALL")
    saved = (behind.dir / "dump.rdb").rename(tmp_path / "saved.rdb")  # a restart would load it
    loaded = Shell(server, tmp_path / "none")("snapshot", "load", str(saved), "--server", str(behind.program))
    assert (loaded["records"], loaded["expired"], loaded["not_visible"], loaded["notes"]) == (6, 0, 0, [])
    after = through_server(server.url)
    if every_server.kind in ("valkey9", "redis8"):
        assert after == before
    assert after.keys[0, b"st"].data["groups"] == {"g": ("1-1", {"1-1": ("c", 1)})}
    assert after.keys[0, b"l"].data == [b"%d" % number for number in range(3000)]
    assert after.keys[0, b"s\xff"].data == b"\x00\xff"


def test_load_counts_what_had_expired_and_what_was_not_visible(path: Path, shell: Shell, server: Place):
    assert shell("snapshot", "load", str(file(path, *WORKS)))["expired"] == 1
    assert all_keys(server) == {b"a", b"b"}
    told = shell("snapshot", "load", str(with_module(path)), "--replace")
    assert (told["records"], told["expired"], told["not_visible"]) == (1, 1, 1)
    assert told["notes"] == ["not visible to rdb-py: 1 key, streams or values of modules"]
    text = shell.text("snapshot", "load", str(path), "--replace")
    assert "loaded 1 record\nexpired, not loaded: 1\nnot visible to the reader of this file, not loaded: 1\n" in text


def test_a_key_that_is_there_already_keeps_all_of_an_rdb_file_out(path: Path, shell: Shell, server: Place):
    put(server, b"b", b"mine")
    told = shell.error("snapshot", "load", str(file(path, *WORKS)), exit=60, code="refused")
    assert "1 key of the snapshot is there already, for instance b;" in told
    assert all_keys(server) == {b"b"}


def test_a_damaged_file_leaves_nothing(path: Path, shell: Shell, server: Place):
    path.write_bytes(file(path, *WORKS).read_bytes()[:-1])
    assert "Unexpected EOF" in shell.error("snapshot", "load", str(path), exit=2, code="usage")
    path.write_bytes(with_module(path).read_bytes()[:-1])
    shell.error("snapshot", "load", str(path), exit=2, code="usage")
    shell.error("snapshot", "info", str(path), exit=2, code="usage")
    assert all_keys(server) == set()


def test_databases_above_0_are_loaded_where_the_server_has_them(path: Path, shell: Shell, server: Place):
    file(path, db(0), string(b"a", b"1"), db(3), string(b"a", b"2"))
    assert shell("snapshot", "load", str(path))["records"] == 2
    assert through_server(server.url).keys.keys() == {(0, b"a"), (3, b"a")}
    file(path, db(100), string(b"a", b"1"))
    assert "100" in shell.error("snapshot", "load", str(path), "--replace", exit=60, code="refused")


def test_an_rdb_file_is_loaded_into_a_cluster(path: Path, cluster: Place, tmp_path: Path):
    names = [b"k%d" % number for number in range(30)]
    file(path, db(0), *(string(name, name) for name in names))
    assert Shell(cluster, tmp_path / "none")("snapshot", "load", str(path))["records"] == 30
    assert all_keys(cluster) == set(names)


def test_info_says_who_wrote_it_who_read_it_and_what_was_left_out(path: Path, run_migrator: Run):
    done = run_migrator("snapshot", "info", str(file(path, *WORKS)), url="redis://127.0.0.1:1/0")
    assert done.returncode == 0, done.stderr
    assert "dump.rdb: 2 records" in done.stdout
    assert "RDB version 11, read by Valkey 9" in done.stdout
    assert "taken 2023-11-14 22:13:20 UTC from redis 7.2.5" in done.stdout
    assert "expired, not counted: 1" in done.stdout


def test_info_of_a_file_read_in_part_says_so(path: Path, shell: Shell):
    told = shell("snapshot", "info", str(with_module(path)))
    assert (told["records"], told["expired"], told["not_visible"], told["reader"]) == (1, 1, 1, "rdb-py")
    assert told["format"] == "RDB version 11"
    assert "not visible to rdb-py, not counted: 1" in shell.text("snapshot", "info", str(path))


def test_a_program_given_for_what_is_no_rdb_file_is_refused(tmp_path: Path, shell: Shell):
    with gzip.open(tmp_path / "a.gz", "wb") as other:
        other.write(b'{"db":0,"key":"a","type":"string","expires_at":null,"value":"1","part":0}\n')
    for command in ("load", "info"):
        told = shell.error("snapshot", command, str(tmp_path / "a.gz"), "--server", str(binary()), exit=2, code="usage")
        assert "no RDB file" in told
        assert shell("snapshot", command, str(tmp_path / "a.gz"))["records"] == 1


@pytest.mark.parametrize("name", ["valkey9", "redis8"])
def test_a_hash_all_of_whose_fields_have_expired_is_counted_as_expired(
    name: str, servers: Servers, tmp_path: Path, shell: Shell
):
    if find_servers()[name].path is None:
        pytest.skip(find_servers()[name].missing)
    behind = servers.single(name)
    for key in ("h", "g"):
        behind.command("HSET", key, "f", "v")
        behind.command("HPEXPIRE", key, 200, "FIELDS", 1, "f")
    behind.command("HSET", "g", "stays", "v")
    behind.command("SAVE")
    saved = (behind.dir / "dump.rdb").rename(tmp_path / "saved.rdb")
    wait_for(lambda: behind.command("EXISTS", "h") == 0, "the field to expire")
    behind.command("FLUSHALL")
    loaded = shell("snapshot", "load", str(saved), "--server", str(behind.program))
    assert (loaded["records"], loaded["expired"]) == (1, 1)


def test_keys_of_a_type_that_a_snapshot_does_not_know_are_not_visible(servers: Servers, tmp_path: Path, shell: Shell):
    if find_servers()["redis8"].path is None:
        pytest.skip(find_servers()["redis8"].missing)
    behind = servers.single("redis8")
    behind.command("VADD", "v", "VALUES", 2, "1", "2", "e")
    behind.command("SET", "a", "1")
    behind.command("SAVE")
    saved = (behind.dir / "dump.rdb").rename(tmp_path / "saved.rdb")
    loaded = shell("snapshot", "load", str(saved), "--server", str(behind.program))
    assert (loaded["records"], loaded["expired"], loaded["not_visible"]) == (1, 0, 1)
    assert loaded["notes"] == ["left out: 1 key of type vectorset"]


def test_a_key_that_expires_while_it_is_served_is_counted_as_expired(path: Path):
    soon = int(time.time() * 1000) + 400
    with opened(file(path, db(0), string(b"a", b"1"), string(b"soon", b"1", soon))) as content:
        assert (content.report.keys, content.report.expired) == (2, 0)
        wait_for(lambda: time.time() * 1000 > soon, "its time")
        assert [line.key for line in content] == [b"a"]
        assert (content.report.keys, content.report.expired) == (1, 1)
