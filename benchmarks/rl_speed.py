"""Speed of PPO's training, decision function and shield in the loop, on one core and on two.

    python benchmarks/rl_speed.py [--rollouts 8] [--envs 1024] [--out FILE]

Environment steps (action intervals) a second from begin to end: scenario drawing, rollouts, updates. For 64x64
networks and for the size that ships; beside them, in the same run, the same PPO on a per-environment DummyVecEnv of
the gymnasium environment, and two runs side by side, as `rlscaler train --seeds 1,2` has them. Every figure is measured
in a process of its own, pinned to its cores.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from rlscaler_dev.benchmark import machine, out_option, write
from rlscaler_rl.simulation.gym_env import SimulatorEnv
from rlscaler_rl.training.callbacks import TimeLimitBootstrap
from rlscaler_rl.training.config import AgentConfig, EnvironmentConfig, TrainingConfig
from rlscaler_rl.training.export import bare_manifest
from rlscaler_rl.training.train import make_env, make_model

SIZES = {"64x64": {"hidden_size": 64, "critic_hidden_size": 64}, "shipped": {}}

DUMMY_ENVS = 16
"""Environments of the DummyVecEnv: its speed does not grow with their number."""


class Stopwatch(BaseCallback):
    """Times whole rounds of rollout and update; the first is left out, since it compiles."""

    def __init__(self) -> None:
        super().__init__()
        self.marks: list[tuple[float, float, int]] = []

    def _on_rollout_start(self) -> None:
        self.marks.append((time.perf_counter(), time.process_time(), self.num_timesteps))

    def _on_training_end(self) -> None:
        self._on_rollout_start()

    def _on_step(self) -> bool:
        return True

    def figures(self) -> dict[str, float]:
        (wall, cpu, steps), (wall_end, cpu_end, steps_end) = self.marks[1], self.marks[-1]
        done = steps_end - steps
        return {"steps_per_second": done / (wall_end - wall), "steps_per_cpu_second": done / (cpu_end - cpu)}


def native(config: TrainingConfig) -> VecEnv:
    return make_env(config)


def dummy(config: TrainingConfig) -> VecEnv:
    """The same observations and rewards, one Python environment after the other; the critic sees no more than the
    actor, as these environments show nothing else."""
    contract = bare_manifest(config).contract
    return DummyVecEnv([lambda: SimulatorEnv(contract=contract) for _ in range(DUMMY_ENVS)])


def measure(make: Callable[[TrainingConfig], VecEnv], size: str, envs: int, rollouts: int) -> dict[str, float]:
    """Speed and memory of training in this process, on the cores that it is pinned to."""
    cores = len(os.sched_getaffinity(0))
    config = TrainingConfig(
        environment=EnvironmentConfig(envs=envs), agent=AgentConfig(torch_threads=cores, **SIZES[size])
    )
    torch.set_num_threads(cores)
    torch.distributions.Distribution.set_default_validate_args(False)
    env, watch = make(config), Stopwatch()
    model = make_model(config, env, None)
    model.learn(rollouts * config.agent.buffer_size * env.num_envs, callback=[TimeLimitBootstrap(), watch])
    env.close()
    return watch.figures() | {"peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


KINDS = {"native": native, "dummy": dummy}


def apart(kind: str, size: str, envs: int, rollouts: int, cores: list[int]) -> dict[str, float]:
    """`measure` in a process of its own."""
    command = [sys.executable, __file__, "--only", kind, size, "--envs", str(envs), "--rollouts", str(rollouts)]
    pinned = ["taskset", "-c", ",".join(map(str, cores)), *command]
    return json.loads(subprocess.run(pinned, check=True, capture_output=True, text=True).stdout)  # type: ignore[no-any-return]


def side_by_side(size: str, envs: int, rollouts: int, cores: list[int]) -> dict[str, float]:
    """The sum of runs that have a core each."""
    with ThreadPoolExecutor(len(cores)) as threads:
        runs = list(threads.map(lambda core: apart("native", size, envs, rollouts, [core]), cores))
    together = {name: sum(run[name] for run in runs) for name in ("steps_per_second", "peak_mib")}
    return together | {"steps_per_cpu_second": sum(run["steps_per_cpu_second"] for run in runs) / len(runs)}


@click.command()
@click.option("--rollouts", default=8, show_default=True, help="Rounds of rollout and update a figure.")
@click.option("--envs", default=1024, show_default=True, help="Environments side by side.")
@out_option
@click.option("--only", nargs=2, hidden=True)
def main(rollouts: int, envs: int, out: Path | None, only: tuple[str, str] | None) -> None:
    """Print env-steps/s."""
    if only:
        click.echo(json.dumps(measure(KINDS[only[0]], only[1], envs, rollouts)))
        return
    cores = sorted(os.sched_getaffinity(0))
    figures: dict[str, Any] = {"envs": envs, "load_average": os.getloadavg()[0]}
    for size in SIZES:
        measured = {
            f"{kind} {size} on {count}": apart(kind, size, envs, rollouts, cores[:count])
            for kind in KINDS
            for count in (1, 2)[: len(cores)]
        }
        if len(cores) > 1:
            measured[f"native {size}, a run on each of 2"] = side_by_side(size, envs, rollouts, cores[:2])
        for name, speeds in measured.items():
            figures[name] = {speed: round(value) for speed, value in speeds.items()}
            rate, cpu, peak = (speeds[speed] for speed in ("steps_per_second", "steps_per_cpu_second", "peak_mib"))
            click.echo(f"{name:>32}: {rate:8,.0f} env-steps/s, {cpu:8,.0f} a CPU second, {peak:5,.0f} MiB at most")
    write(out, figures | {"machine": machine(), "torch": torch.__version__})


if __name__ == "__main__":
    main()
