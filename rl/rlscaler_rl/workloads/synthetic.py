"""Episodes of loads that are drawn: the patterns, plain and varied, steady loads, single pools, other services."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.types import CPU, GPU
from rlscaler_loadgen.patterns import rate
from rlscaler_rl.simulation.randomisation import randomised
from rlscaler_rl.simulation.ranges import RANGES
from rlscaler_rl.simulation.scenario import NOMINAL, Scenarios, from_rate, nominal
from rlscaler_rl.workloads.names import MIXED, PATTERNS, VARIED, WorkloadError

VARIED_SCALE = (0.3, 1.5)
"""Log-uniform factor on the load of a varied episode."""

VARIED_PERIOD_SECONDS = (120.0, 600.0)
"""Period of its sinusoid, uniform."""

IDLE_EVERY = 5
"""One of so many flat episodes has no load at all."""

ENVELOPE = replace(RANGES, nominal_share=0.0, wholly_nominal_share=0.0, one_pool_share=0.0, floor_share=1.0)
"""Every column drawn; single pools have a workload of their own."""


@dataclass(frozen=True)
class _Asked:
    """Request for episodes; levels in requests/s, times in seconds."""

    seeds: NDArray[np.int64]
    episodes: int
    duration: int
    interval: float
    low: float
    high: float
    service: dict[str, Any]

    def of(self, rows: NDArray[np.bool_]) -> _Asked:
        return replace(self, seeds=self.seeds[rows])


def make(
    name: str,
    seeds: NDArray[np.int64],
    episodes: int,
    duration: int,
    interval: float,
    low: float,
    high: float,
    service: dict[str, Any],
) -> Scenarios:
    """Scenarios of a drawn workload, one row per seed; `episodes` of them make a run.

    The initial replicas are left to the caller.
    """
    request = _Asked(seeds, episodes, duration, interval, low, high, service)
    if name in PATTERNS:
        return _plain([name] * len(seeds), request)
    if name in VARIED:
        return _varied(name, [PATTERNS[VARIED.index(name)]] * len(seeds), request)
    if name == MIXED:
        return _varied(name, np.resize(PATTERNS, len(seeds)).tolist(), request)
    return {"flat": _flat, "one_pool": _one_pool, "envelope": _envelope}[name](request)


def _plain(patterns: Sequence[str], request: _Asked, **overrides: Any) -> Scenarios:
    levels = {"low": request.low, "high": request.high} | overrides
    return nominal(
        patterns, request.seeds.tolist(), request.duration, request.interval, **{**levels, **request.service}
    )


def _varied(name: str, patterns: Sequence[str], request: _Asked) -> Scenarios:
    loads = []
    for pattern, seed in zip(patterns, request.seeds.tolist(), strict=True):
        # A generator of its own, so that the shape does not depend on the arrivals.
        rng = np.random.default_rng([seed, 2])
        shape: dict[str, Any] = {"scale_range": VARIED_SCALE, "random_phase": True}
        shape["period_s"] = float(rng.uniform(*VARIED_PERIOD_SECONDS))
        loads.append(rate(pattern, request.duration, rng, low=request.low, high=request.high, **shape))
    return from_rate(np.stack(loads), request.seeds, request.interval, pattern=name, **request.service)


def _flat(request: _Asked) -> Scenarios:
    """Constant loads, drawn between nothing and the patterns' peak."""
    levels = np.array([np.random.default_rng([seed, 3]).uniform(0, request.high) for seed in request.seeds.tolist()])
    # A service without load has to fall to its minimum and stay there.
    levels[::IDLE_EVERY] = 0
    loads = np.repeat(levels[:, None], request.duration, axis=1)
    return from_rate(loads, request.seeds, request.interval, pattern="flat", **request.service)


def _one_pool(request: _Asked) -> Scenarios:
    """GPU and CPU alone in turn; the load shrinks by as much as the service's capacity."""
    rows = np.arange(len(request.seeds))
    patterns = np.array(PATTERNS)[rows // 2 % len(PATTERNS)]
    rps = np.broadcast_to(request.service.get("rps", NOMINAL["rps"]), (len(rows), 2))
    halves = []
    for pool in (GPU, CPU):
        mine = rows % 2 == pool
        if mine.any():
            share = float((rps[:, pool] / rps.sum(1))[mine][0])
            levels = {"low": request.low * share, "high": request.high * share}
            present = (pool == GPU, pool == CPU)
            halves.append(_plain(patterns[mine].tolist(), request.of(mine), present=present, **levels))
    return Scenarios.concat(halves).take(np.argsort(rows % 2, kind="stable").argsort())


def _envelope(request: _Asked) -> Scenarios:
    """Services and loads drawn from all that training draws from, with seeds of their own."""
    if request.service:
        raise WorkloadError(
            f"envelope: draws its services itself; leave {', '.join(sorted(request.service))} at the defaults"
        )
    runs = []
    for first in range(0, len(request.seeds), request.episodes):
        seeds = request.seeds[first : first + request.episodes]
        rng = np.random.default_rng([int(seeds[0]), 4])
        run = randomised(len(seeds), rng, request.interval, request.duration, ENVELOPE)
        run.seed[:], run.past_rate[:] = seeds, run.rate[:, 0]
        runs.append(run)
    scenarios = Scenarios.concat(runs)
    scenarios.pattern = np.full(len(scenarios), "envelope", dtype="<U16")
    return scenarios
