"""Every sample record goes through a real server and comes out as it was written down."""

from __future__ import annotations

import time

import pytest

from tests.sample_expectations import FILES, JOBS, TIMESTAMPS, expected, read
from tests.support import Shell, guid, job, picture, put, seen, shipped_tool

RECORDS = [record for name in FILES for record in read(name)]
OF = {id: [r for r in RECORDS if expected(r).migration == id and expected(r).outcome != "ignored"]
      for id in (JOBS, TIMESTAMPS)}  # fmt: skip
IGNORED = [r for r in RECORDS if expected(r).outcome == "ignored"]


def here(place, key):
    """The sample's key; on a cluster in the one slot of its family."""
    if place.kind != "cluster":
        return key
    return key.replace(b"ae:", b"{ae}:", 1) if key.startswith(b"ae:") else key.replace(b"map:", b"{map}:", 1)


def load(place, records):
    for record in records:
        value = record.value
        if record.type == "string":
            value = record.text
        elif record.type == "zset":
            value = {member: float(score) for member, score in value}
        put(place, here(place, record.key), value, px=record.pttl if record.pttl > 0 else None)


@pytest.fixture
def tool(client, tmp_path):
    load(client, [r for r in RECORDS if not r.key.endswith(b"-sorted")])
    return shipped_tool(client, tmp_path)


def fields_of(place, key):
    return dict(place.raw.execute_command("HGETALL", key))


def test_every_sample_job_comes_out_as_it_is_written_down(client, tool):
    before = picture(client)
    shell = Shell(client, tool.directory)
    [planned] = shell("plan", "0001")["migrations"]
    assert planned["counts"]["estimate"] == len(OF[JOBS])
    refused = {r.key: expected(r) for r in OF[JOBS] if expected(r).outcome in ("quarantined", "foreign-type")}
    assert {r["key"].encode() for r in planned["rejected"]} == {here(client, key) for key in refused}

    tool.apply("0001", exit=32)
    listed = {r["key"].encode(): r["reason"] for r in shell("quarantine", "list", "0001")["records"]}
    assert set(listed) == {here(client, key) for key in refused}
    for key, expectation in refused.items():
        reason = expectation.reason if expectation.outcome == "quarantined" else "foreign-type"
        assert listed[here(client, key)].startswith(reason)

    shell("quarantine", "accept", "0001", "--all")
    tool.apply("0001", through="contract")
    for record in OF[JOBS]:
        key, expectation = here(client, record.key), expected(record)
        if expectation.outcome == "moved":
            assert fields_of(client, key) == expectation.fields
            assert seen(client, key).expires == before[key].expires
    ignored = {here(client, record.key) for record in IGNORED} & set(before)
    assert len(ignored) > 5
    assert {key: seen(client, key) for key in ignored} == {key: before[key] for key in ignored}
    assert tool.rollback("0001", "pending") == "pending"
    assert picture(client) == before


def test_every_sample_timestamp_comes_out_as_it_is_written_down(client, tool):
    before = picture(client)
    tool.apply("0002", through="contract")
    for record in OF[TIMESTAMPS]:
        pairs = client.raw.execute_command("ZRANGE", here(client, record.key) + b"-sorted", 0, -1, "WITHSCORES")
        flat = [word for pair in pairs for word in pair] if pairs and not isinstance(pairs[0], bytes) else pairs
        scores = dict(zip(flat[::2], map(float, flat[1::2]), strict=True))
        assert scores == expected(record).scores
    assert tool.rollback("0002", "pending") == "pending"
    assert picture(client) == before


def test_the_half_made_sorted_set_of_the_samples_is_mended_whatever_its_count_says(client, tool):
    load(client, [r for r in RECORDS if r.key.endswith(b"products:__meta:timestamps-sorted")])
    shell = Shell(client, tool.directory)
    assert "--at pending" in shell.error("plan", "0002", exit=62, code="ledger-backwards")
    shell("init", "0002", "--at", "pending", "--yes")
    found = shell("verify", "0002", exit=30)
    assert (found["missing"], found["different"], found["extra"]) == (5, 1, 1)  # four of another map
    tool.apply("0002")
    assert shell("verify", "0002")["complete"]


def test_index_memberships_are_listed_and_repaired_only_when_asked(client, tmp_path):
    ae = b"{ae}:" if client.kind == "cluster" else b"ae:"
    for number, changed in enumerate(({"status": 100}, {"status": 300}, {"status": 400}, {"status": 100})):
        put(client, ae + b"job:" + guid(number).encode(), job(guid(number), **changed))
    put(client, ae + b"jobs:queue", {guid(2).encode(): 1.0, guid(3).encode(): 1759385730.0})
    tool = shipped_tool(client, tmp_path)
    shell = Shell(client, tool.directory)
    [planned] = shell("plan", "0001")["migrations"]
    listed = {(r["repair"], r["member"][-1], r["index"].rpartition(":")[2]) for r in planned["index_repairs"]}
    assert listed == {("add", "0", "queue"), ("add", "1", "inprogress"), ("remove", "2", "queue")}
    assert planned["index_repairs_total"] == 3
    shell("apply", "0001")
    assert client.raw.execute_command("ZCARD", ae + b"jobs:queue") == 2
    shell("apply", "0001", "--repair-indexes")
    assert float(client.raw.execute_command("ZSCORE", ae + b"jobs:queue", guid(0))) == 1759385730.0
    assert client.raw.execute_command("ZSCORE", ae + b"jobs:queue", guid(2)) is None
    assert abs(float(client.raw.execute_command("ZSCORE", ae + b"jobs:inprogress", guid(1))) - time.time()) < 60
    assert "3 memberships" in [e["detail"] for e in shell("history", "0001")["events"] if "index" in e["what"]]
    shell("rollback", "0001", "--yes")
    assert client.raw.execute_command("ZCARD", ae + b"jobs:inprogress") == 1
