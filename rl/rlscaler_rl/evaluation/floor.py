"""What nobody can go below: the physical cost of answering, and what the user's own minimum costs."""

from __future__ import annotations

import numpy as np

from rlscaler_core.decision.types import GPU, Float, Params


def relative_price(params: Params) -> Float:
    """(N, 2) price of a replica in GPU replica equivalents."""
    return np.asarray(params.cost_per_hour / params.cost_per_hour[:, [GPU]])


def physical_floor(params: Params, answered_rps: Float) -> Float:
    """(N,) mean GPU replica equivalents that `answered_rps` (N,) keeps busy on the cheaper pool present.

    Arrivals x service time x price: every replica busy all the time, no cold start, no idle second, no queue.
    """
    per_request = np.where(params.present, relative_price(params) / params.requests_per_second, np.inf)
    return np.asarray(answered_rps * np.min(per_request, axis=1))


def minimum_cost(params: Params) -> Float:
    """(N,) GPU replica equivalents of minReplicas, billed from the first second to the last."""
    return np.asarray((np.where(params.present, params.min_replicas, 0) * relative_price(params)).sum(axis=1))
