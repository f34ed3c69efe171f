"""A snapshot on a throw-away server, and the engine's own commands on it; `--url` is never asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from migrator.client import Client, checked, connect
from migrator.engine.guards import info_field
from migrator.engine.load import Limits
from migrator.engine.observe import Observer, Silent, Stop
from migrator.engine.run import Options
from migrator.engine.session import Session
from migrator.errors import MigratorError, RefusedError, UsageError
from migrator.ledger.lease import break_lease, show_lease
from migrator.models import Loaded
from migrator.moves.family import Family
from migrator.moves.loader import Modules
from migrator.names import CLAIMS, Names
from migrator.rehearsal import fake
from migrator.rehearsal.databases import WHOLE
from migrator.snapshot.embedded import EmbeddedServer, server_binary
from migrator.snapshot.files import Mine
from migrator.snapshot.load import is_rdb, load
from migrator.snapshot.ndjson import Head
from migrator.snapshot.places import Places

PATIENCE = 10.0  # seconds
_DATABASES = 16  # a throw-away server has so many
_PAGE = 500
_POLL = 0.01


class Filled(NamedTuple):
    """What a snapshot is on a server: a client of the database that is tried, and which migrations are about."""

    client: Client
    loaded: Loaded
    databases: list[int]


@dataclass(frozen=True)
class Source:
    """A snapshot's file, or what is `mine` of it. `observer` and `stop` hear of all that is done with it."""

    path: Path
    names: Names
    observer: Observer
    stop: Stop
    mine: Mine | None = None

    def fill(self, client: Client, modules: Modules) -> Filled:
        """Loads it; whoever was at work when it was taken is not at work here. Raises RefusedError where migrations
        are about several of its databases: one is tried."""

        def tick(records: int) -> None:
            self.observer.advance(records)
            self.stop.check()

        self.observer.begin("load the snapshot", None)
        try:
            loaded = load(self.path, client, empty=True, mine=self.mine, tick=tick)
        finally:
            self.observer.end()
        there = _populated(client)
        places = Places(client)
        databases = [db for db in there if self._concerns(places.of(db), modules)]
        refuse_several(self.path, databases)
        if databases and len(there) > 1:
            told = f"database {databases[0]} alone is tried: no other holds a record that a migration is about"
            loaded = loaded.model_copy(update={"notes": (*loaded.notes, told)})
        one = databases or there
        client = places.of(one[0]) if len(one) == 1 else client
        _leave(client, self.names)
        return Filled(client, loaded, databases)

    def _concerns(self, client: Client, modules: Modules) -> bool:
        """Whether migrations are about a database: a record of either shape is there, or a ledger."""
        if client.one(self.names.ledger, "EXISTS", self.names.ledger):
            return True
        for family in (Family(client, self.names, one.id, move) for one in modules.all for move in one.migration.moves):
            for glob in (family.old_glob, family.new_glob):
                for keys in client.pages(glob, _PAGE):
                    if any(family.has_old(key) or family.has_new(key) for key in keys):
                        return True
                    self.stop.check()
        return False


def refuse_several(path: Path, databases: Sequence[int]) -> None:
    """Raises RefusedError where there is more than one."""
    if len(databases) > 1:
        raise RefusedError(
            f"{path} has records of migrations in databases {', '.join(map(str, sorted(databases)))}, and one is tried",
            next="take a snapshot of each: migrator snapshot take FILE --url redis://HOST:PORT/DB",
        )


@dataclass
class Scratch:
    """One throw-away server. `home` is a directory that goes with it, `databases` are those that migrations are about:
    one, or none."""

    source: Source
    modules: Modules
    client: Client
    home: Path
    server: str
    loaded: Loaded
    databases: list[int]
    copied: Callable[[], AbstractContextManager[Client]]
    whole: int = WHOLE
    notes: tuple[str, ...] = ()

    def session(self, backup: str = "backup") -> Session:
        """A session as `apply --yes --backup DIR` opens it."""
        options = Options(yes=True, backup=self.home / backup, limits=Limits(longest=None))  # nobody else is there
        told = self.source
        return Session(self.client, told.names, self.modules, observer=told.observer, stop=told.stop, options=options)

    def ours(self, key: bytes) -> bool:
        return is_ours(self.source.names, key)

    def mine(self, key: bytes) -> bool:
        """Whether a record is in this share, where there are any."""
        asked = self.source.mine
        return asked is None or asked(Head(self.client.db, key, 0))

    def memory(self) -> int:
        """Bytes the server uses, 0 where it does not say."""
        return sum(map(int, info_field(self.client, "memory", "used_memory")))

    def tick(self) -> None:
        self.source.stop.check()


def is_ours(names: Names, key: bytes) -> bool:
    """Whether a key is the tool's own and none of the data."""
    return key.startswith(names.prefix) or key == CLAIMS


@contextmanager
def scratch(source: Source, modules: Modules) -> Iterator[Scratch]:
    """A snapshot on a server of its own, in the phases its ledger says. Raises what `load` raises, and UsageError where
    neither a server nor fakeredis can run."""
    try:
        server_binary()
    except UsageError as error:
        if is_rdb(source.path) or not fake.available():
            following = error.next if is_rdb(source.path) else f"{error.next}; or, for NDJSON, {fake.INSTALL}"
            raise UsageError(error.message, next=following) from None
        with _faked(source, modules) as one:
            yield one
        return
    with EmbeddedServer(tcp=False) as server:
        assert server.home is not None
        empty = connect(server.socket_url, patience=PATIENCE, before_retry=source.stop.check)
        client, loaded, databases = source.fill(empty, modules)
        copy = partial(copied, client, server.home, source.stop.check)
        yield Scratch(source, modules, client, server.home, version(client), loaded, databases, copy)


@contextmanager
def _faked(source: Source, modules: Modules) -> Iterator[Scratch]:
    @contextmanager
    def again() -> Iterator[Client]:
        with fake.fake_server(PATIENCE) as second:
            yield replace(source, observer=Silent()).fill(second, modules).client

    with fake.fake_server(PATIENCE) as first, TemporaryDirectory(prefix="migrator-") as home:
        client, loaded, databases = source.fill(first, modules)
        # Its DUMP is no reply that can be read: values are compared one by one.
        yield Scratch(
            source, modules, client, Path(home), "fakeredis", loaded, databases, again, whole=-1, notes=fake.NOTES
        )


@contextmanager
def copied(client: Client, home: Path, tick: Callable[[], None]) -> Iterator[Client]:
    """The same data on a second server, as it is now: what is to be there again at the end. `home` is the directory of
    the first."""
    _save(client, tick)
    with EmbeddedServer(tcp=False, dump=home / "dump.rdb") as server:
        yield Places(connect(server.socket_url, patience=PATIENCE)).of(client.db)


def _save(client: Client, tick: Callable[[], None]) -> None:
    """Not by SAVE: its answer comes when all is written, which may take longer than a connection waits for one."""
    saving = partial(info_field, client, "persistence", "rdb_bgsave_in_progress")
    _wait(saving, tick)  # a replica may be taking its first copy
    checked(client.on_node(client.nodes()[0], ("BGSAVE",))[0])
    _wait(saving, tick)
    if info_field(client, "persistence", "rdb_last_bgsave_status") != ["ok"]:
        raise MigratorError("a server of our own could not save its data", next="look whether its disk is full")


def _wait(busy: Callable[[], list[str]], tick: Callable[[], None]) -> None:
    while busy() == ["1"]:
        tick()
        time.sleep(_POLL)


def _populated(client: Client) -> list[int]:
    """The databases that hold a key. fakeredis, which knows no INFO, can be asked so too."""
    asked = [words for db in range(_DATABASES) for words in (("SELECT", db), ("DBSIZE",))]
    replies = client.on_node(client.nodes()[0], *asked, ("SELECT", client.db))
    return [db for db in range(_DATABASES) if checked(replies[2 * db + 1])]


def _leave(client: Client, names: Names) -> None:
    """The lease and the adapters' announcements are about processes elsewhere."""
    if (holder := show_lease(client, names)) is not None:
        break_lease(client, names, holder.token)
    client.one(names.adapters, "DEL", names.adapters)


def version(client: Client) -> str:
    """What the report calls the server."""
    found = info_field(client, "server", "valkey_version") or info_field(client, "server", "redis_version")
    return f"embedded Valkey {found[0]}" if found else "embedded"
