"""Markers: the phase beside the data, one in each slot, read by every script in the same step as the data."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from migrator.client import Arg, Client, Command, Reply, ResponseError, checked, replicate
from migrator.errors import FencedError, LedgerBackwardsError, RefusedError
from migrator.names import Names
from migrator.phases.table import PHASES, Phase, transition
from migrator.scripts import script

_BATCH = 2048
_RUN = 256
FORMAT = b"1"
FIELDS = ("format", "phase", "epoch", "fence", "token", "checksum")


@dataclass(frozen=True, slots=True)
class Fence:
    """Who may write: a number that only goes up and a random token, compared whole.

    After a failover two holders can be given the same number, never the same token.
    """

    number: int
    token: str


NO_FENCE = Fence(0, "")


@dataclass(frozen=True, slots=True)
class Marker:
    """What one slot says."""

    phase: Phase
    epoch: int
    fence: Fence
    checksum: str


@dataclass(frozen=True, slots=True)
class Guard:
    """What a script of the tool was planned under; it does nothing once any of it changed."""

    phases: tuple[Phase, ...]
    epoch: int
    fence: Fence

    def allows(self, marker: Marker | None) -> bool:
        """What `guard()` of the scripts says of a marker that was read."""
        return (
            marker is not None
            and marker.phase in self.phases
            and (marker.epoch, marker.fence) == (self.epoch, self.fence)
        )

    def watches(self, id: str, watched: Reply, found: Reply) -> bool:
        """Whether a marker is watched (what WATCH said) and was as it is allowed to be after that (HMGET of `FIELDS`):
        then a transaction does nothing once that is no longer so."""
        return watched == b"OK" and not isinstance(found, ResponseError) and self.allows(marker_of(id, found))

    def args(self) -> tuple[Arg, ...]:
        return ("," + ",".join(self.phases) + ",", self.epoch, self.fence.number, self.fence.token)


def refusal(reply: Reply, id: str) -> Reply:
    """The reply of a guarded script, unless its guard refused: then the error that says why."""
    if isinstance(reply, ResponseError):
        checked(reply)
    if isinstance(reply, list) and reply and isinstance(reply[0], bytes):
        if reply[0] == b"fenced":
            raise FencedError(
                f"{id}: another process took over the lease; this one stops without another write",
                next="see who holds it with: migrator lock show",
            )
        if reply[0] == b"no-marker":
            raise LedgerBackwardsError(
                f"{id}: a marker is missing where one was before (a flush, an eviction or a lost failover)",
                next="run migrator status, then see the runbook 'resume after a crash'",
            )
        if reply[0] == b"phase":
            raise FencedError(
                f"{id}: the phase changed underfoot to {reply[1].decode()} (epoch {reply[2].decode()})",
                next="run migrator status to see where it stands",
            )
    return reply


class FenceTakenError(Exception):
    """A marker has seen this number: after a failover the lease can be given one twice."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Markers:
    """All markers of one migration. `slots` are those its keys can be in."""

    def __init__(
        self,
        client: Client,
        names: Names,
        id: str,
        slots: Sequence[int],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._names, self._id, self._clock = client, names, id, clock
        self.slots = slots
        self.tick: Callable[[], None] = lambda: None  # called between batches: keeps the lease, hears signals

    def key(self, slot: int) -> bytes:
        return self._names.marker(self._id, self._client.slot_tag(slot))

    def key_for(self, key: bytes) -> bytes:
        """The marker beside a key."""
        return self.key(self._client.slot(key))

    def read(self, slots: Iterable[int] | None = None) -> dict[int, Marker | None]:
        """Every marker as it is now; None where one is missing. Raises RefusedError for one of a newer tool."""
        chosen = list(self.slots if slots is None else slots)
        replies = self._each(chosen, lambda key: ("HMGET", key, *FIELDS))
        return {slot: marker_of(self._id, reply) for slot, reply in zip(chosen, replies, strict=True)}

    def create(self, phase: Phase, epoch: int, fence: Fence, checksum: str, slots: Collection[int]) -> None:
        """Gives slots without a marker one in the phase stated."""
        args = (phase, epoch, fence.number, fence.token, checksum)
        self._scripts(slots, "marker_init", args)

    def raise_fence(self, fence: Fence) -> dict[int, Marker | None]:
        """Raises the fence in every slot and returns every marker as it is then; None where one is missing.

        Raises FenceTakenError where a marker has seen a number as high from somebody else.
        """
        found: dict[int, Marker | None] = {}
        replies = self._scripts(self.slots, "fence", (fence.number, fence.token))
        for slot, reply in zip(self.slots, replies, strict=True):
            if reply[0] == b"fenced":
                raise FenceTakenError(max(int(r[1]) for r in replies if r[0] == b"fenced"))
            _, form, phase, epoch, checksum = reply if reply[0] == b"ok" else (None,) * 5
            found[slot] = marker_of(self._id, (form, phase, epoch, fence.number, fence.token.encode(), checksum))
        return found

    def change(
        self,
        fence: Fence,
        source: tuple[Phase, int],
        target: Phase,
        checksum: str,
        slots: Collection[int] | None = None,
    ) -> int:
        """Moves markers from exactly `source` (phase, epoch) to `target`; returns the new epoch. May be repeated.

        Raises RefusedError if the table has no such step, FencedError if a marker is not where it should be.
        """
        phase, epoch = source
        to_epoch = epoch if transition(phase, target).keeps_epoch else epoch + 1
        self.set(fence, source, (target, to_epoch), checksum, self.slots if slots is None else slots)
        return to_epoch

    def set(
        self, fence: Fence, source: tuple[Phase, int], target: tuple[Phase, int], checksum: str, slots: Collection[int]
    ) -> None:
        """Compare-and-set without asking the table: for `change`, for recovery, and to write a checksum."""
        args = (fence.number, fence.token, *source, *target, checksum)
        for reply in self._scripts(slots, "marker", args):
            refusal(reply, self._id)

    def durable(self, fence: Fence, now: tuple[Phase, int], checksum: str) -> str:
        """Waits until every replica has the markers, then reads them back on every node. Returns what it could not do.

        Raises RefusedError if too few replicas follow within the client's patience.
        """
        unsaid = self._replicate("marker", (fence.number, fence.token, *now, *now, checksum), self.slots)
        for slot, marker in self.read().items():
            if marker is None or (marker.phase, marker.epoch) != now:
                raise FencedError(
                    f"{self._id}: the marker of slot {slot} did not stay at {now[0]}", next="run the command again"
                )
        return unsaid

    def fence_durable(self, fence: Fence, slots: Collection[int]) -> str:
        """Waits until every replica has the fence, raised in these slots before. Returns and raises as `durable`."""
        return self._replicate("fence", (fence.number, fence.token), slots)

    def _replicate(self, name: str, args: tuple[Arg, ...], slots: Collection[int]) -> str:
        """Writes one marker on each primary and waits for its replicas."""
        unsaid = ""
        for key in self._one_on_each(list(slots)):
            write = Command.eval(script(name), [key], args)
            missing = replicate(self._client, write, lambda reply: refusal(reply, self._id), self.tick, self._clock)
            unsaid = unsaid or missing
        return unsaid

    def _one_on_each(self, slots: list[int]) -> Iterable[bytes]:
        """A marker on each primary that has any of these slots."""
        found: dict[str, bytes] = {}
        number = len(self._client.nodes())
        # Slots lie in long runs: a few of them nearly always know every primary.
        for slot in (*slots[::_RUN], *slots):
            key = self.key(slot)
            found.setdefault(self._client.node_of(key).id, key)
            if len(found) == number:
                break
        return found.values()

    def _scripts(self, slots: Collection[int], name: str, args: tuple[Arg, ...]) -> list[Reply]:
        chosen, code = list(slots), script(name)
        return self._each(chosen, lambda key: ("EVALSHA", code.sha, 1, key, *args), name)

    def _each(self, slots: list[int], args: Callable[[bytes], tuple[Arg, ...]], name: str = "") -> list[Reply]:
        replies: list[Reply] = []
        code = script(name) if name else None
        for start in range(0, len(slots), _BATCH):
            keys = [self.key(slot) for slot in slots[start : start + _BATCH]]
            replies += [checked(r) for r in self._client.run([Command(key, args(key), code) for key in keys])]
            self.tick()
        return replies


def marker_of(id: str, reply: Reply) -> Marker | None:
    """The marker in a reply of HMGET with `FIELDS`, whatever was asked for behind them; None where there is none.
    Raises RefusedError for one of a newer tool."""
    form, phase, epoch, fence, token, checksum, *_ = reply
    if phase is None:
        return None
    name = phase.decode()
    if form != FORMAT or name not in PHASES:
        raise RefusedError(
            f"{id}: a marker has format {(form or b'?').decode()}, phase {name!r}: written by a newer migrator",
            next="use the version of migrator that wrote it",
        )
    return Marker(name, int(epoch), Fence(int(fence or 0), (token or b"").decode()), (checksum or b"").decode())
