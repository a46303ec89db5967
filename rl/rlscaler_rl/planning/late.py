"""How many requests of a load that stays are late, for all replicas of a service."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.types import Placement
from rlscaler_rl.simulation import ledger as ledgers
from rlscaler_rl.simulation.batch import Batch
from rlscaler_rl.simulation.scenario import Scenarios, build

Float = NDArray[np.float64]
Float32 = NDArray[np.float32]
Int = NDArray[np.int64]

SETTLING_SECONDS, MEASURED_SECONDS = 30, 30
"""A load is played so long before its late share is measured, and so long while it is, where it is constant."""

SERVICE = ("slo_ms", "price_ratio", "rps", "cv", "queue_limit", "timeout", "memory_seconds", "router", "routing")
"""Columns of `Scenarios` that say what the service is, apart from its replicas and its load."""


def choices(scenarios: Scenarios, row: int) -> tuple[Int, Int]:
    """Give the replicas that each pool can have, (G,) and (C,)."""
    low = np.where(scenarios.present[row], scenarios.min_replicas[row], 0)
    room = np.maximum(scenarios.schedulable[row], scenarios.initial[row])
    high = np.where(scenarios.present[row], np.minimum(scenarios.max_replicas[row], room), 0)
    return np.arange(low[0], high[0] + 1), np.arange(low[1], high[1] + 1)


@dataclass(frozen=True, slots=True)
class LateTable:
    """The late share of loads that stay, measured in the simulator, for every state of one row."""

    gpu: Int  # (G,) replicas that can be chosen, one apart
    cpu: Int  # (C,)
    loads: Float  # (L,) requests/s, ascending from 0
    late_share: Float32  # (L, G, C) with the best placement
    placement: Int  # (L, G, C) the best placement

    @classmethod
    def of(cls, scenarios: Scenarios, row: int, loads: Float, seconds: Float | None = None) -> LateTable:
        """Measure `loads` (L,) in requests/s. Nothing of the row's own load is looked at.

        `seconds` (T,) are the rates of seconds over the load, about 1, with which requests are drawn, the same for all
        states; None: every second brings the load exactly.
        """
        gpu, cpu = choices(scenarios, row)
        states = np.array(list(product(gpu, cpu, Placement)), np.int64)
        measured = SETTLING_SECONDS + MEASURED_SECONDS
        arrivals = np.outer(loads, np.ones(measured) if seconds is None else seconds)
        if seconds is not None:
            arrivals = np.random.default_rng(0).poisson(arrivals).astype(np.float64)
        shares = np.stack([_late_share(scenarios, row, states, one) for one in arrivals])
        shares = shares.reshape(len(loads), len(gpu), len(cpu), len(Placement))
        return cls(gpu, cpu, loads, shares.min(axis=-1).astype(np.float32), shares.argmin(axis=-1))

    def late_rate(self, load: Float) -> Float32:
        """Give the late requests/s (..., G, C) of any `load` (...) in requests/s, between the two nearest loads.

        A load above the highest one counts as that.
        """
        place = np.interp(load, self.loads, np.arange(len(self.loads)))
        low = np.minimum(place.astype(np.int64), len(self.loads) - 2)
        part = (place - low).astype(np.float32)[..., None, None]
        table = self.late_share * self.loads.astype(np.float32)[:, None, None]
        below = table[low]
        below += part * (table[low + 1] - below)
        return below

    def best_placement(self, load: float, gpu: int, cpu: int) -> int:
        """Give the placement that makes the fewest of `load` requests/s late on so many ready replicas."""
        level = min(int(np.searchsorted(self.loads, load - 1e-9)), len(self.loads) - 1)
        place = (np.clip(count - pool[0], 0, len(pool) - 1) for count, pool in ((gpu, self.gpu), (cpu, self.cpu)))
        return int(self.placement[(level, *place)])


def _late_share(scenarios: Scenarios, row: int, states: Int, arrivals: Float) -> Float:
    """Give the late share (S,) of `arrivals` (T,), requests in each second, for `states` (S, 3): replicas, placement.

    The first `SETTLING_SECONDS` are played and not counted.
    """
    n, seconds = len(states), len(arrivals)
    same: dict[str, Any] = {name: getattr(scenarios, name)[row] for name in SERVICE}
    alike = np.broadcast_to(arrivals.astype(np.float32), (n, seconds))
    steady = build(
        n,
        {
            **same,
            "pattern": np.full(n, "steady", dtype="<U16"),
            "seed": 0,
            "duration": seconds,
            "rate": alike,
            "arrivals": alike,
            "past_rate": float(arrivals.mean()),
            "key": np.zeros(n, np.uint64),
            "initial": states[:, :2],
            "min_replicas": 0,
            "max_replicas": np.maximum(states[:, :2], 1),
            "schedulable": np.maximum(states[:, :2], 1),
        },
    )
    batch = Batch(steady)
    batch.scale_unshielded(states[:, :2], states[:, 2])
    batch.advance(SETTLING_SECONDS)
    before = ledgers.read(batch.cluster)
    batch.advance(seconds - SETTLING_SECONDS)
    after = ledgers.read(batch.cluster)
    missed = (after.late + after.dropped + after.overdue) - (before.late + before.dropped + before.overdue)
    counted = max(float(arrivals[SETTLING_SECONDS:].sum()), 1e-9)
    return np.clip(missed / counted, 0.0, 1.0)
