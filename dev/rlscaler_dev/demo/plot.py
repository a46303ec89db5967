"""The picture of a run, or of two copies under one load: load and ready capacity, late requests, replicas."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlscaler_dev.demo.settings import HPA, POLICY
from rlscaler_dev.demo.timeline import Timeline
from rlscaler_dev.demo.words import ready_capacity
from rlscaler_dev.plot import BLUE, INK, LOOK, MUTED, ORANGE, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {HPA: ORANGE, POLICY: BLUE}
LEFT = 0.085
"""Where title and axes begin, as a share of the width."""

TITLE_CHARACTERS = 92

STYLE = LOOK | {
    "font.size": 12,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "grid.linewidth": 0.8,
    "legend.fontsize": 11,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "hatch.linewidth": 0.6,
}


@dataclass(frozen=True, slots=True)
class Shown:
    """One run of the picture."""

    name: str
    """`hpa` or `rlscaler`."""
    label: str
    timeline: Timeline


def draw(runs: Sequence[Shown], text: str, path: Path) -> None:
    """Draw the runs into a PNG of 1650 × 1350 pixels under the sentence `text`."""
    with picture(path, (11, 9), 150, STYLE) as figure:
        axes = figure.subplots(4, 1, sharex=True, gridspec_kw={"height_ratios": [2.4, 1.5, 1.5, 1.5]})
        _capacity(axes[0], runs)
        _late(axes[1], runs)
        for row, pool in zip(axes[2:], ("gpu", "cpu"), strict=True):
            _replicas(row, runs, pool)
        axes[-1].set_xlabel("seconds since the load began")
        axes[-1].set_xlim(0, max(len(run.timeline) for run in runs))
        lines = textwrap.wrap(text, TITLE_CHARACTERS)
        figure.text(
            LEFT, 0.985, "\n".join(lines), ha="left", va="top", fontsize=13.5, fontweight="bold", linespacing=1.3
        )
        figure.align_ylabels(axes)
        figure.subplots_adjust(left=LEFT, right=0.80, top=0.97 - 0.03 * len(lines), bottom=0.06, hspace=0.2)


def _capacity(axes: Axes, runs: Sequence[Shown]) -> None:
    offered = runs[0].timeline.offered_rps
    edges = _edges(runs[0])
    axes.stairs(offered, edges, fill=True, color=MUTED, alpha=0.25, label="load")
    top = [offered]
    for run in runs:
        ready = np.nan_to_num(ready_capacity(run.timeline))
        top.append(ready)
        axes.stairs(
            ready, _edges(run), baseline=None, color=COLOURS[run.name], linewidth=2.2, label=f"ready, {run.label}"
        )
    axes.set_ylim(0, 1.1 * max(float(values.max(initial=1.0)) for values in top))
    axes.set_ylabel("requests/s")
    _legend(axes)


def _late(axes: Axes, runs: Sequence[Shown]) -> None:
    most = 1.0
    for run in runs:
        late = run.timeline.failed + run.timeline.late
        most = max(most, float(late.max(initial=0.0)))
        colour = COLOURS[run.name]
        axes.stairs(late, _edges(run), fill=True, color=colour, alpha=0.3)
        axes.stairs(late, _edges(run), baseline=None, color=colour, linewidth=1.4, label=f"late, {run.label}")
    axes.set_ylim(0, 1.1 * most)
    axes.set_ylabel("late or failed/s")
    _legend(axes)


def _replicas(axes: Axes, runs: Sequence[Shown], pool: str) -> None:
    from matplotlib.ticker import MaxNLocator

    most = 2.0
    for run in runs:
        ready, spec = (np.nan_to_num(getattr(run.timeline, f"{pool}_{name}")) for name in ("ready", "spec"))
        most = max(most, float(np.concatenate([ready, spec, [0.0]]).max()))
        options: dict[str, Any] = {"baseline": None, "color": COLOURS[run.name]}
        axes.stairs(ready, _edges(run), linewidth=2.2, label=f"ready, {run.label}", **options)
        axes.stairs(spec, _edges(run), linewidth=1.4, linestyle=(0, (2, 1.5)), label=f"ordered, {run.label}", **options)
    axes.set_ylim(0, 1.12 * most)
    axes.set_ylabel(f"{pool.upper()} replicas")
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    _legend(axes)


def _edges(run: Shown) -> Any:
    return np.append(run.timeline.t, len(run.timeline))


def _legend(axes: Axes) -> None:
    axes.legend(loc="center left", bbox_to_anchor=(1.005, 0.5), handlelength=1.6, borderaxespad=0.3)
