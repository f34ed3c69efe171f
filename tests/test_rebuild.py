"""The old shape on the way back from contract: the newest bytes that serve, and never over newer ones."""

from __future__ import annotations

import gzip

import pytest

from migrator.engine import copy, copy_members, mend, putback, rebuild
from migrator.engine.back import backup_of
from migrator.errors import MigratorError, UsageError
from tests.records import EXPIRES_AT
from tests.support import KEYS, MEMBERS, Shell, failover_after, picture, put, tool_for

# `forward` strips the text, and " 7" maps to what "7" maps to: bytes that the inverse does not give back.
A, TIMES = b"{t}:text:a", b"{t}:times:a"


@pytest.fixture
def tool(client, tmp_path):
    put(client, A, b" a")
    tool = tool_for(client, tmp_path, KEYS)
    tool.apply(through="contract")
    return tool


@pytest.fixture
def maps(server, tmp_path):
    put(server, TIMES, {b"m": b"007"}, px=600_000)
    tool = tool_for(server, tmp_path, MEMBERS)
    tool.apply(through="contract")
    return tool


def revert(tool, *, whole: bool = False) -> None:
    with tool.run() as run:
        run.change("reverting", rolled_back=True, swept=False)
        if whole:
            rebuild.rebuild(run, backup_of(run))


def write_both(tool, name: bytes, text: bytes) -> None:
    """What an adapter does in one script; the new shape stays as it is where the text differs in blanks alone."""
    put(tool.place, b"{t}:text:" + name, text)
    put(tool.place, b"{t}:hash:" + name, {b"id": name, b"text": text.strip()})


def test_what_an_adapter_wrote_on_the_way_back_is_not_replaced_by_older_bytes_that_mean_the_same(tool):
    revert(tool)
    write_both(tool, b"a", b"a  ")
    assert tool.rollback() == "switched"
    assert tool.place.raw.get(A) == b"a  "


def by_script(monkeypatch):
    """As where records are in several slots, or the server has no transactions."""
    monkeypatch.setattr(putback, "ability", lambda lanes, key: (False, False))


def between(monkeypatch, kind, write):
    """Calls `write` once, after a batch was read and before it is written."""
    writes, calls = kind.writes, list[int]()

    def overtaken(batch, replies):
        words = writes(batch, replies)
        if not calls:
            calls.append(len(words))
            write()
        return words

    monkeypatch.setattr(kind, "writes", overtaken)
    return calls


def test_nor_where_it_writes_while_what_was_saved_is_put_back(tool, monkeypatch):
    calls = between(monkeypatch, putback.Keys, lambda: write_both(tool, b"a", b"a  "))
    assert tool.rollback() == "switched"
    assert (calls, tool.place.raw.get(A)) == ([1], b"a  ")


def test_nor_what_it_deleted_while_that_was_put_back(tool, monkeypatch):
    calls = between(monkeypatch, putback.Keys, lambda: tool.place.raw.delete(b"{t}:hash:a"))
    assert tool.rollback() == "switched"
    assert (calls, tool.place.raw.exists(A)) == ([1], 0)


def test_nor_a_member_that_it_writes_while_what_was_saved_is_put_back(maps, monkeypatch):
    calls = between(monkeypatch, putback.Members, lambda: put(maps.place, TIMES, {b"m": b"07"}, px=600_000))
    assert maps.rollback() == "switched"
    assert (calls, maps.place.raw.hget(TIMES, "m")) == ([2], b"07")


def test_nor_a_member_that_it_deleted_while_that_was_put_back(maps, monkeypatch):
    put(maps.place, b"{t}:sorted:a", {b"late": 7.0})
    calls = between(monkeypatch, putback.Members, lambda: maps.place.raw.zrem(b"{t}:sorted:a", "m"))
    assert maps.rollback() == "switched"
    assert (calls, maps.place.raw.hgetall(TIMES)) == ([2], {b"late": b"7"})


def test_nothing_is_put_back_once_another_holds_the_lease(tool, monkeypatch):
    revert(tool)
    with tool.run() as run:
        marker = run.markers.key(run.markers.slots[0])
    calls = between(monkeypatch, putback.Keys, lambda: tool.place.raw.hset(marker, "token", "another"))
    with pytest.raises(MigratorError):
        tool.rollback()
    assert (calls, tool.place.raw.exists(A)) == ([1], 0)


def test_a_record_whose_field_has_a_ttl_is_not_put_back_without_it(tool):
    if tool.place.raw.execute_command("HPEXPIREAT", b"{t}:hash:a", EXPIRES_AT, "FIELDS", 1, "text") != [1]:
        pytest.skip("no field TTLs")
    tool.rollback(exit=32)
    assert tool.place.raw.exists(A) == 0
    tool.place.raw.execute_command("HPERSIST", b"{t}:hash:a", "FIELDS", 1, "text")
    assert tool.rollback() == "switched"


@pytest.mark.parametrize("name", [b"a", b"late"])
def test_nor_where_it_writes_while_the_record_is_mended(tool, monkeypatch, name):
    by_script(monkeypatch)
    put(tool.place, b"{t}:hash:late", {b"id": b"late", b"text": b"late"})  # in no backup: the inverse gives it
    write_keys = copy.write_keys

    def overtaken(run, family, way, jobs):
        if any(job.pair.key["id"] == name for job in jobs) and not tool.place.raw.exists(b"{t}:text:" + name):
            write_both(tool, name, name + b"  ")
        return write_keys(run, family, way, jobs)

    monkeypatch.setattr(mend, "write_keys", overtaken)
    assert tool.rollback() == "switched"
    assert tool.place.raw.get(b"{t}:text:" + name) == name + b"  "


def test_an_old_record_that_has_changed_since_it_was_read_is_read_again(tool, monkeypatch):
    revert(tool)
    write_both(tool, b"a", b"b")
    put(tool.place, A, b"else")  # of an application without an adapter
    write_keys, seen = copy.write_keys, list[bytes]()

    def overtaken(run, family, way, jobs):
        seen.extend(job.over[0] for job in jobs if job.over)
        if len(seen) == 1:
            write_both(tool, b"a", b"b ")
        return write_keys(run, family, way, jobs)

    monkeypatch.setattr(mend, "write_keys", overtaken)
    assert tool.rollback() == "switched"
    assert (seen, tool.place.raw.get(A)) == ([b"else"], b"b ")


def test_members_that_an_adapter_wrote_on_the_way_back_are_not_replaced_either(maps):
    revert(maps)
    put(maps.place, TIMES, {b"m": b"07"}, px=600_000)
    assert maps.rollback() == "switched"
    assert maps.place.raw.hget(TIMES, "m") == b"07"


@pytest.mark.parametrize("member", [b"m", b"late"])
@pytest.mark.parametrize("had", [None, b"99"])
def test_nor_where_it_writes_while_the_members_are_mended(maps, monkeypatch, member, had):
    by_script(monkeypatch)
    put(maps.place, b"{t}:sorted:a", {b"late": 7.0})
    revert(maps)
    if had:
        put(maps.place, TIMES, {member: had})
    write_members = copy_members.write_members

    def overtaken(run, family, way, pair, jobs, over):
        if any(job[0] == member for job in jobs) and maps.place.raw.hget(TIMES, member) == had:
            put(maps.place, TIMES, {member: b"07"})
        return write_members(run, family, way, pair, jobs, over)

    monkeypatch.setattr(mend, "write_members", overtaken)
    assert maps.rollback() == "switched"
    assert maps.place.raw.hget(TIMES, member) == b"07"


def test_of_bytes_that_were_saved_twice_the_newer_ones_come_back(tool):
    revert(tool, whole=True)
    write_both(tool, b"a", b"a  ")
    tool.apply("0001", through="contract")
    assert tool.rollback() == "switched"
    assert tool.place.raw.get(A) == b"a  "


def test_what_was_set_aside_and_not_yet_removed_serves_before_the_backup(tool):
    with tool.run() as run:
        put(tool.place, run.families[0].retired(run.families[0].from_old(A)), b"a  ")
    assert tool.rollback() == "switched"
    assert tool.place.raw.get(A) == b"a  "


def test_a_failover_in_the_middle_does_not_cost_the_exact_bytes(tool, monkeypatch):
    done = failover_after(monkeypatch, rebuild, "_from_what_is_kept", lambda: tool.place.raw.delete(A))
    assert tool.rollback() == "switched"
    assert (len(done) > 1, tool.place.raw.get(A)) == (True, b" a")


def test_a_new_record_that_changes_while_the_old_one_is_mended_is_read_again(tool, monkeypatch):
    put(tool.place, b"{t}:hash:late", {b"id": b"late", b"text": b"late"})
    write_keys, calls = copy.write_keys, list[int]()

    def overtaken(run, family, way, jobs):
        if jobs and jobs[0].pair.key["id"] == b"late" and not calls:
            calls.append(tool.place.raw.hset(b"{t}:hash:late", "text", "later"))
        return write_keys(run, family, way, jobs)

    monkeypatch.setattr(mend, "write_keys", overtaken)
    assert tool.rollback() == "switched"
    assert (calls, tool.place.raw.get(b"{t}:text:late")) == ([0], b"later")


def test_a_new_member_that_changes_while_the_old_one_is_mended_is_read_again(maps, monkeypatch):
    put(maps.place, b"{t}:sorted:a", {b"late": 7.0})
    write_members, calls = copy_members.write_members, list[int]()

    def overtaken(run, family, way, pair, jobs, over):
        if jobs and jobs[0][0] == b"late" and not calls:
            calls.append(maps.place.raw.zadd(b"{t}:sorted:a", {"late": 8}))
        return write_members(run, family, way, pair, jobs, over)

    monkeypatch.setattr(mend, "write_members", overtaken)
    assert maps.rollback() == "switched"
    assert (calls, maps.place.raw.hget(TIMES, "late")) == ([0], b"8")


def test_what_differs_once_the_inverse_has_been_everywhere_is_mended_all_the_same(tool):
    put(tool.place, b"{t}:hash:late", {b"id": b"late", b"text": b"late"})  # in no backup
    revert(tool, whole=True)
    put(tool.place, b"{t}:text:late", b"else")  # of an application without an adapter
    assert tool.rollback() == "switched"
    assert tool.place.raw.get(b"{t}:text:late") == b"late"


def test_a_member_that_differs_once_the_inverse_has_been_everywhere_is_mended_too(maps):
    put(maps.place, b"{t}:sorted:a", {b"late": 7.0})
    revert(maps, whole=True)
    maps.place.raw.hset(TIMES, "late", "99")
    assert maps.rollback() == "switched"
    assert maps.place.raw.hget(TIMES, "late") == b"7"


def test_an_expiry_that_went_astray_is_mended_with_the_bytes_as_they_are(tool):
    revert(tool, whole=True)
    tool.place.raw.pexpireat(b"{t}:hash:a", EXPIRES_AT)
    assert tool.rollback() == "switched"
    assert (tool.place.raw.get(A), picture(tool.place)[A].expires) == (b" a", EXPIRES_AT)


def test_an_expiry_of_members_that_went_astray_is_mended_with_the_bytes_as_they_are(maps):
    before = picture(maps.place)[b"{t}:sorted:a"].expires
    revert(maps, whole=True)
    maps.place.raw.persist(TIMES)
    assert maps.rollback() == "switched"
    assert (maps.place.raw.hget(TIMES, "m"), picture(maps.place)[TIMES].expires) == (b"007", before)


def test_an_old_record_that_cannot_be_mapped_is_listed_and_holds_up_the_way_back_until_it_is_accepted(tool):
    put(tool.place, b"{t}:text:late", b"bad")
    assert tool.rollback(exit=32) == "reverting"
    shell = Shell(tool.place, tool.directory)
    [listed] = shell("quarantine", "list", "0001")["records"]
    assert (listed["key"], listed["reason"]) == ("{t}:text:late", "a bad one")
    assert shell("verify", "0001", exit=32)["unreadable"] == 1
    shell("quarantine", "accept", "0001", "{t}:text:late")
    assert tool.rollback() == "switched"
    assert tool.place.raw.get(b"{t}:text:late") == b"bad"


def test_a_backup_that_cannot_be_read_to_its_end_ends_the_way_back_until_it_can(tool, monkeypatch):
    """An error of the disk is one of the same kind as a lost connection."""

    def bad(_: bytes) -> bytes:
        raise gzip.BadGzipFile("not a gzipped file")

    with monkeypatch.context() as broken:
        broken.setattr(gzip, "decompress", bad)
        with pytest.raises(UsageError, match="cannot be read"):
            tool.rollback()
    assert tool.phase() == "reverting"
    assert tool.rollback() == "switched"
    assert tool.place.raw.get(A) == b" a"
