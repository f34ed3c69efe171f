"""What a comparison may do, and what it found."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from migrator.engine.copy import Way
from migrator.engine.judge import Difference, Verdict
from migrator.engine.run import Run
from migrator.models import FAULTS, show
from migrator.moves.family import Pair

REPAIR_ROUNDS = 3
EXAMPLES = 20


@dataclass
class Outcome:
    """What a comparison found. `repair` and `drop_extras` say what it may mend on the way, `slots` where it looks,
    `share` and `until` (a monotonic time in seconds) how much. `each` is given all that differs, batch by batch."""

    repair: Way | None = None
    drop_extras: bool = False
    slots: set[int] | None = None
    share: float = 1.0
    until: float | None = None
    each: Callable[[Sequence[Difference]], None] | None = None
    examples: list[Difference] = field(default_factory=list)
    cut_short: bool = False
    counted: Counter[str] = field(default_factory=Counter)

    def pairs(self, run: Run, found: Iterable[Pair | None]) -> list[Pair]:
        """The records this comparison is about."""
        return [p for p in found if p is not None and (self.slots is None or run.client.slot(p.old) in self.slots)]

    def equal(self, number: int) -> Counter[str]:
        """Counts records that were found equal in bulk."""
        counts: Counter[str] = Counter(equal=number)
        self.counted.update(counts)
        return counts

    def counts(self) -> Counter[str]:
        """What was counted so far, of a comparison that ended early."""
        return compared(Counter(self.counted))

    def note(self, differences: Sequence[Difference]) -> None:
        self.examples += differences[: max(0, EXAMPLES - len(self.examples))]
        if self.each is not None and differences:
            self.each(differences)

    def wanted(self) -> bool:
        """Whether the next batch is looked at: not once the time is up, and only a share of them in a sample."""
        if self.until is not None and time.monotonic() > self.until:
            raise TimeUpError
        # Batches are drawn, not records: a batch costs a round trip whether it is whole or not.
        return self.share >= 1.0 or random.random() < self.share


class TimeUpError(Exception):
    """The budget of a comparison is spent."""


def compared(counts: Counter[str]) -> Counter[str]:
    """The same counts with the sum of all verdicts."""
    counts["compared"] = counts["equal"] + sum(counts[fault] for fault in FAULTS)
    return counts


def account(outcome: Outcome, found: Sequence[Difference], repaired: int = 0) -> Counter[str]:
    """The counts by verdict of what was judged, noted in the outcome; `repaired` of them were wrong and are not."""
    outcome.note([d for d in found if d.verdict in FAULTS])
    counts: Counter[str] = Counter(d.verdict for d in found)
    counts["repaired"] = repaired
    outcome.counted.update(counts)
    return counts


def pass_over(run: Run, outcome: Outcome, found: Sequence[Difference]) -> Counter[str]:
    """Counts keys that are none of ours, which nothing touches, and says so of the first."""
    if found and not outcome.counted["ignored"]:
        run.note(f"{show(found[0].pair.new)} is {found[0].why}: no record of this migration, it and others like it "
                 "are left as they are")  # fmt: skip
    return account(outcome, found)


_MENDABLE: tuple[Verdict, ...] = ("missing", "different", "ttl_drift")


def mendable(found: Sequence[Difference]) -> list[Difference]:
    """What copying the record again may put right."""
    return [d for d in found if d.verdict in _MENDABLE]
