"""Report of an end-to-end run: a table of its runs, `comparison.png` and `traffic.png`."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from rich.table import Table

from rlscaler_dev.demo.plot import STYLE
from rlscaler_dev.demo.timeline import Timeline
from rlscaler_dev.e2e.settings import Play
from rlscaler_dev.e2e.traffic import Stretch
from rlscaler_dev.plot import BLUE, GREEN, INK, MUTED, ORANGE, RED, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


NAMES = {"rl": "rlscaler", "hpa": "HPA"}
COLOURS = {"rl": BLUE, "hpa": ORANGE}

TITLE = "The same requests on a real node: late or failed, p95, and pods ready (thick) and asked for (thin)"
TITLE_CHARACTERS_PER_INCH = 9.0
LEGEND_INCHES = 0.3


def compare(plays: list[Play], out: Path) -> Path | None:
    """One column a pattern: load, p95, GPU and CPU replicas of each contender. None without runs."""
    if not plays:
        return None
    path = out / "comparison.png"
    width = 1.5 + 4 * len({play.pattern for play in plays})
    with picture(path, (width, 9), 120, STYLE) as figure:
        draw_comparison(figure, plays, out)
    return path


def draw_comparison(figure: Figure, plays: list[Play], out: Path) -> None:
    """Draw the timelines below `out`. The title takes as many lines as the width asks for; the legend is below."""
    patterns = list(dict.fromkeys(play.pattern for play in plays))
    grid = figure.subplots(4, len(patterns), sharex="col", squeeze=False)
    for column, pattern in zip(grid.T, patterns, strict=True):
        for number, play in enumerate(play for play in plays if play.pattern == pattern):
            _column(column, play, Timeline.read(out / play.name / "timeline.csv"), first=number == 0)
        column[0].set_title(pattern, loc="left", fontweight="bold")
        column[-1].set_xlabel("seconds")
    labels = ("requests/s: all (black),\nlate or failed", "p95 latency (ms)", "GPU pods", "CPU pods")
    for axes, label in zip(grid[:, 0], labels, strict=True):
        axes.set_ylabel(label)
    handles, names = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="lower center", ncols=len(names))
    lines = wrap(TITLE, int(TITLE_CHARACTERS_PER_INCH * figure.get_figwidth()))
    figure.suptitle("\n".join(lines), x=0.02, ha="left", fontweight="bold")
    figure.tight_layout(rect=(0, LEGEND_INCHES / figure.get_figheight(), 1, 1))


def _column(column: Any, play: Play, timeline: Timeline, first: bool) -> None:
    name, colour = NAMES[play.contender], COLOURS[play.contender]
    load, latency, gpu, cpu = column
    if first:
        load.plot(timeline.t, timeline.offered_rps, color=INK, linewidth=1.4, label="all requests")
    load.plot(timeline.t, timeline.failed + timeline.late, color=colour, linewidth=1.0, label=name)
    latency.plot(timeline.t, timeline.p95_ms, color=colour, linewidth=1.2)
    latency.axhline(1000, color=RED, linewidth=0.8, linestyle=(0, (5, 3)))
    latency.set_yscale("log")
    for axes, pool in ((gpu, "gpu"), (cpu, "cpu")):
        ready = getattr(timeline, f"{pool}_ready")
        axes.step(timeline.t, ready, where="post", color=colour, linewidth=1.6)
        axes.step(timeline.t, getattr(timeline, f"{pool}_spec"), where="post", color=colour, linewidth=0.7, alpha=0.6)
        axes.set_ylim(bottom=0)


def draw_traffic(stretches: dict[str, list[Stretch]], out: Path) -> Path | None:
    """Share of the requests that GPU replicas answered, against the HTTPRoute's weight for them, a point a stretch."""
    points = {name: points for name, points in stretches.items() if points}
    if not points:
        return None
    path = out / "traffic.png"
    with picture(path, (6, 5.5), 120, STYLE) as figure:
        _scatter(figure.subplots(), points)
        figure.tight_layout()
    return path


def _scatter(axes: Axes, points: dict[str, list[Stretch]]) -> None:
    axes.plot([0, 100], [0, 100], color=MUTED, linewidth=0.8)
    for name, stretches in points.items():
        sizes = [6 + (s.gpu + s.cpu) / 20 for s in stretches]
        colour = GREEN if name == "lifecycle" else COLOURS[name.partition("-")[0]]
        weights = [100 * stretch.gpu_weight for stretch in stretches]
        shares = [100 * stretch.gpu_share for stretch in stretches]
        axes.scatter(weights, shares, sizes, color=colour, alpha=0.55, edgecolors="none")
    axes.set_xlabel("weight of the GPU backend in the HTTPRoute (%)")
    axes.set_ylabel("requests that GPU pods answered (%)")
    axes.set_title("Every stretch of constant weights, by its requests", loc="left", fontsize=11)


COLUMNS = {
    "requests": ("requests", "{:,}"),
    "late or failed": ("slo_violation_ratio", "{:.1%}"),
    "failed": ("failures", "{:,}"),
    "p50 ms": ("p50_ms", "{:,.0f}"),
    "p95 ms": ("p95_ms", "{:,.0f}"),
    "GPU pod-s": ("gpu_replica_seconds", "{:,.0f}"),
    "CPU pod-s": ("cpu_replica_seconds", "{:,.0f}"),
    "cost": ("cost", "{:.3f}"),
    "up/down": ("scale_ups", "{:d}"),
}
"""Title -> key of the summary and how it is shown."""


def tables(summary: dict[str, Any]) -> list[Table]:
    """One for each kind of part that was done."""
    drawn = [
        _runs(summary["runs"]) if summary["runs"] else None,
        _sizes(summary["sizes"]) if summary["sizes"] else None,
    ]
    return [picture for picture in drawn if picture is not None]


def _sizes(sizes: dict[str, Any]) -> Table:
    """Return one row for each pod that was resized: the limits of its container's cgroup before and after."""
    shown = Table(box=None, padding=(0, 2))
    for title in ("resized", "pod", "cores before", "cores", "MiB before", "MiB", "patch to cgroup (s)", "restarts"):
        shown.add_column(title, justify="left" if title in ("resized", "pod") else "right")
    rows = [(what, pod) for what, pods in sizes.items() for pod in (pods if isinstance(pods, list) else [pods])]
    for what, pod in rows:
        pairs = [(pod[when]["cores"], pod[when]["memory_mib"]) for when in ("cgroup_at_first", "cgroup")]
        amounts = [_cell(pair[of], "{:g}") for of in (0, 1) for pair in pairs]
        seconds = _cell(pod["patch_to_cgroup_seconds"], "{:.2f}")
        shown.add_row(what.replace("_", " "), pod["pod"], *amounts, seconds, f"{pod['restarts']}")
    return shown


def _cell(value: Any, text: str) -> str:
    return "-" if value is None else text.format(value)


def _runs(runs: list[dict[str, Any]]) -> Table:
    """One row a run."""
    shown = Table(box=None, padding=(0, 2))
    for title in ("pattern", "contender", *COLUMNS):
        shown.add_column(title, justify="left" if title in ("pattern", "contender") else "right")
    for run in runs:
        cells = [_cell(run[key], text) for key, text in COLUMNS.values()]
        cells[-1] = f"{run['scale_ups']}/{run['scale_downs']}"
        shown.add_row(run["pattern"], run["contender"], *cells)
    return shown
