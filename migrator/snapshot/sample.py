"""A sample stratified by key family: a share of each, and of a small one about a few keys at least."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable

from migrator.errors import UsageError
from migrator.snapshot.families import Found

LEAST = 10  # keys of a family, about


class Sample:
    """Which keys are in it hangs on their names alone: tonight's sample has the keys of last night's, and all that
    belongs to one record, whatever its shape, is in it or out of it together."""

    def __init__(self, *, share: float = 0.0, number: int = 0) -> None:
        self._share, self._number = share, number
        self.counts: Counter[str] = Counter()

    @staticmethod
    def parse(text: str) -> Sample:
        """From `0.05` or `5%`, a share, or from `1000`, a number of keys. Raises UsageError."""
        try:
            if text.endswith("%") or "." in text:
                share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
                if 0 < share <= 1:
                    return Sample(share=share)
            elif int(text) > 0:
                return Sample(number=int(text))
        except ValueError:
            pass
        raise UsageError(f"--sample is a share like 0.05 or 5%, or a number of keys, not {text!r}",
                         next="see: migrator snapshot take --help")  # fmt: skip

    def words(self) -> str:
        what = f"{100 * self._share:.4g} % of the keys" if self._share else f"{self._number:,} keys in all"
        return f"about {what}, in each family the same share, but about {LEAST} keys at least"

    def count(self, labels: Iterable[str]) -> None:
        """Everything is counted before the first question."""
        self.counts.update(labels)

    def holds(self, found: Found) -> bool:
        share = self._share or self._number / max(1, self.counts.total())
        share = max(share, LEAST / max(1, self.counts[found.label]))
        digest = hashlib.blake2b(found.record, digest_size=8).digest()
        return int.from_bytes(digest) < share * 2**64
