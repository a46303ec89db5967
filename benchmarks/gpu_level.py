"""How fast the fluid level is on a GPU beside one core of the processors, and how far their ledgers are apart.

    python -m benchmarks.gpu_level [--rows 1024 --rows 131072 ...] [--seconds 4] [--out FILE]

A step is an action interval with the decision function around the clusters: an observation, a shielded action, and a
sensing tick with floor and weights every five seconds. The processors play batches of `PROCESSOR_ROWS`, about the
fastest size there, in one thread. The ledgers are those of whole episodes of the four patterns with the same actions.
"""

from __future__ import annotations

import dataclasses
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np

from rlscaler_core.decision.action import from_indices
from rlscaler_core.decision.rule import RuleSettings
from rlscaler_dev.benchmark import machine, out_option, write
from rlscaler_rl.simulation import cuda, ledger
from rlscaler_rl.simulation.batch import Batch
from rlscaler_rl.simulation.episode import LATE_WEIGHT
from rlscaler_rl.simulation.levels import PlaceName
from rlscaler_rl.simulation.scenario import Scenarios, nominal
from rlscaler_rl.simulation.vec_env import SimulatorVecEnv

PATTERNS = ("ramp", "spike", "periodic", "random")
PROCESSOR_ROWS = 512
EPISODES = 4096
"""Episodes whose ledgers are compared, of `DURATION` seconds each."""

DURATION = 600
DRAWN = 256
"""Different loads among the rows whose speed is measured."""


def scenarios(rows: int, interval: int, duration: int, drawn: int = DRAWN) -> Scenarios:
    some = min(rows, drawn)
    made = nominal([PATTERNS[i % 4] for i in range(some)], list(range(some)), duration, float(interval))
    return made.take(np.arange(rows) % some)


def finish(level: PlaceName) -> None:
    """Wait for what was asked of the GPU."""
    if level == "cuda":
        import cupy

        cupy.cuda.Device().synchronize()


def decided(batch: Batch, actions: np.ndarray) -> None:
    """Play one action interval with the decision function."""
    samples, observation, _ = batch.observe()
    batch.act(samples, observation, actions)
    batch.finish_interval()


def speed(step: Callable[[], None], rows: int, steps: int, seconds: float, level: PlaceName) -> float:
    """Env-steps/s in the median over `steps` that are timed, fewer where these take longer than `seconds`."""
    for _ in range(2):
        step()
    finish(level)
    taken: list[float] = []
    while len(taken) < steps and sum(taken) < seconds:
        begin = time.perf_counter()
        step()
        finish(level)
        taken.append(time.perf_counter() - begin)
    return rows / float(np.median(taken))


def speeds(level: PlaceName, rows: int, interval: int, seconds: float) -> dict[str, Any]:
    """Env-steps/s of the clusters alone, with the decision function, and with the rule under it."""
    found: dict[str, Any] = {"level": level, "rows": rows, "interval": interval}
    steps = 15
    episodes = scenarios(rows, interval, interval * (3 * steps + 10))
    batch = Batch(episodes, level=level, history=64)
    actions = batch.level.place(from_indices(np.random.default_rng(0).integers(0, [5, 5, 3], (rows, 3))))
    found["decision"] = speed(lambda: decided(batch, actions), rows, steps, seconds, level)
    batch.rule = RuleSettings()
    found["rule"] = speed(lambda: decided(batch, actions), rows, steps, seconds, level)
    found["clusters"] = speed(lambda: alone(batch, interval), rows, steps, seconds, level)
    return found


def alone(batch: Batch, interval: int) -> None:
    """Let one action interval pass with the replicas as they are."""
    for _ in range(interval // 5):
        batch.advance(5)


def environments(level: PlaceName, rows: int, seconds: float) -> dict[str, Any]:
    """Env-steps/s of the training environments, whose episodes are drawn at random and begin again."""
    env = SimulatorVecEnv(rows, 0, level=level, threads=1, stagger=True)
    env.reset()
    actions = np.random.default_rng(0).integers(0, [5, 5, 3], (rows, 3))
    rate = speed(lambda: env.step(actions) and None, rows, 12, seconds, level)
    env.close()
    return {"level": level, "rows": rows, "environments": rate}


def ledgers(level: PlaceName, episodes: Scenarios, rule: RuleSettings | None, decides: bool) -> ledger.Ledger:
    """The checked ledger of whole episodes with the actions of one seed."""
    batch, rng = Batch(episodes, rule=rule, level=level, history=64), np.random.default_rng(7)
    for _ in range(DURATION // batch.interval):
        indices = rng.integers(0, [5, 5, 3], (len(episodes), 3))
        if decides:
            decided(batch, batch.level.place(from_indices(indices)))
        else:
            batch.scale(1 + 2 * indices[:, :2], np.tile([600, 400], (len(episodes), 1)))
            alone(batch, batch.interval)
    return ledger.check(ledger.read(batch.level.fetch(batch.cluster)), episodes)


def differences(episodes: Scenarios, rule: RuleSettings | None, decides: bool) -> dict[str, Any]:
    """The largest relative difference of each counter, and the mean difference of J with its 95 % interval."""
    gpu, plain = (ledgers(level, episodes, rule, decides) for level in ("cuda", "fluid"))
    counters = {}
    for field in dataclasses.fields(plain):
        mine, other = getattr(gpu, field.name), getattr(plain, field.name)
        known = np.isfinite(other)
        if known.any():
            apart = np.abs(mine - other)[known] / np.maximum(np.abs(other[known]), 1.0)
            counters[field.name] = float(apart.max())
    own, theirs = (made.cost(episodes.price_ratio) + LATE_WEIGHT * made.late_percent() for made in (gpu, plain))
    apart = own - theirs
    half = 1.96 * apart.std(ddof=1) / np.sqrt(len(apart))
    return {
        "rule": rule is not None,
        "decides": decides,
        "largest_relative_difference": counters,
        "j_fluid": float(theirs.mean()),
        "j_difference": float(apart.mean()),
        "j_interval": [float(apart.mean() - half), float(apart.mean() + half)],
        "episodes_with_other_replicas": int((gpu.billed != plain.billed).any(axis=1).sum()),
    }


def card() -> dict[str, str]:
    """Name, driver and the libraries that matter."""
    import cupy
    import numba
    import numba_cuda

    asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    name, driver = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()[0].split(", ")
    versions = {"cupy": cupy.__version__, "numba": numba.__version__, "numba-cuda": numba_cuda.__version__}
    return {"gpu": name, "driver": driver, "numpy": np.__version__, **versions}


@click.command()
@click.option("--rows", multiple=True, type=int, default=(1024, 8192, 32768, 131072), show_default=True)
@click.option("--interval", "intervals", multiple=True, type=int, default=(15, 30), show_default=True)
@click.option("--seconds", default=4.0, show_default=True, help="The most for each figure.")
@click.option("--environments", "envs", multiple=True, type=int, default=(8192, 32768), show_default=True)
@out_option
def main(
    rows: tuple[int, ...], intervals: tuple[int, ...], seconds: float, envs: tuple[int, ...], out: Path | None
) -> None:
    """Print env-steps/s on the GPU and on one core, and how far the ledgers are apart."""
    if missing := cuda.missing():
        raise click.ClickException(missing)
    report: dict[str, Any] = {"card": card(), "machine": machine(), "speeds": [], "environments": [], "ledgers": []}
    for decides, rule in ((False, None), (True, None), (True, RuleSettings())):
        found = differences(scenarios(EPISODES, 30, DURATION, EPISODES), rule, decides)
        report["ledgers"].append(found)
        click.echo(found)
        write(out, report)
    for interval in intervals:
        for level, count in [("fluid", PROCESSOR_ROWS), *(("cuda", count) for count in rows)]:
            figures = speeds(level, count, interval, seconds)
            report["speeds"].append(figures)
            click.echo({name: round(value) if isinstance(value, float) else value for name, value in figures.items()})
            write(out, report)
    for level, count in [("fluid", PROCESSOR_ROWS), *(("cuda", count) for count in envs)]:
        report["environments"].append(environments(level, count, seconds))
        click.echo(report["environments"][-1])
        write(out, report)


if __name__ == "__main__":
    main()
