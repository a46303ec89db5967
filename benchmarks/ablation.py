"""A training of the bundled network with one premise taken away.

    python benchmarks/ablation.py --without days --out rl/without_days
    python benchmarks/headroom.py --model bundled --model rl/without_days
    rlscaler days --days 1 --model rl/without_days

`lasting`: an action is added to the rule's replicas for one interval. `errors`: every replica has the capacity that is
declared, for ever. `days`: the rule beneath knows the last three minutes of load. `observations`: the actor sees
neither its headroom nor the near misses, the two numbers that the fourth contract has in place of memory and variance.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
import torch
from stable_baselines3 import PPO

from rlscaler_core.decision.types import OBSERVATIONS, STREAM_OBSERVATIONS
from rlscaler_rl.simulation.ranges import Ranges
from rlscaler_rl.training.config import AgentConfig, EnvironmentConfig, TrainingConfig
from rlscaler_rl.training.train import prepare, summary, train

NEW = [column for column, name in enumerate(OBSERVATIONS) if name not in STREAM_OBSERVATIONS]
"""Columns of the observations that the former contract had not."""


class ExactCapacity(EnvironmentConfig):
    """The default world, but for a capacity that is as declared."""

    def ranges(self) -> Ranges:
        return replace(super().ranges(), believed_error=0.0, exact_share=1.0, drift_share=0.0, fall_share=0.0)


ENVIRONMENTS = {
    "lasting": EnvironmentConfig(lasting=False),
    "errors": ExactCapacity(),
    "days": EnvironmentConfig(history_hours=0.0),
    "observations": EnvironmentConfig(),
}


def prepare_blind(model: PPO, config: TrainingConfig) -> None:
    """Prepare a model whose actor has the weight 0 for the new columns, now and after every update."""
    prepare(model, config)
    networks = model.policy.mlp_extractor
    first = networks.policy_net[0]
    seen = torch.ones_like(first.weight)
    for column in NEW:
        seen[:, column : networks.actor_width : len(OBSERVATIONS)] = 0.0
    with torch.no_grad():
        first.weight.mul_(seen)
    # Adam leaves a weight alone whose gradient was never anything but 0.
    first.weight.register_hook(lambda gradient: gradient * seen)


@click.command()
@click.option("--without", type=click.Choice(list(ENVIRONMENTS)), required=True)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of the training.")
def main(without: str, seed: int, out: Path) -> None:
    """Train the default network without one of its premises."""
    config = TrainingConfig(environment=ENVIRONMENTS[without], agent=AgentConfig(seed=seed))
    print(summary(train(config, out, prepare=prepare_blind if without == "observations" else prepare)))


if __name__ == "__main__":
    main()
