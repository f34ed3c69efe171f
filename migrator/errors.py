"""One class for each decision an operator has to make, and its exit code.

    MigratorError                1   something nobody foresaw
    ├── UsageError               2   the command, the configuration or a module is wrong
    ├── UnreachableError         3   Redis does not answer, does not let us in, or does not last
    │   └── NodeGoneError        3   a failover: this primary is none any more
    ├── DriftError              11   a file changed under a migration that is under way
    ├── OrderError              12   a migration has to wait for another one
    ├── StalePlanError          14   the saved plan is not about what is there now
    ├── LeaseHeldError          20   another process holds the lease
    ├── FencedError             21   another process took the lease over; stop at once
    ├── DifferencesError        30   the two shapes differ
    ├── IncompleteError         31   the comparison did not see everything
    ├── QuarantineError         32   records that cannot be mapped wait for a decision
    ├── StoppedByLoadError      50   the server was in need for too long; the checkpoint is saved
    ├── RefusedError            60   a guard refused; a flag or another command settles it
    ├── LedgerBackwardsError    62   Redis knows more than the ledger does
    └── InterruptedRunError 130/143  a signal came; the checkpoint is saved

Two stand outside the tree: `Unmappable` is about one record, never about the run, and `Interrupted` is no error at all.
"""

from __future__ import annotations

from typing import ClassVar


class Unmappable(ValueError):
    """Raised by a mapping: this record cannot be carried over. `reason` goes to the quarantine.

    The reason names the kind of fault and never repeats a value of the record: values may be secret.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class MigratorError(Exception):
    """The message is the fact; `next` is the step that helps."""

    exit_code: ClassVar[int] = 1
    code: ClassVar[str] = "unexpected"

    def __init__(self, message: str, *, next: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next = next


class UsageError(MigratorError):
    exit_code = 2
    code = "usage"


class UnreachableError(MigratorError):
    exit_code = 3
    code = "unreachable"


class NodeGoneError(UnreachableError):
    """A primary of a cluster is no longer one: a failover. A walk begins again; other commands are run again."""


class DriftError(MigratorError):
    exit_code = 11
    code = "drift"


class OrderError(MigratorError):
    exit_code = 12
    code = "order"


class StalePlanError(MigratorError):
    exit_code = 14
    code = "stale-plan"


class LeaseHeldError(MigratorError):
    exit_code = 20
    code = "lease-held"


class FencedError(MigratorError):
    exit_code = 21
    code = "fenced"


class DifferencesError(MigratorError):
    exit_code = 30
    code = "differences"


class IncompleteError(MigratorError):
    exit_code = 31
    code = "incomplete"


class QuarantineError(MigratorError):
    exit_code = 32
    code = "quarantined"


class StoppedByLoadError(MigratorError):
    exit_code = 50
    code = "stopped-by-load"


class RefusedError(MigratorError):
    exit_code = 60
    code = "refused"


class LedgerBackwardsError(MigratorError):
    exit_code = 62
    code = "ledger-backwards"


class InterruptedRunError(MigratorError):
    """A signal asked the run to stop. Where it `writes`, what was done is recorded, and the next run goes on there."""

    code = "interrupted"

    def __init__(self, signum: int, *, writes: bool = True) -> None:
        name = {2: "Ctrl-C", 15: "SIGTERM"}.get(signum, f"signal {signum}")
        saved, following = "; the checkpoint is saved", "run the same command again to go on from here"
        super().__init__(f"stopped by {name}{saved if writes else ''}", next=following if writes else "")
        self.signum = signum

    @property
    def exit(self) -> int:
        return 128 + self.signum


class Interrupted(BaseException):
    """A signal that is heard at once, wherever the run is: an `InterruptedRunError` by the time it is told.

    No Exception: it may come in the middle of a mapping or a module, and would be taken for a fault of those.
    """

    def __init__(self, signum: int) -> None:
        self.signum = signum
