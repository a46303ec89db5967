"""Picture of one episode of one workload: ordered and ready capacity, load and late requests of each contender."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from rlscaler_rl.evaluation.report import tables
from rlscaler_rl.results import figures

COLUMNS = 3


def timeline(workload: str, panels: Sequence[tuple[str, dict[str, Any]]]) -> Figure:
    """Draw `panels`, (label, record of `play.Played.timelines`), the policy first, on one scale."""
    rows, columns = -(-len(panels) // COLUMNS), min(len(panels), COLUMNS)
    with figures.styled():
        picture = figures.figure(5.0 * columns, 2.75 * rows + 0.9, layout=None)
        grid = _grid(picture, rows, columns)
        top = 1.06 * max(np.percentile((record["desired"] * record["rps"]).sum(axis=1), 97) for _, record in panels)
        top = max(top, 1.15 * max(float(_smooth(record["arrivals"]).max()) for _, record in panels))
        for index, (label, record) in enumerate(panels):
            row, column = divmod(index, columns)
            upper = picture.add_subplot(grid[3 * row, column])
            _capacity(upper, label, record, top, policy=index == 0)
            _late(
                picture.add_subplot(grid[3 * row + 1, column], sharex=upper),
                record,
                last=index + columns >= len(panels),
            )
        title = f"{tables.title(workload)}: first episode of the first run, the same load for every contender"
        figures.headline(picture, title, y=1 - 0.12 / picture.get_figheight())
        figures.capacity_legend(
            picture,
            Line2D([], [], color="#5a6572", lw=0.9, ls=(0, (2, 1.5)), label="ordered capacity (paid for)"),
            Line2D([], [], color=figures.GPU, lw=0.9, label="traffic to GPU, %"),
            Patch(color=figures.LATE, label="late requests, % of that second"),
        )
    return picture


def _grid(picture: Figure, rows: int, columns: int) -> Any:
    """Return three grid rows a panel: capacity, late share, and space."""
    # Fixed margins, because a layout engine takes seconds here.
    width, height = picture.get_size_inches()
    margins = {"left": 0.45 / width, "right": 1 - 0.15 / width, "top": 1 - 0.75 / height, "bottom": 0.85 / height}
    ratios = ([6.0, 1.0, 2.0] * rows)[:-1]
    return picture.add_gridspec(len(ratios), columns, height_ratios=ratios, hspace=0.14, wspace=0.13, **margins)


def _capacity(axes: Any, label: str, record: dict[str, Any], top: float, *, policy: bool) -> None:
    seconds = np.arange(len(record["arrivals"]), dtype=np.float64)
    ready, ordered = record["ready"] * record["rps"], (record["desired"] * record["rps"]).sum(axis=1)
    figures.capacity(axes, seconds, ready, _smooth(record["arrivals"]), 1.5)
    axes.plot(seconds, ordered, drawstyle="steps-post", color="#5a6572", lw=0.9, ls=(0, (2, 1.5)))
    axes.set_ylim(0, top)
    axes.set_xlim(0, len(seconds))
    axes.set_title(label, fontsize=10, color=figures.COLOURS["policy"] if policy else "#1b1b1b")
    scores = f"J {record['j']:.2f}   cost {record['cost']:.2f}   late {record['late_percent']:.2f} %"
    axes.annotate(scores, (0.99, 0.95), xycoords="axes fraction", ha="right", va="top", fontsize=8.5, color="#4a4f55")
    axes.tick_params(labelbottom=False)


def _late(axes: Any, record: dict[str, Any], *, last: bool) -> None:
    share = 100 * np.clip(record["late_share"], 0, 1)
    seconds = np.arange(len(share))
    axes.fill_between(seconds, 0, share, step="post", color=figures.LATE, lw=0)
    axes.plot(seconds, 100 * record["weights_gpu"], drawstyle="steps-post", color=figures.GPU, lw=0.9)
    axes.set_ylim(0, 100)
    axes.set_yticks([0, 100])
    axes.tick_params(axis="y", labelsize=7)
    axes.grid(visible=False)
    axes.tick_params(axis="x", labelsize=8)
    if last:
        axes.set_xlabel("seconds", fontsize=9)


def _smooth(arrivals: np.ndarray, window: int = 5) -> np.ndarray:
    """Return means over `window` seconds: the Poisson noise of single seconds hides the shape."""
    padded = np.pad(np.asarray(arrivals, np.float64), (window // 2, window - 1 - window // 2), mode="edge")
    return np.convolve(padded, np.full(window, 1 / window), mode="valid")
