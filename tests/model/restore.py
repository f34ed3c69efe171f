"""Restore: in `closed`, where adapters refuse, both shapes go and what contract had saved comes back."""

from __future__ import annotations

from collections.abc import Callable

from tests.model.server import CLOSED, CONTRACTED, PENDING
from tests.model.tool import Step, Ways


def retire_all(s: Step) -> Ways:
    """What contract had not set aside yet is in no backup; under its own name it would be discarded."""
    yield from s.sent("retire", (CONTRACTED,), "close")


def close(s: Step) -> Ways:
    yield from s.intend(CLOSED)


def restore(s: Step) -> Ways:
    at = "retired back" if s.w.ledger.discarded else "discard"
    yield s.go(f"tool {s.tool.fence}: goes on with '{at}'", at, stale=False)


def discard(s: Step) -> Ways:
    """Saved in a place of its own first, which is not looked at here."""
    saved = s.w.db.retired or (s.w.backup[-1][1] if s.w.backup else 0)
    yield from s.sent("discard", (CLOSED,), "discarded", (saved,))


def discarded(s: Step) -> Ways:
    """Once; and what comes back has another epoch, for a removal delivered late would take it again."""
    if s.tool.stale:
        yield s.go("the server is another process: markers first", "recover")
    elif not s.holds_lease():
        yield s.off("the lease is another's")
    else:
        s.w = s.w._replace(ledger=s.w.ledger._replace(discarded=True))
        if s.rules.without == "an epoch between discarding and putting back":
            yield s.go(f"tool {s.tool.fence}: ledger -> discarded", "retired back")
        else:
            yield from s.intend(CLOSED)


def retired_back(s: Step) -> Ways:
    yield from s.sent("retired back", (CLOSED,), "put saved")


def put_saved(s: Step) -> Ways:
    if s.w.backup:
        yield from s.sent("put saved", (CLOSED,), "restored", (s.w.backup[-1][1],))
    else:
        yield s.go(f"tool {s.tool.fence}: the backup is empty", "restored")


def restored(s: Step) -> Ways:
    """As after a rebuild: no later marker tells that it was lost, so WAIT, then look."""
    if s.rules.without != "WAIT after restore":
        s.w = s.w._replace(replica=None)
    yield from s.at_end_of_walk(PENDING)


RESTORE: dict[str, Callable[[Step], Ways]] = {
    "retire all": retire_all,
    "close": close,
    "restore": restore,
    "discard": discard,
    "discarded": discarded,
    "retired back": retired_back,
    "put saved": put_saved,
    "restored": restored,
}
