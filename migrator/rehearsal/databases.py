"""Two databases that should hold the same: every key that does not, by name, and what is unlike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from migrator.client import Client, Reply, checked
from migrator.keys import KINDS, Kind
from migrator.models import DifferenceResult, number_of, show
from migrator.moves.values import ask_words, members_from_page, scan_words
from migrator.scripts import script

_PAGE = 500
WHOLE = 5000  # elements of a collection, or bytes of a string, that are compared by one digest
_LIST_PAGE = 1000


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
        for key, was, now in _digests(before, after, _unsure(before, after, mine, whole), whole):
            if was != now and key not in seen and (verdict := _verdict(before, after, key, was, now)):
                seen.add(key)
                yield key, DifferenceResult(key=show(key), member=None, verdict=verdict[0], why=verdict[1])
        tick()
    for keys in after.pages(b"*", _PAGE):
        mine = [key for key in keys if not ours(key)]
        there = before.each("EXISTS", mine)
        for key, known in zip(mine, there, strict=True):
            if not checked(known) and key not in seen:
                seen.add(key)
                yield key, DifferenceResult(key=show(key), member=None, verdict="extra", why="it was not there before")
        tick()


def _unsure(before: Client, after: Client, keys: Sequence[bytes], whole: int) -> list[bytes]:
    """Those of the keys that are not plainly alike: strings are told by themselves, for a third of what a digest
    takes the servers."""
    sides = (client.each(name, keys, *rest) for client in (before, after)
             for name, *rest in (("GETRANGE", 0, whole), ("PEXPIRETIME",)))  # fmt: skip
    return [
        key
        for key, was, expires, now, now_expires in zip(keys, *sides, strict=True)
        if not (isinstance(was, bytes) and 0 < len(was) <= whole and was == now and expires == now_expires)
    ]


def _digests(before: Client, after: Client, keys: Sequence[bytes], whole: int) -> Iterator[tuple[bytes, Reply, Reply]]:
    if keys:
        replies = [client.eval(script("digest"), keys, (whole,)) for client in (before, after)]
        yield from zip(keys, *replies, strict=True)


def _verdict(before: Client, after: Client, key: bytes, was: Reply, now: Reply) -> tuple[str, str] | None:
    """What is unlike, if anything: elements may only stand in another order."""
    old, new = was[0].decode(), now[0].decode()
    if old == "none":
        return None  # it expired while it was being looked at
    if new == "none":
        return ("missing", "it is gone") if checked(before.run_one(key, "EXISTS", key)) else None
    if old != new:
        return "different", f"it was a {old} and is a {new}"
    if why := _content(before, after, key, old, was, now):
        return "different", why
    return ("ttl_drift", _expiries(was[1], now[1])) if was[1] != now[1] else None


def _expiries(was: int, now: int) -> str:
    if now < 0:
        return "its expiry is gone"
    return "it has an expiry now" if was < 0 else f"it expires {number_of(abs(now - was), 'ms').removesuffix('s')} " + (
        "later" if now > was else "earlier")  # fmt: skip


def _content(before: Client, after: Client, key: bytes, kind: str, was: Reply, now: Reply) -> str:
    if was[3] == now[3] and was[3]:
        return ""
    if kind not in KINDS:
        return f"the {kind} is another one"
    if kind == "string":
        return "" if before.one(key, "GET", key) == after.one(key, "GET", key) else "its value is another one"
    if was[2] != now[2]:
        return f"it had {number_of(was[2], 'element')} and has {now[2]:,}"
    if kind == "list":
        return _lists(before, after, key, was[2])
    return _members(before, after, key, next(k for k in KINDS if k == kind))


def _lists(before: Client, after: Client, key: bytes, length: int) -> str:
    for start in range(0, length, _LIST_PAGE):
        words = ("LRANGE", key, start, start + _LIST_PAGE - 1)
        if before.one(key, *words) != after.one(key, *words):
            return "its elements are others"
    return ""


def _members(before: Client, after: Client, key: bytes, kind: Kind) -> str:
    """By the members of `before`: both have as many, so none can be too much that is not missing elsewhere."""
    cursor = b""
    while cursor != b"0":
        cursor, flat = before.one(key, *scan_words(kind, key, int(cursor or 0), _PAGE))
        members = members_from_page(kind, flat)
        names = [name for name, _ in members]
        if not names:
            continue
        if kind == "hash" and _field_expiries(before, key, names) != _field_expiries(after, key, names):
            return "a field's own expiry is another one"
        found = after.one(key, *ask_words(kind, key, names))
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


def _field_expiries(client: Client, key: bytes, names: Sequence[bytes]) -> list[int]:
    reply = client.run_one(key, "HPEXPIRETIME", key, "FIELDS", len(names), *names)
    return reply if isinstance(reply, list) else []  # a server that knows none has none
