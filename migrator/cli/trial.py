"""`plan --snapshot`: the run on a throw-away server, and its report for people and for CI."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree as Xml

from migrator.cli.opened import signals
from migrator.cli.options import Asked, Common
from migrator.cli.progress import observer
from migrator.engine.observe import Stop
from migrator.errors import InterruptedRunError, UsageError
from migrator.models import MigrationPlan, PlanResult, SnapshotReport, TriedMigration, number_of
from migrator.moves.loader import Modules, load
from migrator.names import Names
from migrator.phases import FORWARD, Phase
from migrator.rehearsal.division import divided
from migrator.rehearsal.dryrun import Trial
from migrator.rehearsal.expected import read, unexpected
from migrator.rehearsal.scratch import Source, scratch
from migrator.rehearsal.shares import Settings, number_for, try_shares


@contextmanager
def on_scratch(settings: Common, path: Path) -> Iterator[tuple[Source, Modules]]:
    """What a run on a throw-away server needs; a signal ends it, and there is nothing to go on with."""
    watcher, stop = observer(), Stop()
    try:
        with signals(stop, at_once=False):
            modules = load(settings.migrations)
            yield Source(path, Names(settings.namespace), watcher, stop), modules
    except InterruptedRunError as error:
        raise InterruptedRunError(error.signum, writes=False) from None
    finally:
        watcher.end()


def tried(settings: Common, ids: Sequence[str], asked: Asked) -> PlanResult:
    """The plan with its report. Never connects to `--url`."""
    phases = stands_at(asked.at)
    expected = read(asked.expect) if asked.expect else None
    check_place(asked.junit, "--junit")
    with on_scratch(settings, asked.snapshot) as (source, modules):
        modules.select([*ids, *phases])  # a wrong ID is said at once
        number = number_for(asked.snapshot, asked.processes)
        if number == 1:
            with scratch(source, modules) as one:
                plan = Trial(one, ids, phases).play(str(asked.snapshot))
        else:
            source.observer.say(f"in {number} shares, each on a server of its own")
            division = divided(source.path, modules, source.names, number, source.stop.check)
            told = Settings(file=str(asked.snapshot), migrations=str(settings.migrations.resolve()), ids=tuple(ids),
                            namespace=settings.namespace, at=phases, division=division)  # fmt: skip
            plan = try_shares(told, source.stop)
    report = plan.snapshot
    assert report is not None
    if asked.expect and expected:
        report = as_expected(report, expected, asked.expect)
    return plan.model_copy(update={"snapshot": report})


def check_place(path: Path | None, option: str) -> None:
    """Raises UsageError where a file cannot be written: said before the work, not after it."""
    why = ""
    if path is not None and not path.absolute().parent.is_dir():
        why = "there is no such directory"
    elif path is not None and path.is_dir():
        why = "it is a directory"
    if why:
        raise UsageError(f"cannot write {path}: {why}", next=f"give {option} another file")


def as_expected(report: SnapshotReport, expected: SnapshotReport, path: Path) -> SnapshotReport:
    """Records that cannot be mapped are no failure where the expected report has just the same ones."""
    found = unexpected(report, expected)
    exit = (report.exit if report.exit not in (0, 32) else 30) if found else 0 if report.exit == 32 else report.exit
    anew = f"if that is right, write it anew: migrator plan --snapshot {report.file} --out {path}"
    return report.model_copy(
        update={"unexpected": (*found, anew) if found else (), "exit": exit, "expected": not found}
    )


def stands_at(given: Sequence[str]) -> dict[str, Phase]:
    """The phases of `--at ID=PHASE`. Raises UsageError for what is none."""
    return dict(map(_phase, given))


def _phase(text: str) -> tuple[str, Phase]:
    id, equals, name = text.partition("=")
    for phase in FORWARD:
        if equals and id and phase == name:
            return id, phase
    raise UsageError(f"--at is ID=PHASE with one of {', '.join(FORWARD)}, not {text!r}",
                     next="for instance: --at 0001=contracted")  # fmt: skip


def save_junit(path: Path, plan: PlanResult) -> None:
    """Raises UsageError if it cannot be written."""
    try:
        path.write_bytes(junit(plan))
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", next="give --junit another file") from None


# What failed, by migration: (title, sentence).


def faults(plan: MigrationPlan, tried: TriedMigration, report: SnapshotReport) -> Iterator[tuple[str, str]]:
    """What is wrong with one migration, in the order of importance."""
    yield from (("refused", f"{one.text}. {one.next}".strip()) for one in plan.refused)
    for stop in report.stopped:
        if stop.id == tried.id:
            yield "stopped", f"at {stop.phase}: {stop.reason}"
    for one in tried.differences:
        yield "difference", f"{where(one.key, one.member)}: {one.why}"
    if (more := tried.differing - len(tried.differences)) > 0:
        yield "difference", f"{number_of(more, 'more record')} that differ"
    if not report.expected:
        for reason in tried.reasons:
            which = f"for instance {where(reason.key, reason.member)}"
            yield "cannot be mapped", f"{number_of(reason.count, 'record')}: {reason.reason}; {which}"


def elsewhere(report: SnapshotReport) -> Iterator[tuple[str, str]]:
    """What is wrong and belongs to no migration."""
    for one in report.elsewhere:
        yield "difference", f"{where(one.key, one.member)}: {one.why}"
    for text in report.unexpected:
        yield "not as expected", text


def where(key: str, member: str | None) -> str:
    return key if member is None else f"{key} [{member}]"


def workflow_commands(plan: PlanResult, directory: Path) -> Iterator[str]:
    """Workflow commands of GitHub, one for each fault."""
    report = plan.snapshot
    assert report is not None
    for one, tried in zip(plan.migrations, report.migrations, strict=True):
        for title, text in faults(one, tried, report):
            file = (directory / f"{one.id}.py").as_posix()
            yield f"::error file={_property(file)},title={_property(f'{one.id}: {title}')}::{_data(text)}"
    for title, text in elsewhere(report):
        yield f"::error title={_property(f'{report.file}: {title}')}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def junit(plan: PlanResult) -> bytes:
    """JUnit XML: a suite, with a case for each migration and one for the database as a whole."""
    report = plan.snapshot
    assert report is not None
    suite = Xml.Element("testsuite", name=f"migrator plan --snapshot {report.file}")
    cases = [(one.id, list(faults(one, tried, report)))
             for one, tried in zip(plan.migrations, report.migrations, strict=True)]  # fmt: skip
    cases.append(("the whole database", list(elsewhere(report))))
    for name, found in cases:
        case = Xml.SubElement(suite, "testcase", classname="migrator", name=name)
        if found:
            failure = Xml.SubElement(case, "failure", message=f"{found[0][0]}: {found[0][1]}", type=found[0][0])
            failure.text = "\n".join(f"{title}: {text}" for title, text in found)
    suite.set("tests", str(len(cases)))
    suite.set("failures", str(sum(bool(found) for _, found in cases)))
    suite.set("time", f"{sum(report.seconds.values()):.2f}")
    Xml.indent(suite)
    raw: bytes = Xml.tostring(suite, "utf-8", xml_declaration=True)
    return raw
