"""Records: one key each, read and written in the new shape whatever the phase."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from migrator.adapters.adapter import Adapter, AsyncAdapter, build
from migrator.adapters.aio import AsyncDriver, AsyncRedis
from migrator.adapters.bridge import Bridge, Capture
from migrator.adapters.core import Steps
from migrator.adapters.outcomes import KEEP, Found, Keep, Missing, Removed, Unmoved, Written
from migrator.adapters.sync import Driver, Redis
from migrator.errors import Unmappable, UsageError
from migrator.moves import KeyMove
from migrator.moves.loader import Module
from migrator.moves.values import Value, check_value, from_items, to_items

Expiry = int | datetime | Keep | None
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class RecordsCore:
    """The steps of each method."""

    def __init__(self, bridge: Bridge) -> None:
        self.bridge = bridge
        self._family = bridge.family

    def get(self, captures: Mapping[str, Capture]) -> Steps[Found | Missing | Unmoved]:
        pair = self.bridge.pair(captures)
        answer = yield from self.bridge.ask(pair, "adapter_get", (), writes=False)
        what, *found = answer.rest
        if what == b"none":
            return Missing(answer.epoch)
        if what == b"unmoved":
            return Unmoved(answer.epoch)
        expiry, items = found
        if what == b"new":
            value = from_items(self._family.kinds["new"], items)
        else:
            value, _ = self._family.map_key(pair, from_items(self._family.kinds["old"], items))
        return Found(value, None if expiry < 0 else expiry, answer.epoch)

    def put(self, value: Value, expires_at: Expiry, captures: Mapping[str, Capture]) -> Steps[Written | Unmoved]:
        pair, kinds = self.bridge.pair(captures), self._family.kinds
        if fault := check_value(kinds["new"], value):
            raise UsageError(f"{fault} for a {kinds['new']}")
        if not value and kinds["new"] != "string":
            raise UsageError("an empty value is no record in Redis", next="use delete")
        old = self._family.unmap_key(pair, value)
        new, _ = self._family.map_key(pair, old)
        olds, news = to_items(kinds["old"], old), to_items(kinds["new"], new)
        if not (olds and news):
            raise Unmappable("the mapping makes an empty record of it, which is none")
        args = (_expiry(expires_at), len(olds), *olds, len(news), *news)
        answer = yield from self.bridge.ask(pair, "adapter_put", args, writes=True)
        return Written(answer.epoch) if answer.rest[0] == b"written" else Unmoved(answer.epoch)

    def delete(self, captures: Mapping[str, Capture]) -> Steps[Removed | Missing | Unmoved]:
        pair = self.bridge.pair(captures)
        answer = yield from self.bridge.ask(pair, "adapter_delete", (), writes=True)
        what, epoch = answer.rest[0], answer.epoch
        return Removed(epoch) if what == b"removed" else Missing(epoch) if what == b"none" else Unmoved(epoch)


def _expiry(at: Expiry) -> int | str:
    if isinstance(at, Keep):
        return "keep"
    if at is None:
        return -1
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise UsageError("an expiry without a time zone", next="use datetime.now(UTC) + …, or unix milliseconds")
        at = (at - _EPOCH) // timedelta(milliseconds=1)
    if at <= 0:
        raise UsageError(f"{at} is no time in unix milliseconds", next="use None for no expiry, or delete")
    return at


class Records(Adapter):
    """Records of a KeyMove: `records = Records(redis, module)`, then `records.get(id="…")`.

    `module` is the migration as `migrator.moves.loader.load(directory).find(id)` gives it, `namespace` that of the
    command line, `source` the source template of the move where the migration has several. A record is named by the
    captures of its template. Values are of the new shape: bytes, dict[bytes, bytes], list[bytes], set[bytes] or
    dict[bytes, float].

    Construction raises UsageError for a client that decodes replies, a module without a KeyMove, a move without an
    inverse, templates that are never in one cluster slot; RefusedError where scripts are not permitted;
    LedgerBackwardsError where there is no marker. Every method raises UsageError for captures that name no key,
    RefusedError if the phase is `closed`, the mapping is not the one under way, the marker is of a newer tool or a key
    has another type, UnreachableError if Redis does not answer for 5 s, or in the attempt that is under way by then;
    nothing was written then. The client's own retries are for the application's other calls.
    """

    def __init__(self, redis: Redis, module: Module, namespace: str = "migrator", *, source: str | None = None) -> None:
        driver = Driver(redis)
        self._core = RecordsCore(build(driver, module, namespace, KeyMove, source))
        super().__init__(driver, self._core.bridge)

    def get(self, **captures: Capture) -> Found | Missing | Unmoved:
        """The record. Raises Unmappable for one the mapping cannot carry over (it is in quarantine)."""
        return self._run(self._core.get(captures))

    def put(self, value: Any, /, *, expires_at: Expiry = KEEP, **captures: Capture) -> Written | Unmoved:
        """Replaces the record whole, or creates it. `expires_at` is unix ms or an aware datetime, None for no expiry.

        What is stored is `inverse(value)` and `forward` of that. Raises Unmappable for a value without an inverse,
        UncertainError if the connection was lost and the write may have happened.
        """
        return self._run(self._core.put(value, expires_at, captures))

    def delete(self, **captures: Capture) -> Removed | Missing | Unmoved:
        """Removes the record in every shape. Raises UncertainError as `put` does."""
        return self._run(self._core.delete(captures))


class AsyncRecords(AsyncAdapter):
    """`Records` for asyncio. What needs Redis is looked at by `await records.open()`, or by the first call."""

    def __init__(
        self, redis: AsyncRedis, module: Module, namespace: str = "migrator", *, source: str | None = None
    ) -> None:
        driver = AsyncDriver(redis)
        self._core = RecordsCore(build(driver, module, namespace, KeyMove, source))
        super().__init__(driver, self._core.bridge)

    async def get(self, **captures: Capture) -> Found | Missing | Unmoved:
        """See `Records.get`."""
        return await self._run(self._core.get(captures))

    async def put(self, value: Any, /, *, expires_at: Expiry = KEEP, **captures: Capture) -> Written | Unmoved:
        """See `Records.put`."""
        return await self._run(self._core.put(value, expires_at, captures))

    async def delete(self, **captures: Capture) -> Removed | Missing | Unmoved:
        """See `Records.delete`."""
        return await self._run(self._core.delete(captures))
