"""The cheapest mix of replicas that carries a given rate; shared by the rules that size directly."""

from __future__ import annotations

import numpy as np

from rlscaler_core.decision.types import CPU, GPU, Bool, Float, Int, Params


def cheapest_mix(params: Params, need: Float) -> Int:
    """(N, 2) replicas with the least cost per hour whose capacity is at least `need` (N,) requests/s.

    Within [min, max]; where even the maximum does not carry it, the maximum. Every GPU count is tried and the CPU
    pool takes the rest, so the answer is exact. Ties go to fewer GPU replicas. Capacity must be known.
    """
    low = np.where(params.present, params.min_replicas, 0)
    high = np.where(params.present, params.max_replicas, 0)
    rps, price = params.requests_per_second, params.cost_per_hour
    gpu = np.arange(int(high[:, GPU].max(initial=0)) + 1)[None, :]
    rest = np.maximum(need[:, None] - gpu * np.where(params.present, rps, 0.0)[:, [GPU]], 0.0)
    wanted = np.ceil(np.round(rest / np.where(params.present, rps, 1.0)[:, [CPU]], 9))
    cpu = np.clip(wanted, low[:, [CPU]], high[:, [CPU]])
    cost = gpu * price[:, [GPU]] + cpu * price[:, [CPU]]
    allowed: Bool = (gpu >= low[:, [GPU]]) & (gpu <= high[:, [GPU]])
    enough: Bool = allowed & (wanted <= high[:, [CPU]])
    pick = np.argmin(np.where(enough, cost, np.inf), axis=1)
    mix = np.stack([pick, cpu[np.arange(len(params)), pick]], axis=1)
    return np.where(np.any(enough, axis=1, keepdims=True), mix, high).astype(np.int32)
