"""Figures that earlier research on such a policy claimed, beside the same figures measured here."""

from __future__ import annotations

from dataclasses import dataclass

from rlscaler_rl.evaluation.board import Board
from rlscaler_rl.evaluation.lineup import CPU_ONLY, GPU_ONLY
from rlscaler_rl.evaluation.schema import Claim
from rlscaler_rl.evaluation.statistics import Interval

RATIOS = {"random": 1.96, "spike": 1.27, "ramp": 1.16, "periodic": 1.0}
"""Performance per cost of the policy over HPA's; `periodic` was called balanced."""

PERFORMANCE_PER_COST = "goodput per cost, policy over contender"
DEFINITION = (
    "Performance is goodput, requests answered within the SLO a second; cost is the mean of the replicas paid for, in "
    "GPU replica equivalents; both are means over the same episodes, divided afterwards. The earlier figures came "
    "without their definition and without intervals, so this is the same quantity by name, not a replication. "
    "Static contenders hold a constant number of replicas of one pool, from the first second, at the policy's own "
    "mean cost on that workload (whole replicas, mixed over the episodes); limits are lifted for them where needed."
)


@dataclass(frozen=True, slots=True)
class _Ratio:
    """policy / contender of one metric; `more_is_better` tells which side of 1 a claim of `better` is on."""

    quantity: str
    metric: str
    more_is_better: bool


_AGAINST_STATIC = (
    _Ratio("p95 latency, policy over contender", "p95_ms", False),
    _Ratio("throughput (goodput), policy over contender", "goodput_rps", True),
)


def claims(board: Board) -> list[Claim]:
    """The claimed ratios to HPA, then p95 and throughput against the static pools, per workload that was played."""
    made = []
    labels = {entry.name: entry.label for entry in board.entries}
    for workload, claimed in RATIOS.items():
        for rival in ("hpa", "hpa_tuned"):
            if (workload, rival) in board.scores:
                found = ratio(board, workload, rival, "goodput_rps", per_cost=True)
                made.append(_claim(workload, PERFORMANCE_PER_COST, labels[rival], claimed, found, more_is_better=True))
    for workload in board.averaged:
        for rival in (GPU_ONLY, CPU_ONLY):
            if (workload, rival) in board.scores:
                for item in _AGAINST_STATIC:
                    found = ratio(board, workload, rival, item.metric)
                    better = item.more_is_better
                    made.append(_claim(workload, item.quantity, labels[rival], None, found, more_is_better=better))
    return made


def ratio(board: Board, workload: str, rival: str, metric: str, *, per_cost: bool = False) -> Interval:
    """Ratio of means, policy over rival, each divided by its mean cost if `per_cost`."""
    policy = board.policy.name
    return board.interval(
        lambda read: (
            read(policy, metric) / read(rival, metric) / (read(policy, "cost") / read(rival, "cost") if per_cost else 1)
        ),
        workload,
    )


def _claim(
    workload: str, quantity: str, against: str, claimed: float | None, found: Interval, *, more_is_better: bool
) -> Claim:
    return Claim(
        workload=workload,
        quantity=quantity,
        against=against,
        claimed=claimed,
        measured=found.mean,
        low=found.low,
        high=found.high,
        finding=finding(claimed, found, more_is_better=more_is_better),
    )


def finding(claimed: float | None, found: Interval, *, more_is_better: bool) -> str:
    """The finding in words; a claim of `better` is one of a ratio on the good side of 1."""
    if claimed is not None:
        if found.low <= claimed <= found.high:
            return "as claimed"
        return "more than claimed" if found.low > claimed else "less than claimed"
    if found.low <= 1 <= found.high:
        return "no difference shown"
    return "better" if (found.low > 1) == more_is_better else "worse"
