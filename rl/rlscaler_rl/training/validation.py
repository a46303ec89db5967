"""How good the policy is by now: nominal episodes that neither training nor any report sees."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from rlscaler_rl.simulation.episode import run
from rlscaler_rl.simulation.randomisation import PATTERNS
from rlscaler_rl.simulation.scenario import Scenarios, from_rate, nominal

STEADY = "steady"
STEADY_RATES = (0.0, 5.0, 10.0, 20.0, 30.0, 50.0, 75.0, 100.0)
"""Requests/s that do not change: a policy must also leave alone what needs nothing."""

WORKLOADS = (*PATTERNS, STEADY)

SEEDS = range(910_000, 910_008)
"""Kept for choosing among policies; reports draw theirs elsewhere."""

SETTINGS = ((15.0, 300), (15.0, 900), (30.0, 300), (30.0, 600), (30.0, 1200))
"""(interval, duration) in seconds."""


@lru_cache(maxsize=len(SETTINGS))
def scenarios(interval: float, duration: int) -> Scenarios:
    """Every pattern with every seed, patterns outermost, then the steady loads.

    Half of the seeds begin with the fewest replicas, as the demo does, half with what the first rate needs.
    """
    patterns = [pattern for pattern in PATTERNS for _ in SEEDS]
    moving = nominal(patterns, [*SEEDS] * len(PATTERNS), duration, interval)
    flat = np.repeat(np.array(STEADY_RATES)[:, None], duration, axis=1)
    made = Scenarios.concat([moving, from_rate(flat, [*SEEDS], interval, pattern=STEADY)])
    needed = np.ceil(made.rate[:, 0] / (0.8 * made.rps[:, 0])).astype(np.int64)
    made.initial[:, 0] = np.where(made.seed % 2 == 0, made.initial[:, 0], np.maximum(needed, 1))
    return made


def validate(actor: Any) -> dict[str, Any]:
    """`mean` {j, cost, late_percent}, and the same per pattern and per setting."""
    tables: dict[str, dict[str, dict[str, float]]] = {}
    for interval, duration in SETTINGS:
        batch = scenarios(interval, duration)
        result = run(batch, actor).result
        tables[f"{interval:g}s/{duration}s"] = {
            pattern: {name: float(getattr(result, name)[batch.pattern == pattern].mean()) for name in _FIGURES}
            for pattern in WORKLOADS
        }
    per_workload = {name: _mean(tables, (name,)) for name in WORKLOADS}
    return {"mean": _mean(tables, WORKLOADS), "patterns": per_workload, "settings": tables}


_FIGURES = ("j", "cost", "late_percent")


def _mean(tables: dict[str, dict[str, dict[str, float]]], patterns: tuple[str, ...]) -> dict[str, float]:
    rows = [table[pattern] for table in tables.values() for pattern in patterns]
    return {name: float(np.mean([row[name] for row in rows])) for name in _FIGURES}
