"""`make bench`: one table, every ratio from one run."""

from __future__ import annotations

import os
import platform
import tempfile
from pathlib import Path

from tabulate import tabulate

from tests.bench.adapters import costs
from tests.servers import binary


def main() -> None:
    print(f"CPython {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores\n")
    with tempfile.TemporaryDirectory() as home:
        rows = [
            (what, against, f"{found.ours:.0f} µs", f"{found.theirs:.0f} µs", f"{found.ratio:.2f}")
            for what, against, found in costs(binary(), Path(home))
        ]
    print(tabulate(rows, ("what", "against", "ours", "theirs", "ratio"), disable_numparse=True))


if __name__ == "__main__":
    main()
