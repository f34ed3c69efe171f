"""One member of a collection, copied in windows: a page is read once and added with NX, without comparing.

What keeps a window from bringing back a deleted member is a log of deletes, one for each epoch of `expanded`. Its
length is all that is looked at, so in Redis it is a count in the marker, which only goes up. The collection lives as
long as it has a member; it may also expire, which no log tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.search import Found, search
from tests.model.server import EXPANDED, NAMES, PENDING, forward


class Window(NamedTuple):
    """A page under way: the length of the log before it was read, and, once `read`, the member in it."""

    epoch: int
    log: int
    read: bool
    value: int


class Collection(NamedTuple):
    """`other`: another member keeps the collection alive. `last` is the last acknowledged write of ours."""

    phase: int
    epoch: int
    old: int
    new: int
    other: bool
    log: int
    last: int
    version: int
    window: Window | None


class Members(NamedTuple):
    """The configuration: how far the epoch and the versions go."""

    epoch: int
    version: int

    def search(self, without: str = "", limit: int = 10_000_000) -> Found[Collection]:
        starts = [Collection(PENDING, 0, v, 0, other, 0, v, v + 1, None) for v in (0, 1) for other in (False, True)]
        return search(starts, lambda c: _moves(c, self, without), _fault, limit)


Moves = Iterator[tuple[str, Collection]]


def _moves(c: Collection, bounds: Members, without: str) -> Moves:
    yield from _adapters(c, bounds, without)
    yield from _phases(c, bounds)
    if c.window is None:
        if c.phase == EXPANDED:
            yield "a window begins: the length of the log", c._replace(window=Window(c.epoch, c.log, False, 0))
    elif not c.window.read:
        log = c.log if without == "the log is read first" else c.window.log
        window = c.window._replace(read=True, log=log, value=c.old)
        yield "the page is read", c._replace(window=window if c.old else None)
    else:
        yield "the window's script", _script(c, c.window, without)._replace(window=None)


def _script(c: Collection, window: Window, without: str) -> Collection:
    if (c.phase, c.epoch) != (EXPANDED, window.epoch) and without != "the epoch of window and log":
        return c
    if not (c.old or c.other) and without != "the source exists":
        return c
    if c.log != window.log:  # somebody was deleted since: compare
        return c._replace(new=forward(window.value)) if c.old == window.value else c
    return c if c.new else c._replace(new=forward(window.value))


def _adapters(c: Collection, bounds: Members, without: str) -> Moves:
    both = c.phase == EXPANDED
    logs = both and without != "a new collection is logged"
    born = int(logs and not (c.old or c.other))
    if c.version <= bounds.version:
        new = forward(c.version) if both else c.new
        yield (
            f"an adapter puts {c.version}",
            c._replace(old=c.version, new=new, last=c.version, version=c.version + 1, log=c.log + born),
        )
    if c.log < 3:
        if c.old:
            log = c.log + int(both and without != "deletes are logged")
            yield "an adapter deletes it", c._replace(old=0, new=0 if both else c.new, last=0, log=log)
        if c.other:
            yield "an adapter deletes the other member", c._replace(other=False)
        else:
            yield "an adapter puts the other member", c._replace(other=True, log=c.log + born)
        if c.old or c.other:
            new = 0 if both else c.new
            yield "the collection expires", c._replace(old=0, new=new, other=False, last=0)


def _phases(c: Collection, bounds: Members) -> Moves:
    """There and back. The window may still be on its way; its copy is removed in `pending`, its log with it."""
    if c.phase == EXPANDED:
        yield "marker -> pending", c._replace(phase=PENDING, epoch=c.epoch + 1)
    elif c.new:
        yield "the new member is cleaned up", c._replace(new=0)
    elif c.epoch < bounds.epoch:
        yield "marker -> expanded, with a log of its own", c._replace(phase=EXPANDED, epoch=c.epoch + 1, log=0)


def _fault(c: Collection) -> str:
    if c.phase == EXPANDED and c.new not in (0, forward(c.old)):
        return "a deleted member came back" if not c.old else "a stale member lies in the new collection"
    return "" if c.old == c.last else "the old collection lost a write"


def show(c: Collection) -> str:
    """A state in one line."""
    return (
        f"{NAMES[c.phase]}/{c.epoch} | old {c.old or '-'} new {c.new or '-'} other {'yes' if c.other else 'no'} | "
        f"log {c.log} | window {tuple(c.window) if c.window else '-'}"
    )
