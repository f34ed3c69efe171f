"""Something happens after a batch of the backfill is read and before it is written, on either way to copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from migrator.engine import copy, copy_members, windows
from migrator.engine.transactions import Transactions

WAYS = pytest.mark.parametrize("quick", [True, False], ids=["quick", "compared"])


def only_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing goes the quick way."""
    monkeypatch.setattr(Transactions, "open_to", lambda *_: False)
    monkeypatch.setattr(windows, "open_to", lambda *_: False)


def before_a_batch(monkeypatch: pytest.MonkeyPatch, happens: Callable[[int], object], *, quick: bool) -> list[int]:
    """`happens` once, and gets the size of the batch, which is returned when it has."""
    held: list[int] = []

    def hold(number: int) -> None:
        if not held and number:
            held.append(number)
            happens(number)

    if quick:
        ready = Transactions._ready

        def held_transaction(self: Transactions, *args: Any) -> Any:
            found = ready(self, *args)
            hold(len(found))
            return found

        monkeypatch.setattr(Transactions, "_ready", held_transaction)
    else:
        only_compared(monkeypatch)
        write = copy.write_keys

        def held_write(run: Any, family: Any, way: Any, batch: Any) -> Any:
            hold(len(batch))
            return write(run, family, way, batch)

        monkeypatch.setattr(copy, "write_keys", held_write)
    return held


def before_a_chunk(monkeypatch: pytest.MonkeyPatch, happens: Callable[[bytes], object], *, quick: bool) -> list[bytes]:
    """`happens` once a collection, and gets its old name; the names are returned as it does."""
    held: list[bytes] = []

    def hold(name: bytes) -> None:
        if name not in held:
            held.append(name)
            happens(name)

    if quick:
        cut = windows.Collection._cut

        def held_cut(self: windows.Collection, *args: Any) -> None:
            hold(self.pair.old)
            cut(self, *args)

        monkeypatch.setattr(windows.Collection, "_cut", held_cut)
    else:
        only_compared(monkeypatch)
        write = copy_members.write_members

        def held_write(run: Any, family: Any, way: Any, pair: Any, jobs: Any) -> Any:
            hold(pair.old)
            return write(run, family, way, pair, jobs)

        monkeypatch.setattr(copy_members, "write_members", held_write)
    return held
