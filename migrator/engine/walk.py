"""Visits every key of a pattern on every primary, so that a stop, a crash or a restarted server loses no place."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from migrator.client import Arg, Client, Node, ResponseError, checked, slot_moved
from migrator.engine.run import Run
from migrator.errors import NodeGoneError, RefusedError
from migrator.ledger import Checkpoint

Counts = Mapping[str, int]

_ROUNDS = 5
_MOST = 10_000  # keys a page of SCAN, which takes 3 to 5 ms for so many
_EVERY = 5000  # records between two checkpoints within a page, about


class SlotMovedError(Exception):
    """A key is no longer where the walk is: its slot moved."""


class NodeRestartedError(Exception):
    """The server process is another one: cursors and what was seen mean nothing to it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Inside a page: a key and the next cursor in it, 0 where it is finished; no key where a batch was whole keys."""

    key: bytes | None = None
    inner: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """What a batch did, and from where to go on."""

    counts: Counts
    place: Place = Place()


@dataclass(frozen=True, slots=True)
class Visit:
    """A page handed to a step: its keys, where to start in a key that was left half read, and the process asked."""

    node: Node
    run_id: str
    keys: list[bytes]
    start: Place


Step = Callable[[Visit], Iterator[Progress]]


class Walk:
    """A full walk over a pattern. `step` handles a page and may run twice over the same records.

    Without `resume` no checkpoint is kept: for walks that find nothing where they have been before.
    """

    def __init__(self, run: Run, name: str, glob: bytes, step: Step, *, count: int = 1000, resume: bool = True) -> None:
        self._resume = resume
        self._run, self._client, self._name = run, run.client, name
        self._glob, self._step, self._count = glob, step, count
        self._slots = ""

    def all(self) -> Counter[str]:
        """Walks until one walk saw every slot where it stayed. Returns the sum of the counts."""
        for attempt in range(_ROUNDS):
            if attempt:
                self._wait_for_quiet()
            self._slots = self._client.fingerprint()
            try:
                total = self._once()
                if self._client.fingerprint() == self._slots and not self._client.migrating():
                    return total
            except (SlotMovedError, NodeGoneError):
                check_markers(self._run)
            self._run.observer.say("slots moved while walking: walking again")
            self._run.lease.write(self._run.ledger.forget_words(self._run.id, self._name))
            self._run.tick()
        raise RefusedError("slots keep moving between nodes", next="let the resharding finish, then run this again")

    def _once(self) -> Counter[str]:
        if self._client.migrating():
            raise SlotMovedError
        total: Counter[str] = Counter()
        for node in self._client.nodes():
            total.update(self._node(node))
        return total

    def _wait_for_quiet(self) -> None:
        """Resharding takes its time: as long as Redis would be waited for."""
        until = time.monotonic() + self._client.patience
        while self._client.migrating() and time.monotonic() < until:
            time.sleep(0.2)
            self._run.tick()

    def _node(self, node: Node) -> Counts:
        self._run.throttle.begin()
        saved = self._run.ledger.checkpoint(self._run.id, self._name, node.id) if self._resume else None
        at = (
            saved if saved and (saved.slots, saved.epoch) == (self._slots, self._run.entry.epoch) else self._fresh(node)
        )
        while True:
            try:
                return self._pages(node, at)
            except NodeRestartedError:
                self._run.observer.say(f"{node.address} is another process now: walking it from the start")
                check_markers(self._run)
                at = self._fresh(node)

    def _pages(self, node: Node, at: Checkpoint) -> Counts:
        every = self._run.rate.at_once(_EVERY)
        self._run.spent(node, 0)
        while not at.done:
            count = max(self._count, min(_MOST, self._count * self._run.throttle.steps))
            page = self._client.page(node, at.cursor, self._glob, count)
            if at.run_id not in ("", page.run_id):
                raise NodeRestartedError
            # By name, not by order: a table that shrank puts keys of other pages in front of these.
            keys = [key for key in page.keys if key.hex() not in at.finished]
            visit = Visit(node, page.run_id, keys, Place(bytes.fromhex(at.key) or None, at.inner))
            pending: Counter[str] = Counter(at.counts)
            saved = visits(pending)
            for progress in self._step(visit):
                pending.update(progress.counts)
                self._run.observer.advance(visits(progress.counts))
                if progress.place.key is not None:
                    at = self._checkpoint(at, page.run_id, pending, at.cursor, progress.place)
                    # Not each: of many small collections every one would cost a round trip.
                    if visits(pending) - saved >= every or self._run.stop.signum:
                        self._save(at)
                        saved = visits(pending)
                # After the checkpoint: a signal is heard while it waits.
                self._run.spent(node, visits(progress.counts))
                self._run.tick()
            at = self._checkpoint(at, page.run_id, pending, page.cursor, Place(), done=page.cursor == 0)
            self._save(at)
            self._run.stop.check()
        if at.run_id != current_run_id(self._client, node):
            raise NodeRestartedError
        return at.counts

    def _fresh(self, node: Node) -> Checkpoint:
        return Checkpoint(node.id, "", self._slots, self._run.entry.epoch)

    def _checkpoint(
        self, at: Checkpoint, process: str, counts: Counts, cursor: int, place: Place, *, done: bool = False
    ) -> Checkpoint:
        key = (place.key or b"").hex()
        finished = (*at.finished, key) if key and not place.inner else at.finished if key else ()
        # Of several collections under way, the inner place of one is kept; the others would begin again.
        half, inner = (key, place.inner) if place.inner and at.key in ("", key) else (at.key, at.inner)
        if not key or (half == key and not place.inner):
            half, inner = "", 0
        return Checkpoint(at.node, process, self._slots, at.epoch, cursor, half, inner, finished, done, dict(counts))

    def _save(self, at: Checkpoint) -> None:
        if self._resume:
            words = self._run.ledger.checkpoint_words(self._run.id, self._name, at)
            self._run.lease.write([words, *self._run.book()])


def visits(counts: Counts) -> int:
    """How many records were looked at: where a step counts `scanned`, its other counts say what became of those."""
    return counts["scanned"] if "scanned" in counts else sum(counts.values())


def current_run_id(client: Client, node: Node) -> str:
    return client.process(client.on_node(node, ("INFO", "server"))[0])


def check_markers(run: Run) -> None:
    """After a restart or a failover the markers are looked at first: they may have gone back."""
    now = (run.entry.phase, run.entry.epoch)
    for marker in run.markers.read().values():
        if marker is None or (marker.phase, marker.epoch) != now:
            raise MarkersMovedError
        if run.writes and marker.fence != run.lease.fence:
            raise MarkersMovedError


class MarkersMovedError(Exception):
    """Markers are not where the ledger has them: recovery comes first."""


def inner_pages(
    client: Client, visit: Visit, key: bytes, words: Callable[[int], tuple[Arg, ...]]
) -> Iterator[tuple[int, list[bytes]]]:
    """The pages of one collection: (next cursor, flat members), from where the visit starts in it."""
    cursor = visit.start.inner if visit.start.key == key else 0
    while True:
        info, answer = client.on_node(visit.node, ("INFO", "server"), words(cursor))
        if client.process(info) != visit.run_id:
            raise NodeRestartedError
        if isinstance(answer, ResponseError) and str(answer).startswith("WRONGTYPE"):
            return
        if slot_moved(answer):
            raise SlotMovedError
        following, flat = checked(answer)
        cursor = int(following)
        yield cursor, flat
        if cursor == 0:
            return
