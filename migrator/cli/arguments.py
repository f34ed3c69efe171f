"""Arguments and options that several commands take, and the words they are chosen from."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Through(StrEnum):
    expand = "expand"
    backfill = "backfill"
    verify = "verify"
    switch = "switch"
    contract = "contract"


class At(StrEnum):
    pending = "pending"
    contracted = "contracted"
    markers = "markers"


class BackTo(StrEnum):
    pending = "pending"
    expanded = "expanded"
    switched = "switched"


class Truth(StrEnum):
    old = "old"
    new = "new"


class Kind(StrEnum):
    key = "key"
    member = "member"


def no_nan(value: float) -> float:
    """The same number: bounds let nan pass. Raises BadParameter."""
    if math.isnan(value):
        raise typer.BadParameter("nan is not a number")
    return value


Ids = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Migrations, by id or number; all if none.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The migration, by id or number.")]
MaybeId = Annotated[str | None, typer.Argument(metavar="ID", help="One migration; all if none.")]
ThroughOption = Annotated[Through, typer.Option(help="How far.")]
BackupOption = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Where what is removed or overwritten is saved first.")
]
YesOption = Annotated[
    bool, typer.Option("--yes", help="Do it: nothing is asked, and nothing destructive is done without.")
]
SnapshotOption = Annotated[
    Path | None, typer.Option("--snapshot", metavar="FILE", help="Try it on a snapshot, on a server of its own.")
]
AtOption = Annotated[
    list[str] | None,
    typer.Option("--at", metavar="ID=PHASE", help="Where a migration stands, if the snapshot has no ledger."),
]
CheckOption = Annotated[bool, typer.Option("--check", help="Exit 10 if a migration has not come that far.")]
RateOption = Annotated[
    float,
    typer.Option(metavar="N", min=0, max=1e9, callback=no_nan, help="At most so many records a second; 0 is no limit."),
]
MaxPauseOption = Annotated[
    str, typer.Option(metavar="TIME", help="Give up, exit 50, once the server was in need for so long, e.g. 10m.")
]
IgnoreLoadOption = Annotated[
    bool, typer.Option("--ignore-load", help="No pause while the server is in need, no rest beside an application.")
]
