"""An endless supply of episodes of one workload, to train on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rlscaler_core.decision.spec import UNCHANGED, SpecSettings, with_spec
from rlscaler_rl.baselines.contender import cheapest_mix
from rlscaler_rl.simulation.randomisation import PLANNED
from rlscaler_rl.simulation.scenario import NOMINAL, Scenarios, from_rate, with_changed_params
from rlscaler_rl.simulation.scenario_buffer import ChunkedSource
from rlscaler_rl.workloads.draw import episodes
from rlscaler_rl.workloads.library import recorded_part
from rlscaler_rl.workloads.names import TRACES, Part
from rlscaler_rl.workloads.trace_loads import TraceLoads

STANDING_SHARE = 0.4
"""Share of the episodes that have higher minReplicas, where `standing` gives any."""

UTILIZATION = (0.6, 0.95)
"""Episodes begin with the cheapest replicas that carry the load before them at a utilization drawn from this."""

SCALE = (0.85, 1.25)
"""Log-uniform factor on half of the recorded episodes: the part that is judged is another one."""


class WorkloadSource:
    """Episodes of the nominal service under a workload's train part; every draw comes from `rng`.

    A recorded load begins anywhere in the part, a pattern has another seed in every episode. `spec` is what is set of
    the policy's spec; `standing` are higher minReplicas (GPU, CPU), one of which `STANDING_SHARE` of the episodes have.
    Raises WorkloadError for a workload without a train part.
    """

    def __init__(
        self,
        name: str,
        rng: np.random.Generator,
        *,
        duration_seconds: int = 600,
        spec: SpecSettings = UNCHANGED,
        standing: Sequence[tuple[int, int]] = (),
        traces: Path | None = None,
    ) -> None:
        self.name, self.rng = name, rng
        self.duration = duration_seconds
        self.interval = float(spec.interval_seconds or NOMINAL["interval_seconds"])
        self.under_spec = with_changed_params(lambda params: with_spec(params, spec))
        self.standing = np.array(standing, np.int64).reshape(-1, 2)
        self.loads: TraceLoads | None = None
        if name in TRACES:
            self.loads = TraceLoads(recordings=[recorded_part(name, Part.TRAIN, traces)])
        self.take = ChunkedSource(self._draw)

    def _draw(self, n: int) -> Scenarios:
        made = self._pattern(n) if self.loads is None else self._recorded(self.loads, n)
        if len(self.standing):
            others = self.standing[self.rng.integers(len(self.standing), size=n)]
            some = self.rng.random((n, 1)) < STANDING_SHARE
            made.min_replicas[:] = np.where(some, others, made.min_replicas)
        made = self.under_spec(made)
        params = made.params()
        mix = cheapest_mix(params, made.past_rate / self.rng.uniform(*UTILIZATION, n))
        made.initial[:] = np.maximum(mix, params.min_replicas)
        return made

    def _pattern(self, n: int) -> Scenarios:
        return episodes(
            self.name,
            Part.TRAIN,
            runs=1,
            episodes=n,
            seed=int(self.rng.integers(2**31)),
            duration_seconds=self.duration,
            interval_seconds=self.interval,
        )

    def _recorded(self, loads: TraceLoads, n: int) -> Scenarios:
        rng = self.rng
        low, high = (math.log(bound) for bound in SCALE)
        factor = PLANNED * _capacity() * np.where(rng.random(n) < 0.5, np.exp(rng.uniform(low, high, n)), 1.0)
        rate = loads.draw(n, self.duration, rng) * factor[:, None]
        return from_rate(rate, rng.integers(2**62, size=n), self.interval, pattern=self.name[:16])


def _capacity() -> float:
    """Requests/s of all replicas of the nominal service."""
    return float(np.dot(NOMINAL["max_replicas"], NOMINAL["rps"]))
