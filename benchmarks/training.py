"""How fast PPO trains on the simulator, decision function and shield in the loop.

    python benchmarks/training.py [--steps 500000] [--threads 2] [--out FILE]

Prints env-steps/s, scenario drawing, rollouts and updates included, for 64x64 networks and for the size that ships.
"""

from __future__ import annotations

import json
import os
import platform
import time

import click
import torch
from stable_baselines3.common.callbacks import BaseCallback

from rlscaler_rl.training.callbacks import TimeLimitBootstrap
from rlscaler_rl.training.config import AgentConfig, TrainingConfig
from rlscaler_rl.training.train import make_env, make_model


class Stopwatch(BaseCallback):
    """Starts after the first rollout, so that compilation and first touches are not counted."""

    begin: float | None = None
    steps = 0

    def _on_rollout_start(self) -> None:
        if self.begin is None and self.num_timesteps > 0:
            self.begin, self.steps = time.perf_counter(), self.num_timesteps

    def _on_step(self) -> bool:
        return True

    def rate(self) -> float:
        return (self.num_timesteps - self.steps) / (time.perf_counter() - (self.begin or 0.0))


def env_steps_per_second(agent: AgentConfig, steps: int) -> float:
    config = TrainingConfig(agent=agent)
    torch.set_num_threads(agent.torch_threads)
    torch.distributions.Distribution.set_default_validate_args(False)
    model = make_model(config, make_env(config), None)
    watch = Stopwatch()
    model.learn(steps, callback=[TimeLimitBootstrap(), watch])
    return watch.rate()


@click.command()
@click.option("--steps", default=500_000, show_default=True)
@click.option("--threads", default=2, show_default=True, help="Of torch, while it updates.")
@click.option("--out", type=click.Path(dir_okay=False), help="Write the figures as JSON.")
def main(steps: int, threads: int, out: str | None) -> None:
    """Print env-steps/s."""
    shipped = AgentConfig(torch_threads=threads)
    small = shipped.model_copy(update={"hidden_size": 64, "critic_hidden_size": 64})
    figures: dict[str, object] = {"threads": threads}
    for name, agent in (("64x64", small), ("shipped", shipped)):
        rate = env_steps_per_second(agent, steps)
        figures[name] = round(rate)
        actor, critic = agent.hidden_size, agent.critic_hidden_size
        click.echo(f"{name:>8}: {rate:8,.0f} env-steps/s (actor {actor}x{actor}, critic {critic}x{critic})")
    figures |= {"machine": f"{platform.machine()}, {os.cpu_count()} cores", "torch": torch.__version__}
    if out:
        with open(out, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
