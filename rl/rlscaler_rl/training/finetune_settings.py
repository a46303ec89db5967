"""How a policy is fine-tuned; fields may be set on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from rlscaler_rl.training.config import AgentConfig, EnvironmentConfig, TrainingConfig


@dataclass(frozen=True, slots=True)
class FineTuning:
    """The defaults keep a run within five minutes on two cores."""

    steps: int = 2_000_000
    """Environment steps (action intervals)."""

    seconds: float = 150.0
    """Of wall-clock after which training ends with what it has, however many steps that were."""

    seed: int = 1
    envs: int = 512
    buffer_size: int = 24
    """Steps of every environment between two updates."""

    batch_size: int = 3072
    epochs: int = 4
    learning_rate: float = 3e-4
    """A tenth of the general training's; linear to `final_learning_rate`."""

    final_learning_rate: float = 1e-5
    entropy: float = 0.002
    gamma: float = 0.95
    critic_rollouts: int = 8
    """In the first so many rollouts only the critic learns: it begins knowing nothing, and its first advantages would
    tear the actor apart."""

    candidates: int = 12
    """Checkpoints that are tried on the tune part at the fluid level, evenly over the training."""

    finalists: int = 4
    """The best of them are tried again request by request."""

    @classmethod
    def of(cls, **given: Any) -> Self:
        """What is given and not None over the defaults."""
        return cls(**{name: value for name, value in given.items() if value is not None})

    def config(self, stack_size: int, residual: bool, hidden_size: int, interval: int, episode: int) -> TrainingConfig:
        """As `training.train.make_model` takes it."""
        return TrainingConfig(
            environment=EnvironmentConfig(
                envs=self.envs,
                stack_size=stack_size,
                residual=residual,
                action_interval=interval,
                episode_duration=episode,
            ),
            agent=AgentConfig(
                steps=self.steps,
                seed=self.seed,
                hidden_size=hidden_size,
                learning_rate=self.learning_rate,
                final_learning_rate=self.final_learning_rate,
                buffer_size=self.buffer_size,
                batch_size=self.batch_size,
                ppo_epochs=self.epochs,
                gamma=self.gamma,
                entropy=self.entropy,
                final_entropy=self.entropy / 4,
            ),
        )
