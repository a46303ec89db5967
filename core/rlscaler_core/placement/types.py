"""Nodes and pods as arrays, for every scoring policy, in the simulator, in replays and on a cluster.

Leading dimensions are free: the server scores one pod on N nodes, a simulator E pods on E clusters of N nodes each.
Every quantity is a whole number in its unit, so that sums and comparisons of float64 are exact.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Bool = NDArray[np.bool_]

RESOURCES = ("cpu", "memory")
"""Columns of allocatable and requested: millicores and MiB."""
MOST_GPUS = 8
"""GPUs of a node that are told apart."""
WHOLE_GPU = 1000
"""Thousandths of a GPU in one GPU."""
GPU_INDEX = "rlscaler.io/gpu-index"
"""Annotation of a pod: on which GPU of its node its share is, from 0."""


class Nodes(NamedTuple):
    """N nodes as the scheduler counts them: by the requests of their pods."""

    allocatable: Float
    """(..., N, 2) millicores and MiB."""
    requested: Float
    """(..., N, 2) the same, by the pods on the node."""
    pods: Float
    """(..., N) pods on the node."""
    pod_limit: Float
    """(..., N) most pods that it takes."""
    gpus: Float
    """(..., N) GPUs that it has, at most MOST_GPUS."""
    gpu_free: Float
    """(..., N, MOST_GPUS) free thousandths of each GPU; 0 where there is no such GPU."""
    gpu_model: Int
    """(..., N) one bit, which stands for the model of its GPUs; 0 without GPUs."""
    latency_ms: Float
    """(..., N) round trip to the users; NaN where it was not measured."""
    empty_in_s: Float
    """(..., N) seconds until the last of its pods ends, 0 for a node without pods; NaN where that is not known."""
    in_use: Float
    """(..., N, 2) share of CPU and memory that is really used, with the requests of pods that came since it was
    measured; NaN where there is no fresh measurement."""

    def one(self, index: int) -> Nodes:
        """The node of this index alone, as N = 1; for arrays without leading dimensions."""
        return Nodes._make(column[index : index + 1] for column in self)


class Pods(NamedTuple):
    """One pod for each of the leading dimensions."""

    requests: Float
    """(..., 2) millicores and MiB."""
    gpus: Float
    """(...) GPUs that it asks for."""
    gpu_milli: Float
    """(...) thousandths that it asks for on each of them; 0 without GPUs, below WHOLE_GPU only on one GPU."""
    gpu_models: Int
    """(...) bits of the models that it may run on; 0 = any."""
    soft_ms: Float
    """(...) latency that it prefers to stay below; NaN without one."""
    hard_ms: Float
    """(...) latency above which a node is refused; NaN without one."""
    lifetime_s: Float
    """(...) how long it is expected to run; NaN where that is not known."""


def pod(
    cpu_milli: float,
    memory_mib: float,
    *,
    gpus: float = 0,
    gpu_milli: float = WHOLE_GPU,
    gpu_models: int = 0,
    soft_ms: float = np.nan,
    hard_ms: float = np.nan,
    lifetime_s: float = np.nan,
) -> Pods:
    """One pod, without leading dimensions."""
    return Pods(
        np.array([cpu_milli, memory_mib], float),
        np.array(gpus, float),
        np.array(gpu_milli if gpus else 0, float),
        np.array(gpu_models, np.int64),
        np.array(soft_ms, float),
        np.array(hard_ms, float),
        np.array(lifetime_s, float),
    )


def empty_nodes(
    allocatable: Float, *, gpus: Float | None = None, gpu_model: Int | None = None, pod_limit: float = 110
) -> Nodes:
    """Nodes (..., N) without pods, and without measured latency and use."""
    shape = allocatable.shape[:-1]
    count = np.zeros(shape) if gpus is None else gpus.astype(float)
    return Nodes(
        allocatable.astype(float),
        np.zeros((*shape, len(RESOURCES))),
        np.zeros(shape),
        np.full(shape, float(pod_limit)),
        count,
        np.where(np.arange(MOST_GPUS) < count[..., None], float(WHOLE_GPU), 0.0),
        np.zeros(shape, np.int64) if gpu_model is None else gpu_model,
        np.full(shape, np.nan),
        np.zeros(shape),
        np.full((*shape, len(RESOURCES)), np.nan),
    )
