"""Whether every record is what it has to be, after a rehearsal: in the new shape, and nothing besides.

What has to be there follows from the snapshot, mapped here once more, and from what writers were acknowledged. Read
without the engine and without an adapter.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any

from migrator.client import Client, ResponseError, checked
from migrator.engine.copy import MAX_BYTES
from migrator.errors import Unmappable
from migrator.models import DifferenceResult
from migrator.moves.family import Family, Member, Pair
from migrator.moves.loader import Module
from migrator.moves.values import (
    ask_words,
    from_items,
    from_reply,
    member_from_wire,
    members_from_page,
    read_each,
    scan_words,
)
from migrator.names import Names
from migrator.rehearsal.databases import unlike
from migrator.rehearsal.findings import Differences
from migrator.rehearsal.scratch import is_ours
from migrator.rehearsal.writers import Told

_PAGE = 500
_LOST, _EXTRA, _DIFFERENT = "lost", "extra", "different"


class Judge:
    """Compares what is there with what has to be. `before` is the snapshot, untouched."""

    def __init__(
        self, before: Client, after: Client, names: Names, modules: Sequence[Module], told: Sequence[Told]
    ) -> None:
        self._before, self._after, self._names = before, after, names
        self._families = [
            Family(after, names, module.id, move) for module in modules for move in module.migration.moves
        ]
        self._told: dict[tuple[str, bytes], dict[bytes | None, Told]] = {}
        for one in told:
            member = None if one.member is None else base64.b64decode(one.member)
            self._told.setdefault((one.source, base64.b64decode(one.key)), {})[member] = one
        self.differences = Differences()
        self.counts = {_LOST: 0, _EXTRA: 0, _DIFFERENT: 0}
        self.compared = 0

    def all(self) -> None:
        """Every record of every move, and every key that belongs to none."""
        for family in self._families:
            (self._members if family.by_member else self._keys)(family)
        for _, found in unlike(self._before, self._after, self._not_other):
            verdict = {"missing": _LOST, "extra": _EXTRA}.get(found.verdict, _DIFFERENT)
            self._note(found.model_copy(update={"verdict": verdict}))

    def _not_other(self, key: bytes) -> bool:
        mine = any(f.move.source.matches(key) or f.move.target.matches(key) for f in self._families)
        return mine or is_ours(self._names, key)

    def differ(self, key: bytes, member: bytes | None, verdict: str, why: str) -> None:
        """Counts one record; `verdict` is lost, extra or different."""
        self.differences.add(key, member, verdict, why)
        self.counts[verdict] += 1

    def _note(self, found: DifferenceResult) -> None:
        self.differences.note(found)
        self.counts[found.verdict] += 1

    def _mine(self, family: Family, key: bytes) -> dict[bytes | None, Told]:
        return self._told.get((family.move.source.template, key), {})

    def _told_of(self, family: Family) -> Iterator[tuple[Pair, dict[bytes | None, Told]]]:
        for (source, key), told in self._told.items():
            if source == family.move.source.template and (pair := family.from_old(key)) is not None:
                yield pair, told

    # Keys.

    def _keys(self, family: Family) -> None:
        for pairs in self._pairs(self._before, family):
            olds = self._read(self._before, family.kinds["old"], [pair.old for pair in pairs])
            alive = [(pair, old) for pair, old in zip(pairs, olds, strict=True) if old is not None]
            untouched = [(pair, old) for pair, old in alive if not self._mine(family, pair.old)]
            self._untouched(family, untouched)
        for pair, told in self._told_of(family):
            self._written(family, pair, told[None])
        self._extra_keys(family)

    def _pairs(self, client: Client, family: Family) -> Iterator[list[Pair]]:
        for keys in client.pages(family.old_glob, _PAGE):
            yield [pair for key in keys if (pair := family.from_old(key)) is not None]

    def _read(self, client: Client, kind: Any, names: Sequence[bytes]) -> list[Any]:
        """Values, None for what is gone, of another type or too large."""
        sizes = client.each("MEMORY USAGE", names)
        small = [isinstance(size, int) and size < MAX_BYTES for size in sizes]
        replies = iter(read_each(client, kind, [n for n, ok in zip(names, small, strict=True) if ok]))
        read = [next(replies) if ok else None for ok in small]
        gone = [reply is None or reply == [] or isinstance(reply, ResponseError) for reply in read]
        return [None if no else from_reply(kind, reply) for no, reply in zip(gone, read, strict=True)]

    def _final(self, family: Family, pair: Pair) -> bytes:
        return pair.key.raw if family.same_name else pair.new

    def _untouched(self, family: Family, records: Sequence[tuple[Pair, Any]]) -> None:
        names = [self._final(family, pair) for pair, _ in records]
        news = self._read(self._after, family.kinds["new"], names)
        was = self._before.each("PEXPIRETIME", [pair.old for pair, _ in records])
        now = self._after.each("PEXPIRETIME", names)
        for (pair, old), new, before, after in zip(records, news, was, now, strict=True):
            self.compared += 1
            try:
                wanted = family.map_key(pair, old)[0]
                if family.fault(pair):
                    raise Unmappable(family.fault(pair))
            except Unmappable:
                self._set_aside(family, pair, None)
                continue
            if new is None and wanted:
                if checked(self._before.run_one(pair.old, "EXISTS", pair.old)):
                    self.differ(pair.old, None, _LOST, "a record of the snapshot is gone")
            elif new is not None and new != wanted:
                self.differ(pair.old, None, _DIFFERENT, "it is not what the mapping makes of the snapshot's")
            elif new is not None and before != after:
                self.differ(pair.old, None, _DIFFERENT, "its expiry is another one")

    def _set_aside(self, family: Family, pair: Pair, member: bytes | None) -> None:
        """What cannot be mapped lies under a name of the tool's own, as it was."""
        name, kind = family.retired(pair), family.kinds["old"]
        reply = self._after.run_one(name, "EXISTS", name) if member is None else self._after.run_one(
            name, *ask_words(kind, name, [member]))  # fmt: skip
        if reply in (0, [None], [0]) or isinstance(reply, ResponseError):
            self.differ(pair.old, member, _LOST, "a record that cannot be mapped is gone")

    def _written(self, family: Family, pair: Pair, told: Told) -> None:
        self.compared += 1
        kind = family.kinds["new"]
        (new,) = self._read(self._after, kind, [self._final(family, pair)])
        if told.items is None:
            if new is not None:
                self.differ(pair.old, None, _EXTRA, "it was deleted, which was acknowledged, and is there")
            return
        wanted = from_items(kind, [base64.b64decode(item) for item in told.items])
        if new is None:
            self.differ(pair.old, None, _LOST, "a write that was acknowledged is gone")
        elif new != wanted:
            self.differ(pair.old, None, _DIFFERENT, "it is not what the last acknowledged write left")

    def _extra_keys(self, family: Family) -> None:
        glob = family.old_glob if family.same_name else family.new_glob
        parse = family.from_old if family.same_name else family.from_new
        for keys in self._after.pages(glob, _PAGE):
            pairs = [pair for key in keys if (pair := parse(key)) is not None]
            there = self._before.each("EXISTS", [pair.old for pair in pairs])
            native = [family.same_name or self._native(pair) for pair in pairs]
            for pair, known, ours in zip(pairs, there, native, strict=True):
                if not checked(known) and not self._mine(family, pair.old) and (family.same_name or not ours):
                    self.differ(pair.old, None, _EXTRA, "nobody wrote it")
        if not family.same_name:
            self._left(family)

    def _native(self, pair: Pair) -> bool:
        """Whether the snapshot had a record in the new shape there already."""
        return bool(checked(self._before.run_one(pair.new, "EXISTS", pair.new)))

    def _left(self, family: Family) -> None:
        """Old records that contract left in place."""
        for pairs in self._pairs(self._after, family):
            types = self._after.each("TYPE", [pair.old for pair in pairs])
            for pair, reply in zip(pairs, types, strict=True):
                if checked(reply).decode() == family.kinds["old"]:
                    self.differ(pair.old, None, _EXTRA, "the old record is still there after contract")

    # Members.

    def _members(self, family: Family) -> None:
        kind = family.kinds["old"]
        for pairs in self._pairs(self._before, family):
            for pair in pairs:
                mine = self._mine(family, pair.old)
                for members in _pages(self._before, kind, pair.old):
                    self._untouched_members(family, pair, members, mine)
                self._expiry(pair, mine)
        for pair, told in self._told_of(family):
            self._written_members(family, pair, told)
        self._extra_members(family)
        self._left(family)

    def _untouched_members(
        self, family: Family, pair: Pair, members: Sequence[Member], mine: dict[bytes | None, Told]
    ) -> None:
        wanted: list[Member] = []
        for name, value in members:
            self.compared += 1
            try:
                if family.fault(pair):
                    raise Unmappable(family.fault(pair))
                new = family.map_member(pair, name, value)
            except Unmappable:
                self._set_aside(family, pair, name)
                continue
            if new[0] not in mine:
                wanted.append(new)
        self._compare_members(family, pair, wanted, "it is not what the mapping makes of the snapshot's")

    def _compare_members(self, family: Family, pair: Pair, wanted: Sequence[Member], why: str) -> None:
        if not wanted:
            return
        kind = family.kinds["new"]
        reply = self._after.run_one(pair.new, *ask_words(kind, pair.new, [name for name, _ in wanted]))
        values = [None] * len(wanted) if isinstance(reply, ResponseError) else reply
        for (name, value), got in zip(wanted, values, strict=True):
            if got is None or (kind == "set" and not got):
                self.differ(pair.old, name, _LOST, "a member that has to be there is gone")
            elif kind != "set" and member_from_wire(kind, got) != value:
                self.differ(pair.old, name, _DIFFERENT, why)

    def _expiry(self, pair: Pair, mine: dict[bytes | None, Told]) -> None:
        was, now = (client.one(name, "PEXPIRETIME", name)
                    for client, name in ((self._before, pair.old), (self._after, pair.new)))  # fmt: skip
        if -2 not in (was, now) and was != now and not any(told.again for told in mine.values()):
            self.differ(pair.old, None, _DIFFERENT, "its expiry is another one")

    def _written_members(self, family: Family, pair: Pair, told: dict[bytes | None, Told]) -> None:
        kind = family.kinds["new"]
        there: list[Member] = []
        for name, one in told.items():
            assert name is not None
            self.compared += 1
            if one.items is not None:
                there.append((name, member_from_wire(kind, base64.b64decode(one.items[0]))))
                continue
            reply = self._after.run_one(pair.new, *ask_words(kind, pair.new, [name]))
            if not isinstance(reply, ResponseError) and reply not in ([None], [0]):
                self.differ(pair.old, name, _EXTRA, "it was removed, which was acknowledged, and is there")
        for start in range(0, len(there), _PAGE):
            why = "it is not what the last acknowledged write left"
            self._compare_members(family, pair, there[start : start + _PAGE], why)

    def _extra_members(self, family: Family) -> None:
        kind = family.kinds["new"]
        for keys in self._after.pages(family.new_glob, _PAGE):
            for pair in (found for key in keys if (found := family.from_new(key)) is not None):
                mine = self._mine(family, pair.old)
                for members in _pages(self._after, kind, pair.new):
                    self._unknown(family, pair, [member for member in members if member[0] not in mine])

    def _unknown(self, family: Family, pair: Pair, members: Sequence[Member]) -> None:
        """Members that no writer knows: those that the snapshot does not know either are nobody's."""
        if not members:
            return
        words = ask_words(family.kinds["old"], pair.old, family.origins(pair, members))
        reply = self._before.run_one(pair.old, *words)
        known = [None] * len(members) if isinstance(reply, ResponseError) else reply
        for (name, _), was in zip(members, known, strict=True):
            if was in (None, 0):
                self.differ(pair.old, name, _EXTRA, "nobody wrote it")


def _pages(client: Client, kind: Any, key: bytes) -> Iterator[list[Member]]:
    cursor = b""
    while cursor != b"0":
        reply = client.run_one(key, *scan_words(kind, key, int(cursor or 0), _PAGE))
        if isinstance(reply, ResponseError):
            return
        cursor, flat = reply
        yield members_from_page(kind, flat)
