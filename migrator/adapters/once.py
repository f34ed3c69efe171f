"""Connecting once: a client's own retries would go on beneath an adapter's, ten and more for each of its attempts.

redis-py gives a connection its retries when it makes it, and has no way to connect without them. So those of a client
that is not of a cluster are wrapped; for all that is not an adapter's they stay what they are.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any

from redis.retry import AbstractRetry

ONCE: ContextVar[bool] = ContextVar("once", default=False)
"""Whether whoever connects now is an adapter."""


class Wrapped(AbstractRetry[Exception]):
    """The retries of a client, sync or async; none while ONCE is set."""

    def __init__(self, usual: AbstractRetry[Any]) -> None:
        self._usual, self._none = usual, copy.deepcopy(usual)
        self._none.update_retries(0)

    def call_with_retry(self, *words: Any, **named: Any) -> Any:
        now: Any = self._none if ONCE.get() else self._usual
        return now.call_with_retry(*words, **named)

    def update_supported_errors(self, specified_errors: Iterable[type[Exception]]) -> None:
        errors = tuple(specified_errors)
        self._usual.update_supported_errors(errors)
        self._none.update_supported_errors(errors)

    def get_retries(self) -> int:
        return self._usual.get_retries()

    def update_retries(self, value: int) -> None:
        self._usual.update_retries(value)

    def __eq__(self, other: Any) -> bool:
        return bool(self._usual == (other._usual if isinstance(other, Wrapped) else other))

    def __hash__(self) -> int:
        return hash(self._usual)


def wrap_new(pool: Any) -> None:
    """Connections that the pool makes from now on."""
    usual = pool.connection_kwargs.get("retry")
    if usual is not None and usual.__class__ is not Wrapped:
        pool.connection_kwargs["retry"] = Wrapped(usual)


def wrap(connection: Any) -> None:
    """One that the pool had before; it connects once when it has to connect anew."""
    usual = getattr(connection, "retry", None)  # a class of the application's own may have none
    if usual is not None and usual.__class__ is not Wrapped:
        connection.retry = Wrapped(usual)
