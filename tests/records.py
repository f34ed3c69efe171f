"""Realistic records in any number: jobs of three eras (about 0.9 kB each) and timestamps over twenty maps.

Everything follows from a record's number, so an oracle makes it again instead of keeping it. What a record has to
become is put together here from the same facts, without a line of migrator's code.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import json
import re
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import redis
from redis.crc import key_slot

from tests.servers import Cluster, Server

STATUSES = (100, 200, 300, 400, 400, 400, 500, 600)
NAMES = ("send-report", "résumé-import", "thumbnail", "sync «orders»")
STARTED = datetime(2025, 9, 27, 6, 0, tzinfo=UTC)
FIRST_TICKS = 638_950_000_000_000_000
EXPIRES_AT = 4_102_444_800_000  # 2100-01-01; one job in 97 and one map have it
MAPS = 20
CHUNK = 1 << 20
TRACE = "\r\nSource: Demo\r\nTarget Site: HandleAsync\r\n" + 50 * "-"


@dataclass(frozen=True)
class Job:
    """A job as a process of its era wrote it, and the hash it has to become."""

    key: bytes
    text: bytes
    fields: dict[bytes, bytes]
    expires_at: int | None


@functools.lru_cache(20_000)
def job(number: int) -> Job:
    dice = hashlib.blake2b(b"job %d" % number, digest_size=32).digest()
    id, era, status = _guid(dice), "ABC"[number % 3], STATUSES[dice[16] % len(STATUSES)]
    created, digits = STARTED + timedelta(seconds=number), f"{int.from_bytes(dice[17:20]) % 10**7:07d}"[: dice[20] % 8]
    begun = status not in (100, 200)
    ended = status in (400, 500, 600)
    payload = f'{{"reportId":{number},"to":"ops@example.org","notes":"<é> & \\"{dice.hex() * 5}\\""}}'
    result = f'{{"rows":{dice[21]}}}' if status == 400 else None
    dates = {
        "RetryDelayUntil": _date(created, digits, "Z") if status == 200 else None,
        "CreatedAt": _date(created, digits, "+00:00"),
        "StartedAt": _date(created + timedelta(seconds=2), digits, "+00:00") if begun else None,
        "CompletedAt": _date(created + timedelta(seconds=9), "", "+00:00") if ended else None,
        "LastUpdatedAt": _date(created, digits, "+00:00"),
    }
    headers = {"Host": ["api.example.org"], "Content-Type": ["application/json"], "X-Async-Request-Id": [id]}
    query = [{"Key" if era == "A" else "key": "page", "Value" if era == "A" else "value": [str(dice[22])]}]
    failure = f"Exception Type: TimeoutException\r\nMessage: {dice[23]} s are over{TRACE}" if status == 500 else None
    fault = {"code": "TIMEOUT", "message": failure, "exception": None} if failure and era == "C" else failure
    values: dict[str, Any] = {
        "Id": id, "Name": NAMES[dice[24] % 4], "Status": status, "Headers": headers, "RouteParams": {"id": str(number)},
        "QueryParams": query, "Payload": payload, "Result": result, "Error": fault, "RetryCount": dice[25] % 3,
        "MaxRetries": 3, "WorkerId": _guid(dice[::-1]) if begun else None,
    }  # fmt: skip
    raw = {name: _json(value, era) for name, value in values.items()}
    raw |= {name: b"null" if text is None else b'"%s"' % text.encode() for name, text in dates.items()}
    raw["IsCanceled"] = b"true" if status == 600 else b"false"
    fields = {name: "" if value is None else str(value) for name, value in values.items()}
    fields |= {name: _padded(text) for name, text in dates.items()}
    if status == 300:
        fields["StartedAtUnix"] = str(int((created + timedelta(seconds=2)).timestamp()))
    expected = {name.encode(): text.encode() for name, text in fields.items()}
    expected |= {name.encode(): raw[name] for name in ("Headers", "RouteParams", "QueryParams")}
    if fault is not None:
        # A failure that was only text becomes an object; era C has one, which keeps its bytes.
        expected[b"Error"] = raw["Error"] if era == "C" else (
            b'{"code":"UNKNOWN","message":%s,"exception":null}' % _json(fault, "C"))  # fmt: skip
    return Job(b"ae:job:" + id.encode(), _text(raw, era), expected, EXPIRES_AT if number % 97 == 0 else None)


_ORDER = (
    "Id", "Name", "Status", "Headers", "RouteParams", "QueryParams", "Payload", "Result", "Error", "RetryCount",
    "MaxRetries", "RetryDelayUntil", "WorkerId", "CreatedAt", "StartedAt", "CompletedAt", "LastUpdatedAt", "IsCanceled",
)  # fmt: skip


def _text(raw: dict[str, bytes], era: str) -> bytes:
    def spelled(name: str) -> bytes:
        name = "Exception" if name == "Error" and era != "C" else name
        return (name if era == "A" else name[0].lower() + name[1:]).encode()

    return b"{" + b",".join(b'"%s":%s' % (spelled(name), raw[name]) for name in _ORDER) + b"}"


_ESCAPED_IN_A = re.compile(r'\\"|[+<>&\'`]')


def _json(value: Any, era: str) -> bytes:
    text = json.dumps(value, ensure_ascii=era == "A", separators=(",", ":"))
    if era == "A" and value and isinstance(value, str):
        text = _ESCAPED_IN_A.sub(lambda found: f"\\u{ord(found[0][-1]):04X}", text)
    return text.encode()


def _guid(dice: bytes) -> str:
    text = dice[:16].hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _date(moment: datetime, digits: str, zone: str) -> str:
    digits = digits.rstrip("0")
    return f"{moment:%Y-%m-%dT%H:%M:%S}{'.' if digits else ''}{digits}{zone}"


def _padded(date: str | None) -> str:
    if date is None:
        return ""
    zone = "Z" if date.endswith("Z") else date[-6:]
    return f"{date[:19]}.{date[20 : -len(zone)]:0<7}{zone}"


@dataclass(frozen=True)
class Records:
    """So many of each. `tagged`: the maps' names stand in braces, so that a cluster keeps both shapes in one slot."""

    jobs: int
    stamps: int
    tagged: bool = False

    def sizes(self) -> dict[bytes, int]:
        """Members of each map by its old key: one has two fifths of all, three are small, the others share the rest."""
        small = [5, 100, min(600, self.stamps // MAPS)]
        big = self.stamps * 2 // 5
        share, left = divmod(self.stamps - big - sum(small), MAPS - 1 - len(small))
        sizes = [big, *small, share + left, *[share] * (MAPS - 2 - len(small))]
        form = b"map:{m%d}:__meta:timestamps" if self.tagged else b"map:m%d:__meta:timestamps"
        return {form % number: size for number, size in enumerate(sizes)}

    def members(self, size: int, first: int = 0) -> Iterator[tuple[bytes, bytes]]:
        """Field and ticks of each member of a map; neighbours differ by less than a step of a double now and then."""
        for number in range(first, size):
            yield b'"session-%d"' % number, b"%d" % (FIRST_TICKS + number * 977)

    def load(self, nodes: Nodes) -> None:
        with Bulk(nodes) as bulk:
            for number in range(self.jobs):
                one = job(number)
                bulk.send(one.key, b"SET", one.key, one.text)
                if one.expires_at:
                    bulk.send(one.key, b"PEXPIREAT", one.key, b"%d" % one.expires_at)
            for key, size in self.sizes().items():
                members = list(self.members(size))
                for start in range(0, size, 500):
                    bulk.send(key, b"HSET", key, *(word for pair in members[start : start + 500] for word in pair))
            bulk.send(self.fleeting, b"PEXPIREAT", self.fleeting, b"%d" % EXPIRES_AT)

    @property
    def fleeting(self) -> bytes:
        """The map that has an expiry."""
        return list(self.sizes())[-1]


class Nodes:
    """Clients of a server or of each primary, by key."""

    def __init__(self, behind: Server | Cluster) -> None:
        self._owners: list[Server] = []
        if isinstance(behind, Cluster):
            for first, last, (_, port, *_), *_ in sorted(behind.nodes[0].command("CLUSTER SLOTS")):
                self._owners += [next(n for n in behind.nodes if n.port == port)] * (last - first + 1)
        self.all = behind.primaries() if isinstance(behind, Cluster) else [behind]
        self._clients = {node.port: node.client() for node in self.all}

    def owner(self, key: bytes) -> Server:
        return self._owners[key_slot(key)] if self._owners else self.all[0]

    def client(self, key: bytes) -> redis.Redis:
        return self._clients[self.owner(key).port]

    def ask(self, commands: Sequence[tuple[bytes, Sequence[Any]]]) -> list[Any]:
        """Bare replies to (key, command) pairs, in order, in one go a node."""
        groups: dict[int, list[int]] = {}
        for i, (key, _) in enumerate(commands):
            groups.setdefault(self.owner(key).port, []).append(i)
        replies: list[Any] = [None] * len(commands)
        for port, indexes in groups.items():
            client = self._clients[port]
            client.response_callbacks.clear()
            pipe = client.pipeline(transaction=False)
            for i in indexes:
                pipe.execute_command(*commands[i][1])
            for i, reply in zip(indexes, pipe.execute(), strict=True):
                replies[i] = reply
        return replies

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


class Bulk:
    """Writes in large pieces; every reply has to be one line and no error."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._sockets = {n.port: socket.create_connection(("127.0.0.1", n.port)) for n in nodes.all}
        self._buffers = {port: bytearray() for port in self._sockets}
        self._due = dict.fromkeys(self._sockets, 0)

    def __enter__(self) -> Bulk:
        return self

    def __exit__(self, *error: object) -> None:
        for port, conn in self._sockets.items():
            self._flush(port)
            conn.close()

    def send(self, key: bytes, *words: bytes) -> None:
        port = self._nodes.owner(key).port
        self._buffers[port] += b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)
        self._due[port] += 1
        if len(self._buffers[port]) > CHUNK:
            self._flush(port)

    def _flush(self, port: int) -> None:
        self._sockets[port].sendall(self._buffers[port])
        replies = b""
        while replies.count(b"\r\n") < self._due[port]:
            replies += self._sockets[port].recv(CHUNK)
        assert b"-" not in replies, replies[:200]
        self._buffers[port].clear()
        self._due[port] = 0


def saved(directory: Path, name: str = "*") -> Iterator[tuple[bytes, str, int | None, Any]]:
    """Every line of every backup under a directory: key, type, expiry, value in bytes; read without migrator's code."""
    for manifest in sorted(directory.glob(f"{name}/manifest.json")):
        for part in json.loads(manifest.read_bytes())["parts"]:
            path = manifest.parent / part["file"]
            assert hashlib.sha256(path.read_bytes()).hexdigest() == part["sha256"]
            with gzip.open(path) as lines:
                for line in lines:
                    record = json.loads(line)
                    value = record["value"]
                    pairs = [(plain(k), plain(v)) for k, v in value] if isinstance(value, list) else plain(value)
                    yield plain(record["key"]), record["type"], record["expires_at"], pairs


def plain(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else base64.b64decode(value["b64"])
