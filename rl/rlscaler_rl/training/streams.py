"""Train a network for the consumers of a stream with PPO: its action is added to the forecast rule's consumers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from rlscaler_core.decision.actor import Actor
from rlscaler_core.decision.manifest import Consumers, Envelope, Manifest, PoolRanges, Training
from rlscaler_core.decision.rule import rule_of
from rlscaler_core.decision.types import Float
from rlscaler_core.models import STREAMS, load_bundled
from rlscaler_rl.simulation.streams.episode import run
from rlscaler_rl.simulation.streams.groups import Groups
from rlscaler_rl.simulation.streams.vec_env import SENSE_SECONDS, Course, StreamVecEnv
from rlscaler_rl.training.callbacks import EntropySchedule, TimeLimitBootstrap
from rlscaler_rl.training.config import AgentConfig, ConfigError, EnvironmentConfig, TrainingConfig
from rlscaler_rl.training.export import NumpyActor, actor_layers, bare_manifest, to_onnx, trained_on, versions, write
from rlscaler_rl.training.policy import GuardedPPO, begin_with_no_change
from rlscaler_rl.training.stream_loads import RANGES, draw
from rlscaler_rl.training.train import make_model, random_observations, set_up
from rlscaler_rl.workloads.stretches import StretchLoads, trained_recordings

POLICY, MANIFEST = "policy.onnx", "manifest.json"

MOST_PARTITIONS = (12, 12, 24, 48)
"""Most partitions of the groups of a course, one after the other: a course takes as long as its largest group."""


@dataclass(frozen=True)
class Options:
    """Options of the training; the networks have the sizes of `agent`."""

    seed: int = 1
    steps: int = 200_000
    """Action intervals, of all groups together."""
    groups: int = 128
    """Groups that are played side by side."""
    courses: int = 16
    """Draws of so many groups; then the first ones are played again."""
    looked_at: int = 128
    """Groups of other draws that checkpoints are chosen by."""
    look_every: int = 5
    """Updates between two looks at them."""


def config_of(options: Options) -> TrainingConfig:
    """The settings as the training code of services takes them."""
    environment = EnvironmentConfig(
        envs=options.groups, residual=True, history_hours=0.0, stack_size=4, asymmetric=False
    )
    agent = AgentConfig(
        steps=options.steps,
        seed=options.seed,
        hidden_size=32,
        critic_hidden_size=64,
        buffer_size=40,
        batch_size=1024,
        ppo_epochs=8,
        gamma=0.9,
        learning_rate=3e-3,
        final_learning_rate=1e-4,
        entropy=0.003,
    )
    return TrainingConfig(environment=environment, agent=agent)


def train(options: Options, folder: Path, say: Callable[[str], None] = print) -> Path:
    """Train, and write policy.onnx and manifest.json of the best network on groups that were not trained on.

    Raises ConfigError where the folder holds a network already.
    """
    if (folder / POLICY).exists():
        raise ConfigError(f"{folder}: {POLICY} is in it; choose another folder with --out")
    config = config_of(options)
    set_up(config)
    bare = bare_manifest(config, STREAMS)
    rule, contract = rule_of(bare), bare.contract
    assert rule is not None
    recorded = StretchLoads(trained_recordings(), 1.0)
    drawing, looking = np.random.default_rng([options.seed, 9]), np.random.default_rng([options.seed, 10])
    courses = []
    for number in range(options.courses):
        say(f"course {number + 1} of {options.courses}")
        drawn = draw(options.groups, MOST_PARTITIONS[number % len(MOST_PARTITIONS)], drawing, recorded)
        courses.append(Course(drawn, RANGES.interval_seconds, contract, rule))
    env = StreamVecEnv(courses, contract, rule, options.seed)
    model = make_model(config, env, None)
    model.policy.mlp_extractor.calibrate(random_observations(env, options.seed))
    begin_with_no_change(model.policy)
    looks = Looks(draw(options.looked_at, MOST_PARTITIONS[-2], looking, recorded), bare, options.look_every, say)
    schedule = EntropySchedule(config.agent.entropy, config.agent.final_entropy)
    model.learn(options.steps, callback=[schedule, TimeLimitBootstrap(), looks])
    _write(folder, model, looks, options, config)
    return folder


def install(folder: Path, models: Path | None = None) -> None:
    """Copy the network in `folder` to the package's models, as the bundled `streams`."""
    models = models or Path(str(files("rlscaler_core.models")))
    manifest = Manifest.load(folder / MANIFEST)
    content = (folder / POLICY).read_bytes()
    Actor.load(content, manifest)
    write(models, STREAMS, f"{STREAMS}.json", content, manifest)


class Looks(BaseCallback):
    """Plays the network on groups of other draws every few updates, and keeps the best."""

    def __init__(self, groups: Groups, manifest: Manifest, every: int, say: Callable[[str], None]) -> None:
        super().__init__()
        self.groups, self.manifest, self.every, self.say = groups, manifest, every, say
        self.rule = self.j_of(load_bundled("rule"))
        self.updates, self.best, self.curve = 0, np.inf, list[tuple[int, float]]()
        self.layers: list[tuple[np.ndarray, np.ndarray]] = []

    def j_of(self, actor: object) -> Float:
        """(N,) J of every group."""
        return run(self.groups, actor, interval_seconds=RANGES.interval_seconds, sense_seconds=SENSE_SECONDS).result.j

    def look(self) -> None:
        """Play the network as it is now."""
        actor = NumpyActor.of(self.model.policy, self.manifest)
        j = float(self.j_of(actor).mean())
        self.curve.append((self.num_timesteps, j))
        self.say(f"{self.num_timesteps:,} intervals: J {j:.3f}, and {self.rule.mean():.3f} of the rule alone")
        if j < self.best:
            self.best, self.layers = j, actor_layers(self.model.policy.state_dict())

    def _on_rollout_start(self) -> None:
        if self.updates % self.every == 0:
            self.look()
        self.updates += 1

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        self.look()


def _write(folder: Path, model: GuardedPPO, looks: Looks, options: Options, config: TrainingConfig) -> None:
    content = to_onnx(looks.layers)
    origin = Training(
        seed=options.seed,
        steps=model.num_timesteps,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=versions("torch", "stable-baselines3", "numpy"),
        hyperparameters={"options": asdict(options), "ranges": asdict(RANGES), "agent": config.agent.model_dump()},
        curve=looks.curve,
        rule_j=float(looks.rule.mean()),
    )
    trained = trained_on(looks.manifest, content, STREAMS, origin, envelope=envelope())
    write(folder, POLICY.removesuffix(".onnx"), MANIFEST, trained.content, trained.manifest)


def envelope() -> Envelope:
    """Return the envelope of a network for streams: `RANGES`."""
    both = {"gpu", "cpu"}
    cold = (RANGES.cold_start[0], RANGES.cold_start[1])
    size = (1.0, float(RANGES.partitions[1]))
    return Envelope(
        slo_ms=(1000 * RANGES.objective[0], 1000 * RANGES.objective[1]),
        cold_start_seconds=PoolRanges(**dict.fromkeys(both, cold)),
        max_replicas=PoolRanges(**dict.fromkeys(both, size)),
        price_ratio=(1.0, 1.0),
        interval_seconds=(RANGES.interval_seconds, RANGES.interval_seconds),
        rps_ratio=(1.0, 1.0),
        lag_seconds=(0.0, 30.0),
        units={"requests": RANGES.messages_per_second},
        consumers=Consumers(protocols=RANGES.protocols, partitions=RANGES.partitions),
    )
