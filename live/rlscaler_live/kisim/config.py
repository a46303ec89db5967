"""Configuration of the KISim experiment: its JSON as it stands, of the parts `environment`, `agent`, `training`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, model_validator

from rlscaler_rl.simulation.batch import SENSE_SECONDS
from rlscaler_rl.training.config import KISIM_FIELDS, ConfigError, problem


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, populate_by_name=True)


class Environment(_Part):
    """The service, an episode, and the weights of the reward. The defaults are KISim's."""

    namespace: str = "workloads"
    """Namespace on a cluster; no simulation reads it, nor the two addresses."""
    prometheus_url: str = "http://localhost:9090"
    locust_url: str | None = "http://localhost:8089"
    episode_duration: int = Field(default=300, ge=60)
    """Seconds."""
    action_interval: int = Field(default=30, ge=10, le=300, multiple_of=SENSE_SECONDS)
    """Seconds."""
    min_replicas: int = Field(default=1, ge=0, le=3)
    max_replicas: int = Field(default=10, ge=3, le=60)
    """Bounds of either pool; an episode begins with three replicas of each."""
    observation_window: int = Field(default=60, ge=1)
    latency_weight: float = Field(default=0.4, ge=0)
    throughput_weight: float = Field(default=0.3, ge=0)
    efficiency_weight: float = Field(
        default=0.2, ge=0, validation_alias=AliasChoices("resource_efficiency_weight", "efficiency_weight")
    )
    stability_weight: float = Field(default=0.1, ge=0)
    objective: str = Field(default="weighted", pattern="^weighted$")
    """The reward with the four weights; other objectives belong to the general training."""

    @model_validator(mode="after")
    def _whole_intervals(self) -> Self:
        if self.episode_duration % self.action_interval:
            raise ValueError(
                f"episode_duration {self.episode_duration} is no multiple of action_interval {self.action_interval}"
            )
        if not (self.latency_weight or self.throughput_weight or self.efficiency_weight or self.stability_weight):
            raise ValueError("latency_weight, throughput_weight, efficiency_weight, stability_weight: all are 0")
        return self

    def cluster(self) -> dict[str, Any]:
        """Return the fields that name a cluster of the user's; empty where the file has none of them."""
        return self.model_dump(include=self.model_fields_set & {"namespace", "prometheus_url", "locust_url"})

    @property
    def intervals(self) -> int:
        """Action intervals of an episode."""
        return self.episode_duration // self.action_interval


class Agent(_Part):
    """Hyperparameters of PPO. The defaults are KISim's."""

    learning_rate: float = Field(default=3e-4, gt=0)
    hidden_size: int = Field(default=256, ge=1)
    num_layers: int = Field(default=3, ge=1, le=8)
    buffer_size: int = Field(default=2048, ge=2)
    """Most steps between two updates."""
    batch_size: int = Field(default=64, ge=2)
    ppo_epochs: int = Field(default=4, ge=1)
    gamma: float = Field(default=0.99, ge=0, le=1)
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    clip_epsilon: float = Field(default=0.2, gt=0)
    entropy_coef: float = Field(default=0.01, ge=0)
    value_coef: float = Field(default=0.5, ge=0)
    max_grad_norm: float = Field(default=0.5, gt=0)


class Training(_Part):
    """Length of the training, in episodes."""

    episodes: int = Field(default=100, ge=1)
    """Fewest episodes; the training ends with the update after the last one."""
    evaluation_interval: int = Field(default=20, ge=1)
    """Episodes between two evaluations on every pattern."""
    save_interval: int = Field(default=10, ge=1)
    """Episodes between two checkpoints."""


class KisimConfig(_Part):
    """The whole file."""

    environment: Environment = Environment()
    agent: Agent = Agent()
    training: Training = Training()
    use_gpu: bool = False
    description: str = ""

    @model_validator(mode="after")
    def _a_batch_fits(self) -> Self:
        if self.agent.batch_size > self.agent.buffer_size:
            raise ValueError(
                f"agent.batch_size {self.agent.batch_size} is above agent.buffer_size {self.agent.buffer_size}: "
                "lower batch_size or raise buffer_size"
            )
        return self

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a JSON file. Raises ConfigError naming the file and the field."""
        try:
            return cls.model_validate(json.loads(path.read_text(encoding="utf-8")))
        except ValidationError as error:
            raise problem(path, error) from error
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path}: {error}; a JSON file with the parts environment and agent is needed") from error

    @property
    def update_steps(self) -> int:
        """Steps between two updates: the first whole episodes that hold a batch, as KISim updates after an episode."""
        episode = self.environment.intervals
        return min(-(-self.agent.batch_size // episode) * episode, self.agent.buffer_size)

    def remarks(self) -> list[str]:
        """Return a sentence for each field of the file that means something else here than in KISim."""
        agent = self.agent
        texts = {
            ("environment", "observation_window"): "observation_window: not used; rates are over the windows of the "
            "operator's queries, 10 s and 60 s",
            ("environment", "locust_url"): "namespace, prometheus_url, locust_url: used with --env cluster alone, and "
            "a cluster is started where the file has none of them",
            ("agent", "num_layers"): f"num_layers {agent.num_layers}: layers of the actor and of the critic; KISim "
            "shares three between them, whatever the field says",
            (
                "agent",
                "buffer_size",
            ): f"buffer_size {agent.buffer_size}: the most steps between two updates; as in KISim "
            f"an update follows the episode that completes a batch, here every {self.update_steps} steps",
        }
        return [text for (part, field), text in texts.items() if field in getattr(self, part).model_fields_set]


def is_kisim(path: Path) -> bool:
    """Return whether a configuration file is one of KISim: by its names, or by the objective `weighted`."""
    try:
        body: Any = json.loads(path.read_text(encoding="utf-8"))
        parts = {part: body.get(part) or {} for part in KISIM_FIELDS}
        named = any(KISIM_FIELDS[part] & set(fields) for part, fields in parts.items())
        return (named and "objective" not in parts["environment"]) or (
            parts["environment"].get("objective") == "weighted"
        )
    except (OSError, ValueError, AttributeError, TypeError):
        return False
