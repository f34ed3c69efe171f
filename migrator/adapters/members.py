"""Members of collections, read and written in the new shape whatever the phase."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from migrator.adapters.adapter import Adapter, AsyncAdapter, build
from migrator.adapters.aio import AsyncDriver, AsyncRedis
from migrator.adapters.bridge import Bridge, Capture
from migrator.adapters.core import Steps
from migrator.adapters.outcomes import Batch, Found, Missing, Removed, Unmoved, Written
from migrator.adapters.sync import Driver, Redis
from migrator.adapters.window import WindowCore
from migrator.errors import Unmappable, UsageError
from migrator.keys import Key, Kind
from migrator.moves import Mapped, MemberMove
from migrator.moves.family import Pair
from migrator.moves.loader import Module
from migrator.moves.values import MemberValue, check_member_value, member_from_wire, member_to_wire

P = TypeVar("P")

MANY = 1000  # members a script call
Member = tuple[bytes, MemberValue]
Captures = Mapping[str, Capture]


class MembersCore:
    """The steps of each method."""

    def __init__(self, bridge: Bridge) -> None:
        assert isinstance(bridge.move, MemberMove)
        self.bridge, self._family, self._origin = bridge, bridge.family, bridge.move.origin
        self._proved = self._prove(bridge.move)

    def get(self, member: bytes, captures: Captures) -> Steps[Found | Missing | Unmoved]:
        pair, kinds = self.bridge.pair(captures), self._family.kinds
        old_name = self.old_name(pair, member)
        answer = yield from self.bridge.ask(pair, "adapter_members_get", (old_name, member), writes=False)
        shape, expiry, (raw,) = answer.rest
        if raw is None:
            return Missing(answer.epoch)
        if raw == 1:
            return Unmoved(answer.epoch)
        value = member_from_wire(kinds["new" if shape == b"new" else "old"], raw)
        if shape == b"old":
            name, value = self._family.map_member(pair, old_name, value)
            self._check_name(name, member)
        return Found(value, None if expiry < 0 else expiry, answer.epoch)

    def set(self, members: Iterable[Member], captures: Captures) -> Steps[tuple[Batch, int]]:
        """What became of the members, and the epoch. Nothing is sent before all are mapped."""
        pair = self.bridge.pair(captures)
        mapped = [(*self._unmapped(pair, name, value), name) for name, value in members]
        return (yield from self.write(pair, mapped))

    def write(self, pair: Pair, olds: Sequence[tuple[bytes, MemberValue, bytes]]) -> Steps[tuple[Batch, int]]:
        """Writes old members, and what the mapping makes of them, under the new names they are wanted to have."""
        kinds = self._family.kinds
        wires: list[list[bytes]] = []
        for old_name, old_value, wanted in olds:
            name, value = self._family.map_member(pair, old_name, old_value)
            self._check_name(name, wanted)
            if self._origin is None:  # by its new name alone, `get` and `remove` would look for another old one
                self._check_name(old_name, wanted)
            wires.append([old_name, member_to_wire(kinds["old"], old_value), name, member_to_wire(kinds["new"], value)])
        unmoved: list[bytes] = []
        epoch = 0
        for start in range(0, len(wires), MANY):
            page = wires[start : start + MANY]
            args = [word for words in page for word in words]
            answer = yield from self.bridge.ask(pair, "adapter_members_set", args, writes=True)
            unmoved += [words[2] for words, code in zip(page, answer.rest[0], strict=True) if code == 0]
            epoch = answer.epoch
        return Batch(len(wires) - len(unmoved), (), tuple(unmoved)), epoch

    def set_one(self, member: bytes, value: MemberValue, captures: Captures) -> Steps[Written | Unmoved]:
        return (yield from one_written(self.set([(member, value)], captures)))

    def remove(self, members: Iterable[bytes], captures: Captures) -> Steps[tuple[Batch, int]]:
        pair = self.bridge.pair(captures)
        names = [(self.old_name(pair, name), name) for name in dict.fromkeys(members)]
        found: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        epoch = 0
        for start in range(0, len(names), MANY):
            page = names[start : start + MANY]
            if not self._proved:
                page, epoch = yield from self._there(pair, page, found)
            if not page:
                continue
            args = [name for both in page for name in both]
            answer = yield from self.bridge.ask(pair, "adapter_members_remove", args, writes=True)
            for (_, name), code in zip(page, answer.rest[0], strict=True):
                found[code].append(name)
            epoch = answer.epoch
        return Batch(len(found[1]), tuple(found[0]), tuple(found[2])), epoch

    def _there(
        self, pair: Pair, names: Sequence[tuple[bytes, bytes]], found: dict[int, list[bytes]]
    ) -> Steps[tuple[list[tuple[bytes, bytes]], int]]:
        """Those members, by old and new name, that are there as what they are called, and the epoch; the others go to
        `found`. Raises UsageError where one is called otherwise, Unmappable where nobody can say."""
        args = [name for both in names for name in both]
        answer = yield from self.bridge.ask(pair, "adapter_members_get", args, writes=False)
        is_new, there = answer.rest[0] == b"new", list[tuple[bytes, bytes]]()
        for (old, name), raw in zip(names, answer.rest[2], strict=True):
            if raw is None or raw == 1:
                found[0 if raw is None else 2].append(name)
                continue
            value = member_from_wire(self._family.kinds["new" if is_new else "old"], raw)
            if is_new:
                so_called = self._family.unmap_member(pair, name, value)[0] == old
            else:
                so_called = self._family.map_member(pair, old, value)[0] == name
            if not so_called:
                raise self._renames() if self._origin is None else self._depends()
            there.append((old, name))
        return there, answer.epoch

    def remove_one(self, member: bytes, captures: Captures) -> Steps[Removed | Missing | Unmoved]:
        batch, epoch = yield from self.remove([member], captures)
        return Removed(epoch) if batch.done else Missing(epoch) if batch.missing else Unmoved(epoch)

    def range(self, low: float, high: float, limit: int, captures: Captures) -> WindowCore:
        if self._family.kinds["new"] != "zset":
            raise UsageError(f"{self.bridge.id} makes {self._family.kinds['new']}s, which have no scores to range over")
        if limit < 1:
            raise UsageError(f"a page of {limit} members")
        return WindowCore(self.bridge, self.bridge.pair(captures), float(low), float(high), min(limit, MANY))

    def old_name(self, pair: Pair, member: bytes) -> bytes:
        """The old member of that new name; where a move has no `origin`, names do not change. Raises Unmappable."""
        return self._family.origin(pair, member, None) if self._origin else member

    def _unmapped(self, pair: Pair, name: bytes, value: MemberValue) -> Member:
        if fault := check_member_value(self._family.kinds["new"], value):
            raise UsageError(f"{fault} for a member of a {self._family.kinds['new']}")
        return self._family.unmap_member(pair, name, value)

    def _check_name(self, name: bytes, wanted: bytes) -> None:
        if name != wanted and self._origin is None:
            raise self._renames()
        if name != wanted:
            raise Unmappable("the name is not one the mapping makes")

    def _prove(self, move: MemberMove[Any, Any]) -> bool:
        """Whether a made-up member shows that a new name tells which old member it was; False where the mapping takes
        none. Raises UsageError where one shows that it does not."""
        proved, origin, values = False, move.origin, _VALUES[move.source.kind]
        old_of: Any = move.inverse if origin is None else lambda key, name, _: (origin(key, name), None)
        for capture in (_ANY, b"1"):
            captures = dict.fromkeys(move.source.captures, capture)
            key = Key(move.source.format(captures), captures)
            made = [new for value in values if (new := _made(move.forward, key, _ANY, value))]
            names = {name for name, _ in made}
            olds = {old[0] for new in made if (old := _made(old_of, key, *new))}
            if len(names) > 1:
                raise self._depends()
            if origin is None and not names | olds <= {_ANY}:
                raise self._renames()
            proved = proved or (len(made) >= min(2, len(values)) and _ANY in olds)
        return proved

    def _depends(self) -> UsageError:
        return UsageError(
            f"{self.bridge.id}: what a member is called depends on its value, and by that name alone an adapter cannot "
            "tell which one it was",
            next="stop the application while this migration runs, or let new names depend on old ones only",
        )

    def _renames(self) -> UsageError:
        return UsageError(
            f"{self.bridge.id} changes the names of members, and a member cannot be found by its new name alone",
            next="give the MemberMove origin=lambda key, new_member: …",
        )


# Made up, in the forms that mappings take: two at least of each, far apart.
_NUMBERS = (1, 2, 1759385730, 1659300000, 1759385730123, 1659300000456, 638949825301234567, 637949000000000123)
_TEXTS = (b"2025-10-02T06:15:30Z", b"2024-03-01T12:00:00Z", b"2025-10-02T06:15:30+00:00", b"2024-03-01T12:00:00+00:00",
          b"{}", b'{"a":1}')  # fmt: skip
_VALUES: dict[Kind, Sequence[MemberValue]] = {
    "hash": (*(b"%d" % number for number in _NUMBERS), *_TEXTS),
    "zset": tuple(map(float, _NUMBERS)),
    "set": (None,),
}
_ANY = b"00000000-0000-4000-8000-000000000000"  # as good a name as any


def _made(function: Any, key: Key, name: bytes, value: MemberValue) -> tuple[bytes, Any] | None:
    """What a mapping makes of a made-up member; None where it takes no such member."""
    try:
        made = function(key, name, value)
    except Exception:  # it is the application's own, and may ask for any form
        return None
    made = made.value if isinstance(made, Mapped) else made
    return made if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], bytes) else None


def one_written(steps: Steps[tuple[Batch, int]]) -> Steps[Written | Unmoved]:
    batch, epoch = yield from steps
    return Written(epoch) if batch.done else Unmoved(epoch)


def only_batch(steps: Steps[tuple[Batch, int]]) -> Steps[Batch]:
    batch, _ = yield from steps
    return batch


class Pages(Iterator[list[P]]):
    """Pages of a window. Not a generator, which an error would end: after one, the page it was about comes next."""

    def __init__(self, run: Callable[[Steps[list[P]]], list[P]], page: Callable[[], Steps[list[P]]]) -> None:
        self._run, self._page = run, page

    def __next__(self) -> list[P]:
        if page := self._run(self._page()):
            return page
        raise StopIteration


class AsyncPages(AsyncIterator[list[P]]):
    """`Pages` for asyncio."""

    def __init__(self, run: Callable[[Steps[list[P]]], Awaitable[list[P]]], page: Callable[[], Steps[list[P]]]) -> None:
        self._run, self._page = run, page

    async def __anext__(self) -> list[P]:
        if page := await self._run(self._page()):
            return page
        raise StopAsyncIteration


class Members(Adapter):
    """Members of a MemberMove's collections: `members = Members(redis, module)`, then `members.get(b"m", name="…")`.

    A collection is named by the captures of its template; its members by their new names. A value is of the new
    shape: bytes for a hash, float for a sorted set, None for a set. Construction and errors are those of `Records`.
    An operation on one collection of at most 1000 members is one atomic step; more take several, and where a later
    one fails, the error says how many were done before it. A move whose new names hold old values, or that renames
    members without an `origin`, is refused (UsageError), at construction where a made-up member shows it. Where the
    mapping takes none that is made up, `remove` reads first, and refuses what is called otherwise by then. A name that
    `origin` takes no old member from raises Unmappable.
    """

    def __init__(self, redis: Redis, module: Module, namespace: str = "migrator", *, source: str | None = None) -> None:
        driver = Driver(redis)
        self._core = MembersCore(build(driver, module, namespace, MemberMove, source))
        super().__init__(driver, self._core.bridge)

    def get(self, member: bytes, /, **captures: Capture) -> Found | Missing | Unmoved:
        """The member's value. Raises Unmappable for one the mapping cannot carry over (it is in quarantine)."""
        return self._run(self._core.get(member, captures))

    def set(self, member: bytes, value: Any, /, **captures: Capture) -> Written | Unmoved:
        """Adds or replaces a member. Raises Unmappable for a value without an inverse, UncertainError if the
        connection was lost and the write may have happened."""
        return self._run(self._core.set_one(member, value, captures))

    def set_many(self, members: Mapping[bytes, Any], /, **captures: Capture) -> Batch:
        """The same for many; all are mapped before the first is written."""
        return self._run(only_batch(self._core.set(members.items(), captures)))

    def remove(self, member: bytes, /, **captures: Capture) -> Removed | Missing | Unmoved:
        """Removes a member in every shape."""
        return self._run(self._core.remove_one(member, captures))

    def remove_many(self, members: Iterable[bytes], /, **captures: Capture) -> Batch:
        """The same for many."""
        return self._run(only_batch(self._core.remove(members, captures)))

    def range(
        self, low: float, high: float, limit: int = MANY, /, **captures: Capture
    ) -> Iterator[list[tuple[bytes, float]]]:
        """Members with low <= score <= high in pages of at most `limit`, ascending; for sorted sets.

        A member that changes meanwhile may come twice; one that is there throughout, in the window, does come.
        Before the switch see `Timestamps.due`.
        """
        return Pages(self._run, self._core.range(low, high, limit, captures).scores)


class AsyncMembers(AsyncAdapter):
    """`Members` for asyncio. What needs Redis is looked at by `await members.open()`, or by the first call."""

    def __init__(
        self, redis: AsyncRedis, module: Module, namespace: str = "migrator", *, source: str | None = None
    ) -> None:
        driver = AsyncDriver(redis)
        self._core = MembersCore(build(driver, module, namespace, MemberMove, source))
        super().__init__(driver, self._core.bridge)

    async def get(self, member: bytes, /, **captures: Capture) -> Found | Missing | Unmoved:
        """See `Members.get`."""
        return await self._run(self._core.get(member, captures))

    async def set(self, member: bytes, value: Any, /, **captures: Capture) -> Written | Unmoved:
        """See `Members.set`."""
        return await self._run(self._core.set_one(member, value, captures))

    async def set_many(self, members: Mapping[bytes, Any], /, **captures: Capture) -> Batch:
        """See `Members.set_many`."""
        return await self._run(only_batch(self._core.set(members.items(), captures)))

    async def remove(self, member: bytes, /, **captures: Capture) -> Removed | Missing | Unmoved:
        """See `Members.remove`."""
        return await self._run(self._core.remove_one(member, captures))

    async def remove_many(self, members: Iterable[bytes], /, **captures: Capture) -> Batch:
        """See `Members.remove_many`."""
        return await self._run(only_batch(self._core.remove(members, captures)))

    def range(
        self, low: float, high: float, limit: int = MANY, /, **captures: Capture
    ) -> AsyncIterator[list[tuple[bytes, float]]]:
        """See `Members.range`."""
        return AsyncPages(self._run, self._core.range(low, high, limit, captures).scores)
