"""The picture of the contenders side by side: tokens, replicas, time to the first token and queue over time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rlscaler_dev.demo.llm.results import EXISTING, Figures, Played
from rlscaler_dev.demo.records import REPLICA_COLUMNS, Float
from rlscaler_dev.plot import BLUE, INK, LOOK, ORANGE, PURPLE, RED, SKY, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

READY = REPLICA_COLUMNS.index("ready")
STYLE = LOOK | {"font.size": 9.5, "axes.linewidth": 0.8, "grid.linewidth": 0.6, "legend.fontsize": 9}
INCHES_EACH, LEFT_INCHES, RIGHT_INCHES, HEIGHT = 5.0, 0.75, 1.7, 8.6
BIN_SECONDS = 10.0


def draw(played: list[Played], figures: list[Figures], path: Path) -> None:
    """Draw one column for each contender into a PNG; the rows share their scales."""
    width = INCHES_EACH * len(played) + LEFT_INCHES + RIGHT_INCHES
    with picture(path, (width, HEIGHT), 120, STYLE) as figure:
        grid = figure.subplots(4, len(played), squeeze=False, sharex=True, sharey="row")
        for column, (course, result) in enumerate(zip(played, figures, strict=True)):
            late = f"{result.late_percent:.1f} % late, {result.replica_seconds:,.0f} replica-seconds"
            grid[0, column].set_title(f"{course.title}\n{late}", loc="left", fontsize=10)
            _tokens(grid[0, column], course)
            _replicas(grid[1, column], course)
            _first(grid[2, column], course)
            _waiting(grid[3, column], course)
        for row, name in enumerate(("tokens/s", "replicas", "TTFT p95 (s)", "no first token yet")):
            grid[row, 0].set_ylabel(name)
            grid[row, 0].set_ylim(bottom=0)
            grid[row, -1].legend(loc="center left", bbox_to_anchor=(1.01, 0.5), handlelength=1.4)
        for axes in grid[3]:
            axes.set_xlabel("time since the load began (s)")
        grid[0, 0].set_xlim(0, max(course.duration for course in played))
        title = f"Emulated vLLM, {played[0].server}: a mix that drifts and surges"
        figure.suptitle(title, x=LEFT_INCHES / width, y=0.985, ha="left", fontsize=13, fontweight="bold")
        figure.align_ylabels(grid[:, 0])
        figure.subplots_adjust(
            left=LEFT_INCHES / width, right=1 - RIGHT_INCHES / width, top=0.885, bottom=0.065, hspace=0.16, wspace=0.06
        )


def _edges(played: Played) -> Float:
    return np.arange(0.0, played.duration + BIN_SECONDS, BIN_SECONDS)


def _tokens(axes: Axes, played: Played) -> None:
    edges, outcomes = _edges(played), played.outcomes
    prompt, answer = (
        np.histogram(outcomes["arrived"], edges, weights=outcomes[name])[0] / BIN_SECONDS
        for name in ("prompt", "answer")
    )
    axes.stairs(prompt, edges, fill=True, color=SKY, alpha=0.6, label="of prompts")
    axes.stairs(prompt + answer, edges, baseline=prompt, fill=True, color=ORANGE, alpha=0.7, label="of answers")


def _replicas(axes: Axes, played: Played) -> None:
    seconds = np.arange(1.0, played.duration + 1)
    edges, rows = np.append(0.0, seconds), played.replicas.at(seconds)
    ready, existing = rows[:, READY], rows[:, EXISTING]
    axes.stairs(ready, edges, fill=True, color=BLUE, alpha=0.55, label="ready")
    axes.stairs(
        existing, edges, baseline=ready, fill=True, facecolor="none", edgecolor=BLUE, hatch="////", linewidth=0,
        label="starting or leaving",
    )  # fmt: skip
    need = np.histogram(played.outcomes["arrived"], _edges(played), weights=played.outcomes["need"])[0] / BIN_SECONDS
    axes.stairs(need, _edges(played), baseline=None, color=INK, linewidth=1.5, label="needed")


def _first(axes: Axes, played: Played) -> None:
    edges, outcomes = _edges(played), played.outcomes
    first = np.where(np.isnan(outcomes["first"]), np.inf, outcomes["first"])
    place = np.digitize(outcomes["arrived"], edges) - 1
    p95 = [
        np.percentile(first[place == i], 95, method="higher") if (place == i).any() else np.nan
        for i in range(len(edges) - 1)
    ]
    shown = np.minimum(p95, 30.0)
    axes.stairs(shown, edges, baseline=None, color=PURPLE, linewidth=1.6, label="by arrival")
    axes.axhline(played.first_seconds, color=RED, linewidth=1.2, linestyle=(0, (5, 3)), label="objective")


def _waiting(axes: Axes, played: Played) -> None:
    seconds = np.arange(0.0, played.duration)
    arrived, first = played.outcomes["arrived"], played.outcomes["first"]
    came = np.sort(arrived)
    began = np.sort((arrived + first)[np.isfinite(first)])
    waits = np.searchsorted(came, seconds, "right") - np.searchsorted(began, seconds, "right")
    axes.plot(seconds, waits, color=RED, linewidth=1.4, label="requests")
