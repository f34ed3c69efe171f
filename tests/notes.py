"""Records of the harness: notes that are one text at first and a hash afterwards, under a name of its own or the same.

Each writer owns NOTES of them in each family and knows what each must hold: text is a number that only grows. The
first STEADY are never deleted, so a reader finds them at any time.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import Any

from migrator.adapters import Found, Missing, Records, Removed, Written
from migrator.moves.loader import Module

NOTES, STEADY = 60, 20
SOURCES = ("{{t}}:apart:{id}", "{{t}}:text:{id}")
MODULE = """
from migrator import KeyMove, Keys, Migration


def note(source, target):
    return KeyMove(
        source=Keys(source, type="string"),
        target=Keys(target, type="hash"),
        forward=lambda key, text: {b"id": key["id"], b"text": text},
        inverse=lambda key, fields: fields[b"text"],
    )


migration = Migration(note("{{t}}:apart:{id}", "{{t}}:hash:{id}"), note("{{t}}:text:{id}", "{{t}}:text:{id}"))
"""


class WrongError(Exception):
    """An answer that cannot be."""


def note_id(writer: int, i: int) -> str:
    return f"w{writer}-{i}"


def text_of(answer: Any) -> int | None:
    return int(answer.value[b"text"]) if isinstance(answer, Found) else None


def _now() -> int:
    return time.time_ns() // 1_000_000


class Notes:
    """The notes of all writers, as one process writes its own or reads everybody's; counts what it did in `done`."""

    def __init__(self, client: Any, module: Module, number: int, writers: int, done: Counter[str]) -> None:
        self.families = [Records(client, module, source=source) for source in SOURCES]
        self.number, self.writers, self.done = number, writers, done
        self.dice = random.Random(number)
        self.texts: list[dict[str, int | None]] = [{} for _ in SOURCES]  # None: deleted
        self.seen: dict[tuple[int, str], int] = {}
        self.until: dict[tuple[int, str], int] = {}  # unix ms
        self.n = 0

    def turn(self) -> None:
        """Something with a note of its own."""
        self.n += 1
        what, family = self.dice.random(), self.dice.randrange(len(SOURCES))
        id = note_id(self.number, self.dice.randrange(NOTES))
        if what < 0.4:
            self.put(family, id)
        elif what < 0.6:
            self.get(family, id)
        elif what < 0.8:
            self.delete(family, note_id(self.number, self.dice.randrange(STEADY, NOTES)))
        else:
            self.put_fleeting(family)
        self.look_for_expired()

    def put(self, family: int, id: str) -> None:
        answer = self.families[family].put({b"id": id.encode(), b"text": b"%d" % self.n}, id=id)
        self._check(isinstance(answer, Written), "put", family, id, answer)
        self.texts[family][id] = self.n

    def get(self, family: int, id: str) -> None:
        answer, want = self.families[family].get(id=id), self.texts[family].get(id, 0)
        right = text_of(answer) == want and isinstance(answer, (Found, Missing))
        self._check(right, "get own", family, id, answer)

    def delete(self, family: int, id: str) -> None:
        gone = self.texts[family].get(id, 0) is None
        answer = self.families[family].delete(id=id)
        self._check(isinstance(answer, Missing if gone else Removed), "delete", family, id, answer)
        self.texts[family][id] = None

    def put_fleeting(self, family: int) -> None:
        """A note with 50 to 500 ms to live."""
        at, id = _now() + self.dice.randrange(50, 500), f"f{self.number}-{self.n}"
        self.families[family].put({b"id": id.encode(), b"text": b"0"}, expires_at=at, id=id)
        self.until[family, id] = at

    def look_for_expired(self) -> None:
        """They are gone when their time is over, whatever the phase does meanwhile."""
        for family, id in [note for note, at in self.until.items() if at + 5 < _now()]:
            answer = self.families[family].get(id=id)
            self._check(isinstance(answer, Missing), "expired", family, id, answer)
            del self.until[family, id]

    def read(self) -> None:
        """What is never deleted is always there, and never older than it was."""
        family = self.dice.randrange(len(SOURCES))
        id = note_id(self.dice.randrange(self.writers), self.dice.randrange(STEADY))
        answer = self.families[family].get(id=id)
        text = text_of(answer)
        self._check(text is not None and text >= self.seen.get((family, id), 0), "read", family, id, answer)
        self.seen[family, id] = text or 0

    def _check(self, right: bool, what: str, family: int, id: str, answer: Any) -> None:
        if not right:
            raise WrongError(f"{what} {id} of {SOURCES[family]}: {answer}, wrote {self.texts[family].get(id)}")
        self.done[f"{what} note"] += 1
