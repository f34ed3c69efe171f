"""A TCP proxy between clients and one server that delays, holds back, loses replies, cuts and counts.

It follows the protocol: a hold begins exactly at the command a predicate picks, not at the chunk it came in.
Not for clusters: the nodes announce their own ports, and clients go there.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

Predicate = Callable[[bytes], bool]
Queue = asyncio.Queue[tuple[float, bytes] | None]
CHUNK = 1 << 20
WAIT = 10.0


def split_command(data: bytearray) -> bytes | None:
    """Take the first whole command (RESP array, or an inline line) off the front; None while it is not whole."""
    end = data.find(b"\r\n") + 2
    if end < 2:
        return None
    if data[:1] == b"*":
        for _ in range(int(data[1 : end - 2])):
            line = data.find(b"\r\n", end) + 2
            if line < 2:
                return None
            end = line + int(data[end + 1 : line - 2]) + 2
        if end > len(data):
            return None
    command = bytes(data[:end])
    del data[:end]
    return command


class Hold:
    """An order to hold commands back. With a predicate: one command, and what follows it on that connection."""

    def __init__(self, proxy: Proxy, when: Predicate | None) -> None:
        self._proxy = proxy
        self._when = when
        self._open = asyncio.Event()
        self._caught = threading.Event()
        self._answered = threading.Event()
        self._first = b""
        self._reply = b""

    def wait(self, seconds: float = WAIT) -> bytes:
        """Until something is held: the first command that is."""
        if not self._caught.wait(seconds):
            raise TimeoutError(f"nothing to hold came within {seconds:g} s")
        return self._first

    def release(self) -> None:
        """Deliver in order what is held, also for clients that are long gone; later commands pass."""
        self._proxy.call(self._release())

    def reply(self, seconds: float = WAIT) -> bytes:
        """What the server first said to the delivered command: only now is it sure that it ran."""
        if not self._answered.wait(seconds):
            raise TimeoutError(f"no reply within {seconds:g} s; was it released?")
        return self._reply

    async def _release(self) -> None:
        self._open.set()

    def takes(self, command: bytes) -> bool:
        if self._open.is_set() or (self._when is not None and (self._caught.is_set() or not self._when(command))):
            return False
        self._first = self._first or command
        self._caught.set()
        return True

    async def opened(self) -> None:
        await self._open.wait()

    def answer(self, reply: bytes) -> None:
        if not self._answered.is_set():
            self._reply = reply
            self._answered.set()


class _Link:
    """One client's connection and its twin to the server."""

    def __init__(self, proxy: Proxy, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.proxy = proxy
        self.client = client
        self.server = server
        self.held = False
        self._delivered: Hold | None = None
        self._deaf = False

    async def run(self, from_client: asyncio.StreamReader, from_server: asyncio.StreamReader) -> None:
        """Both ways until both ended: a client that died takes nothing along that it had sent."""
        there, back = Queue(), Queue()
        try:
            await asyncio.gather(
                self._read_client(from_client, there),
                self._to_server(there),
                self._read_server(from_server, back),
                self._to_client(back),
            )
        finally:
            self.client.close()
            self.server.close()

    async def _read_client(self, reader: asyncio.StreamReader, out: Queue) -> None:
        pending = bytearray()
        while chunk := await _read(reader):
            self.proxy.sent += len(chunk)
            pending += chunk
            due = time.monotonic() + self.proxy.delay
            while command := split_command(pending):
                out.put_nowait((due, command))
        if pending:
            out.put_nowait((0.0, bytes(pending)))
        out.put_nowait(None)

    async def _to_server(self, queue: Queue) -> None:
        while (item := await _due(queue)) is not None:
            await self._pass_holds(item)
            await _write(self.server, item)
        # Not close(): beside unread replies that is a reset, and the server may drop what it has not read yet.
        with contextlib.suppress(OSError, RuntimeError):
            self.server.write_eof()

    async def _pass_holds(self, command: bytes) -> None:
        self._deaf = self._deaf or self.proxy.loses_reply_of(command)
        for hold in list(self.proxy.holds):
            if hold.takes(command):
                self.held = True
                await hold.opened()
                self.held = False
                self._delivered = hold

    async def _read_server(self, reader: asyncio.StreamReader, out: Queue) -> None:
        while chunk := await _read(reader):
            self.proxy.received += len(chunk)
            if self._delivered:
                self._delivered.answer(chunk)
            out.put_nowait((time.monotonic() + self.proxy.delay, chunk))
        out.put_nowait(None)

    async def _to_client(self, queue: Queue) -> None:
        while (item := await _due(queue)) is not None:
            if self._deaf:
                _reset(self.client)
            await _write(self.client, item)
        self.client.close()

    def cut(self) -> None:
        _reset(self.client)
        if not self.held:
            self.server.transport.abort()


def _reset(writer: asyncio.StreamWriter) -> None:
    # Without lingering a close is a reset; abort() alone says goodbye in order.
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _read(reader: asyncio.StreamReader) -> bytes:
    with contextlib.suppress(OSError):
        return await reader.read(CHUNK)
    return b""


async def _due(queue: Queue) -> bytes | None:
    item = await queue.get()
    if item is None:
        return None
    due, data = item
    # Each piece has its own due time: latency, not a brake on throughput.
    if (early := due - time.monotonic()) > 0:
        await asyncio.sleep(early)
    return data


async def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    if not writer.is_closing():
        with contextlib.suppress(OSError):
            writer.write(data)
            await writer.drain()


class Proxy:
    """`with Proxy(server.port) as proxy:` clients connect to `proxy.url`; `delay` is seconds each way."""

    def __init__(self, target: int, *, delay: float = 0.0) -> None:
        self.target = target
        self.delay = delay
        self.port = 0
        self.sent = 0  # bytes from clients
        self.received = 0  # bytes from the server
        self.connections = 0
        self.holds: list[Hold] = []
        self._losing: Predicate | None = None
        self._links: set[_Link] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def __enter__(self) -> Proxy:
        self._thread.start()
        if not self._ready.wait(WAIT):
            raise TimeoutError("the proxy did not start")
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(WAIT)

    def hold(self, when: Predicate | None = None) -> Hold:
        """Hold the next command that matches and its connection; without predicate everything. The rest goes on."""
        hold = Hold(self, when)
        self.call(self._add(hold))
        return hold

    def release(self) -> None:
        """Release every hold."""
        for hold in self.holds:
            hold.release()

    def lose_reply(self, when: Predicate) -> None:
        """The next command that matches reaches the server; its client gets a reset instead of the reply."""
        self._losing = when

    def loses_reply_of(self, command: bytes) -> bool:
        if self._losing is None or not self._losing(command):
            return False
        self._losing = None
        return True

    def cut(self) -> None:
        """Reset every connection. What is held stays held, and is delivered when released."""
        self.call(self._cut())

    def call(self, step: Coroutine[Any, Any, None]) -> None:
        """Run in the proxy's thread, and wait."""
        asyncio.run_coroutine_threadsafe(step, self._loop).result(WAIT)

    async def _add(self, hold: Hold) -> None:
        self.holds.append(hold)

    async def _cut(self) -> None:
        for link in self._links:
            link.cut()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = listener.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        listener.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            return writer.transport.abort()
        self.connections += 1
        link = _Link(self, writer, to_server)
        self._links.add(link)
        try:
            await link.run(reader, from_server)
        except asyncio.CancelledError:  # the proxy ends; streams of Python 3.11 would log it as an error
            pass
        finally:
            self._links.discard(link)
