"""What adapters refuse, when, and with which next step; and that nothing is written then."""

from __future__ import annotations

import subprocess
import sys

import pytest

from migrator import adapters
from migrator.errors import LedgerBackwardsError, RefusedError, UsageError
from migrator.moves.loader import load
from migrator.names import Names
from tests.adapters.flavours import ALL_FOUR, flavour, init, module_of, stop_at_contracted, through, tool_for
from tests.servers import Place, Server, binary
from tests.support import KEYS, MEMBERS, SAME_NAME, all_keys, modules_of, picture, put, write

__all__ = ["flavour"]
WRITES = (
    lambda r: r.put({b"text": b"x"}, id="x"),
    lambda r: r.delete(id="a"),
    lambda r: r.get(id="a"),
)


def test_importing_adapters_loads_no_command_line():
    heavy = ("typer", "rich", "tqdm", "tabulate", "pydantic")
    code = f"import sys, migrator.adapters; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_client_that_decodes_or_is_of_the_other_kind_is_refused(flavour, client, tmp_path):
    module = load(write(tmp_path / "m", KEYS)).find("0001")
    wrong = flavour.client(client, decode_responses=True)
    with pytest.raises(UsageError, match="decode_responses"):
        flavour.adapt("Records", wrong, module)
    right = flavour.client(client)
    other = adapters.AsyncRecords if flavour.how == "sync" else adapters.Records
    with pytest.raises(UsageError, match="not a client") as caught:
        other(right, module)
    assert ("without" if flavour.how == "sync" else "for") + " asyncio there are" in caught.value.next


@pytest.mark.parametrize(
    ("name", "source", "says"),
    [
        ("Members", KEYS, "0 moves of the kind MemberMove"),
        ("Records", MEMBERS, "0 moves of the kind KeyMove"),
        ("Records", KEYS.replace("    inverse=lambda key, fields: fields[b\"text\"],\n", ""), "no inverse"),
    ],
)  # fmt: skip
def test_a_move_that_does_not_fit_is_refused(flavour, client, tmp_path, name, source, says):
    module = load(write(tmp_path / "m", source)).find("0001")
    with pytest.raises(UsageError, match=says) as caught:
        flavour.make(name, client, module)
    assert caught.value.next


def test_one_of_several_moves_is_named_by_its_source(flavour, client, tmp_path):
    two = (
        KEYS.replace("migration = Migration(", "move = (")
        + """
migration = Migration(move, KeyMove(source=Keys("{{t}}:more:{id}", type="string"),
    target=Keys("{{t}}:MORE:{id}", type="hash"), forward=forward, inverse=lambda key, fields: fields[b"text"]))
"""
    )
    tool = tool_for(client, tmp_path, two)
    init(tool)
    with pytest.raises(UsageError, match="2 moves") as caught:
        flavour.make("Records", client, module_of(tool))
    assert "{{t}}:more:{id}" in caught.value.next
    records = flavour.make("Records", client, module_of(tool), source="{{t}}:more:{id}")
    records.put({b"text": b"x"}, id="x")
    assert client.raw.get(b"{t}:more:x") == b"x"


def test_templates_that_are_never_in_one_slot_are_refused_with_names_that_would_work(flavour, cluster, tmp_path):
    apart = KEYS.replace("{{t}}:hash:", "{{u}}:hash:")
    module = load(write(tmp_path / "m", apart)).find("0001")
    with pytest.raises(UsageError, match="never in one") as caught:
        flavour.make("Records", cluster, module)
    assert "{{t}}:{{t}}:text:{id}" in caught.value.next


def test_keys_that_happen_to_be_in_two_slots_are_refused_when_they_come(flavour, cluster, tmp_path):
    loose = KEYS.replace("{{t}}:", "")
    tool = tool_for(cluster, tmp_path, loose)
    init(tool)
    records = flavour.make("Records", cluster, module_of(tool))
    with pytest.raises(UsageError, match="cross-slot"):
        records.put({b"text": b"x"}, id="x")
    records.put({b"text": b"x"}, id="{x}")  # its own tag puts both in one slot
    assert records.get(id="{x}").value == {b"id": b"{x}", b"text": b"x"}


def test_without_a_marker_nothing_is_done(flavour, client, tmp_path):
    module = load(write(tmp_path / "m", KEYS)).find("0001")
    with pytest.raises(LedgerBackwardsError, match="no marker") as caught:
        flavour.make("Records", client, module)
    assert "migrator init" in caught.value.next
    tool = tool_for(client, tmp_path, KEYS)
    init(tool)
    records = flavour.make("Records", client, module_of(tool))
    put(client, b"{t}:text:a", b"1")
    client.raw.delete(next(iter(_markers(client))))
    _refused(client, records, LedgerBackwardsError, "no marker")


def _markers(client):
    return [key for key in all_keys(client) if key.startswith(b"migrator:marker:0001")]


def _refused(client, records, error, says):
    before = picture(client)
    for call in WRITES:
        with pytest.raises(error, match=says) as caught:
            call(records)
        assert "nothing was written" in str(caught.value)
        assert caught.value.next
    assert picture(client) == before


def test_a_marker_of_a_newer_tool_is_refused(flavour, client, tmp_path):
    tool = tool_for(client, tmp_path, KEYS)
    init(tool)
    records = flavour.make("Records", client, module_of(tool))
    put(client, b"{t}:text:a", b"1")
    (marker,) = _markers(client)
    for field, value, was in ((b"phase", b"draining-back", b"pending"), (b"format", b"2", b"1")):
        client.raw.hset(marker, field, value)
        _refused(client, records, RefusedError, "newer migrator")
        with pytest.raises(RefusedError, match="newer migrator"):
            flavour.make("Records", client, module_of(tool))
        client.raw.hset(marker, field, was)
    assert records.get(id="a").value[b"text"] == b"1"


def test_closed_refuses(flavour, client, tmp_path):
    tool = tool_for(client, tmp_path, KEYS)
    put(client, b"{t}:text:a", b"1")
    tool.apply(through="switch")
    records = flavour.make("Records", client, module_of(tool))
    with tool.run() as run:
        run.change("closed")
    _refused(client, records, RefusedError, "closed")


@pytest.mark.parametrize("source", [KEYS, SAME_NAME], ids=["key", "swap"])
def test_another_mapping_is_refused_from_expanded_to_the_end_of_the_sweep(
    flavour, client, tmp_path, source, monkeypatch
):
    tool = tool_for(client, tmp_path, source)
    init(tool)
    put(client, b"{t}:text:a", b"1")
    (tmp_path / "other").mkdir()
    write(tmp_path / "other", source + "\n# reformatted\n")
    records = flavour.make("Records", client, modules_of(tmp_path / "other").find("0001"))
    seen = []
    for stage in through(tool, monkeypatch):
        if stage in ("pending", "swept"):
            assert records.put({b"text": b"1"}, id="a")
            assert records.get(id="a").value[b"text"] == b"1"
        else:
            _refused(client, records, RefusedError, "another version of the module")
        seen.append(stage)
        flavour.make("Records", client, modules_of(tmp_path / "other").find("0001"))  # may start all the same
        client.raw.delete(Names("migrator").adapters)  # else `expand` would be refused: it would be left behind
    assert len(seen) == 11


def test_an_adapter_that_may_not_run_scripts_is_refused(flavour, tmp_path):
    acl = "user default on nopass ~* &* +@all\nuser app on >pw ~* +@all -@scripting"
    with Server(binary(), acl=acl) as server, server.client() as raw:
        place = Place(server.url, "server", raw, server)
        tool = tool_for(place, tmp_path, KEYS)
        init(tool)
        with pytest.raises(RefusedError, match="this user may not") as caught:
            flavour.adapt("Records", flavour.client(place, username="app", password="pw"), module_of(tool))
        assert "+@scripting" in caught.value.next


def test_a_database_that_is_not_there_is_refused(flavour, server, tmp_path):
    tool = tool_for(server, tmp_path, KEYS)
    init(tool)
    with pytest.raises(RefusedError, match="refuses the connection, and nothing was written: ") as caught:
        flavour.adapt("Records", flavour.client(server, db=99), module_of(tool))
    assert "the database" in caught.value.next


@ALL_FOUR
def test_a_refusal_while_a_connection_is_opened_anew_is_no_outcome_of_a_write(flavour, client, tmp_path):
    tool = tool_for(client, tmp_path, KEYS)
    init(tool)
    nodes = getattr(client.behind, "nodes", [client.behind])
    for node in nodes:
        node.command("ACL", "SETUSER", "app", "on", ">pw-of-app", "~*", "&*", "+@all")
    try:
        login = {"username": "app", "password": "pw-of-app", "client_name": "application"}
        records = flavour.adapt("Records", flavour.client(client, **login), module_of(tool))
        records.put({b"text": b"1"}, id="a")
        for node in nodes:
            node.command("ACL", "SETUSER", "app", "-client")
            node.command("CLIENT", "KILL", "USER", "app")
        flavour.idle()
        with pytest.raises(RefusedError, match="refuses the connection, and nothing was written: ") as caught:
            records.put({b"text": b"2"}, id="a")
        assert "pw-of-app" not in str(caught.value)
        for node in nodes:
            node.command("ACL", "SETUSER", "app", "+client")
        assert records.get(id="a").value[b"text"] == b"1"
    finally:
        for node in nodes:
            node.command("ACL", "DELUSER", "app")


def test_in_contracted_the_first_touch_takes_the_old_record_out_of_the_way(flavour, client, tmp_path, monkeypatch):
    """Deleted in `contracted`, before the sweep came by: it stays deleted, and the sweep has nothing to complain of."""
    tool = tool_for(client, tmp_path, KEYS)
    for name in (b"a", b"b", b"c"):
        put(client, b"{t}:text:" + name, b"1")
    tool.apply(through="switch")
    records = flavour.make("Records", client, module_of(tool))
    stop_at_contracted(tool, monkeypatch)
    records.delete(id="a")
    records.put({b"text": b"2"}, id="b")
    assert type(records.get(id="a")) is adapters.Missing
    tool.apply(through="contract")
    assert type(records.get(id="a")) is adapters.Missing
    assert not client.raw.exists(b"{t}:text:a", b"{t}:text:b", b"{t}:text:c")
    assert tool.rollback(to="switched") == "switched"
    assert client.raw.get(b"{t}:text:b") == b"2"
    assert client.raw.get(b"{t}:text:c") == b"1"
    assert not client.raw.exists(b"{t}:text:a")
