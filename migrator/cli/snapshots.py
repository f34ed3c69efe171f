"""The commands about snapshots. Imports wait until a command runs, for speed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migrator.cli.arguments import RateOption
from migrator.cli.options import Common
from migrator.errors import UsageError

if TYPE_CHECKING:
    from migrator.snapshot.families import Families

snapshot_app = typer.Typer(
    help="Take, load or describe a snapshot: a file that holds records of a database.",
    rich_markup_mode=None,
    no_args_is_help=True,
)

File = Annotated[Path, typer.Argument(metavar="FILE", help="NDJSON, gzip'd if it ends in .gz.")]
AnyFile = Annotated[Path, typer.Argument(metavar="FILE", help="NDJSON, plain or gzip'd, or an RDB file.")]
Server = Annotated[
    Path | None, typer.Option(metavar="BIN", help="Read an RDB file by this redis-server or valkey-server alone.")
]


@snapshot_app.command("take")
def take(
    ctx: typer.Context,
    file: File,
    sample: Annotated[
        str | None, typer.Option(metavar="SHARE|N", help="A share of each family, e.g. 5%, or about N keys in all.")
    ] = None,
    db: Annotated[
        list[str] | None, typer.Option(metavar="N", help="A database by number, or all; that of the URL if not said.")
    ] = None,
    rate: RateOption = 0,
    keep: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A field or property whose values are no secret.")
    ] = None,
    live_values: Annotated[
        bool, typer.Option("--live-values", help="Redact nothing: the file then holds what the database holds.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Take the place of a file of that name.")] = False,
) -> int:
    """Write the records of a live server or cluster to a file. Nothing is blocked or changed.

    Values are redacted: letters become other letters; digits, lengths, structure and names stay. The ledger and the
    markers of this tool are always taken along.
    """
    from migrator.cli.opened import at_work, show
    from migrator.engine.observe import Rate
    from migrator.names import Names
    from migrator.snapshot.redaction import Redaction
    from migrator.snapshot.sample import Sample
    from migrator.snapshot.take import Wanted
    from migrator.snapshot.take import take as write

    settings: Common = ctx.obj
    names = Names(settings.namespace)
    chosen, part = _databases(db), Sample.parse(sample) if sample else None
    families = _families(settings)
    with at_work(settings, "taking", writes=False, rate=rate) as (client, tick, say):
        wanted = Wanted(
            databases=(client.db,) if chosen == () else chosen, sample=part,
            redaction=None if live_values else Redaction(keep or ()), at_once=Rate(rate).at_once(500),
        )  # fmt: skip
        result = write(file, client, families, names, wanted, overwrite=overwrite, tick=tick, say=say)
    show(result, settings)
    return 0


def _databases(given: list[str] | None) -> tuple[int, ...] | None:
    """Numbers, None for all, nothing for that of the URL."""
    if given and "all" in given:
        return None
    if not all(one.isascii() and one.isdigit() for one in given or ()):
        raise UsageError("--db is the number of a database, or all", next="see: migrator snapshot take --help")
    return tuple(int(one) for one in given or ())


def _families(settings: Common) -> Families:
    """Those of the migrations, where there are any: a snapshot can be taken before the first is written."""
    from migrator.moves.loader import load as load_modules
    from migrator.names import Names
    from migrator.snapshot.families import Families

    modules = load_modules(settings.migrations).all if settings.migrations.is_dir() else ()
    return Families(Names(settings.namespace), [module.migration for module in modules])


@snapshot_app.command("info")
def info(ctx: typer.Context, file: AnyFile, server: Server = None) -> int:
    """Show what is in a snapshot: families, types, counts, sizes, expiries, the largest keys. No value is shown."""
    from migrator.cli.opened import show
    from migrator.snapshot.info import info as look

    show(look(file, _families(ctx.obj), server), ctx.obj)
    return 0


@snapshot_app.command("load")
def load(
    ctx: typer.Context,
    file: AnyFile,
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite keys that are there already.")] = False,
    server: Server = None,
) -> int:
    """Load a snapshot into the server at --url, where nobody else may write meanwhile.

    The file is read whole first, and refused before anything is written if a key is there already. Records whose time
    has passed are counted and not loaded. Nothing is flushed.
    """
    from migrator.cli.opened import at_work, show
    from migrator.errors import InterruptedRunError
    from migrator.snapshot.load import load as put

    begun: list[bool] = []
    try:
        with at_work(ctx.obj, "loading", writes=True) as (client, tick, _):
            result = put(file, client, server=server, replace=replace, tick=tick, begin=lambda: begun.append(True))
    except InterruptedRunError as stopped:
        told = InterruptedRunError(stopped.signum, writes=False)
        told.next = (f"part of it is loaded; whole with: migrator snapshot load {file} --replace" if begun
                     else "nothing was loaded; run the same command again")  # fmt: skip
        raise told from None
    show(result, ctx.obj)
    return 0
