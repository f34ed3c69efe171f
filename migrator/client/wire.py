"""Commands and replies, and the one exchange of them with a node."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import redis
from hiredis import Reader, pack_command
from redis._parsers import BaseParser
from redis.exceptions import AskError, NoPermissionError, OutOfMemoryError, ReadOnlyError, ResponseError, TryAgainError
from redis.sentinel import SentinelConnectionPool

from migrator.errors import RefusedError
from migrator.scripts import Script

Arg = bytes | str | int | float
Reply = Any  # RESP2: bytes, int, None, list of these, or ResponseError
Words = tuple[Arg, ...] | bytes  # a command, or the same as it goes over the wire


class Command(NamedTuple):
    """A command and the key whose slot it goes to. A script is sent by its digest and, if unknown, by its text."""

    key: bytes
    args: tuple[Arg, ...]
    script: Script | None = None

    @staticmethod
    def eval(script: Script, keys: Sequence[bytes], args: Sequence[Arg]) -> Command:
        return Command(keys[0], ("EVALSHA", script.sha, len(keys), *keys, *args), script)

    def packed(self, *, whole: bool = False) -> tuple[Arg, ...]:
        if whole and self.script:
            return ("EVAL", self.script.text, *self.args[2:])
        return self.args


class Links:
    """Counts the connections to a node: a pool replaces a dead idle one without a word. `sent`: bytes, on all."""

    def __init__(self) -> None:
        self.made = self.sent = 0
        self._socket: Any = lambda: None

    def note(self, connection: Any) -> None:
        if connection._sock is not self._socket():
            # Weakly: a socket that is held here outlives its connection and is never closed.
            self._socket = weakref.ref(connection._sock)
            self.made += 1


@dataclass(frozen=True, slots=True)
class Node:
    """A primary. `id` is stable while the node is the same; the run_id is read with every page of a walk."""

    id: str
    address: str
    pool: redis.ConnectionPool
    links: Links = field(default_factory=Links, compare=False)


def exchange(node: Node, commands: Sequence[Words], *, asking: bool = False) -> list[Reply]:
    """Sends all commands in one go on one connection and reads as many replies; refusals are values.

    With `asking` each is preceded by ASKING, which a node needs for a slot it is about to own and others ignore.
    """
    if asking:
        return exchange(node, [word for words in commands for word in (("ASKING",), words)])[1::2]
    connection = node.pool.get_connection()
    node.links.note(connection)
    try:
        packed = pack(commands)
        node.links.sent += len(packed)
        connection.send_packed_command([packed], check_health=False)
        replies = Replies(connection, BaseParser.parse_error).take(len(commands))
        for reply in replies:
            if isinstance(reply, redis.ConnectionError):
                raise reply  # LOADING, NOAUTH and their like: a connection that is of no use
            if isinstance(node.pool, SentinelConnectionPool) and is_refusal(reply, READ_ONLY):
                raise redis.ConnectionError("the primary is a replica now")  # the sentinel knows the next one
        return replies
    except BaseException:
        connection.disconnect()
        raise
    finally:
        node.pool.release(connection)


def pack(commands: Sequence[Words]) -> bytes:
    """As they go over the wire. In C: a phase change on a cluster is 16384 commands, and redis-py packs in Python."""
    return b"".join([words if type(words) is bytes else pack_command(words) for words in commands])  # type: ignore[arg-type] # its stub is for one type


def pack_each(name: str, keys: Iterable[bytes], *rest: Arg) -> list[bytes]:
    """One command for each of many keys, which stand behind its name. Half the time of packing one by one."""
    head, _, tail = pack_command((*name.split(), b"", *rest)).partition(b"$0\r\n")  # type: ignore[arg-type] # the same
    return [b"%b$%d\r\n%b%b" % (head, len(key), key, tail) for key in keys]


def pack_pairs(name: bytes, key: bytes, pairs: Mapping[bytes, bytes]) -> bytes:
    """A command on a key with names and values. Half the time it takes in C: what goes before a name or a value is
    there already, and joined, not formatted."""
    parts = [b"*%d\r\n$%d\r\n%b\r\n$%d" % (2 + 2 * len(pairs), len(name), name, len(key)), key]
    named, length = _NAMED, _LENGTH
    for field_name, value in pairs.items():
        parts += (named[field_name], length[len(value)], value)
    parts.append(b"")
    return b"\r\n".join(parts)


class _Named(dict[bytes, bytes]):
    """Names with their length before them; as many as there are in a few records."""

    def __missing__(self, name: bytes) -> bytes:
        made = b"$%d\r\n%b" % (len(name), name)
        if len(self) < 1000 and len(name) < 1000:
            self[name] = made
        return made


class _Length(dict[int, bytes]):
    def __missing__(self, length: int) -> bytes:
        made = b"$%d" % length
        if length < 10_000:
            self[length] = made
        return made


_NAMED, _LENGTH = _Named(), _Length()

_BYTES = 64 * 1024  # read at a time


class Replies:
    """Reads replies off a connection; `refusal` makes the value of what the server refuses.

    It does so by itself: redis-py's layers around its parser take three times as long as the parser (measured: 9 and
    3 µs a reply under a profiler), and a migration reads several replies a record.
    """

    def __init__(self, connection: Any, refusal: Callable[[str], Exception]) -> None:
        self._connection = connection
        self._reader = Reader(replyError=refusal)

    def take(self, number: int) -> list[Reply]:
        """So many replies."""
        gets, replies = self._reader.gets, list[Reply]()
        for _ in range(number):
            # False: it is not whole yet. No reply is False in RESP2.
            while (reply := gets()) is False:
                self._feed()
            replies.append(reply)
        return replies

    def _feed(self) -> None:
        read = self._connection._sock.recv(_BYTES)
        if not read:
            raise redis.ConnectionError("the server closed the connection")
        self._reader.feed(read)


def slot_moved(reply: Reply) -> bool:
    """Whether a node refused because the key's slot is leaving it or has left (MovedError is an AskError)."""
    return isinstance(reply, (AskError, TryAgainError))


# Redis 6 says of a command inside a script "-OOM …", "-READONLY …", in the middle of a sentence.
READ_ONLY = re.compile(r"(?:^|-)READONLY\b")
_FULL = re.compile(r"(?:^|-)OOM\b")
NO_DISK = re.compile(r"(?:^|-)MISCONF\b")
# The last two are said of a command inside a script, by Redis 7 and by Redis 6.
_DENIED = re.compile("NOPERM|ACL failure in script|The user executing the script can't")
_CLASSES = {READ_ONLY: ReadOnlyError, _FULL: OutOfMemoryError, _DENIED: NoPermissionError}


def is_refusal(reply: Reply, said: re.Pattern[str]) -> bool:
    """Whether a server refused in these words; redis-py takes some of them off and gives the error a class instead."""
    if not isinstance(reply, ResponseError):
        return False
    return isinstance(reply, _CLASSES.get(said, ())) or said.search(str(reply)) is not None


def checked(reply: Reply) -> Reply:
    """The reply, unless it is a refusal: then it is raised in this tool's words."""
    if not isinstance(reply, ResponseError):
        return reply
    if is_refusal(reply, _DENIED):
        raise RefusedError(
            f"this user may not do that: {reply}", next="grant the command or key in the ACL, then run it again"
        )
    if is_refusal(reply, _FULL):
        raise RefusedError(f"Redis is out of memory: {reply}", next="free memory or raise maxmemory; the run resumes")
    if is_refusal(reply, NO_DISK):
        raise RefusedError(
            f"Redis takes no writes, as it cannot save to disk: {reply}",
            next="see the server's log, mostly the disk is full; then run the same command again: it goes on",
        )
    raise reply


def where(address: str, error: BaseException) -> str:
    """What went wrong and where; many errors of the socket say the address themselves."""
    text = reason(error)
    return text if not address or address in text else f"{address}: {text}"


def reason(error: BaseException) -> str:
    return str(error) or type(error).__name__
