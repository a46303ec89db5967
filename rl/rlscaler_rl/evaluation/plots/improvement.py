"""The weighted objective as bars: what the policy and its rivals improve over default HPA, part by part."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from rlscaler_rl.evaluation.board import ALL
from rlscaler_rl.evaluation.plots import look
from rlscaler_rl.evaluation.report import tables
from rlscaler_rl.evaluation.schema import ResultFile
from rlscaler_rl.simulation.objectives import WEIGHTS

SHOWN = ("policy", "hpa_tuned", "rule_tuned", "keda_tuned", "keda", "rule", "hindsight")
MOST = 5
LINEAR_PERCENT = 50.0
"""Up to here the scale is linear, then logarithmic: a p95 at the timeout is -1000 % and more."""

TICKS = (-10_000, -1000, -100, -50, 0, 50, 100, 1000)


def improvement(result: ResultFile) -> Figure:
    """Latency, throughput, efficiency, stability and their weighted sum, one panel each."""
    parts = [*WEIGHTS, "weighted"]
    places = [item.name for item in result.workloads] + [ALL]
    cells = {(row.workload, row.contender): row for row in result.rows}
    shown = [name for name in SHOWN if (ALL, name) in cells][:MOST]
    with look.styled():
        made = look.figure(15.5, 11.5)
        panels = made.subplots(len(parts), 1, sharex=True)
        for panel, part in zip(panels, parts, strict=True):
            for index, name in enumerate(shown):
                found = [cells[place, name].improvement for place in places]
                width = 0.82 / len(shown)
                row = cells[ALL, name]
                panel.bar(
                    np.arange(len(places)) - 0.41 + width * (index + 0.5),
                    [np.nan if item is None else item[part] for item in found],
                    width * 0.92,
                    color=look.colour(name, row.role),
                    alpha=1.0 if row.role == "policy" else 0.75,
                    label=row.label,
                )
            panel.axhline(0, color="#33373c", lw=1)
            panel.set_yscale("symlog", linthresh=LINEAR_PERCENT)
            low, high = panel.get_ylim()
            panel.set_yticks([tick for tick in TICKS if low <= tick <= high])
            panel.set_yticks([], minor=True)
            panel.set_ylim(min(low, -LINEAR_PERCENT), max(high, LINEAR_PERCENT))
            panel.yaxis.set_major_formatter(lambda value, _: f"{value:+g}" if value else "0")
            weight = f", weight {WEIGHTS[part]:g}" if part in WEIGHTS else " sum"
            panel.set_title(f"{part.capitalize()}{weight}")
            panel.set_ylabel("%")
            panel.grid(axis="x", visible=False)
        panels[-1].set_xticks(range(len(places)), [tables.title(place) for place in places], fontsize=8.5)
        handles, labels = panels[0].get_legend_handles_labels()
        made.legend(handles, labels, loc="outside lower center", ncols=len(shown), fontsize=9.5)
        made.suptitle(
            "Improvement over default HPA, %: above 0 better, nothing clipped (linear to 50, then logarithmic)",
            fontsize=13,
            fontweight="bold",
            x=0.01,
            ha="left",
        )
    return made
