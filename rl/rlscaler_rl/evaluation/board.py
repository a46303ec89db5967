"""Scores of every contender on every workload, and the rows that are made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from rlscaler_rl.decision.types import Float
from rlscaler_rl.evaluation.schema import Dependence, Difference, Row, Summary
from rlscaler_rl.evaluation.statistics import Interval, interval, paired_difference

METRICS = {
    "j": "score: cost + 0.5 x late_percent, lower is better",
    "cost": "mean of the running and starting replicas, GPU replica equivalents (a CPU replica counts its price ratio)",
    "late_percent": "% of all requests not answered within the SLO: late, dropped, or timed out",
    "goodput_rps": "requests answered within the SLO a second",
    "goodput_per_cost": "goodput_rps / cost (objective performance_cost)",
    "p50_ms": "median latency of the answered requests of an episode, ms",
    "p95_ms": "95th percentile latency, ms",
    "p99_ms": "99th percentile latency, ms",
    "gpu_replica_seconds": "GPU replica-seconds paid for in an episode",
    "cpu_replica_seconds": "CPU replica-seconds paid for in an episode",
    "scale_ups": "raises of a pool in an episode",
    "scale_downs": "cuts of a pool in an episode",
    "placement_changes": "changes of the placement in an episode",
    "dropped": "requests refused or timed out in an episode",
}

OBJECTIVE_WEIGHTS = {"latency": 0.4, "throughput": 0.3, "efficiency": 0.2, "stability": 0.1}
"""The `weighted` objective: improvement against default HPA on the same workload."""

ALL = "all"
VARIED, FLAT, ONE_POOL = "varied", "flat", "one_pool"
EXTRAS = (VARIED, FLAT, ONE_POOL)
"""The four patterns with scale, phase and period drawn per episode; loads that do not change, a fifth of them none;
services that have only one of the two pools. Rows of their own, not part of `all`."""

BASELINE = "hpa"
REQUIRED_MARGIN_PERCENT = 3.0
"""By how much a control must lose for the outcome to depend visibly on the network."""


class Named(Protocol):
    """The part of `baselines.lineup.Entry` that rows need."""

    @property
    def name(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def role(self) -> str: ...


@dataclass(slots=True)
class Board:
    """(workload, contender) -> metric -> scores (runs, episodes)."""

    entries: Sequence[Named]
    workloads: list[str] = field(default_factory=list)
    scores: dict[tuple[str, str], dict[str, Float]] = field(default_factory=dict)

    def add(self, workload: str, contender: str, scores: dict[str, Float]) -> None:
        if workload not in self.workloads:
            self.workloads.append(workload)
        self.scores[workload, contender] = scores

    def metric(self, workload: str, contender: str, name: str) -> Float:
        """(runs, episodes); for `all`, (workloads, runs, episodes)."""
        if workload == ALL:
            return np.stack([self.scores[one, contender][name] for one in self.averaged])
        return self.scores[workload, contender][name]

    @property
    def averaged(self) -> list[str]:
        """What `all` is the mean of: the patterns; extras only where nothing else was played."""
        return [name for name in self.workloads if name not in EXTRAS] or self.workloads

    @property
    def policy(self) -> Named:
        return next(entry for entry in self.entries if entry.role == "policy")


def rows(board: Board, seed: int = 0) -> list[Row]:
    """One row per workload and contender, then the mean over the workloads; the policy first in each."""
    return [row(board, workload, entry, seed) for workload in [*board.workloads, ALL] for entry in board.entries]


def row(board: Board, workload: str, entry: Named, seed: int = 0) -> Row:
    """All metrics of one contender on one workload, and how the policy compares with it."""
    metrics = {name: summary(board.metric(workload, entry.name, name), seed) for name in METRICS}
    runs, episodes = board.metric(workload, entry.name, "j").shape[-2:]
    is_policy = entry.name == board.policy.name
    return Row(
        workload=workload,
        contender=entry.name,
        label=entry.label,
        role=entry.role,
        runs=runs,
        episodes=episodes,
        metrics=metrics,
        difference=None if is_policy else difference(board, workload, entry.name, seed),
        improvement=improvement(board, workload, entry.name),
    )


def summary(scores: Float, seed: int = 0) -> Summary:
    """Spread over the runs and interval of the mean; episodes in which the metric is undefined are left out."""
    if not np.isfinite(scores).all():
        scores = np.where(np.isfinite(scores), scores, np.nanmean(scores) if np.isfinite(scores).any() else 0.0)
    by_run = scores.mean(axis=-1) if scores.ndim == 2 else scores.mean(axis=(0, -1))
    found = interval(scores, seed)
    return Summary(
        mean=found.mean,
        std=float(by_run.std(ddof=1)) if len(by_run) > 1 else 0.0,
        min=float(by_run.min()),
        max=float(by_run.max()),
        low=found.low,
        high=found.high,
    )


def difference(board: Board, workload: str, contender: str, seed: int = 0) -> Difference:
    """Policy minus contender in J."""
    theirs = board.metric(workload, contender, "j")
    found = paired_difference(board.metric(workload, board.policy.name, "j"), theirs, seed)
    return as_difference(found, float(theirs.mean()))


def as_difference(found: Interval, reference: float) -> Difference:
    return Difference(
        mean=found.mean,
        low=found.low,
        high=found.high,
        percent=100 * found.mean / reference if reference else 0.0,
        verdict=found.verdict.value,
    )


def improvement(board: Board, workload: str, contender: str) -> dict[str, float] | None:
    """% against default HPA: latency p95, goodput, cost and number of changes, and their weighted sum.

    Averages first, ratio after, so that one quiet episode does not divide by almost nothing. Not clipped at 0.
    """
    if (workload if workload != ALL else board.workloads[0], BASELINE) not in board.scores:
        return None

    def mean(name: str, who: str) -> float:
        return float(np.nanmean(board.metric(workload, who, name)))

    def changes(who: str) -> float:
        return mean("scale_ups", who) + mean("scale_downs", who) + mean("placement_changes", who)

    parts = {
        "latency": 1 - mean("p95_ms", contender) / mean("p95_ms", BASELINE),
        "throughput": mean("goodput_rps", contender) / mean("goodput_rps", BASELINE) - 1,
        "efficiency": 1 - mean("cost", contender) / mean("cost", BASELINE),
        "stability": 1 - changes(contender) / max(changes(BASELINE), 1.0),
    }
    parts["weighted"] = sum(weight * parts[name] for name, weight in OBJECTIVE_WEIGHTS.items())
    return {name: 100 * value for name, value in parts.items()}


def dependence(board: Board, seed: int = 0) -> list[Dependence]:
    """Every control must score worse than the policy, with an interval off zero and by a visible margin."""
    checks = []
    for entry in board.entries:
        if entry.role != "control":
            continue
        found = difference(board, ALL, entry.name, seed)
        passed = found.verdict == "win" and found.percent <= -REQUIRED_MARGIN_PERCENT
        checks.append(
            Dependence(
                control=entry.name,
                label=entry.label,
                difference=found,
                required_percent=REQUIRED_MARGIN_PERCENT,
                passed=passed,
            )
        )
    return checks
