"""Difference in J of the policy from its main rivals, with intervals, workload by workload."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from rlscaler_rl.evaluation.board import ALL
from rlscaler_rl.evaluation.gate import BEGIN
from rlscaler_rl.evaluation.report import firstpage, tables
from rlscaler_rl.evaluation.schema import Difference, ResultFile
from rlscaler_rl.results import figures

WIDEST_PERCENT = 100.0
"""Percent beyond which a difference is drawn at the edge."""


def overview(result: ResultFile) -> Figure:
    """Draw a panel for each rival, losses on top; the last panel is the closed share of the distance to hindsight."""
    rivals = firstpage.rivals_of(result)
    listed = firstpage.losses_first(result)
    labels = {row.contender: row.label for row in result.rows}
    cells = {(row.workload, row.contender): row.difference for row in result.rows}
    with figures.styled():
        picture = figures.figure(3.9 * (len(rivals) + 1) + 1.2, 0.42 * len(listed) + 2.2)
        panels = picture.subplots(1, len(rivals) + 1, sharey=True, squeeze=False)[0]
        for panel, rival in zip(panels, rivals, strict=False):
            _differences(panel, labels[rival], [cells.get((name, rival)) for name in listed])
        _closed(panels[-1], result, listed)
        panels[0].set_yticks(range(len(listed)), [_name(result, name) for name in listed])
        panels[0].set_ylim(len(listed) - 0.5, -0.6)
        for tick, name in zip(panels[0].get_yticklabels(), listed, strict=True):
            tick.set_fontweight("bold" if name == ALL else "normal")
        figures.headline(picture, title_of(result))
    return picture


def _name(result: ResultFile, workload: str) -> str:
    smooth = any(row.workload == workload and row.smooth for row in result.gate.rows)
    apart = any(item.name == workload and item.kind == "extra" for item in result.workloads)
    return tables.title(workload) + (" (smooth)" if smooth else "") + (" (apart)" if apart else "")


def _differences(axes: Any, label: str, items: list[Difference | None]) -> None:
    known = [item for item in items if item is not None]
    reach = max((max(abs(item.low_percent), abs(item.high_percent)) for item in known), default=10.0)
    reach = min(1.12 * max(reach, 10.0), WIDEST_PERCENT)
    axes.axvspan(0, reach, color="#fdf0f1", zorder=0)
    axes.axvline(0, color="#33373c", lw=1)
    for height, item in enumerate(items):
        if item is None:
            continue
        tint = figures.VERDICTS[item.verdict]
        low, high, mean = (
            np.clip(value, -reach, reach) for value in (item.low_percent, item.high_percent, item.percent)
        )
        axes.plot([low, high], [height, height], color=tint, lw=2.6, alpha=0.6, solid_capstyle="round")
        axes.plot(mean, height, "o" if abs(item.percent) < reach else ("<" if mean < 0 else ">"), color=tint, ms=6)
        right = mean < 0
        axes.annotate(
            f"{item.percent:+.0f} %",
            (reach if right else -reach, height),
            (-2 if right else 2, 0),
            textcoords="offset points",
            ha="right" if right else "left",
            va="center",
            fontsize=8,
            color=tint,
        )
    axes.set_xlim(-reach, reach)
    axes.set_title(f"against {label}")
    axes.set_xlabel("J, % of theirs: left better, right worse")
    axes.grid(axis="y", visible=False)


def _closed(axes: Any, result: ResultFile, listed: list[str]) -> None:
    shares = {item.workload: item for item in result.closed}
    for height, name in enumerate(listed):
        item = shares.get(name)
        if item is None or item.percent is None or item.low is None or item.high is None:
            axes.annotate("no distance shown", (0, height), ha="left", va="center", fontsize=8, color="#8a929c")
            continue
        tint = figures.COLOURS["policy"] if item.percent > 0 else figures.LATE
        share = float(np.clip(item.percent, -100, 125))
        axes.barh(height, share, 0.62, color=tint, alpha=0.75)
        axes.plot(np.clip([item.low, item.high], -100, 125), [height, height], color="#33373c", lw=1)
        axes.annotate(
            f"{item.percent:.0f} %",
            (178, height),
            ha="right",
            va="center",
            fontsize=8,
            color="#4a4f55",
        )
    axes.axvline(0, color="#33373c", lw=1)
    axes.axvline(100, color="#111111", lw=1, ls="--")
    axes.set_xlim(-105, 180)
    axes.set_xticks([-100, -50, 0, 50, 100])
    axes.set_title("distance closed")
    begin = "tuned HPA" if result.closed and result.closed[0].begin == BEGIN[0] else "default HPA"
    axes.set_xlabel(f"%: 0 is the {begin}, 100 the hindsight rule")
    axes.grid(axis="y", visible=False)


def title_of(result: ResultFile) -> str:
    """Return model, size and validity of the run as a headline."""
    first = result.rows[0]
    state = "" if result.valid else "   INVALID RUN"
    return f"{result.model.name}: {first.runs} runs x {first.episodes} episodes, 95 % paired bootstrap{state}"
