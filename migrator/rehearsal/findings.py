"""What was found of many records: how many, and a few of them by name; the same few however a scan came by them."""

from __future__ import annotations

from bisect import insort

from migrator.models import DifferenceResult, ReasonCount, show

NAMED = 20

Place = tuple[bytes, bytes]  # a key, and a member or nothing


class Reasons:
    """How often each reason was given, and the first record, by name, that it was given for."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, bytes, bytes | None]] = {}

    def add(self, reason: str, key: bytes, member: bytes | None = None) -> None:
        count, first, its_member = self._found.get(reason, (0, key, member))
        if (key, member or b"") < (first, its_member or b""):
            first, its_member = key, member
        self._found[reason] = (count + 1, first, its_member)

    @property
    def total(self) -> int:
        return sum(count for count, _, _ in self._found.values())

    def listed(self) -> tuple[ReasonCount, ...]:
        """The most frequent first."""
        ranked = sorted(self._found.items(), key=lambda item: (-item[1][0], item[0]))
        return tuple(
            ReasonCount(reason=reason, count=count, key=show(key), member=None if member is None else show(member))
            for reason, (count, key, member) in ranked
        )


class Differences:
    """How many records differ, and the first few by name."""

    def __init__(self) -> None:
        self.total = 0
        self._first: list[tuple[str, str, str, str, bool]] = []

    def add(self, key: bytes, member: bytes | None, verdict: str, why: str) -> None:
        self.note(
            DifferenceResult(key=show(key), member=None if member is None else show(member), verdict=verdict, why=why)
        )

    def note(self, found: DifferenceResult) -> None:
        self.total += 1
        insort(self._first, (found.key, found.member or "", found.verdict, found.why, found.member is not None))
        del self._first[NAMED:]

    def listed(self) -> tuple[DifferenceResult, ...]:
        return tuple(
            DifferenceResult(key=key, member=member if has else None, verdict=verdict, why=why)
            for key, member, verdict, why, has in self._first
        )
