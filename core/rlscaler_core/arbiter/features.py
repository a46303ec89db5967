"""Features of each member for a learned arbiter: numbers of a common scale, the same for 3 members and for 1,000.

An unknown value is 0, and a column of its own says so, as in live sensing: a lost signal is not a service at rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlscaler_core.arbiter.types import Budgets, Loans, Members, quotients, summed
from rlscaler_core.decision.types import Bool, Float, Float32, Int, Rows

CONTRACT = "arbiter/1"
"""Changes whenever a column or its meaning does: a network of another contract is refused."""

FEATURES = (
    "asked",
    "asked_known",
    "current",
    "granted",
    "guaranteed",
    "weight",
    "priority",
    "scarcity",
    "waited",
    "borrowed",
    "utilization",
    "utilization_known",
    "latency",
    "latency_known",
    "load",
    "load_known",
)
"""The columns. Replicas are divided by the replicas of an even split; `scarcity` is of the most requested resource."""

MOST = 4.0
"""Nothing is fed above this, so that one absurd number does not leave the trained range."""


@dataclass(slots=True)
class Signals(Rows):
    """Measurements of each member's service; NaN where unknown."""

    utilization: Float  # (M,) busy share of the replicas that answer, 0 to 1
    latency: Float  # (M,) p95 over the objective
    load: Float  # (M,) arrivals over the capacity of the replicas that answer


def features(budgets: Budgets, members: Members, loans: Loans, signals: Signals) -> Float32:
    """Return the columns (M, len(FEATURES)) of every member, all of them finite."""
    count = np.maximum(np.bincount(members.budget, minlength=len(budgets)), 1)
    even = quotients(np.maximum(budgets.amount / count[:, None], 1e-9)[members.budget], members.units).min(axis=1)
    known = ~np.isnan(members.asked)
    requested = np.where(known, np.maximum(np.nan_to_num(members.asked, posinf=1e6), members.minimum), 0.0)
    together = summed(requested[:, None] * members.units, members.budget, len(budgets))
    scarcity = (together / np.maximum(budgets.amount, 1e-9)).max(axis=1)
    # Weights matter only relative to the other members of a budget.
    heaviest = np.zeros(len(budgets))
    np.maximum.at(heaviest, members.budget, members.weight)
    columns = (
        requested / even,
        known,
        members.current / even,
        np.maximum(loans.granted, 0) / even,
        quotients(members.guaranteed, members.units).min(axis=1) / even,
        members.weight / heaviest[members.budget],
        np.clip(members.priority / 4.0, -1.0, 1.0),
        scarcity[members.budget],
        # Logarithms, so that 15 intervals are 1 and long waits stay in the trained range.
        np.log1p(loans.waited_intervals) / np.log(16.0),
        np.log1p(loans.borrowed_intervals) / np.log(16.0),
        *_with_mask(signals.utilization),
        *_with_mask(np.log1p(np.maximum(signals.latency, 0.0)) / np.log(4.0)),
        *_with_mask(signals.load),
    )
    table = np.stack([np.asarray(column, np.float64) for column in columns], axis=1)
    return np.clip(table, -MOST, MOST).astype(np.float32)


def _with_mask(values: Float) -> tuple[Float, Bool]:
    known = ~np.isnan(values)
    return np.where(known, values, 0.0), known


def padded(table: Float32, budget: Int, b: int) -> tuple[Float32, Float32, tuple[Int, Int]]:
    """Return the rows (M, F) of members by budget: (B, K, F) for the K of the largest, a mask (B, K, 1), and their
    places.

    The places are indices (M,), (M,) of each member's row and column: `values[places]` is (M, ...) again.
    """
    order = np.argsort(budget, kind="stable")
    count = np.bincount(budget, minlength=b)
    place = np.empty(len(budget), np.int32)
    place[order] = np.arange(len(budget)) - np.repeat(np.cumsum(count) - count, count)
    wide = np.zeros((b, max(int(count.max(initial=0)), 1), table.shape[1]), np.float32)
    mask = np.zeros((*wide.shape[:2], 1), np.float32)
    wide[budget, place] = table
    mask[budget, place] = 1.0
    return wide, mask, (budget, place)
