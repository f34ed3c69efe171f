"""A module that names other keys than it was expanded with, and migrations that build on one another: what is not a
migration's own is never removed or replaced by it."""

from __future__ import annotations

import pytest

from migrator.adapters import Records
from migrator.errors import DriftError, RefusedError
from tests.support import KEYS, Shell, modules_of, picture, put, tool_for

TEXT, STRANGER = b"{t}:text:a", b"{t}:other:a"
PREFIXED = "import os\nPREFIX = os.environ.get('THE_PREFIX', '{{t}}')\n" + KEYS.replace('"{{t}}:', 'PREFIX + ":')
BACK_TO_TEXT = (
    KEYS.replace('"{{t}}:text:{id}", type="string"', '"{{t}}:hash:{id}", type="hash"')
    .replace('"{{t}}:hash:{id}", type="hash"),\n    forward', '"{{t}}:third:{id}", type="string"),\n    forward')
    .replace('{b"id": key["id"], b"text": text.strip()}', 'text[b"text"]')
    .replace('text.startswith(b"bad")', "not text")
)


@pytest.fixture
def tool(client, tmp_path):
    put(client, TEXT, b"text")
    return tool_for(client, tmp_path, KEYS)


@pytest.fixture
def module(tool):
    return tool.directory / "0001_first.py"


@pytest.mark.parametrize("phase", ["expand", "backfill", "verify"])
def test_a_way_back_removes_nothing_under_names_that_were_not_migrated(client, tool, module, phase):
    tool.apply(through=phase)
    put(client, STRANGER, {b"somebody": b"else's"})
    before = picture(client)
    module.write_text(KEYS.replace("{{t}}:hash:", "{{t}}:other:"))
    with pytest.raises(DriftError, match="was edited, or settings") as told:
        tool.apply()
    assert "rollback" not in told.value.next
    with pytest.raises(DriftError, match="names other keys"):
        tool.rollback(to="pending")
    assert picture(client) == before
    module.write_text(KEYS)
    assert tool.rollback(to="pending") == "pending"
    assert set(picture(client)) == {TEXT, STRANGER}


def test_neither_does_a_restore(client, tool, module):
    tool.apply(through="contract")
    put(client, STRANGER, {b"somebody": b"else's"})
    before = picture(client)
    module.write_text(KEYS.replace("{{t}}:hash:", "{{t}}:other:"))
    with pytest.raises(DriftError, match="names other keys"):
        tool.restore()
    assert picture(client) == before
    module.write_text(KEYS)
    tool.restore()
    assert set(picture(client)) == {TEXT, STRANGER}


def test_another_prefix_in_the_environment_is_drift_for_commands_and_adapters(client, tmp_path, monkeypatch):
    put(client, TEXT, b"text")
    tool = tool_for(client, tmp_path, PREFIXED)
    tool.apply(through="expand")
    monkeypatch.setenv("THE_PREFIX", "{{t}}:x")
    for command in (tool.apply, tool.plan, tool.verify):
        with pytest.raises(DriftError):
            command()
    records = Records(client.raw, modules_of(tool.directory).all[0])
    with pytest.raises(RefusedError):
        records.put({b"id": b"a", b"text": b"text"}, id="a")
    monkeypatch.delenv("THE_PREFIX")
    tool.apply()


@pytest.mark.parametrize("how", [(), ("--sample", "0.5"), ("--repair",)])
def test_a_comparison_by_an_edited_module_is_drift_and_never_clean(client, tool, module, how):
    tool.apply()
    client.raw.delete(b"{t}:hash:a")
    shell = Shell(client, tool.directory)
    for edited in (KEYS.replace("{{t}}:text:", "{{t}}:tex:"), KEYS.replace("text.strip()", "text.strip() + b'x'")):
        module.write_text(edited)
        assert "edited" in shell.error("verify", "0001", *how, exit=11, code="drift")
    module.write_text(KEYS)
    assert shell("verify", "0001", exit=30)["missing"] == 1


def test_a_retry_does_not_map_by_an_edited_module(client, tool, module):
    put(client, b"{t}:text:b", b"bad one")
    tool.apply(exit=32)
    before = picture(client)
    module.write_text(KEYS.replace('b"bad"', 'b"worse"'))
    shell = Shell(client, tool.directory)
    assert "edited" in shell.error("quarantine", "retry", "0001", exit=11, code="drift")
    assert picture(client) == before


@pytest.mark.parametrize("command", ["rollback", "restore"])
def test_what_a_later_migration_builds_on_does_not_go_back_before_it(client, tool, command):
    (tool.directory / "0002_second.py").write_text(BACK_TO_TEXT)
    tool.apply(through="contract")
    for through in ("expand", "contract"):
        tool.apply("0002", through=through)
        before = picture(client)
        with pytest.raises(RefusedError, match="0002_second was applied after 0001_first"):
            getattr(tool, command)()
        assert picture(client) == before
    assert tool.rollback("0002", to="pending") == "pending"
    assert tool.rollback(to="pending") == "pending"
    assert set(picture(client)) == {TEXT}
