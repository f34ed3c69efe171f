"""The verdict on a record, from one script that reads both shapes of it: so what differs really differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from migrator.client import Arg, Command, Reply, checked
from migrator.engine.batches import batched, by_slot, sizes, whole
from migrator.engine.copy import FIELD_TTL, TOO_LARGE, breathe, foreign_type
from migrator.engine.run import Run
from migrator.errors import Unmappable
from migrator.models import Fault
from migrator.moves.family import COLLISION, Family, Member, Pair
from migrator.moves.values import ask_words, digest, from_items, member_from_wire
from migrator.scripts import script

Verdict = Literal["equal", "gone", "ignored", "accepted"] | Fault
GROWN = b"too-large"
HAS_GROWN = "the new record is too large to be read whole"
# Two ms are no drift: before Redis 7 an expiry can be read only that exactly.
TTL_TOLERANCE_MS = 2
# What copying refuses although the mapping would do it: such a record is unreadable, not missing.
_LASTING = ("field-ttl", "target-type", "cross-slot")


@dataclass(frozen=True, slots=True)
class Difference:
    """One record that differs; `why` never repeats a value. `member` is named as in the old shape, `new` as in the
    new one."""

    pair: Pair
    member: bytes | None
    verdict: Verdict
    why: str
    new: bytes | None = None


# Keys.


def judge_keys(run: Run, family: Family, pairs: Sequence[Pair]) -> list[Difference]:
    """The verdict on each record, from one read of both shapes."""
    return [_judge(run, family, *three) for three in read_pairs(run, family, pairs)]


def _judge(run: Run, family: Family, pair: Pair, old: Reply, new: Reply) -> Difference:
    return Difference(pair, None, *_judge_key(run, family, pair, old, new))


def read_pairs(run: Run, family: Family, pairs: Sequence[Pair]) -> Iterator[tuple[Pair, Reply, Reply]]:
    """Of each record [type, expiry in unix ms, items, 1 if a field has a TTL] of the old shape and of the new; for its
    type GROWN, and no items, of one that is too large to be read whole.

    They may be many, or were weighed by one shape only; a script is given as many as BATCH_BYTES of both allows.
    """
    for batch in batched(zip(pairs, _weights(run, family, pairs), strict=True)):
        yield from _read_pairs(run, family, batch)


def _weights(run: Run, family: Family, pairs: Sequence[Pair]) -> list[int]:
    if len(pairs) < 2:
        return [0] * len(pairs)
    olds = sizes(run.client, family.kinds["old"], [pair.old for pair in pairs])
    news = sizes(run.client, family.kinds["new"], [pair.new for pair in pairs])
    return [old + new for old, new in zip(olds, news, strict=True)]


def _read_pairs(run: Run, family: Family, pairs: Sequence[Pair]) -> Iterator[tuple[Pair, Reply, Reply]]:
    together: list[Pair] = []
    for pair in pairs:
        if run.client.slot(pair.new) == run.client.slot(pair.old):
            together.append(pair)
        else:  # beyond one script; it is judged as missing there
            yield pair, [b"cross-slot", -1, [], 0], [b"none", -2, [], 0]
    groups = by_slot(run.client, together, lambda pair: pair.old)
    args = (family.kinds["old"], family.kinds["new"], *whole())
    commands: list[Command] = []
    for slot, group in groups.items():
        keys = [run.markers.key(slot), *(name for pair in group for name in (pair.old, pair.new))]
        commands.append(Command.eval(script("pair"), keys, args))
    for group, reply in zip(groups.values(), run.client.run(commands), strict=True):
        sides = checked(reply)[1:]
        yield from zip(group, sides[::2], sides[1::2], strict=True)


def _judge_key(run: Run, family: Family, pair: Pair, old: Reply, new: Reply) -> tuple[Verdict, str]:
    old_type, old_expiry, old_items = old[0].decode(), old[1], old[2]
    new_type, new_expiry, new_items = new[0].decode(), new[1], new[2]
    if old_type == "none":
        return _judge_alone(run, family, pair, new_type, new_items)
    if family.same_name and old_type == family.kinds["new"]:
        # It has the new shape under the final name already; a staged one beside it would be lost at contract.
        return ("different", "two new records") if new_type != "none" else ("equal", "")
    if old[0] == GROWN:
        return unreadable(run, pair, None, TOO_LARGE, "too-large")
    if old_type != family.kinds["old"]:
        why = family.fault(pair) if old_type == "cross-slot" else foreign_type(old_type)
        return unreadable(run, pair, None, why, old_type)
    try:
        if fault := family.fault(pair) or (FIELD_TTL if old[3] else ""):
            raise Unmappable(fault)
        wanted, _ = family.map_key(pair, from_items(family.kinds["old"], old_items))
    except Unmappable as error:
        return unreadable(run, pair, None, error.reason, digest(old_items))
    if new[0] == GROWN:  # no mapping makes that
        return _refused_back(run, pair, "too-large") or ("different", HAS_GROWN)
    if new_type != family.kinds["new"]:
        if not wanted and new_type == "none":
            return "equal", ""
        return _missing(run, pair, None, digest(old_items))
    if wanted != from_items(family.kinds["new"], new_items):
        found: tuple[Verdict, str] = "different", "the new record is not what the mapping makes of the old one"
        return _refused_back(run, pair, digest(new_items)) or found
    return ("ttl_drift", "the expiry differs") if drifts(old_expiry, new_expiry) else ("equal", "")


def _judge_alone(run: Run, family: Family, pair: Pair, new_type: str, new_items: Reply) -> tuple[Verdict, str]:
    """A new shape without an old one. Of another type it is nothing this migration made: it is somebody's own."""
    if new_type == "none":
        return "gone", ""
    if new_type.encode() == GROWN:
        return judge_grown_extra(run, pair)
    if new_type == family.kinds["new"]:
        return judge_extra(run, pair, digest(new_items))
    return "ignored", none_of_ours(new_type)


def judge_extra(run: Run, pair: Pair, value_digest: str) -> tuple[Verdict, str]:
    """A new record without an old one. Once accepted as that it is no extra in any phase: an extra is removed."""
    return _refused_back(run, pair, value_digest, alone=True) or ("extra", "there is no old record")


def judge_grown_extra(run: Run, pair: Pair) -> tuple[Verdict, str]:
    """The same for one that is too large to be read."""
    return _refused_back(run, pair, "too-large", alone=True) or ("extra", HAS_GROWN)


def _refused_back(run: Run, pair: Pair, value_digest: str, *, alone: bool = False) -> tuple[Verdict, str] | None:
    """A record may be one that no inverse carries back; None if it is not. Beside an old one, where the new shape is
    the truth."""
    known = run.quarantine.get(pair)
    if known is None or not (alone or run.entry.phase in ("reverting", "switched")):
        return None
    value_digest = known.digest if known.reason == TOO_LARGE else value_digest
    if run.quarantine.is_accepted(pair, None, value_digest):
        return "accepted", ""
    return unreadable(run, pair, None, known.reason, value_digest) if run.entry.phase == "reverting" else None


def none_of_ours(is_type: str) -> str:
    return f"a {is_type} under the target template, and there is no old record"


def _missing(run: Run, pair: Pair, member: bytes | None, value_digest: str) -> tuple[Verdict, str]:
    known = run.quarantine.get(pair, member)
    if known is not None and known.reason.startswith(_LASTING):
        return unreadable(run, pair, member, known.reason, value_digest)
    return "missing", "there is no new record"


def unreadable(run: Run, pair: Pair, member: bytes | None, why: str, value_digest: str) -> tuple[Verdict, str]:
    return ("accepted", "") if run.quarantine.reject(pair, member, why, value_digest) else ("unreadable", why)


def drifts(old: int, new: int) -> bool:
    return (old == -1) != (new == -1) or abs(old - new) > TTL_TOLERANCE_MS


# Members.


def judge_members(run: Run, family: Family, pair: Pair, members: Sequence[Member]) -> list[Difference]:
    """The verdict on each member, from one read of both shapes. The values given serve to know the new names: where it
    is another one by now, the member is read again."""
    found: list[Difference] = []
    todo: Sequence[Member] = members
    while todo:
        judged, todo = _judge_read(run, family, pair, todo)
        found += judged
        if todo:
            breathe(run)
    return found


def _judge_read(
    run: Run, family: Family, pair: Pair, members: Sequence[Member]
) -> tuple[list[Difference], list[Member]]:
    mapped = _map_members(family, pair, members)
    names = [name for name, _ in members]
    new_names = [name if isinstance(to, Unmappable) else to[0] for name, to in zip(names, mapped, strict=True)]
    old, new, old_values, new_values, mortal = _read_both(run, family, pair, names, new_names)
    found: list[Difference] = []
    again: list[Member] = []
    unlike: dict[bytes, Member] = {}  # old members that differ, with the new ones that are there
    for i, ((name, value), raw, got) in enumerate(zip(members, old_values, new_values, strict=True)):
        verdict: Verdict
        if raw is None:
            verdict, why = ("extra", "there is no old member") if got is not None else ("gone", "")
        elif i < len(mortal) and mortal[i]:
            verdict, why = unreadable(run, pair, name, FIELD_TTL, digest([raw]))
        else:
            now = (name, member_from_wire(family.kinds["old"], raw))
            to = mapped[i] if now[1] == value else _map_members(family, pair, [now])[0]
            if not isinstance(to, Unmappable) and to[0] != new_names[i]:
                again.append(now)
                continue
            verdict, why = _judge_member(run, family, pair, (name, raw), to, got)
            if verdict == "different":
                unlike[name] = new_names[i], member_from_wire(family.kinds["new"], got)
        found.append(Difference(pair, name, verdict, why, new_names[i]))
    if any(d.verdict == "equal" for d in found) and drifts(old[1], new[1]):
        found.append(Difference(pair, None, "ttl_drift", "the expiry differs"))
    if unlike and family.by_inverse:
        collided = _collided(run, family, pair, unlike)
        found = [collided.get(d.member, d) if d.member is not None else d for d in found]
    return found, again


def _collided(run: Run, family: Family, pair: Pair, unlike: Mapping[bytes, Member]) -> dict[bytes, Difference]:
    """Those whose new member comes from another old one that is there too, both read in one script: to copy one would
    be to lose the other."""
    rivals = family.origins(pair, list(unlike.values()))
    _, _, olds, _ = read_members(run, family, pair, [*unlike, *rivals], ())
    own, others = olds[: len(unlike)], olds[len(unlike) :]
    found: dict[bytes, Difference] = {}
    for (name, (new, _)), raw, rival, other in zip(unlike.items(), own, rivals, others, strict=True):
        if rival == name or raw is None or other is None:
            continue
        if _becomes(family, pair, (name, raw), new) and _becomes(family, pair, (rival, other), new):
            found[name] = Difference(pair, name, *unreadable(run, pair, name, COLLISION, digest([raw])), new)
    return found


def _becomes(family: Family, pair: Pair, old: tuple[bytes, bytes], new: bytes) -> bool:
    [to] = _map_members(family, pair, [(old[0], member_from_wire(family.kinds["old"], old[1]))])
    return not isinstance(to, Unmappable) and to[0] == new


def _map_members(family: Family, pair: Pair, members: Sequence[Member]) -> list[Member | Unmappable]:
    """What each becomes, or why it cannot."""
    fault = family.fault(pair)
    found: list[Member | Unmappable] = []
    for name, value in members:
        try:
            found.append(Unmappable(fault) if fault else family.map_member(pair, name, value))
        except Unmappable as error:
            found.append(error)
    return found


def _judge_member(
    run: Run,
    family: Family,
    pair: Pair,
    old: tuple[bytes, bytes],
    wanted: Member | Unmappable,
    got: bytes | None,
) -> tuple[Verdict, str]:
    name, raw = old
    if isinstance(wanted, Unmappable):
        return unreadable(run, pair, name, wanted.reason, digest([raw]))
    if got is None:
        return _missing(run, pair, name, digest([raw]))
    if member_from_wire(family.kinds["new"], got) != wanted[1]:
        return "different", "the new member is not what the mapping makes of the old one"
    return "equal", ""


def read_old(run: Run, family: Family, pair: Pair, names: Sequence[bytes]) -> list[Member]:
    """The old members of these names that are there."""
    _, _, values, _ = read_members(run, family, pair, names, ())
    kind = family.kinds["old"]
    return [(n, member_from_wire(kind, v)) for n, v in zip(names, values, strict=True) if v is not None]


def read_members(
    run: Run, family: Family, pair: Pair, names: Sequence[bytes], new_names: Sequence[bytes]
) -> tuple[Reply, Reply, list[bytes | None], list[bytes | None]]:
    return _read_both(run, family, pair, names, new_names)[:4]


def _read_both(
    run: Run, family: Family, pair: Pair, names: Sequence[bytes], new_names: Sequence[bytes]
) -> tuple[Reply, Reply, list[bytes | None], list[bytes | None], list[int]]:
    if family.fault(pair).startswith("cross-slot"):
        kind = family.kinds["old"]
        values = checked(run.client.one(pair.old, *ask_words(kind, pair.old, names))) if names else []
        if kind == "set":
            values = [b"" if there else None for there in values]
        return [b"none", -2], [b"none", -2], values, [None] * len(new_names), []
    keys = [run.markers.key_for(pair.old), pair.old, pair.new]
    args: list[Arg] = [family.kinds["old"], family.kinds["new"], len(names), *names, *new_names]
    reply = run.client.eval(script("pair_members"), keys, args)
    return reply[1], reply[2], reply[3], reply[4], reply[5]
