"""Picture of one day: the load, and the ready capacity of each contender."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.lines import Line2D

from rlscaler_core.decision.types import Float
from rlscaler_rl.evaluation.days.contenders import Contender
from rlscaler_rl.evaluation.days.play import Figures
from rlscaler_rl.results import figures
from rlscaler_rl.simulation.batch import SENSE_SECONDS
from rlscaler_rl.simulation.episode import Result, Run

BIN_SECONDS = 60
"""Seconds of a bin: means of the load and the replicas, the late share of the bin's requests."""

BIN_POINTS = BIN_SECONDS // SENSE_SECONDS

LATE_SHARE = 0.01
"""Share of late requests from which on a minute is marked."""


def draw_day(title: str, shown: Sequence[tuple[Contender, Run | Figures]], path: Path) -> None:
    """Draw load, capacity and lateness of the last day of the runs, a panel for each contender.

    The runs have a timeline of sensing ticks.
    """
    records = [{name: values[-1] for name, values in run.timeline.items()} for _, run in shown]
    top = 1.08 * max(float(_binned((record["ready"] * record["rps"]).sum(axis=1)).max()) for record in records)
    top = max(top, 1.08 * float(_binned(records[0]["arrivals"]).max()))
    with figures.styled():
        picture = figures.figure(11.0, 1.3 + 1.7 * len(shown), layout=None)
        height = picture.get_figheight()
        margins = {"left": 0.05, "right": 0.985, "top": 1 - 0.75 / height, "bottom": 0.85 / height}
        panels = picture.subplots(len(shown), 1, squeeze=False, gridspec_kw=margins | {"hspace": 0.38})[:, 0]
        for axes, (contender, run), record in zip(panels, shown, records, strict=True):
            _panel(axes, record, top)
            axes.set_title(f"{contender.label}: {_figures(run.result)}", fontsize=10)
            axes.tick_params(labelbottom=axes is panels[-1])
        panels[-1].set_xlabel("hours")
        figures.headline(picture, title, y=1 - 0.1 / height)
        late = "minute with more than 1 % late"
        figures.capacity_legend(picture, Line2D([], [], color=figures.LATE, lw=0, marker="|", ms=9, label=late))
        figures.save(picture, path)


def _figures(result: Result) -> str:
    gpu, cpu = result.gpu_replica_seconds[-1] / 3600, result.cpu_replica_seconds[-1] / 3600
    return f"{gpu:.1f} GPU-hours, {cpu:.1f} CPU-hours, {result.late_percent[-1]:.2f} % late"


def _panel(axes: Any, record: dict[str, Float], top: float) -> None:
    arrivals = _binned(record["arrivals"])
    hours = np.arange(len(arrivals)) * BIN_SECONDS / 3600
    ready = np.stack([_binned(pool) for pool in (record["ready"] * record["rps"]).T], axis=1)
    figures.capacity(axes, hours, ready, arrivals, 0.9)
    marked = _binned(record["late_share"] * record["arrivals"]) > LATE_SHARE * np.maximum(arrivals, 1e-9)
    axes.plot(hours[marked], np.full(int(marked.sum()), 0.97 * top), "|", color=figures.LATE, ms=6, mew=1.2)
    axes.set_xlim(0, hours[-1] + BIN_SECONDS / 3600)
    axes.set_ylim(0, top)


def _binned(values: Float) -> Float:
    """Return means over whole minutes of points (T,) at every sensing tick."""
    minutes = len(values) // BIN_POINTS
    return np.asarray(values[: minutes * BIN_POINTS].reshape(minutes, BIN_POINTS).mean(axis=1), np.float64)
