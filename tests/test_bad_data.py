"""Data, targets, namespaces and orders that are wrong: refused or quarantined, and nothing is touched."""

from __future__ import annotations

from tests.support import KEYS, MEMBERS, Shell, Tool, picture, put, shipped, tool_for, write

TEXT = b"{t}:text:a"


def test_a_target_of_another_type_is_refused_in_the_plan(client, tmp_path):
    shell = Shell(client, write(tmp_path / "migrations", KEYS))
    put(client, TEXT, b"text")
    put(client, b"{t}:hash:a", b"a string")
    [refused] = shell("plan", exit=60)["migrations"][0]["refused"]
    assert refused["code"] == "target-type"
    assert "{t}:hash:a" in refused["text"]
    assert shell("apply", exit=60)["stopped"]["phase"] == "pending"
    assert client.raw.execute_command("GET", b"{t}:hash:a") == b"a string"


def test_a_source_of_another_type_is_quarantined_and_untouched(client, tmp_path):
    tool = tool_for(client, tmp_path, KEYS)
    put(client, TEXT, [b"a list"])
    put(client, b"{t}:text:good", b"text")
    before = picture(client)
    [rejected] = tool.plan().rejected
    assert (rejected.key, rejected.reason.split(":")[0]) == ("{t}:text:a", "foreign-type")
    tool.apply(exit=32)
    assert {key: one for key, one in picture(client).items() if b"text" in key} == before


BAD_JOBS = {
    b'{"id":': "not valid JSON",
    b"null": "not a JSON object",
    b"[]": "not a JSON object",
    b"": "empty value",
    b'{"id":"\xff"}': "not UTF-8",
}


def test_jobs_that_are_none_are_quarantined_and_untouched(server, tmp_path):
    tool = Tool(server, shipped(tmp_path / "migrations"), tmp_path / "backup")
    for number, text in enumerate(BAD_JOBS):
        put(server, b"ae:job:00000000-0000-4000-8000-%012d" % number, text)
    before = picture(server)
    tool.apply("0001", exit=32)
    assert tool.phase("0001") == "backfilled"
    assert picture(server) == before
    shell = Shell(server, tool.directory)
    listed = shell("quarantine", "list", "0001")["records"]
    assert [record["reason"] for record in listed] == list(BAD_JOBS.values())
    assert "not UTF-8" in shell.text("quarantine", "list", "0001")


def test_scores_that_are_no_numbers_are_quarantined_one_by_one(client, tmp_path):
    tool = tool_for(client, tmp_path, MEMBERS)
    put(client, b"{t}:times:a", {b"good": b"1", b"bad": b"soon", b"worse": b"nan"})
    before = picture(client)
    tool.apply(exit=32)
    assert picture(client, b"{t}:times") == before
    assert client.raw.execute_command("ZRANGE", b"{t}:sorted:a", 0, -1) == [b"good"]


def test_two_namespaces_on_the_same_keys_are_refused_until_the_first_is_rolled_back(client, tmp_path):
    first = tool_for(client, tmp_path, KEYS)
    second = Tool(client, first.directory, first.backup, namespace="other")
    put(client, TEXT, b"text")
    first.apply(through="expand")
    assert [one.code for one in second.plan().refused] == ["claimed"]
    second.apply(exit=60)
    assert second.phase() == "pending"
    first.rollback("0001", "pending")
    second.apply()
    first.apply("0001", exit=60)


def test_contract_is_refused_without_yes_and_without_a_backup(client, tmp_path):
    shell = Shell(client, write(tmp_path / "migrations", KEYS))
    put(client, TEXT, b"text")
    backup = ["--backup", str(tmp_path / "backup")]
    stopped = shell("apply", "--through", "contract", *backup, exit=60)["stopped"]
    assert "--yes" in stopped["next"]
    stopped = shell("apply", "--through", "contract", "--yes", exit=60)["stopped"]
    assert "--backup" in stopped["next"]
    assert client.raw.execute_command("EXISTS", TEXT) == 1
    for command in ("rollback", "restore"):
        more = ["--discard-later-writes", *backup] if command == "restore" else []
        assert "--yes" in shell.error(command, "0001", *more, exit=60, code="refused")
    assert "--discard-later-writes" in shell.error("restore", "0001", *backup, exit=60, code="refused")


def test_contract_needs_no_backup_where_there_is_nothing_to_remove(client, tmp_path):
    shell = Shell(client, write(tmp_path / "migrations", KEYS))
    assert shell("apply", "--through", "contract", "--yes")["migrations"][0]["phase"] == "contracted"
