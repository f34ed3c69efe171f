"""Every command: its options, its help, and one call into the engine. Imports wait until a command runs, for speed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from migrator.cli.arguments import (
    At,
    AtOption,
    BackTo,
    BackupOption,
    CheckOption,
    Id,
    Ids,
    IgnoreLoadOption,
    Kind,
    MaxPauseOption,
    MaybeId,
    RateOption,
    SnapshotOption,
    Through,
    ThroughOption,
    Truth,
    YesOption,
    no_nan,
)
from migrator.cli.lock import lock_app
from migrator.cli.options import Asked, Common, duration
from migrator.cli.quarantine import quarantine_app
from migrator.cli.snapshots import snapshot_app
from migrator.errors import UsageError

COMMON = """\
Options of every command, before or after it:

\b
  --url URL          MIGRATOR_URL; redis://, rediss://, unix://,
                     redis+cluster://, redis+sentinel://host:port/service/db
                     (default redis://localhost:6379/0)
  --migrations DIR   MIGRATOR_MIGRATIONS (default migrations)
  --namespace NAME   prefix of all this tool keeps in Redis (default migrator)
  --format FORMAT    text or json: one document on stdout
  --lease SECONDS    how long others wait for a run that died (default 30)
  --retry SECONDS    how long to try an unreachable Redis again (default 30)
"""

app = typer.Typer(
    name="migrator",
    help="Carries data in Redis from one shape to another while applications use it, and proves nothing was lost."
    "\n\nSee what would happen: migrator plan. Do it: migrator apply. Where it stands: migrator status."
    "\n\nTry it all on an embedded server: migrator demo.",
    epilog=COMMON,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)
app.add_typer(quarantine_app, name="quarantine")
app.add_typer(lock_app, name="lock")
app.add_typer(snapshot_app, name="snapshot")


@app.command()
def init(
    ctx: typer.Context,
    id: MaybeId = None,
    at: Annotated[At | None, typer.Option(help="Overrule a ledger that is lost: see the runbooks.")] = None,
    backup: Annotated[
        Path | None, typer.Option(metavar="DIR", help="With --at markers: the --backup DIR that was used.")
    ] = None,
    yes: YesOption = False,
) -> int:
    """Prepare ledger and markers, so that adapters may start. Harmless to repeat; apply begins with it."""
    from migrator.cli.opened import opened, show
    from migrator.engine import commands

    if backup is not None and at is not At.markers:
        raise UsageError("--backup is about --at markers", next="leave --backup away")
    with opened(ctx.obj, [id] if id else [], yes=yes, backup=backup) as session:
        show(commands.init(session, id, at.value if at else None), ctx.obj)
    return 0


@app.command()
def plan(
    ctx: typer.Context,
    ids: Ids = None,
    through: ThroughOption = Through.verify,
    check: CheckOption = False,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Save the plan, for apply --plan FILE.")] = None,
    backup: BackupOption = None,
    snapshot: SnapshotOption = None,
    at: AtOption = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="With --snapshot: JUnit XML, for CI.")] = None,
    annotations: Annotated[
        bool, typer.Option("--annotations", help="With --snapshot: workflow commands for GitHub, one for each fault.")
    ] = False,
    expect: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --snapshot: compare with a plan that --out saved.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=64, help="With --snapshot: in so many shares at once.")
    ] = None,
) -> int:
    """Show what apply would do, on real records. Writes nothing.

    With --snapshot FILE it is done for real on a throw-away server: through contract, all the way back, and there
    again. --url is not asked. Exit 60 if refused, 30 if a record differs, 32 if one cannot be mapped.
    """
    from migrator.cli.opened import opened, show
    from migrator.engine.forward import THROUGH
    from migrator.engine.plan import plan as make

    if snapshot is not None:
        _refuse_with_snapshot(ctx, "through", "check", "backup")
        asked = Asked(snapshot, tuple(at or ()), junit, annotations, expect, processes)
        return _plan_on_snapshot(ctx.obj, ids or [], out, asked)
    _refuse_without_snapshot(ctx, "at", "junit", "annotations", "expect", "processes")
    with opened(ctx.obj, ids or [], writes=False, backup=backup) as session:
        result = make(session, ids or [], THROUGH[through.value])
    if out is not None:
        _save(out, result.model_dump_json(indent=2, by_alias=True) + "\n")
    show(result, ctx.obj)
    if any(one.refused for one in result.migrations):
        return 60
    pending = not all(one.done or one.waits_for for one in result.migrations)
    return 10 if check and pending else 0


@app.command()
def apply(
    ctx: typer.Context,
    ids: Ids = None,
    plan: Annotated[Path | None, typer.Option(metavar="FILE", help="Only if this saved plan still holds.")] = None,
    through: ThroughOption = Through.verify,
    yes: YesOption = False,
    rate: RateOption = 0,
    backup: BackupOption = None,
    repair_indexes: Annotated[
        bool, typer.Option("--repair-indexes", help="Make the index repairs the plan lists.")
    ] = False,
    max_pause: MaxPauseOption = "10m",
    ignore_load: IgnoreLoadOption = False,
) -> int:
    """Carry migrations forward. The same command resumes after any stop or crash.

    It stops after verification; --through switch and --through contract go on. Contract removes the old shape, so it
    needs --yes and --backup DIR.
    """
    from migrator.cli.opened import limits_from, opened, show
    from migrator.engine import commands

    limits = limits_from(max_pause, ignore=ignore_load)
    with opened(
        ctx.obj, ids or [], rate=rate, yes=yes, backup=backup, repair_indexes=repair_indexes, limits=limits
    ) as session:
        result = commands.apply(session, ids or [], through.value, _saved_plan(plan) if plan is not None else None)
        show(result, ctx.obj)
    return result.stopped.exit if result.stopped else 0


def _plan_on_snapshot(settings: Common, ids: list[str], out: Path | None, asked: Asked) -> int:
    import sys

    from migrator.cli.opened import show
    from migrator.cli.trial import check_place, save_junit, tried, workflow_commands

    check_place(out, "--out")
    result = tried(settings, ids, asked)
    if out is not None:
        _save(out, result.model_dump_json(indent=2, by_alias=True) + "\n")
    if asked.junit is not None:
        save_junit(asked.junit, result)
    show(result, settings)
    if asked.annotations:  # aside, where standard output is one document
        for line in workflow_commands(result, settings.migrations):
            print(line, file=sys.stderr if settings.format == "json" else sys.stdout)
    return result.snapshot.exit if result.snapshot else 0


def _refuse_with_snapshot(ctx: typer.Context, *names: str) -> None:
    for name in _given(ctx, names):
        raise UsageError(f"--{name} means nothing with --snapshot: it goes through contract and back on its own server",
                         next=f"leave --{name} away")  # fmt: skip


def _refuse_without_snapshot(ctx: typer.Context, *names: str) -> None:
    for name in _given(ctx, names):
        raise UsageError(f"--{name} is about a plan on a snapshot", next="name the snapshot with --snapshot FILE")


def _given(ctx: typer.Context, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE"]


def _save(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", next="give --out another file") from None


def _saved_plan(path: Path):  # type: ignore[no-untyped-def]
    from pydantic import ValidationError

    from migrator.models import PlanResult

    try:
        saved = PlanResult.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise UsageError(
            f"{path} is not a saved plan ({type(error).__name__})", next="make one: migrator plan --out FILE"
        ) from None
    if saved.snapshot is not None:
        raise UsageError(f"{path} is a plan on a snapshot", next="make one of the server: migrator plan --out FILE")
    return saved


@app.command()
def status(
    ctx: typer.Context,
    id: MaybeId = None,
    watch: Annotated[bool, typer.Option("--watch", help="Again every two seconds, until Ctrl-C.")] = False,
    check: CheckOption = False,
    through: ThroughOption = Through.verify,
) -> int:
    """Show where every migration stands and the exact next command. Reads only."""
    import time

    from migrator.cli.opened import opened, show
    from migrator.engine.forward import THROUGH
    from migrator.engine.status import pending
    from migrator.engine.status import status as look

    if watch and ctx.obj.format == "json":
        raise UsageError("--watch prints again and again, and with --format json there is one document",
                         next="leave one of the two away")  # fmt: skip
    with opened(ctx.obj, [id] if id else [], writes=False) as session:
        while True:
            result = look(session, [id] if id else [])
            show(result, ctx.obj)
            if not watch:
                break
            time.sleep(2)
            print()
        return 10 if check and pending(session, result, THROUGH[through.value]) else 0


@app.command()
def verify(
    ctx: typer.Context,
    id: Id,
    sample: Annotated[
        float,
        typer.Option(metavar="SHARE", min=0.0001, max=1.0, callback=no_nan, help="Compare this share only, e.g. 0.05."),
    ] = 1.0,
    budget: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stop after e.g. 30s; then it is incomplete.")
    ] = None,
    rate: RateOption = 0,
    repair: Annotated[bool, typer.Option("--repair", help="Before the switch: repair from the old shape.")] = False,
    foreign: Annotated[
        Truth | None,
        typer.Option(metavar="SIDE", help="After the switch: old or new, the side that is right where they differ."),
    ] = None,
    backup: BackupOption = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Let --repair remove what was added to targets that were there before.")
    ] = False,
    max_pause: MaxPauseOption = "10m",
    ignore_load: IgnoreLoadOption = False,
) -> int:
    """Compare every record of both shapes. Exit 30 if any differs, 31 if not all were compared."""
    from migrator.cli.opened import limits_from, opened, show
    from migrator.engine import verify as verifying

    seconds = duration(budget, "--budget") if budget else None
    writes, limits = repair or foreign is not None, limits_from(max_pause, ignore=ignore_load)
    with opened(ctx.obj, [id], writes=writes, rate=rate, yes=yes, backup=backup, limits=limits) as session:
        result = verifying.verify(
            session, id, sample=sample, budget=seconds, repair=repair, foreign=foreign.value if foreign else None
        )
    show(result, ctx.obj)
    return verifying.verify_exit(result)


@app.command()
def rollback(
    ctx: typer.Context,
    id: Id,
    to: Annotated[BackTo | None, typer.Option(help="How far back; one step if not said.")] = None,
    backup: BackupOption = None,
    yes: YesOption = False,
    max_pause: MaxPauseOption = "10m",
    ignore_load: IgnoreLoadOption = False,
) -> int:
    """Go back: one step, or to the phase named. Later writes are kept. Repeat it after a crash."""
    from migrator.cli.opened import limits_from, opened, show
    from migrator.engine import commands

    limits = limits_from(max_pause, ignore=ignore_load)
    with opened(ctx.obj, [id], yes=yes, backup=backup, limits=limits) as session:
        result = commands.rollback(session, id, to.value if to else None)
        show(result, ctx.obj)
    return result.stopped.exit if result.stopped else 0


@app.command()
def restore(
    ctx: typer.Context,
    id: Id,
    backup: Annotated[Path, typer.Option(metavar="DIR", help="The --backup DIR that contract wrote.")],
    discard_later_writes: Annotated[
        bool, typer.Option("--discard-later-writes", help="Say that what was written since is lost (it is saved).")
    ] = False,
    yes: YesOption = False,
    max_pause: MaxPauseOption = "10m",
    ignore_load: IgnoreLoadOption = False,
) -> int:
    """Put the backup back as it was. What was written since contract is saved beside it and removed."""
    from migrator.cli.opened import limits_from, opened, show
    from migrator.engine import commands
    from migrator.errors import RefusedError

    limits = limits_from(max_pause, ignore=ignore_load)

    if not discard_later_writes:
        raise RefusedError(
            "restore discards what was written since contract",
            next=f"to keep it: migrator rollback {id} --backup DIR --yes; to discard it, add --discard-later-writes",
        )
    with opened(ctx.obj, [id], yes=yes, backup=backup, limits=limits) as session:
        result = commands.restore(session, id)
        show(result, ctx.obj)
    return result.stopped.exit if result.stopped else 0


@app.command()
def history(ctx: typer.Context, id: MaybeId = None) -> int:
    """Show who did what, oldest first."""
    from migrator.cli.opened import opened, show
    from migrator.engine import commands

    with opened(ctx.obj, [id] if id else [], writes=False) as session:
        show(commands.history(session, id), ctx.obj)
    return 0


@app.command()
def new(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Lower-case words: orders_to_hashes.")],
    kind: Annotated[Kind, typer.Option(help="key: one key becomes one key; member: one member of a collection.")],
) -> int:
    """Write a new migration and its test. Its comments are the tutorial."""
    from migrator.cli.opened import show
    from migrator.cli.templates import write

    settings: Common = ctx.obj
    show(write(settings.migrations, name, kind.value), settings)
    return 0


@app.command()
def rehearse(
    ctx: typer.Context,
    snapshot: Annotated[Path, typer.Option("--snapshot", metavar="FILE", help="The snapshot to rehearse on.")],
    ids: Ids = None,
    at: AtOption = None,
    kill_every: Annotated[
        str, typer.Option(metavar="TIME", help="How long apply lives, on average; 0 for ever.")
    ] = "0.5s",
    writers: Annotated[int, typer.Option(metavar="N", min=0, max=64, help="Processes that write meanwhile.")] = 4,
    failover: Annotated[
        bool, typer.Option("--failover", help="Lose the server half way; its replica takes over.")
    ] = False,
) -> int:
    """Carry the migrations of a snapshot out while everything goes wrong, on servers of its own.

    There, back and there again; meanwhile the tool is killed and started again, and adapters write. Then every record
    is looked at. Exit 30 if one is lost, nobody's or different, 32 if one cannot be mapped. --url is not asked.
    """
    from migrator.cli.opened import show
    from migrator.cli.trial import on_scratch, stands_at
    from migrator.rehearsal.rehearse import Hardship, Rehearsal

    hardship = Hardship(duration(kill_every, "--kill-every"), writers, failover)
    phases = stands_at(at or ())
    with on_scratch(ctx.obj, snapshot) as (source, modules):
        modules.select([*(ids or []), *phases])
        result = Rehearsal(source, modules, hardship).play(ids or [], phases)
    show(result, ctx.obj)
    return result.exit


@app.command()
def demo(ctx: typer.Context) -> int:
    """Play the whole story on an embedded server.

    Plan, apply, quarantine, contract, and the way back, with the commands as you would type them.
    """
    from migrator.cli.demo import play

    settings: Common = ctx.obj
    if settings.format == "json":
        raise UsageError("demo tells a story and has no JSON", next="run it without --format json")
    return play(settings.migrations)
