"""The picture of the experiment: rewards in training, latency by pattern, the agent's profile beside the baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from rlscaler_core.decision.types import Float
from rlscaler_live.kisim.world import FIRST_REPLICAS

if TYPE_CHECKING:
    from rlscaler_live.kisim.experiment import Played

COLOURS = {"agent": "#1f6fb4", "gpu": "#d98200", "cpu": "#7a7a7a"}
LABELS = {"agent": "agent", "gpu": f"{FIRST_REPLICAS} GPU alone", "cpu": f"{FIRST_REPLICAS} CPU alone"}
MOVING_EPISODES = 10
GPU_PRICE = np.array([1.0, 0.25])
"""Price of a replica of GPU and CPU in GPU replica equivalents."""


def draw(
    episodes: Sequence[Mapping[str, Any]],
    evaluations: Sequence[Mapping[str, Any]],
    figures: Mapping[str, Mapping[str, Played]],
    path: Path,
) -> None:
    """Draw a PNG of three panels; `figures` by policy (`LABELS`) and pattern."""
    figure = Figure(figsize=(15, 5), layout="constrained")
    grid = figure.add_gridspec(1, 3, width_ratios=(1.2, 1.2, 1))
    _training(figure.add_subplot(grid[0]), episodes, evaluations)
    _latency(figure.add_subplot(grid[1]), figures)
    _profile(figure.add_subplot(grid[2], projection="polar"), figures)
    figure.savefig(path, dpi=110)


def _training(axes: Any, episodes: Sequence[Mapping[str, Any]], evaluations: Sequence[Mapping[str, Any]]) -> None:
    rewards = np.array([episode["reward"] for episode in episodes])
    # Dots, so that a run of one episode or one evaluation shows as well.
    axes.plot(np.arange(1, len(rewards) + 1), rewards, ".", color=COLOURS["cpu"], alpha=0.5, label="episode")
    if len(rewards) >= MOVING_EPISODES:
        mean = np.convolve(rewards, np.full(MOVING_EPISODES, 1 / MOVING_EPISODES), mode="valid")
        numbers = np.arange(MOVING_EPISODES, len(rewards) + 1)
        axes.plot(numbers, mean, color=COLOURS["agent"], label=f"mean of {MOVING_EPISODES}")
    seen = [evaluation["episode"] for evaluation in evaluations]
    axes.plot(seen, [row["mean"] for row in evaluations], "o-", color=COLOURS["gpu"], label="evaluation, four patterns")
    axes.set(xlabel="episode of training", ylabel="reward of an episode", title="Training")
    axes.legend(loc="best", fontsize=9)


def _latency(axes: Any, figures: Mapping[str, Mapping[str, Played]]) -> None:
    patterns, width = list(figures["agent"]), 0.27
    for place, (name, by_pattern) in enumerate(figures.items()):
        heights = [by_pattern[pattern].p95_ms.mean() for pattern in patterns]
        bars = axes.bar(np.arange(4) + (place - 1) * width, heights, width, color=COLOURS[name], label=LABELS[name])
        axes.bar_label(bars, fmt="%.0f", fontsize=8)
    axes.set_xticks(np.arange(len(patterns)), patterns)
    axes.set(ylabel="p95 latency, ms", title="Latency by pattern", yscale="log")
    axes.margins(y=0.15)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=3, fontsize=9, frameon=False)


def _profile(axes: Any, figures: Mapping[str, Mapping[str, Played]]) -> None:
    """Draw latency, throughput and cost of each policy relative to the best of the three, 1 at the edge."""
    profiles = {name: _means(list(by_pattern.values())) for name, by_pattern in figures.items()}
    best = np.max(list(profiles.values()), axis=0)
    angles = np.linspace(0, 2 * np.pi, len(best), endpoint=False)
    closed = np.append(angles, angles[0])
    for name, values in profiles.items():
        shares = values / best
        axes.plot(closed, np.append(shares, shares[0]), "o-", color=COLOURS[name], label=LABELS[name])
        axes.fill(closed, np.append(shares, shares[0]), color=COLOURS[name], alpha=0.1)
    axes.set_xticks(angles, ["latency", "throughput", "cost"])
    axes.set_ylim(0, 1.05)
    axes.set_title("Mean of the patterns, best = 1")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=3, fontsize=9, frameon=False)


def _means(patterns: Sequence[Played]) -> Float:
    """Return 1 / p95 ms, answers/s and 1 / cost, (3,), each of the mean of the patterns."""
    p95 = np.mean([of.p95_ms.mean() for of in patterns])
    throughput = np.mean([of.throughput.mean() for of in patterns])
    cost = np.mean([(of.replicas @ GPU_PRICE).mean() for of in patterns])
    return np.array([1 / p95, throughput, 1 / cost])
