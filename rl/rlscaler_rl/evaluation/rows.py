"""Rows of a result: means with intervals, differences from the policy, improvement, dependence on the network."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from rlscaler_rl.evaluation.board import ALL, METRICS, Board, Named
from rlscaler_rl.evaluation.schema import Dependence, Difference, Row, Summary
from rlscaler_rl.results.statistics import Interval, Verdict

BASELINE = "hpa"
"""The contender that the weighted improvement compares with: HPA as Kubernetes sets it up by default."""

WEIGHTS = {"latency": 0.4, "throughput": 0.3, "efficiency": 0.2, "stability": 0.1}
"""Weights of the parts of the weighted improvement."""

FEWEST_CHANGES = 1.0
"""Changes an episode that a baseline counts at least: with hardly any, one change more would be -1000 %."""

REQUIRED_MARGIN_PERCENT = 3.0
"""Percent by which a control must lose for the outcome to depend visibly on the network."""


def rows(board: Board) -> list[Row]:
    """Return a row for each workload and contender, then for the mean over the workloads; the policy first in each."""
    places = [*board.workloads, ALL]
    return [
        row(board, workload, entry)
        for workload in places
        for entry in board.entries
        if board.played(workload, entry.name)
    ]


def row(board: Board, workload: str, entry: Named) -> Row:
    """Return all metrics of one contender on one workload, and the policy's difference from it."""
    designs = [board.designs[part] for part in board.parts(workload)]
    is_policy = entry.name == board.policy.name
    return Row(
        workload=workload,
        contender=entry.name,
        label=entry.label,
        role=entry.role,
        runs=designs[0].runs,
        episodes=designs[0].episodes,
        units=sum(design.units for design in designs),
        metrics={name: summary(board, workload, entry.name, name) for name in METRICS},
        difference=None if is_policy else difference(board, workload, entry.name),
        improvement=improvement(board, workload, entry.name),
    )


def summary(board: Board, workload: str, contender: str, metric: str) -> Summary:
    """Return spread over the runs and interval of the mean."""
    by_run = board.by_run(workload, contender, metric)
    mean = board.mean(workload, contender, metric)
    interval = Interval.of(mean, board.resampled(workload, contender, metric))
    return Summary(
        std=float(by_run.std(ddof=1)) if len(by_run) > 1 else 0.0,
        min=float(by_run.min()),
        max=float(by_run.max()),
        **asdict(interval),
    )


def difference(board: Board, workload: str, contender: str, subject: str | None = None) -> Difference:
    """Return J of the policy, or of another subject, minus that of the contender."""
    policy = subject or board.policy.name
    interval = board.interval(lambda read: read(policy, "j") - read(contender, "j"), workload)
    return as_difference(interval, board.mean(workload, contender, "j"), decidable=board.decidable(workload))


def as_difference(interval: Interval, reference: float, *, decidable: bool = True) -> Difference:
    """Return the interval also in percent of `reference`; undecided where the workload is not `decidable`."""
    percent = 100 / reference if reference else 0.0
    return Difference(
        **asdict(interval),
        percent=percent * interval.mean,
        low_percent=percent * interval.low,
        high_percent=percent * interval.high,
        verdict=(interval.verdict if decidable else Verdict.UNDECIDED).value,
    )


def improvement(board: Board, workload: str, contender: str) -> dict[str, float] | None:
    """Return the weighted improvement in % against default HPA on the same workload, and its four parts, not clipped.

    `all` has the mean of the workloads' improvements. None where default HPA was not played.
    """
    if not board.played(workload, BASELINE):
        return None
    parts = [_improvement(board, part, contender) for part in board.parts(workload)]
    return {name: float(np.mean([part[name] for part in parts])) for name in parts[0]}


def _improvement(board: Board, workload: str, contender: str) -> dict[str, float]:
    # Ratios of means: a ratio of each episode would divide by almost nothing in a quiet one.
    def figures(name: str) -> dict[str, float]:
        mean = {metric: board.mean(workload, name, metric) for metric in METRICS}
        changes = mean["scale_ups"] + mean["scale_downs"] + mean["placement_changes"]
        return {
            "latency": mean["p95_ms"],
            "throughput": mean["goodput_rps"],
            "efficiency": mean["cost"],
            "stability": changes,
        }

    baseline = figures(BASELINE)
    baseline["stability"] = max(baseline["stability"], FEWEST_CHANGES)
    own = figures(contender)
    # Of a cost or a latency less is better, of a throughput more.
    gains = {name: 1 - own[name] / baseline[name] for name in ("latency", "efficiency", "stability")}
    gains["throughput"] = own["throughput"] / baseline["throughput"] - 1
    parts = {name: 100 * float(gains[name]) for name in WEIGHTS}
    return parts | {"weighted": sum(weight * parts[name] for name, weight in WEIGHTS.items())}


def dependence(board: Board) -> list[Dependence]:
    """Return the check of each control: it must score worse than the policy, visibly and with an interval off zero."""
    checks = []
    for entry in board.entries:
        if entry.role != "control":
            continue
        apart = difference(board, ALL, entry.name)
        passed = apart.high < 0 and apart.percent <= -REQUIRED_MARGIN_PERCENT
        checks.append(
            Dependence(
                control=entry.name,
                label=entry.label,
                difference=apart,
                required_percent=REQUIRED_MARGIN_PERCENT,
                passed=passed,
            )
        )
    return checks
