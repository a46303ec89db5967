"""The picture of the experiment: rewards in training, latency by pattern, the agent's profile beside the baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from rlscaler_core.decision.types import Float
from rlscaler_live.kisim.baselines import OnePool
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
    agent: Mapping[str, Played],
    one_pool: Mapping[str, OnePool],
    path: Path,
) -> None:
    """Draw a PNG of three panels."""
    figure = Figure(figsize=(15, 5), layout="constrained")
    grid = figure.add_gridspec(1, 3, width_ratios=(1.2, 1.2, 1))
    _training(figure.add_subplot(grid[0]), episodes, evaluations)
    _latency(figure.add_subplot(grid[1]), agent, one_pool)
    _profile(figure.add_subplot(grid[2], projection="polar"), agent, one_pool)
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


def _latency(axes: Any, agent: Mapping[str, Played], one_pool: Mapping[str, OnePool]) -> None:
    patterns, width = list(agent), 0.27
    values = {
        "agent": [agent[pattern].p95_ms.mean() for pattern in patterns],
        "gpu": [one_pool[pattern].p95_ms[0].mean() for pattern in patterns],
        "cpu": [one_pool[pattern].p95_ms[1].mean() for pattern in patterns],
    }
    for place, (name, heights) in enumerate(values.items()):
        bars = axes.bar(np.arange(4) + (place - 1) * width, heights, width, color=COLOURS[name], label=LABELS[name])
        axes.bar_label(bars, fmt="%.0f", fontsize=8)
    axes.set_xticks(np.arange(len(patterns)), patterns)
    axes.set(ylabel="p95 latency, ms", title="Latency by pattern", yscale="log")
    axes.margins(y=0.15)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=3, fontsize=9, frameon=False)


def _profile(axes: Any, agent: Mapping[str, Played], one_pool: Mapping[str, OnePool]) -> None:
    """Draw latency, throughput and cost of each relative to the best of the three, 1 at the edge."""
    figures: dict[str, Float] = {}
    own = list(agent.values())
    alone = [one_pool[pattern] for pattern in agent]
    figures["agent"] = np.array(
        [
            1 / np.mean([of.p95_ms.mean() for of in own]),
            np.mean([of.throughput.mean() for of in own]),
            1 / np.mean([(of.replicas @ GPU_PRICE).mean() for of in own]),
        ]
    )
    for pool, name in enumerate(("gpu", "cpu")):
        figures[name] = np.array(
            [
                1 / np.mean([of.p95_ms[pool].mean() for of in alone]),
                np.mean([of.throughput[pool].mean() for of in alone]),
                1 / np.mean([of.cost[pool].mean() for of in alone]),
            ]
        )
    best = np.max(list(figures.values()), axis=0)
    angles = np.linspace(0, 2 * np.pi, len(best), endpoint=False)
    closed = np.append(angles, angles[0])
    for name, values in figures.items():
        shares = values / best
        axes.plot(closed, np.append(shares, shares[0]), "o-", color=COLOURS[name], label=LABELS[name])
        axes.fill(closed, np.append(shares, shares[0]), color=COLOURS[name], alpha=0.1)
    axes.set_xticks(angles, ["latency", "throughput", "cost"])
    axes.set_ylim(0, 1.05)
    axes.set_title("Mean of the patterns, best = 1")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=3, fontsize=9, frameon=False)
