"""Jobs: the same answers in every phase, and what an application without an adapter sees after each."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from migrator.adapters import Code, Deleted
from migrator.errors import RefusedError, Unmappable, UsageError
from migrator.moves.loader import load
from tests.adapters.flavours import OLD_IS_TRUE, flavour, init, module_of, through, tool_for
from tests.adapters.jobs import (
    ALL_CROSSED,
    CROSSED,
    FAR,
    OTHER,
    WORKER,
    code,
    jobs,
    raw,
    tool,
)
from tests.support import KEYS, guid, job, put, shipped

__all__ = ["flavour", "jobs", "raw", "tool"]


@ALL_CROSSED
def test_a_job_lives_its_life_in_every_phase(tool, jobs, raw, monkeypatch):
    for number, stage in enumerate(through(tool, monkeypatch)):
        id = guid(1000 + number)
        made = jobs.create(id, "send-report", '{"n":1}', headers='{"Host":["api"]}', max_retries=2)
        assert (made.job.id, made.job.status, made.job.version, made.job.payload) == (id, 100, 1, b'{"n":1}'), stage
        assert jobs.get(id) == made, stage
        assert raw.queue() == {id.encode(): pytest.approx(datetime.now(UTC).timestamp(), abs=60)}, stage
        assert code(jobs.create(id, "again")) is Code.JOB_CREATE_FAILED, stage
        assert code(jobs.claim_job(guid(7), WORKER)) is Code.JOB_NOT_FOUND, stage
        raw.settled(id, stage)

        taken = jobs.claim(WORKER)
        assert (taken.job.id, taken.job.status, taken.job.version, taken.job.worker) == (id, 300, 2, WORKER), stage
        assert (raw.queue(), raw.running()) == ({}, {id.encode(): taken.job.started_at_unix}), stage
        assert code(jobs.claim(OTHER)) is Code.JOB_NOT_CLAIMED, stage
        assert code(jobs.claim_job(id, OTHER)) is Code.ALREADY_ASSIGNED, stage
        assert code(jobs.claim_job(id, WORKER)) is Code.ALREADY_ASSIGNED, stage
        raw.settled(id, stage)

        again = jobs.fail(taken.job, "no route", code="NET", retry_in=3600)
        assert (again.job.status, again.job.retry_count, again.job.worker) == (200, 1, None), stage
        assert json.loads(again.job.error)["message"] == "no route", stage
        assert raw.queue()[id.encode()] == pytest.approx(datetime.now(UTC).timestamp() + 3600, abs=60), stage
        assert raw.running() == {}, stage
        assert code(jobs.claim_job(id, OTHER)) is Code.RETRY_DELAY, stage
        assert code(jobs.claim(OTHER)) is Code.JOB_NOT_CLAIMED, stage
        assert code(jobs.complete(taken.job)) is Code.WRONG_STATUS, stage
        raw.settled(id, stage)

        now = jobs.update(id, {"RetryDelayUntil": "", "Name": "other"}, version=3)
        assert (now.job.name, now.job.version) == ("other", 4), stage
        assert code(jobs.update(id, {"Name": "late"}, version=3)) is Code.VERSION_CONFLICT, stage
        taken = jobs.claim_many(OTHER, 5)[0]
        done = jobs.complete(taken, '{"rows":1}')
        assert (done.job.status, done.job.result, done.job.version) == (400, b'{"rows":1}', 6), stage
        assert (raw.queue(), raw.running()) == ({}, {}), stage
        assert code(jobs.cancel(id)) is Code.WRONG_STATUS, stage
        assert jobs.get(id) == done, stage
        raw.settled(id, stage)
        assert jobs.set_aside() == [], stage
        if number % 2:
            assert jobs.delete(id) == Deleted(), stage
            assert code(jobs.delete(id)) is Code.JOB_NOT_FOUND, stage
            assert code(jobs.get(id)) is Code.JOB_NOT_FOUND, stage
            assert (raw.text(id), raw.hash(id)) == (None, None), stage
    # Each came through every change of phase, and the versions with it.
    for number in range(0, 11, 2):
        found = jobs.get(guid(1000 + number)).job
        assert (found.status, found.version, found.result) == (400, 6, b'{"rows":1}')


@CROSSED
def test_an_application_without_an_adapter_finds_its_json_as_it_wrote_it(client, tool, jobs, raw, monkeypatch):
    for number, stage in enumerate(through(tool, monkeypatch)):
        if stage not in OLD_IS_TRUE:
            continue
        id = guid(number + 1)
        before = job(id, status=100, big=12345678901234567890, headers={"é": [None]}).replace(b',"big"', b' , "big"')
        put(client, raw.key(id), before)
        raw.raw.pexpireat(raw.key(id), FAR)
        raw.raw.zadd(raw.queue_key, {id: 5})
        taken = jobs.claim(WORKER).job
        text = raw.text(id)
        started = raw.json(id)["startedAt"]
        want = before
        for was, is_now in ((b'"status":100', b'"status":300'),
                            (b'"workerId":null', b'"workerId":"%s"' % WORKER.encode()),
                            (b'"startedAt":null', b'"startedAt":"%s"' % started.encode()),
                            (b'"lastUpdatedAt":"2025-10-02T06:15:30.12+00:00"',
                             b'"lastUpdatedAt":"%s"' % started.encode())):  # fmt: skip
            assert was in want
            want = want.replace(was, is_now)
        assert text == want[:-1] + b',"version":1}', stage
        assert "." not in started or not started.split("+")[0].endswith("0"), "a fraction is trimmed, as in JSON"
        assert raw.expiries(id) == {FAR}, stage
        jobs.complete(taken, "é")
        seen = raw.json(id)
        assert (seen["status"], seen["result"], seen["isCanceled"], seen["version"]) == (400, "é", False, 2), stage
        assert seen["startedAtUnix"] == taken.started_at_unix, stage
        assert b' , "big":12345678901234567890' in (raw.text(id) or b""), stage
        assert raw.expiries(id) == {FAR}, stage
        jobs.delete(id)


@CROSSED
def test_the_spelling_of_each_era_stays(client, jobs, raw):
    pascal = {
        name[:1].upper() + name[1:]: value for name, value in json.loads(job(guid(1), status="Scheduled")).items()
    }
    pascal["Exception"] = pascal.pop("Error")
    put(client, raw.key(guid(1)), json.dumps(pascal).encode())
    put(client, raw.key(guid(2)), job(guid(2), status="queued", version=7, startedAtUnix=None))
    for id in (guid(1), guid(2)):
        taken = jobs.claim_job(id, WORKER).job
        jobs.fail(taken, "no «route»", code="NET")
    first, second = (raw.json(id) for id in (guid(1), guid(2)))
    assert (first["Status"], first["Exception"], first["Version"]) == ("Failed", "no «route»", 2)
    assert [*first] == [*pascal, "Version", "StartedAtUnix"]
    assert (second["status"], second["version"], second["error"]["code"]) == ("failed", 9, "NET")
    assert second["startedAtUnix"] == jobs.get(guid(2)).job.started_at_unix
    assert jobs.cancel(guid(2)).code is Code.WRONG_STATUS
    canceled = jobs.create(guid(3), "n").job
    assert jobs.cancel(guid(3), version=canceled.version).job.status == 600
    assert raw.json(guid(3))["isCanceled"] is True


@CROSSED
def test_a_job_without_a_version_counts_as_version_0_until_it_is_written(tool, jobs, raw, monkeypatch):
    ids = [guid(number) for number in range(1, 12)]
    for id in ids:
        raw.lay(id, None)
    for id, stage in zip(ids, through(tool, monkeypatch), strict=True):
        assert jobs.get(id).job.version == 0, stage
        assert b"Version" not in jobs.get(id).job.fields, stage
        assert code(jobs.update(id, {"Name": "x"}, version=1)) is Code.VERSION_CONFLICT, stage
        assert jobs.update(id, {"Name": "x"}, version=0).job.version == 1, stage
    for id in ids:
        assert raw.json(id)["version"] == 1


@CROSSED
def test_a_rollback_resets_neither_version_nor_start(tool, jobs, raw):
    tool.apply(through="contract")
    jobs.create(guid(1), "n")
    for version in range(1, 6):
        jobs.update(guid(1), {"Name": f"n{version}"}, version=version)
    done = jobs.complete(jobs.claim(WORKER).job).job
    running = jobs.create(guid(2), "n") and jobs.claim(WORKER).job
    for to in ("switched", "expanded", "pending"):
        tool.rollback(to=to)
        assert jobs.get(guid(1)).job.fields == done.fields, to
        assert jobs.get(guid(2)).job.fields == running.fields, to
    assert raw.json(guid(1))["version"] == done.version == 8
    assert code(jobs.update(guid(1), {"Name": "late"}, version=1)) is Code.VERSION_CONFLICT


@CROSSED
def test_expiries_stay_through_every_operation(client, tool, jobs, raw, monkeypatch):
    for number, stage in enumerate(through(tool, monkeypatch)):
        id = guid(number + 1)
        jobs.create(id, "n")
        for key in (raw.key(id), raw.staged(id)):
            client.raw.pexpireat(key, FAR)
        jobs.complete(jobs.claim(WORKER).job)
        assert raw.expiries(id) == {FAR}, stage
        jobs.update(id, {"Status": "100", "WorkerId": ""}, version=3)
        assert raw.expiries(id) == {FAR}, stage
        jobs.delete(id)


@CROSSED
def test_what_only_the_old_shape_has_after_the_switch_is_unmoved(client, tool, jobs, raw, monkeypatch):
    for stage in through(tool, monkeypatch):
        if stage in OLD_IS_TRUE or stage == "swept":
            continue
        for number in range(12):  # more than are named in one call
            raw.lay(guid(number + 1), number)
        later = guid(99)
        jobs.create(later, "n")
        for answer in (jobs.get(guid(1)), jobs.create(guid(1), "n"), jobs.claim_job(guid(1), WORKER),
                       jobs.update(guid(1), {"Name": "x"}, version=0), jobs.cancel(guid(1)),
                       jobs.delete(guid(1))):  # fmt: skip
            assert code(answer) is Code.UNMOVED, stage
        taken = jobs.claim(WORKER)
        assert taken.job.id == later, stage
        assert code(jobs.claim(WORKER)) is Code.JOB_NOT_CLAIMED, stage
        assert raw.queue() == {guid(number + 1).encode(): number for number in range(12)}, stage
        assert jobs.set_aside() == [], stage
        jobs.delete(later)
        for number in range(12):
            assert raw.text(guid(number + 1)) == job(guid(number + 1), status=100), stage
            client.raw.delete(raw.key(guid(number + 1)))
        client.raw.delete(raw.queue_key)


@CROSSED
def test_keys_of_another_type_are_refused_before_the_first_write(client, tool, jobs, raw, monkeypatch):
    for number, stage in enumerate(through(tool, monkeypatch)):
        id = guid(number + 1)
        held = jobs.claim(WORKER).job if jobs.create(id, "n") else None
        calls = ((jobs.create, guid(99), "n"), (jobs.complete, held), (jobs.delete, id), (jobs.cancel, id))
        for key in (raw.queue_key, raw.running_key, raw.aside_key):
            kept = client.raw.dump(key)
            client.raw.delete(key)
            put(client, key, [b"a list"])
            for call, *words in calls:
                with pytest.raises(RefusedError, match="is a list"):
                    call(*words)
            client.raw.delete(key)
            if kept:
                client.raw.restore(key, 0, kept)
        assert jobs.get(id).job == held, stage
        assert code(jobs.get(guid(99))) is Code.JOB_NOT_FOUND, stage
        jobs.delete(id)
        for key in (raw.queue_key, raw.running_key):
            client.raw.delete(key)
            put(client, key, [b"a list"])
            with pytest.raises(RefusedError, match="is a list"):
                jobs.claim(WORKER)
            client.raw.delete(key)


@CROSSED
def test_what_is_no_job_is_told_and_left_alone(client, jobs, raw):
    put(client, raw.key(guid(1)), b'{"id":"cut')
    put(client, raw.key(guid(2)), {b"Id": guid(2).encode(), b"Status": b"0x64"})
    for number in (1, 2):
        for answer in (jobs.get(guid(number)), jobs.cancel(guid(number)), jobs.claim_job(guid(number), WORKER)):
            assert code(answer) is Code.DESERIALIZATION_ERROR, number
    assert raw.text(guid(1)) == b'{"id":"cut'
    assert raw.hash(guid(2)) == {b"Id": guid(2).encode(), b"Status": b"0x64"}


@CROSSED
def test_bad_input_is_refused_with_the_next_step(jobs, raw):
    made = jobs.create(guid(1), "n").job
    nobody = "00000000-0000-0000-0000-000000000000"
    for call in (
        lambda: jobs.get("x"), lambda: jobs.get(nobody), lambda: jobs.claim("me"), lambda: jobs.create(b"\xff", "n"),
        lambda: jobs.create(guid(2), "n", due=datetime(2030, 1, 1)),  # noqa: DTZ001
        lambda: jobs.update(guid(1), {}, version=1), lambda: jobs.update(guid(1), {"Version": "9"}, version=1),
        lambda: jobs.complete(made), lambda: jobs.claim_many(WORKER, 0), lambda: jobs.recover(-1),
    ):  # fmt: skip
        with pytest.raises(UsageError):
            call()
    for call in (
        lambda: jobs.create(guid(2), "n", headers="secret"), lambda: jobs.create(guid(2), "n", max_retries=2**40),
        lambda: jobs.update(guid(1), {"Status": "150"}, version=1),
        lambda: jobs.update(guid(1), {"RetryDelayUntil": "secret"}, version=1),
        lambda: jobs.update(guid(1), {"Payload": b"\xff secret"}, version=1),
    ):  # fmt: skip
        with pytest.raises(Unmappable) as caught:
            call()
        assert "secret" not in str(caught.value)
    assert jobs.get(guid(1)).job == made
    assert "secret" not in repr(jobs.update(guid(1), {"Payload": "secret"}, version=1))
    assert raw.queue().keys() == {guid(1).encode()}


def test_a_move_that_is_not_of_jobs_is_refused(flavour, client, tmp_path):
    tool = tool_for(client, tmp_path, KEYS)
    init(tool)
    with pytest.raises(UsageError, match="no move of jobs") as caught:
        flavour.make("Jobs", client, module_of(tool))
    assert "Records" in caught.value.next


def test_jobs_and_indexes_in_several_slots_are_refused_with_names_that_would_work(flavour, cluster, tmp_path):
    module = load(shipped(tmp_path / "m")).find("0001")
    with pytest.raises(UsageError, match="not in one") as caught:
        flavour.make("Jobs", cluster, module)
    assert "{{jobs}}:ae:jobs:queue" in caught.value.next
