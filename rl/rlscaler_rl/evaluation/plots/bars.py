"""Bars by workload: the metrics with their spread over the runs, and the improvement over default HPA."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from rlscaler_rl.evaluation.board import ALL
from rlscaler_rl.evaluation.plots import look
from rlscaler_rl.evaluation.report import tables
from rlscaler_rl.evaluation.schema import ResultFile, Row
from rlscaler_rl.simulation.objectives import WEIGHTS

PANELS = (
    ("j", "Score J (lower is better)"),
    ("cost", "Cost, GPU replica equivalents"),
    ("late_percent", "Late requests, %"),
    ("goodput_rps", "Goodput, requests/s in time"),
    ("p95_ms", "p95 latency, ms"),
    ("scale_ups", "Scale-ups an episode"),
)
MOST_UPRIGHT = 6
"""More workloads than that have slanted names."""

_LOG = {"j": 10.0, "late_percent": 1.0, "p95_ms": 500.0}
"""Metrics on a scale that is linear below the given value and logarithmic above."""

TICKS = (0, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
_LEAST_TICK = {"j": 2, "p95_ms": 100}

SHOWN_METRICS = ("policy", "hpa", "hpa_tuned", "keda_tuned", "rule", "rule_tuned", "hindsight_tuned")

SHOWN_IMPROVEMENT = ("policy", "hpa_tuned", "rule_tuned", "keda_tuned", "keda", "rule", "hindsight")
MOST_IMPROVEMENT = 5
LINEAR_PERCENT = 50.0
"""Up to here the scale is linear, then logarithmic: a p95 at the timeout is -1000 % and more."""

PERCENT_TICKS = (-10_000, -1000, -100, -50, 0, 50, 100, 1000)


def metrics(result: ResultFile) -> Figure:
    """Mean per workload; whiskers from the worst to the best run."""
    with look.styled():
        made = look.figure(15.5, 13.5)
        axes = made.subplots(3, 2)
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
        made.legend(handles, texts, loc="outside lower center", ncols=len(labels), fontsize=9.5)
        first = labels[0]
        played = f"{first.runs} runs x {first.episodes} episodes"
        title = f"{result.model.name}: mean of {played}, whiskers from lowest to highest run"
        look.headline(made, title)
    return made


def _find(result: ResultFile, workload: str, contender: str) -> Row:
    return next(row for row in result.rows if (row.workload, row.contender) == (workload, contender))


def _group(panel: Any, rows: list[Row], metric: str, index: int, count: int) -> None:
    width = 0.82 / count
    places = np.arange(len(rows)) - 0.41 + width * (index + 0.5)
    found = [row.metrics[metric] for row in rows]
    mean = np.array([item.mean for item in found])
    whiskers = np.array([[item.mean - item.min for item in found], [item.max - item.mean for item in found]])
    row = rows[0]
    panel.bar(
        places,
        mean,
        width * 0.92,
        color=look.colour(row.contender, row.role),
        label=row.label,
        alpha=1.0 if row.role == "policy" else 0.8,
    )
    panel.errorbar(places, mean, np.maximum(whiskers, 0), fmt="none", ecolor="#33373c", elinewidth=1, capsize=2)


def _floors(panel: Any, result: ResultFile) -> None:
    for place, workload in enumerate(result.workloads):
        panel.plot([place - 0.43, place + 0.43], [workload.cost_floor] * 2, color=look.LATE, lw=1.6, ls="--")
    panel.plot([], [], color=look.LATE, ls="--", label="physical floor")
    panel.legend(handles=panel.lines[-1:], loc="upper right", fontsize=8.5)


def improvement(result: ResultFile) -> Figure:
    """Latency, throughput, efficiency, stability and their weighted sum, one panel each."""
    parts = [*WEIGHTS, "weighted"]
    places = [item.name for item in result.workloads] + [ALL]
    cells = {(row.workload, row.contender): row for row in result.rows}
    shown = [name for name in SHOWN_IMPROVEMENT if (ALL, name) in cells][:MOST_IMPROVEMENT]
    with look.styled():
        made = look.figure(15.5, 11.5)
        panels = made.subplots(len(parts), 1, sharex=True)
        for panel, part in zip(panels, parts, strict=True):
            for index, name in enumerate(shown):
                found = [cells[place, name].improvement for place in places]
                width = 0.82 / len(shown)
                row = cells[ALL, name]
                panel.bar(
                    np.arange(len(places)) - 0.41 + width * (index + 0.5),
                    [np.nan if item is None else item[part] for item in found],
                    width * 0.92,
                    color=look.colour(name, row.role),
                    alpha=1.0 if row.role == "policy" else 0.75,
                    label=row.label,
                )
            panel.axhline(0, color="#33373c", lw=1)
            panel.set_yscale("symlog", linthresh=LINEAR_PERCENT)
            low, high = panel.get_ylim()
            panel.set_yticks([tick for tick in PERCENT_TICKS if low <= tick <= high])
            panel.set_yticks([], minor=True)
            panel.set_ylim(min(low, -LINEAR_PERCENT), max(high, LINEAR_PERCENT))
            panel.yaxis.set_major_formatter(lambda value, _: f"{value:+g}" if value else "0")
            weight = f", weight {WEIGHTS[part]:g}" if part in WEIGHTS else " sum"
            panel.set_title(f"{part.capitalize()}{weight}")
            panel.set_ylabel("%")
            panel.grid(axis="x", visible=False)
        panels[-1].set_xticks(range(len(places)), [tables.title(place) for place in places], fontsize=8.5)
        handles, labels = panels[0].get_legend_handles_labels()
        made.legend(handles, labels, loc="outside lower center", ncols=len(shown), fontsize=9.5)
        look.headline(
            made, "Improvement over default HPA, %: above 0 better, nothing clipped (linear to 50, then logarithmic)"
        )
    return made
