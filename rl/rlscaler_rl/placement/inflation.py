"""Pods that arrive on empty nodes and do not end, with the network's inputs for each node: compiled.

The inputs are the columns of `rlscaler_core.placement.features` for the scoring policy GPU; a test compares them. The
fall of fragmentation is cached for each kind of pod and each node until the node changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from rlscaler_core.placement.features import MOST, Float32, columns
from rlscaler_core.placement.fragmentation import TypicalPods
from rlscaler_core.placement.policies import Policy
from rlscaler_core.placement.rules import BEST_FIT_WEIGHT, CORES_WEIGHT, LARGEST_CPU_MILLI, UNKNOWN_LIFETIME_S
from rlscaler_core.placement.types import MOST_GPUS, WHOLE_GPU, Bool, Float, Int, Nodes, Pods
from rlscaler_rl.placement.published import (
    Replayed,
    Ties,
    cores_per_gpu_of,
    fall_of,
    fragmentation_of,
    growth_without_cores,
)

WIDTH = len(columns(Policy.GPU))

_GPUS, _WHOLE, _CPU, _MOST, _BEST_FIT = MOST_GPUS, WHOLE_GPU, LARGEST_CPU_MILLI, MOST, BEST_FIT_WEIGHT
_ALL_GPUS = float(MOST_GPUS * WHOLE_GPU)
_HOURS = UNKNOWN_LIFETIME_S / 3600.0


class State(NamedTuple):
    """N nodes on which pods run; changed in place."""

    allocatable: Float
    """(N, 2) millicores and MiB."""
    free: Float
    """(N, 2) the same, without the requests of pods on the node."""
    gpu: Float
    """(N, MOST_GPUS) free thousandths of each GPU."""
    number: Int
    """(N,) GPUs."""
    model: Int
    """(N,) bit of the GPUs' model."""
    pods: Float
    """(N,) pods on the node."""
    now: Float
    """(N,) fragmentation."""
    changed: Int
    """(N,) how often the node has changed."""
    kinds: Float
    """(K, 5) typical pods."""
    cores: float
    """Points for a GPU that a placement leaves without cores."""
    per_gpu: float
    """Millicores that the typical pods ask for with a thousandth of a GPU."""
    fall: Float
    """(T, N) by how much fragmentation falls by a pod of each of T types."""
    device: Int
    """(T, N) the GPU that a share of such a pod takes."""
    known: Int
    """(T, N) `changed` when both were found."""


class Arrivals(NamedTuple):
    """J pods in the order in which they arrive."""

    asked: Float
    """(J, 4) millicores, MiB, GPUs, thousandths of each GPU."""
    models: Int
    """(J,) bits of the GPUs that will do; 0 = any."""
    type: Int
    """(J,) pods of one type let fragmentation fall alike."""


CORES_WEIGHT_OF = {"fragmentation": 0.0, "fragmentation-and-cores": CORES_WEIGHT}
"""Rules that the first column can have, and the weight of each for a GPU without cores."""


def begin(nodes: Nodes, pods: Pods, order: Int, kinds: TypicalPods, rule: str) -> tuple[State, Arrivals]:
    """Empty nodes, and the pods of `order`; rule: the first column's, one of CORES_WEIGHT_OF."""
    requests = np.column_stack([pods.requests, pods.gpus, pods.gpu_milli])[order]
    _, types = np.unique(requests[:, [0, 2, 3]], axis=0, return_inverse=True)
    count, shape = nodes.gpus.astype(np.int64), (int(types.max()) + 1, len(nodes.gpus))
    free, table = nodes.allocatable.astype(float), np.column_stack(kinds).astype(float)
    now = [
        fragmentation_of(cpu, gpu, number, model, table)
        for cpu, gpu, number, model in zip(free[:, 0], nodes.gpu_free, count, nodes.gpu_model, strict=True)
    ]
    state = State(
        free.copy(),
        free.copy(),
        nodes.gpu_free.copy(),
        count,
        nodes.gpu_model.copy(),
        np.zeros(len(count)),
        np.array(now, float),
        np.zeros(len(count), np.int64),
        table,
        CORES_WEIGHT_OF[rule],
        cores_per_gpu_of(table),
        np.zeros(shape),
        np.zeros(shape, np.int64),
        np.full(shape, -1),
    )
    return state, Arrivals(requests, pods.gpu_models[order], types.astype(np.int64))


@numba.njit(cache=True, error_model="numpy")
def look(state, arrivals, j, seen, among):  # type: ignore[no-untyped-def]
    """Fill `seen` (N, WIDTH) float32 and `among` (N,) for pod j."""
    cpu, memory, need, share = arrivals.asked[j]
    models, kind = arrivals.models[j], arrivals.type[j]
    shared = need == 1 and share < _WHOLE
    largest = max(state.allocatable[:, 0].max(), 1.0)
    scratch, scores = np.zeros(_GPUS), np.zeros(len(among))
    low, high = np.inf, -np.inf
    for i in range(len(among)):
        if state.known[kind, i] != state.changed[i]:
            state.known[kind, i] = state.changed[i]
            state.fall[kind, i], state.device[kind, i] = fall_of(
                state.free[i, 0] - cpu,
                state.gpu[i],
                state.number[i],
                state.model[i],
                state.kinds,
                need,
                share,
                state.now[i],
                scratch,
            )
        fall, free, fit, unused, least = state.fall[kind, i], 0.0, 0, 0, 2.0 * _WHOLE
        for d in range(state.number[i]):
            gpu_free = state.gpu[i, d]
            free += gpu_free
            unused += gpu_free == _WHOLE
            if gpu_free >= share and gpu_free > 0:
                fit += 1
                least = min(least, gpu_free)
        among[i] = (
            state.free[i, 0] >= cpu
            and state.free[i, 1] >= memory
            and (need == 0 or (fit >= need and (models == 0 or (models & state.model[i]) != 0)))
        )
        if among[i]:
            left = 1.0 - 0.5 * (state.free[i, 0] - cpu) / _CPU - 0.5 * (free - need * share) / _ALL_GPUS
            scores[i] = 100.0 / (1.0 + np.exp(-fall / 1000.0)) + _BEST_FIT * left
            if state.cores > 0:
                growth = growth_without_cores(state.free[i, 0], free, cpu, need * share, state.per_gpu)
                scores[i] -= state.cores * growth / _WHOLE
            low, high = min(low, scores[i]), max(high, scores[i])
        used = state.pods[i] > 0
        seen[i, 1] = 1.0 - state.free[i, 0] / state.allocatable[i, 0]
        seen[i, 2] = 1.0 - state.free[i, 1] / state.allocatable[i, 1]
        seen[i, 3] = min(cpu / state.allocatable[i, 0], _MOST)
        seen[i, 4] = min(memory / state.allocatable[i, 1], _MOST)
        seen[i, 5] = 1.0 if used else 0.0
        seen[i, 6] = min(state.pods[i] / 20.0, _MOST)
        seen[i, 7] = state.allocatable[i, 0] / largest
        seen[i, 8] = seen[i, 9] = seen[i, 10] = 1.0
        seen[i, 11] = _HOURS if used else 0.0
        seen[i, 12] = _HOURS
        seen[i, 13] = 0.0 if used else _HOURS
        seen[i, 14] = free / _ALL_GPUS
        seen[i, 15] = unused / _GPUS
        seen[i, 16] = need * share / _ALL_GPUS
        seen[i, 17] = (least - share) / _WHOLE if shared and fit > 0 else 0.0
        seen[i, 18] = min(max(fall / _WHOLE, -_MOST), _MOST)
    for i in range(len(among)):
        if not among[i]:
            seen[i, 0] = 0.0
        elif high > low:
            seen[i, 0] = (scores[i] - low) / (high - low)
        else:
            seen[i, 0] = 0.5


@numba.njit(cache=True, error_model="numpy")
def put(state, arrivals, j, node):  # type: ignore[no-untyped-def]
    """Pod j runs on the node of this index from now on; `look` has to have been asked about it."""
    cpu, memory, need, share = arrivals.asked[j]
    state.free[node, 0] -= cpu
    state.free[node, 1] -= memory
    state.pods[node] += 1
    if need == 1 and share < _WHOLE:
        state.gpu[node, state.device[arrivals.type[j], node]] -= share
    else:
        for d in range(state.number[node]):
            if need > 0 and state.gpu[node, d] == _WHOLE:
                state.gpu[node, d] = 0.0
                need -= 1
    state.now[node] = fragmentation_of(
        state.free[node, 0], state.gpu[node], state.number[node], state.model[node], state.kinds
    )
    state.changed[node] += 1


class Weights(NamedTuple):
    """The network of `network.DeepSets`, as matrices (inputs, outputs) float32."""

    one: Float32
    highest: Float32
    mean: Float32
    bias: Float32
    second_one: Float32
    second_highest: Float32
    second_mean: Float32
    second_bias: Float32
    advantage: Float32
    by_rule: float


@numba.njit(cache=True, fastmath=True)
def _layer(x, one, highest, mean, bias):  # type: ignore[no-untyped-def]
    nodes, width = x.shape
    top, middle = np.zeros(width, np.float32), np.zeros(width, np.float32)
    top[:] = x[0]
    for i in range(nodes):
        for k in range(width):
            middle[k] += x[i, k]
            top[k] = max(top[k], x[i, k])
    middle /= np.float32(nodes)
    shift = np.dot(top, highest) + np.dot(middle, mean) + bias
    out = np.dot(x, one)
    for i in range(nodes):
        for k in range(len(shift)):
            out[i, k] = max(out[i, k] + shift[k], np.float32(0.0))
    return out


@numba.njit(cache=True, fastmath=True)
def forward(seen, w):  # type: ignore[no-untyped-def]
    """(N,) values of nodes (N, WIDTH), as the network gives them without the state's value."""
    hidden = _layer(seen, w.one, w.highest, w.mean, w.bias)
    hidden = _layer(hidden, w.second_one, w.second_highest, w.second_mean, w.second_bias)
    return np.dot(hidden, w.advantage) + np.float32(w.by_rule) * seen[:, 0]


@numba.njit(cache=True)
def terminal(state, arrivals, w):  # type: ignore[no-untyped-def]
    """Share of the GPUs that is allocated when all pods have arrived; equal nodes: the first."""
    whole = state.gpu.sum()
    seen, among = np.zeros((len(state.pods), WIDTH), np.float32), np.zeros(len(state.pods), np.bool_)
    for j in range(len(arrivals.asked)):
        look(state, arrivals, j, seen, among)
        if not among.any():
            continue
        values = forward(seen, w)
        best, top = -1, -np.inf
        for i in range(len(among)):
            if among[i] and (best < 0 or values[i] > top):
                best, top = i, values[i]
        put(state, arrivals, j, best)
    return 1.0 - state.gpu.sum() / whole


Values = Callable[[Float32], Float]
"""(N,) values of nodes (N, WIDTH)."""


def replay(
    nodes: Nodes,
    pods: Pods,
    order: NDArray[np.int64],
    kinds: TypicalPods,
    rule: str,
    values: Values,
    ties: Ties,
    seed: int,
) -> Replayed:
    """Place the pods of `order` one after the other by a network, as `published.replay` does by a scheduler.

    rule: that of the network's first column, one of CORES_WEIGHT_OF.
    """
    shuffled = np.random.default_rng(seed).permutation(len(nodes.gpus))
    rng = np.random.default_rng([seed, 1])
    state, arrivals = begin(Nodes._make(column[shuffled] for column in nodes), pods, order, kinds, rule)
    whole, arrived = state.gpu.sum(), 0.0
    curve, placed = np.full(140, np.nan), np.full(len(order), -1, np.int64)
    seen, among = np.zeros((len(shuffled), WIDTH), np.float32), np.zeros(len(shuffled), np.bool_)
    gpus = arrivals.asked[:, 2] * arrivals.asked[:, 3]
    allocated = 0.0
    for j in range(len(order)):
        look(state, arrivals, j, seen, among)
        arrived += gpus[j]
        if among.any():
            placed[j] = _best(values(seen), among, rng if ties is Ties.RANDOM else None)
            put(state, arrivals, j, placed[j])
            allocated += gpus[j]
        if (at := int(arrived / whole * 100)) < len(curve):
            curve[at] = 100 * allocated / whole
    return Replayed(curve, 100 * allocated / whole, np.where(placed >= 0, shuffled[placed], -1))


def _best(values: Float, among: Bool, rng: np.random.Generator | None) -> int:
    """The best node of `among`; of equals the first, or any with `rng`."""
    first = np.where(among, values, -np.inf)
    if rng is None:
        return int(first.argmax())
    return int(rng.choice(np.flatnonzero(first == first.max())))
