"""What keeps a migration from starting, switching or contracting; plan shows it, apply obeys it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from migrator.client import Client, ResponseError
from migrator.engine.run import Run
from migrator.errors import DriftError, RefusedError
from migrator.keys import Keys, slot_of
from migrator.ledger import Entry, MoveNames
from migrator.models import Remark, show
from migrator.moves.family import Family
from migrator.moves.loader import Module, Modules
from migrator.names import CLAIMS
from migrator.phases import FORWARD, Phase


def refusals(run: Run) -> Iterator[Remark]:
    """Why this migration may not be expanded on this Redis, as far as can be said without a walk."""
    yield from _eviction(run.client)
    yield from _scripting(run)
    for family in run.families:
        yield from _namespace(run, family)
        yield from _cross_slot(run.client, family)
        yield from _claimed(run, family)
        yield from _own_output(family)


def info_field(client: Client, section: str, field: str) -> list[str]:
    """A field of INFO on every primary; empty where INFO is denied."""
    values: list[str] = []
    for node in client.nodes():
        info = client.on_node(node, ("INFO", section))[0]
        if isinstance(info, bytes) and (found := re.search(rb"^%s:(.*?)\r?$" % field.encode(), info, re.MULTILINE)):
            values.append(found[1].decode())
    return values


def _eviction(client: Client) -> Iterator[Remark]:
    for policy in info_field(client, "memory", "maxmemory_policy"):
        if policy.startswith("allkeys-"):
            yield Remark(
                code="eviction",
                text=f"maxmemory-policy is {policy}: the server may evict markers, records and the ledger",
                next="set maxmemory-policy to noeviction or volatile-lru, then run this again",
            )
            return


def _scripting(run: Run) -> Iterator[Remark]:
    reply = run.client.on_node(run.client.node_of(run.names.ledger), ("EVAL", "return 1", "0"))[0]
    if isinstance(reply, ResponseError):
        yield Remark(
            code="scripting",
            text="this user may not run scripts, and every write of this tool is one",
            next="grant +@scripting, then run this again",
        )


def _namespace(run: Run, family: Family) -> Iterator[Remark]:
    """Every walk passes over what begins like the tool's own keys."""
    for keys in (family.move.source, family.move.target):
        if keys.format(dict.fromkeys(keys.captures, b"\0")).startswith(run.names.prefix):
            yield Remark(
                code="namespace",
                text=f"keys of {keys.template} begin like this tool's own, with {run.names.prefix.decode()}",
                next=f"choose another, for instance --namespace {run.names.namespace}:migrator, for the adapters too",
            )
            return


def _cross_slot(client: Client, family: Family) -> Iterator[Remark]:
    if not client.cluster or family.same_name:
        return
    source, target = family.move.source, family.move.target
    one, two = source.literal_tag(), target.literal_tag()
    if one is not None and two is not None and slot_of(one) == slot_of(two):
        return
    if one is None and two is None:
        return  # it depends on the keys; those that are not slot-mates are found in the sample and quarantined
    tag = (one or two or b"").decode()
    yield Remark(
        code="cross-slot",
        text=f"on a cluster {source.template} and {target.template} are never in one slot",
        next=f"give both the same tag, for instance {{{{{tag}}}}}:… in both templates",
    )


def _claimed(run: Run, family: Family) -> Iterator[Remark]:
    reply = run.client.run_one(CLAIMS, "HGET", CLAIMS, family.move.source.template)
    if isinstance(reply, bytes) and reply.decode() != run.names.namespace:
        yield Remark(
            code="claimed",
            text=f"the namespace {reply.decode()!r} moves {family.move.source.template} already",
            next="use that namespace, or roll its migration back first",
        )


def claim(run: Run) -> None:
    """Says in a place all namespaces share who moves these keys. Where the ACL refuses that, the plan says so.

    Raises RefusedError if another namespace was faster.
    """
    for family in run.families:
        run.client.run_one(CLAIMS, "HSETNX", CLAIMS, family.move.source.template, run.names.namespace)
        for remark in _claimed(run, family):
            raise RefusedError(f"{run.id}: {remark.text}", next=remark.next)


def release_claim(run: Run) -> None:
    """The keys are free again: in `pending`, and once the old shape is gone."""
    for family in run.families:
        template = family.move.source.template
        if run.client.run_one(CLAIMS, "HGET", CLAIMS, template) == run.names.namespace.encode():
            run.client.run_one(CLAIMS, "HDEL", CLAIMS, template)


def claims_readable(run: Run) -> bool:
    return not isinstance(run.client.run_one(CLAIMS, "HLEN", CLAIMS), ResponseError)


def _own_output(family: Family) -> Iterator[Remark]:
    """A target that the source template matches would be walked as a source for ever, and a source that the target
    template matches would be taken for the new record of another one, and removed. A target that does not lead back
    may be that of two records, or somebody's own that nothing has saved."""
    if family.same_name:
        return
    source, target = family.move.source, family.move.target
    for pair in filter(None, map(family.from_old, source.some())):
        if source.matches(pair.new):
            text, narrow = f"keys of {target.template} match the source template {source.template}", "source"
        elif family.has_new(pair.old):
            text, narrow = f"keys of {source.template} match the target template {target.template}", "target"
        elif not family.leads_back(pair):
            yield Remark(
                code="ambiguous",
                text=f"{show(pair.new)}, the target of {show(pair.old)}, does not lead back to it",
                next="narrow the captures of both templates alike, or choose another target name",
            )
            return
        else:
            continue
        yield Remark(code="output-matches-source", text=text,
                     next=f"narrow the capture of the {narrow}, or choose another target name")  # fmt: skip
        return


def reached(entry: Entry, goal: Phase) -> bool:
    """Whether a migration has come as far as `goal`; `contracted` counts once the old shape is removed."""
    if entry.phase not in FORWARD:
        return False
    here, there = FORWARD.index(entry.phase), FORWARD.index(goal)
    return here > there or (here == there and (goal != "contracted" or entry.swept))


def blocked_by(module: Module, modules: Modules, entries: dict[str, Entry]) -> str | None:
    """What has to be contracted and swept before this migration may start, or None."""
    entry = entries.get(module.id)
    if entry is not None and entry.phase != "pending":
        return None
    for name in module.migration.after:
        earlier = modules.find(name)
        if not _done(entries.get(earlier.id)):
            return f"{earlier.id} must be contracted first (it is named in `after`)"
    for earlier in modules.all:
        if earlier.id >= module.id or _done(entries.get(earlier.id)):
            continue
        if share_keys(module, earlier):
            return f"{earlier.id} must be contracted first: it touches the same keys"
    return None


def built_upon(module: Module, modules: Modules, entries: dict[str, Entry]) -> Module | None:
    """A later migration on the same keys, or one that names this one in `after`, which is not in `pending`: what this
    one left is its truth."""
    for later in modules.all:
        entry = entries.get(later.id)
        if later.id <= module.id or entry is None or (entry.phase == "pending" and not entry.cleaning):
            continue
        if share_keys(module, later) or module.id in {modules.find(name).id for name in later.migration.after}:
            return later
    return None


def passed_over(module: Module, modules: Modules, entries: dict[str, Entry], *, asked: bool) -> str | None:
    """Why apply leaves this migration as it is, or None. `asked`: it was named; then only another one holds it up."""
    entry = entries.get(module.id)
    if entry is not None and entry.rolled_back and not asked:
        return "it was rolled back; name it to apply it again"
    return blocked_by(module, modules, entries)


def to_pending(entry: Entry, number: str) -> str:
    """The command that undoes it all; with the backup it is told of, what was adopted is as it was."""
    return f"migrator rollback {number} --to pending{' --backup DIR' if entry.adopted else ''} --yes"


def unfinished(entry: Entry, number: str, goal: Phase) -> Remark | None:
    """A way back that has to be finished before anything else, or None."""
    text, command = "", f"migrator rollback {number} --to switched --backup DIR --yes"
    if entry.cleaning:
        text, command = "its rollback to pending is not finished", to_pending(entry, number)
    elif entry.phase == "closed":
        text, command = "a restore is under way", f"migrator restore {number} --backup DIR --discard-later-writes --yes"
    elif entry.phase == "reverting" and goal != "contracted":
        text = "it is on its way back from contracted"
    return Remark(code="way-back", text=text, next=f"finish that with: {command}") if text else None


def moves_of(module: Module) -> tuple[MoveNames, ...]:
    """The templates and types of its moves, as the ledger keeps them."""
    return tuple(
        MoveNames(
            source=move.source.template, source_type=move.source.kind,
            target=move.target.template, target_type=move.target.kind,
        )
        for move in module.migration.moves
    )  # fmt: skip


def check_names(run: Run) -> None:
    """Raises DriftError where the module names other keys than it was expanded with: those are none of its own, and
    nothing under them may be removed."""
    if run.entry.moves and run.entry.moves != moves_of(run.module):
        raise DriftError(
            f"{run.module.path} names other keys than it did when {run.id} was expanded: it was edited, or settings "
            "that it reads are others",
            next="put that back as it was, then run the same command again",
        )


def _done(entry: Entry | None) -> bool:
    return entry is not None and entry.phase == "contracted" and entry.swept


def share_keys(one: Module, other: Module) -> bool:
    """Whether two migrations are about the same keys."""
    return any(mine.overlaps(keys) for mine in _keys(one) for keys in _keys(other))


def _keys(module: Module) -> list[Keys[Any]]:
    return [keys for move in module.migration.moves for keys in (move.source, move.target)]
