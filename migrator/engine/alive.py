"""Which applications a change of phase would leave behind, as far as they have an adapter that says so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from migrator.engine.run import Run
from migrator.ledger.lease import server_ms
from migrator.models import Remark, number_of
from migrator.phases.announced import ALIVE_MS, PROTOCOL, Announced, read_announced

_NAMED = 5
_WINDOW = f"{ALIVE_MS // 1000} s"


def adapters_of(run: Run) -> list[Announced]:
    """The instances of this migration that are still known, the last seen first."""
    now = server_ms(run.client, run.names)
    return [one for one in read_announced(run.client, run.names, now) if one.id == run.id]


def left_behind(seen: Sequence[Announced]) -> Iterator[Remark]:
    """Adapters that are alive and do not know what this version's phases ask of them: in the way of `switch` and
    `contract`."""
    old = [one for one in seen if one.alive and one.protocol < PROTOCOL]
    if old:
        yield Remark(
            code="old-adapters",
            text=f"{number_of(len(old), 'adapter')} of an older protocol would be left behind: {_names(old)}",
            next=f"deploy these with this version of migrator, or stop them; after {_WINDOW} run this again",
        )


def other_mappings(seen: Sequence[Announced], checksum: str) -> Iterator[Remark]:
    """Adapters that are alive and built from another version of the module: from `expanded` on they are refused."""
    others = [one for one in seen if one.alive and one.checksum != checksum]
    if others:
        yield Remark(
            code="other-mapping",
            text=f"{number_of(len(others), 'adapter')} with another version of the module would be refused from "
            f"expanded on: {_names(others)}",
            next=f"deploy the same module to these, or stop them; after {_WINDOW} run this again",
        )


def unadapted(seen: Sequence[Announced]) -> str:
    """What to say before a change that an application without an adapter does not follow; empty if one is alive."""
    if any(one.alive for one in seen):
        return ""
    return (
        f"no adapter was seen in the last {_WINDOW}: an application that still uses the old shape is left behind; make "
        "sure that it is stopped"
    )


def _names(found: Sequence[Announced]) -> str:
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(f"{one.instance} (version {one.version})" for one in found[:_NAMED]) + more
