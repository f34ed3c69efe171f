"""What the demo migrates: jobs as three eras of a library wrote them, maps with timestamps, and some of it broken.

All invented, and the same in every run.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

Words = tuple[bytes | str | int | float, ...]

JOBS_PER_ERA = 80
MAPS = {"products": 90, "users": 140, "carts": 60}
TTL_MS = 6 * 3_600_000
USERS = b"map:users:__meta:timestamps"
USERS_NEW = b"map:users:__meta:timestamps-sorted"
BROKEN_FIELD = b'"user-0017"'
MENDED_TICKS = b"638949780000000000"
LATE_FIELD, LATE_TICKS = b'"late"', b"638949816000000128"

_UNIX_EPOCH_TICKS = 621_355_968_000_000_000
_NAMES = ("send-report", "resize-image", "Rechnung prüfen", "sync-inventory", "notify <ops>")
# Number and how often: 100 queued, 200 scheduled, 300 in progress, 400 completed, 500 failed, 600 canceled.
_STATUSES = (100,) * 3 + (200,) * 2 + (300,) + (400,) * 10 + (500,) * 3 + (600,)
_START = datetime(2025, 9, 27, 8, tzinfo=UTC)

Job = dict[str, object]


def records() -> Iterator[Words]:
    """The commands that fill an empty database."""
    dice = random.Random(17)
    yield from _jobs(dice)
    yield from _misfits(dice)
    for name, size in MAPS.items():
        yield from _map(dice, name, size)
    yield ("HSET", USERS, BROKEN_FIELD, "yesterday")
    yield ("PEXPIRE", USERS, TTL_MS)


def _jobs(dice: random.Random) -> Iterator[Words]:
    for era in "ABC":
        for _ in range(JOBS_PER_ERA):
            job = _job(dice)
            yield ("SET", f"ae:job:{job['id']}", _written(job, era), *(("PX", TTL_MS) if dice.random() < 0.1 else ()))
            created = datetime.fromisoformat(str(job["createdAt"])).timestamp()
            if job["status"] in (100, 200) and dice.random() < 0.9:  # a lost place in the queue is the usual damage
                yield ("ZADD", "ae:jobs:queue", created + (60 if job["status"] == 200 else 0), str(job["id"]))
            elif job["status"] == 300:
                yield ("ZADD", "ae:jobs:inprogress", int(created) + 2, str(job["id"]))


def _misfits(dice: random.Random) -> Iterator[Words]:
    """Records that no rule can carry over, and a key that only looks like a job."""
    cut, undefined, listed = _job(dice), {**_job(dice), "status": 700}, _job(dice)
    yield ("SET", f"ae:job:{cut['id']}", _written(cut, "C")[:211])
    yield ("SET", f"ae:job:{undefined['id']}", _written(undefined, "C"))
    yield ("RPUSH", f"ae:job:{listed['id']}", "created", "started")
    yield ("SET", f"ae:job:claim:{cut['id']}", "worker-3")


def _map(dice: random.Random, name: str, size: int) -> Iterator[Words]:
    for number in range(size):
        field = str(number) if name == "products" else f'"{name[:-1]}-{number:04}"'
        moment = _START + timedelta(seconds=dice.randrange(9 * 86_400))
        ticks = int(moment.timestamp()) * 10_000_000 + _UNIX_EPOCH_TICKS + dice.randrange(10_000_000)
        yield ("HSET", f"map:{name}", field, _compact({"updateCount": dice.randrange(9)}))
        yield ("HSET", f"map:{name}:__meta:timestamps", field, ticks)


def _job(dice: random.Random) -> Job:
    status = dice.choice(_STATUSES)
    created = _START + timedelta(seconds=dice.randrange(6 * 86_400))
    started, ended = created + timedelta(seconds=2), created + timedelta(seconds=2 + dice.randrange(1, 40))
    return {
        "id": str(uuid.UUID(int=dice.getrandbits(128), version=4)),
        "name": dice.choice(_NAMES),
        "status": status,
        "headers": {"Host": ["api.example.org"], "X-Trace": [None]},
        "routeParams": {"tenant": str(dice.randrange(1, 40))},
        "queryParams": [{"key": "page", "value": ["1"]}],
        "payload": _compact({"reportId": dice.randrange(10**6), "to": "ops@example.org"}),
        "result": _compact({"rows": dice.randrange(500)}) if status == 400 else None,
        "error": "Timeout\r\n  at Handler.Run()" if status == 500 else None,
        "retryCount": 3 if status == 500 else 0,
        "maxRetries": 3,
        "retryDelayUntil": _date(dice, created + timedelta(seconds=60))[:-6] + "Z" if status == 200 else None,
        "workerId": str(uuid.UUID(int=dice.getrandbits(128), version=4)) if status == 300 else None,
        "createdAt": _date(dice, created),
        "startedAt": _date(dice, started) if status >= 300 else None,
        "completedAt": _date(dice, ended) if status >= 400 else None,
        "lastUpdatedAt": _date(dice, ended if status >= 400 else created),
        "isCanceled": status == 600,
    }


def _written(job: Job, era: str) -> str:
    """The JSON of a job as the library of that era wrote it."""
    if era == "C":
        text = job["error"]
        error = text and {"code": "TIMEOUT", "message": text, "exception": None}
        return _compact({**job, "error": error})
    old = {("exception" if name == "error" else name): value for name, value in job.items()}
    if era == "B":
        return _compact(old)
    pascal = {name[0].upper() + name[1:]: value for name, value in old.items()}
    pascal["QueryParams"] = [{"Key": "page", "Value": ["1"]}]
    text = json.dumps(pascal, separators=(",", ":")).replace('\\"', "\\u0022")
    return text.replace("<", "\\u003C").replace(">", "\\u003E")


def _date(dice: random.Random, moment: datetime) -> str:
    """None to seven digits of a second, trailing zeros dropped, as .NET writes them."""
    fraction = f"{dice.randrange(10_000_000):07}".rstrip("0") if dice.random() < 0.9 else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{'.' if fraction else ''}{fraction}+00:00"


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
