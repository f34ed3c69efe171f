"""An application of a rehearsal: writes through adapters, and accounts for what was acknowledged.

`python -m migrator.rehearsal.writers`, its settings in JSON as one line on standard input, and a second line once all
writers have said `ready`: what one writes must not be what another finds in the snapshot. It stops where standard input
ends, and prints its account, one JSON document. A record belongs to one writer alone, so what it has to be at the end
follows from that one's account.
"""

from __future__ import annotations

import base64
import os
import random
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import redis
from pydantic import Field

from migrator.adapters import Found, Members, Missing, Records, UncertainError, Unmoved
from migrator.client import Client, ResponseError, connect
from migrator.engine.batches import MAX_BYTES
from migrator.errors import Unmappable, UnreachableError, UsageError
from migrator.models import Frozen
from migrator.moves import KeyMove
from migrator.moves.family import Family, Pair
from migrator.moves.loader import Module, load
from migrator.moves.values import (
    from_reply,
    member_to_wire,
    members_from_page,
    read_words,
    scan_words,
    to_items,
)
from migrator.names import Names
from migrator.rehearsal.propose import Proposals, one_sound

_OWN = 150  # records a writer and move
_PAGE = 500
_PAUSE = 0.002  # seconds between two turns: two cores are to be enough for all of it
_AGAIN = 0.05


class Settings(Frozen):
    """What a writer is told."""

    url: str
    migrations: str
    namespace: str
    ids: tuple[str, ...]
    number: int
    writers: int


class Told(Frozen):
    """What a record has to be at the end: its items in base64, none where it is to be gone. A member's one item is its
    value. `again`: it was gone in between, so its expiry is not what it was."""

    id: str
    source: str
    key: str
    member: str | None = None
    items: tuple[str, ...] | None = None
    again: bool = False


class Account(Frozen):
    """What a writer did and saw."""

    done: dict[str, int] = Field(default_factory=dict)
    told: tuple[Told, ...] = ()
    wrong: tuple[tuple[str, str], ...] = ()  # key and what it was not
    unwritten: tuple[str, ...] = ()
    failed: str = ""


@dataclass
class Mine:
    """One record, or member, of this writer. `value` is None while it is gone."""

    pair: Pair
    member: bytes | None
    value: Any
    again: bool = False
    left: bool = False  # it has no new shape and was accepted so


@dataclass
class _Owned:
    """One move: its adapter, and the records of this writer."""

    module: Module
    family: Family
    adapter: Any
    proposals: Proposals
    mine: list[Mine] = field(default_factory=list)


class Writer:
    """Turns, one after another, until it is told to stop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client = connect(settings.url)
        self._redis = redis.Redis.from_url(settings.url, protocol=2)
        self._dice = random.Random(settings.number)
        self._n = settings.number
        self.done: Counter[str] = Counter()
        self.wrong: list[tuple[str, str]] = []
        self.unwritten: list[str] = []
        names, modules = Names(settings.namespace), load(settings.migrations)
        self._moves: list[_Owned] = []
        for module in modules.select(settings.ids):
            for move in module.migration.moves:
                self._open(module, Family(self._client, names, module.id, move), names)

    def _open(self, module: Module, family: Family, names: Names) -> None:
        adapter = Records if isinstance(family.move, KeyMove) else Members
        source = family.move.source.template
        try:
            opened = adapter(self._redis, module, names.namespace, source=source)
        except UsageError as error:
            self.unwritten.append(f"{source}: {error.message}")
            return
        owned = _Owned(module, family, opened, Proposals(family))
        find = _members if family.by_member else _keys
        for mine in find(self._client, family):
            if self._owns(mine):
                owned.mine.append(mine)
                if len(owned.mine) >= _OWN:
                    break
        if owned.mine:
            self._moves.append(owned)
        else:
            self.unwritten.append(f"{source}: no record that can be written")

    def _owns(self, mine: Mine) -> bool:
        name = mine.pair.old + b"\0" + (mine.member or b"")
        return zlib.crc32(name) % self._settings.writers == self._settings.number

    def turn(self) -> None:
        """One read or write. What is not known to have happened is looked at before anything else is done to it."""
        if not self._moves:
            time.sleep(_AGAIN)
            return
        self._n += self._settings.writers
        owned = self._dice.choice(self._moves)
        mine = self._dice.choice(owned.mine)
        if mine.left:
            return
        what = self._dice.random()
        if what < 0.3:
            self._look(owned, mine, (mine.value,))
        elif what < 0.4:
            self._create(owned, mine)
        elif what < 0.45 and mine.value is not None:
            self._write(owned, mine, None, "delete")
        else:
            value = self._change(owned, mine)
            if value is not None:
                self._write(owned, mine, value, "update")

    def _change(self, owned: _Owned, mine: Mine) -> Any:
        if mine.value is None:
            return None
        if mine.member is None:
            return owned.proposals.changed(mine.pair, mine.value, self._n)
        made = owned.proposals.member(mine.pair, (mine.member, mine.value[0]), self._n)
        return None if made is None else (made[1],)

    def _create(self, owned: _Owned, like: Mine) -> None:
        if like.value is None:
            return
        if like.member is None:
            made = owned.proposals.another(like.pair, like.value, self._n)
            fresh = None if made is None else (Mine(made[0], None, None), made[1])
        else:
            member = owned.proposals.new_member(like.pair, (like.member, like.value[0]), self._n)
            fresh = None if member is None else (Mine(like.pair, member[0], None), (member[1],))
        if fresh is not None:
            owned.mine.append(fresh[0])
            self._write(owned, fresh[0], fresh[1], "create")

    def _write(self, owned: _Owned, mine: Mine, value: Any, what: str) -> None:
        try:
            answer = _send(owned.adapter, mine, value)
        except UncertainError:
            self.done["not known to have happened"] += 1
            self._look(owned, mine, (mine.value, value))
            return
        except (UnreachableError, UsageError):  # the latter where the inverse gives that value another name
            return  # nothing was written
        if isinstance(answer, Unmoved):
            mine.left = True
            return
        if isinstance(answer, Missing):
            self._differs(mine, "a record that was acknowledged was not there to be deleted")
        self.done[what] += 1
        mine.again |= value is None
        mine.value = value

    def _look(self, owned: _Owned, mine: Mine, possible: tuple[Any, ...]) -> None:
        """Reads a record, which has to be one of these."""
        while True:
            try:
                captures = dict(mine.pair.key)
                answer = owned.adapter.get(*([] if mine.member is None else [mine.member]), **captures)
                break
            except UnreachableError:
                time.sleep(_AGAIN)
        if isinstance(answer, Unmoved):
            mine.left = True
            return
        found = None
        if isinstance(answer, Found):
            found = answer.value if mine.member is None else (answer.value,)
        if found not in possible:
            self._differs(mine, _unlike(found))
        self.done["read"] += 1
        mine.again |= found is None
        mine.value = found

    def _differs(self, mine: Mine, why: str) -> None:
        where = mine.pair.old if mine.member is None else mine.pair.old + b" [" + mine.member + b"]"
        self.wrong.append((base64.b64encode(where).decode(), why))

    def account(self) -> Account:
        told = tuple(_told(owned, mine) for owned in self._moves for mine in owned.mine if not mine.left)
        return Account(done=dict(self.done), told=told, wrong=tuple(self.wrong), unwritten=tuple(self.unwritten))


def _unlike(found: Any) -> str:
    return "what was acknowledged was gone" if found is None else "what was acknowledged was not what was read"


def _send(adapter: Any, mine: Mine, value: Any) -> Any:
    captures = dict(mine.pair.key)
    if mine.member is None:
        return adapter.delete(**captures) if value is None else adapter.put(value, **captures)
    if value is None:
        return adapter.remove(mine.member, **captures)
    return adapter.set(mine.member, value[0], **captures)


def _told(owned: _Owned, mine: Mine) -> Told:
    kind = owned.family.kinds["new"]
    items = None
    if mine.value is not None:
        wire = to_items(kind, mine.value) if mine.member is None else [member_to_wire(kind, mine.value[0])]
        items = tuple(base64.b64encode(item).decode() for item in wire)
    return Told(
        id=owned.module.id, source=owned.family.move.source.template, key=base64.b64encode(mine.pair.old).decode(),
        member=None if mine.member is None else base64.b64encode(mine.member).decode(), items=items, again=mine.again,
    )  # fmt: skip


# The records of a snapshot, in the new shape.


def _keys(client: Client, family: Family) -> Iterator[Mine]:
    kind = family.kinds["old"]
    for keys in client.pages(family.old_glob, _PAGE):
        pairs = [pair for key in keys if (pair := family.from_old(key)) is not None]
        sizes = client.each("MEMORY USAGE", [pair.old for pair in pairs])
        pairs = [p for p, size in zip(pairs, sizes, strict=True) if isinstance(size, int) and size < MAX_BYTES]
        expiries = client.each("PEXPIRETIME", [pair.old for pair in pairs])
        for pair, at in zip(pairs, expiries, strict=True):
            reply = client.run_one(pair.old, *read_words(kind, pair.old))
            if isinstance(reply, ResponseError) or not reply or at > 0:
                continue  # of one that may expire meanwhile nothing would be known
            try:
                value = family.map_key(pair, from_reply(kind, reply))[0]
            except Unmappable:
                continue
            if value and not family.fault(pair) and Proposals(family).sound(pair, value):
                yield Mine(pair, None, value)


def _members(client: Client, family: Family) -> Iterator[Mine]:
    kind = family.kinds["old"]
    for keys in client.pages(family.old_glob, _PAGE):
        for key in keys:
            pair = family.from_old(key)
            if pair is None or family.fault(pair) or client.one(key, "PTTL", key) >= 0:
                continue
            reply = client.run_one(key, *scan_words(kind, key, 0, _PAGE))
            if isinstance(reply, ResponseError):
                continue
            for name, value in members_from_page(kind, reply[1]):
                try:
                    new = family.map_member(pair, name, value)
                except Unmappable:
                    continue
                renamed = family.by_inverse and new[0] != name  # no adapter finds that one by its new name
                if not renamed and one_sound(family, pair, new):
                    yield Mine(pair, new[0], (new[1],))


def main() -> None:
    settings = Settings.model_validate_json(sys.stdin.readline())
    os.nice(5)
    writer = Writer(settings)
    _say("ready")
    sys.stdin.readline()
    stopped = threading.Event()
    threading.Thread(target=_wait_for_the_end, args=(stopped,), daemon=True).start()
    failed = ""
    try:
        while not stopped.is_set():
            writer.turn()
            time.sleep(_PAUSE)
    except Exception as error:  # whatever it is, the rehearsal has to hear of it; a message may hold a value
        failed = type(error).__name__
    _say(writer.account().model_copy(update={"failed": failed}).model_dump_json())


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _wait_for_the_end(stopped: threading.Event) -> None:
    sys.stdin.read()
    stopped.set()


if __name__ == "__main__":
    main()
