"""The picture of one run: load, latency against the SLO, replicas of both pools, placement.

Alternatives that could have scaled the load are drawn as lines over the run's own areas.

Ready and desired differ in form as well as in colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlscaler_dev.demo.beside import Beside
from rlscaler_dev.demo.records import Float
from rlscaler_dev.demo.timeline import Timeline
from rlscaler_dev.plot import BLUE, GREEN, INK, LOOK, MUTED, ORANGE, PURPLE, RED, SKY, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LATE = "#F2B391"
POOL_COLOURS = {"gpu": BLUE, "cpu": ORANGE}
PLACEMENT_LABELS = ("prefer GPU", "balanced", "prefer CPU")
SMOOTHING_SECONDS = 5
"""Percentiles are shown as medians over this many seconds: a second holds few requests."""
LATENCY_FLOOR_MS = 20.0
LATENCY_TICKS_MS = (20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
NARROWEST_LABEL = 0.085
"""Stretches of one placement shorter than this share of the run carry no label."""

LEFT = 0.075
"""Where titles and axes begin, as a share of the width."""

BESIDE_STYLES: tuple[dict[str, Any], ...] = (
    {"color": GREEN, "linewidth": 1.6, "linestyle": (0, (4, 2))},
    {"color": PURPLE, "linewidth": 2.0, "linestyle": (0, (1, 1.2))},
)
"""Styles of the alternatives' lines, in order."""

STYLE = LOOK | {
    "font.size": 10,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "grid.linewidth": 0.8,
    "legend.fontsize": 9,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "hatch.linewidth": 0.6,
}


def plot_timeline(timeline: Timeline, summary: dict[str, Any], path: Path, beside: Sequence[Beside] = ()) -> None:
    """Draw the run, and the alternatives in `beside`, into a PNG of 1760 × 1760 pixels."""
    with picture(path, (11, 11), 160, STYLE) as figure:
        axes = figure.subplots(5, 1, sharex=True, gridspec_kw={"height_ratios": [2.2, 2.2, 2, 2, 1.3]})
        load, latency, gpu, cpu, placement = axes
        _load(load, timeline, beside)
        _latency(latency, timeline, float(summary["slo_ms"]))
        _replicas(gpu, timeline, "gpu", beside)
        _replicas(cpu, timeline, "cpu", beside)
        _placement(placement, timeline)
        placement.set_xlabel("time since the load began (s)")
        placement.set_xlim(0, len(timeline))
        figure.suptitle(title(summary), x=LEFT, y=0.982, ha="left", fontsize=15, fontweight="bold")
        figure.text(LEFT, 0.952, subtitle(summary), ha="left", va="top", color=MUTED, fontsize=10.5)
        if beside:
            figure.text(LEFT, 0.931, words(beside), ha="left", va="top", color=MUTED, fontsize=10.5)
        figure.align_ylabels(axes)
        figure.subplots_adjust(left=LEFT, right=0.852, top=0.896 if beside else 0.918, bottom=0.05, hspace=0.24)


def title(summary: dict[str, Any]) -> str:
    name = {"rl": "RLScalingPolicy", "hpa": "HorizontalPodAutoscaler"}.get(summary["contender"], summary["contender"])
    mode = "" if summary.get("mode", "Auto") == "Auto" else f" in {summary['mode']}"
    return f"{name}{mode} · {summary['pattern']} · seed {summary['seed']}"


def subtitle(summary: dict[str, Any]) -> str:
    late = summary["slo_violation_ratio"]
    p95 = summary["p95_ms"]
    return "   ·   ".join(
        [
            f"{summary['requests']:,} requests",
            f"{summary['gpu_replica_seconds'] / 3600:.2f} GPU-hours",
            "no requests" if late is None else f"{late:.1%} failed or over {summary['slo_ms']:.0f} ms",
            "p95 unknown" if p95 is None else f"p95 {p95:.0f} ms",
            f"cost {summary['cost']:.3f}",
            f"{summary['scale_ups']} up, {summary['scale_downs']} down",
        ]
    )


def words(beside: Sequence[Beside]) -> str:
    """Return GPU-hours and lateness of all alternatives."""
    parts = []
    for other in beside:
        late = "no requests" if np.isnan(other.late_ratio) else f"{other.late_ratio:.1%} late"
        parts.append(f"{other.label}: {other.gpu_hours:.2f} GPU-hours, {late}")
    return "   ·   ".join(parts)


def _load(axes: Axes, timeline: Timeline, beside: Sequence[Beside]) -> None:
    edges = np.append(timeline.t, len(timeline))
    late = timeline.failed + timeline.late
    axes.stairs(timeline.sent, edges, baseline=late, fill=True, color=SKY, alpha=0.45, label="within SLO")
    axes.stairs(late, edges, baseline=timeline.failed, fill=True, color=LATE, label="late")
    axes.stairs(timeline.failed, edges, fill=True, color=RED, label="failed")
    axes.stairs(timeline.offered_rps, edges, baseline=None, color=INK, linewidth=1.6, label="offered")
    for other, style in zip(beside, BESIDE_STYLES, strict=False):
        axes.stairs(other.late, edges, baseline=None, label=f"late, {other.name}", **style)
    axes.set_ylabel("requests/s")
    axes.set_ylim(0, 1.08 * max(1.0, timeline.sent.max(), timeline.offered_rps.max()))
    _legend(axes)


def _latency(axes: Axes, timeline: Timeline, slo_ms: float) -> None:
    middle = timeline.t + 0.5
    p50, p95, p99 = (_smooth(series) for series in (timeline.p50_ms, timeline.p95_ms, timeline.p99_ms))
    top = 1.5 * np.nanmax(np.append(p99, slo_ms))
    bottom = np.nanmin(np.append(p50, LATENCY_FLOOR_MS))
    axes.set_ylim(bottom, top)
    axes.set_yscale("log")
    axes.axhline(slo_ms, color=RED, linewidth=1.4, linestyle=(0, (5, 3)), label=f"SLO {slo_ms:.0f} ms")
    axes.fill_between(middle, slo_ms, p95, where=p95 > slo_ms, color=RED, alpha=0.15, linewidth=0, interpolate=True)
    axes.plot(middle, p99, color=PURPLE, linewidth=1.0, label="p99")
    axes.plot(middle, p95, color=INK, linewidth=1.8, label="p95")
    axes.plot(middle, p50, color=GREEN, linewidth=1.3, label="p50")
    axes.set_yticks([tick for tick in LATENCY_TICKS_MS if bottom <= tick <= top])
    axes.yaxis.minorticks_off()
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_ylabel("latency (ms)")
    _legend(axes)


def _replicas(axes: Axes, timeline: Timeline, pool: str, beside: Sequence[Beside]) -> None:
    from matplotlib.ticker import MaxNLocator

    colour = POOL_COLOURS[pool]
    spec, ready, starting = (getattr(timeline, f"{pool}_{name}") for name in ("spec", "ready", "starting"))
    edges = np.append(timeline.t, len(timeline))
    axes.stairs(ready, edges, fill=True, color=colour, alpha=0.55, label="ready")
    axes.stairs(
        ready + starting,
        edges,
        baseline=ready,
        fill=True,
        facecolor="none",
        edgecolor=colour,
        hatch="////",
        linewidth=0,
        label="starting",
    )
    axes.stairs(spec, edges, baseline=None, color=INK, linewidth=1.6, label="desired")
    others = [getattr(alternative, pool) for alternative in beside]
    for alternative, other, style in zip(beside, others, BESIDE_STYLES, strict=False):
        axes.stairs(other, edges, baseline=None, label=alternative.name, **style)
    axes.set_ylabel(f"{pool.upper()} replicas")
    axes.set_ylim(0, 1.12 * np.nanmax(np.concatenate([spec, ready + starting, *others, [2.0]])))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    _legend(axes)


def _placement(axes: Axes, timeline: Timeline) -> None:
    edges = np.append(timeline.t, len(timeline))
    total = timeline.gpu_weight + timeline.cpu_weight
    share = 100 * timeline.gpu_weight / np.where(total > 0, total, np.nan)
    axes.stairs(share, edges, fill=True, color=POOL_COLOURS["gpu"], alpha=0.55, label="to GPU")
    axes.stairs(
        np.full(len(timeline), 100.0), edges, baseline=share, fill=True, color=POOL_COLOURS["cpu"], alpha=0.55,
        label="to CPU",
    )  # fmt: skip
    axes.set_ylim(0, 100)
    axes.set_yticks([0, 50, 100])
    axes.set_ylabel("traffic (%)")
    before = -1
    for start, end, index in runs(timeline.placement):
        if before >= 0:
            axes.axvline(start, color=INK, linewidth=0.8, linestyle=":")
        before = index
        if index >= 0 and (end - start) / len(timeline) > NARROWEST_LABEL:
            axes.text((start + end) / 2, 50, PLACEMENT_LABELS[index], ha="center", va="center", fontsize=9, color=INK)
    _legend(axes)


def runs(values: Float) -> list[tuple[int, int, int]]:
    """(begin, end, value) of each stretch of equal values; `end` is exclusive."""
    cuts = np.flatnonzero(np.diff(values)) + 1
    begins = np.append(0, cuts) if len(values) else cuts
    ends = np.append(cuts, len(values))
    return [(int(begin), int(end), int(values[begin])) for begin, end in zip(begins, ends, strict=False)]


def _smooth(series: Float) -> Float:
    """The running median over SMOOTHING_SECONDS; NaN where the window holds no value."""
    half = SMOOTHING_SECONDS // 2
    padded = np.pad(series, half, constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, SMOOTHING_SECONDS)
    smooth = np.full(len(series), np.nan)
    known = ~np.all(np.isnan(windows), axis=1)
    smooth[known] = np.nanmedian(windows[known], axis=1)
    return smooth


def _legend(axes: Axes) -> None:
    axes.legend(loc="center left", bbox_to_anchor=(1.005, 0.5), handlelength=1.6, borderaxespad=0.3)
