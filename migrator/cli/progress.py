"""Progress on stderr: a bar on a terminal, one line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from typing import NoReturn

from migrator.models import number_of

LINE_EVERY = 5.0  # seconds


class Terminal:
    """Bars, with log lines above them."""

    def __init__(self) -> None:
        from tqdm import tqdm

        self._tqdm = tqdm
        self._bar: tqdm[NoReturn] | None = None

    def say(self, text: str) -> None:
        self._tqdm.write(text, file=sys.stderr)

    def begin(self, task: str, total: int | None) -> None:
        self._bar = self._tqdm(desc=task, total=total, unit=" records", file=sys.stderr, dynamic_ncols=True,
                               leave=False, mininterval=0.2)  # fmt: skip

    def advance(self, records: int) -> None:
        if self._bar is not None:
            self._bar.update(records)

    def end(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class Log:
    """Lines for a file or a pipeline's log."""

    def __init__(self) -> None:
        self._task, self._done, self._next = "", 0, 0.0

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def begin(self, task: str, total: int | None) -> None:  # noqa: ARG002 - a log line counts, it has no bar
        self._task, self._done, self._next = task, 0, time.monotonic() + LINE_EVERY

    def advance(self, records: int) -> None:
        if not self._task:
            return
        self._done += records
        if time.monotonic() >= self._next:
            self.say(f"{self._task}: {self._done:,} records")
            self._next = time.monotonic() + LINE_EVERY

    def end(self) -> None:
        if self._done:
            self.say(f"{self._task}: {number_of(self._done, 'record')}, done")
        self._task, self._done = "", 0


def observer() -> Terminal | Log:
    return Terminal() if sys.stderr.isatty() else Log()
