"""The records of an RDB file as lines, whoever reads it: a server that loads it whole, else rdb-py."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from migrator.client import connect
from migrator.errors import UsageError
from migrator.models import number_of
from migrator.snapshot.ndjson import Line
from migrator.snapshot.places import Places
from migrator.snapshot.rdb import library, programs
from migrator.snapshot.rdb.header import Header, read_header
from migrator.snapshot.rdb.server import NotServedError, Report, Served, served
from migrator.snapshot.reading import Reading

_PAGE = 500  # keys


class ServedContent:
    """What a throw-away server holds; nobody else writes to it. `report` counts all once the records were gone through.

    May be gone through as often as one likes. A key whose time comes meanwhile is no longer there.
    """

    def __init__(self, there: Served) -> None:
        self.header = there.header
        self._url, self._report = there.url, there.report
        self._unknown: Counter[str] = Counter()
        self._kept = there.report.keys

    def __iter__(self) -> Iterator[Line]:
        self._unknown.clear()
        self._kept = 0
        places = Places(connect(self._url))
        for db in places.used():
            reading = Reading(places, db)
            for keys in places.of(db).pages(b"*", _PAGE):
                yield from reading.lines(keys)
            self._unknown += reading.unknown
            self._kept += reading.kept

    @property
    def report(self) -> Report:
        notes = [f"left out: {number_of(count, 'key')} {what}" for what, count in sorted(self._unknown.items())]
        hidden, before = self._unknown.total(), self._report
        gone = max(0, before.keys - self._kept - hidden)  # since it was loaded
        return replace(before, keys=self._kept, expired=before.expired + gone, not_visible=hidden,
                       notes=(*before.notes, *notes))  # fmt: skip


class LibraryContent:
    """What rdb-py sees. `report` counts all once the records were gone through, as often as one likes."""

    def __init__(self, path: Path, header: Header) -> None:
        self.header = header
        self._path, self._now = path, time.time() * 1000
        self._report = library.examine(path, programs.at_hand(header, None))
        self._expired = 0

    def __iter__(self) -> Iterator[Line]:
        self._expired = 0
        for line in library.lines(self._path):
            if line.expires_at is None or line.expires_at > self._now:
                yield line
            else:
                self._expired += line.part == 0

    @property
    def report(self) -> Report:
        return replace(self._report, keys=self._report.keys - self._expired, expired=self._expired)


Content = ServedContent | LibraryContent


@contextmanager
def opened(path: Path, server: Path | None = None) -> Iterator[Content]:
    """The content of an RDB file. `server` is the only program to be asked where it is given, and rdb-py is not.

    Raises UsageError, before anything is yielded, for what is no RDB file, is damaged, or that nobody here reads.
    """
    with ExitStack() as stack:
        try:
            content: Content = ServedContent(stack.enter_context(served(path, server)))
        except NotServedError as error:
            # Damaged for one that knows its format is damaged: rdb-py would look away.
            if server is not None or not error.unknown:
                raise
            if not library.installed():
                raise UsageError(error.message, next=f"{error.next}; or in part: {library.INSTALL}") from None
            content = LibraryContent(path, read_header(path))
        yield content
