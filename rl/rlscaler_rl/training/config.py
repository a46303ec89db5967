"""Configuration of a training run; a JSON file with an `environment` and an `agent` part sets any field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rlscaler_rl.simulation.ranges import RANGES, Ranges

NOMINAL_MAX_REPLICAS = 10
"""maxReplicas of the nominal service; other limits have no nominal scenarios."""

ROLLOUT_STEPS = 1_000_000
"""The most steps between two updates: more would leave a training of millions with a handful of updates."""


KISIM_FIELDS = {
    "environment": {
        "observation_window",
        "latency_weight",
        "throughput_weight",
        "efficiency_weight",
        "resource_efficiency_weight",
        "stability_weight",
    },
    "agent": {"num_layers", "entropy_coef", "value_coef"},
}
"""Fields of a configuration of KISim's experiment that the general training has not, by part."""

KISIM_PARTS = {"training", "use_gpu", "description"}
"""Parts of such a file beside `environment` and `agent`."""

REMOVED = ("imitation_rounds", "critic_rollouts")
"""Fields of `agent` in files of older releases, which imitated a planner before the first update."""


class ConfigError(ValueError):
    """A configuration that cannot be used; the message names the field and the remedy."""


def problem(where: Path | str, error: ValidationError) -> ConfigError:
    """Return the first problem of a file with its field."""
    first = error.errors()[0]
    field = ".".join(map(str, first["loc"]))
    return ConfigError(": ".join(filter(None, [str(where), field, first["msg"].removeprefix("Value error, ")])))


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class EnvironmentConfig(_Part):
    """The simulated service. Fields that are left out are drawn anew for every episode (domain randomisation)."""

    episode_duration: int | None = Field(default=None, ge=60)
    """Seconds; an hour or two by default."""
    action_interval: int | None = Field(default=None, ge=10, le=300, multiple_of=5)
    """Seconds; 10, 15, 30 and 60 by default."""
    min_replicas: int = Field(default=1, ge=1, le=5)
    """minReplicas of either pool."""
    max_replicas: int | None = Field(default=None, ge=5, le=60)
    """maxReplicas of either pool; 2 to 64 by default."""
    envs: int = Field(default=512, ge=1)
    """Episodes simulated side by side."""
    objective: Literal["slo_cost", "performance_cost"] = "slo_cost"
    residual: bool = True
    """The action is added to the forecast rule's replicas instead of the present ones."""
    lasting: bool = True
    """The steps of the replica heads move a lasting headroom above the rule's plan; without `residual` they cannot."""
    history_hours: float = Field(default=4.0, ge=0, le=240)
    """Most hours of load before an episode that the forecaster and the rule under the network have learned from. 0: the
    rule knows the last three minutes; without `residual` there is no rule that could know more."""
    stack_size: int = Field(default=12, ge=1, le=64)
    asymmetric: bool = True
    """Let the critic see the scenario's hidden facts and near future; the actor never does."""
    namespace: str | None = None
    """Namespace on a cluster; no simulation reads it, nor the two addresses."""
    prometheus_url: str | None = None
    locust_url: str | None = None
    nominal_share: float = Field(default=RANGES.nominal_share, ge=0, le=1)
    wholly_nominal_share: float = Field(default=RANGES.wholly_nominal_share, ge=0, le=1)
    """Share of the episodes with the demo's service in every column, 0 to 1."""
    trace_share: float = Field(default=0.4, ge=0, le=1)
    """Share of the episodes with a recorded load, 0 to 1."""
    one_pool_share: float = Field(default=RANGES.one_pool_share, ge=0, le=1)

    @model_validator(mode="after")
    def _whole_intervals(self) -> Self:
        for duration in self.ranges().durations:
            for interval in self.ranges().intervals:
                if duration % interval:
                    raise ValueError(f"episode_duration {duration} is no multiple of the action interval {interval} s")
        return self

    def past_hours(self) -> float:
        """The hours that the rule beneath knows."""
        return self.history_hours if self.residual else 0.0

    def ranges(self) -> Ranges:
        """Return the ranges that the scenarios are drawn from."""
        durations = (self.episode_duration,) if self.episode_duration else RANGES.durations
        intervals = (self.action_interval,) if self.action_interval else RANGES.intervals
        sizes_nominal = self.max_replicas in (None, NOMINAL_MAX_REPLICAS)
        size = (self.max_replicas, self.max_replicas) if self.max_replicas else RANGES.max_replicas
        return Ranges(
            intervals=intervals,
            durations=durations,
            min_replicas=self.min_replicas,
            max_replicas=size,
            nominal_share=self.nominal_share if sizes_nominal else 0.0,
            wholly_nominal_share=self.wholly_nominal_share if sizes_nominal else 0.0,
            one_pool_share=self.one_pool_share,
        )


class AgentConfig(_Part):
    """Hyperparameters of PPO; the bundled network is trained with the defaults."""

    steps: int = Field(default=300_000, ge=1)
    """Environment steps (action intervals)."""
    seed: int = Field(default=1, ge=0)
    checkpoint_episodes: int = Field(default=10, ge=1)
    """Episodes per environment between two model_episode_N.zip."""
    evaluation_episodes: int = Field(default=1, ge=1)
    """Episodes per environment between two evaluations."""
    torch_threads: int = Field(default=1, ge=1)
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the networks are trained; auto takes the device that is faster at the first update."""
    learning_rate: float = Field(default=1e-3, gt=0)
    final_learning_rate: float = Field(default=2e-5, ge=0)
    """Reached linearly at the end."""
    hidden_size: int = Field(default=128, ge=1)
    """Units of each of the actor's two tanh layers."""
    critic_hidden_size: int = Field(default=128, ge=1)
    buffer_size: int = Field(default=24, ge=1)
    """Steps of every environment between two updates."""
    batch_size: int = Field(default=3072, ge=1)
    ppo_epochs: int = Field(default=3, ge=1)
    gamma: float = Field(default=0.97, ge=0, le=1)
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    clip_epsilon: float = Field(default=0.2, gt=0)
    entropy: float = Field(default=0.003, ge=0)
    final_entropy: float = Field(default=0.0003, ge=0)
    """Reached linearly at the end."""
    max_grad_norm: float = Field(default=5.0, gt=0)

    @model_validator(mode="before")
    @classmethod
    def _no_removed_fields(cls, body: Any) -> Any:
        removed = [name for name in REMOVED if name in body] if isinstance(body, dict) else []
        if removed:
            raise ValueError(f"{' and '.join(removed)}: removed with the imitation of a planner; leave it out")
        return body


class TrainingConfig(_Part):
    """The two parts of the file."""

    environment: EnvironmentConfig = EnvironmentConfig()
    agent: AgentConfig = AgentConfig()

    @model_validator(mode="after")
    def _enough_updates(self) -> Self:
        steps = self.agent.buffer_size * self.environment.envs
        if steps > ROLLOUT_STEPS:
            raise ValueError(
                f"agent.buffer_size {self.agent.buffer_size} is per environment and environment.envs is "
                f"{self.environment.envs}: {steps:,} steps between two updates; choose a product of at most "
                f"{ROLLOUT_STEPS:,}, such as buffer_size 24 with 1024 envs, or 2048 with 8"
            )
        return self

    @classmethod
    def load(cls, path: str | Path | None, **agent: Any) -> Self:
        """Read a JSON file (or take the defaults); fields of the agent that are given and not None win.

        Raises ConfigError.
        """
        body: dict[str, Any] = {}
        if path is not None:
            try:
                body = json.loads(Path(path).read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise ConfigError(
                    f"{path}: {error}; a JSON file with the parts environment and agent is needed"
                ) from error
        given = {name: value for name, value in agent.items() if value is not None}
        try:
            config = cls.model_validate(body)
            return cls(environment=config.environment, agent=AgentConfig(**(config.agent.model_dump() | given)))
        except ValidationError as error:
            raise problem(path or "configuration", error) from error
