"""Takes a snapshot of a live server or cluster: every primary is walked by SCAN, nothing is blocked.

It is no picture of one moment: a key is there as it was when it was read. SCAN may return a key twice; then it stands
in the file twice, and loading keeps the later copy. So what is remembered does not grow with the number of keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from migrator.client import Client, Node
from migrator.errors import RefusedError
from migrator.models import FamilyTaken, Taken, number_of
from migrator.names import CLAIMS, Names
from migrator.snapshot.families import Families
from migrator.snapshot.files import End, Header, refuse_existing, writing
from migrator.snapshot.ndjson import Line
from migrator.snapshot.places import Places
from migrator.snapshot.reading import Reading, moved
from migrator.snapshot.redaction import Redaction
from migrator.snapshot.sample import Sample

_COUNT = 500

Tick = Callable[..., None]  # so many keys further, and so many more pages of a large one; may raise, to stop
Say = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """What is taken. `databases` are numbers, None for all that hold a key; `at_once` bounds how many keys are read
    between two ticks; a `redaction` of None leaves values as they are."""

    databases: tuple[int, ...] | None = None
    sample: Sample | None = None
    redaction: Redaction | None = None
    at_once: int = _COUNT


def take(
    path: Path,
    client: Client,
    families: Families,
    names: Names,
    wanted: Wanted,
    *,
    overwrite: bool = False,
    tick: Tick = lambda *_: None,
    say: Say = lambda _: None,
) -> Taken:
    """Writes a snapshot. Nothing is left under its name if this raises.

    Raises RefusedError where a file is there and `overwrite` is not set, and where slots move meanwhile.
    """
    refuse_existing(path, overwrite=overwrite)
    places = Places(client)
    taking = _Taking(places, families, names, wanted, tick, say)
    before = _settled(client)
    if wanted.sample is not None:
        taking.count()
    header = Header(
        taken_at=places.now(),
        server=places.version(),
        databases=taking.databases,
        namespace=names.namespace,
        redacted=wanted.redaction is not None,
        sample=wanted.sample.words() if wanted.sample else None,
    )
    with writing(path, header, overwrite=overwrite) as file:
        for line in taking.lines():
            file.write(line)
        if _settled(client) != before:
            raise moved()
        file.finish(End(lines=file.lines, records=taking.kept, vanished=taking.vanished, changed=taking.changed,
                        families=taking.families()))  # fmt: skip
    return taking.result(path, header)


def _settled(client: Client) -> str:
    """Which node owns which slots."""
    if client.migrating():
        raise RefusedError("a slot is moving between nodes: its keys could be missed",
                           next="let the resharding finish, then run this again")  # fmt: skip
    return client.fingerprint()


class _Taking:
    def __init__(self, places: Places, families: Families, names: Names, wanted: Wanted, tick: Tick, say: Say) -> None:
        self._places, self._families, self._names, self._wanted = places, families, names, wanted
        self._tick, self._say = tick, say
        asked = places.used() if wanted.databases is None else wanted.databases
        self.databases = tuple(sorted({*asked}))
        self._readings = {db: Reading(places, db) for db in {*self.databases, places.first.db}}
        self._taken: Counter[str] = Counter()

    @property
    def kept(self) -> int:
        return sum(reading.kept for reading in self._readings.values())

    @property
    def vanished(self) -> int:
        return sum(reading.vanished for reading in self._readings.values())

    @property
    def changed(self) -> int:
        return sum(reading.changed for reading in self._readings.values())

    def count(self) -> None:
        """The first of two walks of a sample: how many keys each family has."""
        assert self._wanted.sample is not None
        for db in self.databases:
            for keys in self._pages(db):
                self._wanted.sample.count(found.label for key in keys if not (found := self._families.of(key)).own)

    def lines(self) -> Iterator[Line]:
        for db in sorted(self._readings):
            for keys in self._pages(db):
                for start in range(0, len(keys), self._wanted.at_once):
                    some = keys[start : start + self._wanted.at_once]
                    yield from self._read(db, [key for key in some if self._is_wanted(db, key)])
                    self._tick(len(some))

    def _read(self, db: int, keys: list[bytes]) -> Iterator[Line]:
        for line in self._readings[db].lines(keys):
            if line.part:
                self._tick(0, 1)
            hidden = self._wanted.redaction
            yield hidden.line(line, self._families.of(line.key)) if hidden else line

    def _is_wanted(self, db: int, key: bytes) -> bool:
        """The ledger and the markers always are, in whichever database was asked for."""
        found = self._families.of(key)
        if found.own:
            return True
        sample = self._wanted.sample
        if db not in self.databases or (sample is not None and not sample.holds(found)):
            return False
        self._taken[found.label] += sample is not None
        return True

    def _pages(self, db: int) -> Iterator[list[bytes]]:
        client = self._places.of(db)
        for node in client.nodes():
            if db in self.databases:
                yield from self._walk(client, node, b"*")
            else:
                yield from self._walk(client, node, self._names.prefix + b"*")
                yield from self._walk(client, node, CLAIMS)

    def _walk(self, client: Client, node: Node, glob: bytes) -> Iterator[list[bytes]]:
        cursor, process, begun = 0, "", False
        while cursor or not begun:
            page = client.page(node, cursor, glob, _COUNT)
            if process not in ("", page.run_id):
                self._say(f"{node.address} is another process now: walking it from the start")
                cursor, process, begun = 0, "", False
                continue
            process, begun, cursor = page.run_id, True, page.cursor
            yield page.keys

    def families(self) -> tuple[FamilyTaken, ...]:
        """Of a sample, what was taken of each family."""
        sample = self._wanted.sample
        counts = sorted(sample.counts.items()) if sample else []
        return tuple(FamilyTaken(family=label, seen=seen, taken=self._taken[label]) for label, seen in counts)

    def result(self, path: Path, header: Header) -> Taken:
        unknown: Counter[str] = Counter()
        for reading in self._readings.values():
            unknown += reading.unknown
        return Taken(
            file=str(path), bytes=path.stat().st_size, records=self.kept, vanished=self.vanished, changed=self.changed,
            databases=header.databases, redacted=header.redacted, sample=header.sample, families=self.families(),
            notes=tuple(f"left out: {number_of(count, 'key')} {what}" for what, count in sorted(unknown.items())),
        )  # fmt: skip
