"""Speed of the simulator: action intervals of 30 one-second ticks, and requests, in a second of CPU time.

    python benchmarks/simulator.py [--envs 512] [--seconds 5] [--out FILE]

At the fluid level the clusters alone; with their p95 read once an interval; with the decision function around them (six
sensing ticks with floor and weights, one observation and one shielded action an interval), as training and evaluation
run it; and the VecEnv with its randomised scenarios and restarts. At the request level the clusters alone, in requests,
for every router. At the token level drawn services with the decision function around them, in replica-hours.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np

from rlscaler_core.decision.action import from_indices
from rlscaler_core.models import load_bundled
from rlscaler_dev.benchmark import machine, out_option, write
from rlscaler_rl.simulation import sensing
from rlscaler_rl.simulation.batch import Batch
from rlscaler_rl.simulation.cluster import ROUTERS
from rlscaler_rl.simulation.ranges import Ranges
from rlscaler_rl.simulation.scenario import nominal
from rlscaler_rl.simulation.tokens.drawn import drawn
from rlscaler_rl.simulation.tokens.episode import run
from rlscaler_rl.simulation.vec_env import SimulatorVecEnv

INTERVAL, DURATION = 30, 3600
PATTERNS = ("ramp", "spike", "periodic", "random")


def batch_of(envs: int) -> Batch:
    return Batch(nominal([PATTERNS[i % 4] for i in range(envs)], list(range(envs)), DURATION, float(INTERVAL)))


def clusters_alone(envs: int) -> Callable[[], None]:
    batch = batch_of(envs)
    batch.scale(np.full((envs, 2), 5), np.full((envs, 2), 500))

    def step() -> None:
        for _ in range(INTERVAL // 5):
            batch.advance(5)
        rewind(batch)

    return step


def with_latencies(envs: int) -> Callable[[], None]:
    batch = batch_of(envs)
    batch.scale(np.full((envs, 2), 5), np.full((envs, 2), 500))

    def step() -> None:
        for _ in range(INTERVAL // 5):
            batch.advance(5)
        sensing.sense(batch.facts, batch.sensors, batch.cluster, batch.rows)
        rewind(batch)

    return step


def request_level(envs: int, router: int) -> tuple[Callable[[], None], float]:
    """The step, and how many requests a row and step has on the average."""
    names = [PATTERNS[i % 4] for i in range(envs)]
    scenarios = nominal(names, list(range(envs)), DURATION, float(INTERVAL), router=router)
    batch = Batch(scenarios, level="request")
    batch.scale(np.full((envs, 2), 5), np.tile([100, 20], (envs, 1)))

    def step() -> None:
        for _ in range(INTERVAL // 5):
            batch.advance(5)
        rewind(batch)

    return step, float(scenarios.mean_rate().mean() * INTERVAL)


def with_decisions(envs: int) -> Callable[[], None]:
    batch, rng = batch_of(envs), np.random.default_rng(0)

    def step() -> None:
        samples, observation, _ = batch.observe()
        batch.act(samples, observation, from_indices(rng.integers(0, [5, 5, 3], (envs, 3))))
        batch.finish_interval()
        rewind(batch)

    return step


def rewind(batch: Batch) -> None:
    """Begin again when the load is over."""
    if batch.cluster.row["time"][0] >= DURATION:
        batch.restart(batch.rows, batch.scenarios.copy())


def vec_env(envs: int) -> Callable[[], None]:
    env = SimulatorVecEnv(envs, 0, ranges=Ranges(intervals=(INTERVAL,)), asymmetric=True)
    env.reset()
    rng = np.random.default_rng(0)

    def step() -> None:
        env.step(rng.integers(0, [5, 5, 3], (envs, 3)))

    return step


def token_level(services: int) -> tuple[float, float]:
    """Return the replica-hours, and the requests, that are played in a second of CPU time."""
    world, rule = drawn(services, DURATION, 1), load_bundled("rule")
    given = (world.services, world.requests, rule, world.declared)
    run(*given, 60.0)  # compiles
    begin = time.process_time()
    played = run(*given, world.seconds).result
    seconds = time.process_time() - begin
    return float(played.replicas.sum()) / seconds, float(played.requests.sum()) / seconds


def intervals_per_second(step: Callable[[], None], envs: int, seconds: float) -> float:
    """Speed in CPU time, so that other processes on the machine count little.

    It is the median of ten stretches, after compilation and a warm-up.
    """
    for _ in range(5):
        step()
    rates = []
    for _ in range(10):
        begin, steps = time.process_time(), 0
        while time.process_time() - begin < seconds / 10:
            step()
            steps += 1
        rates.append(envs * steps / (time.process_time() - begin))
    return float(np.median(rates))


@click.command()
@click.option("--envs", default=512, show_default=True)
@click.option("--seconds", default=5.0, show_default=True, help="For each figure.")
@out_option
def main(envs: int, seconds: float, out: Path | None) -> None:
    """Print env-steps/s of 30 ticks each, and requests/s, a core."""
    figures: dict[str, object] = {"envs": envs, "ticks_a_step": INTERVAL}
    for make in (clusters_alone, with_latencies, with_decisions, vec_env):
        rate = intervals_per_second(make(envs), envs, seconds)
        figures[make.__name__] = round(rate)
        click.echo(f"{make.__name__:>16}: {rate:10,.0f} env-steps/s   {1e9 / rate / INTERVAL:6.1f} ns a tick")
    for index, router in enumerate(ROUTERS):
        step, requests = request_level(64, index)
        rate = intervals_per_second(step, 64, seconds) * requests
        figures[f"requests_{router}"] = round(rate)
        click.echo(f"{router:>16}: {rate:10,.0f} requests/s    {1e9 / rate:6.1f} ns a request")
    hours, requests = token_level(24)
    figures |= {"token_level_replica_hours": round(hours, 1), "token_level_requests": round(requests)}
    click.echo(f"{'token level':>16}: {hours:10,.0f} replica-hours/s {requests:,.0f} requests/s")
    write(out, figures | {"machine": machine()})


if __name__ == "__main__":
    main()
