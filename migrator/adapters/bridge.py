"""One move on one Redis, as adapters see it: its keys, its mapping, and what the marker lets them do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from migrator.adapters.core import Call, Patience, Steps
from migrator.adapters.outcomes import UnfitError
from migrator.client import Arg, Reply
from migrator.errors import LedgerBackwardsError, MigratorError, RefusedError, UsageError
from migrator.keys import SLOTS, slot_of
from migrator.moves import KeyMove, MemberMove, Move
from migrator.moves.family import AllSlots, Family, Pair, Slots
from migrator.moves.loader import Module
from migrator.names import Names
from migrator.scripts import script

Capture = bytes | str
_PAIRS = 1024  # collections are few: their names are not parsed each time
_ROUNDS = 3  # answers that the phase is another one, before pauses set in: slots change their phase one by one


@dataclass(slots=True)
class Answer:
    """A script that ran, and the epoch it ran in."""

    epoch: int
    rest: list[Any]


class Bridge:
    """Sends scripts about one record at a time, with the keys that the phase needs.

    Which keys those are is remembered only to name no more of them than needed: on a cluster a named key that is
    absent is an obstacle while its slot moves. The script reads the phase itself, and refuses the wrong keys.
    """

    def __init__(self, slots: Slots, module: Module, move: Move, names: Names) -> None:
        self.names, self.id, self.move = names, module.id, move
        self.family = Family(slots, names, module.id, move)
        self._slots, self._layout = slots, "old"
        self._head = (module.checksum, self.family.mode, self.family.kinds["old"], self.family.kinds["new"])
        if move.inverse is None:
            raise UsageError(
                f"{module.id} has no inverse: after the switch an adapter could not keep the old shape current",
                next="give the move an inverse, or migrate with the application stopped",
            )
        if isinstance(slots, AllSlots):
            _check_slot_mates(move)

        self._pair_of = lru_cache(_PAIRS)(self._make_pair)
        self._marker_of = lru_cache(_PAIRS)(self._marker_in)

    def pair(self, captures: Mapping[str, Capture]) -> Pair:
        """The record with these captures. Raises UsageError if the template has no such key."""
        return self._pair_of(tuple(captures.items()))

    def _make_pair(self, items: tuple[tuple[str, Capture], ...]) -> Pair:
        source, captures = self.move.source, dict(items)
        if set(captures) != set(source.captures):
            wanted = ", ".join(f"{name}=…" for name in source.captures) or "no captures"
            raise UsageError(f"a key of {source.template!r} is named by {wanted}, not {sorted(captures)}")
        if not all(isinstance(value, (bytes, str)) for value in captures.values()):
            raise UsageError("captures are bytes or str")
        raw = {name: value.encode() if isinstance(value, str) else value for name, value in captures.items()}
        pair = self.family.from_old(source.format(raw))
        if pair is None or dict(pair.key) != raw:
            raise UsageError(f"{source.format(raw)!r} is not a key of {source.template!r} that parses back")
        if fault := self.family.fault(pair):
            tag = "put the same {…} tag into both keys"
            narrow = "narrow the captures of both templates alike"
            raise UsageError(f"{pair.old!r}: {fault}", next=tag if fault.startswith("cross-slot") else narrow)
        return pair

    def ask(self, pair: Pair, name: str, args: Sequence[Arg], *, writes: bool) -> Steps[Answer]:
        """Runs a script on one record. Raises what its refusals mean; then nothing was written."""
        return (yield from self.ask_beside(pair.old, (), (pair,), name, args, writes=writes))

    def ask_beside(
        self,
        key: bytes,
        first: tuple[bytes, ...],
        pairs: Sequence[Pair],
        name: str,
        args: Sequence[Arg],
        *,
        writes: bool,
    ) -> Steps[Answer]:
        """Runs a script on several records, and on keys in their slot that stand first in its KEYS.

        `key` names the slot, and the trouble if there is any.
        """
        patience, rounds = Patience(), 0
        while True:
            layout = self._layout  # another thread may set it: keys of one go with the name of no other
            keys = [self._marker(key), *first]
            for pair in pairs:
                keys += self._keys(pair, layout)
            reply = yield Call(script(name), keys, (layout, *self._head, *args), writes)
            if reply[0] == b"try-again":
                yield from patience.wait("a slot is on the move")
                # It may be that we name more keys than the phase needs. The marker is one key: it can be asked.
                reply = yield self._open_call(keys[0])
            if reply[0] == b"layout":
                self._layout, rounds = reply[1].decode(), rounds + 1
                if rounds > _ROUNDS:
                    yield from patience.wait("the phase is changing")
            elif reply[0] != b"ok":
                raise self._refusal(key, reply)
            elif len(reply) > 3:
                return Answer(int(reply[2]), reply[3:])

    def open(self) -> Steps[None]:
        """Whether scripts may run here and the marker lets us; raises what is in the way.

        Another mapping is no reason: such an adapter may start, and is refused while the migration is under way.
        """
        tag = self.move.source.literal_tag()
        marker = self._marker(tag if tag is not None else b"0")
        reply = yield self._open_call(marker)
        if reply[0] == b"layout":
            self._layout = reply[1].decode()
        elif reply[0] in (b"no-marker", b"newer"):
            raise self._refusal(marker, reply)

    def beside(self, role: str, key: bytes) -> bytes:
        """A name of ours in the slot of a key, for this migration."""
        return self.names.beside(role, self.id).name(key, lambda key: self._slots.slot_tag(self._slots.slot(key)))

    def check_beside(self, *keys: bytes) -> None:
        """Raises UsageError where these keys and all records of the move are not in one slot."""
        source = self.move.source
        tag = source.literal_tag() or b""
        if not isinstance(self._slots, AllSlots) or (tag and {slot_of(key) for key in keys} == {slot_of(tag)}):
            return
        wanted = [*(key.decode(errors="replace") for key in keys), source.template]
        raise UsageError(
            f"on a cluster of {SLOTS} slots {', '.join(map(repr, wanted))} are not in one, and no script could write "
            "them in one step",
            next=f"give all the same tag: {', '.join('{{jobs}}:' + _untagged(name) for name in wanted)}",
        )

    def _open_call(self, marker: bytes) -> Call:
        return Call(script("adapter_open"), (marker,), (self._layout, *self._head), writes=False)

    def _marker(self, key: bytes) -> bytes:
        return self._marker_of(self._slots.slot(key))

    def _marker_in(self, slot: int) -> bytes:
        return self.names.marker(self.id, self._slots.slot_tag(slot))

    def _keys(self, pair: Pair, layout: str) -> tuple[bytes, ...]:
        if layout == "old":
            return (pair.old,)
        if layout == "both":
            return (pair.old, pair.new)
        if layout == "last":
            return (pair.old, pair.new, self.family.retired(pair))
        return (pair.old,) if self.family.same_name else (pair.new,)

    def _refusal(self, key: bytes, reply: Reply) -> MigratorError:
        word, more = reply[0].decode(), [part.decode() for part in reply[1:]]
        if word == "no-marker":
            return LedgerBackwardsError(
                f"{self.id}: there is no marker in the namespace {self.names.namespace!r}; nothing was written",
                next="run: migrator init; if it was there before, see the runbook 'resume after a crash'",
            )
        says, following = _REFUSALS[word]
        what = f"{says.format(*more, id=self.id, key=key)}; nothing was written"
        return UnfitError(what, word, next=following) if word in _UNFIT else RefusedError(what, next=following)


_REFUSALS = {
    "newer": (
        "{id}: a marker has format {0!r}, phase {1!r}: written by a newer migrator",
        "deploy the application with that version of migrator",
    ),
    "closed": ("{id} is closed: a restore discards later writes", "wait until it is done"),
    "mapping": (
        "{id}: this application has another version of the module than the migration under way",
        "deploy the module that was expanded, or roll the migration back to pending",
    ),
    "two": (
        "{key!r}: there are two new records, under the final and the staged name",
        "see it with: migrator verify",
    ),
    "type": ("{key!r}: one of its keys is a {0}, not what its template says", "see it with: migrator verify"),
}
_UNFIT = ("two", "type")  # about one record; the others are about all


def _untagged(name: str) -> str:
    return name.replace("{{", "").replace("}}", "")


def _check_slot_mates(move: Move) -> None:
    """Raises UsageError for templates whose keys are never in one slot."""
    if isinstance(move, KeyMove) and move.same_name:
        return
    one, two = move.source.literal_tag(), move.target.literal_tag()
    if (one is None and two is None) or (one is not None and two is not None and slot_of(one) == slot_of(two)):
        return
    tag = (one or two or b"").decode()
    raise UsageError(
        f"on a cluster of {SLOTS} slots keys of {move.source.template!r} and {move.target.template!r} are never in one",
        next=f"give both the same tag, for instance {{{{{tag}}}}}:{move.source.template} and "
        f"{{{{{tag}}}}}:{move.target.template}",
    )


def choose(module: Module, kind: type[KeyMove[Any, Any]] | type[MemberMove[Any, Any]], source: str | None) -> Move:
    """The move of that kind; by its source template where there are several. Raises UsageError."""
    found = [m for m in module.migration.moves if isinstance(m, kind) and source in (None, m.source.template)]
    if len(found) == 1:
        return found[0]
    templates = ", ".join(repr(move.source.template) for move in module.migration.moves)
    raise UsageError(
        f"{module.id} has {len(found)} moves of the kind {kind.__name__}{f' from {source!r}' if source else ''}, not 1",
        next=f"use Records for a KeyMove and Members for a MemberMove, and name one by source=: it has {templates}",
    )


__all__ = ["Answer", "Bridge", "Capture", "choose"]
