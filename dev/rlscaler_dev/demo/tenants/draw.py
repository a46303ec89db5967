"""The picture of the contenders side by side: GPUs by tenant, guarantees as lines, and the late share of each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rlscaler_dev.demo.tenants.plan import GPUS, TENANTS, Tenant
from rlscaler_dev.demo.tenants.results import HELD, PENDING, SPEC, Figures, Played
from rlscaler_dev.plot import BLUE, GREEN, INK, LOOK, MUTED, ORANGE, PURPLE, RED, SKY, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, "#B8A400", MUTED)
STYLE = LOOK | {"font.size": 9, "axes.linewidth": 0.8, "grid.linewidth": 0.6, "legend.fontsize": 8.5}
INCHES_EACH = 4.3
NAMES, LEGENDS = 1.25, 1.55
"""Inches left of the columns, for the longest name of a tenant, and right of them."""
HEIGHT = 14.5


def draw(played: list[Played], found: list[Figures], path: Path) -> None:
    """Draw one column for each contender into a PNG."""
    columns, rows = len(played), 2 + len(TENANTS)
    width = NAMES + INCHES_EACH * columns + LEGENDS
    with picture(path, (width, HEIGHT), 110, STYLE) as figure:
        grid = figure.subplots(
            rows, columns, squeeze=False, gridspec_kw={"height_ratios": [3.2, *([0.9] * len(TENANTS)), 2.4]}
        )
        for number, (one, figures) in enumerate(zip(played, found, strict=True)):
            column = grid[:, number]
            _stacked(column[0], one, figures)
            for axes, tenant, colour in zip(column[1:-1], TENANTS, COLOURS, strict=True):
                _strip(axes, one, tenant, colour, first=number == 0)
            _late(column[-1], figures, found)
            column[-2].set_xlabel("time since the loads began (s)")
        grid[0, -1].legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), handlelength=1.4)
        grid[1, -1].legend(loc="upper left", bbox_to_anchor=(1.01, 1.05), handlelength=1.4)
        grid[0, 0].set_ylabel("GPUs held")
        grid[-1, 0].set_ylabel("late requests (%)")
        text = f"{len(TENANTS)} services in three namespaces share {GPUS} GPUs"
        left = NAMES / width
        figure.suptitle(text, x=left, y=0.985, ha="left", fontsize=14, fontweight="bold")
        figure.subplots_adjust(left=left, right=1 - LEGENDS / width, top=0.935, bottom=0.07)


def _stacked(axes: Axes, played: Played, figures: Figures) -> None:
    held = np.array([played.replicas[tenant.name][:, HELD] for tenant in TENANTS])
    waiting = sum(played.replicas[tenant.name][:, PENDING] for tenant in TENANTS)
    names = [tenant.name for tenant in TENANTS]
    axes.stackplot(played.seconds, held, colors=COLOURS, labels=names, alpha=0.85, step="post")
    top = held.sum(axis=0)
    axes.fill_between(
        played.seconds,
        top,
        top + waiting,
        step="post",
        facecolor="none",
        edgecolor=INK,
        hatch="////",
        linewidth=0,
        label="pods that wait",
    )
    axes.axhline(GPUS, color=INK, linewidth=1.2, label="all GPUs")
    axes.set_ylim(0, 1.6 * GPUS)
    axes.set_xlim(played.seconds[0], played.seconds[-1])
    axes.set_title(
        f"{figures.title}\nJ {figures.cost:.1f}, {figures.late_percent:.1f} % late, {figures.held_percent:.0f} % held",
        loc="left",
        fontsize=10,
    )
    axes.tick_params(labelbottom=False)


def _strip(axes: Axes, played: Played, tenant: Tenant, colour: str, first: bool) -> None:
    rows = played.replicas[tenant.name]
    axes.fill_between(played.seconds, rows[:, HELD], step="post", color=colour, alpha=0.6, linewidth=0, label="held")
    axes.step(played.seconds, rows[:, SPEC], where="post", color=INK, linewidth=0.9, label="asked for")
    axes.axhline(tenant.guaranteed, color=RED, linewidth=1.1, linestyle=(0, (4, 2)), label="guarantee")
    axes.set_ylim(0, 8.5)
    axes.set_yticks([0, 4, 8])
    axes.set_xlim(played.seconds[0], played.seconds[-1])
    axes.tick_params(labelbottom=tenant is TENANTS[-1])
    if first:
        axes.set_ylabel(tenant.name, rotation=0, ha="right", va="center", fontsize=8)


def _late(axes: Axes, figures: Figures, contenders: list[Figures]) -> None:
    late = [figures.tenants[tenant.name].late_percent for tenant in TENANTS]
    axes.bar(range(len(TENANTS)), late, color=COLOURS, alpha=0.85)
    for place, value in enumerate(late):
        axes.text(place, value, f"{value:.1f}", ha="center", va="bottom", fontsize=8)
    most = max(tenant.late_percent for each in contenders for tenant in each.tenants.values())
    axes.set_ylim(0, max(1.0, 1.15 * most))
    axes.set_xticks(range(len(TENANTS)), [tenant.name for tenant in TENANTS], rotation=35, ha="right", fontsize=8)
    axes.grid(axis="x", visible=False)
