"""Every RDB file of the shared data: the content that stands beside it, by a server and by rdb-py, or a reason."""

from __future__ import annotations

import pytest

from tests.rdb_beside import Check
from tests.rdb_table import BY_LIBRARY, DATA, MISSING, REFUSED, Row, all_files, contents, look, table
from tests.servers import Place, find_servers

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

# The embedded Valkey refuses them: their versions and types are Redis's own, or their streams are counted wrongly.
FOR_REDIS_8 = {
    "generated/hash_field_ttl_redis8.2.3_v12.rdb",
    "public/hdt3213/hash_as_listpack_with_hfe.rdb",
    "public/hdt3213/hash_with_hfe.rdb",
    "public/hdt3213/stream_listpacks_1.rdb",
    "public/librdb/hash_lp_with_hexpire_v12.rdb",
    "public/librdb/hash_with_expire_v12.rdb",
}
# Valkey's own format, and a file whose checker is stricter than the server that loads it.
NOT_FOR_RDB_PY = {
    "generated/hash_field_ttl_valkey9.1.2_v80.rdb",
    "public/hdt3213/valkey_hash2_with_hfe.rdb",
    "public/hdt3213/stream_listpacks_1.rdb",
}
# Beside the files and no content: views of a parser's inside, selections, reports on memory.
NO_CONTENT = ("_raw.", "_struct.", "_subset_", "largest.csv", "memory_regex.", "tree2.csv")


def wanted(file: str) -> None:
    if file in FOR_REDIS_8 and find_servers()["redis8"].path is None:
        pytest.skip(f"redis8: {find_servers()['redis8'].missing}")


@pytest.mark.parametrize("file", all_files())
def test_a_file_is_read_as_it_stands_beside_it_or_refused_with_a_reason(file: str, server: Place):
    wanted(file)
    row = look(file, server.url)
    check_outcome(row)
    assert list(row.compared) == ([] if file in REFUSED else [name for name, _ in contents(file, server.url)])


def check_outcome(row: Row) -> None:
    loaded, read = row.server, row.library
    if row.file in REFUSED:
        assert (loaded.report, read.report) == (None, None)
        assert REFUSED[row.file] in read.reason
    elif row.file in BY_LIBRARY:
        assert loaded.report is None
        assert "module" in loaded.reason
        assert read.report
        assert (len(read.seen.keys), read.report.not_visible) == BY_LIBRARY[row.file]
    else:
        assert loaded.report, loaded.reason
        assert loaded.report.reader.startswith("Redis 8" if row.file in FOR_REDIS_8 else "Valkey 9")
        assert (read.report is None) == (row.file in NOT_FOR_RDB_PY), read.reason


def test_nothing_that_stands_beside_a_file_is_left_out():
    used = {name for file in all_files() for name, _ in contents(file, "a server")}
    there = {str(path.relative_to(DATA)) for path in (DATA / "public").glob("*/*") if path.suffix != ".rdb"}
    left = {name for name in there - used if not any(mark in name for mark in NO_CONTENT)}
    assert {name for name in left if not name.startswith(("public/redis-dump/", "public/redis-dump-load/"))} == set()
    assert len(used) > 90


@pytest.mark.parametrize(
    ("file", "other"),
    [
        ("public/hdt3213/listpack.rdb", "public/hdt3213/quicklist.json"),
        ("public/hdt3213/keys_with_expiry.rdb", "public/hdt3213/memory.json"),
        ("public/librdb/hash_lp_v11.rdb", "public/librdb/hash_zl_v6_data.json"),
        ("public/librdb/stream_v11.rdb", "public/librdb/single_key_data.json"),
        ("public/hdt3213/memory.rdb", "public/hdt3213/hash_with_hfe.aof"),
        ("public/hdt3213/tree.rdb", "public/hdt3213/memory.csv"),
    ],
)
def test_another_content_is_told_from_the_right_one(file: str, other: str, server: Place):
    row = look(file, server.url)
    check: Check = next(check for of in all_files() for name, check in contents(of, server.url) if name == other)
    assert row.server.report
    with pytest.raises(AssertionError):
        check(DATA / other, row.server.seen, row.server.report.expired)


@pytest.mark.prove
def test_the_table_of_all_files_is_printed(server: Place):
    rows = [look(file, server.url) for file in all_files()]
    print(f"\n{table(rows)}\n")
    for row in rows:
        if row.file not in FOR_REDIS_8 or find_servers()["redis8"].path is not None:
            check_outcome(row)
