"""Bars by workload: the metrics with their spread over the runs."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from rlscaler_rl.evaluation.report import tables
from rlscaler_rl.evaluation.schema import ResultFile, Row
from rlscaler_rl.results import figures

PANELS = (
    ("j", "Score J (lower is better)"),
    ("cost", "Cost, GPU replica equivalents"),
    ("late_percent", "Late requests, %"),
    ("goodput_rps", "Goodput, requests/s in time"),
    ("p95_ms", "p95 latency, ms"),
    ("scale_ups", "Scale-ups an episode"),
)
MOST_UPRIGHT = 6
"""Workloads above which their names are slanted."""

_LOG = {"j": 10.0, "late_percent": 1.0, "p95_ms": 500.0}
"""Metrics on a scale that is linear below the given value and logarithmic above."""

TICKS = (0, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
_LEAST_TICK = {"j": 2, "p95_ms": 100}

SHOWN_METRICS = ("policy", "hpa", "hpa_tuned", "keda_tuned", "rule", "rule_tuned", "hindsight_tuned")


def metrics(result: ResultFile) -> Figure:
    """Draw means by workload, with whiskers from the worst to the best run."""
    with figures.styled():
        picture = figures.figure(15.5, 13.5)
        axes = picture.subplots(3, 2)
        names = [item.name for item in result.workloads]
        labels = [row for row in result.rows if row.workload == names[0] and row.contender in SHOWN_METRICS]
        for panel, (metric, title) in zip(axes.flat, PANELS, strict=True):
            for index, like in enumerate(labels):
                rows = [_find(result, name, like.contender) for name in names]
                _group(panel, rows, metric, index, len(labels))
            crowded = len(names) > MOST_UPRIGHT
            slant = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
            panel.set_xticks(range(len(names)), [tables.title(name) for name in names], **slant)
            panel.set_title(title)
            panel.grid(axis="x", visible=False)
            if metric in _LOG:
                panel.set_yscale("symlog", linthresh=_LOG[metric])
                panel.set_yticks([tick for tick in TICKS if _LEAST_TICK.get(metric, 0) <= tick <= panel.get_ylim()[1]])
                panel.set_yticks([], minor=True)
                panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            if metric == "cost":
                _floors(panel, result)
        handles, texts = axes[0, 0].get_legend_handles_labels()
        picture.legend(handles, texts, loc="outside lower center", ncols=4, fontsize=9.5)
        first = labels[0]
        played = f"{first.runs} runs x {first.episodes} episodes"
        title = f"{result.model.name}: mean of {played}, whiskers from lowest to highest run"
        figures.headline(picture, title)
    return picture


def _find(result: ResultFile, workload: str, contender: str) -> Row:
    return next(row for row in result.rows if (row.workload, row.contender) == (workload, contender))


def _group(panel: Any, rows: list[Row], metric: str, index: int, count: int) -> None:
    width = 0.82 / count
    places = np.arange(len(rows)) - 0.41 + width * (index + 0.5)
    items = [row.metrics[metric] for row in rows]
    mean = np.array([item.mean for item in items])
    whiskers = np.array([[item.mean - item.min for item in items], [item.max - item.mean for item in items]])
    row = rows[0]
    panel.bar(
        places,
        mean,
        width * 0.92,
        color=figures.colour(row.contender, row.role),
        label=row.label,
        alpha=1.0 if row.role == "policy" else 0.8,
    )
    panel.errorbar(places, mean, np.maximum(whiskers, 0), fmt="none", ecolor="#33373c", elinewidth=1, capsize=2)


def _floors(panel: Any, result: ResultFile) -> None:
    for place, workload in enumerate(result.workloads):
        panel.plot([place - 0.43, place + 0.43], [workload.cost_floor] * 2, color=figures.LATE, lw=1.6, ls="--")
    panel.plot([], [], color=figures.LATE, ls="--", label="physical floor")
    panel.legend(handles=panel.lines[-1:], loc="upper right", fontsize=8.5)
