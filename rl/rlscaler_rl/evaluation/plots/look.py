"""One look for every picture: the same contender has the same colour and marker everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.figure import Figure

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
    "greedy_tuned": "#8a6d3b",
    "rule": "#7fcfae",
    "rule_tuned": "#0f9d6b",
    "rule_tuned_all": "#08704b",
    "max_tuned": "#c58a00",
    "max_of_recent": "#c58a00",
    "static_max": "#6b7785",
    "static_mid": "#98a3af",
    "static_peak": "#4c5561",
    "static_gpu_only": "#5a4fcf",
    "static_cpu_only": "#b8a7f0",
    "kpa": "#c5a3dc",
    "greedy": "#cdb68a",
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
    "equal_cost": "s",
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
    return COLOURS.get(name, {"sweep": SWEEP, "control": CONTROL, "seed": SEED}.get(role, "#7a6f9b"))


def figure(width: float, height: float, layout: Literal["constrained"] | None = "constrained") -> Figure:
    """An empty figure in inches, drawn with the house settings, without pyplot's global state."""
    with mpl.rc_context(_RC):
        return Figure(figsize=(width, height), layout=layout)


def styled() -> Any:
    """Context in which axes are made: `with styled(): ...`."""
    return mpl.rc_context(_RC)


def headline(made: Figure, text: str, size: float = 13, **place: float) -> None:
    """A bold title at the left above all panels."""
    made.suptitle(text, fontsize=size, fontweight="bold", x=0.01, ha="left", **place)


def save(made: Figure, path: Path) -> None:
    made.savefig(path, dpi=110)
