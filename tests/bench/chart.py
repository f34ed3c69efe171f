"""Draws what `make bench` found: as text, and as a PNG for the README."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

WIDTH = 40  # characters of the longest bar
COLOURS = {"migrator": "#c0392b", "during": "#c0392b"}

Panel = tuple[str, str, list[tuple[str, float]]]  # a title, a unit, and the bars


def panels(rows: Sequence[dict[str, Any]]) -> list[Panel]:
    """A panel for each line of the table that has bars."""
    return [(f"{row['what']} ({row['server']})", row["unit"], row["bars"]) for row in rows if row["bars"]]


def as_text(rows: Sequence[dict[str, Any]]) -> str:
    out: list[str] = []
    for title, unit, bars in panels(rows):
        longest = max(value for _, value in bars) or 1.0
        out.append(f"{title}, {unit}")
        for name, value in bars:
            out.append(f"  {name:20} {'█' * max(1, round(WIDTH * value / longest))} {value:,.1f}")
        out.append("")
    return "\n".join(out)


def as_png(rows: Sequence[dict[str, Any]], machine: str, path: Path) -> None:
    """Raises ImportError where matplotlib is not installed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = panels(rows)
    columns = 2
    height = -(-len(found) // columns)
    figure, axes = pyplot.subplots(height, columns, figsize=(12, 1.7 * height + 0.6), squeeze=False)
    for axis in axes.flat[len(found) :]:
        axis.set_axis_off()
    for axis, (title, unit, bars) in zip(axes.flat, found, strict=False):
        names, values = [name for name, _ in bars], [value for _, value in bars]
        drawn = axis.barh(names, values, color=[COLOURS.get(name, "#95a5a6") for name in names])
        axis.bar_label(drawn, fmt="{:,.1f}", padding=3, fontsize=8)
        axis.set_title(f"{title}\n{unit}", fontsize=8, loc="left")
        axis.set_xlim(0, max(values) * 1.2)
        axis.set_xticks([])
        axis.tick_params(labelsize=8)
        axis.invert_yaxis()
        axis.spines[:].set_visible(False)
    figure.suptitle(machine, fontsize=8, x=0.01, ha="left")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    results = json.loads(Path(sys.argv[1]).read_text())
    print(as_text(results["rows"]))
    as_png(results["rows"], results["machine"], Path(sys.argv[2]))
