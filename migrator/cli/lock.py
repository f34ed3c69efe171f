"""The commands about the lease. Imports wait until a command runs, for speed."""

from __future__ import annotations

from typing import Annotated

import typer

lock_app = typer.Typer(
    help="Show who holds the lease, or break it.",
    rich_markup_mode=None,
    no_args_is_help=True,
)


@lock_app.command("show")
def lock_show(ctx: typer.Context) -> int:
    """Show who holds the lease and for how long."""
    from migrator.cli.opened import opened, show
    from migrator.engine import commands

    with opened(ctx.obj, writes=False) as session:
        show(commands.lock_show(session), ctx.obj)
    return 0


@lock_app.command("break")
def lock_break(ctx: typer.Context, token: Annotated[str, typer.Argument(metavar="TOKEN")]) -> int:
    """Take the lease from its holder, named by the token that `lock show` prints; the holder stops by itself."""
    from migrator.cli.opened import opened, show
    from migrator.engine import commands

    with opened(ctx.obj) as session:
        show(commands.lock_break(session, token), ctx.obj)
    return 0
