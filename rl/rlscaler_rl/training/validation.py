"""How good the policy is by now: the tune parts of all workloads, which no report looks at."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from rlscaler_rl.simulation.episode import run
from rlscaler_rl.simulation.scenario import Scenarios
from rlscaler_rl.workloads import HELD_OUT, MIXED, PATTERNS, TRACES, Part, episodes

WORKLOADS = (*PATTERNS, *(name for name in TRACES if name != HELD_OUT), MIXED, "flat", "one_pool")
"""The mean over these, each alike, chooses among policies."""

EPISODES = 16
"""Episodes of every workload under every condition."""

ANY = 5
"""Replicas of a pool that an operator may find, at most, where it begins."""

CONDITIONS = ((30.0, 600, False), (15.0, 600, False), (30.0, 600, True))
"""(interval, duration) in seconds, and whether the episodes begin with any replicas instead of the cheapest that carry
the load before them: a service is as it is when an operator comes to it."""


@lru_cache(maxsize=len(CONDITIONS))
def scenarios(interval: float, duration: int, anyhow: bool) -> Scenarios:
    """(len(WORKLOADS) * EPISODES) rows, workload by workload."""
    settings: dict[str, Any] = {"runs": 1, "episodes": EPISODES, "seed": 0}
    parts = [
        episodes(name, Part.TUNE, **settings, duration_seconds=duration, interval_seconds=interval)
        for name in WORKLOADS
    ]
    made = Scenarios.concat(parts)
    if anyhow:
        found = np.random.default_rng(0).integers(1, ANY + 1, made.initial.shape)
        made.initial[:] = np.clip(found, made.min_replicas, made.max_replicas)
    return made


def places() -> dict[str, slice]:
    """Where each workload's episodes stand in `scenarios`."""
    return {workload: slice(i * EPISODES, (i + 1) * EPISODES) for i, workload in enumerate(WORKLOADS)}


def validate(actor: Any) -> dict[str, Any]:
    """`mean` {j, cost, late_percent}, and the same per workload (`workloads`) and per condition (`settings`)."""
    tables: dict[str, dict[str, dict[str, float]]] = {}
    for interval, duration, anyhow in CONDITIONS:
        name = f"{interval:g}s/{duration}s" + (", any replicas" if anyhow else "")
        tables[name] = by_workload(run(scenarios(interval, duration, anyhow), actor).result)
    per_workload = {name: _mean(tables, (name,)) for name in WORKLOADS}
    return {"mean": _mean(tables, WORKLOADS), "workloads": per_workload, "settings": tables}


def by_workload(figures: Any) -> dict[str, dict[str, float]]:
    """Means of `figures.j`, `.cost` and `.late_percent` over the rows of each workload in `scenarios`."""
    return {
        workload: {name: float(getattr(figures, name)[rows].mean()) for name in FIGURES}
        for workload, rows in places().items()
    }


FIGURES = ("j", "cost", "late_percent")


def _mean(tables: dict[str, dict[str, dict[str, float]]], workloads: tuple[str, ...]) -> dict[str, float]:
    rows = [table[workload] for table in tables.values() for workload in workloads]
    return {name: float(np.mean([row[name] for row in rows])) for name in FIGURES}
