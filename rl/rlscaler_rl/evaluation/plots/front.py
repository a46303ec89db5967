"""The front of cost and late requests, a panel for each workload."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter

from rlscaler_rl.evaluation.report import tables
from rlscaler_rl.evaluation.schema import ResultFile, Row, Workload
from rlscaler_rl.results import figures

ABREAST = 3
_PLAIN = FuncFormatter(lambda value, _: f"{value:g}")


def fronts(result: ResultFile) -> Figure:
    """Draw cost of all contenders against late requests, a panel for each workload."""
    count = len(result.workloads)
    across = 2 if count == 4 else min(count, ABREAST)
    down = -(-count // across)
    with figures.styled():
        picture = figures.figure(5.3 * across, 4.3 * down + 1.4)
        panels = picture.subplots(down, across, squeeze=False).ravel()
        for unused in panels[count:]:
            unused.set_axis_off()
        for panel, workload in zip(panels[:count], result.workloads, strict=True):
            _front(panel, [row for row in result.rows if row.workload == workload.name], workload)
        figures.headline(picture, "Cost-late front: down and left is better, dotted lines have equal J")
        _front_legend(picture, [row for row in result.rows if row.workload == result.workloads[0].name])
    return picture


def _front(axes: Any, rows: list[Row], workload: Workload) -> None:
    """Draw cost and lateness of every contender; the line joins HPA's targets, the grey area is below the floor."""
    points = {row.contender: (row.metrics["cost"].mean, row.metrics["late_percent"].mean) for row in rows}
    floor = max(workload.cost_floor, workload.minimum_cost)
    right = max(cost for cost, _ in points.values()) * 1.08
    axes.axvspan(0, floor, color="#eceef0", zorder=0)
    axes.annotate(
        "physical floor",
        (floor, 0.5),
        (-4, 0),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        rotation=90,
        ha="right",
        va="center",
        fontsize=7.5,
        color="#8a929c",
    )
    _equal_scores(axes, points, right)
    hpa = sorted(points[row.contender] for row in rows if row.contender == "hpa" or row.role == "sweep")
    if len(hpa) > 1:
        axes.plot(*zip(*hpa, strict=True), "-", color=figures.SWEEP, lw=1.4, zorder=2)
    for row in rows:
        mark = figures.MARKERS[row.role]
        small = row.role == "sweep"
        size = {"reference": 13, "sweep": 4, "policy": 9}.get(row.role, 7.5)
        axes.plot(
            *points[row.contender],
            mark,
            ms=size,
            color=figures.colour(row.contender, row.role),
            mec="white",
            mew=0.3 if small else 0.8,
            zorder=5 if row.role == "policy" else 4,
        )
    axes.set_yscale("symlog", linthresh=1.0, linscale=0.6)
    axes.set_ylim(-0.08, 100)
    axes.set_yticks([0, 0.5, 1, 2, 5, 10, 20, 50, 100])
    axes.yaxis.set_major_formatter(_PLAIN)
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(max(floor - 1.0, 0), right)
    axes.set_title(tables.title(workload.name))
    axes.set_xlabel("cost, GPU replica equivalents")
    axes.set_ylabel("late requests, %")


def _equal_scores(axes: Any, points: dict[str, tuple[float, float]], right: float) -> None:
    """Draw faint lines of equal J."""
    late = np.concatenate([np.linspace(0, 1, 20), np.geomspace(1, 100, 60)])
    for j in (4, 6, 8, 10, 15, 20, 30, 40):
        cost = j - 0.5 * late
        keep = (cost > 0) & (cost < right)
        if keep.any():
            axes.plot(cost[keep], late[keep], ":", color="#c3c8ce", lw=0.9, zorder=1)
            if j < right:
                axes.annotate(
                    f"J {j}", (j, 0), (0, 2), textcoords="offset points", fontsize=6.5, color="#9aa0a6", ha="center"
                )


def _front_legend(picture: Figure, rows: list[Row]) -> None:
    shown = [row for row in rows if row.role != "sweep"]
    handles = [
        Line2D(
            [],
            [],
            ls="",
            marker=figures.MARKERS[row.role],
            color=figures.colour(row.contender, row.role),
            mec="white",
            ms=8,
            label=row.label,
        )
        for row in shown
    ]
    if len(shown) < len(rows):
        handles.append(Line2D([], [], color=figures.SWEEP, marker="o", ms=4, label="HPA, other targets"))
    picture.legend(handles=handles, loc="outside lower center", ncols=5, fontsize=8.5)
