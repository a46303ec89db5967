"""Services as users have them: a capacity that nobody is told, starts that cost, and scrapes of 15 s.

The same for whole days, for the gate of models and for the training for one service.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_rl.baselines.contender import cheapest_mix
from rlscaler_rl.simulation.scenario import NOMINAL, Scenarios, scraped_every, start_seconds
from rlscaler_rl.workloads.names import DRIFT, ERRORS, SCRAPE_SECONDS

Float = NDArray[np.float64]

INITIAL_UTILIZATION = 0.8
"""Utilization of the true capacity of the replicas that an episode begins with, 0 to 1."""


def uncertain(scenarios: Scenarios, scrape: float | None = SCRAPE_SECONDS) -> Scenarios:
    """Return the episodes with the errors in turn, row by row, every second round of them drifting.

    `scrape` are the seconds between two scrapes; None keeps those of the episodes, and their price of a start.
    """
    place = np.arange(len(scenarios))
    errors = np.array(ERRORS)[place % len(ERRORS)]
    drift = DRIFT * np.asarray(place // len(ERRORS) % 2, np.float64)
    columns: dict[str, Any] = {"own_scrape": NOMINAL["scrape"]} | ({} if scrape is None else scraped_every(scrape))
    filled: dict[str, Any] = {name: np.full(len(scenarios), value, np.float64) for name, value in columns.items()}
    if scrape is not None:
        filled["start_seconds"] = start_seconds((scenarios.cold_start_low + scenarios.cold_start_high) / 2)
    return with_capacity(replace(scenarios, **filled), errors, drift)


def with_capacity(scenarios: Scenarios, errors: Float, drift: Float, fall: float = 0.0) -> Scenarios:
    """Return the scenarios with a true capacity off the declared one by `errors` (N,), and replicas that carry the load
    before at it.

    `drift` (N,) and `fall` are as in `Scenarios`, of both pools.
    """
    shape = scenarios.believed_rps.shape
    moved = replace(
        scenarios,
        rps=scenarios.believed_rps * (1 + errors[:, None]),
        drift=np.broadcast_to(drift[:, None], shape).copy(),
        fall=np.full(shape, fall),
        initial=scenarios.initial.copy(),
    )
    params = moved.params()
    params.requests_per_second[:] = moved.true_rps(np.arange(len(moved)), np.zeros(len(moved), np.int64))
    moved.initial[...] = cheapest_mix(params, moved.past_rate / INITIAL_UTILIZATION)
    return moved
