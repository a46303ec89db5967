"""May the policy be published, and why."""

from __future__ import annotations

from collections.abc import Sequence

from rlscaler_rl.evaluation.board import Board
from rlscaler_rl.evaluation.gate import PASSES, judge
from rlscaler_rl.evaluation.rows import difference
from rlscaler_rl.evaluation.service_tuning.history import FEWEST, History, duration
from rlscaler_rl.evaluation.service_tuning.rivals import POLICY, Rival
from rlscaler_rl.evaluation.service_tuning.schema import Row
from rlscaler_rl.evaluation.service_tuning.service import Service
from rlscaler_rl.training.finetune import FineTuned
from rlscaler_rl.workloads import Part


def rows(board: Board, workload: str, rivals: Sequence[Rival], service: Service, seconds: int) -> tuple[Row, ...]:
    """In the order of `rivals`."""

    def row(rival: Rival) -> Row:
        def mean(metric: str) -> float:
            return board.mean(workload, rival.name, metric)

        return Row(
            name=rival.name,
            label=rival.label,
            role=rival.role,
            j=mean("j"),
            cost_per_hour=mean("cost") * service.gpu_cost_per_hour,
            late_percent=mean("late_percent"),
            p95_ms=mean("p95_ms"),
            gpu_replicas=mean("gpu_replica_seconds") / seconds,
            cpu_replicas=mean("cpu_replica_seconds") / seconds,
            difference=None if rival.name == POLICY else difference(board, workload, rival.name),
        )

    return tuple(row(rival) for rival in rivals)


def decide(
    made: Sequence[Row], history: History, tuned: FineTuned, service: Service, broken: Sequence[str]
) -> tuple[bool, tuple[str, ...]]:
    """(publish, reasons): every reason against, or the one for it."""
    against = list(broken)
    if history.missing_seconds:
        against.append(
            f"too little history: {duration(history.seconds)} hold {history.blocks(Part.TEST, service)} stretches of "
            f"{duration(service.episode_seconds)} to test on and {FEWEST[Part.TEST]} are needed; "
            f"{duration(history.missing_seconds)} more"
        )
    if tuned.best.steps == 0:
        against.append("training found nothing better than the general policy on the tune part: keep that one")
    gate = [(one.label, one.difference) for one in made if one.role == "tuned" and one.difference]
    status, reason = judge(gate, smooth=history.smooth)
    if status != PASSES:
        kind = "within 2 % of" if history.smooth else "better than"
        against.append(f"not shown to be {kind} both tuned rivals: {reason}")
    against += [
        f"{one.label} is better by {one.difference.percent:.1f} % "
        f"[{one.difference.low_percent:.1f}, {one.difference.high_percent:.1f}]"
        for one in made
        if one.difference and one.difference.verdict == "loss" and one.role in ("today", "contender")
    ]
    return (False, tuple(against)) if against else (True, (_in_favour(reason, made),))


def _in_favour(reason: str, made: Sequence[Row]) -> str:
    shown = [
        f"{one.difference.percent:+.1f} % [{one.difference.low_percent:+.1f}, {one.difference.high_percent:+.1f}] "
        f"against {one.label}"
        for one in made
        if one.role == "tuned" and one.difference
    ]
    return f"{reason}: J {' and '.join(shown)}"
