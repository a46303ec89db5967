"""Train a network with PPO on courses of episodes, and keep the best one on episodes of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.manifest import Envelope, Manifest, Training
from rlscaler_core.models import load_bundled
from rlscaler_rl.simulation.courses import Course, CourseVecEnv
from rlscaler_rl.training.callbacks import EntropySchedule, TimeLimitBootstrap
from rlscaler_rl.training.chooser import Candidate, Chooser
from rlscaler_rl.training.config import AgentConfig, TrainingConfig
from rlscaler_rl.training.export import to_onnx, trained_on, versions, write
from rlscaler_rl.training.policy import begin_with_no_change
from rlscaler_rl.training.train import make_model, random_observations

POLICY, MANIFEST = "policy.onnx", "manifest.json"


@dataclass(frozen=True, slots=True)
class Trained:
    """Networks of a training, each with its score."""

    candidates: list[Candidate]
    steps: int
    rule_j: float
    """Score of the rule alone."""

    def write(self, folder: Path, envelope: Envelope, hyperparameters: dict[str, Any]) -> None:
        """Write policy.onnx and manifest.json of the best network."""
        best = min(self.candidates, key=lambda candidate: candidate.j).actor
        content = to_onnx(best.layers)
        origin = Training(
            seed=hyperparameters["options"]["seed"],
            steps=self.steps,
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            versions=versions("torch", "stable-baselines3", "numpy"),
            hyperparameters=hyperparameters,
            curve=[(candidate.steps, candidate.j) for candidate in self.candidates],
            rule_j=self.rule_j,
        )
        trained = trained_on(best.manifest, content, best.manifest.name, origin, envelope=envelope)
        write(folder, POLICY.removesuffix(".onnx"), MANIFEST, trained.content, trained.manifest)


def small_agent(**own: Any) -> AgentConfig:
    """Return hyperparameters of a small network on courses; `own` are those of the kind of service."""
    return AgentConfig(hidden_size=32, critic_hidden_size=64, final_learning_rate=1e-4, entropy=0.003, **own)


def learn(
    config: TrainingConfig,
    bare: Manifest,
    courses: Sequence[Course],
    judge: Callable[[ActorLike], float],
    look_every: int,
    say: Callable[[str], None],
) -> Trained:
    """Train on courses.

    :param judge: returns the mean J of an actor on episodes that no course has.
    :param look_every: updates between two candidates.
    """
    agent = config.agent
    env = CourseVecEnv(courses, bare.contract, agent.seed)
    model = make_model(config, env, None)
    model.policy.mlp_extractor.calibrate(random_observations(env, agent.seed))
    begin_with_no_change(model.policy)
    by_rule = judge(load_bundled("rule"))

    def tried(candidate: Candidate) -> None:
        say(f"{candidate.steps:,} intervals: J {candidate.j:.3f}, and {by_rule:.3f} of the rule alone")

    chooser = Chooser(bare, judge, look_every * agent.buffer_size * env.num_envs, tried)
    model.learn(
        agent.steps, callback=[EntropySchedule(agent.entropy, agent.final_entropy), TimeLimitBootstrap(), chooser]
    )
    return Trained(chooser.candidates, model.num_timesteps, by_rule)
