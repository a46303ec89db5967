"""What each part of the training is worth on days of real load: ideas that are tried, their trainings, and the table.

Every idea is one change of the default configuration. It is trained with every seed, and all networks play the same
days: whole loads that the product's comparison on days plays too, at the transfer split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlscaler_rl.training import checkpoint
from rlscaler_rl.training.config import TrainingConfig

if TYPE_CHECKING:
    from rlscaler_rl.evaluation.days.contenders import Policy
    from rlscaler_rl.evaluation.days.service_load import ServiceLoad
    from rlscaler_rl.evaluation.days.table import DayTable

BASE = "default"
RULE = "rule"
NEVER = 1_000_000_000
"""Episodes between two checkpoints or evaluations: a run has none but the last."""

Networks = Mapping[str, Mapping[int, str]]
"""Idea -> seed -> the contender's name in the table of days."""


@dataclass(frozen=True, slots=True)
class Idea:
    """What is different from the default."""

    what: str
    environment: Mapping[str, Any] = field(default_factory=dict)
    agent: Mapping[str, Any] = field(default_factory=dict)

    def config(self, steps: int) -> TrainingConfig:
        """Give the configuration of its trainings, which differ in nothing but the seed."""
        run = {"steps": steps, "checkpoint_episodes": NEVER, "evaluation_episodes": NEVER}
        return TrainingConfig.model_validate({"environment": dict(self.environment), "agent": dict(self.agent) | run})


IDEAS = {
    BASE: Idea("the configuration of `rlscaler train`"),
    "no-imitation": Idea("PPO from an actor that changes nothing", agent={"imitation_rounds": 0}),
    "no-traces": Idea("no recorded loads in training", environment={"trace_share": 0.0}),
    "no-history": Idea("the rule beneath knows three minutes, not hours", environment={"history_hours": 0}),
    "stack-4": Idea("4 observations instead of 12", environment={"stack_size": 4}),
    "stack-20": Idea("20 observations", environment={"stack_size": 20}),
    "plain": Idea("the action is added to the present replicas, not to the rule's", environment={"residual": False}),
    "symmetric-critic": Idea("the critic sees no more than the actor", environment={"asymmetric": False}),
    "no-nominal": Idea("no episodes of the wholly nominal service", environment={"wholly_nominal_share": 0.0}),
    "all-nominal": Idea(
        "the nominal service alone: what the envelope costs",
        environment={"wholly_nominal_share": 1.0, "one_pool_share": 0.0},
    ),
    "gamma-0.90": Idea("discount 0.90 instead of 0.95", agent={"gamma": 0.90}),
    "gamma-0.97": Idea("discount 0.97", agent={"gamma": 0.97}),
    "lr-3e-3": Idea("learning rate 3e-3 instead of 8e-4", agent={"learning_rate": 3e-3}),
    "entropy-0.01": Idea("entropy bonus 0.01 instead of 0.004", agent={"entropy": 0.01}),
    "epochs-8": Idea("8 passes over a rollout instead of 3", agent={"ppo_epochs": 8}),
    "units-256": Idea("256 units a layer instead of 128", agent={"hidden_size": 256, "critic_hidden_size": 256}),
}


@dataclass(frozen=True, slots=True)
class Trainings:
    """What is trained, and where to."""

    ideas: Sequence[str]
    seeds: Sequence[int]
    steps: int
    folder: Path
    workers: int
    address: str | None = None
    """Ray cluster, as in `map_runs`."""


def train_all(asked: Trainings, say: Callable[[str], None]) -> None:
    """Train every idea with every seed into folder/IDEA/seed_N; what is trained there is not trained again.

    Raises ConfigError where the folder has a training of another configuration, TrainingError where every seed failed.
    """
    from rlscaler_rl.training.distributed import session
    from rlscaler_rl.training.seeds import train_seeds

    missing = [idea for idea in asked.ideas if not all(_trained(asked, idea, seed, say) for seed in asked.seeds)]
    if not missing:
        return
    with session(asked.address, workers=asked.workers):
        for idea in missing:
            folder = asked.folder / idea
            say(idea)
            begun = any(checkpoint.found(folder / f"seed_{seed}") for seed in asked.seeds)
            train_seeds(IDEAS[idea].config(asked.steps), asked.seeds, folder, asked.address, resume=begun, say=say)


def _trained(asked: Trainings, idea: str, seed: int, say: Callable[[str], None]) -> bool:
    """Is there a checkpoint at the last step? Raises ConfigError for one of another configuration."""
    folder, config = asked.folder / idea / f"seed_{seed}", IDEAS[idea].config(asked.steps)
    if not checkpoint.found(folder):
        return False
    newest = checkpoint.newest(folder, say)
    checkpoint.check(newest, config.model_copy(update={"agent": config.agent.model_copy(update={"seed": seed})}))
    return newest.steps >= asked.steps


def play_all(
    asked: Trainings, loads: Sequence[ServiceLoad], days: int, say: Callable[[str], None]
) -> tuple[DayTable, Networks]:
    """Play all networks and the untuned autoscalers on the last `days` test days of every load."""
    from rlscaler_rl.evaluation import models
    from rlscaler_rl.evaluation.days.compare import Request, compare

    policies: list[Policy] = []
    networks: dict[str, dict[int, str]] = {}
    for idea in asked.ideas:
        for seed in asked.seeds:
            folder = asked.folder / idea / f"seed_{seed}"
            if (folder / models.POLICY).is_file():
                policies.append(_policy(f"{idea}, seed {seed}", folder))
                networks.setdefault(idea, {})[seed] = policies[-1].name
    return compare(Request("transfer", loads, policies, days=days), say), networks


def _policy(name: str, folder: Path) -> Policy:
    from rlscaler_rl.evaluation import models
    from rlscaler_rl.evaluation.days.contenders import Policy

    loaded = models.load(str(folder), folder)
    return Policy(name, name, partial(models.actor_again, loaded.source, loaded.digest))


def markdown(table: DayTable, networks: Networks) -> Iterator[str]:
    """Give the lines of the table: every idea against the default, paired by seed, and against the forecast rule.

    Differences of J are in percent, with an interval over seeds and origins.
    """
    from rlscaler_rl.evaluation.days.seeds import pairs_difference

    yield "| idea | what is different | seeds | J against the default, % | | J against the forecast rule, % | |"
    yield "|---|---|---|---|---|---|---|"
    base = networks.get(BASE, {})
    for idea, seeds in networks.items():
        paired = [(name, base[seed]) for seed, name in seeds.items() if seed in base]
        against_base = pairs_difference(table, paired) if idea != BASE else None
        against_rule = pairs_difference(table, [(name, RULE) for name in seeds.values()])
        columns = [told for one in (against_base, against_rule) for told in _told(one)]
        yield f"| {idea} | {IDEAS[idea].what} | {len(seeds)} | {' | '.join(columns)} |"


def _told(found: Any) -> tuple[str, str]:
    if found is None:
        return "", ""
    return f"{found.mean:+.1f} [{found.low:+.1f}, {found.high:+.1f}]", found.verdict
