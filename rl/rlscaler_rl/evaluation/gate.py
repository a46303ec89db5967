"""Gate that a policy must pass to act by default, its share of the distance to hindsight, and like against like.

A network that serves every load is not compared with an HPA tuned for one load alone: a user who tunes an HPA for a
load can tune the policy for it, and a user who does not tune has one setting of either. So settings for one load are
also compared with each other, and settings for all loads with each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from rlscaler_rl.evaluation.board import ALL, Board
from rlscaler_rl.evaluation.rows import as_difference, difference
from rlscaler_rl.evaluation.schema import Closed, Difference, Gate, GateRow, Like, Rival, SeedRow
from rlscaler_rl.results.statistics import Interval
from rlscaler_rl.workloads import PATTERNS, TRACES

SMOOTH = ("ramp", "azure_conv", "servegen_small", "servegen_large", "worldcup")
"""Loads that a tuned HPA already follows: there the policy may be as good. On all others it has to be better."""

MARGIN_PERCENT = 2.0
"""Percent of J by which the policy may be above a rival on a smooth load."""

RIVALS = (("hpa_tuned", "hpa"), ("rule_tuned", "rule"))
"""Rivals that the policy has to beat, tuned for the workload; the second stands in where the first was not played."""

BEGIN, END = RIVALS[0], ("hindsight_tuned", "hindsight")
FEWEST_PERCENT = 2.0
"""Percent of the begin's J by which the two ends must be apart for a share of their distance to be meaningful."""

TINY = 1e-3
"""Least distance of the two ends in a resample: a resample in a hundred may draw them on top of each other."""

PASSES, FAILS, UNDECIDED = "passes", "fails", "undecided"


class Scope(NamedTuple):
    """A subject, and rivals that were tuned on the same loads."""

    name: str
    title: str
    subject: str
    rivals: tuple[str, ...]


SCOPES = (
    Scope("load", "Each set for the load", "ppo_tuned", ("hpa_tuned", "rule_tuned")),
    Scope("all", "One setting for all loads", "ppo_tuned_all", ("hpa_tuned_all", "rule_tuned_all")),
)


def gate(board: Board, subject: str | None = None, against: Sequence[Sequence[str]] = RIVALS) -> Gate:
    """Return the gate with a row for each workload that counts; workloads apart do not decide.

    `subject`: the contender that has to pass, the policy if None. `against`: groups of rivals; the first of each group
    that was played everywhere counts.
    """
    rivals = [stand_in(board, names) for names in against]
    rows = [gate_row(board, workload, [name for name in rivals if name], subject) for workload in board.averaged]
    return Gate(
        passed=bool(rows) and all(row.status == PASSES for row in rows),
        margin_percent=MARGIN_PERCENT,
        rows=rows,
        untuned=[rival or names[0] for names, rival in zip(against, rivals, strict=True) if rival != names[0]],
    )


def stand_in(board: Board, names: Iterable[str]) -> str | None:
    """Return the first of `names` that played everywhere, or None."""
    return next((name for name in names if board.played(ALL, name)), None)


def gate_row(board: Board, workload: str, rivals: list[str], subject: str | None = None) -> GateRow:
    labels = {entry.name: entry.label for entry in board.entries}
    met = [
        Rival(contender=name, label=labels[name], difference=difference(board, workload, name, subject))
        for name in rivals
    ]
    smooth = workload in SMOOTH
    status, reason = judge([(rival.label, rival.difference) for rival in met], smooth=smooth)
    if met and workload not in (*PATTERNS, *TRACES):
        reason += "; nothing was tuned for this workload, all have the settings for all loads"
    return GateRow(workload=workload, smooth=smooth, rivals=met, status=status, reason=reason)


def judge(met: list[tuple[str, Difference]], *, smooth: bool) -> tuple[str, str]:
    """Return status and reason. Bursty: a win over every rival. Smooth: a mean within the margin is enough.

    Without a win, or above the margin, a row fails where the loss is decided; otherwise it is undecided.
    """
    if not met:
        return UNDECIDED, "neither HPA nor the rule was played"
    short = [
        (label, item)
        for label, item in met
        if item.verdict != "win" and not (smooth and item.percent <= MARGIN_PERCENT)
    ]
    if not short:
        within = [label for label, item in met if item.verdict != "win"]
        return PASSES, f"within {MARGIN_PERCENT:g} % of {' and '.join(within)}" if within else "better than both"
    lost = [(label, item) for label, item in short if item.verdict == "loss"]
    named = lost or short
    reason = " and ".join(f"{item.shown()} against {label}" for label, item in named)
    return (FAILS if lost else UNDECIDED), reason


def closed(
    board: Board, subject: str | None = None, first: Sequence[str] = BEGIN, last: Sequence[str] = END
) -> list[Closed]:
    """Return the share of the distance from `first` to `last` that the policy closes, by workload and for their mean.

    It is (J of the tuned HPA - J of the policy) / (J of the tuned HPA - J of hindsight).
    """
    begin, end = stand_in(board, first), stand_in(board, last)
    if begin is None or end is None:
        return []
    chosen = subject or board.policy.name
    # The mean is the share of the mean distance, so that a workload without a distance has no weight.
    return [share_closed(board, workload, chosen, begin, end) for workload in [*board.workloads, ALL]]


def share_closed(board: Board, workload: str, policy: str, begin: str, end: str) -> Closed:
    far, near = board.mean(workload, begin, "j"), board.mean(workload, end, "j")
    distance = board.interval(lambda read: read(begin, "j") - read(end, "j"), workload)
    share = None
    if distance.low > 0 and distance.mean >= FEWEST_PERCENT / 100 * far:
        share = board.interval(
            lambda read: (
                100 * (read(begin, "j") - read(policy, "j")) / np.maximum(read(begin, "j") - read(end, "j"), TINY)
            ),
            workload,
        )
    return Closed(
        workload=workload,
        begin=begin,
        end=end,
        begin_j=far,
        end_j=near,
        policy_j=board.mean(workload, policy, "j"),
        percent=share and share.mean,
        low=share and share.low,
        high=share and share.high,
    )


def training_seeds(board: Board) -> list[SeedRow]:
    """Return a row for each workload over the training seeds; none for a single model."""
    if len(board.models) < 2:
        return []
    return [seed_row(board, workload) for workload in [*board.workloads, ALL]]


def seed_row(board: Board, workload: str) -> SeedRow:
    labels = {entry.name: entry.label for entry in board.entries}
    j = {labels[name]: board.mean(workload, name, "j") for name in board.models}
    mean, resampled = board.over_seeds(workload)
    spread = np.array(list(j.values()))
    whole = Interval.of(mean, resampled)
    rivals = []
    for name in filter(None, (stand_in(board, names) for names in RIVALS)):
        theirs = board.mean(workload, name, "j")
        interval = Interval.of(mean - theirs, resampled - board.resampled(workload, name, "j"))
        apart = as_difference(interval, theirs, decidable=board.decidable(workload))
        rivals.append(Rival(contender=name, label=labels[name], difference=apart))
    return SeedRow(
        workload=workload,
        j=j,
        mean=mean,
        std=float(spread.std(ddof=1)),
        min=float(spread.min()),
        max=float(spread.max()),
        low=whole.low,
        high=whole.high,
        rivals=rivals,
    )


def like_for_like(board: Board) -> list[Like]:
    """Return a comparison for every scope that was played everywhere."""
    labels = {entry.name: entry.label for entry in board.entries}
    return [
        Like(
            name=scope.name,
            title=scope.title,
            subject=scope.subject,
            label=labels[scope.subject],
            gate=gate(board, scope.subject, [(rival,) for rival in scope.rivals]),
            closed=closed(board, scope.subject, (scope.rivals[0],), END),
        )
        for scope in SCOPES
        if all(board.played(ALL, name) for name in (scope.subject, *scope.rivals))
    ]
