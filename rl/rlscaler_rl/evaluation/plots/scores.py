"""J of all contenders with its interval by workload, and the front of cost and late requests."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from rlscaler_rl.evaluation.board import ALL
from rlscaler_rl.evaluation.plots.overview import title_of
from rlscaler_rl.evaluation.report import tables
from rlscaler_rl.evaluation.schema import ResultFile, Row, Workload
from rlscaler_rl.results import figures

ABREAST = 3
_PLAIN = FuncFormatter(lambda value, _: f"{value:g}")


def ladders(result: ResultFile) -> Figure:
    """Draw J of all contenders with its interval, a panel for each workload, the mean first."""
    names = [ALL, *(item.name for item in result.workloads)]
    tall = max(sum(row.workload == name for row in result.rows) for name in names)
    with figures.styled():
        picture, panels = _grid(len(names), 0.2 * tall + 1.0)
        for panel, name in zip(panels, names, strict=True):
            _ladder(panel, [row for row in result.rows if row.workload == name], name)
        figures.headline(picture, title_of(result))
        handles = [
            Line2D([], [], color=figures.VERDICTS[verdict], lw=3, label=text)
            for verdict, text in (
                ("loss", "beats the policy"),
                ("undecided", "undecided"),
                ("win", "beaten by the policy"),
            )
        ]
        picture.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=9)
    return picture


def fronts(result: ResultFile) -> Figure:
    """Draw cost of all contenders against late requests, a panel for each workload."""
    with figures.styled():
        picture, panels = _grid(len(result.workloads), 4.3)
        for panel, workload in zip(panels, result.workloads, strict=True):
            _front(panel, [row for row in result.rows if row.workload == workload.name], workload)
        figures.headline(picture, "Cost-late front: down and left is better, dotted lines have equal J")
        _front_legend(picture, [row for row in result.rows if row.workload == result.workloads[0].name])
    return picture


def _grid(count: int, height: float) -> tuple[Figure, list[Any]]:
    across = 2 if count == 4 else min(count, ABREAST)
    down = -(-count // across)
    picture = figures.figure(5.3 * across, height * down + 1.4)
    panels = picture.subplots(down, across, squeeze=False).ravel()
    for unused in panels[count:]:
        unused.set_axis_off()
    return picture, list(panels[:count])


def _ladder(axes: Any, rows: list[Row], name: str) -> None:
    """Draw contenders from best to worst; red ones beat the policy, grey ones are undecided."""
    ranked = sorted(rows, key=lambda row: row.metrics["j"].mean, reverse=True)
    policy = next(row.metrics["j"].mean for row in ranked if row.role == "policy")
    axes.axvline(policy, color=figures.COLOURS["policy"], lw=1.2, alpha=0.5, zorder=1)
    for height, row in enumerate(ranked):
        j = row.metrics["j"]
        verdict = row.difference.verdict if row.difference else None
        tint = figures.COLOURS["policy"] if verdict is None else figures.VERDICTS[verdict]
        axes.plot([j.low, j.high], [height, height], color=tint, lw=2.6, alpha=0.55, solid_capstyle="round")
        size = 11 if row.role == "reference" else 7
        axes.plot(j.mean, height, figures.MARKERS[row.role], color=tint, ms=size, mec="white", mew=0.7)
        axes.annotate(
            f"{j.mean:.2f}",
            (j.high, height),
            (5, 0),
            textcoords="offset points",
            va="center",
            fontsize=7.5,
            color="#4a4f55",
        )
    axes.set_yticks(range(len(ranked)), [row.label for row in ranked])
    for tick, row in zip(axes.get_yticklabels(), ranked, strict=True):
        tick.set_fontweight("bold" if row.role == "policy" else "normal")
        tick.set_color(figures.COLOURS["policy"] if row.role == "policy" else "#33373c")
        tick.set_fontstyle("italic" if row.role in ("control", "reference") else "normal")
        tick.set_fontsize(8.5)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5, 7)))
    axes.xaxis.set_major_formatter(_PLAIN)
    axes.xaxis.set_minor_formatter(NullFormatter())
    low, high = axes.get_xlim()
    axes.set_xlim(low * 0.96, high * 1.18)
    axes.grid(axis="y", visible=False)
    axes.set_title(tables.title(name))
    axes.set_xlabel("J = cost + 0.5 x late %, log scale")


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
