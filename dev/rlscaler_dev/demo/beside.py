"""Alternatives that could have scaled the load of a run: another run of the same load, and the best constant replicas.

Another run is read from its own result folder. The constant replicas are computed: of every pair within the bounds of
the pools, the requests that were sent in the run are played, each with the service time that the emulated service
gives it, one after the other to whichever replica of its pool is free first.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from rlscaler_dev.demo.records import Float, Records, Run
from rlscaler_dev.demo.settings import CPU_POOL, GPU_POOL, Pool
from rlscaler_dev.demo.timeline import Timeline
from rlscaler_dev.exceptions import RecordError
from rlscaler_loadgen.service.replica import ServiceTimes

MOST_LATE = 0.01
"""Share of the requests that may be late under the constant replicas: 1 less the objective of a policy, 99 %."""


@dataclass(frozen=True, slots=True)
class Beside:
    """Another way to scale the load of a run."""

    name: str
    """For legends, where there is little room."""

    label: str
    gpu: Float
    """(n,) replicas that are ready in each second."""

    cpu: Float
    late: Float
    """(n,) requests of each second that are late or fail."""

    gpu_hours: float
    """GPU replica-hours over the load, starting pods included."""

    late_ratio: float
    """Late or failed requests, of all; NaN where none was sent."""


def best_constant(records: Records) -> Beside | None:
    """Return the cheapest constant replicas under which at most `MOST_LATE` of the requests of a run are late.

    The replicas are ready before the load begins, and traffic is split by their capacity. The latency of the network is
    left out. None where no pair within the bounds of the pools is enough.
    """
    run, seconds = records.run, len(records.offered_rps)
    arrived = np.sort(records.requests.between(run.started_at, run.started_at + seconds).scheduled_at) - run.started_at
    times = ServiceTimes(run.seed)
    factors = np.array([next(times) for _ in arrived])
    gpus, cpus = (range(pool.min_replicas, pool.max_replicas + 1) for pool in (GPU_POOL, CPU_POOL))
    for gpu, cpu in sorted(product(gpus, cpus), key=_price):
        late = _late(arrived, factors, gpu, cpu, run.slo_ms / 1000)
        if late.sum() <= MOST_LATE * len(arrived):
            return Beside(
                name="constant",
                label=f"best constant replicas (computed, {gpu} GPU + {cpu} CPU)",
                gpu=np.full(seconds, float(gpu)),
                cpu=np.full(seconds, float(cpu)),
                late=np.bincount(np.minimum(arrived[late].astype(int), seconds - 1), minlength=seconds).astype(float),
                gpu_hours=gpu * seconds / 3600,
                late_ratio=_ratio(int(late.sum()), len(arrived)),
            )
    return None


def _price(pair: tuple[int, int]) -> float:
    return GPU_POOL.cost_per_hour * pair[0] + CPU_POOL.cost_per_hour * pair[1]


def _late(arrived: Float, factors: Float, gpu: int, cpu: int, slo_seconds: float) -> NDArray[np.bool_]:
    """Return which requests (m,), by their moments of arrival, are late under so many replicas of both pools."""
    capacity = gpu * GPU_POOL.requests_per_second, cpu * CPU_POOL.requests_per_second
    turns = np.floor(np.arange(len(arrived) + 1) * capacity[0] / sum(capacity))
    to_gpu = np.diff(turns) > 0  # as weighted round robin shares them out
    late = np.zeros(len(arrived), dtype=bool)
    for pool, count, mine in ((GPU_POOL, gpu, to_gpu), (CPU_POOL, cpu, ~to_gpu)):
        late[mine] = _latency(arrived[mine], factors[mine], pool, count) > slo_seconds
    return late


def _latency(arrived: Float, factors: Float, pool: Pool, replicas: int) -> Float:
    """Return the seconds (m,) from arrival to answer of requests that a pool answers in the order of their arrival."""
    free = [0.0] * replicas
    seconds = []
    for at, factor in zip(arrived.tolist(), (factors / pool.requests_per_second).tolist(), strict=True):
        done = max(at, free[0]) + factor
        heapq.heapreplace(free, done)
        seconds.append(done - at)
    return np.array(seconds)


def other_run(run: Run, other: Run, timeline: Timeline, gpu_replica_seconds: float) -> Beside:
    """Return replicas and late requests of the `other` run, whose `timeline` it is.

    Raises RecordError where it had another load than `run`.
    """
    for name in ("pattern", "seed", "duration_s", "slo_ms"):
        if getattr(run, name) != getattr(other, name):
            raise RecordError(
                f"--beside: a run of another load: {name} is {getattr(other, name)} there and {getattr(run, name)} "
                "here; play both with the same options"
            )
    missed = timeline.failed + timeline.late
    return Beside(
        name={"rl": "policy", "hpa": "HPA"}.get(other.contender, other.contender),
        label={"rl": "RLScalingPolicy", "hpa": "HorizontalPodAutoscaler"}.get(other.contender, other.contender),
        gpu=timeline.gpu_ready,
        cpu=timeline.cpu_ready,
        late=missed,
        gpu_hours=gpu_replica_seconds / 3600,
        late_ratio=_ratio(float(missed.sum()), float(timeline.sent.sum())),
    )


def _ratio(late: float, sent: float) -> float:
    return late / sent if sent else float("nan")
