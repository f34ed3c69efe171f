"""A rehearsal: killed, written to and failed over on servers of its own; what is lost, extra or different is found."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from migrator.client import Client, connect
from migrator.moves.family import Family, OneSlot
from migrator.names import Names
from migrator.rehearsal.databases import WHOLE, unlike
from migrator.rehearsal.hunt import Hunter
from migrator.rehearsal.judge import Judge
from migrator.rehearsal.propose import Proposals, one_sound
from migrator.rehearsal.rehearse import unwritten
from migrator.rehearsal.writers import Account, Settings, Told, Writer
from tests.support import (
    KEYS,
    MEMBERS,
    OTHER,
    SAME_NAME,
    Shell,
    Tool,
    guid,
    job,
    modules_of,
    put,
    shipped,
    tool_for,
    write,
)
from tests.test_collisions import SCORED
from tests.test_names_of_members import BY_INVERSE, BY_ORIGIN
from tests.trial import MAP, NOWHERE, TICKS, job_key, jobs, written


def rehearsed(directory: Path, snapshot: Path, *words: str, exit: int = 0) -> Any:
    return Shell(NOWHERE, directory)("rehearse", "--snapshot", str(snapshot), *words, exit=exit)


def check(report: Any, kills: int, compared: int) -> None:
    """Nothing lost, and something done that could have lost it."""
    killed, writes = sum(report["kills"].values()), report["writes"]
    print(f"\n{killed} killed of {report['processes']}, {writes}, {report['compared']:,} in {report['seconds']} s")
    assert (report["lost"], report["extra"], report["different"], report["differences"]) == (0, 0, 0, [])
    assert killed >= kills
    assert (report["failovers"], report["stopped"], report["unwritten"]) == (1, None, [])
    assert report["compared"] >= compared
    for what in ("create", "update", "delete", "read"):
        assert writes[what] > 0, what


def test_nothing_is_lost_while_the_tool_is_killed_adapters_write_and_the_server_dies(tmp_path):
    snapshot = written(tmp_path / "s", {b"{t}:text:%d" % n: b"text %d" % n for n in range(40)} | {b"else": b"where"})
    words = ["--kill-every", "0.05s", "--writers", "1", "--failover"]  # so little is done in a moment
    report = rehearsed(write(tmp_path / "m", KEYS), snapshot, *words)
    check(report, kills=1, compared=40)
    told = [command.split()[1] for command in report["commands"]]
    assert told == ["init", "apply", "apply", "rollback", "apply"]


@pytest.mark.prove
@pytest.mark.timeout(1800)
def test_nothing_is_lost_in_full(tmp_path):
    # Kills: some for each phase that takes longer than 0.3 s, and two or three more each time the machine is half as
    # fast (or there is twice as much): measured 6,000 jobs on two busy cores.
    number = 6000
    records = {**jobs(number), MAP: {b"m%d" % n: b"%d" % (TICKS + n) for n in range(3 * number)}}
    records |= {job_key(number): b"{", b"else": b"where"}
    snapshot = written(tmp_path / "s", records, {job_key(1): 4_102_444_800_000})
    words = ["--kill-every", "0.15s", "--writers", "4", "--failover"]
    report = rehearsed(shipped(tmp_path / "m"), snapshot, *words, exit=32)
    check(report, kills=30, compared=4 * number)
    assert report["rejected"] == 1


AFTER = OTHER.replace("\n))", '\n), after=["0001"])')


def test_migrations_that_wait_for_each_other_go_one_after_the_other(tmp_path):
    records = {b"{%c}:text:%d" % (where, n): b"text %d" % n for where in b"to" for n in range(5)}
    directory = write(tmp_path / "m", KEYS, AFTER)
    words = ["--kill-every", "0", "--writers", "1", "--failover"]
    report = rehearsed(directory, written(tmp_path / "s", records), *words)
    check(report, kills=0, compared=10)
    told = [" ".join(command.split()[1:5]) for command in report["commands"]]
    there = [f"apply {id} --through {phase}" for id in ("0001", "0002") for phase in ("verify", "contract")]
    back = [f"rollback {id} --to pending" for id in ("0002", "0001")]
    assert told[1:] == [*there, *back, *(f"apply {id} --through contract" for id in ("0001", "0002"))]


def test_of_migrations_on_the_same_keys_one_is_rehearsed_at_a_time(tmp_path):
    snapshot = written(tmp_path / "s", {b"{t}:text:a": b"text"})
    second = KEYS.replace("{{t}}:text:", "{{t}}:raw:").replace("{{t}}:hash:", "{{t}}:text:")
    shell = Shell(NOWHERE, write(tmp_path / "m", KEYS, second))
    told = shell.error("rehearse", "--snapshot", str(snapshot), exit=60, code="refused")
    assert "0001_first and 0002_second are about the same keys" in told
    assert "name 0001 alone" in told


def test_a_stage_that_begins_anew_in_each_process_comes_to_its_end_all_the_same(tmp_path, monkeypatch):
    """The comparison before the switch: each process leaves other checkpoints, and none comes to a phase in 2 s."""
    means: list[float] = []
    phases = iter([1, 1, 1, 2])

    def life(self, words, mean, begun):
        means.append(mean)
        assert len(means) < 50
        return (0, "{}") if mean > 2 else (-9, "")

    monkeypatch.setattr(Hunter, "_life", life)
    monkeypatch.setattr(Hunter, "_break", lambda self: None)
    monkeypatch.setattr(Hunter, "_state", lambda self: object())
    monkeypatch.setattr(Hunter, "_phases", lambda self: next(phases, 2))
    hunter = Hunter(None, Names("migrator"), None, {}, tmp_path, 0.5, lambda: None)  # type: ignore[arg-type]
    assert hunter.run("apply") == (0, {})
    assert means[:5] == [0.5, 0.75, 1.125, 0.5, 0.75]  # a phase was reached after the third
    assert hunter.kills == {"apply": len(means) - 1}


@pytest.mark.prove
def test_without_an_inverse_the_way_back_is_a_restore_and_nobody_writes(tmp_path):
    module = KEYS.replace('    inverse=lambda key, fields: fields[b"text"],\n', "")
    snapshot = written(tmp_path / "s", {b"{t}:text:a": b"text"})
    report = rehearsed(write(tmp_path / "m", module), snapshot, "--kill-every", "0")
    assert "restore" in [command.split()[1] for command in report["commands"]]
    assert (report["kills"], report["writes"], report["compared"], report["lost"]) == ({}, {}, 1, 0)
    assert "it has no inverse" in report["notes"][0]


def test_there_has_to_be_something_to_rehearse(tmp_path):
    snapshot = written(tmp_path / "s", jobs())
    shell = Shell(NOWHERE, write(tmp_path / "m"))
    told = shell.error("rehearse", "--snapshot", str(snapshot), exit=60, code="refused")
    assert "nothing to rehearse" in told
    assert "--kill-every" in shell.error(
        "rehearse", "--snapshot", str(snapshot), "--kill-every", "x", exit=2, code="usage"
    )


def test_without_a_ledger_it_is_said_where_a_migration_stands(tmp_path):
    """The next step is about the snapshot: `init` would be about the server at --url."""
    snapshot = written(tmp_path / "s", {MAP + b"-sorted": {b"a": float(TICKS)}})
    shell, words = Shell(NOWHERE, shipped(tmp_path / "m")), ["rehearse", "--snapshot", str(snapshot)]
    told = shell.error(*words, exit=62, code="ledger-backwards")
    assert "--at 0001=contracted" in told
    assert "migrator init" not in told
    told = shell.error(*words, "--at", "1=contracted", "--at", "2=contracted", exit=60, code="refused")
    assert "nothing to rehearse" in told


# The judge finds what is wrong: after a contract, on a server where something is damaged on purpose.


@pytest.fixture
def two(server) -> tuple[Client, Client]:
    """The snapshot, untouched, in database 1, and the server that was rehearsed on."""
    after = connect(server.url)
    return after.in_database(1), after


def put_both(two: tuple[Client, Client], server: Any, key: bytes, value: Any, px: int | None = None) -> None:
    put(server, key, value, px=px)
    two[1].one(key, "COPY", key, key, "DB", 1)


def judged(
    two: tuple[Client, Client], directory: Path, *told: Told, adopted: Client | None = None
) -> dict[str, str]:  # fmt: skip
    judge = Judge(*two, Names("migrator"), modules_of(directory).all, told, adopted)
    judge.all()
    assert sum(judge.counts.values()) == judge.differences.total
    return {f"{d.key} {d.member or ''}".strip(): f"{d.verdict}: {d.why}" for d in judge.differences.listed()}


def told(key: bytes, *items: bytes, member: bytes | None = None, source: str = "{{t}}:text:{id}") -> Told:
    return Told(
        id="0001_first", source=source, key=base64.b64encode(key).decode(),
        member=None if member is None else base64.b64encode(member).decode(),
        items=tuple(base64.b64encode(item).decode() for item in items) or None,
    )  # fmt: skip


@pytest.mark.parametrize(("source", "new"), [(KEYS, b"{t}:hash:"), (SAME_NAME, b"{t}:text:")], ids=["two names", "one"])
def test_a_record_that_is_lost_extra_or_different_is_named(server, two, tmp_path, source, new):
    tool = tool_for(server, tmp_path, source)
    for name in (b"a", b"b", b"c", b"d", b"e", b"f", b"bad"):
        put_both(
            two, server, b"{t}:text:" + name, b"bad" if name == b"bad" else b"text", 10**9 if name == b"d" else None
        )
    put_both(two, server, b"other", b"1")
    tool.apply(exit=32)
    Shell(server, tool.directory)("quarantine", "accept", "0001", "--all")
    tool.apply(through="contract")
    assert judged(two, tool.directory) == {}

    raw = server.raw
    raw.delete(new + b"a")
    raw.hset(new + b"b", "text", "another")
    raw.persist(new + b"d")
    raw.hset(new + b"x", mapping={"id": "x", "text": "nobody's"})
    raw.set("other", "2")
    raw.delete(next(key for key in raw.keys("migrator:old:*")))
    mine = [told(b"{t}:text:c", b"id", b"c", b"text", b"newer"), told(b"{t}:text:e"), told(b"{t}:text:g", b"id", b"g")]
    assert judged(two, tool.directory, *mine) == {
        "{t}:text:a": "lost: a record of the snapshot is gone",
        "{t}:text:b": "different: it is not what the mapping makes of the snapshot's",
        "{t}:text:bad": "lost: a record that cannot be mapped: it is gone",
        "{t}:text:c": "different: it is not what the last acknowledged write left",
        "{t}:text:d": "different: its expiry is another one",
        "{t}:text:e": "extra: it was deleted, which was acknowledged, and is there",
        "{t}:text:g": "lost: a write that was acknowledged is gone",
        "{t}:text:x": "extra: nobody wrote it",
        "other": "different: its value is another one",
    }


def test_a_member_that_is_lost_extra_or_different_is_named(server, two, tmp_path):
    tool = tool_for(server, tmp_path, MEMBERS)
    put_both(two, server, b"{t}:times:x", dict.fromkeys((b"a", b"b", b"c", b"d", b"e"), b"1"), 10**9)
    put_both(two, server, b"{t}:times:y", {b"bad": b"soon", b"good": b"1"})
    tool.apply(exit=32)
    Shell(server, tool.directory)("quarantine", "accept", "0001", "--all")
    tool.apply(through="contract")
    assert judged(two, tool.directory) == {}

    raw = server.raw
    raw.zrem("{t}:sorted:x", "a")
    raw.zadd("{t}:sorted:x", {"b": 2, "z": 1})
    raw.persist("{t}:sorted:x")
    raw.hset("{t}:times:y", "left", "1")
    raw.hdel(next(key for key in raw.keys("migrator:old:*")), "bad")
    where = "{{t}}:times:{name}"
    mine = [told(b"{t}:times:x", b"7", member=b"c", source=where), told(b"{t}:times:x", member=b"d", source=where)]
    assert judged(two, tool.directory, *mine) == {
        "{t}:times:x": "different: its expiry is another one",
        "{t}:times:x a": "lost: a member that has to be there is gone",
        "{t}:times:x b": "different: it is not what the mapping makes of the snapshot's",
        "{t}:times:x c": "different: it is not what the last acknowledged write left",
        "{t}:times:x d": "extra: it was removed, which was acknowledged, and is there",
        "{t}:times:x z": "extra: nobody wrote it",
        "{t}:times:y": "extra: the old record is still there after contract",
        "{t}:times:y bad": "lost: a record that cannot be mapped: it is gone",
    }


@pytest.mark.parametrize("source", [BY_ORIGIN, BY_INVERSE], ids=["by origin", "by inverse"])
def test_a_new_member_of_a_value_that_no_old_one_has_is_named(server, two, tmp_path, source):
    tool = tool_for(server, tmp_path, source)
    put_both(two, server, b"{t}:fields:a", {b"f": b"1", b"g": b"1"})
    contracted(server, tool, accepted=False)
    assert judged(two, tool.directory) == {}

    server.raw.sadd("{t}:pairs:a", "f=9", "x=1")
    assert judged(two, tool.directory) == {
        "{t}:fields:a f=9": "extra: the old member it comes from becomes another one",
        "{t}:fields:a x=1": "extra: nobody wrote it",
    }


def test_of_two_members_that_become_one_the_other_is_where_it_was_set_aside(server, two, tmp_path):
    tool = tool_for(server, tmp_path, SCORED)
    put_both(two, server, b"{t}:marks:a", {b"m:5", b"m:6", b"n:1"})
    contracted(server, tool)
    assert judged(two, tool.directory) == {}

    [aside] = server.raw.keys("migrator:old:*")
    (other,) = server.raw.smembers(aside)
    server.raw.srem(aside, other)
    server.raw.zrem("{t}:scores:a", "m")
    assert judged(two, tool.directory) == {
        f"{{t}}:marks:a {other.decode()}": "lost: a record that cannot be mapped: it is gone",
        "{t}:marks:a m": "lost: a member that has to be there is gone",
    }


def test_members_that_no_adapter_finds_by_their_new_names_have_no_writer(server, tmp_path):
    tool = tool_for(server, tmp_path, SCORED)
    put(server, b"{t}:marks:a", {b"m:5", b"n:1"})
    begun(server, tool)
    settings = Settings(url=server.url, migrations=str(tool.directory), namespace="migrator", ids=("0001",), number=0,
                        writers=1)  # fmt: skip
    assert Writer(settings).account().unwritten == ("{{t}}:marks:{name}: no record that can be written",)


def test_what_one_of_several_writers_wrote_to_is_not_called_unwritten():
    """Of a few records one writer may have none."""
    some, none = Account(unwritten=("a: refused",)), Account(unwritten=("b: no record", "a: refused"))
    assert unwritten([some, none]) == ("a: refused",)
    assert unwritten([none, none]) == ("b: no record", "a: refused")
    assert unwritten([]) == ()


def retired(key: bytes) -> bytes:
    """Where contract sets a record of the first migration aside."""
    return Names("migrator").beside("old", "0001_first").name(key, lambda _: b"0")


def begun(server: Any, tool: Tool) -> None:
    """Where records have the new shape already: the operator says that nothing was migrated yet."""
    Shell(server, tool.directory)("init", "0001", "--at", "pending", "--yes")


def contracted(server: Any, tool: Tool, *, accepted: bool = True) -> None:
    tool.apply(exit=32 if accepted else 0)
    if accepted:
        Shell(server, tool.directory)("quarantine", "accept", "0001", "--all")
    tool.apply(through="contract")


@pytest.mark.parametrize(("source", "new"), [(KEYS, b"{t}:hash:"), (SAME_NAME, b"{t}:text:")], ids=["two names", "one"])
def test_what_no_mapping_is_about_is_looked_at_too(server, two, tmp_path, source, new):
    """A hash is foreign under a name of its own, and a record already where both shapes have one name."""
    tool = tool_for(server, tmp_path, source)
    text, earlier = b"{t}:text:", b"migrator:old:0000_earlier:{x}"
    for name in (b"gone", b"same", b"other"):
        put_both(two, server, text + b"hash-" + name, {b"id": b"hash-" + name, b"text": b"a hash already"})
        put_both(two, server, text + b"list-" + name, [b"a", b"list"])
        put_both(two, server, text + b"bad-" + name, b"bad", 10**9)
        put_both(two, server, text + b"large-" + name, b"x" * (17 << 20))
    for name in (b"bad-again", b"moved"):
        put_both(two, server, text + name, name)
    put_both(two, server, earlier, b"set aside by an earlier migration")
    begun(server, tool)
    contracted(server, tool)
    assert judged(two, tool.directory) == {}

    raw = server.raw
    for name in (b"hash-gone", b"list-gone"):
        raw.delete(text + name)
    for name in (b"bad-gone", b"large-gone"):
        raw.delete(retired(text + name))
    raw.hset(text + b"hash-other", "text", "another")
    raw.rpop(text + b"list-other")
    raw.persist(retired(text + b"bad-other"))
    raw.setrange(retired(text + b"large-other"), (17 << 20) - 1, "y")
    raw.hset(new + b"bad-again", "text", "bad-again")
    raw.set(earlier, "another")
    aside = "a record that cannot be mapped: "
    assert judged(two, tool.directory) == {
        "{t}:text:hash-gone": "lost: it is gone",
        "{t}:text:hash-other": "different: its member text is another one",
        "{t}:text:list-gone": "lost: it is gone",
        "{t}:text:list-other": "different: it had 2 elements and has 1",
        "{t}:text:bad-gone": f"lost: {aside}it is gone",
        "{t}:text:bad-other": f"different: {aside}its expiry is gone",
        "{t}:text:bad-again": f"extra: {aside}something is in its place",
        "{t}:text:large-gone": f"lost: {aside}it is gone",
        "{t}:text:large-other": f"different: {aside}its value is another one",
        "migrator:old:0000_earlier:{x}": "different: its value is another one",
    }


def test_a_record_of_too_many_elements_is_where_the_engine_set_it_aside(server, two, tmp_path):
    """It is far from 16 MB."""
    source = SAME_NAME.replace('type="string"', 'type="hash"').replace("{{t}}:text:{id}", "{{t}}:wide:{id}", 1)
    source = source.replace('type="hash"),\n    forward', 'type="string"),\n    forward')
    source = source.replace("text.startswith", 'text[b"0"].startswith')
    source = source.replace('{b"id": key["id"], b"text": text.strip()}', 'text[b"0"]')
    source = source.replace('fields[b"text"]', '{b"0": fields}')
    tool = tool_for(server, tmp_path, source)
    put_both(two, server, b"{t}:wide:a", {b"0": b"small"})
    put_both(two, server, b"{t}:wide:large", {b"%d" % n: b"" for n in range(20_001)})
    contracted(server, tool)
    assert judged(two, tool.directory) == {}
    server.raw.delete(retired(b"{t}:wide:large"))
    assert judged(two, tool.directory) == {
        "{t}:wide:large": "lost: a record that cannot be mapped: it is gone"
    }  # fmt: skip


def test_what_was_adopted_is_looked_at_too(server, two, tmp_path):
    tool, adopted = tool_for(server, tmp_path, KEYS), two[1].in_database(2)
    for name in (b"bad-same", b"bad-other", b"a"):
        put_both(two, server, b"{t}:text:" + name, name)
    targets = [b"{t}:hash:" + name for name in (b"bad-same", b"bad-other", b"a", b"z-same", b"z-gone", b"z-other")]
    for target in targets:
        put_both(two, server, target, {b"text": b"older"})
    begun(server, tool)
    contracted(server, tool)
    for target in targets:
        two[0].one(target, "COPY", target, target, "DB", 2)
    assert judged(two, tool.directory, adopted=adopted) == {}
    gone = "in the backup of what was there before: it is gone"
    assert judged(two, tool.directory) == {target.decode(): f"lost: {gone}" for target in targets}

    server.raw.hset("{t}:hash:bad-other", "text", "another")
    adopted.one(b"", "DEL", b"{t}:hash:z-gone")
    adopted.one(b"", "HSET", b"{t}:hash:z-other", "text", "another")
    assert judged(two, tool.directory, adopted=adopted) == {
        "{t}:hash:z-gone": f"lost: {gone}",
        "{t}:hash:z-other": "different: in the backup of what was there before: its member text is another one",
        "{t}:text:bad-other": "different: under the name of its target: its member text is another one",
    }


def test_of_members_what_no_mapping_is_about_is_looked_at_too(server, two, tmp_path):
    tool = tool_for(server, tmp_path, MEMBERS)
    put_both(two, server, b"{t}:times:x", {b"bad": b"soon", b"good": b"1"}, 10**9)
    for name in (b"gone", b"same", b"other"):
        put_both(two, server, b"{t}:times:list-" + name, [b"a", b"list"])
    contracted(server, tool)
    assert judged(two, tool.directory) == {}

    raw = server.raw
    raw.hset(retired(b"{t}:times:x"), "bad", "later")
    raw.persist(retired(b"{t}:times:x"))
    raw.delete("{t}:times:list-gone")
    raw.rpush("{t}:times:list-other", "c")
    raw.set("{t}:sorted:z", "nobody's")
    aside = "a record that cannot be mapped: "
    assert judged(two, tool.directory) == {
        "{t}:times:x": f"different: {aside}its expiry is another one",
        "{t}:times:x bad": f"different: {aside}its value is another one",
        "{t}:times:list-gone": "lost: it is gone",
        "{t}:times:list-other": "different: it had 2 elements and has 3",
        "{t}:times:z": "extra: it is no zset",
    }


@pytest.mark.parametrize("source", [KEYS, SAME_NAME], ids=["two names", "one"])
def test_what_does_not_move_comes_through_a_rehearsal(server, tmp_path, source):
    tool, snapshot = tool_for(server, tmp_path, source), tmp_path / "s.ndjson"
    text, target = b"{t}:text:", b"{t}:text:" if source == SAME_NAME else b"{t}:hash:"
    for n in range(10):
        put(server, text + b"%d" % n, b"text %d" % n)
        put(server, target + b"native-%d" % n, {b"id": b"native-%d" % n, b"text": b"a hash already"}, px=10**9)
    put(server, text + b"bad", b"bad", px=10**9)
    put(server, text + b"large", b"x" * (17 << 20))
    put(server, text + b"list", [b"a", b"list"])
    if target != text:
        put(server, target + b"0", {b"id": b"older"})
    begun(server, tool)
    Shell(server, tool.directory)("snapshot", "take", str(snapshot), "--live-values")
    report = rehearsed(tool.directory, snapshot, "--kill-every", "0", "--writers", "1", exit=32)
    assert (report["lost"], report["extra"], report["different"], report["differences"]) == (0, 0, 0, [])
    assert (report["stopped"], report["rejected"]) == (None, 3)
    assert report["compared"] >= 23


LARGE: dict[bytes, Any] = {
    b"string": b"x" * 6000,
    b"hash": {b"%d" % n: b"x" for n in range(6000)},
    b"list": [b"%d" % n for n in range(6000)],
    b"set": {b"%d" % n for n in range(6000)},
    b"zset": {b"%d" % n: float(n) for n in range(6000)},
    b"mortal": {b"%d" % n: b"x" for n in range(6000)},
}


@pytest.mark.parametrize("whole", [WHOLE, -1], ids=["by digest", "one by one"])
def test_what_is_too_large_for_a_digest_is_compared_all_the_same(server, two, whole):
    for key, value in LARGE.items():
        put_both(two, server, key, value)
    put_both(two, server, b"small", b"x")
    assert list(unlike(two[0], two[1], lambda _: False, whole=whole)) == []
    raw = server.raw
    raw.setrange("string", 5999, "y")
    raw.hset("hash", "5999", "y")
    raw.lset("list", -1, "y")
    raw.srem("set", "5999")
    raw.sadd("set", "y")
    raw.zadd("zset", {"5999": 1})
    raw.execute_command("HPEXPIRE", "mortal", 10**9, "FIELDS", 1, "5999")
    raw.set("small", "y")
    assert {key: found.why for key, found in unlike(two[0], two[1], lambda _: False, whole=whole)} == {
        b"string": "its value is another one",
        b"hash": "its member 5999 is another one",
        b"list": "its elements are others",
        b"set": "its member 5999 is gone",
        b"zset": "its member 5999 is another one",
        b"mortal": "a field's own expiry is another one",
        b"small": "its value is another one",
    }


# What writers propose.


def test_what_writers_propose_tells_one_write_from_another_and_survives_the_mapping(tmp_path):
    modules = modules_of(shipped(tmp_path / "m"))
    keys, members = (
        Family(OneSlot(), Names("migrator"), module.id, module.migration.moves[0]) for module in modules.all
    )
    pair = keys.from_old(job_key(1))
    assert pair is not None
    value, _ = keys.map_key(pair, job(guid(1)))
    proposals = Proposals(keys)
    first, second = (proposals.changed(pair, value, number) for number in (1, 2))
    assert value != first != second
    assert all(proposals.sound(pair, one) for one in (first, second))
    made = proposals.another(pair, value, 3)
    assert made is not None
    assert made[0].old != pair.old
    assert proposals.sound(*made)

    there = members.from_old(MAP)
    assert there is not None
    new = members.map_member(there, b"a", b"%d" % TICKS)
    changed = Proposals(members).member(there, new, 1000)
    assert changed not in (None, new)
    assert one_sound(members, there, changed)
    fresh = Proposals(members).new_member(there, new, 4)
    assert fresh is not None
    assert fresh[0] != b"a"


def test_where_no_value_survives_the_mapping_nothing_is_proposed(tmp_path):
    [module] = modules_of(write(tmp_path / "m", KEYS.replace('fields[b"text"]', 'b"always the same"'))).all
    family = Family(OneSlot(), Names("migrator"), module.id, module.migration.moves[0])
    pair = family.from_old(b"{t}:text:a")
    assert pair is not None
    assert Proposals(family).changed(pair, {b"id": b"a", b"text": b"always the same"}, 1) is None
