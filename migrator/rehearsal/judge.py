"""Whether every key of a snapshot is what it has to be, after a rehearsal, and nothing besides.

What has to be there follows from the snapshot, mapped here once more, and from what writers were acknowledged. Read
without the engine and without an adapter.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any

from migrator.client import Client, ResponseError, checked
from migrator.engine.batches import MAX_BYTES, batched, sizes
from migrator.engine.copy import FIELD_TTL
from migrator.errors import Unmappable
from migrator.ledger import Ledger, parse_address
from migrator.moves.family import COLLISION, Family, Member, Pair
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
from migrator.rehearsal.databases import ADDED, added, differences, field_expiries
from migrator.rehearsal.findings import Differences
from migrator.rehearsal.scratch import is_ours
from migrator.rehearsal.writers import Told

Address = tuple[bytes, bytes | None]  # a key, and a member or none

_PAGE = 500
_LOST, _EXTRA, _DIFFERENT = "lost", "extra", "different"
_ASIDE = "a record that cannot be mapped: "
_GONE = "a member that has to be there is gone"
_STRAY = "the old member it comes from becomes another one"
_ADOPTED = "in the backup of what was there before: "


class Judge:
    """Compares what is there with what has to be. `before` is the snapshot, untouched; `adopted` holds what the backups
    of adopted targets do, None where there are none.

    Each key of the snapshot goes by one of these, unless a writer was told otherwise:

    - A record of a move is in the new shape what the mapping makes of it. Where it cannot be mapped, or is too large to
      be, it is as it was under a name of the tool's own.
    - What was under the name of a target is in the backup as it was. (Contract comes after a comparison that removes
      it, unless a record makes it anew; rolled back, it is put back from there.)
    - All else is as it was, where it was: also what has the new shape under the final name already, of which the way
      back makes an old record and the way there again the same one; and what has another type than its template says.
    """

    def __init__(
        self,
        before: Client,
        after: Client,
        names: Names,
        modules: Sequence[Module],
        told: Sequence[Told],
        adopted: Client | None = None,
    ) -> None:
        self._before, self._after, self._names, self._adopted = before, after, names, adopted
        self._families: list[Family] = []
        self._begun: set[Family] = set()  # of migrations that the snapshot has in the middle
        self._collided: dict[Family, set[Address]] = {}  # accepted: which of them moved was for the engine to say
        known, ledger = Ledger(before, names).entries() or {}, Ledger(after, names)
        for module in modules:
            families = [Family(after, names, module.id, move) for move in module.migration.moves]
            self._families += families
            collided = {parse_address(name) for name, record in ledger.rejected(module.id).items()
                        if record.accepted and record.reason == COLLISION}  # fmt: skip
            self._collided |= dict.fromkeys(families, collided)
            if module.id in known and known[module.id].phase != "pending":
                self._begun.update(families)
        self._told: dict[tuple[str, bytes], dict[bytes | None, Told]] = {}
        for one in told:
            member = None if one.member is None else base64.b64decode(one.member)
            self._told.setdefault((one.source, base64.b64decode(one.key)), {})[member] = one
        self.differences = Differences()
        self.counts = {_LOST: 0, _EXTRA: 0, _DIFFERENT: 0}
        self.compared = 0
        self._seen: set[tuple[bytes, bytes | None, str]] = set()  # of what differs: SCAN may give a key twice

    def all(self) -> None:
        """Every key of the snapshot, every record that was written, and what is there besides."""
        for keys in self._before.pages(b"*", _PAGE):
            self._page([key for key in keys if not self._ours(key)])
        for family in self._families:
            written = self._written_members if family.by_member else self._written
            for pair, told in self._told_of(family):
                written(family, pair, told)
            (self._members_besides if family.by_member else self._keys_besides)(family)
            if not family.same_name:
                self._old_besides(family)
        for key in added(self._before, self._after, self._of_a_move):
            self.differ(key, None, _EXTRA, ADDED)

    def _page(self, keys: Sequence[bytes]) -> None:
        """Keys of the snapshot, each by its rule."""
        types = self._before.each("TYPE", keys)
        records: dict[Family, list[Pair]] = {}
        targets: list[bytes] = []
        others: list[bytes] = []
        for key, reply in zip(keys, types, strict=True):
            family, pair = self._record(key, checked(reply).decode())
            if family is not None and pair is not None:
                records.setdefault(family, []).append(pair)
            elif (family := self._target_of(key)) is not None:
                if family not in self._begun:  # else it is the tool's own copy, which the way back removed
                    targets.append(key)
            elif not any((family.move.source.template, key) in self._told for family in self._families):
                others.append(key)
        for family, pairs in records.items():
            (self._collections if family.by_member else self._keys)(family, pairs)
        self._saved(targets)
        self._as_they_were(self._after, others, others)

    def _record(self, key: bytes, kind: str) -> tuple[Family, Pair] | tuple[None, None]:
        """The move that a key of this type is a record of."""
        for family in self._families:
            if family.kinds["old"] == kind and (pair := family.from_old(key)) is not None:
                return family, pair
        return None, None

    def _target_of(self, key: bytes) -> Family | None:
        return next((f for f in self._families if not f.same_name and f.has_new(key)), None)

    def _ours(self, key: bytes) -> bool:
        """Whether a key is the tool's own. What migrations before these set aside is data."""
        aside = key.startswith(self._names.prefix + b"old:")
        mine = aside and any(family.from_retired(key) is not None for family in self._families)
        return is_ours(self._names, key) and (mine or not aside)

    def _of_a_move(self, key: bytes) -> bool:
        return self._ours(key) or any(family.has_old(key) or family.has_new(key) for family in self._families)

    def differ(self, key: bytes, member: bytes | None, verdict: str, why: str) -> None:
        """Counts one record, once; `verdict` is lost, extra or different."""
        if (key, member, why) not in self._seen:
            self._seen.add((key, member, why))
            self.differences.add(key, member, verdict, why)
            self.counts[verdict] += 1

    def _mine(self, family: Family, key: bytes) -> dict[bytes | None, Told]:
        return self._told.get((family.move.source.template, key), {})

    def _told_of(self, family: Family) -> Iterator[tuple[Pair, dict[bytes | None, Told]]]:
        for (source, key), told in self._told.items():
            if source == family.move.source.template and (pair := family.from_old(key)) is not None:
                yield pair, told

    # What is not mapped.

    def _as_they_were(self, there: Client, keys: Sequence[bytes], names: Sequence[bytes], what: str = "") -> None:
        """Keys of the snapshot, and the names under which they are to be found unchanged."""
        self.compared += len(keys)
        for key, found in differences(self._before, there, keys, names):
            self.differ(key, None, _LOST if found.verdict == "missing" else _DIFFERENT, what + found.why)

    def _saved(self, targets: Sequence[bytes]) -> None:
        if self._adopted is not None:
            self._as_they_were(self._adopted, targets, targets, _ADOPTED)
            return
        for key in targets:
            self.differ(key, None, _LOST, f"{_ADOPTED}it is gone")

    def _set_aside(self, family: Family, pairs: Sequence[Pair]) -> None:
        """What cannot be mapped lies under a name of the tool's own, and no new record is in its place."""
        names = [family.retired(pair) for pair in pairs]
        self._as_they_were(self._after, [pair.old for pair in pairs], names, _ASIDE)
        self._not_made(family, pairs, f"{_ASIDE}something is in its place")

    def _not_made(self, family: Family, pairs: Sequence[Pair], why: str) -> None:
        """No new record is there; only what was under its name before, as it was."""
        names = [self._final(family, pair) for pair in pairs]
        there = self._after.each("EXISTS", names)
        for pair, name in [(p, n) for p, n, reply in zip(pairs, names, there, strict=True) if checked(reply)]:
            if family.same_name or not checked(self._before.run_one(name, "EXISTS", name)):
                self.differ(pair.old, None, _EXTRA, why)
            for _, found in () if family.same_name else differences(self._before, self._after, [name], [name]):
                self.differ(pair.old, None, _DIFFERENT, f"under the name of its target: {found.why}")

    def _old_besides(self, family: Family) -> None:
        """Old records that contract left in place."""
        for keys in self._after.pages(family.old_glob, _PAGE):
            pairs = [pair for key in keys if (pair := family.from_old(key)) is not None]
            kinds = [checked(reply).decode() for reply in self._before.each("TYPE", [pair.old for pair in pairs])]
            gone = [pair.old for pair, kind in zip(pairs, kinds, strict=True)
                    if kind == "none" or self._record(pair.old, kind)[0] is not None]  # fmt: skip
            for key, there in zip(gone, self._after.each("EXISTS", gone), strict=True):
                if checked(there):
                    self.differ(key, None, _EXTRA, "the old record is still there after contract")

    # Keys.

    def _keys(self, family: Family, found: Sequence[Pair]) -> None:
        pairs = [pair for pair in found if not self._mine(family, pair.old)]
        weights = sizes(self._before, family.kinds["old"], [pair.old for pair in pairs])
        self._set_aside(family, [pair for pair, size in zip(pairs, weights, strict=True) if size > MAX_BYTES])
        small = [(pair, size) for pair, size in zip(pairs, weights, strict=True) if size <= MAX_BYTES]
        news = sizes(self._after, family.kinds["new"], [self._final(family, pair) for pair, _ in small])
        for batch in batched((pair, old + new) for (pair, old), new in zip(small, news, strict=True)):
            self._mapped(family, batch)

    def _final(self, family: Family, pair: Pair) -> bytes:
        return pair.key.raw if family.same_name else pair.new

    def _mapped(self, family: Family, pairs: Sequence[Pair]) -> None:
        kind, finals = family.kinds["old"], [self._final(family, pair) for pair in pairs]
        olds = read_each(self._before, kind, [pair.old for pair in pairs])
        news = read_each(self._after, family.kinds["new"], finals)
        was = self._before.each("PEXPIRETIME", [pair.old for pair in pairs])
        now = self._after.each("PEXPIRETIME", finals)
        aside: list[Pair] = []
        for pair, old, new, before, after in zip(pairs, olds, news, was, now, strict=True):
            if isinstance(old, ResponseError) or old is None or old == []:
                continue  # it expired while it was being looked at
            try:
                wanted = self._wanted(family, pair, from_reply(kind, old))
            except Unmappable:
                aside.append(pair)
                continue
            self.compared += 1
            if why := self._unlike(family, wanted, new):
                self.differ(pair.old, None, _DIFFERENT, why)
            elif new is None or new == []:
                missing = family.kinds["new"] == "string" or wanted  # of what is mapped to nothing, nothing is made
                if missing and checked(self._before.run_one(pair.old, "EXISTS", pair.old)):
                    self.differ(pair.old, None, _LOST, "a record of the snapshot is gone")
            elif before != after:
                self.differ(pair.old, None, _DIFFERENT, "its expiry is another one")
        self._set_aside(family, aside)

    def _wanted(self, family: Family, pair: Pair, old: Any) -> Any:
        """What the mapping makes of a record. Raises Unmappable."""
        if fault := family.fault(pair):
            raise Unmappable(fault)
        if family.kinds["old"] == "hash" and self._mortal(pair.old, list(old)):
            raise Unmappable(FIELD_TTL)
        return family.map_key(pair, old)[0]

    def _mortal(self, key: bytes, names: Sequence[bytes]) -> list[bytes]:
        """Fields with an expiry of their own, which no other shape can keep."""
        at = field_expiries(self._before, key, names)
        return [name for name, due in zip(names, at, strict=True) if due > 0] if at else []

    def _unlike(self, family: Family, wanted: Any, new: Any) -> str:
        """What a new record that is there has otherwise, if anything."""
        if new is None or new == []:
            return ""
        if isinstance(new, ResponseError):
            return f"it is no {family.kinds['new']}"
        same = from_reply(family.kinds["new"], new) == wanted
        return "" if same else "it is not what the mapping makes of the snapshot's"

    def _written(self, family: Family, pair: Pair, told_of: dict[bytes | None, Told]) -> None:
        self.compared += 1
        kind, name, told = family.kinds["new"], self._final(family, pair), told_of[None]
        (reply,) = read_each(self._after, kind, [name])
        there = checked(self._after.run_one(name, "EXISTS", name))
        if told.items is None:
            if there:
                self.differ(pair.old, None, _EXTRA, "it was deleted, which was acknowledged, and is there")
            return
        wanted = from_items(kind, [base64.b64decode(item) for item in told.items])
        if not there:
            self.differ(pair.old, None, _LOST, "a write that was acknowledged is gone")
        elif isinstance(reply, ResponseError) or from_reply(kind, reply) != wanted:
            self.differ(pair.old, None, _DIFFERENT, "it is not what the last acknowledged write left")

    def _keys_besides(self, family: Family) -> None:
        """New records that no old one of the snapshot became."""
        glob = family.old_glob if family.same_name else family.new_glob
        parse = family.from_old if family.same_name else family.from_new
        for keys in self._after.pages(glob, _PAGE):
            pairs = [p for key in keys if (p := parse(key)) is not None and not self._mine(family, p.old)]
            kinds = [checked(reply).decode() for reply in self._before.each("TYPE", [pair.old for pair in pairs])]
            # Under one name, what was there already has been looked at, whatever its type.
            made = [pair for pair, kind in zip(pairs, kinds, strict=True)
                    if kind == "none" or (not family.same_name and kind != family.kinds["old"])]  # fmt: skip
            self._not_made(family, made, "nobody wrote it")

    # Members.

    def _collections(self, family: Family, pairs: Sequence[Pair]) -> None:
        kind = family.kinds["old"]
        for pair in pairs:
            mine, aside = self._mine(family, pair.old), False
            for members in _pages(self._before, kind, pair.old):
                aside |= self._untouched_members(family, pair, members, mine)
            self._expiry(pair, pair.new, mine)
            if aside:
                self._expiry(pair, family.retired(pair), mine, _ASIDE)

    def _untouched_members(
        self, family: Family, pair: Pair, members: Sequence[Member], mine: dict[bytes | None, Told]
    ) -> bool:
        """Whether some of them cannot be mapped."""
        wanted: list[Member] = []
        aside: list[Member] = []
        taken: list[bytes] = []  # names that another member has, which is what they collided with
        fault = family.fault(pair)
        names = [name for name, _ in members]
        mortal = set(self._mortal(pair.old, names)) if family.kinds["old"] == "hash" and names else set()
        self.compared += len(members)
        for name, value in members:
            try:
                if fault or name in mortal:
                    raise Unmappable(fault or FIELD_TTL)
                new = family.map_member(pair, name, value)
            except Unmappable:
                aside.append((name, value))
                continue
            if new[0] in mine:
                continue
            if (pair.key.raw, name) in self._collided[family]:
                aside.append((name, value))
                taken.append(new[0])
            else:
                wanted.append(new)
        self._compare_members(family, pair, wanted, "it is not what the mapping makes of the snapshot's")
        for name, (there, _) in zip(taken, self._ask(self._after, family.kinds["new"], pair.new, taken), strict=True):
            if not there:
                self.differ(pair.old, name, _LOST, _GONE)
        self._members_aside(family, pair, aside)
        return bool(aside)

    def _members_aside(self, family: Family, pair: Pair, members: Sequence[Member]) -> None:
        """Such members alone lie under a name of the tool's own."""
        kind, retired, names = family.kinds["old"], family.retired(pair), [name for name, _ in members]
        for (name, value), (there, got) in zip(members, self._ask(self._after, kind, retired, names), strict=True):
            if not there:
                self.differ(pair.old, name, _LOST, f"{_ASIDE}it is gone")
            elif got != value:
                self.differ(pair.old, name, _DIFFERENT, f"{_ASIDE}its value is another one")
        if kind == "hash" and names:
            was, now = (field_expiries(*where, names) for where in ((self._before, pair.old), (self._after, retired)))
            for name, before, after in zip(names, was, now, strict=True):
                if before != after != -2:  # -2: it is not there
                    self.differ(pair.old, name, _DIFFERENT, f"{_ASIDE}its expiry is another one")

    def _ask(self, client: Client, kind: Any, key: bytes, names: Sequence[bytes]) -> list[tuple[bool, Any]]:
        """Of each member whether it is there, and its value."""
        if not names:
            return []
        reply = client.run_one(key, *ask_words(kind, key, names))
        if isinstance(reply, ResponseError):
            return [(False, None)] * len(names)
        if kind == "set":
            return [(bool(got), None) for got in reply]
        return [(got is not None, None if got is None else member_from_wire(kind, got)) for got in reply]

    def _compare_members(self, family: Family, pair: Pair, wanted: Sequence[Member], why: str) -> None:
        found = self._ask(self._after, family.kinds["new"], pair.new, [name for name, _ in wanted])
        for (name, value), (there, got) in zip(wanted, found, strict=True):
            if not there:
                self.differ(pair.old, name, _LOST, _GONE)
            elif got != value:
                self.differ(pair.old, name, _DIFFERENT, why)

    def _expiry(self, pair: Pair, name: bytes, mine: dict[bytes | None, Told], what: str = "") -> None:
        was, now = (client.one(key, "PEXPIRETIME", key)
                    for client, key in ((self._before, pair.old), (self._after, name)))  # fmt: skip
        if -2 not in (was, now) and was != now and not any(told.again for told in mine.values()):
            self.differ(pair.old, None, _DIFFERENT, f"{what}its expiry is another one")

    def _written_members(self, family: Family, pair: Pair, told: dict[bytes | None, Told]) -> None:
        kind = family.kinds["new"]
        there: list[Member] = []
        for name, one in told.items():
            assert name is not None
            self.compared += 1
            if one.items is not None:
                there.append((name, member_from_wire(kind, base64.b64decode(one.items[0]))))
                continue
            if self._ask(self._after, kind, pair.new, [name])[0][0]:
                self.differ(pair.old, name, _EXTRA, "it was removed, which was acknowledged, and is there")
        for start in range(0, len(there), _PAGE):
            why = "it is not what the last acknowledged write left"
            self._compare_members(family, pair, there[start : start + _PAGE], why)

    def _members_besides(self, family: Family) -> None:
        """New members that no old one of the snapshot became."""
        kind = family.kinds["new"]
        for keys in self._after.pages(family.new_glob, _PAGE):
            for pair in (found for key in keys if (found := family.from_new(key)) is not None):
                if self._after.one(pair.new, "TYPE", pair.new).decode() not in (kind, "none"):
                    self.differ(pair.old, None, _EXTRA, f"it is no {kind}")
                    continue
                mine = self._mine(family, pair.old)
                for members in _pages(self._after, kind, pair.new):
                    self._unknown(family, pair, [member for member in members if member[0] not in mine])

    def _unknown(self, family: Family, pair: Pair, members: Sequence[Member]) -> None:
        """Members that no writer knows: those that no member of the snapshot becomes either are nobody's."""
        if not members:
            return
        origins = family.origins(pair, members)
        found = self._ask(self._before, family.kinds["old"], pair.old, origins)
        olds = [(origin, value) if there else None for origin, (there, value) in zip(origins, found, strict=True)]
        names = [name for name, _ in members]
        for name, old, stray in zip(names, olds, family.strays(pair, names, olds), strict=True):
            if stray:
                self.differ(pair.old, name, _EXTRA, "nobody wrote it" if old is None else _STRAY)


def _pages(client: Client, kind: Any, key: bytes) -> Iterator[list[Member]]:
    cursor = b""
    while cursor != b"0":
        reply = client.run_one(key, *scan_words(kind, key, int(cursor or 0), _PAGE))
        if isinstance(reply, ResponseError):
            return
        cursor, flat = reply
        yield members_from_page(kind, flat)
