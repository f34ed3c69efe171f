"""The databases behind one client."""

from __future__ import annotations

import re

from migrator.client import Client, ResponseError, checked
from migrator.errors import RefusedError


class Places:
    """A client for each database of a server; a cluster has database 0 alone."""

    def __init__(self, client: Client) -> None:
        self.first = client
        self._found = {client.db: client}

    def of(self, db: int) -> Client:
        """Raises RefusedError where there is no such database."""
        if db not in self._found:
            self._found[db] = self.first.in_database(db)
        return self._found[db]

    def used(self) -> list[int]:
        """The databases that hold a key, and that of the client. Raises RefusedError where INFO is denied."""
        if self.first.cluster:
            return [self.first.db]
        info = self._ask("INFO", "keyspace")
        if not isinstance(info, bytes):
            raise RefusedError("INFO is denied, and nothing else tells which databases hold keys",
                               next="name them, each with --db N, or grant +info")  # fmt: skip
        return sorted({self.first.db, *map(int, re.findall(rb"^db(\d+):", info, re.MULTILINE))})

    def now(self) -> int:
        """Unix ms by the server's clock."""
        seconds, micros = checked(self._ask("TIME"))
        return int(seconds) * 1000 + int(micros) // 1000

    def version(self) -> str:
        """`valkey 9.1.2`, or `unknown` where INFO is denied."""
        info = self._ask("INFO", "server")
        found = re.findall(rb"(valkey|redis)_version:(\S+)", info) if isinstance(info, bytes) else []
        return b" ".join(max(found)).decode() if found else "unknown"  # a Valkey names the Redis it is like, too

    def knows(self, *words: str) -> bool:
        """Whether the server knows a command, asked in a form that finds nothing."""
        answer = self.first.run_one(b"?", *words)
        return not (isinstance(answer, ResponseError) and "unknown command" in str(answer).lower())

    def _ask(self, *words: str) -> object:
        return self.first.on_node(self.first.nodes()[0], words)[0]
