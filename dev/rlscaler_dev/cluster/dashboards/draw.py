"""A dashboard as a picture: its panels where Grafana would put them, with their titles, lines, figures and tables."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlscaler_dev.cluster.dashboards.ask import Series, Shown
from rlscaler_dev.cluster.dashboards.model import ROW, Dashboard
from rlscaler_dev.plot import BLUE, GREEN, GRID, LOOK, MUTED, ORANGE, PURPLE, RED, SKY, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BACK = "#f4f5f7"
COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, "#8C6D31", MUTED, "#AA3377", "#B8A500")

STAT_COLOURS = {"green": GREEN, "orange": ORANGE, "red": RED, "blue": BLUE}

COLUMN_INCHES, CELL_INCHES = 0.75, 0.36
MARGIN = 0.012
MOST_IN_LEGEND = 12
LONGEST_CELL = 26
LETTERS_PER_COLUMN = 12.5
"""Letters of a legend that fit into one column of the grid."""

STYLE = LOOK | {"font.size": 8, "axes.linewidth": 0.6, "legend.fontsize": 7, "savefig.facecolor": BACK}


def draw(
    dashboard: Dashboard,
    shown: Sequence[Shown],
    chosen: Mapping[str, str],
    path: Path,
    marks: Sequence[float] = (),
) -> None:
    """Write a PNG; `chosen` are the values of the variables, for the heading, and `marks` the times of annotations."""
    rows = max(panel.box[1] + panel.box[3] for panel in dashboard.panels) + 2
    with picture(path, (24 * COLUMN_INCHES, rows * CELL_INCHES), 100, STYLE) as figure:
        choice = "   ".join(f"{name}: {'all' if value == '.+' else value}" for name, value in chosen.items())
        figure.text(MARGIN, 1 - 0.8 / rows, dashboard.title, fontsize=16, fontweight="bold", va="center")
        figure.text(1 - MARGIN, 1 - 0.8 / rows, choice, fontsize=10, color=MUTED, ha="right", va="center")
        answers = {id(panel.panel): panel for panel in shown}
        span = _span(shown)
        for panel in dashboard.panels:
            if panel.kind == ROW:
                height = 1 - (panel.box[1] + 2.5) / rows
                figure.text(MARGIN, height, panel.title, fontsize=11, fontweight="bold", va="center")
            else:
                _panel(figure, answers[id(panel)], rows, span, marks)


def _panel(figure: Figure, shown: Shown, rows: int, span: tuple[float, float], marks: Sequence[float]) -> None:
    x, y, width, height = shown.panel.box
    y += 2
    frame = figure.add_axes((x / 24 + 0.003, 1 - (y + height - 0.15) / rows, width / 24 - 0.006, (height - 0.3) / rows))
    frame.set(xticks=[], yticks=[], facecolor="white")
    frame.spines[:].set_visible(False)
    corner: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "top"}
    frame.annotate(shown.panel.title, (0, 1), xytext=(7, -6), fontsize=9, fontweight="bold", **corner)
    inner = (x / 24 + 0.026, 1 - (y + height - 1.7) / rows, width / 24 - 0.036, (height - 3.2) / rows)
    if shown.empty:
        frame.text(0.5, 0.5, "no data", ha="center", va="center", color=MUTED, transform=frame.transAxes)
    elif shown.panel.kind == "stat":
        _stat(frame, shown)
    elif shown.panel.kind == "table":
        _table(frame, shown)
    else:
        axes = figure.add_axes(inner)
        _states(axes, shown) if shown.panel.kind == "state-timeline" else _lines(axes, shown)
        for mark in marks:
            axes.axvline(mark, color=MUTED, lw=0.5, alpha=0.35, zorder=0)
        axes.set_xlim(*span)
        axes.xaxis.set_major_formatter(lambda at, _: datetime.fromtimestamp(at).strftime("%H:%M:%S"))
        axes.tick_params(labelsize=7, length=2)
        axes.locator_params(axis="x", nbins=5)


def _span(shown: Sequence[Shown]) -> tuple[float, float]:
    """The earliest and the latest time of anything that has a value other than 0: all panels show the same time."""
    moving = [
        time
        for panel in shown
        for answer in panel.answers
        for series in answer
        for time, value in zip(series.times, series.values, strict=True)
        if math.isfinite(value) and value != 0
    ]
    return (min(moving), max(moving) + 1.0) if moving else (0.0, 1.0)


def _lines(axes: Axes, shown: Shown) -> None:
    panel, series = shown.panel, [line for answer in shown.answers for line in answer if line.has_data]
    if panel.stacked:
        _stack(axes, series)
    else:
        for i, line in enumerate(series):
            # A line of one point would not be seen.
            marker = "o" if len(line.values) < 3 else None
            limit = bool(panel.limits and re.fullmatch(panel.limits, line.name))
            colour, style = (RED, "--") if limit else (COLOURS[i % len(COLOURS)], "-")
            axes.plot(line.times, line.values, color=colour, ls=style, lw=1.4, label=line.name, marker=marker)
    axes.set_ylim(bottom=panel.lowest, top=panel.highest)
    axes.yaxis.set_major_formatter(lambda value, _: written(value, panel.unit))
    longest = max((len(line.name) for line in series), default=0)
    columns = min(max(int(panel.box[2] * LETTERS_PER_COLUMN / (longest + 6)), 1), 5)
    axes.legend(
        *(part[:MOST_IN_LEGEND] for part in axes.get_legend_handles_labels()),
        loc="upper left", bbox_to_anchor=(-0.02, -0.1), ncols=columns, handlelength=1.2, columnspacing=1,
    )  # fmt: skip


def _stack(axes: Axes, series: Sequence[Series]) -> None:
    times = sorted({time for line in series for time in line.times})
    heights = []
    for line in series:
        known = dict(zip(line.times, line.values, strict=True))
        heights.append([value if math.isfinite(value := known.get(time, 0.0)) else 0.0 for time in times])
    colours = [COLOURS[i % len(COLOURS)] for i in range(len(series))]
    axes.stackplot(times, heights, labels=[line.name for line in series], colors=colours, alpha=0.8)


def _states(axes: Axes, shown: Shown) -> None:
    series = [line for answer in shown.answers for line in answer]
    for i, line in enumerate(series):
        step = min((b - a for a, b in zip(line.times, line.times[1:], strict=False)), default=1.0)
        bars = [(time, step) for time, value in zip(line.times, line.values, strict=True) if value == 1]
        axes.broken_barh(bars, (i - 0.35, 0.7), color=COLOURS[0])
    axes.set_yticks(range(len(series)), [line.name for line in series])
    axes.set_ylim(len(series) - 0.5, -0.5)
    position, room = axes.get_position(), 0.0032 * max(len(line.name) for line in series)
    axes.set_position((position.x0 + room, position.y0, position.width - room, position.height))


def _stat(frame: Axes, shown: Shown) -> None:
    line = next(line for answer in shown.answers for line in answer if line.has_data)
    value = line.values[-1]
    text = line.name or shown.panel.texts.get(f"{value:g}") or written(value, shown.panel.unit)
    colour = STAT_COLOURS.get(shown.panel.colour(value), COLOURS[0])
    frame.text(0.5, 0.42, text, ha="center", va="center", fontsize=20, color=colour, transform=frame.transAxes)


def _table(frame: Axes, shown: Shown) -> None:
    from matplotlib.transforms import Bbox

    rows = [line.labels for answer in shown.answers for line in answer]
    names = shown.panel.columns
    cells = [[_short(row.get(name, "")) for name in names] for row in rows]
    height = min(0.8, (len(rows) + 1) / shown.panel.box[3])
    box = Bbox.from_bounds(0.012, 0.84 - height, 0.976, height)
    table = frame.table(cells, colLabels=names, cellLoc="left", edges="horizontal", bbox=box)
    table.auto_set_font_size(False)
    table.set_fontsize(8)
    for (row, _), cell in table.get_celld().items():
        cell.set_edgecolor(GRID)
        if row == 0:
            cell.set_text_props(color=MUTED)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_CELL else text[: LONGEST_CELL - 1] + "…"


def written(value: float, unit: str) -> str:
    """A number in one of Grafana's units."""
    if unit == "percentunit":
        return f"{100 * value:.4g} %"
    if unit == "bytes":
        return f"{value / 2**20:.3g} MiB"
    suffix = {"percent": " %", "ms": " ms", "s": " s", "reqps": " /s", "ops": " /s"}.get(unit, "")
    return f"{value:.4g}{suffix}"
