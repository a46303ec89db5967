"""What the ceiling costs and saves, and which fallback is best: J, cost and late requests on simulated loads.

python benchmarks/ceiling.py [--episodes 48]

The first table plays the bundled network and the forecast rule with and without the ceiling, in episodes of an hour
and of ten minutes, as comparisons have them. The second plays what acts where the network may not: no actor, by each
fallback, on services outside the envelope.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np

from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.decision.types import FallbackBehavior, Float32, Params
from rlscaler_core.models import load_bundled
from rlscaler_rl.simulation.episode import run
from rlscaler_rl.simulation.scenario import Scenarios, with_changed_params
from rlscaler_rl.workloads.draw import episodes
from rlscaler_rl.workloads.names import Part

LOADS = ("ramp", "spike", "random", "servegen_large")
OUTSIDE: dict[str, dict[str, Any]] = {
    "cold start 240 s": {"cold_start_low": (168.0, 5.6), "cold_start_high": (312.0, 10.4)},
    "SLO 10 s": {"slo_ms": 10_000.0},
    "maxReplicas 40": {"max_replicas": (40, 40)},
}
FALLBACKS = (FallbackBehavior.FORECAST_RULE, FallbackBehavior.HPA_FORMULA, FallbackBehavior.CURRENT_REPLICAS)


class Failing:
    """An actor whose answer is never usable, so that its fallback acts."""

    manifest = Manifest(name="failing", stack_size=1)

    def probabilities(self, stacked: Float32) -> Float32:
        return np.full((len(stacked), 13), np.nan, np.float32)


def changed(scenarios: Scenarios, **columns: Any) -> Scenarios:
    """The same episodes with other columns of the policies' specs."""

    def change(params: Params) -> Params:
        for name, value in columns.items():
            getattr(params, name)[:] = value
        return params

    return with_changed_params(change)(scenarios)


def figures(scenarios: Scenarios, actor: Any) -> str:
    result = run(scenarios, actor).result
    return " | ".join(f"{getattr(result, name).mean():.2f}" for name in ("j", "cost", "late_percent"))


def ceiling(count: int) -> Iterator[str]:
    yield "load | minutes | actor | J, cost, late % without | J, cost, late % with"
    for load in LOADS:
        for seconds in (600, 3600):
            made = episodes(load, Part.TEST, runs=1, episodes=count, duration_seconds=seconds)
            for name in ("ppo", "rule"):
                without, with_it = (figures(changed(made, ceiling=on), load_bundled(name)) for on in (False, True))
                yield f"{load} | {seconds // 60} | {name} | {without} | {with_it}"


def fallbacks(count: int) -> Iterator[str]:
    yield "service | load | fallback | J | cost | late %"
    for name, service in OUTSIDE.items():
        for load in LOADS[:3]:
            made = episodes(load, Part.TEST, runs=1, episodes=count, duration_seconds=1800, **service)
            for fallback in FALLBACKS:
                scenarios = changed(made, fallback=fallback, failure_threshold=1)
                yield f"{name} | {load} | {fallback.name} | {figures(scenarios, Failing())}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=48, help="episodes of each load")
    chosen = parser.parse_args().episodes
    for line in (*ceiling(chosen), "", *fallbacks(chosen)):
        print(line, flush=True)
