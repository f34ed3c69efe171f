"""fakeredis in the place of a server, where no server binary runs: it proves the order of things, and no server."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from migrator.client import Client, connect

INSTALL = "install the extra `fake` of this project: pip install '.[fake]' in its checkout"
NOTES = (
    "fakeredis has played the server, as none can run here: what a real one refuses or does otherwise is not seen",
    "fakeredis does not say how much memory is used, and knows no commands that a version lacks",
    "fakeredis listened on a port of 127.0.0.1 meanwhile, without a password",
)


def available() -> bool:
    """Whether fakeredis is installed, with the Lua that this tool's scripts need."""
    return all(importlib.util.find_spec(name) is not None for name in ("fakeredis", "lupa"))


@contextmanager
def fake_server(patience: float) -> Iterator[Client]:
    """A client of an empty fakeredis, which is gone afterwards."""
    from fakeredis import TcpFakeServer  # noqa: PLC0415 - an extra

    class Server(TcpFakeServer):
        daemon_threads = True  # one a connection; they would wait for our connections to close

    server: Any = Server(("127.0.0.1", 0), server_type="valkey", server_version=(8,))
    server.RequestHandlerClass.disable_nagle_algorithm = True  # else an answer of two pieces takes 40 ms
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield connect(f"redis://127.0.0.1:{server.server_address[1]}/0", patience=patience)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
