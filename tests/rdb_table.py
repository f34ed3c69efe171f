"""Every RDB file of the shared data, how it is read, what stands beside it: `python -m tests.rdb_table` prints it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import redis
from tabulate import tabulate

from migrator.client import connect
from migrator.errors import UsageError
from migrator.snapshot.load import load_lines
from migrator.snapshot.rdb import library, programs
from migrator.snapshot.rdb.content import ServedContent
from migrator.snapshot.rdb.header import read_header
from migrator.snapshot.rdb.server import Report, served
from tests import rdb_beside as beside
from tests.rdb_seen import Seen, through_lines, through_server
from tests.servers import ROOT, Server, binary, find_servers

DATA = ROOT.parent / "shared" / "data"
MISSING = "" if DATA.is_dir() else f"no data in {DATA}"


def all_files() -> list[str]:
    """The RDB files by their path in the data, the pointer of Git LFS among them."""
    return sorted(str(path.relative_to(DATA)) for path in DATA.rglob("*.rdb"))


# What does not load, and why: a part of the reason that is given. The first four are negative in the manifest.
REFUSED = {
    "public/librdb/future_v19.rdb": "RDB format version 99",
    "public/librdb/invalid_chksum_v8.rdb": "CRC error",
    "public/librdb/redis_ent_opcode_ram_lru.rdb": "[offset 281]",
    "public/redisshake/dump.rdb": "pointer of Git LFS",
    "public/hdt3213/zipmap_big_len.rdb": "Zipmap integrity check failed",
}
# No server without their modules loads these; rdb-py sees so many keys and leaves so many out.
BY_LIBRARY = {
    "public/librdb/misc_with_stream.rdb": (7, 5),
    "public/librdb/module.rdb": (0, 1),
    "public/librdb/module_aux.rdb": (1, 0),
    "public/librdb/module_aux_empty.rdb": (0, 0),
    "public/librdb/module_aux_v12.rdb": (0, 1),
    "public/rdbtools/redis_40_with_module.rdb": (1, 1),
    "public/rdbtools/redis_60_with_module_aux.rdb": (0, 0),
}
# Of HDT3213's files, those that rdb-rs has a content for.
_NAMES = {
    "easily_compressible_string_key", "hash_as_ziplist", "integer_keys", "intset_16", "intset_32", "intset_64",
    "keys_with_expiry", "linkedlist", "multiple_databases", "parser_filters", "rdb_version_5_with_checksum",
    "regular_set", "regular_sorted_set", "sorted_set_as_ziplist", "uncompressible_string_keys", "empty_database",
    "ziplist_that_doesnt_compress", "ziplist_with_integers", "zipmap_that_doesnt_compress", "zipmap_with_big_values",
}  # fmt: skip
_LIBRDB = {
    "cluster_slot_info": ["cluster_slot_info"], "function2": ["function2"], "hash_lp_v11": ["hash_lp_v11_data"],
    "hash_lp_with_hexpire_v12": ["hash_lp_ex_v12_data"], "hash_v3": ["hash_data"],
    "hash_with_expire_v12": ["hash_ex_v12_data"], "hash_zl_v6": ["hash_zl_v6_data"],
    "hash_zm_v2": ["hash_zm_v2_data"], "mem_policy_lfu": ["mem_policy_lfu"], "mem_policy_lru": ["mem_policy_lfu"],
    "module_aux": ["module_aux_data"], "multiple_dbs": ["multiple_dbs_data"],
    "multiple_lists_strings": ["multiple_lists_strings_data", "multiple_lists_strings_no_aux"],
    "plain_list_v6": ["plain_list_v6_data"], "plain_set_v6": ["plain_set_v6_data"],
    "plain_zset_2_v11": ["plain_zset_2_v11_data"], "plain_zset_v6": ["plain_zset_v6_data"],
    "quicklist": ["quicklist_data"], "quicklist2_v11": ["single_list_data"],
    "set_is_v11": ["set_is_v11_data"], "set_lp_v11": ["set_lp_v11_data"], "set_not_expired_v11": ["set_not_expired"],
    "single_key": ["single_key_data"], "stream_v11": ["stream_data", "stream_data_with_meta"],
    "string_int_encoded": ["string_int_encoded"], "ziplist_v3": ["ziplist_data"], "zset_lp_v11": ["zset_lp_v11_data"],
    "zset_zl_v6": ["zset_zl_v6_data"],
}  # fmt: skip
# Names that do not pair, and more than one content.
_MORE: dict[str, list[tuple[str, beside.Check]]] = {
    "public/hdt3213/hash.rdb": [("public/rdb-rs/json_dictionary.json", beside.by_value)],
    "public/hdt3213/memory.rdb": [
        ("public/hdt3213/memory_regex.json", beside.hdt_part),
        ("public/hdt3213/memory.csv", beside.csv_report),
        ("public/hdt3213/memory_expired.csv", beside.csv_report_alive),
    ],
    "public/hdt3213/tree.rdb": [("public/hdt3213/tree.csv", beside.csv_prefixes)],
    "public/librdb/ziplist_v3.rdb": [
        ("public/hdt3213/ziplist_that_compresses_easily.json", beside.hdt),
        ("public/rdb-rs/json_ziplist_that_compresses_easily.json", beside.by_value),
    ],
    "public/librdb/module.rdb": [("public/librdb/module_data.json", beside.module)],
    "public/librdb/set_expired_v11.rdb": [("public/librdb/set_expired.json", beside.by_value_alive)],
    "public/librdb/multiple_lists_strings.rdb": [
        ("public/librdb/multiple_lists_strings_2filters.json", beside.by_value_part)
    ],
    "public/rdb-rs/hash_list_pack.rdb": [("public/rdb-rs/json_hash_list_pack.json", beside.by_value)],
    "public/rdb-rs/multidb-skipping.rdb": [("public/rdb-rs/json_multidb-skipping.json", beside.by_value)],
    "public/rdb-rs/quicklist_with_multiple_nodes.rdb": [
        ("public/rdb-rs/json_quicklist_with_multiple_nodes.json", beside.by_value)
    ],
}
_COMMANDS = {
    "public/hdt3213/hash_as_listpack_with_hfe.rdb": ["public/hdt3213/hash_as_listpack_with_hfe.aof"],
    "public/hdt3213/hash_with_hfe.rdb": ["public/hdt3213/hash_with_hfe.aof"],
    "public/hdt3213/memory.rdb": ["public/hdt3213/memory.aof"],
    "public/hdt3213/valkey_hash2_with_hfe.rdb": ["public/hdt3213/valkey_hash2_with_hfe.aof"],
    "public/librdb/stream_v11.rdb": [
        "public/librdb/stream_v11_target_ver_6.2.resp",
        "public/librdb/stream_v11_target_ver_7.2.resp",
    ],
}


def contents(file: str, scratch: str = "") -> Iterator[tuple[str, beside.Check]]:
    """What stands beside a file, with the check for its manner. `scratch`: an empty server for lists of commands."""
    stem, project = Path(file).stem, file.split("/")[-2]
    if project == "hdt3213" and (DATA / f"public/hdt3213/{stem}.json").exists():
        yield f"public/hdt3213/{stem}.json", beside.hdt
    if project == "hdt3213" and (DATA / f"public/hdt3213/{stem}.csv").exists() and stem not in ("tree", "memory"):
        yield f"public/hdt3213/{stem}.csv", beside.csv_report
    if project == "hdt3213" and stem in _NAMES:
        yield f"public/rdb-rs/json_{stem}.json", beside.by_value
    if project == "librdb":
        yield from ((f"public/librdb/{name}.json", beside.by_value) for name in _LIBRDB.get(stem, ()))
    yield from _MORE.get(file, ())
    for name in _COMMANDS.get(file, ()) if scratch else ():
        yield name, partial(beside.commands, scratch=scratch)


@dataclass(frozen=True)
class Reading:
    """What one reader made of a file: its report and what was seen, or the reason why it was refused."""

    report: Report | None
    seen: Seen
    reason: str = ""


@dataclass(frozen=True)
class Row:
    """What became of a file: loaded by a server, read by rdb-py, compared with these contents."""

    file: str
    server: Reading
    library: Reading
    compared: tuple[str, ...]

    def cells(self) -> list[object]:
        loaded, read = self.server.report, self.library.report
        by_server = [loaded.reader, len(self.server.seen.keys), loaded.expired] if loaded else ["refused", "", ""]
        by_library = [len(self.library.seen.keys), read.not_visible] if read else ["refused", ""]
        return [self.file, *by_server, *by_library, self.outcome.replace(f"{DATA}/", "")]

    @property
    def outcome(self) -> str:
        beside = " ".join(Path(name).name for name in self.compared)
        if self.server.report is None:
            reason = self.library.reason or self.server.reason
            reason = reason.removeprefix(f"{DATA / self.file} is refused: ")
            return f"only rdb-py; {beside or reason}" if self.library.report else f"refused: {reason}"
        other = "rdb-py agrees" if self.library.report else "rdb-py cannot"
        return f"as {beside}; {other}" if beside else other


HEAD = ["file", "server", "keys", "expired", "rdb-py: keys", "not visible", "outcome"]


def look(file: str, scratch: str = "") -> Row:
    """Read a file both ways. Raises AssertionError where its content is another one than beside it, or two ways differ.

    `scratch` is a server for lists of commands, and to load all into; without it these are left out.
    """
    server, read = by_server(file, scratch), by_library(file)
    if server.report and read.report:
        _agree(server, read)
    told = server if server.report else read
    names = []
    for name, check in contents(file, scratch) if told.report else ():
        check(DATA / name, told.seen, told.report.expired if told.report else 0)
        names.append(name)
    return Row(file, server, read, tuple(names))


def _agree(server: Reading, read: Reading) -> None:
    """rdb-py sees what the server has, but for streams and expiries of fields; what had expired it sees as well, unless
    that is a stream."""
    assert server.report
    assert read.report
    there = {place: value for place, value in server.seen.keys.items() if value.type != "stream"}
    now = time.time() * 1000
    alive = {p: value for p, value in read.seen.keys.items() if value.expires is None or value.expires > now}
    assert there.keys() == alive.keys()
    for place, value in there.items():
        data = alive[place].data
        if value.fields:  # the server has let go of fields whose time had passed
            data = {name: one for name, one in data.items() if name in value.data}
        assert (alive[place].type, data, alive[place].expires) == (value.type, value.data, value.expires), place
    hidden = read.report.not_visible - (len(server.seen.keys) - len(there))  # streams that had expired
    assert hidden >= 0
    assert server.report.expired == len(read.seen.keys) - len(alive) + hidden


def by_server(file: str, scratch: str = "") -> Reading:
    """Loaded by the embedded server, else by Redis 8 where there is one."""
    reading = _served(file, None, scratch)
    if reading.report is None and file not in REFUSED and find_servers()["redis8"].path is not None:
        other = _served(file, binary("redis8"), scratch)
        return other if other.report else reading
    return reading


def _served(file: str, server: Path | None, scratch: str) -> Reading:
    try:
        with served(DATA / file, server) as there:
            seen = through_server(there.url)
            if scratch:
                _load_into(scratch, ServedContent(there), seen)
            return Reading(there.report, seen)
    except UsageError as error:
        return Reading(None, Seen({}), error.message)


def _load_into(scratch: str, content: ServedContent, seen: Seen) -> None:
    """What `snapshot load` puts into a server is what the file's own server has."""
    with redis.Redis.from_url(scratch) as client:
        client.flushall()
    loaded = load_lines(content, connect(scratch))
    assert (loaded.records, loaded.expired, loaded.notes) == (len(seen.keys), 0, ())
    assert through_server(scratch).keys == seen.keys


def by_library(file: str) -> Reading:
    """Read by rdb-py, its integrity checked by the embedded program."""
    path = DATA / file
    try:
        report = library.examine(path, programs.at_hand(read_header(path), None))
    except UsageError as error:
        return Reading(None, Seen({}), error.message)
    return Reading(report, through_lines(library.lines(path)))


def table(rows: Iterable[Row]) -> str:
    return tabulate([row.cells() for row in rows], HEAD, tablefmt="github")


def main() -> None:
    begun = time.monotonic()
    with Server(binary()) as scratch:
        rows = [look(file, scratch.url) for file in all_files()]
    print(f"{table(rows)}\n\n{len(rows)} files in {time.monotonic() - begun:.1f} s")


if __name__ == "__main__":
    main()
