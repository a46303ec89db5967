"""Style of every picture: each contender has the same colour and marker everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from rlscaler_core.decision.types import Float
from rlscaler_rl.results.statistics import Interval

COLOURS = {
    "policy": "#0b5fd6",
    "ppo_tuned": "#0a3d91",
    "ppo_tuned_all": "#4f93ea",
    "hpa": "#e8a87c",
    "hpa_tuned": "#d55e00",
    "hpa_tuned_all": "#a34700",
    "keda": "#d79ac4",
    "keda_tuned": "#b5478f",
    "kpa_tuned": "#7c3aa3",
    "rule": "#7fcfae",
    "rule_tuned": "#0f9d6b",
    "rule_tuned_all": "#08704b",
    "static_max": "#6b7785",
    "static_mid": "#98a3af",
    "static_peak": "#4c5561",
    "kpa": "#c5a3dc",
    "static_tuned": "#2f3740",
    "hindsight": "#555555",
    "hindsight_tuned": "#111111",
}
SWEEP, CONTROL, SEED = "#f0a36b", "#b9b4ac", "#8db8f0"
GPU, CPU, LOAD, LATE = "#4b7bbf", "#9fc3ea", "#1b1b1b", "#d1243c"
VERDICTS = {"loss": "#d1243c", "undecided": "#8a929c", "win": "#1a8f4b"}
MARKERS = {
    "policy": "D",
    "variant": "D",
    "seed": "d",
    "contender": "o",
    "sweep": "o",
    "control": "X",
    "reference": "*",
}

_RC = {
    "font.size": 9.5,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9aa0a6",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e8eb",
    "grid.linewidth": 0.8,
    "xtick.color": "#4a4f55",
    "ytick.color": "#4a4f55",
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}


def colour(name: str, role: str) -> str:
    """Return the colour of a contender, else that of its role."""
    return COLOURS.get(name, {"sweep": SWEEP, "control": CONTROL, "seed": SEED}.get(role, "#7a6f9b"))


def figure(width: float, height: float, layout: Literal["constrained"] | None = "constrained") -> Figure:
    """Return an empty figure, sizes in inches, in the project's style and without pyplot's global state."""
    with mpl.rc_context(_RC):
        return Figure(figsize=(width, height), layout=layout)


def styled() -> Any:
    """Return the context in which axes are created: `with styled(): ...`."""
    return mpl.rc_context(_RC)


def headline(picture: Figure, text: str, size: float = 13, **place: float) -> None:
    """Put a bold title at the left above all panels."""
    picture.suptitle(text, fontsize=size, fontweight="bold", x=0.01, ha="left", **place)


def capacity(axes: Any, times: Float, ready: Float, arrivals: Float, width: float) -> None:
    """Fill the ready capacity (T, 2) of GPU and CPU replicas in requests/s, and draw the arrivals (T,) over it."""
    gpu, both = ready[:, 0], ready.sum(axis=1)
    axes.fill_between(times, 0, gpu, step="post", color=GPU, alpha=0.85, lw=0)
    axes.fill_between(times, gpu, both, step="post", color=CPU, alpha=0.9, lw=0)
    axes.plot(times, arrivals, color=LOAD, lw=width)


def capacity_legend(picture: Figure, *more: Artist) -> None:
    """Put the legend of `capacity` below all panels, with `more` handles."""
    handles = [
        Line2D([], [], color=LOAD, lw=1.3, label="arrivals, requests/s"),
        Patch(color=GPU, label="ready GPU capacity, requests/s"),
        Patch(color=CPU, label="ready CPU capacity"),
        *more,
    ]
    picture.legend(handles=handles, loc="lower center", ncols=len(handles), fontsize=8.5)


def save(picture: Figure, path: Path) -> None:
    """Write the figure as a PNG file."""
    picture.savefig(path, dpi=110)


def means_with_bars(axes: Any, places: Sequence[float], intervals: Sequence[Interval], **style: Any) -> None:
    """Draw each mean with its interval as an error bar: vertical, and horizontal with `horizontal=True`."""
    means = [interval.mean for interval in intervals]
    beside = [[item.mean - item.low for item in intervals], [item.high - item.mean for item in intervals]]
    horizontal = style.pop("horizontal", False)
    points, bars = ((means, places), "xerr") if horizontal else ((places, means), "yerr")
    axes.errorbar(*points, fmt="o", capsize=3, **{bars: beside}, **style)
