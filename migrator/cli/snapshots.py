"""The commands about snapshots. Imports wait until a command runs, for speed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

snapshot_app = typer.Typer(
    help="Take, load or describe a snapshot: a file that holds records of a database.",
    rich_markup_mode=None,
    no_args_is_help=True,
)

File = Annotated[Path, typer.Argument(metavar="FILE", help="NDJSON, gzip'd if it ends in .gz.")]
AnyFile = Annotated[Path, typer.Argument(metavar="FILE", help="NDJSON, plain or gzip'd.")]


@snapshot_app.command("load")
def load(
    ctx: typer.Context,
    file: AnyFile,
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite keys that are there already.")] = False,
) -> int:
    """Load a snapshot into the server at --url, where nobody else may write meanwhile.

    The file is read whole first, and refused before anything is written if a key is there already. Records whose time
    has passed are counted and not loaded. Nothing is flushed.
    """
    from migrator.cli.opened import at_work, show
    from migrator.errors import InterruptedRunError
    from migrator.snapshot.load import load as put

    with at_work(ctx.obj, "loading", writes=True) as (client, tick, _):
        try:
            result = put(file, client, replace=replace, tick=tick)
        except InterruptedRunError as stopped:
            raise _half_loaded(stopped, file) from None
    show(result, ctx.obj)
    return 0


def _half_loaded(stopped: Exception, file: Path) -> Exception:
    from migrator.errors import InterruptedRunError

    assert isinstance(stopped, InterruptedRunError)
    told = InterruptedRunError(stopped.signum, writes=False)
    told.next = f"part of it is loaded; whole with: migrator snapshot load {file} --replace"
    return told
