"""What becomes of each sample record, written by hand from its `expect` text and independent of the code.

A record whose key and `expect` text are not in the tables raises KeyError: nothing new passes in silence.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

SAMPLES = Path(__file__).parent / "data" / "samples"
JOB_FILES = (
    "ae_string_bad.ndjson",
    "ae_string_eraA.ndjson",
    "ae_string_eraB.ndjson",
    "ae_string_eraC.ndjson",
    "ae_string_huge.ndjson.gz",
)
FILES = (*JOB_FILES, "cachemanager.ndjson")

JOBS = "0001"
TIMESTAMPS = "0002"

Outcome = Literal["moved", "quarantined", "foreign-type", "ignored"]


@dataclass(frozen=True)
class Record:
    """One key as a sample file has it."""

    key: bytes
    type: str
    pttl: int
    value: Any
    note: str
    expect: str

    @property
    def text(self) -> bytes:
        """The value of a string key."""
        if isinstance(self.value, dict):
            return base64.b64decode(self.value["b64"])
        return str(self.value).encode()


@dataclass(frozen=True)
class Expectation:
    """What a migration makes of one record.

    `outcome`: moved; quarantined (the mapping refuses it, for `reason`); foreign-type (quarantined before any
    mapping); ignored (the key is none of this migration's).
    """

    migration: str
    outcome: Outcome
    reason: str = ""
    fields: Mapping[bytes, bytes] = field(default_factory=dict)
    scores: Mapping[bytes, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read(name: str) -> list[Record]:
    path = SAMPLES / name
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    records = [json.loads(line) for line in text.decode().splitlines()]
    return [Record(r["key"].encode(), r["type"], r["pttl"], r["value"], r["note"], r["expect"]) for r in records]


_JOB_KEY = re.compile(rb"ae:job:([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})")
_TIMESTAMPS_KEY = re.compile(rb"map:[^:]+:__meta:timestamps")


def expected(record: Record) -> Expectation:
    """What is to become of this record, in the one migration it concerns."""
    if record.key.startswith(b"map:") or record.key.startswith(b"bucket:"):
        if _TIMESTAMPS_KEY.fullmatch(record.key) is None or record.type != "hash":
            return _NOT_TIMESTAMPS[record.key.decode(), record.expect]
        return Expectation(TIMESTAMPS, "moved", scores=_SCORES[record.key.decode(), record.expect])
    job = _JOB_KEY.fullmatch(record.key)
    if job is None:
        return _NOT_JOBS[record.key.decode(), record.expect]
    return _JOBS[job[1][:8].decode(), record.expect]


def _job(job_id: bytes, *notes: str, **changed: bytes) -> Expectation:
    """A moved job: the record most samples share, and the fields in which this one differs."""
    fields = {
        b"Id": job_id,
        b"Name": b"send-report",
        b"Status": b"100",
        b"Headers": b'{"Host":["api.example.org"],"Content-Type":["application/json"],"X-Async-Request-Id":["%s"]}'
        % job_id,
        b"RouteParams": b"{}",
        b"QueryParams": b"[]",
        b"Payload": b'{"reportId":17,"to":"ops@example.org"}',
        b"Result": b"",
        b"Error": b"",
        b"RetryCount": b"0",
        b"MaxRetries": b"3",
        b"RetryDelayUntil": b"",
        b"WorkerId": b"",
        b"CreatedAt": b"2025-10-02T06:15:30.1234567+00:00",
        b"StartedAt": b"",
        b"CompletedAt": b"",
        b"LastUpdatedAt": b"2025-10-02T06:15:30.1234567+00:00",
    }
    fields |= {name.encode(): value for name, value in changed.items()}
    return Expectation(JOBS, "moved", fields=fields, notes=notes)


def _refused(reason: str) -> Expectation:
    return Expectation(JOBS, "quarantined", reason=reason)


_TIMEOUT = (
    rb'{"code":"TIMEOUTEXCEPTION","message":"upstream timed out after 30 s","exception":{"type":"TimeoutException",'
    rb'"message":"The operation has timed out.","stackTrace":"   at Demo.Handler.HandleAsync(AsyncContext`1 ctx) in '
    rb'/src/Handler.cs:line 41\n   at Demo.Runner.Run()","innerException":{"type":"SocketException",'
    rb'"message":"Connection refused <10.0.0.5:443> & ' + b"'retry'" + b'","stackTrace":null}}}'
)
_NO_ROWS = (
    rb'{"code":"UNKNOWN","message":"Exception Type: System.InvalidOperationException\r\nMessage: No rows for <id>\r\n'
    rb"Source: Demo\r\nTarget Site: HandleAsync\r\n"
    rb'--------------------------------------------------","exception":null}'
)
_SECRET_HEADERS = (
    b'{"Authorization":["Bearer not-a-real-token"],"Cookie":["sid=not-real; theme=dark"],"Accept":["*/*"],'
    b'"X-Null":[null],"x-null":["dup by case"]}'
)
_ROWS = '{"rows": [' + ", ".join(f'"row {n:06} äöü"' for n in range(60_000)) + "]}"
_HEADERS = "{" + ",".join(f'"X-H-{n:04}":["vvvvvvvvvvvvvvvvvvvv"]' for n in range(5_000)) + "}"

_IN_PROGRESS = (
    "ok + StartedAtUnix=1759385735; missing from ae:jobs:inprogress: listed, "
    "and with --repair-indexes added with the time of the repair"
)

_JOBS: dict[tuple[str, str], Expectation] = {
    # era A
    ("7f3c16da", "ok"): _job(b"7f3c16da-bd36-5d74-a505-cabe97fead41"),
    (
        "357b85a8",
        'ok: Error must become a JSON object {code:UNKNOWN,message:text} or "", never raw text',
    ): _job(
        b"357b85a8-d639-577a-af50-ff6c68abbd4a",
        Status=b"500",
        Error=_NO_ROWS,
        RetryCount=b"3",
        CreatedAt=b"2025-09-27T11:59:59.0000001+00:00",
        StartedAt=b"2025-09-27T12:00:01.5000000+00:00",
        CompletedAt=b"2025-09-27T12:00:09.0000000+00:00",
        LastUpdatedAt=b"2025-09-27T12:00:09.0000000+00:00",
    ),
    # era B
    ("e76aafd0", "ok"): _job(b"e76aafd0-febf-5b88-94fc-ee813823071f"),
    ("1917c35e", "ok + add to ae:jobs:queue score 1759385731.1234567 (orphan repair)"): _job(
        b"1917c35e-4032-5faa-9305-b7a64b8a2809",
        Status=b"200",
        RetryCount=b"1",
        RetryDelayUntil=b"2025-10-02T06:15:31.1234567Z",
    ),
    # era C
    ("9c9de22a", "ok"): _job(
        b"9c9de22a-8592-5efb-8e04-6702eac7e63c",
        Status=b"500",
        Error=_TIMEOUT,
        RetryCount=b"3",
        StartedAt=b"2025-10-02T06:15:31.1000000+00:00",
        CompletedAt=b"2025-10-02T06:15:32.2500000+00:00",
        LastUpdatedAt=b"2025-10-02T06:15:32.2500000+00:00",
    ),
    ("af963ad8", "ok: CreatedAt -> 2025-10-02T06:15:30.0000000+00:00"): _job(
        b"af963ad8-4ce9-53a0-8e6a-adfebafbe82f",
        CreatedAt=b"2025-10-02T06:15:30.0000000+00:00",
        LastUpdatedAt=b"2025-10-02T06:15:30.1200000+00:00",
    ),
    ("b6fb9015", "ok"): _job(
        b"b6fb9015-bffd-5485-8ef4-e6febe6633dd",
        Status=b"400",
        Result=b'{"rows":3,"html":"<b>ok</b>"}',
        StartedAt=b"2025-10-02T06:15:31.0000000+00:00",
        CompletedAt=b"2025-10-02T06:15:33.7654321+00:00",
    ),
    ("9eb31457", "ok, lossy: report it"): _job(b"9eb31457-0724-5d14-a07d-a38fa8d546da", "empty result", Status=b"400"),
    (
        "b02f19e4",
        _IN_PROGRESS,
    ): _job(
        b"b02f19e4-2d2e-5061-af1f-32a7efb33aa4",
        Status=b"300",
        WorkerId=b"e60431c3-88b0-52db-b9b5-ea29a448c2c9",
        StartedAt=b"2025-10-02T06:15:35.9999999+00:00",
        StartedAtUnix=b"1759385735",
    ),
    ("389dd349", "ok: RetryDelayUntil 2025-10-02T06:20:00.5000000Z, queue score 1759386000.5"): _job(
        b"389dd349-ea97-54bd-90c5-c25619c62f83",
        Status=b"200",
        RetryCount=b"2",
        RetryDelayUntil=b"2025-10-02T06:20:00.5000000Z",
        CreatedAt=b"2025-10-02T11:45:30.1234567+05:30",
    ),
    ("d8577f44", "ok, flagged"): _job(
        b"d8577f44-6eb6-5c9c-bf35-617282622f9e",
        "RetryCount above MaxRetries",
        Status=b"500",
        Error=_TIMEOUT,
        RetryCount=b"4",
        MaxRetries=b"0",
    ),
    ("b4e5d3c7", "ok, flagged (never clamp silently)"): _job(
        b"b4e5d3c7-cf02-5f48-8a5e-59f166f524ca",
        "negative retry number",
        "RetryCount above MaxRetries",
        RetryCount=b"-1",
        MaxRetries=b"-3",
    ),
    ("80ed347e", "ok"): _job(
        b"80ed347e-4727-52c3-b183-1b1c2d75e22a", Status=b"600", CompletedAt=b"2025-10-02T07:00:00.0000001+00:00"
    ),
    ("3d9466f3", "ok; tool output must redact Authorization/Cookie/X-Api-Key"): _job(
        b"3d9466f3-07bf-5079-99e0-9f86183ba155", Headers=_SECRET_HEADERS
    ),
    ("081c2e3c", "ok: byte-for-byte"): _job(
        b"081c2e3c-2de6-5fdf-8b89-841df28ed60f", Payload=b'line1\nline2\t"q" \\ \x00 end \xf0\x9f\x98\x80'
    ),
    ("66b8f22e", "ok: digits unchanged"): _job(
        b"66b8f22e-876d-59fa-8eee-8bf8cb981c35", RouteParams=b'{"big":12345678901234567890,"id":9007199254740993}'
    ),
    # huge
    ("96134edb", "ok"): _job(b"96134edb-b9b0-5170-a488-f3abfc4d510d", Payload=_ROWS.encode()),
    ("4244be59", "ok"): _job(b"4244be59-24ec-516c-aabf-40b1011b3cd4", Headers=_HEADERS.encode()),
    # bad
    ("a5c87dba", "quarantine"): _refused("not valid JSON"),
    ("0b6d311f", "quarantine"): _refused("not a JSON object"),
    ("663787e5", "quarantine"): _refused("not a JSON object"),
    ("7a32bac8", "quarantine"): _refused("empty value"),
    ("df43fc26", "quarantine"): _refused("not UTF-8"),
    ("d7037049", "quarantine (or flagged), never re-key silently"): _refused("Id differs from the key"),
    ("eb31672c", "ok: Status=100"): _job(b"eb31672c-9d84-535d-bef3-8b7d1e54d2d5"),
    ("33fd5e46", "quarantine or flagged"): _refused("undefined status"),
    ("74cce7c0", "ok: MaxRetries=3"): _job(b"74cce7c0-09e6-5b76-9593-afa91035e161", "MaxRetries absent: default taken"),
    ("2d947590", "flagged: do not invent; take LastUpdatedAt or quarantine"): _refused("CreatedAt absent"),
    ("5a9ffa48", "flagged: Status=300"): _job(
        b"5a9ffa48-79b8-5894-8771-421b0ef9db3d", "duplicate property", Status=b"300"
    ),
    ("DF918AFB", "flagged: unreachable key"): _job(b"df918afb-3959-58bb-b2a1-e8ce587c1da0", "upper-case key"),
    ("caebcf6e", "ok: TTL kept"): _job(b"caebcf6e-480a-53ef-a9f5-e9cdaa39cdc6"),
    ("29ee13d4", "quarantine"): Expectation(JOBS, "foreign-type"),
}

_NOT_JOBS = {
    ("ae:job:claim:eb6aa844-0f00-5921-b0b1-77ae84505d81", "skip: not a job"): Expectation(JOBS, "ignored"),
}

# The nearest doubles, told by hand: ticks of this size step by 128, so ...560 and ...688 are neighbours.
_SCORES: dict[tuple[str, str], Mapping[bytes, float]] = {
    ("map:products:__meta:timestamps", "ok"): {
        b"1": 638960564401234560.0,
        b"2": 638960564411234560.0,
        b"42": 638960564421234560.0,
    },
    ("map:user-sessions:__meta:timestamps", "order/uniqueness lost in doubles; keep exact ticks in the hash"): {
        b'"session-1"': 638960564401234560.0,
        b'"s\\u00E9ance \\u0022x\\u0022"': 638960564401234560.0,
        b'"session-3"': 638960564401234688.0,
        b'"session-4"': 638960564401234688.0,
    },
}

_IGNORED = Expectation(TIMESTAMPS, "ignored")
_NOT_TIMESTAMPS = {
    ("map:products", "ok"): _IGNORED,
    (
        "map:products:__meta:timestamps-sorted",
        "incomplete: missing [2], wrong [42], ghost [77]",
    ): _IGNORED,
    ("map:products:__meta:versions", "ok"): _IGNORED,
    ("map:products:__meta:timestamps:last-batch", "ok"): _IGNORED,
    ("map:user-sessions", "ok"): _IGNORED,
    ("map:user-sessions:__meta:ttl-config", "ok"): _IGNORED,
    ("map:user-sessions:access-time", "ok"): _IGNORED,
    ("map:empty:__meta:timestamps-sorted", "report"): _IGNORED,
    ("bucket:mails", "ok"): _IGNORED,
}
