"""training_progress.png."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def plot_progress(rows: list[dict[str, Any]], path: Path) -> None:
    """Validation J per workload, and cost against lateness, over the steps."""
    steps = [row["steps"] / 1e6 for row in rows]
    figure, (scores, parts) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for workload in rows[-1]["validation"]["workloads"]:
        scores.plot(steps, [row["validation"]["workloads"][workload]["j"] for row in rows], label=workload)
    scores.plot(steps, [row["validation"]["mean"]["j"] for row in rows], "k", label="mean")
    scores.set(xlabel="million steps", ylabel="J = cost + 0.5 x late %", title="validation", yscale="log")
    scores.legend()
    parts.plot(steps, [row["validation"]["mean"]["cost"] for row in rows], label="cost, GPU replica equivalents")
    parts.plot(steps, [row["validation"]["mean"]["late_percent"] for row in rows], label="late requests, %")
    parts.set(xlabel="million steps", title="what it is made of", ylim=(0, None))
    parts.legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)
