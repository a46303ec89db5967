"""Train a network for token services with PPO: its steps move a lasting headroom in the forecast rule's plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.manifest import Envelope, PoolRanges, Range
from rlscaler_core.decision.rule import rule_of
from rlscaler_core.decision.types import Params
from rlscaler_rl.simulation.courses import Course
from rlscaler_rl.simulation.tokens.drawn import COLD_STARTS, LONGEST_START, MOST, SIZES, SPARE, World, drawn
from rlscaler_rl.simulation.tokens.episode import INTERVAL_SECONDS, run
from rlscaler_rl.simulation.tokens.training import TokenEpisodes
from rlscaler_rl.training.config import EnvironmentConfig, TrainingConfig
from rlscaler_rl.training.courses import learn, small_agent
from rlscaler_rl.training.export import bare_manifest
from rlscaler_rl.training.train import set_up

TRAINED_SEED, LOOKED_AT_SEED = 20_000, 30_000
"""Services that networks are trained on, and chosen by, have seeds from here on: far from those that judge."""

OBJECTIVES = (2.5, 4.0, 6.0)
"""Objectives of the first token in seconds that services are drawn with: long prompts take the slowest server two."""

LAG_SECONDS = 30.0
"""Age of samples up to which a network acts: two scrapes of a server, though samples are fresh in training."""

STEPS = 400_000


class Scaled(NamedTuple):
    """Services with the parameters of their policies."""

    world: World
    params: Params | None = None
    """None: those of new policies."""


@dataclass(frozen=True)
class Options:
    """Options of the training; the networks have the sizes of `agent`."""

    seed: int = 1
    steps: int = STEPS
    """Action intervals, of all services together."""
    services: int = 48
    """Services that are played side by side."""
    courses: int = 16
    """Draws of so many services; then the first ones are played again."""
    seconds: int = 1800
    looked_at: int = 144
    """Other services that checkpoints are chosen by."""
    look_every: int = 24
    """Updates between two looks at them."""


def config_of(options: Options) -> TrainingConfig:
    """Return the settings as the training code of services takes them."""
    environment = EnvironmentConfig(envs=options.services, stack_size=4, asymmetric=False)
    agent = small_agent(
        steps=options.steps,
        seed=options.seed,
        buffer_size=60,
        batch_size=960,
        ppo_epochs=6,
        gamma=0.97,
        learning_rate=1.5e-3,
    )
    return TrainingConfig(environment=environment, agent=agent)


def train(options: Options, folder: Path, say: Callable[[str], None] = print) -> Path:
    """Train, and write policy.onnx and manifest.json of the best network on services that were not trained on."""

    @cache
    def course(number: int) -> Scaled:
        seed = TRAINED_SEED + 100 * options.seed + number
        return Scaled(drawn(options.services, options.seconds, seed, OBJECTIVES))

    others = Scaled(drawn(options.looked_at, options.seconds, LOOKED_AT_SEED, OBJECTIVES))
    return train_on(course, others, envelope(), options, folder, "tokens", say)


def train_on(
    course: Callable[[int], Scaled],
    others: Scaled,
    valid: Envelope,
    options: Options,
    folder: Path,
    name: str,
    say: Callable[[str], None] = print,
) -> Path:
    """Train on courses of services, and write policy.onnx and manifest.json of the best network on others.

    :param course: returns the services of a course by its number, once for each episode: all may be gigabytes.
    :param others: services by which a checkpoint is chosen.
    :param valid: the envelope that the manifest gets, and `name` its name.
    """
    config = config_of(options)
    set_up(config)
    bare = bare_manifest(config, name)

    def episodes(number: int) -> TokenEpisodes:
        world, params = course(number)
        return TokenEpisodes(world, bare.contract, rule_of(bare), params)

    courses = []
    for number in range(options.courses):
        say(f"course {number + 1} of {options.courses}")
        courses.append(Course(partial(episodes, number)))
    trained = learn(config, bare, courses, partial(_mean_j, others), options.look_every, say)
    trained.write(folder, valid, {"options": asdict(options), "agent": config.agent.model_dump()})
    return folder


def _mean_j(services: Scaled, actor: ActorLike) -> float:
    """Return the mean J of an actor on services, with capacities as declared."""
    world, params = services
    played = run(world.services, world.requests, actor, world.declared, world.seconds, params=params)
    return float(played.result.j.mean())


def envelope() -> Envelope:
    """Return the envelope of a network for token services."""
    # The policy of a drawn service has the mean of its shortest and its longest cold start.
    cold = ((1 + LONGEST_START) / 2 * COLD_STARTS[0], (1 + LONGEST_START) / 2 * COLD_STARTS[1])
    size = (MOST * SIZES[0] + SPARE, MOST * SIZES[1] + SPARE)
    slo_ms = (1000 * min(OBJECTIVES), 1000 * max(OBJECTIVES))
    return within(slo_ms, cold, size, (INTERVAL_SECONDS, INTERVAL_SECONDS))


def within(slo_ms: Range, cold: Range, size: Range, interval: Range) -> Envelope:
    """Return the envelope of policies in tokens with objectives of the first token, cold starts, `maxReplicas` and
    action intervals in these ranges, in milliseconds and seconds."""
    both = {"gpu", "cpu"}
    return Envelope(
        slo_ms=slo_ms,
        cold_start_seconds=PoolRanges(**dict.fromkeys(both, cold)),
        max_replicas=PoolRanges(**dict.fromkeys(both, size)),
        price_ratio=(1.0, 1.0),
        interval_seconds=interval,
        rps_ratio=(1.0, 1.0),
        lag_seconds=(0.0, LAG_SECONDS),
        units={"tokens": None},
        signals=("ttft",),
    )
