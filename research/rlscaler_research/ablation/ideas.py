"""The changes that are tried, each against the default configuration at a fraction of its length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlscaler_rl.training.config import TrainingConfig

BASE = "default"
SCREENING_STEPS = 1_500_000
NEVER = 1_000_000_000
"""Episodes between two checkpoints or evaluations: a screening run has none but the last."""


@dataclass(frozen=True, slots=True)
class Idea:
    """What is different from the default."""

    what: str
    environment: Mapping[str, Any] = field(default_factory=dict)
    agent: Mapping[str, Any] = field(default_factory=dict)

    def config(self, seed: int, steps: int = SCREENING_STEPS) -> TrainingConfig:
        run = {"seed": seed, "steps": steps, "checkpoint_episodes": NEVER, "evaluation_episodes": NEVER}
        return TrainingConfig.model_validate({"environment": dict(self.environment), "agent": dict(self.agent) | run})


IDEAS = {
    BASE: Idea("the configuration of the bundled policy"),
    "no-imitation": Idea("PPO from an actor that does nothing", agent={"imitation_rounds": 0}),
    "stack-4": Idea("4 observations instead of 12", environment={"stack_size": 4}),
    "stack-20": Idea("20 observations", environment={"stack_size": 20}),
    "residual": Idea("the action is added to the forecast rule's replicas", environment={"residual": True}),
    "symmetric-critic": Idea("the critic sees no more than the actor", environment={"asymmetric": False}),
    "sees-time": Idea("the actor is told how much of the episode is over", environment={"sees_time": True}),
    "no-traces": Idea("no recorded loads in training", environment={"trace_share": 0.0}),
    "no-nominal": Idea("no episodes of the wholly nominal service", environment={"wholly_nominal_share": 0.0}),
    "all-nominal": Idea(
        "the nominal service alone: what the envelope costs",
        environment={"wholly_nominal_share": 1.0, "one_pool_share": 0.0},
    ),
    "interval-15": Idea("an action every 15 s only", environment={"action_interval": 15}),
    "interval-30": Idea("an action every 30 s only", environment={"action_interval": 30}),
    "episodes-600": Idea("episodes of 600 s only", environment={"episode_duration": 600}),
    "gamma-0.90": Idea("discount 0.90 instead of 0.95", agent={"gamma": 0.90}),
    "gamma-0.97": Idea("discount 0.97", agent={"gamma": 0.97}),
    "lr-3e-3": Idea("learning rate 3e-3 instead of 1e-3", agent={"learning_rate": 3e-3}),
    "lr-5e-4": Idea("learning rate 5e-4", agent={"learning_rate": 5e-4}),
    "entropy-0.003": Idea("entropy bonus 0.003 instead of 0.01", agent={"entropy": 0.003}),
    "batch-1024": Idea("minibatches of 1,024 instead of 2,048", agent={"batch_size": 1024}),
    "batch-6144": Idea("minibatches of 6,144", agent={"batch_size": 6144}),
    "epochs-8": Idea("8 passes over a rollout instead of 4", agent={"ppo_epochs": 8}),
    "units-64": Idea("64 units a layer instead of 128", agent={"hidden_size": 64, "critic_hidden_size": 64}),
    "units-256": Idea("256 units a layer", agent={"hidden_size": 256, "critic_hidden_size": 256}),
}
