"""What kind of key a key is: the template of a migration, or its name with ids and numbers left open."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from migrator.keys import GUID, Keys, Kind
from migrator.moves.migration import Migration
from migrator.moves.move import KeyMove
from migrator.names import CLAIMS, Names

MOST = 1000  # families that are told apart
OTHER = "(others)"
_OPEN = re.compile(
    rf"(?P<guid>{GUID})|(?P<hex>\b(?=[a-f]*\d)[0-9a-f]{{8,}}\b)|(?P<id>\b(?=\w*\d)(?=\w*[A-Za-z])\w{{16,}}\b)|(?P<n>\d+)",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Found:
    """The family of a key. Keys of one record have one `record`, whatever their shape.

    `own`: what this tool keeps there, its ledger, markers and the like; empty for data. `names_members`: in a key of
    that type, members are names that a migration gives.
    """

    label: str
    record: bytes
    own: str = ""
    names_members: Kind | None = None


class Families:
    """The families of these migrations and of every other key."""

    def __init__(self, names: Names, migrations: Iterable[Migration] = ()) -> None:
        self._names = names
        self._templates = [template for migration in migrations for template in _templates(migration)]
        self._labels: set[str] = set()

    def of(self, key: bytes) -> Found:
        names = self._names
        own = "claims" if key == CLAIMS else names.role(key)
        if own:
            return Found("(migrator)", key, own)
        beside = names.stands_beside(key)
        if beside is None:
            return self._named(key) or self._unnamed(key)
        role, record = beside
        inner = self._named(record) or self._unnamed(record)
        return Found(f"{inner.label} ({role})", inner.record, names_members=inner.names_members)

    def _named(self, key: bytes) -> Found | None:
        for keys, names_members in self._templates:
            parsed = keys.parse(key)
            if parsed is not None:
                return Found(
                    keys.template,
                    b"\0".join(parsed[name] for name in sorted(parsed)) or key,
                    names_members=keys.kind if names_members else None,
                )
        return None

    def _unnamed(self, key: bytes) -> Found:
        """Bounded: names that are all different would be as many families as keys."""
        try:
            text = key.decode()
        except UnicodeDecodeError:
            return Found("(not UTF-8)", key)
        label = _OPEN.sub(lambda found: f"{{{found.lastgroup}}}", text)
        ids = [found[0] for found in _OPEN.finditer(text)]
        if label not in self._labels:
            if len(self._labels) >= MOST:
                return Found(OTHER, key)
            self._labels.add(label)
        return Found(label, "\0".join(ids).encode() or key)


def _templates(migration: Migration) -> Iterable[tuple[Keys[Any], bool]]:
    for move in migration.moves:
        for keys in (move.source, move.target):
            yield keys, not isinstance(move, KeyMove)
        if isinstance(move, KeyMove):
            yield from ((index.keys, True) for index in move.indexes)
