"""Every command of the runbooks is run, as it stands there, where an operator would run it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from typer.main import get_command

from migrator.cli.commands import COMMON, app
from migrator.cli.main import main
from migrator.client import connect
from migrator.engine.backfill import backfill
from migrator.engine.run import Run
from migrator.engine.sweep import sweep
from migrator.ledger import Lease, Tally
from migrator.ledger.lease import take_lease
from migrator.names import Names
from tests.records import saved
from tests.servers import ROOT, Place
from tests.support import KEYS, guid, job
from tests.trial import job_key

BOOKS = sorted((ROOT / "runbooks").glob("*.md"))
SECTIONS = ["When", "Before", "Do", "Watch", "Undo", "If it goes wrong"]
MODULE = "0002_timestamps_to_sorted_sets.py"
OLD, NEW = "map:m:__meta:timestamps", "map:m:__meta:timestamps-sorted"
TICKS = 638_960_228_601_234_560  # a multiple of 128: a score holds it exactly


def commands_in(book: Path) -> set[str]:
    """What it tells an operator to type: lines of `sh` blocks, and inline code that begins with `migrator `."""
    text = book.read_text("utf-8")
    blocks = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    inline = re.findall(r"`(migrator [^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return {*blocks, *inline}


def codes_in(book: Path) -> set[int]:
    """Exit codes that a point of *If it goes wrong* begins with, one or several."""
    points = re.findall(r"^- (\d+(?:, \d+)*)", book.read_text("utf-8"), re.MULTILINE)
    return {int(code) for point in points for code in point.split(", ")}


class Operator:
    """Types commands of a runbook, with what stands in capitals filled in, and remembers which they were.

    `said` is what the last one printed.
    """

    def __init__(self, place: Place, directory: Path, captured: pytest.CaptureFixture[str]) -> None:
        self.raw: Any = place.raw
        self.url = place.url
        self.said = ""
        self._captured = captured
        self.module = directory / "migrations" / MODULE
        self.filled = {"ID": "0002", "DIR": "backups", "KEY": OLD, "M": "odd"}
        self.typed: set[str] = set()
        self.codes: set[int] = set()

    def types(self, command: str, exit: int = 0) -> None:
        words = [self.filled.get(word, word) for word in shlex.split(command)]
        assert words[0] == "migrator"
        self.typed.add(command)
        code = self._run(words[1:])
        assert code == exit, f"{command}: {code}, not {exit}\n{self.said}"
        self.codes.add(code)

    def _run(self, words: list[str]) -> int:
        code = main(words)
        self.said, log = self._captured.readouterr()
        if code:
            self.said += log
        return code

    def phase(self) -> str:
        self._run(["status", self.filled["ID"], "--format", "json"])
        return str(json.loads(self.said)["migrations"][0]["phase"])

    def saved(self, name: str) -> dict[str, float]:
        """The members in backups of that name."""
        kept = saved(Path(self.filled["DIR"]), name)
        return {member.decode(): float(value) for _, _, _, members in kept for member, value in members}

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
def operator(
    server: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Operator:
    (tmp_path / "migrations").mkdir()
    shutil.copy(ROOT / "migrations" / MODULE, tmp_path / "migrations" / MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MIGRATOR_URL", server.url)
    monkeypatch.delenv("MIGRATOR_MIGRATIONS", raising=False)
    server.raw.hset(OLD, mapping={"a": TICKS, "b": TICKS + 128, "c": TICKS + 256})
    return Operator(server, tmp_path, capsys)


def deploy(op: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    op.raw.hset(OLD, mapping={"b": "yesterday", "odd": "never"})
    op.types("migrator plan ID --out plan.json")
    op.types("migrator apply ID --plan plan.json", exit=32)
    op.types("migrator quarantine list ID")
    op.types("migrator quarantine accept ID KEY --member M")
    op.raw.hset(OLD, "b", TICKS)
    op.types("migrator quarantine retry ID")
    op.types("migrator apply ID --plan plan.json")
    op.types("migrator apply ID --url redis://127.0.0.1:1/0 --retry 0", exit=3)
    with monkeypatch.context() as patched:
        patched.setattr("time.sleep", lambda _: os.kill(os.getpid(), signal.SIGINT))
        op.types("migrator status ID --watch", exit=130)
    op.types("migrator rollback ID --to pending --backup DIR --yes")
    assert not op.raw.exists(NEW)
    op.types("migrator apply ID --plan plan.json", exit=14)
    lease = op.finds_the_lease_taken()
    op.types("migrator lock show")
    op.types("migrator apply ID", exit=20)
    lease.release()
    with monkeypatch.context() as patched:
        patched.setattr("migrator.engine.forward.backfill", told_to_stop)
        op.types("migrator apply ID", exit=143)
    op.types("migrator apply ID")  # what was accepted still is
    op.raw.hset(OLD, "d", TICKS)  # the application goes on until it is stopped
    op.types("migrator apply ID --through switch")
    op.raw.hset(OLD, "e", TICKS)  # one was forgotten
    op.types("migrator apply ID --through contract --backup DIR --yes", exit=30)
    op.types("migrator verify ID --foreign old --backup DIR")
    op.types("migrator apply ID --through contract --backup DIR --yes")
    op.types("migrator apply ID --through contract --backup DIR --yes")  # "may be given again"
    assert {member for member, _ in op.raw.zscan_iter(NEW)} == {b"a", b"b", b"c", b"d", b"e"}
    assert op.raw.keys("map:*") == [NEW.encode()]
    [aside] = op.raw.keys("migrator:old:*")
    assert op.raw.hgetall(aside) == {b"odd": b"never"}


def told_to_stop(run: Run) -> Tally:
    """SIGTERM comes as the backfill begins."""
    os.kill(os.getpid(), signal.SIGTERM)
    return backfill(run)


def settle(op: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    op.types("migrator apply ID")
    op.raw.zadd(NEW, {"nobody's": 1})
    op.types("migrator verify ID", exit=30)
    op.types("migrator verify ID --repair")
    assert op.raw.zscore(NEW, "nobody's") is None
    _settle_old(op)
    _settle_new(op)
    _settle_late(op, monkeypatch)


def _settle_old(op: Operator) -> None:
    """An old version of the application still ran after the switch."""
    op.types("migrator apply ID --through switch")
    op.raw.hset(OLD, mapping={"a": TICKS + 128, "made": TICKS})
    op.raw.hdel(OLD, "c")
    op.types("migrator apply ID --through contract --backup DIR --yes", exit=30)
    op.types("migrator status ID")
    op.types("migrator verify ID", exit=30)
    assert "next: migrator verify 0002 --foreign SIDE --backup DIR" in op.said
    op.filled["SIDE"] = "old"
    op.types("migrator verify ID --foreign SIDE", exit=60)
    op.types("migrator verify ID --foreign SIDE --backup DIR")
    assert dict(op.raw.zscan_iter(NEW)) == {b"a": TICKS + 128, b"b": TICKS + 128, b"made": TICKS}
    assert op.saved("*-foreign-old-*") == {"a": TICKS, "c": TICKS + 256}
    op.types("migrator verify ID")


def _settle_new(op: Operator) -> None:
    """A new version of the application ran too early."""
    op.raw.zadd(NEW, {"b": TICKS + 256, "young": TICKS})
    op.raw.zrem(NEW, "made")
    op.types("migrator apply ID --through contract --backup DIR --yes", exit=30)
    op.filled["SIDE"] = "new"
    op.types("migrator verify ID --foreign SIDE --backup DIR", exit=30)
    assert "missing: map:m:__meta:timestamps [made]" in op.said
    values = {b"a": TICKS + 128, b"b": TICKS + 256, b"made": TICKS, b"young": TICKS}
    assert op.raw.hgetall(OLD) == {member: b"%d" % ticks for member, ticks in values.items()}
    assert op.saved("*-foreign-new-*") == {"b": TICKS + 128}
    op.raw.hdel(OLD, "made")
    op.types("migrator verify ID")
    op.raw.hset(OLD, "odd", "never")
    op.types("migrator apply ID --through contract --backup DIR --yes", exit=32)
    op.raw.hdel(OLD, "odd")
    op.types("migrator quarantine retry ID")
    op.types("migrator apply ID --through contract --backup DIR --yes")


def _settle_late(op: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old version of the application wrote between contract's comparison and its removal."""
    op.filled |= {"ID": "0003", "SIDE": "old"}
    op.module.with_name("0003_texts.py").write_text(KEYS)
    op.raw.set("{t}:text:a", "1")

    def late(run: Run) -> None:
        op.raw.set("{t}:text:late", "2")
        sweep(run)

    with monkeypatch.context() as patched:
        patched.setattr("migrator.engine.forward.sweep", late)
        op.types("migrator apply ID --through contract --backup DIR --yes", exit=30)
    op.types("migrator rollback ID --to switched --backup DIR --yes")
    op.types("migrator verify ID --foreign SIDE --backup DIR")
    op.types("migrator apply ID --through contract --backup DIR --yes")
    assert [op.raw.hget(f"{{t}}:hash:{id}", "text") for id in ("a", "late")] == [b"1", b"2"]
    assert not op.raw.keys("{t}:text:*")


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
    op.filled["PHASE"] = "switched"
    op.types("migrator apply ID --through contract --backup DIR --yes")
    op.types("migrator status ID")
    op.raw.zadd(NEW, {"late": TICKS})
    op.types("migrator rollback ID --yes", exit=60)
    op.module.write_text(op.module.read_text() + "# edited\n")
    op.types("migrator rollback ID --to PHASE --backup DIR --yes", exit=11)
    shutil.copy(ROOT / "migrations" / MODULE, op.module)
    for _ in range(2):
        op.types("migrator rollback ID --to PHASE --backup DIR --yes")
        assert op.phase() == "switched"
    op.types("migrator verify ID")
    op.types("migrator apply ID")  # which leads nowhere from here
    assert op.phase() == "switched"
    op.raw.hset(OLD, "early", TICKS)  # an old application that was started too early
    op.types("migrator apply ID --through contract --backup DIR --yes", exit=30)
    op.raw.hdel(OLD, "early")
    op.types("migrator apply ID --through contract --backup DIR --yes")
    op.filled["PHASE"] = "expanded"
    op.types("migrator rollback ID --to PHASE --backup DIR --yes")
    op.raw.hset(OLD, "old", TICKS)  # an old application that may be started
    op.types("migrator apply ID")
    assert op.raw.zscore(NEW, "old") == TICKS
    op.filled["PHASE"] = "pending"
    for _ in range(2):
        op.types("migrator rollback ID --to PHASE --backup DIR --yes")
        assert op.phase() == "pending"
    added = {b"late": b"%d" % TICKS, b"old": b"%d" % TICKS}
    assert op.raw.hgetall(OLD) == {**before, **added}
    op.types("migrator apply")  # which passes over what was rolled back
    assert not op.raw.exists(NEW)
    op.types("migrator apply ID")
    op.raw.hdel(OLD, "late", "old")
    op.types("migrator apply ID --through contract --backup DIR --yes")
    op.raw.zadd(NEW, {"damaged": 1})
    op.types("migrator restore ID --backup DIR --discard-later-writes --yes")
    assert op.raw.hgetall(OLD) == before
    assert not op.raw.exists(NEW)
    _back_to_a_queue(op)


def _back_to_a_queue(op: Operator) -> None:
    """A job that was done since contract is to be done again after a restore, and the queue does not have it."""
    op.filled["ID"] = "0003"
    for path in (ROOT / "migrations").glob("0001_*.py"):
        shutil.copy(path, op.module.with_name(path.name.replace("0001", "0003")))
    shutil.copy(ROOT / "migrations" / "_prefix.py", op.module.parent)
    sys.modules.pop("_prefix", None)  # of another directory, imported by another test
    op.raw.set(job_key(0), job(guid(0), status=100))
    op.raw.zadd("ae:jobs:queue", {guid(0): 1})
    op.types("migrator apply ID --through contract --backup DIR --yes")
    op.raw.delete(job_key(0), "ae:jobs:queue")
    op.types("migrator restore ID --backup DIR --discard-later-writes --yes")
    op.types("migrator plan ID")
    assert f"add {guid(0)} in ae:jobs:queue" in op.said
    op.types("migrator apply ID --through expand --repair-indexes")
    assert op.raw.zscore("ae:jobs:queue", guid(0)) is not None
    assert op.raw.type(job_key(0)) == b"string"


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
    op.module.with_name("0003_third.py").write_text(KEYS.replace("\n))", '\n), after=["0002"])'))
    op.types("migrator plan --snapshot FILE 0003", exit=12)


PLAYED: dict[str, Callable[[Operator, pytest.MonkeyPatch], None]] = {
    "deploy-a-migration": deploy,
    "resume-after-a-crash": resume,
    "roll-back-or-restore": back,
    "settle-what-differs": settle,
    "try-on-a-snapshot": tried,
}


@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.stem)
def test_every_command_does_what_the_runbook_says(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, book: Path
) -> None:
    PLAYED[book.stem](operator, monkeypatch)
    assert commands_in(book) - operator.typed == set(), "in the runbook, and never run"
    assert codes_in(book) <= operator.codes, "a code it explains, and the test never met"


def test_the_undo_of_a_deploy_gives_back_what_was_there_before_under_the_new_names(operator: Operator) -> None:
    book = (ROOT / "runbooks" / "deploy-a-migration.md").read_text("utf-8")
    [undo] = re.findall(r"^\*\*Undo\*\*: .*`(migrator [^`]+)`", book, re.MULTILINE)
    operator.raw.zadd(NEW, {"a": 1, "older": 2})
    operator.types("migrator init ID --at pending --yes")
    operator.types("migrator apply ID", exit=60)
    operator.types("migrator apply ID --backup DIR --yes")
    assert operator.raw.zscore(NEW, "a") == TICKS
    operator.types(undo)
    assert dict(operator.raw.zscan_iter(NEW)) == {b"a": 1, b"older": 2}


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
