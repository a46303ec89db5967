"""The cheapest plan of ready replicas for a load that is known in full, by dynamic programming over both pools.

Time is cut into stages of a few seconds, and a state is the ready replicas (GPU, CPU) of a stage. A stage costs what
its replicas cost and what its late requests cost. A step to more replicas costs, besides, one cold start of each new
replica, because a replica is billed from the moment it is ordered. A step to fewer costs nothing.

That price of a step is exact for the best plan: replicas that leave and come back within one cold start would be
billed throughout anyway, so keeping them is never dearer, and a plan never does better by letting them go.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

Float = NDArray[np.float64]
Float32 = NDArray[np.float32]
Int = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Stages:
    """One load as a planning problem: K stages, G and C choices of replicas of the two pools.

    The choices of a pool are evenly spaced, which is what the dynamic programme's sweeps rely on.
    """

    gpu: Int  # (G,) ready replicas that can be chosen, ascending
    cpu: Int  # (C,)
    level: Int  # (K,) row of `late` for each stage
    late: Float32  # (L, G, C) late requests in a stage of each level of load
    holding: Float  # (G, C) cost of a stage's replicas
    late_price: float  # cost of one late request
    ordering: tuple[float, float]  # cost of one more replica of each pool: a cold start during which it is billed
    start: tuple[int, int]  # positions in `gpu` and `cpu` of the replicas that are ready when the load begins
    earliest: tuple[int, int]  # first stage in which more than those can be ready


def cheapest_plan(stages: Stages) -> tuple[float, Int]:
    """Give the least cost of all plans, in the units of `holding`, and the positions (K, 2) of one that has it.

    The values of all stages are kept, K * G * C numbers of four bytes.
    """
    values = np.empty((len(stages.level), *stages.holding.shape), np.float32)
    total = _sweep(stages, values)
    return total, _follow(values, *stages.ordering, *_ordered_steps(stages), np.array(stages.start, np.int64))


def _ordered_steps(stages: Stages) -> tuple[int, int]:
    return _spacing(stages.gpu), _spacing(stages.cpu)


def _spacing(choices: Int) -> int:
    return int(choices[1] - choices[0]) if len(choices) > 1 else 1


def _sweep(stages: Stages, values: Float32) -> float:
    up = tuple(price * step for price, step in zip(stages.ordering, _ordered_steps(stages), strict=True))
    start, earliest = np.array(stages.start, np.int64), np.array(stages.earliest, np.int64)
    ahead = _backward(
        stages.level, stages.late, stages.holding, stages.late_price, up[0], up[1], start, earliest, values
    )
    return float(ahead[stages.start])


@njit(cache=True, nogil=True)
def _backward(
    level: Int,
    late: Float32,
    holding: Float,
    late_price: float,
    gpu_up: float,
    cpu_up: float,
    start: Int,
    earliest: Int,
    values: Float32,
) -> Float:
    """Fill `values` (K, G, C) with the cost from each stage on; return that before the first stage (G, C).

    The value of a stage contains its own cost; it is infinite where so many replicas cannot be ready yet. `gpu_up` and
    `cpu_up` are the costs of one step to the next choice.
    """
    gpus, cpus = holding.shape
    ahead = np.zeros((gpus, cpus))
    for k in range(len(level) - 1, -1, -1):
        for g in range(gpus):
            for c in range(cpus):
                ahead[g, c] += holding[g, c] + late_price * late[level[k], g, c]
                if (k < earliest[0] and g > start[0]) or (k < earliest[1] and c > start[1]):
                    ahead[g, c] = np.inf
                values[k, g, c] = ahead[g, c]
        _cheapest_step(ahead, gpu_up, cpu_up)
    return ahead


@njit(cache=True, nogil=True)
def _cheapest_step(ahead: Float, gpu_up: float, cpu_up: float) -> None:
    """Replace each value (G, C) by the least of all that one step reaches, the price of the step included.

    The price is a sum over the pools, so the pools are swept one after the other: down steps are free, and the price
    of an up step grows by the same amount with every choice that it passes.
    """
    gpus, cpus = ahead.shape
    for g in range(gpus):
        for c in range(cpus - 2, -1, -1):
            ahead[g, c] = min(ahead[g, c], ahead[g, c + 1] + cpu_up)
        for c in range(1, cpus):
            ahead[g, c] = min(ahead[g, c], ahead[g, c - 1])
    for c in range(cpus):
        for g in range(gpus - 2, -1, -1):
            ahead[g, c] = min(ahead[g, c], ahead[g + 1, c] + gpu_up)
        for g in range(1, gpus):
            ahead[g, c] = min(ahead[g, c], ahead[g - 1, c])


@njit(cache=True, nogil=True)
def _follow(values: Float32, gpu_price: float, cpu_price: float, gpu_step: int, cpu_step: int, start: Int) -> Int:
    """Give the positions (K, 2) of a plan of least cost, from the values (K, G, C) that `_backward` left."""
    stages, gpus, cpus = values.shape
    plan = np.empty((stages, 2), np.int64)
    g, c = start[0], start[1]
    for k in range(stages):
        best, chosen_g, chosen_c = np.inf, g, c
        for i in range(gpus):
            step = max(i - g, 0) * gpu_step * gpu_price
            for j in range(cpus):
                cost = values[k, i, j] + step + max(j - c, 0) * cpu_step * cpu_price
                if cost < best:
                    best, chosen_g, chosen_c = cost, i, j
        g, c = chosen_g, chosen_c
        plan[k, 0], plan[k, 1] = g, c
    return plan


@njit(cache=True, nogil=True)
def least_cost_with_slack(
    arrived: Float, capacity: Float, holding: Float, seconds: float, slack: float, prices: Float, start: Int
) -> float:
    """Give a cost that no plan undercuts, where late requests are only those that no queue could answer in time.

    Of the requests `arrived` (K,) in a stage of `seconds`, those can be in time that the stage's capacity answers, and
    those that the next stage's answers within `slack` seconds; the others are late for certain. `capacity` (G, C) is
    in requests/s, `prices` (3,) are the cost of a late request and of one more step of each pool, `start` (2,) the
    positions that are ready at the begin. All pairs of states are tried where the capacity does not suffice, because
    what is late depends on both.
    """
    gpus, cpus = holding.shape
    late_price, gpu_up, cpu_up = prices[0], prices[1], prices[2]
    ahead = np.zeros((gpus, cpus))
    for k in range(len(arrived) - 1, -1, -1):
        stepped = ahead.copy()
        _cheapest_step(stepped, gpu_up, cpu_up)
        for g in range(gpus):
            for c in range(cpus):
                left = arrived[k] - capacity[g, c] * seconds
                if left <= 0.0:
                    continue
                best = np.inf
                for i in range(gpus):
                    for j in range(cpus):
                        late = max(left - capacity[i, j] * slack, 0.0)
                        step = max(i - g, 0) * gpu_up + max(j - c, 0) * cpu_up
                        best = min(best, ahead[i, j] + step + late_price * late)
                stepped[g, c] = best
        ahead = stepped + holding
    _cheapest_step(ahead, gpu_up, cpu_up)
    return float(ahead[start[0], start[1]])
