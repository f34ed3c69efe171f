"""How an adapter's method becomes commands, without any I/O: generators that ask, and a driver that answers.

A method is a generator of `Call` and `Pause` (`Steps`); `conduct` turns it into a generator of `Send`, `Learn` and
`Pause` (`Acts`), which a driver carries out. What may be sent again, and what an error says about the write, is
decided here, once for every client.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    MovedError,
    NoScriptError,
    OutOfMemoryError,
    ResponseError,
    TryAgainError,
)

from migrator.adapters.outcomes import UncertainError
from migrator.client import Arg, Reply
from migrator.errors import MigratorError, RefusedError, UnreachableError
from migrator.scripts import Script

R = TypeVar("R")

PATIENCE = 5.0  # seconds; a slot on the move, a failover, a server that starts
_NOTHING = "nothing was written"  # as the errors say it, here and in bridge
# Refusals of a node that ran nothing. Inside a script Redis 6 says them as "-READONLY" in the middle of a sentence.
_NOT_RUN = re.compile(r"(?:^|-)(?:CLUSTERDOWN|LOADING|MASTERDOWN|READONLY|NOREPLICAS|BUSY)\b")
_NOT_RUN_CLASSES = ("ClusterDownError", "MasterDownError", "ReadOnlyError", "BusyLoadingError")
# Of a server that is no primary, or without its replicas: after a failover the address may be another one's.
_DEMOTED = re.compile(r"(?:^|-)(?:MASTERDOWN|READONLY|NOREPLICAS)\b")
_DEMOTED_CLASSES = ("MasterDownError", "ReadOnlyError")
# Said before the first write of a script, never in the middle.
_FULL = re.compile(r"(?:^|-)(?:OOM|MISCONF)\b")
# What scripts do besides reading and writing values; markers and announcements are hashes.
_RIGHTS = (
    "+@scripting +@hash +type +pexpiretime (before Redis 7 +pttl) +pexpireat +persist +time +unlink +rename, the "
    "commands of the other types and the keys ~<namespace>:* in the ACL, and on a cluster +asking"
)
_INSIDE = re.compile("ACL failure in script|The user executing the script can't")


# Not frozen, where one is made for every call: that would take three times as long.
@dataclass(slots=True)
class Call:
    """One script call. `writes`: it must not be sent twice."""

    script: Script
    keys: Sequence[bytes]
    args: tuple[Arg, ...]
    writes: bool

    def words(self, *, whole: bool) -> tuple[Arg, ...]:
        head = ("EVAL", self.script.text) if whole else ("EVALSHA", self.script.sha)
        return (*head, len(self.keys), *self.keys, *self.args)


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(slots=True)
class Send:
    """Send a call, by its digest or `whole`, to the owner of its first key or to the `node` ("host:port") that the
    owner of a moving slot named. The answer is the reply, a ResponseError or `Lost`."""

    call: Call
    whole: bool = False
    node: str | None = None

    def commands(self) -> list[tuple[Arg, ...]]:
        """In one go, on one connection."""
        words = self.call.words(whole=self.whole)
        return [("ASKING",), words] if self.node else [words]

    def outcome(self, replies: Sequence[Reply]) -> Reply:
        """The one of their replies that counts: the script's, or why it did not run."""
        first, last = replies[0], replies[-1]
        if isinstance(first, ResponseError) and isinstance(last, ResponseError) and _ran_nothing(last):
            return first
        return last


@dataclass(frozen=True, slots=True)
class Learn:
    """Look again who owns which slot: all of them, or the one that an error names."""

    moved: MovedError | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """No reply came; `sent` says whether the server can have got the call. A ResponseError came while connecting."""

    error: Exception
    sent: bool


Steps = Generator[Call | Pause, Reply, R]
Acts = Generator[Send | Learn | Pause, Reply, R]


class DeniedError(RefusedError):
    """This user may not do that."""


class Announcer(Protocol):
    """Who says that an adapter is there."""

    def due(self) -> Call | None:
        """The announcement to send now, if it is time."""

    def again(self) -> None:
        """The last one is due still."""


class Patience:
    """Growing pauses until some seconds are over, by the clock: attempts take time too. Then an error that says that
    nothing was written. An attempt that is under way by then is not cut off."""

    def __init__(self, seconds: float = PATIENCE, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock, self._begun = seconds, clock, clock()
        self._next = 0.01

    @property
    def spent(self) -> bool:
        return self._clock() - self._begun >= self._seconds

    def wait(self, why: object) -> Generator[Pause, Reply, None]:
        waited = self._clock() - self._begun
        if waited >= self._seconds:
            text = str(why) or type(why).__name__
            raise UnreachableError(
                f"Redis did not answer in {waited:.1f} s, and {_NOTHING}: {text}", next="try again later"
            )
        pause = min(self._next, self._seconds - waited)
        self._next = min(2 * self._next, 0.5)
        yield Pause(pause)


def conduct(steps: Steps[R], announcer: Announcer | None = None) -> Acts[R]:
    """Carries out a method; an announcement that is due goes first. That it fails does not matter, unless it is not
    permitted: then nobody would ever know that this adapter is there.

    An error of a method that had done something in earlier steps says so."""
    patience = None
    if announcer is not None and (announcement := announcer.due()):
        patience = Patience()  # what the announcement takes is the first call's time too
        try:
            yield from deliver(announcement, Patience(0))
        except DeniedError:
            announcer.again()
            raise
        except MigratorError:
            pass
    reply: Reply = None
    done = 0
    while True:
        try:
            step = steps.send(reply)
            if isinstance(step, Pause):
                reply = yield step
                continue
            reply = yield from deliver(step, patience or Patience())
        except StopIteration as end:
            result: R = end.value
            return result
        except MigratorError as error:
            if done:
                _tell_before(error, done)
            raise
        if step.writes and reply[0] == b"ok" and _did_something(step.script.name, reply[3:]):
            done += 1
        patience = None


def _did_something(name: str, said: Sequence[Reply]) -> bool:
    """Whether a script that writes says that it did, behind phase and epoch."""
    if name in ("adapter_members_set", "adapter_members_remove"):
        return 1 in said[0]
    if name == "adapter_jobs_claim":  # heads dealt with, and those of them that stay
        return bool(said[0] > said[1])
    if name == "adapter_jobs_do":  # the time comes first
        return bool(said[1] == b"done")
    return said[0] in (b"done", b"written", b"removed", 1)


def _tell_before(error: MigratorError, steps: int) -> None:
    text = error.message.replace(_NOTHING, "this step wrote nothing")
    error.message = f"{text}; steps of this call that were done before it: {steps}"
    error.args = (error.message,)


def deliver(call: Call, patience: Patience) -> Acts[Reply]:
    """The reply of a script that ran; `[b"try-again"]` where it needs keys of a slot that is on the move.

    Raises UnreachableError if nothing was written, UncertainError if that is not known, RefusedError.
    """
    whole, again, node = False, False, None
    while True:
        outcome = yield Send(call, whole, node)
        node = None
        if isinstance(outcome, Lost):
            again = _once_more(call, outcome, again)
        elif not isinstance(outcome, ResponseError):
            return outcome
        elif isinstance(outcome, TryAgainError):
            return [b"try-again"]
        elif not _ran_nothing(outcome):
            raise _refused(call, outcome)
        if isinstance(outcome, NoScriptError):
            whole = True
            continue
        if type(outcome) is AskError:
            node = f"{outcome.host}:{outcome.port}"
        else:
            yield Learn(outcome if isinstance(outcome, MovedError) else None)
        yield from patience.wait(outcome.error if isinstance(outcome, Lost) else outcome)


def _ran_nothing(error: ResponseError) -> bool:
    return isinstance(error, (AskError, NoScriptError)) or (
        type(error).__name__ in _NOT_RUN_CLASSES or _NOT_RUN.search(str(error)) is not None
    )


def demoted(outcome: Reply) -> bool:
    """Whether a driver has to leave the server that answered so: only a new connection finds out who is there now."""
    return isinstance(outcome, ResponseError) and (
        type(outcome).__name__ in _DEMOTED_CLASSES or _DEMOTED.search(str(outcome)) is not None
    )


def _once_more(call: Call, lost: Lost, again: bool) -> bool:
    """What was not sent may be sent, a read a second time, a write never. Raises what is known otherwise."""
    error = lost.error
    if isinstance(error, (AuthenticationError, AuthorizationError)):
        raise UnreachableError(
            f"Redis does not let us in, and nothing was written: {error}", next="check the user and the password"
        ) from error
    if isinstance(error, ResponseError) and not _ran_nothing(error):
        # Its arguments may be the password, so the error itself is not shown, nor chained to this one.
        text = str(error).partition(", with args")[0]
        raise RefusedError(
            f"Redis refuses the connection, and nothing was written: {text}",
            next="check the database and the other options of the client, and what its user may do while it connects",
        )
    if not lost.sent:
        return again
    if call.writes:
        raise UncertainError(
            f"the connection was lost during a write, which may have happened: {error}",
            next="read the record, then decide whether to write it again",
        ) from error
    if again:
        raise UnreachableError(f"the connection was lost twice during a read: {error}", next="try again") from error
    return True


def _refused(call: Call, error: ResponseError) -> MigratorError:
    text = str(error)
    if isinstance(error, OutOfMemoryError) or _FULL.search(text):
        return RefusedError(f"Redis takes no writes, and nothing was written: {text}", next="free memory or disk")
    if _INSIDE.search(text) and call.writes:
        return UncertainError(
            f"this user may not do all that the script does, which may be done in part: {text}",
            next=f"grant {_RIGHTS}; then write the record again",
        )
    if text.startswith("NOPERM") or type(error).__name__ == "NoPermissionError" or _INSIDE.search(text):
        return DeniedError(f"this user may not do that, and nothing was written: {text}", next=f"grant {_RIGHTS}")
    if call.writes:
        return UncertainError(f"the write failed and may be done in part: {text}", next="read the record first")
    return RefusedError(f"the read failed: {text}")
