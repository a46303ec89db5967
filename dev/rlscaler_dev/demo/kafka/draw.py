"""The picture of the contenders side by side: messages, lag in seconds, consumers and rebalances over time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rlscaler_dev.demo.kafka.plan import PARTITIONS
from rlscaler_dev.demo.kafka.results import READY, SPEC, STARTING, Figures, Played
from rlscaler_dev.plot import BLUE, INK, LOOK, ORANGE, PURPLE, RED, SKY, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STYLE = LOOK | {"font.size": 9.5, "axes.linewidth": 0.8, "grid.linewidth": 0.6, "legend.fontsize": 9}
INCHES_EACH, LEFT_INCHES, RIGHT_INCHES = 5.0, 0.75, 1.6
HEIGHT = 9.2
SMOOTHING_SECONDS = 5


def draw(played: list[Played], figures: list[Figures], path: Path) -> None:
    """Draw one column for each contender into a PNG; the rows share their scales."""
    width = INCHES_EACH * len(played) + LEFT_INCHES + RIGHT_INCHES
    with picture(path, (width, HEIGHT), 120, STYLE) as figure:
        grid = figure.subplots(
            4, len(played), squeeze=False, sharex=True, sharey="row", gridspec_kw={"height_ratios": [2, 2.4, 2.2, 1.4]}
        )
        for column, (one, result) in enumerate(zip(played, figures, strict=True)):
            _messages(grid[0, column], one, result)
            _lag(grid[1, column], one)
            _consumers(grid[2, column], one)
            _rebalances(grid[3, column], one)
        for row, name in enumerate(("messages/s", "lag (s)", "consumers", "rebalances")):
            grid[row, 0].set_ylabel(name)
            grid[row, 0].set_ylim(bottom=0)
            grid[row, -1].legend(loc="center left", bbox_to_anchor=(1.01, 0.5), handlelength=1.4)
        for axes in grid[3]:
            axes.set_xlabel("time since the load began (s)")
        grid[0, 0].set_xlim(0, max(contender.seconds[-1] for contender in played))
        text = f"Consumers of {PARTITIONS} partitions, {played[0].protocol}"
        figure.suptitle(text, x=LEFT_INCHES / width, y=0.985, ha="left", fontsize=13, fontweight="bold")
        figure.align_ylabels(grid[:, 0])
        figure.subplots_adjust(
            left=LEFT_INCHES / width, right=1 - RIGHT_INCHES / width, top=0.895, bottom=0.06, hspace=0.16, wspace=0.06
        )


def _per_second(moments: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Return the number of moments in each second (T,), as a running mean."""
    counts = np.histogram(moments[np.isfinite(moments)], np.append(0.0, seconds))[0]
    kernel = np.ones(SMOOTHING_SECONDS)
    return np.asarray(np.convolve(counts, kernel, "same") / np.convolve(np.ones(len(counts)), kernel, "same"))


def _messages(axes: Axes, played: Played, figures: Figures) -> None:
    seconds = played.seconds
    axes.fill_between(seconds, _per_second(played.done, seconds), color=SKY, alpha=0.5, linewidth=0, label="processed")
    axes.plot(seconds, _per_second(played.written, seconds), color=INK, linewidth=1.4, label="written")
    late = f"{figures.late_percent:.1f} % late, {figures.lost} lost"
    axes.set_title(
        f"{figures.title}\n{late}, {figures.consumer_seconds:,.0f} consumer-seconds", loc="left", fontsize=10
    )


def _lag(axes: Axes, played: Played) -> None:
    seconds, lag, objective = played.seconds, played.lag(), played.slo_seconds
    axes.plot(seconds, lag, color=PURPLE, linewidth=1.6, label="oldest message")
    axes.fill_between(
        seconds, objective, lag, where=lag > objective, color=RED, alpha=0.2, linewidth=0, interpolate=True
    )
    axes.axhline(objective, color=RED, linewidth=1.2, linestyle=(0, (5, 3)), label="objective")


def _consumers(axes: Axes, played: Played) -> None:
    edges = np.append(0.0, played.seconds)
    rows = played.replicas.at(played.seconds)
    ready, starting = rows[:, READY], rows[:, STARTING]
    axes.stairs(ready, edges, fill=True, color=BLUE, alpha=0.55, label="ready")
    axes.stairs(
        ready + starting,
        edges,
        baseline=ready,
        fill=True,
        facecolor="none",
        edgecolor=BLUE,
        hatch="////",
        linewidth=0,
        label="starting",
    )
    axes.stairs(rows[:, SPEC], edges, baseline=None, color=INK, linewidth=1.5, label="desired")
    axes.set_ylim(0, PARTITIONS + 1)
    axes.set_yticks(range(0, PARTITIONS + 1, 3))


def _rebalances(axes: Axes, played: Played) -> None:
    from matplotlib.ticker import MaxNLocator

    edges = np.append(0.0, played.seconds)
    count = played.rebalances.at(edges)[:, 0]
    axes.stairs(count[1:] - count[0], edges, baseline=None, color=ORANGE, linewidth=1.6, label="so far")
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
