"""Every command of the runbooks is run, as it stands there, where an operator would run it."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from typer.main import get_command

from migrator.cli.commands import COMMON, app
from migrator.cli.main import main
from migrator.client import connect
from migrator.ledger import Lease
from migrator.ledger.lease import take_lease
from migrator.names import Names
from tests.servers import ROOT, Place

BOOKS = sorted((ROOT / "runbooks").glob("*.md"))
SECTIONS = ["When", "Before", "Do", "Watch", "Undo", "If it goes wrong"]
MODULE = "0002_timestamps_to_sorted_sets.py"
OLD, NEW = "map:m:__meta:timestamps", "map:m:__meta:timestamps-sorted"
ODD = "map:odd:__meta:timestamps"
TICKS = 638_960_228_601_234_560  # a multiple of 128: a score holds it exactly


def commands_in(book: Path) -> set[str]:
    """What it tells an operator to type: lines of `sh` blocks, and inline code that begins with `migrator `."""
    text = book.read_text("utf-8")
    blocks = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    inline = re.findall(r"`(migrator [^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return {*blocks, *inline}


def codes_in(book: Path) -> set[int]:
    """Exit codes that a point of *If it goes wrong* begins with."""
    return {int(code) for code in re.findall(r"^- (\d+)[,:]", book.read_text("utf-8"), re.MULTILINE)}


class Operator:
    """Types commands of a runbook, with what stands in capitals filled in, and remembers which they were."""

    def __init__(self, place: Place, directory: Path) -> None:
        self.raw: Any = place.raw
        self.url = place.url
        self.module = directory / "migrations" / MODULE
        self.filled = {"ID": "0002", "DIR": "backups", "KEY": ODD}
        self.typed: set[str] = set()
        self.codes: set[int] = set()

    def types(self, command: str, exit: int = 0) -> None:
        words = [self.filled.get(word, word) for word in shlex.split(command)]
        assert words[0] == "migrator"
        self.typed.add(command)
        code = main(words[1:])
        assert code == exit, f"{command}: {code}, not {exit}"
        self.codes.add(code)

    def finds_the_lease_taken(self) -> Lease:
        """Another process has it; TOKEN stands for its token from now on."""
        lease = take_lease(connect(self.url), Names("migrator"), 30)
        self.filled["TOKEN"] = lease.fence.token
        return lease

    def forget(self, *kinds: str) -> None:
        """The server loses what the tool keeps there: its markers, its ledger, or both."""
        for kind in kinds:
            for key in self.raw.keys(f"migrator:{kind}*"):
                self.raw.delete(key)


@pytest.fixture
def operator(server: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Operator:
    (tmp_path / "migrations").mkdir()
    shutil.copy(ROOT / "migrations" / MODULE, tmp_path / "migrations" / MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MIGRATOR_URL", server.url)
    monkeypatch.delenv("MIGRATOR_MIGRATIONS", raising=False)
    server.raw.hset(OLD, mapping={"a": TICKS, "b": TICKS + 128, "c": TICKS + 256})
    return Operator(server, tmp_path)


def deploy(op: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    op.raw.hset(OLD, "b", "yesterday")
    op.raw.set(ODD, "no hash")
    op.types("migrator plan ID --out plan.json")
    op.types("migrator apply ID --plan plan.json", exit=32)
    op.types("migrator quarantine list ID")
    op.types("migrator quarantine accept ID KEY")
    op.raw.hset(OLD, "b", TICKS)
    op.types("migrator quarantine retry ID")
    op.types("migrator apply ID --plan plan.json")
    op.types("migrator apply ID --url redis://127.0.0.1:1/0 --retry 0", exit=3)
    op.types("migrator status ID")
    with monkeypatch.context() as patched:
        patched.setattr("time.sleep", _ctrl_c)
        op.types("migrator status ID --watch", exit=130)
    op.raw.zadd(NEW, {"somebody else": 1})
    op.types("migrator verify ID", exit=30)
    op.types("migrator verify ID --repair")
    op.types("migrator rollback ID --to pending --yes")  # which forgets what was accepted
    op.raw.delete(ODD)
    op.types("migrator apply ID --plan plan.json", exit=14)
    lease = op.finds_the_lease_taken()
    op.types("migrator lock show")
    op.types("migrator apply ID", exit=20)
    lease.release()
    op.types("migrator apply ID")
    op.raw.hset(OLD, "d", TICKS)  # the application goes on until it is stopped
    op.types("migrator apply ID --through contract --backup DIR --yes")
    assert op.raw.zcard(NEW) == 4
    assert op.raw.keys("map:*") == [NEW.encode()]


def resume(op: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    op.types("migrator apply ID --through expand")
    op.finds_the_lease_taken()  # by a process that is dead
    op.types("migrator apply ID", exit=20)
    op.types("migrator status ID")
    op.types("migrator lock show")
    op.types("migrator lock break TOKEN")
    op.types("migrator apply ID")
    op.types("migrator history ID")

    op.module.write_text(op.module.read_text() + "# edited\n")
    op.types("migrator apply ID --through switch", exit=11)
    shutil.copy(ROOT / "migrations" / MODULE, op.module)

    op.forget("{migrator}")
    op.types("migrator apply ID", exit=62)
    op.types("migrator init ID --at markers --yes")
    op.forget("{migrator}", "marker")
    op.types("migrator init ID --at contracted --yes", exit=60)
    op.types("migrator init ID --at pending --yes")
    op.types("migrator apply ID --backup DIR")
    op.types("migrator apply ID --through contract --backup DIR --yes")
    op.forget("{migrator}", "marker")
    op.types("migrator init ID --at contracted --yes")
    assert op.raw.zcard(NEW) == 3
    op.types("migrator apply ID")


def back(op: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    before = op.raw.hgetall(OLD)
    op.types("migrator apply ID --through contract --backup DIR --yes")
    op.types("migrator status ID")
    op.raw.zadd(NEW, {"late": TICKS})
    op.types("migrator rollback ID --yes", exit=60)
    op.module.write_text(op.module.read_text() + "# edited\n")
    op.types("migrator rollback ID --backup DIR --yes", exit=11)
    shutil.copy(ROOT / "migrations" / MODULE, op.module)
    op.types("migrator rollback ID --backup DIR --yes")
    op.types("migrator verify ID")
    op.raw.hdel(OLD, "late")
    op.types("migrator verify ID", exit=30)
    op.raw.hset(OLD, "late", TICKS)
    op.types("migrator rollback ID --to pending --backup DIR --yes")
    assert op.raw.hgetall(OLD) == {**before, b"late": str(TICKS).encode()}

    op.types("migrator apply")
    assert not op.raw.exists(NEW)
    op.types("migrator apply ID")
    op.raw.hdel(OLD, "late")
    op.types("migrator apply ID --through contract --backup DIR --yes")
    op.raw.zadd(NEW, {"damaged": 1})
    op.types("migrator restore ID --backup DIR --discard-later-writes --yes")
    assert op.raw.hgetall(OLD) == before
    assert not op.raw.exists(NEW)


def tried(op: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    op.filled |= {"FILE": "data.ndjson", "ID=contracted": "0002=contracted", "N": "1"}
    before = op.raw.hgetall(OLD)
    op.types("migrator snapshot take FILE")
    op.types("migrator plan --snapshot FILE")
    op.types("migrator rehearse --snapshot FILE --writers N --failover")
    assert op.raw.hgetall(OLD) == before

    op.raw.zadd(NEW, {"new": 1})
    op.raw.delete(OLD)
    op.types("migrator snapshot take FILE --overwrite")
    op.types("migrator plan --snapshot FILE", exit=62)
    op.types("migrator plan --snapshot FILE --at ID=contracted")
    op.raw.delete(NEW)
    op.raw.hset(OLD, mapping={"a": TICKS, "b": "yesterday"})
    op.types("migrator snapshot take FILE --overwrite")
    op.types("migrator plan --snapshot FILE --out known.json", exit=32)
    op.types("migrator plan --snapshot FILE --expect known.json")
    op.raw.hset(OLD, "c", "today")
    op.types("migrator snapshot take FILE --overwrite")
    op.types("migrator plan --snapshot FILE --expect known.json", exit=30)
    op.raw.set(NEW, "no sorted set")
    op.types("migrator snapshot take FILE --overwrite")
    op.types("migrator plan --snapshot FILE", exit=60)


PLAYED: dict[str, Callable[[Operator, pytest.MonkeyPatch], None]] = {
    "deploy-a-migration": deploy,
    "resume-after-a-crash": resume,
    "roll-back-or-restore": back,
    "try-on-a-snapshot": tried,
}


def _ctrl_c(_: float) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.stem)
def test_every_command_does_what_the_runbook_says(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, book: Path
) -> None:
    PLAYED[book.stem](operator, monkeypatch)
    assert commands_in(book) - operator.typed == set(), "in the runbook, and never run"
    assert codes_in(book) <= operator.codes, "a code it explains, and the test never met"


@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.stem)
def test_a_runbook_fits_one_screen_and_has_its_sections(book: Path) -> None:
    lines = book.read_text("utf-8").splitlines()
    assert len(lines) <= 45
    assert [line for line in lines if len(line) > 80] == []
    assert re.findall(r"^\*\*([^*]+)\*\*", book.read_text("utf-8"), re.MULTILINE) == SECTIONS
    assert [link for link in re.findall(r"\]\(([^)]+)\)", "\n".join(lines)) if not (book.parent / link).is_file()] == []


def every_command() -> Iterator[tuple[str, click.Command]]:
    waiting: list[tuple[str, Any]] = [("migrator", get_command(app))]
    while waiting:
        name, command = waiting.pop()
        yield name, command
        waiting += [(f"{name} {word}", inner) for word, inner in getattr(command, "commands", {}).items()]


HELP = dict(every_command())
OPTIONS = {name: {o for p in command.params for o in p.opts} | {"--help"} for name, command in HELP.items()}
COMMON_OPTIONS = set(re.findall(r"--[a-z-]+", COMMON))
# One word an idea (design: "Words"); these are other words for ideas that have one.
STRANGERS = (
    "validat", "check-?sum", "cut-?over", "dry.run", "finali[sz]", "clean.?up", "dead.letter", "mutex", "journal",
    "upgrade", "downgrade", "revert", "skip", "reject", "invalid", "simulat", "sync", "transform", "convert",
)  # fmt: skip


def helped(name: str) -> str:
    command = HELP[name]
    return command.get_help(type(command).context_class(command, info_name=name))


@pytest.mark.parametrize("name", sorted(HELP))
def test_help_knows_only_commands_options_and_words_that_there_are(name: str) -> None:
    text = helped(name)
    for mentioned in re.findall(r"migrator ((?:[a-z]+ ?)+)", re.sub(r"\s+", " ", text)):
        assert f"migrator {mentioned.split()[0]}" in HELP, mentioned
    assert set(re.findall(r"(?<![\w-])--[a-z-]+", text)) <= COMMON_OPTIONS.union(*OPTIONS.values())
    assert re.findall("|".join(STRANGERS), text, re.IGNORECASE) == []


@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.stem)
def test_a_runbook_names_only_options_that_there_are(book: Path) -> None:
    for command in commands_in(book):
        words = command.split()
        name = next(name for name in (" ".join(words[:3]), " ".join(words[:2])) if name in HELP)
        assert {word for word in words if word.startswith("--")} <= OPTIONS[name] | COMMON_OPTIONS
