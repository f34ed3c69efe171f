"""Two databases that should hold the same: every key that does not, by name, and what is unlike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from migrator.client import Arg, Client, Reply, checked
from migrator.engine.overlap import no_field_expires
from migrator.keys import KINDS, Kind
from migrator.models import DifferenceResult, number_of, show
from migrator.moves.values import ask_words, members_from_page, scan_words
from migrator.scripts import script

_PAGE = 500
WHOLE = 5000  # elements of a collection, or bytes of a string, that are compared by one digest
_LIST_PAGE = 1000
_MEMBERS = 2000  # of a page
_STRING_PAGE = 1 << 20
ADDED = "it was not there before"


class _Two(NamedTuple):
    """One record: where it was, and where it should be now."""

    before: Client
    after: Client
    key: bytes
    name: bytes

    def both(self, command: str, *rest: Arg) -> tuple[Reply, Reply]:
        """What a command says of it there and here."""
        return (
            self.before.one(self.key, command, self.key, *rest),
            self.after.one(self.name, command, self.name, *rest),
        )


def unlike(
    before: Client,
    after: Client,
    ours: Callable[[bytes], bool],
    tick: Callable[[], None] = lambda: None,
    whole: int = WHOLE,
) -> Iterator[tuple[bytes, DifferenceResult]]:
    """Each key that `after` holds otherwise than `before`; keys that are `ours` are left out. Reads both, a page at a
    time; nobody may write meanwhile."""
    seen: set[bytes] = set()  # of what differs: SCAN may give a key twice
    for keys in before.pages(b"*", _PAGE):
        mine = [key for key in keys if not ours(key)]
        for key, found in differences(before, after, mine, mine, whole):
            if key not in seen:
                seen.add(key)
                yield key, found
        tick()
    for key in added(before, after, ours, tick):
        if key not in seen:
            seen.add(key)
            yield key, DifferenceResult(key=show(key), member=None, verdict="extra", why=ADDED)


def added(
    before: Client, after: Client, ours: Callable[[bytes], bool], tick: Callable[[], None] = lambda: None
) -> Iterator[bytes]:
    """Keys of `after` that `before` does not have; SCAN may give one twice."""
    for keys in after.pages(b"*", _PAGE):
        mine = [key for key in keys if not ours(key)]
        there = before.each("EXISTS", mine)
        yield from (key for key, known in zip(mine, there, strict=True) if not checked(known))
        tick()


def differences(
    before: Client, after: Client, keys: Sequence[bytes], names: Sequence[bytes], whole: int = WHOLE
) -> Iterator[tuple[bytes, DifferenceResult]]:
    """Those of the keys of `before` that `after` holds otherwise, each under the name that stands beside it."""
    for key, name, was, now in _digests(before, after, _unsure(before, after, keys, names, whole), whole):
        alike = was == now and was[3]  # without a digest, only its size is known by now
        if not alike and (verdict := _verdict(_Two(before, after, key, name), was, now)):
            yield key, DifferenceResult(key=show(key), member=None, verdict=verdict[0], why=verdict[1])


def _unsure(
    before: Client, after: Client, keys: Sequence[bytes], names: Sequence[bytes], whole: int
) -> list[tuple[bytes, bytes]]:
    """Those that are not plainly alike: strings are told by themselves, for a third of what a digest takes the
    servers."""
    sides = (client.each(name, asked, *rest) for client, asked in ((before, keys), (after, names))
             for name, *rest in (("GETRANGE", 0, whole), ("PEXPIRETIME",)))  # fmt: skip
    return [
        (key, name)
        for key, name, was, expires, now, now_expires in zip(keys, names, *sides, strict=True)
        if not (isinstance(was, bytes) and 0 < len(was) <= whole and was == now and expires == now_expires)
    ]


def _digests(
    before: Client, after: Client, unsure: Sequence[tuple[bytes, bytes]], whole: int
) -> Iterator[tuple[bytes, bytes, Reply, Reply]]:
    if unsure:
        keys, names = zip(*unsure, strict=True)
        replies = [client.eval(script("digest"), asked, (whole,)) for client, asked in ((before, keys), (after, names))]
        yield from zip(keys, names, *replies, strict=True)


def _verdict(two: _Two, was: Reply, now: Reply) -> tuple[str, str] | None:
    """What is unlike, if anything: elements may only stand in another order."""
    old, new = was[0].decode(), now[0].decode()
    if old == "none":
        return None  # it expired while it was being looked at
    if new == "none":
        return ("missing", "it is gone") if checked(two.before.run_one(two.key, "EXISTS", two.key)) else None
    if old != new:
        return "different", f"it was a {old} and is a {new}"
    if why := _content(two, old, was, now):
        return "different", why
    return ("ttl_drift", _expiries(was[1], now[1])) if was[1] != now[1] else None


def _expiries(was: int, now: int) -> str:
    if now < 0:
        return "its expiry is gone"
    return "it has an expiry now" if was < 0 else f"it expires {number_of(abs(now - was), 'ms').removesuffix('s')} " + (
        "later" if now > was else "earlier")  # fmt: skip


def _content(two: _Two, kind: str, was: Reply, now: Reply) -> str:
    if was[3] == now[3] and was[3]:
        return ""
    if kind not in KINDS:
        return f"the {kind} is another one"
    if kind == "string":
        return "" if was[2] == now[2] and _same_bytes(two, was[2]) else "its value is another one"
    if was[2] != now[2]:
        return f"it had {number_of(was[2], 'element')} and has {now[2]:,}"
    if kind == "list":
        return _lists(two, was[2])
    return _members(two, next(k for k in KINDS if k == kind))


def _same_bytes(two: _Two, length: int) -> bool:
    ranges = ((start, start + _STRING_PAGE - 1) for start in range(0, length, _STRING_PAGE))
    return all(was == now for was, now in (two.both("GETRANGE", *one) for one in ranges))


def _lists(two: _Two, length: int) -> str:
    for start in range(0, length, _LIST_PAGE):
        was, now = two.both("LRANGE", start, start + _LIST_PAGE - 1)
        if was != now:
            return "its elements are others"
    return ""


def _members(two: _Two, kind: Kind) -> str:
    """By the members of `before`: both have as many, so none can be too much that is not missing elsewhere."""
    mortal = kind == "hash" and not all(map(_no_field_expires, (two.before, two.after)))
    cursor = b""
    while cursor != b"0":
        cursor, flat = two.before.one(two.key, *scan_words(kind, two.key, int(cursor or 0), _MEMBERS))
        members = members_from_page(kind, flat)
        names = [name for name, _ in members]
        if not names:
            continue
        if mortal and field_expiries(two.before, two.key, names) != field_expiries(two.after, two.name, names):
            return "a field's own expiry is another one"
        found = two.after.one(two.name, *ask_words(kind, two.name, names))
        if kind == "hash" and found == flat[1::2]:
            continue
        for (name, value), got in zip(members, found, strict=True):
            had = 1 if kind == "set" else value
            has = float(got) if kind == "zset" and got is not None else got
            if has != had:
                return (
                    f"its member {show(name)} is gone"
                    if got in (None, 0)
                    else f"its member {show(name)} is another one"
                )
    return ""


def _no_field_expires(client: Client) -> bool:
    return no_field_expires(client.on_node(client.nodes()[0], ("INFO", "keyspace"))[0])


def field_expiries(client: Client, key: bytes, names: Sequence[bytes]) -> list[int]:
    """Of each field of a hash the time its own expiry is due, -1 for none; nothing where the server knows none."""
    reply = client.run_one(key, "HPEXPIRETIME", key, "FIELDS", len(names), *names)
    return reply if isinstance(reply, list) else []
