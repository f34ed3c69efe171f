"""Jobs leave JSON strings for hashes, so that a claim reads and writes fields and not whole documents."""

from typing import Literal

from _prefix import AE

from migrator import GUID, NOW, Index, Key, KeyMove, Keys, Mapped, Migration
from migrator.moves import Now
from migrator.records import job
from migrator.records.job.due import due_at

Hash = dict[bytes, bytes]


def forward(key: Key, text: bytes) -> Mapped[Hash]:
    return Mapped(*job.hash_from_json(key["id"], text))


def inverse(_: Key, fields: Hash) -> bytes:
    return job.json_from_hash(fields)


def queue_score(_: Key, fields: Hash) -> float | None:
    """Queued and scheduled jobs wait in the queue, at the time they are due."""
    return due_at(fields) if fields[b"Status"] in (b"100", b"200") else None


def running_score(_: Key, fields: Hash) -> Literal[Now.NOW] | None:
    # The time of the repair: with the old start time, recovery would run a live job a second time.
    return NOW if fields[b"Status"] == b"300" else None


migration = Migration(
    KeyMove(
        source=Keys(f"{AE}:job:{{id}}", type="string", id=GUID),
        target=Keys(f"{AE}:job:{{id}}", type="hash", id=GUID),
        forward=forward,
        inverse=inverse,
        losses=job.LOSSES,
        reader=lambda key, fields: job.read_hash(key["id"], fields),
        lost=job.lost,
        indexes=(
            Index(keys=Keys(f"{AE}:jobs:queue", type="zset"), member=lambda key: key["id"], score=queue_score),
            Index(keys=Keys(f"{AE}:jobs:inprogress", type="zset"), member=lambda key: key["id"], score=running_score),
        ),
    )
)
