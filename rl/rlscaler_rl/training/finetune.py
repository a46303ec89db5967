"""PPO from a trained network on one load or service, and the choice of the best checkpoint on the tune part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

import torch
from pydantic import BaseModel, ConfigDict
from stable_baselines3.common.callbacks import BaseCallback

from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.decision.rule import rule_of
from rlscaler_rl.simulation.levels import LevelName
from rlscaler_rl.simulation.objectives import Objective
from rlscaler_rl.simulation.scenario_buffer import ScenarioSource
from rlscaler_rl.simulation.vec_env import SimulatorVecEnv
from rlscaler_rl.training.callbacks import CriticFirst, EntropySchedule, TimeLimitBootstrap
from rlscaler_rl.training.chooser import Candidate, Chooser
from rlscaler_rl.training.config import AgentConfig, EnvironmentConfig, TrainingConfig
from rlscaler_rl.training.export import NumpyActor
from rlscaler_rl.training.train import make_model, random_observations

Progress = Callable[[str], None]

Judge = Callable[[NumpyActor, LevelName], float]
"""Mean J of an actor on the episodes that checkpoints are chosen by, never those of the test part."""


class FineTuning(BaseModel):
    """Settings of fine-tuning; the defaults keep a run within five minutes on two cores."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    agent: AgentConfig = AgentConfig(
        steps=2_000_000,
        learning_rate=3e-4,
        final_learning_rate=1e-5,
        ppo_epochs=4,
        entropy=0.002,
        final_entropy=0.0005,
    )
    """Smaller steps than the general training's: the network is good already."""

    envs: int = 512
    seconds: float = 150.0
    """Wall-clock seconds after which training ends, however many steps were made."""

    critic_rollouts: int = 8
    """Rollouts at the beginning in which only the critic learns: it knows nothing yet, and its first advantages would
    tear the actor apart."""

    candidates: int = 12
    """Checkpoints that are tried on the tune part at the fluid level, evenly over the training."""

    finalists: int = 4
    """The best of them are tried again request by request."""

    def with_agent(self, **changes: Any) -> Self:
        """Return the settings with fields of the agent changed, except by None."""
        return self.model_copy(update={"agent": self.agent.model_copy(update=given(changes))})

    def config(self, start: Start, interval: int, episode: int) -> TrainingConfig:
        """The configuration that `training.train.make_model` takes; `interval` and `episode` in seconds."""
        return TrainingConfig(
            environment=EnvironmentConfig(
                envs=self.envs,
                stack_size=start.manifest.stack_size,
                residual=start.manifest.residual,
                lasting=start.manifest.lasting,
                action_interval=interval,
                episode_duration=episode,
            ),
            agent=self.agent.model_copy(update={"hidden_size": start.hidden_size}),
        )


def given(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


class Start(Protocol):
    """The network to begin with."""

    @property
    def manifest(self) -> Manifest: ...

    @property
    def hidden_size(self) -> int: ...

    def put_into(self, policy: torch.nn.Module) -> None:
        """Overwrite the actor of a `training.policy.ScalingPolicy` of the same sizes."""


@dataclass(frozen=True, slots=True)
class Episodes:
    """Episodes of a training: every source serves a part of the environments, simulated in a thread of its own."""

    sources: Sequence[ScenarioSource]
    interval_seconds: int
    duration_seconds: int
    objective: str | Objective = "slo_cost"


@dataclass(slots=True)
class FineTuned:
    """Result of fine-tuning; `best.steps` is 0 where no checkpoint was better than the start."""

    best: Candidate
    candidates: list[Candidate] = field(default_factory=list)
    steps: int = 0
    seconds: float = 0.0
    cut_short: bool = False
    """The time was over before the steps were."""


def fine_tune(
    start: Start,
    episodes: Episodes,
    judge: Judge,
    settings: FineTuning,
    progress: Progress,
    *,
    level: LevelName = "request",
    folder: Path | None = None,
) -> FineTuned:
    """Train on `episodes` and choose by `judge`: every checkpoint at the fluid level, the best of them at `level`.

    The start itself is a candidate. Raises training.errors.DivergedError; `folder` then has the batch.
    """
    torch.set_num_threads(len(episodes.sources))
    torch.distributions.Distribution.set_default_validate_args(False)
    manifest = start.manifest.model_copy(update={"envelope": None, "digest": ""})
    config = settings.config(start, episodes.interval_seconds, episodes.duration_seconds)
    env = SimulatorVecEnv(
        settings.envs,
        config.agent.seed,
        contract=manifest.contract,
        rule=rule_of(manifest),
        objective=episodes.objective,
        sources=episodes.sources,
        asymmetric=True,
        stagger=True,
    )
    model = make_model(config, env, None)
    model.folder = folder
    model.policy.mlp_extractor.calibrate(random_observations(env, config.agent.seed))
    start.put_into(model.policy)

    def tried(candidate: Candidate) -> None:
        share = min(100 * candidate.steps / config.agent.steps, 100)
        progress(f"{share:3.0f} % of the training: J {candidate.j:.3f} on the tune part")

    every = max(config.agent.steps // settings.candidates, 1)
    chooser = Chooser(manifest, lambda actor: judge(actor, "fluid"), every, tried, settings.seconds)
    callbacks: list[BaseCallback] = [
        EntropySchedule(config.agent.entropy, config.agent.final_entropy),
        TimeLimitBootstrap(),
        CriticFirst(settings.critic_rollouts),
        chooser,
    ]
    model.learn(config.agent.steps, callback=callbacks)
    env.close()
    finalists = sorted(chooser.candidates, key=lambda candidate: candidate.j)[: settings.finalists]
    if chooser.candidates[0] not in finalists:
        finalists.append(chooser.candidates[0])
    for candidate in finalists:
        candidate.final = judge(candidate.actor, level)
    return FineTuned(
        best=min(finalists, key=lambda candidate: (candidate.final, candidate.steps)),
        candidates=chooser.candidates,
        steps=model.num_timesteps,
        seconds=chooser.seconds,
        cut_short=chooser.cut_short,
    )
