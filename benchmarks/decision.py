"""Time of one batch of decisions: observe, actor and shield, no I/O.

    python benchmarks/decision.py [--rows 1000] [--repeats 300] [--out FILE]

Prints milliseconds a batch (best, median and 99th percentile, beside the machine's load), and how much longer the
same decisions take one by one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.decide import decide
from rlscaler_core.decision.observation import sense
from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_core.decision.types import Params, Samples, State
from rlscaler_core.models import load_bundled
from rlscaler_dev.benchmark import machine, out_option, write

QUANTILES = {"best": 0, "p50": 50, "p99": 99}

BEHAVIOR_EVERY = 4
"""One policy in so many has a `behavior`."""


def fleet(n: int, stack_size: int, seed: int = 0) -> tuple[Params, State, Samples]:
    """N policies of all kinds after eleven minutes of load; one in `BEHAVIOR_EVERY` with a `behavior`."""
    generator = np.random.default_rng(seed)
    rules = np.zeros((n, 2, 4, 3))
    rules[::BEHAVIOR_EVERY, 0, 0] = 1, 4, 60
    rules[::BEHAVIOR_EVERY, 1, 0] = 2, 50, 60
    windows = np.zeros((n, 2))
    windows[::BEHAVIOR_EVERY, 1] = 120
    present = generator.random((n, 2)) > 0.08
    present[~present.any(axis=1)] = True
    params = make_params(
        n,
        present=present,
        requests_per_second=np.array([20.0, 4.0]) * generator.uniform(0.5, 2, (n, 1)),
        rules=rules,
        stabilization_seconds=windows,
        learns_capacity=True,
    )
    state = initial_state(n, stack_size)
    for tick in range(135):
        spec = np.where(present, generator.integers(1, 11, (n, 2)), 0)
        samples = make_samples(
            n,
            time=1e9 + 5.0 * tick,
            arrival_rate=generator.uniform(5, 60, n),
            cpu_utilization=generator.uniform(10, 100, n),
            memory_utilization=generator.uniform(10, 100, n),
            gpu_utilization=generator.uniform(10, 100, n),
            p95_ms=generator.uniform(50, 2000, n),
            spec_replicas=spec,
            ready_replicas=spec,
        )
        state = sense(params, state, samples)
    return params, state, samples


def timed(call: Callable[[], Any], repeats: int) -> np.ndarray:
    """(repeats,) milliseconds."""
    taken = np.empty(repeats)
    for repeat in range(repeats):
        begin = time.perf_counter()
        call()
        taken[repeat] = (time.perf_counter() - begin) * 1e3
    return taken


def measure(actor: ActorLike, rows: int, repeats: int) -> dict[str, float]:
    params, state, samples = fleet(rows, actor.manifest.stack_size)
    following = replace(samples, time=samples.time + 5)
    parts = {
        "decide": lambda: decide(params, state, samples, actor),
        "sense": lambda: sense(params, state, following),
        "floor_tick": lambda: decide(params, state, following, kind="floor"),
    }
    figures: dict[str, float] = {}
    for name, call in parts.items():
        timed(call, 20)
        taken = timed(call, repeats)
        figures |= {f"{name}_ms_{key}": float(np.percentile(taken, at)) for key, at in QUANTILES.items()}
    single = [
        (params.take(slice(row, row + 1)), state.take(slice(row, row + 1)), samples.take(slice(row, row + 1)))
        for row in range(rows)
    ]
    one_by_one = timed(lambda: [decide(*row, actor) for row in single], 3)
    figures["one_by_one_ms"] = float(np.median(one_by_one))
    figures["one_by_one_ratio"] = figures["one_by_one_ms"] / figures["decide_ms_p50"]
    return figures


@click.command()
@click.option("--rows", default=1000, show_default=True, help="Policies in the batch.")
@click.option("--repeats", default=300, show_default=True)
@out_option
def main(rows: int, repeats: int, out: Path | None) -> None:
    """Time one batch of decisions."""
    actor = load_bundled("ppo")
    figures = measure(actor, rows, repeats)
    report = {
        "actor": f"bundled ppo {actor.manifest.digest[:12]}",
        "rows": rows,
        "machine": machine(),
        "load_average": round(os.getloadavg()[0], 2),
        **{name: round(value, 3) for name, value in figures.items()},
    }
    for name, value in report.items():
        click.echo(f"{name:20} {value}")
    write(out, report)


if __name__ == "__main__":
    main()
