"""What leaves the process: the JSON of the command line, as frozen models."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

# What a comparison finds wrong with a record: that its shapes differ, or that its mapping refuses it.
Fault = Literal["missing", "extra", "different", "ttl_drift", "unreadable"]
DIFFERENCES: tuple[Fault, ...] = ("missing", "extra", "different", "ttl_drift")
FAULTS: tuple[Fault, ...] = (*DIFFERENCES, "unreadable")


class Frozen(BaseModel):
    """What is written whole and read whole; a field that a newer version added is passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class _Result(Frozen):
    pass


class TallyResult(_Result):
    scanned: int = 0
    moved: int = 0
    unchanged: int = 0
    quarantined: int = 0
    vanished: int = 0
    ignored: int = 0


class FamilyStatus(_Result):
    """One family: a source key of a MemberMove, or the template of a KeyMove. `counts_equal` is a smoke test only.

    `counted` is `now`, or, where there are too many keys to look at each: `seen`, by the last apply, or `estimate`,
    from random keys. `counted_at` is ISO 8601, UTC, of what was seen.
    """

    name: str
    source_key: str
    target_key: str
    source_type: str
    target_type: str
    source_count: int
    target_count: int
    counts_equal: bool
    is_migrated: bool
    is_complete: bool
    counted: str = "now"
    counted_at: str | None = None


class QuarantineCounts(_Result):
    open: int = 0
    accepted: int = 0


class AdapterStatus(_Result):
    """One instance of an application with an adapter. `last_seen` is ISO 8601, UTC; `alive` within the last 60 s."""

    instance: str
    version: str
    protocol: int
    last_seen: str
    seconds_ago: int
    alive: bool


class Drift(_Result):
    """What the last comparison of an apply found, in this epoch. `at` is ISO 8601, UTC."""

    at: str
    compared: int
    missing: int
    extra: int
    different: int
    ttl_drift: int
    unreadable: int


class MigrationStatus(_Result):
    id: str
    phase: str
    families: tuple[FamilyStatus, ...] = ()
    tally: TallyResult = TallyResult()
    waiting_for: str | None = None
    paused: str | None = None
    owner: str | None = None
    quarantine: QuarantineCounts = QuarantineCounts()
    drift: Drift | None = None
    adapters: tuple[AdapterStatus, ...] = ()
    next: str | None = None
    progress: float | None = None
    rate_per_second: float | None = None
    eta_seconds: float | None = None


class StatusResult(_Result):
    migrations: tuple[MigrationStatus, ...]


class Stopped(_Result):
    id: str
    phase: str
    exit: int
    reason: str
    next: str = ""


class ApplyResult(_Result):
    migrations: tuple[MigrationStatus, ...]
    stopped: Stopped | None = None
    notes: tuple[str, ...] = ()


class Counts(_Result):
    """How many records there are; `low` and `high` bound it at 95 %, and equal it where all were counted."""

    estimate: int
    low: int
    high: int


class RejectedRecord(_Result):
    key: str
    reason: str
    member: str | None = None


class Example(_Result):
    key: str
    before: str
    after: str
    notes: tuple[str, ...] = ()


class Remark(_Result):
    """A risk or a refusal: a stable code and a sentence."""

    code: str
    text: str
    next: str = ""


class IndexRepair(_Result):
    """A member an index lacks, or has too much. `age_seconds` is how long the record has been due or running."""

    index: str
    member: str
    repair: str
    age_seconds: int | None = None


class MigrationPlan(_Result):
    id: str
    from_: str = Field(serialization_alias="from", validation_alias=AliasChoices("from", "from_"))
    to: str
    done: bool = False  # it has come as far already; `contracted` counts once the old shape is removed
    counts: Counts
    rejected: tuple[RejectedRecord, ...] = ()
    examples: tuple[Example, ...] = ()
    memory_bytes: int = 0
    seconds: float = 0.0
    losses: tuple[str, ...] = ()
    index_repairs: tuple[IndexRepair, ...] = ()
    index_repairs_total: int = 0
    risks: tuple[Remark, ...] = ()
    refused: tuple[Remark, ...] = ()
    waits_for: str | None = None
    sampled: int = 0
    checksum: str = ""
    epoch: int = 0


class PlanResult(_Result):
    migrations: tuple[MigrationPlan, ...]
    snapshot: SnapshotReport | None = None
    namespace: str = ""
    through: str = ""


class DifferenceResult(_Result):
    key: str
    member: str | None
    verdict: str
    why: str


class VerifyResult(_Result):
    id: str
    complete: bool
    compared: int
    missing: int
    extra: int
    different: int
    ttl_drift: int
    unreadable: int
    examples: tuple[DifferenceResult, ...] = ()
    repaired: int = 0
    next: str = ""
    stopped: Stopped | None = None

    @property
    def differs(self) -> bool:
        """Whether shapes differ; records that cannot be mapped are no difference."""
        return any(getattr(self, fault) for fault in DIFFERENCES)


class QuarantinedRecord(_Result):
    key: str
    key_b64: str
    member: str | None
    member_b64: str | None
    reason: str
    accepted: bool


class QuarantineResult(_Result):
    id: str
    records: tuple[QuarantinedRecord, ...]


class EventResult(_Result):
    at: str
    id: str
    who: str
    what: str
    detail: str


class HistoryResult(_Result):
    events: tuple[EventResult, ...]


class LockResult(_Result):
    held: bool
    owner: str | None = None
    token: str | None = None
    fence: int | None = None
    expires_in_seconds: float | None = None


class InitResult(_Result):
    migrations: tuple[MigrationStatus, ...]
    notes: tuple[str, ...] = ()


class NewResult(_Result):
    module: str
    test: str


class FamilyTaken(_Result):
    """Of a sample: how many keys of a family there were, and how many were taken."""

    family: str
    seen: int
    taken: int


class Taken(_Result):
    """A snapshot that was taken. `vanished` keys went before they were read, `changed` ones were changed meanwhile and
    read again; `sample` says in words what was left out."""

    file: str
    bytes: int
    records: int
    vanished: int
    changed: int
    databases: tuple[int, ...]
    redacted: bool
    sample: str | None
    families: tuple[FamilyTaken, ...] = ()
    notes: tuple[str, ...] = ()


class FamilyInfo(_Result):
    """The keys of one family and type. `bytes` are those of the values; `largest` is the largest key's."""

    family: str
    type: str
    keys: int
    members: int
    bytes: int
    with_expiry: int
    field_expiries: int
    largest: int


class KeyInfo(_Result):
    db: int
    key: str
    type: str
    members: int
    bytes: int


class SnapshotInfo(_Result):
    """What is in a snapshot. What a file does not say of itself is null. Times are ISO 8601, UTC.

    Of an RDB file `format` and `reader` say what it is and who read it, `expired` how many records had their time
    behind them and are not counted, `not_visible` how many the reader could not see; `notes` are sentences.
    """

    file: str
    bytes: int
    lines: int
    records: int
    format: str = "snapshot"
    reader: str | None = None
    taken_at: str | None = None
    server: str | None = None
    namespace: str | None = None
    redacted: bool | None = None
    sample: str | None = None
    databases: dict[str, int]
    first_expiry: str | None
    last_expiry: str | None
    families: tuple[FamilyInfo, ...]
    largest: tuple[KeyInfo, ...]
    expired: int = 0
    not_visible: int = 0
    notes: tuple[str, ...] = ()


class Loaded(_Result):
    """What loading a snapshot did. `expired` records had their time behind them and were not loaded; `not_visible` ones
    the reader of the file could not see; `notes` are sentences."""

    records: int
    expired: int = 0
    not_visible: int = 0
    notes: tuple[str, ...] = ()


class ReasonCount(_Result):
    """How many records share a reason, and one of them."""

    reason: str
    count: int
    key: str
    member: str | None = None


class TriedMemory(_Result):
    """Bytes of the server, by INFO: with the snapshot alone, with both shapes, with the new one alone."""

    before: int = 0
    both: int = 0
    after: int = 0


class TriedMigration(_Result):
    """What one migration did on a snapshot. `reached` is the phase it came to, `compared` how many records the last
    comparison looked at. `unjudged` records the inverse gives back otherwise, within losses declared in words."""

    id: str
    reached: str
    records: int = 0
    mapped: int = 0
    rejected: int = 0
    reasons: tuple[ReasonCount, ...] = ()
    noted: tuple[ReasonCount, ...] = ()
    compared: int = 0
    unjudged: int = 0
    differing: int = 0
    differences: tuple[DifferenceResult, ...] = ()
    memory: TriedMemory = TriedMemory()


class SnapshotReport(_Result):
    """What running migrations on a snapshot showed. `seconds` is by stage. `elsewhere` are differences in keys that no
    migration is about. `expected` says that the report is the expected one, `unexpected` how it is not. `exit` is what
    the command exits with."""

    file: str
    server: str
    loaded: Loaded
    migrations: tuple[TriedMigration, ...] = ()
    elsewhere: tuple[DifferenceResult, ...] = ()
    differing: int = 0
    rejected: int = 0
    stopped: tuple[Stopped, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: dict[str, float] = Field(default_factory=dict)
    expected: bool = False
    unexpected: tuple[str, ...] = ()
    exit: int = 0


class RehearsalReport(_Result):
    """What a rehearsal came to. `kills` is by command, `writes` what writers did by kind, `unwritten` says of which
    records no writer could write any. `compared` records were looked at at the end: `lost` are gone, `extra` nobody
    wrote, `different` are otherwise than they have to be. `exit` is what the command exits with."""

    file: str
    server: str
    loaded: Loaded
    commands: tuple[str, ...] = ()
    processes: int = 0
    kills: dict[str, int] = Field(default_factory=dict)
    failovers: int = 0
    writers: int = 0
    writes: dict[str, int] = Field(default_factory=dict)
    unwritten: tuple[str, ...] = ()
    compared: int = 0
    lost: int = 0
    extra: int = 0
    different: int = 0
    rejected: int = 0
    differences: tuple[DifferenceResult, ...] = ()
    stopped: Stopped | None = None
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    exit: int = 0


class ErrorBody(_Result):
    code: str
    exit: int
    message: str
    next: str


class ErrorResult(_Result):
    error: ErrorBody


def iso(unix_ms: int) -> str:
    """`2026-01-31T12:00:00.000+00:00`."""
    return datetime.fromtimestamp(unix_ms / 1000, UTC).isoformat(timespec="milliseconds")


def number_of(count: int, noun: str) -> str:
    """`1 record`, `2 records`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def show(raw: bytes) -> str:
    """Bytes as text that parses back: `\\xNN` for what is not printable UTF-8, and for the backslash."""
    out: list[str] = []
    for char in raw.decode("utf-8", "surrogateescape"):
        if char == "\\":
            out.append("\\\\")
        elif "\udc80" <= char <= "\udcff":
            out.append(f"\\x{ord(char) - 0xDC00:02x}")
        elif char.isprintable():
            out.append(char)
        else:
            out.extend(f"\\x{byte:02x}" for byte in char.encode())
    return "".join(out)


_ESCAPED = re.compile("x([0-9a-fA-F]{2})")


def unshow(text: str) -> bytes:
    """The bytes that `show` printed."""
    out, rest = bytearray(), text
    while rest:
        head, slash, tail = rest.partition("\\")
        out += head.encode("utf-8", "surrogateescape")
        if not slash:
            break
        if escaped := _ESCAPED.match(tail):
            out += bytes.fromhex(escaped[1])
            rest = tail[3:]
        else:
            out += tail[:1].encode() or b"\\"
            rest = tail[1:]
    return bytes(out)
