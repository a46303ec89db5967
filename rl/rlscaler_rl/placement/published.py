"""The replay of openb with the schedulers of the FGD paper, compiled: some 13 million scores of nodes in seconds.

Formulas and names are those of the published kubernetes-scheduler-simulator. `FGD_BEST_FIT` and `FGD_CORES` are the
rules `fragmentation` and `fragmentation-and-cores` of the project; a test compares them with `rlscaler_core.placement`,
which scores on a cluster.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from rlscaler_core.placement.fragmentation import TypicalPods
from rlscaler_core.placement.rules import BEST_FIT_WEIGHT, CORES_WEIGHT, LARGEST_CPU_MILLI
from rlscaler_core.placement.types import MOST_GPUS, WHOLE_GPU, Float, Int, Nodes, Pods

_GPUS = MOST_GPUS
_WHOLE = WHOLE_GPU
_CPU, _BEST_FIT, _CORES, _ALL_GPUS = LARGEST_CPU_MILLI, BEST_FIT_WEIGHT, CORES_WEIGHT, float(MOST_GPUS * WHOLE_GPU)
_CLASSES = 10
"""Kinds of GPU requests that clustering tells apart: a share, then 1 to 8 GPUs."""


class Scheduler(IntEnum):
    """Published schedulers that score nodes."""

    RANDOM = 0
    DOT_PRODUCT = 1
    CLUSTERING = 2
    PACKING = 3
    BEST_FIT = 4
    FGD = 5
    FGD_BEST_FIT = 6
    FGD_CORES = 7


class Ties(IntEnum):
    """Order in which one of equally good nodes is taken."""

    BY_NAME = 0
    """The first of shuffled names, as the published figures have it."""
    RANDOM = 1
    """Any, as kube-scheduler has it."""


class Replayed(NamedTuple):
    """Results of a replay."""

    curve: Float
    """(140,) percent of all GPUs that are allocated when so many percent have been asked for; NaN where none was."""
    allocated: float
    """Percent at the end."""
    placed: Int
    """(P,) the node of each pod, -1 where none took it."""


@numba.njit(cache=True, error_model="numpy")
def fragmentation_of(cpu, gpu, count, model, kinds):  # type: ignore[no-untyped-def]
    """Thousandths of GPU of one node that are free and that a typical pod cannot use, as `fragmentation` has it."""
    total = 0.0
    for i in range(count):
        total += gpu[i]
    if total == 0:
        return 0.0
    expected = 0.0
    for t in range(len(kinds)):
        need_cpu, need, share, models, weight = kinds[t, 0], kinds[t, 1], kinds[t, 2], int(kinds[t, 3]), kinds[t, 4]
        if share == 0 or cpu < need_cpu or (models != 0 and (models & model) == 0):
            expected += weight * total
            continue
        fit, lost = 0, 0.0
        for i in range(count):
            if gpu[i] >= share:
                if gpu[i] > 0 and (need == 1 or gpu[i] == _WHOLE):
                    fit += 1
            else:
                lost += gpu[i]
        expected += weight * (total if fit < need else lost)
    return expected


@numba.njit(cache=True, error_model="numpy")
def fall_of(cpu, gpu, count, model, kinds, need, share, now, scratch):  # type: ignore[no-untyped-def]
    """Return the largest fall of fragmentation, and the GPU of a share that it is on; `cpu` are the cores left."""
    for d in range(_GPUS):
        scratch[d] = gpu[d]
    if need == 1 and share < _WHOLE:
        best, chosen = -1e300, -1
        for d in range(count):
            if gpu[d] < share or gpu[d] == 0:
                continue
            seen = False
            for e in range(d):
                seen = seen or gpu[e] == gpu[d]
            if seen:
                continue
            scratch[d] -= share
            fall = now - fragmentation_of(cpu, scratch, count, model, kinds)
            scratch[d] += share
            if fall > best:
                best, chosen = fall, d
        return best, chosen
    left = need
    for d in range(count):
        if left > 0 and scratch[d] == _WHOLE:
            scratch[d] = 0.0
            left -= 1
    return now - fragmentation_of(cpu, scratch, count, model, kinds), -1


@numba.njit(cache=True, error_model="numpy")
def cores_per_gpu_of(kinds):  # type: ignore[no-untyped-def]
    """Millicores that the pods ask for with a thousandth of a GPU, one at least; 0 where none asks for a GPU."""
    cores, gpus = 0.0, 0.0
    for t in range(len(kinds)):
        cores += kinds[t, 4] * kinds[t, 0]
        gpus += kinds[t, 4] * kinds[t, 1] * kinds[t, 2]
    return max(cores / gpus, 1.0) if gpus > 0 else 0.0


@numba.njit(cache=True, error_model="numpy")
def growth_without_cores(cpu, gpu, asked_cpu, asked_gpu, per_gpu):  # type: ignore[no-untyped-def]
    """Return how many more thousandths of GPU lack cores on a node once it has taken the pod.

    Those are free GPUs for which the node has too few free cores, at `per_gpu` millicores a thousandth. Of the node are
    free `cpu` (millicores) and `gpu` (thousandths), and the pod takes `asked_cpu` and `asked_gpu` of them.
    """
    if per_gpu == 0:
        return 0.0
    after = max(0.0, gpu - asked_gpu - (cpu - asked_cpu) / per_gpu)
    return after - max(0.0, gpu - cpu / per_gpu)


@numba.njit(cache=True, error_model="numpy")
def _any_gpu(gpu, count, share, fit):  # type: ignore[no-untyped-def]
    """One of the `fit` GPUs that have the share free, each as likely."""
    left = np.random.randint(fit)
    for d in range(count):
        if gpu[d] >= share and gpu[d] > 0:
            if left == 0:
                return d
            left -= 1
    return -1


@numba.njit(cache=True, error_model="numpy")
def _packing(gpu, count, need, share):  # type: ignore[no-untyped-def]
    if need == 0:
        return 0.0
    unused = 0
    for d in range(count):
        unused += gpu[d] == _WHOLE
    if unused == count:
        return float(max(33 - unused, unused))
    ratio, whole = 0.0, 0
    used = np.zeros(_GPUS, np.bool_)
    for _ in range(int(need)):
        low, at = 2.0 * _WHOLE, -1
        for d in range(count):
            if not used[d] and gpu[d] >= share and gpu[d] < low:
                low, at = gpu[d], d
        used[at] = True
        ratio += low * 100 // _WHOLE
        whole += low == _WHOLE
    return float(max(50 - whole, 33)) if whole > 0 else float(max(100 - ratio // 10, 50))


@numba.njit(cache=True, error_model="numpy")
def _clustering(free, classes, wanted):  # type: ignore[no-untyped-def]
    kinds = 0
    for k in range(_CLASSES):
        kinds += classes[k] > 0
    base = np.floor(25 * (_ALL_GPUS - free) / _ALL_GPUS)
    if classes[wanted] > 0:
        return base + (75 if kinds == 1 else 50)
    return base + (25 if kinds == 0 else 0)


@numba.njit(cache=True, error_model="numpy")
def _replay(cpu, memory, gpu, count, model, pods, models, kinds, scheduler, random_ties, seed, curve, placed):  # type: ignore[no-untyped-def]
    np.random.seed(seed)
    nodes = len(cpu)
    classes = np.zeros((nodes, _CLASSES), np.int64)
    now, scratch = np.zeros(nodes), np.zeros(_GPUS)
    whole, per_gpu = gpu.sum(), cores_per_gpu_of(kinds)
    for i in range(nodes):
        now[i] = fragmentation_of(cpu[i], gpu[i], count[i], model[i], kinds)
    allocated, arrived = 0.0, 0.0
    for j in range(len(pods)):
        c, m, need, share = pods[j, 0], pods[j, 1], pods[j, 2], pods[j, 3]
        shared = need == 1 and share < _WHOLE
        wanted = 0 if shared else int(need)
        best, top, device, ties = -1, -1e300, -1, 0
        for i in range(nodes):
            if cpu[i] < c or memory[i] < m:
                continue
            free, fit = 0.0, 0
            for d in range(count[i]):
                free += gpu[i, d]
                fit += gpu[i, d] >= share and gpu[i, d] > 0
            if need > 0 and (fit < need or (models[j] != 0 and (models[j] & model[i]) == 0)):
                continue
            chosen = -1
            if shared:
                low = 2.0 * _WHOLE
                for d in range(count[i]):
                    if gpu[i, d] >= share and gpu[i, d] > 0 and gpu[i, d] < low:
                        low, chosen = gpu[i, d], d
            left = 1.0 - 0.5 * (cpu[i] - c) / _CPU - 0.5 * (free - need * share) / _ALL_GPUS
            if scheduler == 0:
                score = np.random.random()
                if shared:
                    chosen = _any_gpu(gpu[i], count[i], share, fit)
            elif scheduler == 1:
                score = np.floor(
                    100 * (1 - (cpu[i] / _CPU * c / _CPU + free / _ALL_GPUS * need * share / _ALL_GPUS) / 2)
                )
            elif scheduler == 2:
                score = _clustering(free, classes[i], wanted) if need > 0 else 0.0
            elif scheduler == 3:
                score = _packing(gpu[i], count[i], need, share)
            elif scheduler == 4:
                score = np.floor(100 * left)
            else:
                fall, at = fall_of(cpu[i] - c, gpu[i], count[i], model[i], kinds, need, share, now[i], scratch)
                score = 100.0 / (1.0 + np.exp(-fall / 1000.0))
                if shared:
                    chosen = at
                score = score + _BEST_FIT * left if scheduler >= 6 else np.floor(score)
                if scheduler == 7:
                    score -= _CORES * growth_without_cores(cpu[i], free, c, need * share, per_gpu) / _WHOLE
            if score > top:
                best, top, device, ties = i, score, chosen, 1
            elif score == top:
                ties += 1
                if random_ties and np.random.randint(ties) == 0:
                    best, device = i, chosen
        arrived += need * share
        placed[j] = best
        if best >= 0:
            cpu[best] -= c
            memory[best] -= m
            allocated += need * share
            if need > 0:
                classes[best, wanted] += 1
            if shared:
                gpu[best, device] -= share
            else:
                missing = need
                for d in range(count[best]):
                    if missing > 0 and gpu[best, d] == _WHOLE:
                        gpu[best, d] = 0.0
                        missing -= 1
            now[best] = fragmentation_of(cpu[best], gpu[best], count[best], model[best], kinds)
        at = int(arrived / whole * 100)
        if at < len(curve):
            curve[at] = 100 * allocated / whole
    return 100 * allocated / whole


def replay(
    nodes: Nodes,
    pods: Pods,
    order: NDArray[np.int64],
    kinds: TypicalPods,
    scheduler: Scheduler,
    ties: Ties,
    seed: int,
) -> Replayed:
    """Place the pods of `order` one after the other, none of which ends, on empty nodes in a shuffled order."""
    shuffled = np.random.default_rng(seed).permutation(len(nodes.gpus))
    requests = np.column_stack([pods.requests, pods.gpus, pods.gpu_milli])[order]
    curve, placed = np.full(140, np.nan), np.full(len(order), -1, np.int64)
    allocated = _replay(
        nodes.allocatable[shuffled, 0].copy(),
        nodes.allocatable[shuffled, 1].copy(),
        nodes.gpu_free[shuffled].copy(),
        nodes.gpus[shuffled].astype(np.int64),
        nodes.gpu_model[shuffled].copy(),
        requests,
        pods.gpu_models[order],
        np.column_stack(kinds),
        int(scheduler),
        ties is Ties.RANDOM,
        seed,
        curve,
        placed,
    )
    return Replayed(curve, float(allocated), np.where(placed >= 0, shuffled[placed], -1))
