"""Several requests under way to one server process: while it works on some, the next are made."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence

from redis.exceptions import ResponseError

from migrator.client.wire import Arg, Node, Replies, Reply, Words, pack

# Sends requests through a `Lanes`, on the lane it began on or beside it; each bare `yield` waits for the answer to
# the oldest of its own.
Work = Generator[None, list[Reply], None]


class Lane:
    """A connection of its own. What is read and written on it, the same server process reads and writes."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._connection = node.pool.get_connection()
        self._replies = Replies(self._connection, ResponseError)
        self._owed: deque[int] = deque()

    def send(self, commands: Sequence[Words]) -> None:
        packed = pack(commands)
        self._node.links.sent += len(packed)
        self._connection.send_packed_command([packed], check_health=False)
        self._owed.append(len(commands))

    def receive(self) -> list[Reply]:
        """The answer to the oldest request; a refusal is a value."""
        return self._replies.take(self._owed.popleft())

    def close(self, *, whole: bool) -> None:
        """`whole`: nothing is under way, and the connection is as it was."""
        if not whole:
            self._connection.disconnect()
        self._node.pool.release(self._connection)


class Lanes:
    """Carries works out, a few on each lane. Raises what a lost connection raises; nothing is sent twice."""

    def __init__(self, node: Node, number: int) -> None:
        self._node, self._number = node, number
        self._lanes: list[Lane] = []
        self._waiting: deque[tuple[Lane, int, Work]] = deque()  # where an answer comes; where its work began; the work
        self._now: tuple[int, Work] | None = None

    def __enter__(self) -> Lanes:
        try:
            for _ in range(self._number):
                self._lanes.append(Lane(self._node))
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for lane in self._lanes:
            lane.close(whole=error[0] is None and not self._waiting)

    def ask(self, *commands: tuple[Arg, ...]) -> list[list[Reply]]:
        """The same on every lane, while no work is under way: the answers of each."""
        for lane in self._lanes:
            lane.send(commands)
        return [lane.receive() for lane in self._lanes]

    def send(self, *commands: Words, beside: int = 0) -> None:
        """One request of the work that is being carried out, so many lanes beside the one it began on."""
        assert self._now is not None
        base, work = self._now
        lane = self._lanes[base + beside]
        lane.send(commands)
        self._waiting.append((lane, base, work))

    def run(self, works: Iterable[Work], width: int = 1, each: int = 1) -> Iterator[None]:
        """Carries all out: at most `width` begin on a lane at a time, and on one of `each` lanes. Yields after each
        step."""
        following = iter(works)
        for base in [*range(0, self._number, each)] * width:
            self._begin(base, following)
        while self._waiting:
            lane, base, work = self._waiting.popleft()
            self._now = (base, work)
            if not self._step(work, lane.receive()):
                self._begin(base, following)
            yield

    def _begin(self, base: int, following: Iterator[Work]) -> None:
        """The next work that has something to wait for."""
        for work in following:
            self._now = (base, work)
            if self._step(work, None):
                return

    def _step(self, work: Work, replies: list[Reply] | None) -> bool:
        """Whether it goes on. Of one that ended early, the answers that still come are dropped."""
        try:
            work.send(replies)  # type: ignore[arg-type] # a generator is begun with None
        except StopIteration:
            return False
        return True
