"""One fakeredis whose whole state can be kept and put back, and whose scripts can be changed in memory.

What fakeredis does not have is answered here, as a server with no replica, no memory limit and one life does: INFO,
ROLE. MEMORY USAGE stays a refusal, which the tool takes for "not to be asked". A script is found by its digest only.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import fakeredis
from hiredis import Reader
from redis._parsers import Encoder
from redis.exceptions import ResponseError

from migrator.client import Reply
from migrator.scripts import script
from tests.explorer.footprint import Footprint, Words, as_bytes, footprint, script_names

Ask = Callable[[Words], Reply]
_INFO = b"run_id:0123456789abcdef\r\nrole:master\r\nconnected_slaves:0\r\n# Keyspace\r\ndb0:subexpiry=0\r\n"
_ANSWERS: dict[bytes, Reply] = {b"INFO": _INFO, b"ROLE": [b"master", 0, []]}


class _Kept(dict[bytes, Any]):
    """All keys, and how often each was changed in a schedule."""

    def __init__(self, items: Mapping[bytes, Any], touched: Mapping[bytes, int]) -> None:
        super().__init__(items)
        self.touched = dict(touched)


class _Lua:
    """In the place of fakeredis's Lua: a script is compiled once, not at each call, and not every call is followed by
    a search for garbage, for which Lua looks by itself."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self._compiled: dict[bytes, Callable[[], Any]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def execute(self, script: bytes | str) -> Any:
        if script == "collectgarbage()":
            return None
        assert isinstance(script, bytes)
        if script not in self._compiled:
            self._compiled[script] = self._runtime.compile(script)
        return self._compiled[script]()


class FakeServer:
    """Runs commands, one at a time."""

    def __init__(self) -> None:
        self._server = fakeredis.FakeServer(version=(7, 2))
        self._connection = fakeredis.FakeRedis(server=self._server, protocol=2).connection_pool.get_connection()
        self._touched: dict[bytes, int] = {}
        self._load()
        self.run(("EVAL", "return 1", 0))
        inside = vars(self._server)
        inside["_lua_runtime"] = _Lua(inside["_lua_runtime"])

    @contextmanager
    def changed(self, text: str, into: str) -> Iterator[None]:
        """With that text of the scripts and their libraries replaced. Raises AssertionError if none has it."""
        assert self._load(text, into), f"no script has {text!r}"
        try:
            yield
        finally:
            self._load()

    def _load(self, text: str = "", into: str = "") -> int:
        """Puts all scripts where EVALSHA looks; how many of them were changed."""
        changed = 0
        for name in script_names():
            made = script(name)
            body = made.text.replace(text.encode(), into.encode()) if text else made.text
            changed += body != made.text
            self._server.script_cache[made.sha] = body
        return changed

    def run(self, words: Words) -> Reply:
        """The reply; a refusal is a value."""
        if (name := as_bytes(words[0]).upper()) in _ANSWERS:
            return _ANSWERS[name]
        if name == b"WATCH":
            return [self._touched.get(key, 0) for key in words[1:]]
        if name == b"EXEC":
            return self._transaction(*words[1:])
        items = self._server.dbs[0]._dict
        for key in footprint(words).writes & items.keys():
            # What was kept stays as it was. (A deep copy is the same, and takes twice as long.)
            items[key] = pickle.loads(pickle.dumps(items[key]))
        try:
            self._connection.send_command(*words)
            return self._connection.read_response(disable_decoding=True)
        except ResponseError as error:
            return error

    def _transaction(self, watched: Sequence[tuple[bytes, int]], queued: Sequence[Words]) -> Reply:
        """Nothing if one of the watched keys was touched since, be it that it is the same again."""
        if any(self._touched.get(key, 0) != times for key, times in watched):
            return None
        return [self.run(words) for words in queued]

    def watched(self, words: Words) -> tuple[Reply, Footprint]:
        """The reply, and what the command touched: what it might have changed and left as it was, it only read."""
        may = footprint(words).writes
        before = self._seen(may)
        reply = self.run(words)
        after = self._seen(may)
        wrote = frozenset(key for key in may if before.get(key) != after.get(key))
        self._touched |= {key: self._touched.get(key, 0) + 1 for key in wrote}
        return reply, footprint(words, reply).done(wrote, wrote & before.keys() & after.keys())

    def _seen(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        items = self._server.dbs[0]._dict
        return {key: pickle.dumps(items[key]) for key in keys if key in items}

    def keep(self) -> dict[bytes, Any]:
        """All keys as they are now. A write makes a copy of what it changes, so this one does not change any more."""
        return _Kept(self._server.dbs[0]._dict, self._touched)

    def put_back(self, kept: Mapping[bytes, Any]) -> None:
        """Past the database's own methods: nobody waits here for a key, and nothing expires in the time of a test."""
        self._server.dbs[0]._dict = dict(kept)
        self._touched = dict(kept.touched) if isinstance(kept, _Kept) else {}


class Pool:
    """In the place of a connection pool, for the tool's client and for redis-py's alike: each command is handed to
    `ask`, which may let others go first."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.connection_kwargs: dict[str, Any] = {}

    def get_connection(self) -> _Connection:
        return _Connection(self)

    def get_encoder(self) -> Encoder:
        return Encoder("utf-8", "strict", False)

    def release(self, connection: _Connection) -> None: ...

    def disconnect(self) -> None: ...


class _Socket:
    """For what reads replies by itself: one whole reply at a time, for it is carried out as it is read."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    def recv(self, _: int) -> bytes:
        return _on_the_wire(self._connection.next_reply())


def _on_the_wire(reply: Reply) -> bytes:
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, ResponseError):
        return b"-%s\r\n" % str(reply).encode()
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, list):
        return b"*%d\r\n" % len(reply) + b"".join(map(_on_the_wire, reply))
    text = reply if isinstance(reply, bytes) else str(reply).encode()
    return b"$%d\r\n%s\r\n" % (len(text), text)


class _Connection:
    """What it watches is kept here, with the actor, and a transaction is one step: its EXEC."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._watches: list[tuple[bytes, int]] = []
        self._queued: list[Words] | None = None
        self._waiting: list[list[bytes]] = []
        self._sock = _Socket(self)

    def send_packed_command(self, packed: Sequence[bytes], *, check_health: bool) -> None:  # noqa: ARG002 - redis-py's own
        reader = Reader()
        for piece in packed:
            reader.feed(piece)
        while (words := reader.gets()) is not False:
            self._waiting.append(words)

    def read_response(self, *, disable_decoding: bool) -> Reply:  # noqa: ARG002 - always so
        reply = self.next_reply()
        if isinstance(reply, ResponseError):
            raise reply
        return reply

    def next_reply(self) -> Reply:
        return self._answer(self._waiting.pop(0))

    def _answer(self, words: list[bytes]) -> Reply:
        name = words[0]
        if name == b"EXEC":
            queued, self._queued = self._queued or [], None
            watches, self._watches = tuple(self._watches), []
            return self._pool.ask((name, watches, tuple(queued)))
        if self._queued is not None:
            self._queued.append(tuple(words))
            return b"QUEUED"
        if name == b"MULTI":
            self._queued = []
        elif name == b"UNWATCH":
            self._watches = []
        elif name == b"WATCH":
            self._watches += zip(words[1:], self._pool.ask(words), strict=True)
        elif name != b"SCRIPT":  # all are loaded
            return self._pool.ask(words)
        return b"OK"

    def disconnect(self) -> None: ...
