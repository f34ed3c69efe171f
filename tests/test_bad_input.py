"""Whatever is wrong with the command, the server, the modules or the data: an exit code, a sentence and a next step."""

from __future__ import annotations

import json

import pytest

from tests.servers import Server, binary, choose_port
from tests.support import (
    KEYS,
    MEMBERS,
    OTHER,
    Shell,
    all_keys,
    in_process,
    picture,
    put,
    tool_for,
    write,
)

TEXT = b"{t}:text:a"


@pytest.fixture
def shell(server, tmp_path):
    """On a single server: what a command line says does not depend on a cluster."""
    return Shell(server, write(tmp_path / "migrations", KEYS))


# Redis.


def test_an_unreachable_redis_is_3_after_the_time_given(shell):
    nobody = f"redis://127.0.0.1:{choose_port()}/0"
    told = shell.error("plan", "--retry", "1", exit=3, code="unreachable", url=nobody)
    assert "unreachable" in told
    assert "--url" in told


def test_a_wrong_password_is_3_and_is_never_printed(tmp_path, run_migrator):
    with Server(binary(), requirepass="right") as server:
        wrong = f"redis://:s3cr%40t@127.0.0.1:{server.port}/0"
        directory = write(tmp_path / "migrations", KEYS)
        for command, run in (("plan", run_migrator), ("apply", in_process), ("status", in_process)):
            shell = Shell(server.url, directory, run)
            told = shell.error(command, "--retry", "1", exit=3, code="unreachable", url=wrong)
            assert "does not let us in" in told
            assert "s3cr" not in told
        assert shell("plan")["migrations"][0]["id"] == "0001_first"


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:sw0rdfish@[::1/0", "redis://:sw0rdfish@host:port/0", "http://u:sw0rdfish@host/",
        "redis+sentinel://u:sw0rdfish@host:26379", "sw0rdfish@host", "redis://h:1/0?password=sw0rdfish&db=x",
        "redis://:sw0rdfish@host:99999999/0", "redis+cluster://:sw0rdfish@host:x/0", "redis://:sw0rdfish@host/zero",
    ],
)  # fmt: skip
def test_a_malformed_url_is_2_and_its_password_is_never_printed(tmp_path, url):
    told = Shell(url, write(tmp_path / "migrations", KEYS)).error("status", "--retry", "0", exit=2, code="usage")
    assert "sw0rdfish" not in told


def test_a_server_that_evicts_anything_is_refused_in_the_plan_and_by_apply(server, shell):
    server.raw.config_set("maxmemory-policy", "allkeys-lru")
    [refused] = shell("plan", exit=60)["migrations"][0]["refused"]
    assert refused["code"] == "eviction"
    assert "allkeys-lru" in refused["text"]
    assert shell("apply", exit=60)["stopped"]["exit"] == 60


@pytest.fixture
def as_user(server):
    """The URL of a user with these rules."""

    def url(*rules):
        server.raw.execute_command("ACL", "SETUSER", "somebody", "on", ">pw", "~*", "&*", "+@all", *rules)
        return server.url.replace("redis://", "redis://somebody:pw@")

    yield url
    server.raw.execute_command("ACL", "DELUSER", "somebody")


def test_a_user_without_scripts_is_refused(as_user, shell):
    url = as_user("-@scripting")
    [refused] = shell("plan", exit=60, url=url)["migrations"][0]["refused"]
    assert refused["code"] == "scripting"
    assert "refused" in shell("apply", exit=60, url=url)["error"]["code"]


def test_what_only_reads_runs_as_a_user_who_may_not_write_and_writes_nothing(server, as_user, shell, run_migrator):
    shell = Shell(server, shell.directory, run_migrator)  # as processes: each of them ends with that exit code
    put(server, TEXT, b"text")
    url = as_user("-@write")
    before = all_keys(server)
    server.raw.config_resetstat()
    assert shell("plan", url=url)["migrations"][0]["counts"]["estimate"] == 1
    shell("status", url=url)
    shell("verify", "0001", url=url, exit=30)
    shell("history", url=url)
    shell("lock", "show", url=url)
    stats = server.raw.info("commandstats")
    writing = {"set", "hset", "zadd", "sadd", "rpush", "del", "unlink", "rename", "xadd", "expire", "pexpireat"}
    assert {name.removeprefix("cmdstat_") for name in stats} & writing == set()
    assert all_keys(server) == before
    assert "refused" in shell("apply", exit=60, url=url)["error"]["code"]


def test_a_user_without_info_is_told_what_that_costs(server, as_user, shell):
    url = as_user("-info")
    put(server, TEXT, b"text")
    [planned] = shell("plan", url=url)["migrations"]
    assert "no-info" in {risk["code"] for risk in planned["risks"]}
    shell("apply", "--through", "switch", url=url)


# The command and the modules.


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["apply", "0007"], "there is no migration '0007'"),
        (["verify", "nonsense"], "there is no migration 'nonsense'"),
        (["frobnicate"], "frobnicate"),
        (["apply", "--through", "nowhere"], "nowhere"),
        (["apply", "--rate", "-1"], "'--rate'"),
        (["verify", "0001", "--sample", "2"], "'--sample'"),
        (["status", "--lease", "0"], "--lease"),
        (["status", "--namespace", "{braces}"], "namespace"),
        (["apply", "--plan", "/nonexistent/plan.json"], "not a saved plan"),
        (["plan", "--out", "/nonexistent/plan.json"], "/nonexistent/plan.json"),
        (["new", "Bad Name", "--kind", "key"], "Bad Name"),
        (["new", "good_name", "--kind", "amend"], "amend"),
    ],
)
def test_a_wrong_command_is_2_and_says_what_is_wrong(shell, args, message):
    assert message in shell.error(*args, exit=2, code="usage")


def test_a_common_option_without_a_good_value_is_2(server):
    yaml = in_process("status", "--format", "yaml", url=server.url)
    assert (yaml.returncode, yaml.stdout) == (2, "")
    assert "--format is text or json, not 'yaml'" in yaml.stderr
    bare = in_process("--format=json", "status", "--lease", "long", url=server.url)
    assert bare.returncode == json.loads(bare.stdout)["error"]["exit"] == 2


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("from migrator import nothing_of_the_kind\n", "0002_second.py:1: ImportError"),
        ("x = 1\ny = x / 0\n", "0002_second.py:2: ZeroDivisionError"),
        ("def f(:\n", "0002_second.py:1: SyntaxError"),
        ("import sys\nsys.exit(5)\n", "0002_second.py:2: SystemExit"),
        ("x = 1\n", "no `migration = Migration(…)`"),
        (KEYS.replace('type="hash"', 'type="stream"'), "type 'stream' is not one of"),
        (KEYS.replace("id}", "id"), "template"),
        (KEYS.replace('type="string"', 'type="string", id="("'), "0002_second.py:"),
        (KEYS.replace('type="string"', 'type="string", other="x"'), "no capture 'other'"),
        (KEYS.replace("hash:{id}", "hash:{other}"), "the same captures"),
        (MEMBERS.replace('type="zset"', 'type="list"'), "not lists"),
    ],
)
def test_a_module_that_cannot_be_used_is_2_with_file_and_line(server, shell, source, message):
    write(shell.directory, KEYS, source)
    told = shell.error("plan", exit=2, code="usage")
    assert message in told
    assert "0002_second.py:" in told
    assert all_keys(server) == set()


def test_two_modules_with_one_number_are_2(shell):
    (shell.directory / "0001_again.py").write_text(KEYS)
    told = shell.error("status", exit=2, code="usage")
    assert "0001_again.py" in told
    assert "0001_first.py" in told


def test_a_directory_that_is_not_there_is_2(server, tmp_path):
    told = Shell(server, tmp_path / "none").error("plan", exit=2, code="usage")
    assert "migrator new" in told


def test_an_edited_module_is_drift_from_expanded_to_the_end_of_the_sweep(server, shell, tmp_path):
    path = shell.directory / "0001_first.py"
    put(server, TEXT, b"text")
    shell("init")
    path.write_text(KEYS + "# pending: may be edited\n")
    for through in ("expand", "verify", "switch"):
        shell("apply", "--through", through)
        good = path.read_text()
        path.write_text(good + "# edited\n")
        assert "edited" in shell.error("apply", exit=11, code="drift")
        assert shell("plan", exit=11)["error"]["code"] == "drift"
        path.write_text(good)
    path.write_text(good.replace("\n", "\r\n"))
    backup = ["--backup", str(tmp_path / "backup"), "--yes"]
    shell("apply", "--through", "contract", *backup)
    path.write_text(good + "# after the sweep it may be edited again\n")
    shell("apply")
    assert "rebuilt by the mapping" in shell.error("rollback", "0001", *backup, exit=11, code="drift")


def test_a_rollback_to_pending_works_despite_drift(client, tmp_path):
    shell = Shell(client, write(tmp_path / "migrations", KEYS))
    put(client, TEXT, b"text")
    shell("apply")
    (shell.directory / "0001_first.py").write_text(KEYS + "# edited\n")
    assert shell("rollback", "0001", "--to", "pending", "--yes")["migrations"][0]["phase"] == "pending"
    assert set(picture(client)) == {TEXT}
    shell("apply", "0001")


def test_a_module_that_is_missing_while_under_way_is_drift(shell):
    shell("apply")
    (shell.directory / "0001_first.py").rename(shell.directory / "kept.txt")
    assert "0001_first" in shell.error("apply", exit=11, code="drift")


def test_a_lower_number_that_comes_later_is_12(shell):
    path = shell.directory / "0001_first.py"
    path.rename(shell.directory / "0005_fifth.py")
    shell("apply")
    path.write_text(OTHER)
    told = shell.error("plan", exit=12, code="order")
    assert "next free number" in told
    assert shell("apply", exit=12)["error"]["exit"] == 12


def test_a_migration_waits_for_those_named_in_after_and_those_on_its_keys(server, shell, tmp_path):
    after = OTHER.replace("\n))", '\n), after=["0001"])')
    write(shell.directory, KEYS, after, KEYS.replace("{{t}}:hash:", "{{t}}:third:"))
    put(server, TEXT, b"text")
    assert "0001_first must be contracted first" in shell("apply", "0002", exit=12)["stopped"]["reason"]
    passed = shell("apply")
    assert len(passed["notes"]) == 2
    assert [one["phase"] for one in passed["migrations"]] == ["verified", "pending", "pending"]
    assert "touches the same keys" in shell("apply", "0003", exit=12)["stopped"]["reason"]
    shell("apply", "0001", "--through", "contract", "--yes", "--backup", str(tmp_path / "backup"))
    shell("apply", "0002")


@pytest.mark.parametrize("template", ["{{t}}:hash:{name}", "{{t}}:{kind}:{name}", "{{t}}:hash:{id}:log"])
def test_what_a_key_is_called_in_a_template_hides_no_migration_that_waits(server, shell, template):
    target = template.replace("{{t}}", "{{u}}")
    second = KEYS.replace("{{t}}:hash:{id}", target).replace("{{t}}:text:{id}", template).replace('key["id"]', 'b"1"')
    write(shell.directory, KEYS, second)
    assert "touches the same keys" in shell("apply", "0002", exit=12)["stopped"]["reason"]


def test_a_migration_does_not_go_back_before_one_that_calls_its_keys_otherwise(server, shell, tmp_path):
    backup = ["--backup", str(tmp_path / "backup"), "--yes"]
    put(server, TEXT, b"text")
    shell("apply", "--through", "contract", *backup)
    write(shell.directory, KEYS, MEMBERS.replace("{{t}}:times:{name}", "{{t}}:hash:{name}"))
    shell("apply", "0002", exit=32)
    assert "0002_second was applied after" in shell.error("rollback", "0001", *backup, exit=60, code="refused")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("{{t}}:text:{name}", "{{t}}:else:{name}"),
        ("{{t}}:more:{name}", "{{t}}:hash:{name}"),
        ("{{t}}:hash:{id}", "{{t}}:else:{id}"),
        ("{{t}}:more:{id}", "{{t}}:text:{id}"),
    ],
)
def test_two_moves_of_one_migration_are_about_other_keys(client, tmp_path, one, other):
    second = f'KeyMove(source=Keys("{one}", type="string"), target=Keys("{other}", type="hash"), forward=forward)'
    shell = Shell(client, write(tmp_path / "migrations", KEYS.replace("\n))", f"\n), {second})")))
    assert "two moves are about the same keys" in shell.error("plan", exit=2, code="usage")


def test_a_target_template_that_takes_the_old_records_for_new_ones_is_refused(client, tmp_path):
    keys = KEYS.replace("{{t}}:text:{id}", "{{t}}:text:{id}:raw").replace("{{t}}:hash:{id}", "{{t}}:text:{id}")
    shell = Shell(client, write(tmp_path / "migrations", keys))
    put(client, b"{t}:text:a:raw", b"1")
    before = picture(client)
    told = shell("apply", exit=60)["stopped"]
    assert "match the target template" in told["reason"]
    assert picture(client) == before
    for kind in ("string", "hash"):
        keys = keys.replace(f'type="{kind}"', f'type="{kind}", id="[a-z]+"')
    write(shell.directory, keys)
    shell("apply")


def test_a_lease_that_is_held_is_20_with_owner_and_expiry(server, shell, tmp_path):
    tool = tool_for(server, tmp_path, KEYS)
    with tool.session().leased() as lease:
        told = shell.error("apply", exit=20, code="lease-held")
        assert "holds the lease for another" in told
        assert lease.fence.token in told
        shown = shell("lock", "show")
        assert (shown["held"], shown["token"]) == (True, lease.fence.token)
        assert 0 < shown["expires_in_seconds"] <= 30
    assert shell("lock", "show")["held"] is False
    assert "nobody" in shell.text("lock", "show").lower()


def test_values_that_are_none_are_2(server, tmp_path):
    shell = Shell(server, write(tmp_path / "migrations", KEYS))
    for words in (
        ("status", "--watch"), ("apply", "--rate", "inf"), ("apply", "--max-pause", "-1s"),
        ("apply", "--max-pause", "inf"), ("verify", "0001", "--budget", "-5"), ("verify", "0001", "--foreign", "both"),
        ("verify", "0001", "--repair", "--foreign", "old"), ("apply", "--rate", "nan"),
        ("verify", "0001", "--rate", "nan"), ("verify", "0001", "--sample", "nan"),
        ("verify", "0001", "--budget", "nan"), ("apply", "--max-pause", "nan"),
        ("snapshot", "take", "s", "--rate", "nan"), ("snapshot", "take", "s", "--rate", "inf"),
        ("snapshot", "take", "s", "--sample", "nan%"), ("rehearse", "--snapshot", "s", "--kill-every", "nan"),
        ("status", "--retry", "nan"), ("status", "--lease", "nan"),
    ):  # fmt: skip
        assert shell(*words, exit=2)["error"]["code"] == "usage"
    assert all_keys(server) == set()


def test_a_module_that_cannot_be_read_is_2(server, tmp_path):
    shell = Shell(server, write(tmp_path / "migrations", KEYS))
    (shell.directory / "0002_x.py").mkdir()
    assert "cannot read" in shell.error("plan", exit=2, code="usage")


@pytest.mark.parametrize("group", ["quarantine", "lock", "snapshot"])
def test_a_group_alone_tells_of_its_commands(server, tmp_path, group):
    told = Shell(server, write(tmp_path / "migrations", KEYS)).text(group)
    assert told.startswith(f"Usage: migrator {group}")
    assert max(map(len, told.splitlines())) <= 80


def test_an_edited_module_is_told_of_whoever_holds_the_lease(server, tmp_path):
    tool = tool_for(server, tmp_path, KEYS)
    tool.apply()
    (tool.directory / "0001_first.py").write_text(KEYS + "# edited\n")
    with tool.session().leased():
        Shell(server, tool.directory).error("apply", exit=11, code="drift")
