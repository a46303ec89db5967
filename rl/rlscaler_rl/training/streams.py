"""Train a network for the consumers of a stream with PPO: its action is added to the forecast rule's consumers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path

import numpy as np

from rlscaler_core.decision.actor import Actor, ActorLike
from rlscaler_core.decision.manifest import Consumers, Envelope, Manifest, PoolRanges
from rlscaler_core.decision.rule import rule_of
from rlscaler_core.models import STREAMS
from rlscaler_rl.simulation.courses import Course
from rlscaler_rl.simulation.streams.episode import run
from rlscaler_rl.simulation.streams.groups import Groups
from rlscaler_rl.simulation.streams.training import SENSE_SECONDS, StreamEpisodes
from rlscaler_rl.training.config import EnvironmentConfig, TrainingConfig
from rlscaler_rl.training.courses import MANIFEST, POLICY, learn, small_agent
from rlscaler_rl.training.export import bare_manifest, write
from rlscaler_rl.training.stream_loads import RANGES, draw
from rlscaler_rl.training.train import set_up
from rlscaler_rl.workloads.stretches import StretchLoads, trained_recordings

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
        envs=options.groups, residual=True, lasting=False, history_hours=0.0, stack_size=4, asymmetric=False
    )
    agent = small_agent(
        steps=options.steps,
        seed=options.seed,
        buffer_size=40,
        batch_size=1024,
        ppo_epochs=8,
        gamma=0.9,
        learning_rate=3e-3,
    )
    return TrainingConfig(environment=environment, agent=agent)


def train(options: Options, folder: Path, say: Callable[[str], None] = print) -> Path:
    """Train, and write policy.onnx and manifest.json of the best network on groups that were not trained on."""
    config = config_of(options)
    set_up(config)
    bare = bare_manifest(config, STREAMS)
    recorded = StretchLoads(trained_recordings(), 1.0)
    drawing, looking = np.random.default_rng([options.seed, 9]), np.random.default_rng([options.seed, 10])
    courses = []
    for number in range(options.courses):
        say(f"course {number + 1} of {options.courses}")
        drawn = draw(options.groups, MOST_PARTITIONS[number % len(MOST_PARTITIONS)], drawing, recorded)
        courses.append(course_of(drawn, bare))
    others = draw(options.looked_at, MOST_PARTITIONS[-2], looking, recorded)
    judge = partial(_mean_j, others)
    trained = learn(config, bare, courses, judge, options.look_every, say)
    own = {"options": asdict(options), "ranges": asdict(RANGES), "agent": config.agent.model_dump()}
    trained.write(folder, envelope(), own)
    return folder


def course_of(groups: Groups, bare: Manifest) -> Course:
    """Return a course of some groups."""
    return Course(partial(StreamEpisodes, groups, RANGES.interval_seconds, bare.contract, rule_of(bare)))


def _mean_j(groups: Groups, actor: ActorLike) -> float:
    """Return the mean J of an actor over groups."""
    played = run(groups, actor, interval_seconds=RANGES.interval_seconds, sense_seconds=SENSE_SECONDS)
    return float(played.result.j.mean())


def install(folder: Path, models: Path | None = None) -> None:
    """Copy the network in `folder` to the package's models, as the bundled `streams`."""
    models = models or Path(str(files("rlscaler_core.models")))
    manifest = Manifest.load(folder / MANIFEST)
    content = (folder / POLICY).read_bytes()
    Actor.load(content, manifest)
    write(models, STREAMS, f"{STREAMS}.json", content, manifest)


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
