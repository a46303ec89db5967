"""Figures claimed by earlier research on such a policy, beside the same figures measured here."""

from __future__ import annotations

from dataclasses import dataclass

from rlscaler_rl.evaluation.board import Board
from rlscaler_rl.evaluation.lineup import CPU_ONLY, GPU_ONLY
from rlscaler_rl.evaluation.schema import Claim
from rlscaler_rl.results.statistics import Interval

RATIOS = {"random": 1.96, "spike": 1.27, "ramp": 1.16, "periodic": 1.0}
"""Performance per cost of the policy over HPA's; `periodic` was called balanced."""

DEFINITION = (
    "Performance is goodput, requests answered within the SLO a second; cost is the mean of the replicas paid for, in "
    "GPU replica equivalents; both are means over the same episodes, divided afterwards. The earlier figures came "
    "without their definition and without intervals, so this is the same quantity by name, not a replication. "
    "Static contenders hold a constant number of replicas of one pool, from the first second, at the policy's own "
    "mean cost on that workload (whole replicas, mixed over the episodes); limits are lifted for them where needed."
)


@dataclass(frozen=True, slots=True)
class _Ratio:
    """Ratio policy / contender of one metric; with `more_is_better` a ratio above 1 is better."""

    quantity: str
    metric: str
    more_is_better: bool


_PER_COST = _Ratio("goodput per cost, policy over contender", "goodput_rps", True)
_AGAINST_STATIC = (
    _Ratio("p95 latency, policy over contender", "p95_ms", False),
    _Ratio("throughput (goodput), policy over contender", "goodput_rps", True),
)


def claims(board: Board) -> list[Claim]:
    """Return the claimed ratios to HPA, then p95 and throughput against the static pools, by workload."""
    labels = {entry.name: entry.label for entry in board.entries}

    def claim(workload: str, rival: str, item: _Ratio, claimed: float | None = None) -> Claim:
        measured = ratio(board, workload, rival, item.metric, per_cost=item is _PER_COST)
        return Claim(
            workload=workload,
            quantity=item.quantity,
            against=labels[rival],
            claimed=claimed,
            measured=measured.mean,
            low=measured.low,
            high=measured.high,
            finding=finding(claimed, measured, more_is_better=item.more_is_better),
        )

    to_hpa = [
        claim(workload, rival, _PER_COST, claimed)
        for workload, claimed in RATIOS.items()
        for rival in ("hpa", "hpa_tuned")
        if (workload, rival) in board.scores
    ]
    to_static = [
        claim(workload, rival, item)
        for workload in board.averaged
        for rival in (GPU_ONLY, CPU_ONLY)
        if (workload, rival) in board.scores
        for item in _AGAINST_STATIC
    ]
    return to_hpa + to_static


def ratio(board: Board, workload: str, rival: str, metric: str, *, per_cost: bool = False) -> Interval:
    """Return the ratio of means, policy over rival, each divided by its mean cost if `per_cost`."""
    policy = board.policy.name
    return board.interval(
        lambda read: (
            read(policy, metric) / read(rival, metric) / (read(policy, "cost") / read(rival, "cost") if per_cost else 1)
        ),
        workload,
    )


def finding(claimed: float | None, measured: Interval, *, more_is_better: bool) -> str:
    """Return the finding in words; without a `claimed` figure the claim is a ratio on the better side of 1."""
    if claimed is not None:
        if measured.low <= claimed <= measured.high:
            return "as claimed"
        return "more than claimed" if measured.low > claimed else "less than claimed"
    if measured.low <= 1 <= measured.high:
        return "no difference shown"
    return "better" if (measured.low > 1) == more_is_better else "worse"
