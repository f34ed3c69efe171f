"""Finds the numbered modules; a module that cannot be used is an error with its file and line."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from migrator.errors import UsageError
from migrator.moves.migration import Migration

_FILE = re.compile(r"(\d{4})_[a-z0-9_]+\.py")


@dataclass(frozen=True)
class Module:
    """A loaded migration module. The id is the file's name; the checksum is over newline-normalised source and the
    key templates, which may come from settings outside of it (a prefix in the environment, say)."""

    id: str
    path: Path
    checksum: str
    migration: Migration

    @property
    def number(self) -> str:
        return self.id[:4]


@dataclass(frozen=True)
class Modules:
    """All migrations of a directory, in the order of their numbers."""

    directory: Path
    all: tuple[Module, ...]

    def find(self, id: str) -> Module:
        """The module with this id or number. Raises UsageError if there is none."""
        for module in self.all:
            if id == module.id or (id.isdigit() and int(id) == int(module.number)):
                return module
        known = ", ".join(module.id for module in self.all) or "none"
        raise UsageError(f"there is no migration {id!r} in {self.directory}", next=f"known migrations: {known}")

    def select(self, ids: Iterable[str]) -> tuple[Module, ...]:
        """Those named, in order; all of them where none is named."""
        chosen = {self.find(id).id for id in ids}
        return tuple(module for module in self.all if module.id in chosen or not chosen)


def checksum(source: bytes, migration: Migration) -> str:
    """SHA-256 over the source with newlines normalised, so that a checkout on Windows is no drift, and over its key
    templates and types, so that another prefix is."""
    keys = [(one.template, one.kind, one.glob) for move in migration.moves for one in (move.source, move.target)]
    text = source.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return hashlib.sha256(b"%b\n%b" % (text, repr(keys).encode())).hexdigest()


def load(directory: Path | str) -> Modules:
    """All modules of a directory.

    Raises UsageError for a directory that is not there, two modules with one number, a module that does not import
    or has no `migration`.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise UsageError(
            f"there is no directory {str(directory)!r} with migrations",
            next="give it with --migrations DIR, or write a first one with: migrator new NAME --kind key",
        )
    seen: dict[str, str] = {}
    modules: list[Module] = []
    for path in sorted(directory.glob("*.py")):
        if path.name.startswith(("_", "test_")):
            continue
        if not _FILE.fullmatch(path.name):
            raise UsageError(
                f"{path}: not the name of a migration",
                next="name it like 0001_jobs_to_hashes.py: four digits, then lower-case words",
            )
        other = seen.setdefault(path.stem[:4], path.name)
        if other != path.name:
            raise UsageError(
                f"two migrations have the number {path.stem[:4]}: {other} and {path.name}",
                next="give one of them the next free number",
            )
        modules.append(_load_module(path))
    return Modules(directory, tuple(modules))


def _load_module(path: Path) -> Module:
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}", next="mend the file; nothing was read or written"
        ) from None
    name = f"migrator_migrations.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: cannot be imported")
    module = importlib.util.module_from_spec(spec)
    # Modules share settings (a key prefix, say) by importing a neighbour: `from _prefix import AE`.
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"{_where(path, error)}: {type(error).__name__}: {error}",
            next="correct the module; nothing was read or written",
        ) from error
    finally:
        sys.path.remove(str(path.parent))
    migration = getattr(module, "migration", None)
    if not isinstance(migration, Migration):
        raise UsageError(f"{path}:1: the module has no `migration = Migration(…)`",
                         next="give it one; migrator new NAME --kind key writes an example")  # fmt: skip
    return Module(path.stem, path, checksum(source, migration), migration)


def _where(path: Path, error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{path}:{lines[-1] if lines else 1}"
