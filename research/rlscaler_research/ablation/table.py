"""From kept results to a table: each idea against the default, seed by seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import stats

from rlscaler_research.ablation.ideas import BASE, IDEAS
from rlscaler_research.ablation.study import Job, Record

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Line:
    """Mean J over the workloads of an idea, and its difference from the default; NaN where seeds are too few."""

    idea: str
    seeds: int
    j: float
    deviation: float
    difference: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        if self.idea == BASE or not np.isfinite(self.low):
            return ""
        return "better" if self.high < 0 else "worse" if self.low > 0 else "undecided"


def lines(results: Mapping[Job, Record]) -> list[Line]:
    """Best first. Differences are paired by seed and get a t interval, as seeds are few."""
    scores: dict[str, dict[int, float]] = {}
    for job, record in results.items():
        scores.setdefault(job.idea, {})[job.seed] = record["mean"]["j"]
    made = [_line(idea, found, scores.get(BASE, {})) for idea, found in scores.items()]
    return sorted(made, key=lambda line: line.j)


def _line(idea: str, found: dict[int, float], base: dict[int, float]) -> Line:
    values = np.array(list(found.values()))
    paired = np.array([found[seed] - base[seed] for seed in found if seed in base])
    low = high = float("nan")
    if idea != BASE and len(paired) > 1:
        half = stats.t.ppf((1 + CONFIDENCE) / 2, len(paired) - 1) * stats.sem(paired)
        low, high = float(paired.mean() - half), float(paired.mean() + half)
    return Line(
        idea=idea,
        seeds=len(values),
        j=float(values.mean()),
        deviation=float(values.std(ddof=1)) if len(values) > 1 else float("nan"),
        difference=float(paired.mean()) if len(paired) else float("nan"),
        low=low,
        high=high,
    )


def markdown(made: list[Line]) -> str:
    """The table as it stands in the documentation."""
    rows = ["| idea | what is different | seeds | J | against the default | |", "|---|---|---|---|---|---|"]
    for line in made:
        spread = "" if np.isnan(line.deviation) else f" ± {line.deviation:.2f}"
        against = "" if line.idea == BASE else f"{line.difference:+.2f}"
        against += "" if np.isnan(line.low) else f" [{line.low:+.2f}, {line.high:+.2f}]"
        what = IDEAS[line.idea].what
        rows.append(f"| {line.idea} | {what} | {line.seeds} | {line.j:.2f}{spread} | {against} | {line.verdict} |")
    return "\n".join(rows)
