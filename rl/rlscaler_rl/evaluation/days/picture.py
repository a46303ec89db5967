"""The picture of one day: the load, and what each contender had standing for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.types import GPU
from rlscaler_rl.evaluation.days.contenders import Contender
from rlscaler_rl.evaluation.days.play import Days, Figures
from rlscaler_rl.evaluation.plots import look
from rlscaler_rl.simulation.batch import SENSE_SECONDS
from rlscaler_rl.simulation.episode import Result, Run

Float = NDArray[np.float64]

BIN_SECONDS = 60
"""A day is drawn minute by minute: means of the load and the replicas, the late share of the minute's requests."""

BIN_POINTS = BIN_SECONDS // SENSE_SECONDS


def draw_day(days: Days, title: str, shown: Sequence[tuple[Contender, Run | Figures]], path: Path) -> None:
    """Draw load, capacity and lateness of the last of `days` above one another, for each contender that played them.

    The runs have a timeline of sensing ticks.
    """
    contenders, runs = [contender for contender, _ in shown], [run for _, run in shown]
    records = [{name: values[-1] for name, values in run.timeline.items()} for run in runs]
    rps = days.scenarios.rps[-1]
    top = 1.08 * max(float(_binned((record["ready"] * rps).sum(axis=1)).max()) for record in records)
    top = max(top, 1.08 * float(_binned(records[0]["arrivals"]).max()))
    with look.styled():
        made = look.figure(11.0, 1.3 + 1.7 * len(contenders), layout=None)
        height = made.get_figheight()
        grid = made.add_gridspec(
            len(contenders), 1, left=0.05, right=0.985, top=1 - 0.75 / height, bottom=0.85 / height, hspace=0.38
        )
        for index, (contender, run, record) in enumerate(zip(contenders, runs, records, strict=True)):
            axes = made.add_subplot(grid[index, 0])
            _panel(axes, record, rps, top)
            axes.set_title(f"{contender.label}: {_figures(run.result)}", fontsize=10)
            axes.tick_params(labelbottom=index == len(contenders) - 1)
        axes.set_xlabel("hours")
        look.headline(made, title, y=1 - 0.1 / height)
        _legend(made)
        look.save(made, path)


def _figures(result: Result) -> str:
    gpu, cpu = result.gpu_replica_seconds[-1] / 3600, result.cpu_replica_seconds[-1] / 3600
    return f"{gpu:.1f} GPU-hours, {cpu:.1f} CPU-hours, {result.late_percent[-1]:.2f} % late"


def _panel(axes: Any, record: dict[str, Float], rps: Float, top: float) -> None:
    hours = np.arange(len(record["arrivals"]) // BIN_POINTS) * BIN_SECONDS / 3600
    ready = [_binned(record["ready"][:, pool]) * rps[pool] for pool in range(2)]
    axes.fill_between(hours, 0, ready[GPU], step="post", color=look.GPU, alpha=0.85, lw=0)
    axes.fill_between(hours, ready[GPU], ready[GPU] + ready[1], step="post", color=look.CPU, alpha=0.9, lw=0)
    axes.plot(hours, _binned(record["arrivals"]), color=look.LOAD, lw=0.9)
    late = _binned(record["late_share"] * record["arrivals"]) / np.maximum(_binned(record["arrivals"]), 1e-9)
    shown = late > LATE_SHARE
    axes.plot(hours[shown], np.full(int(shown.sum()), 0.97 * top), "|", color=look.LATE, ms=6, mew=1.2)
    axes.set_xlim(0, hours[-1] + BIN_SECONDS / 3600)
    axes.set_ylim(0, top)


LATE_SHARE = 0.01
"""A minute is marked from this share of late requests on."""


def _binned(values: Float) -> Float:
    """Give means over whole minutes, of points (T,) at every sensing tick."""
    minutes = len(values) // BIN_POINTS
    return np.asarray(values[: minutes * BIN_POINTS].reshape(minutes, BIN_POINTS).mean(axis=1), np.float64)


def _legend(made: Any) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [
        Line2D([], [], color=look.LOAD, lw=1.2, label="arrivals, requests/s"),
        Patch(color=look.GPU, label="ready GPU capacity, requests/s"),
        Patch(color=look.CPU, label="ready CPU capacity"),
        Line2D([], [], color=look.LATE, lw=0, marker="|", ms=9, label="minute with more than 1 % late"),
    ]
    made.legend(handles=handles, loc="lower center", ncols=4, fontsize=8.5)
