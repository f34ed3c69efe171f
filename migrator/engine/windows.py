"""The quick way to copy members: windows of a collection, sorted, and added where nothing is (protocol, rule 24).

It is open only in `expanded` and only to copies that were proved empty when that epoch began: whatever is in the copy
is then newer than the window, and only a deletion can make a window wrong. Adapters count deletions in the marker; a
window that finds the count changed is compared member by member, as everything is elsewhere.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from migrator.client import Arg, Lanes, Reply, ResponseError, Work
from migrator.engine.copy import FORWARD, copy_members, read_again
from migrator.engine.overlap import Count, Left, carry, fields_never_expire, starts
from migrator.engine.run import Run
from migrator.engine.walk import Counts, Place, Progress, Visit
from migrator.keys import Kind
from migrator.moves.family import Entry, Family, Pair
from migrator.moves.values import members_from_page, scan_words
from migrator.phases import Phase
from migrator.phases.markers import refusal
from migrator.scripts import script

WINDOW = 100_000  # members, in all windows that are being filled
CHUNK = 2000  # members a script, at most
_PHASES: tuple[Phase, ...] = ("expanded",)
_TARGETS: tuple[Kind, ...] = ("zset", "set")
_LEAST = 50
_AHEAD = 4  # chunks under way once nothing is left to read
_score = itemgetter(0)


def open_to(run: Run, family: Family, visit: Visit) -> bool:
    """Whether windows may be used here: in this epoch, for copies that were empty when it began."""
    return (
        run.client.named(visit.run_id)
        and run.entry.phase in _PHASES
        and run.entry.empty_at == run.entry.epoch
        and family.kinds["new"] in _TARGETS
        and fields_never_expire(run, family, visit)
    )


@dataclass
class Chunk:
    """Members of a window, and the count of deletions before the first of it was read. `place` is set with the last
    chunk of a window: all before it is copied then."""

    deletes: bytes
    entries: list[Entry]
    place: Place = field(default_factory=Place)


@dataclass
class Window:
    """A window that is full, and how much of it is sent."""

    whole: Chunk
    sent: int = 0

    def chunk(self, size: int) -> Chunk:
        """The next members of it."""
        entries = self.whole.entries[self.sent : self.sent + size]
        self.sent += size
        return Chunk(self.whole.deletes, entries, self.whole.place if self.empty else Place())

    @property
    def empty(self) -> bool:
        return self.sent >= len(self.whole.entries)


@dataclass
class Filled:
    """How many members the windows of all collections hold."""

    members: int = 0


class Collection:
    """One collection on its way. `cursor`: from where all is to be done again if the connection is lost."""

    def __init__(self, run: Run, family: Family, pair: Pair, cursor: int, filled: Filled, told: list[Progress]) -> None:
        self.pair, self.cursor, self.done = pair, cursor, False
        self._run, self._family, self._filled, self._told = run, family, filled, told
        self._marker = run.markers.key_for(pair.old)
        self._head: list[Arg] = [*run.guard(*_PHASES).args(), family.kinds["old"], family.kinds["new"]]
        self._window: list[Entry] = []
        self._deletes = b"0"
        self._full: deque[Window] = deque()

    def work(self, lanes: Lanes, count: Count) -> Work:
        """Asks for the next page before it looks at this one, and sends as much with it: neither side waits."""
        asked: deque[Chunk | None] = deque()  # None: a page
        self._ask_page(lanes, asked, self.cursor, count())
        while asked:
            replies = yield
            chunk = asked.popleft()
            if chunk is not None:
                self._settle(chunk, replies[0])
            elif (page := _page(replies)) is None:
                return  # left to the other way, which says what it is
            else:
                deletes, cursor, flat = page
                if cursor:
                    self._ask_page(lanes, asked, cursor, count())
                    self._send_chunks(lanes, asked, len(flat) // 2)
                self._take(deletes, flat)
                if not cursor or self._filled.members >= self._run.rate.at_once(WINDOW):
                    self._cut(cursor)
            if None not in asked:
                self._send_chunks(lanes, asked, (_AHEAD - len(asked)) * CHUNK, _AHEAD - len(asked))
        self._run.quarantine.release(self.pair)
        self.done = True

    def _ask_page(self, lanes: Lanes, asked: deque[Chunk | None], cursor: int, count: int) -> None:
        words = scan_words(self._family.kinds["old"], self.pair.old, cursor, count)
        lanes.send(("HGET", self._marker, "deletes"), words)
        asked.append(None)

    def _take(self, deletes: bytes, flat: Sequence[bytes]) -> None:
        """Puts a page into the window; what cannot be mapped goes the other way, to be listed."""
        if not self._window:
            self._deletes = deletes
        entries, odd = self._family.map_page(self.pair, members_from_page(self._family.kinds["old"], flat))
        self._window += entries
        self._filled.members += len(entries)
        for start in range(0, len(odd), CHUNK):
            part = odd[start : start + CHUNK]
            self._told.append(Progress(copy_members(self._run, self._family, FORWARD, self.pair, part)))

    def _cut(self, cursor: int) -> None:
        """Sorted: a sorted set takes neighbours faster, about twice so. `cursor`: where the next window begins."""
        window, self._window = self._window, []
        self._filled.members -= len(window)
        if self._family.kinds["new"] == "zset":
            window.sort(key=_score)
        self._full.append(Window(Chunk(self._deletes, window, Place(self.pair.old, cursor))))

    def _send_chunks(self, lanes: Lanes, asked: deque[Chunk | None], members: int, most: int = 1000) -> None:
        """Sends so many members, or a few more, in at most so many chunks."""
        code, size = script("copy_window"), self._run.at_once(CHUNK, _LEAST)
        while self._full and members > 0 and most > 0:
            chunk = self._full[0].chunk(size)
            if self._full[0].empty:
                self._full.popleft()
            members, most = members - size, most - 1
            words: list[Arg] = ["EVALSHA", code.sha, 3, self._marker, self.pair.old, self.pair.new, *self._head]
            words.append(chunk.deletes)
            for value, new, _ in chunk.entries:
                words += (new,) if value is None else (value, new)
            lanes.send(tuple(words))
            asked.append(chunk)

    def _settle(self, chunk: Chunk, reply: Reply) -> None:
        """What became of a chunk. Whatever is not plain goes the other way, which compares and knows every refusal."""
        number = len(chunk.entries)
        if isinstance(reply, int):
            self._tell(chunk, {"scanned": number, "moved": reply, "unchanged": number - reply})
            for _, _, name in chunk.entries if len(self._run.quarantine) else ():
                self._run.quarantine.release(self.pair, name)
        else:
            if not isinstance(reply, ResponseError):
                refusal(reply, self._run.id)
            self._tell(chunk, self._compare([name for _, _, name in chunk.entries]))

    def _compare(self, names: list[bytes]) -> Counter[str]:
        """Read again and copied by compare-and-set."""
        counts: Counter[str] = Counter()
        members = read_again(self._run, self._family.kinds["old"], self.pair.old, names, counts)
        counts["scanned"] = counts["vanished"]
        return counts + copy_members(self._run, self._family, FORWARD, self.pair, members)

    def _tell(self, chunk: Chunk, counts: Counts) -> None:
        if chunk.place.key is not None:
            self.cursor = chunk.place.inner
        self._told.append(Progress(counts, chunk.place))


def _page(replies: Sequence[Reply]) -> tuple[bytes, int, list[bytes]] | None:
    """The count of deletions, the next cursor, the flat members; None for anything but a page."""
    deletes, answer = replies
    if isinstance(deletes, ResponseError) or not isinstance(answer, list):
        return None
    return deletes or b"0", int(answer[0]), answer[1]


def copy_collections(run: Run, family: Family, visit: Visit, pairs: Sequence[Pair]) -> Generator[Progress, None, Left]:
    """Copies collections of one node; returns what is to be done the other way: all, where windows are not open."""
    all_ = starts(visit, pairs, "old")
    if not open_to(run, family, visit):
        return all_
    told: list[Progress] = []
    filled = Filled()
    under_way = [Collection(run, family, pair, cursor, filled, told) for pair, cursor in all_]
    return (yield from carry(run, visit, under_way, told, "copy_window"))
