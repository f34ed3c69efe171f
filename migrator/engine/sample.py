"""A look at the records of one migration: how many there are, and what the mapping makes of some drawn from all."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from migrator.client import ResponseError
from migrator.engine.backfill import PAGE_MEMBERS
from migrator.engine.batches import key_batches, page_sizes
from migrator.engine.copy import TOO_LARGE, foreign_type
from migrator.engine.redact import member_shape, shape
from migrator.engine.run import Run
from migrator.engine.session import random_keys, total_keys
from migrator.errors import Unmappable
from migrator.keys import Kind
from migrator.models import Counts, Example, RejectedRecord, Remark, show
from migrator.moves.family import Family, Pair
from migrator.moves.values import count_each, from_reply, members_from_page, read_each, scan_words

SAMPLE_RECORDS = 2000
SAMPLE_KEYS = 2000
SCAN_BUDGET = 2_000_000  # keys looked at; beyond that, counts are estimated from a random sample
EXAMPLES = 3
_SCAN_COUNT = 5000


@dataclass
class Findings:
    """What a look at one migration's records gave."""

    rejected: list[RejectedRecord] = field(default_factory=list)
    examples: list[Example] = field(default_factory=list)
    sampled: int = 0
    bytes_new: int = 0
    seconds: float = 0.0
    remarks: dict[str, Remark] = field(default_factory=dict)
    losing: int = 0

    def reject(self, key: bytes, reason: str, member: bytes | None = None) -> None:
        self.rejected.append(
            RejectedRecord(key=show(key), reason=reason, member=None if member is None else show(member))
        )


def look(run: Run) -> tuple[Counts, Findings]:
    """The counts, and what the sample gave. Reads only."""
    found = Findings()
    low = high = estimate = 0
    for family in run.families:
        counts, keys = _count(run, family)
        if family.by_member:
            counts = _count_members(run, family, counts, keys)
        started = time.monotonic()
        _sample(run, family, keys, found)
        # Reading and mapping are about a third of the work: writing and comparing follow.
        found.seconds += 3 * (time.monotonic() - started)
        estimate, low, high = estimate + counts.estimate, low + counts.low, high + counts.high
    return Counts(estimate=estimate, low=low, high=high), found


def _count(run: Run, family: Family) -> tuple[Counts, list[bytes]]:
    """How many keys parse, and up to `SAMPLE_KEYS` of them: by a scan within the budget, else from random keys."""
    keys: list[bytes] = []
    number = seen = 0
    for page in run.client.pages(family.old_glob, _SCAN_COUNT):
        mine = [key for key in page if family.has_old(key)]
        number, seen = number + len(mine), seen + _SCAN_COUNT
        # Every so many, so that the sample comes from the whole walk and not from its start.
        keys = (keys + mine)[:: 2 if len(keys) + len(mine) > 2 * SAMPLE_KEYS else 1]
        run.stop.check()
        if seen > SCAN_BUDGET:
            return _estimate(run, family), keys[:SAMPLE_KEYS]
    return Counts(estimate=number, low=number, high=number), keys[:SAMPLE_KEYS]


def _estimate(run: Run, family: Family) -> Counts:
    total = total_keys(run.client)
    drawn = random_keys(run.client, SAMPLE_KEYS)
    share = sum(map(family.has_old, drawn)) / max(1, len(drawn))
    low, high = wilson(share, len(drawn))
    return Counts(estimate=round(share * total), low=int(low * total), high=math.ceil(high * total))


def wilson(share: float, drawn: int) -> tuple[float, float]:
    """The 95 % interval of a share seen in a sample (E. B. Wilson, 1927)."""
    if not drawn:
        return 0.0, 1.0
    z = 1.96
    middle = (share + z * z / (2 * drawn)) / (1 + z * z / drawn)
    half = z / (1 + z * z / drawn) * math.sqrt(share * (1 - share) / drawn + z * z / (4 * drawn * drawn))
    return max(0.0, middle - half), min(1.0, middle + half)


def _count_members(run: Run, family: Family, keys_counted: Counts, keys: list[bytes]) -> Counts:
    kind = family.kinds["old"]
    replies = count_each(run.client, kind, keys)
    sizes = [reply for reply in replies if isinstance(reply, int)]
    members = sum(sizes)
    if keys_counted.low == keys_counted.high == len(keys):
        return Counts(estimate=members, low=members, high=members)
    mean = members / max(1, len(sizes))
    spread = 1.96 * _deviation(sizes, mean) / math.sqrt(max(1, len(sizes)))
    return Counts(
        estimate=round(mean * keys_counted.estimate),
        low=int(max(0.0, mean - spread) * keys_counted.low),
        high=math.ceil((mean + spread) * keys_counted.high),
    )


def _deviation(sizes: Sequence[int], mean: float) -> float:
    return math.sqrt(sum((size - mean) ** 2 for size in sizes) / max(1, len(sizes) - 1))


def _sample(run: Run, family: Family, keys: list[bytes], found: Findings) -> None:
    per_key = max(1, SAMPLE_RECORDS // max(1, len(keys)))
    for start in range(0, len(keys), 100):
        pairs = [pair for key in keys[start : start + 100] if (pair := family.from_old(key)) is not None]
        if family.by_member:
            for pair in pairs:
                _sample_members(run, family, pair, per_key, found)
        else:
            _sample_keys(run, family, pairs, found)
        run.stop.check()


def _sample_keys(run: Run, family: Family, pairs: Sequence[Pair], found: Findings) -> None:
    kind = family.kinds["old"]
    too_large: list[Pair] = []
    for batch in key_batches(run, family, "old", pairs, too_large):
        for pair, reply in zip(batch, read_each(run.client, kind, [pair.old for pair in batch]), strict=True):
            if isinstance(reply, ResponseError):
                _odd(run, family, pair, found)
            elif reply is not None and reply != []:
                _map_sampled(family, pair, from_reply(kind, reply), found)
    for pair in too_large:
        found.sampled += 1
        found.reject(pair.old, TOO_LARGE)


def _odd(run: Run, family: Family, pair: Pair, found: Findings) -> None:
    is_type = run.client.one(pair.old, "TYPE", pair.old).decode()
    if not (family.same_name and is_type == family.kinds["new"]) and is_type != "none":
        found.sampled += 1
        found.reject(pair.old, foreign_type(is_type))


def _map_sampled(family: Family, pair: Pair, value: object, found: Findings) -> None:
    found.sampled += 1
    try:
        if fault := family.fault(pair):
            raise Unmappable(fault)
        mapped, notes = family.map_key(pair, value)
    except Unmappable as error:
        found.reject(pair.old, error.reason)
        return
    found.bytes_new += memory_of(family.kinds["new"], mapped)
    if len(found.examples) < EXAMPLES:
        before, after = shape(family.kinds["old"], value), shape(family.kinds["new"], mapped)
        found.examples.append(Example(key=show(pair.old), before=before, after=after, notes=notes))
    _check_law(family, pair, mapped, found)


def _check_law(family: Family, pair: Pair, mapped: object, found: Findings) -> None:
    """forward(inverse(forward(x))) == forward(x), on real records."""
    if family.move.inverse is None or "law" in found.remarks:
        return
    try:
        again, _ = family.map_key(pair, family.unmap_key(pair, mapped))
        broken = again != mapped
    except Unmappable:
        broken = True
    if broken:
        found.remarks["law"] = Remark(
            code="law",
            text=f"the inverse does not lead back: forward(inverse(forward(x))) differs for {show(pair.old)}",
            next="correct the inverse, or leave it out; then only restore leads back from contract",
        )


def _sample_members(run: Run, family: Family, pair: Pair, wanted: int, found: Findings) -> None:
    kind = family.kinds["old"]
    [size] = page_sizes(run.client, kind, [pair.old])
    reply = run.client.run_one(pair.old, *scan_words(kind, pair.old, 0, size.within(min(wanted, PAGE_MEMBERS))))
    if isinstance(reply, ResponseError):
        _odd(run, family, pair, found)
        return
    for name, value in members_from_page(kind, reply[1])[:wanted]:
        found.sampled += 1
        try:
            if fault := family.fault(pair):
                raise Unmappable(fault)
            new_name, new_value = family.map_member(pair, name, value)
        except Unmappable as error:
            found.reject(pair.old, error.reason, name)
            continue
        found.bytes_new += member_memory(family.kinds["new"], new_name, new_value)
        if len(found.examples) < EXAMPLES:
            plain = "zset" in family.kinds.values()
            before = member_shape(kind, name, value, plain=plain)
            after = member_shape(family.kinds["new"], new_name, new_value, plain=plain)
            found.examples.append(Example(key=show(pair.old), before=before, after=after))


def memory_of(kind: Kind, value: object) -> int:
    """Bytes a value takes in Redis, roughly: key and dictionary entry, then compact or per-entry costs."""
    overhead = 120
    if isinstance(value, bytes):
        return overhead + len(value)
    if isinstance(value, dict):
        return overhead + sum(member_memory(kind, name, content) for name, content in value.items())
    return overhead + sum(len(item) + 16 for item in value) if isinstance(value, (list, set)) else overhead


def member_memory(kind: Kind, name: bytes, value: object) -> int:
    if kind == "zset":
        return len(name) + 96  # skip list node, dictionary entry, string header
    return len(name) + (len(value) if isinstance(value, bytes) else 0) + 32
