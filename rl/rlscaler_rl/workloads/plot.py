"""One test episode of every workload, as a picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rlscaler_rl.workloads.draw import episodes
from rlscaler_rl.workloads.names import PATTERNS, TRACES, Part

WINDOW_SECONDS = 10


def draw(out: Path, traces: Path | None = None, seed: int = 0) -> None:
    """The first episode of the first run of every pattern and trace: never a chosen one."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    names = (*PATTERNS, *TRACES)
    figure, grid = plt.subplots(3, 3, figsize=(12, 7), sharex=True, sharey=True, layout="constrained")
    for axis, name in zip(grid.flat, names, strict=True):
        made = episodes(name, Part.TEST, runs=1, episodes=1, seed=seed, traces=traces)
        seconds = np.arange(made.rate.shape[1]) / 60
        window = np.ones(WINDOW_SECONDS)
        counted = np.convolve(np.ones(len(seconds)), window, mode="same")
        smooth = np.convolve(made.rate[0], window, mode="same") / counted
        axis.plot(seconds, made.arrivals[0], color="0.75", linewidth=0.5, label="arrivals in each second")
        axis.plot(seconds, smooth, color="C0", linewidth=1.5, label=f"rate, mean of {WINDOW_SECONDS} s")
        axis.axhline(100, color="C3", linewidth=0.8, linestyle=":", label="planned peak")
        axis.set_title(name, fontsize=10)
        axis.set_ylim(0, 200)
    for axis in grid[:, 0]:
        axis.set_ylabel("requests/s")
    for axis in grid[-1]:
        axis.set_xlabel("minutes")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
    figure.savefig(out, dpi=110)
    plt.close(figure)
