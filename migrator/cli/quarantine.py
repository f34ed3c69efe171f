"""The commands about records that cannot be mapped. Imports wait until a command runs, for speed."""

from __future__ import annotations

from typing import Annotated

import typer

from migrator.cli.arguments import Id, IgnoreLoadOption, MaxPauseOption

quarantine_app = typer.Typer(
    help="List, retry or accept records that cannot be mapped.",
    rich_markup_mode=None,
    no_args_is_help=True,
)


@quarantine_app.command("list")
def quarantine_list(ctx: typer.Context, id: Id) -> int:
    """List the records that cannot be mapped, with reasons. Their values are not shown."""
    from migrator.cli.opened import opened, show
    from migrator.engine import decide

    with opened(ctx.obj, [id], writes=False) as session:
        show(decide.quarantine_list(session, id), ctx.obj)
    return 0


@quarantine_app.command("retry")
def quarantine_retry(
    ctx: typer.Context, id: Id, max_pause: MaxPauseOption = "10m", ignore_load: IgnoreLoadOption = False
) -> int:
    """Try every open record again: what was mended is carried over and leaves the list."""
    from migrator.cli.opened import limits_from, opened, show
    from migrator.engine import decide

    limits = limits_from(max_pause, ignore=ignore_load)
    with opened(ctx.obj, [id], limits=limits) as session:
        result = decide.quarantine_retry(session, id)
    show(result, ctx.obj)
    return 32 if any(not record.accepted for record in result.records) else 0


@quarantine_app.command("accept")
def quarantine_accept(
    ctx: typer.Context,
    id: Id,
    keys: Annotated[list[str] | None, typer.Argument(metavar="KEY", help="Keys as the list prints them.")] = None,
    member: Annotated[str | None, typer.Option(metavar="M", help="The member of that key.")] = None,
    reason: Annotated[str | None, typer.Option(metavar="R", help="All with this reason.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that are open.")] = False,
) -> int:
    """Accept records as they are: they no longer hold the migration up.

    They are not carried over. Contract sets them aside, untouched, under a name of its own that begins with the
    namespace, so the application does not see them any more.
    """
    from migrator.cli.opened import opened, show
    from migrator.engine import decide
    from migrator.models import unshow

    with opened(ctx.obj, [id]) as session:
        result = decide.quarantine_accept(
            session, id, keys=[unshow(key) for key in keys or []],
            member=unshow(member) if member is not None else None, reason=reason, everything=everything,
        )  # fmt: skip
        show(result, ctx.obj)
    return 0
