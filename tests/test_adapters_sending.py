"""Commands that fail on their way: what is sent again, what is not, and what the error says about the write."""

from __future__ import annotations

import itertools
import traceback
from typing import Any

import pytest
import redis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    AuthenticationError,
    MovedError,
    NoScriptError,
    OutOfMemoryError,
    ResponseError,
    TryAgainError,
)
from redis.retry import Retry

from migrator.adapters import Found, UncertainError, Written, announced, bridge, core
from migrator.adapters.announce import EVERY, Herald
from migrator.adapters.core import (
    PATIENCE,
    Call,
    DeniedError,
    Learn,
    Lost,
    Patience,
    Pause,
    Send,
    conduct,
    deliver,
    demoted,
)
from migrator.errors import LedgerBackwardsError, RefusedError, UnreachableError
from migrator.keys import slot_of
from migrator.moves import KeyMove
from migrator.moves.family import OneSlot
from migrator.moves.loader import load
from migrator.names import Names
from migrator.scripts import script
from tests.adapters.flavours import ALL_FOUR, flavour, init, module_of, tool_for
from tests.proxy import Proxy
from tests.servers import Place, Server, binary, wait_for
from tests.support import KEYS, MEMBERS, put, write

__all__ = ["flavour"]
GONE = redis.ConnectionError("gone")


def outcome(answers, *, writes, takes=0.0):
    """Delivers one call to a driver that gives these answers, each after so many seconds; what was asked of it, and the
    end."""
    now = 0.0
    call = Call(script("adapter_put"), (b"k",), (), writes)
    acts, asked, answers = deliver(call, Patience(clock=lambda: now)), [], list(answers)
    reply = None
    try:
        while True:
            act = acts.send(reply)
            asked.append(act)
            now += act.seconds if isinstance(act, Pause) else takes
            reply = (answers.pop(0) if len(answers) > 1 else answers[0]) if isinstance(act, Send) else None
    except StopIteration as done:
        return asked, done.value
    except Exception as error:
        return asked, error


def sends(asked):
    return [act for act in asked if isinstance(act, Send)]


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize(
    "refusal",
    [
        MovedError("7 127.0.0.1:1"), AskError("7 127.0.0.1:2"), NoScriptError("no"), ResponseError("LOADING x"),
        ResponseError("ERR Error running script: @user_script:7: -READONLY You can't write"),
        redis.ReadOnlyError("x"), redis.exceptions.ClusterDownError("x"), Lost(GONE, sent=False),
        Lost(ResponseError("MASTERDOWN x"), sent=False),
    ],
    ids=repr,
)  # fmt: skip
def test_what_ran_nothing_is_sent_again(refusal, writes):
    asked, end = outcome([refusal, refusal, [b"ok"]], writes=writes)
    assert end == [b"ok"]
    assert len(sends(asked)) == 3
    if type(refusal) is AskError:
        assert [act.node for act in sends(asked)] == [None, "127.0.0.1:2", "127.0.0.1:2"]
    if isinstance(refusal, NoScriptError):
        assert [act.whole for act in sends(asked)] == [False, True, True]
        assert not [act for act in asked if isinstance(act, Pause)]
    if isinstance(refusal, MovedError):
        assert Learn(refusal) in asked


def test_after_five_seconds_of_that_the_error_says_that_nothing_was_written():
    for refusal in (Lost(GONE, sent=False), ResponseError("CLUSTERDOWN x")):
        asked, end = outcome([refusal], writes=True)
        assert isinstance(end, UnreachableError)
        assert not isinstance(end, UncertainError)
        assert "nothing was written" in str(end)
        assert sum(act.seconds for act in asked if isinstance(act, Pause)) == pytest.approx(PATIENCE)


def test_the_five_seconds_are_those_of_the_clock():
    """Three attempts of 2 s each; what an attempt takes beyond the end is said too."""
    asked, end = outcome([Lost(GONE, sent=False)], writes=True, takes=1.0)  # and 1 s to look who owns which slot
    assert [len(sends(asked)), sum(act.seconds for act in asked if isinstance(act, Pause))] == [3, pytest.approx(0.03)]
    assert "in 6.0 s, and nothing was written" in str(end)


def carried_out(steps, answers):
    """What becomes of a method whose calls are answered like this; its announcement is due, and fails."""
    acts, reply = conduct(steps, Herald(Names("migrator"), "0001_first", "checksum")), None
    answers = [Lost(GONE, sent=False), *answers]
    try:
        while True:
            reply = answers.pop(0) if isinstance(acts.send(reply), Send) else None
    except StopIteration as done:
        return done.value
    except Exception as error:
        return error


def test_an_error_in_a_later_step_does_not_say_that_the_whole_call_wrote_nothing():
    def paged():
        for _ in range(3):
            yield Call(script("adapter_open"), (b"k",), (), writes=False)
            yield Call(script("adapter_members_set"), (b"k",), (), writes=True)
        return "all"

    ok, full = said([1]), ResponseError("OOM no")
    assert carried_out(paged(), [ok] * 6) == "all"
    assert "and nothing was written" in str(carried_out(paged(), [ok, full]))
    assert "and nothing was written" in str(carried_out(paged(), [ok, [b"try-again"], ok, full]))
    for error in (full, Lost(GONE, sent=True), ResponseError("NOPERM no")):
        end = carried_out(paged(), [ok, ok, ok, ok, ok, error])
        assert isinstance(end, UncertainError if isinstance(error, Lost) else RefusedError)
        assert "nothing was written" not in end.message
        assert end.message.endswith("; steps of this call that were done before it: 2")
        assert str(end) == end.message
    assert "this step wrote nothing" in str(carried_out(paged(), [ok, ok, ok, full]))


def said(*words):
    """The reply of a script that ran."""
    return [b"ok", b"expanded", b"1", *words]


@pytest.mark.parametrize(
    ("name", "did", "did_nothing"),
    [
        ("put", [said(b"written")], [said(b"unmoved"), [b"layout", b"both"]]),
        ("delete", [said(b"removed")], [said(b"none"), said(b"unmoved")]),
        ("members_set", [said([0, 1])], [said([0, 0])]),
        ("members_remove", [said([2, 1])], [said([0, 2])]),
        ("jobs_claim", [said(2, 1, None, 1, b"head")],
         [said(0, 0, None, 2, b"done", b"head"), said(0, 0, [b"head", b"old", [b"{}"], b"1"], 1, b"head"),
          said(1, 1, None, 0)]),
        ("jobs_do", [said(b"1", b"done", [b"Id", b"1"])],
         [said(b"1", b"read", b"old", [b"{}"], None), said(b"1", b"WRONG_STATUS", None), said(b"1", b"none", None)]),
        ("jobs_commit", [said(b"done")], [said(b"retry"), said(b"unmoved")]),
        ("jobs_shelve", [said(b"done")], [said(b"retry")]),
        ("jobs_delete", [said(b"done")], [said(b"none"), said(b"unmoved")]),
        ("jobs_aside", [said(1)], [said(0)]),
    ],
)  # fmt: skip
def test_steps_that_did_nothing_are_not_counted_as_done(name, did, did_nothing):
    def in_two_steps():
        yield Call(script(f"adapter_{name}"), (b"k",), (), writes=True)
        yield Call(script("adapter_jobs_claim"), (b"k",), (), writes=True)

    for reply in did_nothing:
        end = carried_out(in_two_steps(), [reply, ResponseError("OOM no")])
        assert "and nothing was written" in end.message, reply
        assert "before it" not in end.message, reply
    for reply in did:
        end = carried_out(in_two_steps(), [reply, ResponseError("OOM no")])
        assert end.message.endswith("; steps of this call that were done before it: 1"), reply


def test_a_call_names_the_layout_of_its_keys_though_another_thread_learns_of_another(tmp_path, monkeypatch):
    module = load(write(tmp_path / "m", KEYS)).find("0001")
    shared = bridge.Bridge(OneSlot(), module, bridge.choose(module, KeyMove, None), Names("migrator"))
    pairs = [shared.pair({"id": id}) for id in ("a", "b")]
    keys: dict[Any, list[tuple[bytes, ...]]] = {
        "old": [(p.old,) for p in pairs],
        "both": [(p.old, p.new) for p in pairs],
        "last": [(p.old, p.new, shared.family.retired(p)) for p in pairs],
        "new": [(p.new,) for p in pairs],
    }
    learnt = itertools.cycle(keys)
    monkeypatch.setattr(bridge.Bridge, "_layout", property(lambda _: next(learnt)), raising=False)
    seen = set()
    for _ in range(8):
        call = next(shared.ask_beside(pairs[0].old, (b"first",), pairs, "adapter_jobs_claim", (), writes=True))
        assert isinstance(call, Call)
        assert list(call.keys[2:]) == [key for names in keys[call.args[0]] for key in names]
        seen.add(call.args[0])
    assert seen == set(keys)


def test_a_lost_read_is_sent_once_more_and_a_lost_write_is_not():
    lost = Lost(GONE, sent=True)
    asked, end = outcome([lost, [b"ok"]], writes=False)
    assert (end, len(sends(asked))) == ([b"ok"], 2)
    asked, end = outcome([lost], writes=False)
    assert (type(end), len(sends(asked))) == (UnreachableError, 2)
    asked, end = outcome([lost], writes=True)
    assert (type(end), len(sends(asked))) == (UncertainError, 1)
    assert "may have happened" in str(end)


def test_refusals_that_do_not_mend_are_said_at_once():
    for refusal, kind, says in (
        (ResponseError("OOM command not allowed"), RefusedError, "nothing was written"),
        (OutOfMemoryError("command not allowed"), RefusedError, "nothing was written"),
        (ResponseError("NOPERM no"), DeniedError, "nothing was written"),
        (Lost(AuthenticationError("no"), sent=False), UnreachableError, "nothing was written"),
        (Lost(ResponseError("DB index is out of range"), sent=False), RefusedError, "nothing was written: DB index"),
        (ResponseError("ERR ACL failure in script: no"), UncertainError, "in part"),
        (ResponseError("ERR what"), UncertainError, "in part"),
    ):
        asked, end = outcome([refusal], writes=True)
        assert (type(end), len(sends(asked))) == (kind, 1)
        assert says in str(end)


def test_a_refusal_while_connecting_does_not_tell_the_password():
    echo = "unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'app' 'pw-of-app' "
    _, end = outcome([Lost(ResponseError(echo), sent=False)], writes=True)
    assert "pw-of-app" not in "".join(traceback.format_exception(end))
    assert str(end) == "Redis refuses the connection, and nothing was written: unknown command 'HELLO'"


def test_where_asking_is_refused_that_is_told_unless_the_script_ran_all_the_same():
    send = Send(Call(script("adapter_put"), (b"k",), (), writes=True), node="127.0.0.1:1")
    no, moved, failed = ResponseError("NOPERM asking"), MovedError("7 127.0.0.1:2"), ResponseError("ERR half-way")
    for last, counts in ((moved, no), (failed, failed), ([b"ok"], [b"ok"])):
        assert send.outcome([no, last]) == counts
        assert send.outcome([b"OK", last]) is last
    assert "+asking" in outcome([no], writes=True)[1].next


def test_a_slot_on_the_move_is_for_the_caller():
    assert outcome([TryAgainError("x")], writes=True)[1] == [b"try-again"]


@pytest.fixture
def through_proxy(flavour, server, tmp_path):
    tool = tool_for(server, tmp_path, KEYS)
    init(tool)
    put(server, b"{t}:text:a", b"1")
    with Proxy(server.behind.port) as proxy:
        behind = type("Behind", (), {"port": proxy.port, "client": lambda self, **o: redis.Redis(port=proxy.port, **o)})
        records = flavour.make("Records", Place("", "server", server.raw, behind()), module_of(tool))
        records.get(id="a")
        yield server, proxy, records


def test_a_reply_that_is_lost(through_proxy):
    server, proxy, records = through_proxy
    get, put_ = script("adapter_get").sha, script("adapter_put").sha
    records.put({b"text": b"1"}, id="a")
    proxy.lose_reply(lambda command: get in command)
    assert records.get(id="a").value[b"text"] == b"1"
    proxy.lose_reply(lambda command: put_ in command)
    with pytest.raises(UncertainError, match="may have happened"):
        records.put({b"text": b"2"}, id="a")
    assert server.raw.get(b"{t}:text:a") == b"2"  # it had; and the adapter works on
    assert isinstance(records.put({b"text": b"3"}, id="a"), Written)


def test_after_a_failover_that_cuts_no_connection_calls_go_where_the_address_leads_by_then(flavour, tmp_path):
    with Server(binary()) as was, Server(binary()) as now, Proxy(was.port) as proxy, was.client() as raw:
        was.command("CONFIG", "SET", "repl-diskless-sync-delay", 0)
        now.command("REPLICAOF", "127.0.0.1", was.port)
        wait_for(lambda: now.command("ROLE")[3] == b"connected", "the replica to be linked")
        tool = tool_for(Place(was.url, "server", raw, was), tmp_path, KEYS)
        init(tool)
        behind = type("Behind", (), {"port": proxy.port, "client": lambda self, **o: redis.Redis(port=proxy.port, **o)})
        records = flavour.make("Records", Place("", "server", raw, behind()), module_of(tool))
        records.put({b"text": b"1"}, id="a")
        wait_for(lambda: now.command("GET", "{t}:text:a") == b"1", "the replica to have it")
        now.command("REPLICAOF", "NO", "ONE")
        was.command("REPLICAOF", "127.0.0.1", now.port)
        proxy.target = now.port
        assert isinstance(records.put({b"text": b"2"}, id="a"), Written)
        assert now.command("GET", "{t}:text:a") == b"2"
        now.command("SET", "{t}:text:a", "3")
        assert records.get(id="a").value[b"text"] == b"3"


@pytest.mark.parametrize(
    ("answer", "leaves"),
    [
        (redis.ReadOnlyError("x"), True), (redis.exceptions.MasterDownError("x"), True),
        (ResponseError("NOREPLICAS x"), True), (ResponseError("ERR Error running script: -READONLY x"), True),
        (ResponseError("LOADING x"), False), (NoScriptError("x"), False), (b"READONLY", False), ([b"ok"], False),
    ],
    ids=repr,
)  # fmt: skip
def test_a_server_is_left_where_it_says_that_it_is_no_primary(answer, leaves):
    assert demoted(answer) is leaves


def test_members_in_pages_of_which_a_later_one_is_lost(flavour, server, tmp_path):
    tool = tool_for(server, tmp_path, MEMBERS)
    init(tool)
    with Proxy(server.behind.port) as proxy:
        behind = type("Behind", (), {"port": proxy.port, "client": lambda self, **o: redis.Redis(port=proxy.port, **o)})
        members = flavour.make("Members", Place("", "server", server.raw, behind()), module_of(tool))
        many = {b"m%d" % number: 1.0 for number in range(2500)}
        set_, remove = (script(f"adapter_members_{name}").sha for name in ("set", "remove"))
        proxy.lose_reply(lambda command: set_ in command and b"m1500" in command)
        with pytest.raises(UncertainError, match=r"may have happened.*done before it: 1$"):
            members.set_many(many, name="a")
        assert members.set_many(many, name="a").done == 2500
        proxy.lose_reply(lambda command: remove in command and b"m2300" in command)
        with pytest.raises(UncertainError, match=r"may have happened.*done before it: 2$"):
            members.remove_many(many, name="a")
        server.raw.config_set("maxmemory", 1)
        with pytest.raises(RefusedError, match="and nothing was written"):
            members.set_many(many, name="a")


@ALL_FOUR
def test_an_adapter_connects_once_for_each_of_its_attempts_and_the_application_as_often_as_it_likes(
    flavour, server, tmp_path, monkeypatch
):
    tool = tool_for(server, tmp_path, KEYS)
    init(tool)
    kind, retry = (redis, Retry) if flavour.how == "sync" else (redis.asyncio, AsyncRetry)
    tries, connect = [], kind.connection.Connection._connect

    def counted(connection):
        tries.append(connection)
        return connect(connection)

    client = flavour.client(server, retry=retry(NoBackoff(), 4))
    call(flavour, client.ping)  # the connection was there before the adapter
    records = flavour.adapt("Records", client, module_of(tool))
    records.put({b"text": b"1"}, id="a")
    send = Send(records._core.get({"id": "a"}).send(None))
    server.behind.kill()
    flavour.idle()
    monkeypatch.setattr(kind.connection.Connection, "_connect", counted)
    for _ in range(2):
        lost = call(flavour, records._driver._send, send)
        assert isinstance(lost, Lost)
        assert not lost.sent
        assert len(tries) == 1
        tries.clear()
        with pytest.raises(redis.ConnectionError):
            call(flavour, client.ping)
        assert len(tries) == 5
        tries.clear()
    other = flavour.client(server, retry=retry(NoBackoff(), 4))  # with no connection as yet
    monkeypatch.setattr(core, "Patience", lambda seconds=0.0: Patience(seconds))
    with pytest.raises(UnreachableError, match="nothing was written"):
        flavour.adapt("Records", other, module_of(tool))
    assert len(tries) == 2  # the announcement, and the look at the marker
    server.behind.start()
    with pytest.raises(LedgerBackwardsError, match="no marker"):
        records.get(id="a")


def call(flavour, function, *words):
    """Something of a client or a driver, awaited if it has to be."""
    if flavour.how == "sync":
        return function(*words)

    async def awaited():
        return await function(*words)

    return flavour._runner.run(awaited())


def test_a_flushed_script_cache_is_no_obstacle(flavour, client, tmp_path):
    tool = tool_for(client, tmp_path, KEYS)
    init(tool)
    records = flavour.make("Records", client, module_of(tool))
    for _ in range(2):
        assert isinstance(records.put({b"text": b"1"}, id="a"), Written)
        for node in getattr(client.behind, "nodes", [client.behind]):
            node.command("SCRIPT", "FLUSH")
    assert isinstance(records.get(id="a"), Found)


@ALL_FOUR
def test_connections_that_were_closed_while_idle_are_opened_anew(flavour, client, tmp_path):
    tool = tool_for(client, tmp_path, KEYS)
    init(tool)
    records = flavour.make("Records", client, module_of(tool))
    for _ in range(2):
        assert isinstance(records.put({b"text": b"1"}, id="a"), Written)
        for node in getattr(client.behind, "nodes", [client.behind]):
            node.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        flavour.idle()


def test_a_slot_that_moves_is_followed(flavour, cluster, tmp_path, monkeypatch):
    """Phases pending and expanded, before, during and after the move; absent keys make it wait, and it says so."""
    tool = tool_for(cluster, tmp_path, KEYS)
    init(tool)
    records = flavour.make("Records", cluster, module_of(tool))
    for id in ("a", "b"):
        records.put({b"text": b"1"}, id=id)
    slot, behind = slot_of(b"{t}:x"), cluster.behind
    source = behind.owner(slot)
    target = next(node for node in behind.primaries() if node is not source)
    behind.begin_move(slot, source, target)
    # In `pending` only the old key is named: it is all there, nothing waits.
    monkeypatch.setattr(bridge, "Patience", lambda: Patience(0.5))
    assert isinstance(records.put({b"text": b"2"}, id="a"), Written)
    assert records.get(id="b").value[b"text"] == b"1"
    with pytest.raises(UnreachableError, match=r"nothing was written.*on the move"):
        records.put({b"text": b"9"}, id="new")
    while behind.move_keys(slot, source, target):
        pass
    assert isinstance(records.put({b"text": b"3"}, id="a"), Written)  # ASK
    behind.finish_move(slot, source, target)
    assert isinstance(records.put({b"text": b"4"}, id="new"), Written)  # MOVED
    assert records.get(id="a").value[b"text"] == b"3"


@ALL_FOUR
def test_who_may_not_ask_is_told_so_and_later_calls_get_their_own_answers(flavour, cluster, tmp_path):
    """ASKING is refused, and the script's own answer comes after that: unread, it would answer the next call."""
    tool = tool_for(cluster, tmp_path, KEYS)
    init(tool)
    for name in (b"a", b"b"):
        put(cluster, b"{t}:text:" + name, name)
    slot, behind = slot_of(b"{t}:x"), cluster.behind
    source = behind.owner(slot)
    target = next(node for node in behind.primaries() if node is not source)
    for node in behind.nodes:
        node.command("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-asking")
    try:
        client = flavour.client(cluster, username="app", password="pw")
        records = flavour.adapt("Records", client, module_of(tool))
        behind.begin_move(slot, source, target)
        while behind.move_keys(slot, source, target):
            pass
        for attempt in (lambda: records.get(id="a"), lambda: records.put({b"text": b"9"}, id="a")):
            with pytest.raises(RefusedError, match=r"may not do that, and nothing was written.*asking") as caught:
                attempt()
            assert "+asking" in caught.value.next
        behind.finish_move(slot, source, target)
        for id in ("b", "a", "b"):
            assert call(flavour, client.get, "{t}:text:" + id) == id.encode()
            assert records.get(id=id).value == {b"id": id.encode(), b"text": id.encode()}
    finally:
        for node in behind.nodes:
            node.command("ACL", "DELUSER", "app")


def test_on_a_slot_that_moves_the_keys_of_another_phase_are_no_obstacle(flavour, cluster, tmp_path):
    """The adapter last saw `expanded` and names both keys; back in `pending`, the absent one would give TRYAGAIN."""
    tool = tool_for(cluster, tmp_path, KEYS)
    tool.apply(through="expand")
    records = flavour.make("Records", cluster, module_of(tool))
    records.put({b"text": b"1"}, id="a")
    tool.rollback(to="pending")
    slot, behind = slot_of(b"{t}:x"), cluster.behind
    source = behind.owner(slot)
    target = next(node for node in behind.primaries() if node is not source)
    behind.begin_move(slot, source, target)
    assert isinstance(records.put({b"text": b"2"}, id="a"), Written)
    behind.move_keys(slot, source, target)
    behind.finish_move(slot, source, target)


def test_adapters_announce_themselves_with_their_calls(flavour, client, tmp_path):
    tool = tool_for(client, tmp_path, KEYS)
    init(tool)
    name = Names("migrator").adapters
    client.raw.hset(name, b"long-gone", b'{"id":"0001_first","version":"0","protocol":0,"last_seen":1000}')
    client.raw.hset(name, b"junk", b"{}")
    records = flavour.make("Records", client, module_of(tool))
    now = int(client.raw.execute_command("TIME", **_on(client, name))[0]) * 1000
    (one,) = announced(client.raw.hgetall(name), now)
    assert (one.id, one.protocol, one.alive) == ("0001_first", 1, True)
    assert abs(one.last_seen - now) < 5000
    assert not announced(client.raw.hgetall(name), now + 70_000)[0].alive
    client.raw.delete(name)
    records.get(id="a")  # less than 15 s ago
    assert not client.raw.exists(name)


def test_a_new_instance_takes_some_off_that_were_not_seen_for_an_hour(every_server):
    raw, name = every_server.raw, Names("migrator").adapters

    def announce(instance):
        return raw.eval(script("adapter_announce").text, 1, name, instance, b'{"id":"0001_first"')

    def old():
        return sum(instance.startswith(b"old") for instance in raw.hkeys(name))

    now, hour = announce("first"), 3_600_000
    lately = {f"seen{number}": f'{{"last_seen":{now - hour + 60_000}}}' for number in range(3)}
    long_ago = {f"old{number}": f'{{"last_seen":{now - hour - 1}}}' for number in range(300)}
    raw.hset(name, mapping=lately | long_ago)
    announce("first")
    assert old() == 300  # only a new one looks, and at few
    announce("second")
    assert 280 <= old() <= 285
    raw.hdel(name, *list(long_ago)[10:])
    announce("third")
    assert old() == 0
    assert {one.decode() for one in raw.hkeys(name)} == {"first", "second", "third", *lately}


def _on(client, key):
    return {"target_nodes": client.raw.get_node_from_key(key)} if client.kind == "cluster" else {}


def after_announcing(herald, answer):
    """The script that a call sends once its announcement was answered like this."""

    def call():
        yield Call(script("adapter_open"), (b"k",), (), writes=False)

    acts: Any = conduct(call(), herald)
    act = next(acts)
    assert act.call.script.name == "adapter_announce"
    while not isinstance(act, Send) or act.call.script.name == "adapter_announce":
        act = acts.send(answer if isinstance(act, Send) else None)
    return act.call.script.name


def test_an_announcement_that_is_not_permitted_is_told_with_each_call_until_it_is():
    herald = Herald(Names("migrator"), "0001_first", "checksum")
    for no in ("NOPERM no", "ERR ACL failure in script: no", "ERR The user executing the script can't run this"):
        with pytest.raises(RefusedError, match="may not do that, and nothing was written") as caught:
            after_announcing(herald, ResponseError(no))
        assert "+@scripting +@hash" in caught.value.next
    assert after_announcing(herald, 1) == "adapter_open"
    assert herald.due() is None


@pytest.mark.parametrize(
    "answer", [Lost(GONE, sent=True), ResponseError("OOM no"), ResponseError("ERR what"), TryAgainError("x")], ids=repr
)
def test_an_announcement_that_fails_otherwise_does_not_matter(answer):
    herald = Herald(Names("migrator"), "0001_first", "checksum")
    assert after_announcing(herald, answer) == "adapter_open"
    assert herald.due() is None


def test_an_announcement_is_due_every_fifteen_seconds():
    now = iter((100.0, 101.0, 100 + EVERY - 0.1, 100 + EVERY, 100 + EVERY + 1))
    herald = Herald(Names("migrator"), "0001_first", "checksum", clock=lambda: next(now))
    assert [herald.due() is not None for _ in range(5)] == [True, False, False, True, False]
