"""Five qualities on a radar for each workload; every axis is relative to the best contender shown."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from rlscaler_rl.evaluation.report import tables
from rlscaler_rl.evaluation.schema import ResultFile, Row
from rlscaler_rl.results import figures

MOST_ABREAST = 4
AXES = ("latency", "throughput", "efficiency", "stability", "SLO")
SHOWN = ("policy", "hpa", "hpa_tuned", "rule", "rule_tuned", "keda", "keda_tuned", "hindsight", "hindsight_tuned")
MOST_OUTLINES = 5


def qualities(rows: Sequence[Row]) -> dict[str, np.ndarray]:
    """Return five values in 0-1 by contender, 1 the best of `rows`.

    They are best p95 / p95, goodput / best, best cost / cost, (fewest changes + 1) / (changes + 1), and the absolute
    share within the SLO.
    """
    mean = {row.contender: {name: summary.mean for name, summary in row.metrics.items()} for row in rows}
    p95 = min(values["p95_ms"] for values in mean.values())
    goodput = max(values["goodput_rps"] for values in mean.values())
    cost = min(values["cost"] for values in mean.values())
    fewest = min(_changes(values) for values in mean.values())
    return {
        name: np.array(
            [
                p95 / values["p95_ms"],
                values["goodput_rps"] / goodput,
                cost / values["cost"],
                (fewest + 1) / (_changes(values) + 1),
                1 - values["late_percent"] / 100,
            ]
        )
        for name, values in mean.items()
    }


def shown_of(result: ResultFile) -> list[str]:
    """Return the contenders of the radar; a tuned one stands for its default."""
    played = {row.contender for row in result.rows}
    return [name for name in SHOWN if name in played and f"{name}_tuned" not in played][:MOST_OUTLINES]


def _changes(values: dict[str, float]) -> float:
    return values["scale_ups"] + values["scale_downs"] + values["placement_changes"]


def radar(result: ResultFile) -> Figure:
    """Draw the policy, tuned HPA and rule (or their stand-ins), KEDA and hindsight on every workload."""
    shown = shown_of(result)
    with figures.styled():
        count = len(result.workloads)
        across = min(count, MOST_ABREAST)
        picture = figures.figure(max(4.4 * across, 8.0), 4.5 * -(-count // across) + 0.5)
        grid = picture.subplots(-(-count // across), across, squeeze=False, subplot_kw={"projection": "polar"})
        axes = grid.flat[:count]
        for unused in grid.flat[count:]:
            unused.set_axis_off()
        angles = np.linspace(0, 2 * np.pi, len(AXES), endpoint=False)
        for panel, workload in zip(axes, result.workloads, strict=True):
            rows = [row for row in result.rows if row.workload == workload.name and row.contender in shown]
            for row, values in zip(rows, qualities(rows).values(), strict=True):
                _outline(panel, angles, row, values)
            panel.set_theta_offset(np.pi / 2)
            panel.set_theta_direction(-1)
            panel.set_xticks(angles, AXES, fontsize=9)
            panel.tick_params(axis="x", pad=9)
            panel.set_ylim(0, 1)
            panel.set_yticks([0.25, 0.5, 0.75, 1.0], ["", "0.5", "", "1"], fontsize=7, color="#9aa0a6")
            panel.spines["polar"].set_color("#d5d9dd")
            panel.set_title(tables.title(workload.name), loc="center", pad=14)
        handles, labels = axes[0].get_legend_handles_labels()
        picture.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9)
        figures.headline(picture, "Outward is better; each axis relative to the best shown, SLO absolute", 12)
    return picture


def _outline(panel: object, angles: np.ndarray, row: Row, values: np.ndarray) -> None:
    closed = np.append(angles, angles[0]), np.append(values, values[0])
    tint = figures.colour(row.contender, row.role)
    strong = row.role == "policy"
    style = "--" if row.role == "reference" else "-"
    panel.plot(*closed, style, color=tint, lw=2.4 if strong else 1.4, label=row.label, zorder=5 if strong else 3)  # type: ignore[attr-defined]
    if strong:
        panel.fill(*closed, color=tint, alpha=0.13, zorder=2)  # type: ignore[attr-defined]
