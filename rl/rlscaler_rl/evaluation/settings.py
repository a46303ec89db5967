"""Settings of an evaluation: options of the command line over the user's JSON file over the defaults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.training.config import KISIM_FIELDS, KISIM_PARTS, EnvironmentConfig
from rlscaler_rl.workloads import EXTRAS, MIXED, NAMES, PATTERNS, TRACES

DEFAULT_WORKLOADS = (*PATTERNS, *TRACES)
APART = (MIXED, *EXTRAS)
"""Workloads that are not part of the mean: the patterns with scale and phase drawn, steady loads, single pools, and
services drawn from the whole envelope."""

GROUPS = {"patterns": PATTERNS, "traces": TRACES, "all": DEFAULT_WORKLOADS}
"""Names of groups of workloads."""

CSV = (".csv", ".csv.gz")
"""Endings of a workload that is a file of the user: a history cut by time, whose last quarter is played."""

SENSE_SECONDS = 5


class Environment(BaseModel):
    """The `environment` part of a configuration file.

    Addresses of a cluster are accepted and ignored by a simulation, as are the reward weights of a training.
    """

    model_config = ConfigDict(extra="allow")

    episode_duration: int = 600
    action_interval: int = 30
    min_replicas: int = Field(1, ge=0, le=200)
    max_replicas: int = Field(10, ge=1, le=200)


class EvaluationSettings(BaseModel):
    """Settings that determine the played episodes; their digest is in the result."""

    model_config = ConfigDict(frozen=True)

    workloads: tuple[str, ...] = DEFAULT_WORKLOADS
    """Names, names of groups, or CSV files; their test parts are played."""

    level: Literal["request", "fluid", "live"] = "request"
    """request: every request is simulated (the judge of published figures); fluid: the training simulator; live: on a
    cluster, in real time."""

    traces: Path | None = None
    """Folder of the full traces; None: the samples that ship."""

    runs: int = Field(5, ge=1, le=1000)
    """Seeds; run r uses seed + r."""

    episodes: int = Field(16, ge=1, le=10_000)
    """Per run and workload."""

    extras: bool = True
    """Also play the workloads that are reported apart (`APART`)."""

    seed: int = Field(0, ge=0)
    interval_seconds: int = Field(30, ge=SENSE_SECONDS, le=300, multiple_of=SENSE_SECONDS)
    duration_seconds: int = Field(600, ge=60, le=86_400, multiple_of=SENSE_SECONDS)
    world: Literal["uncertain", "exact"] = "uncertain"
    """uncertain: the declared capacity is wrong by -40 to +20 % and drifts, starts cost, Prometheus scrapes every 15 s;
    exact: as declared. A live cluster ignores the field."""

    min_replicas: int = Field(1, ge=0)
    max_replicas: int = Field(10, ge=1)
    low_rps: float = Field(10.0, gt=0)
    high_rps: float = Field(100.0, gt=0)

    @field_validator("workloads")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        names = [member for name in value for member in GROUPS.get(name, (name,))]
        unknown = [name for name in names if name not in NAMES and not name.endswith(CSV)]
        if unknown or not names:
            choices = ", ".join([*NAMES, *GROUPS])
            raise ValueError(f"{', '.join(unknown) or 'nothing'}: choose from {choices}, or give a .csv of your own")
        distinct = tuple(dict.fromkeys(names))
        files = [Path(name).name for name in distinct]
        if alike := {name for name in files if files.count(name) > 1}:
            raise ValueError(f"{', '.join(sorted(alike))}: two files of one name; rename one, results go by the name")
        return distinct

    @field_validator("traces")
    @classmethod
    def _folder(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_dir():
            raise ValueError("no such folder; leave it out to play the samples that ship")
        return value

    @property
    def played(self) -> list[str]:
        """Every workload in the order of the report, extras last."""
        return list(dict.fromkeys([*self.workloads, *(APART if self.extras else ())]))

    @property
    def apart(self) -> list[str]:
        return [name for name in self.played if name in APART]


_FROM_FILE = {
    "episode_duration": "duration_seconds",
    "action_interval": "interval_seconds",
    "min_replicas": "min_replicas",
    "max_replicas": "max_replicas",
}


def read_settings(config: Path | None, **options: Any) -> EvaluationSettings:
    """Return the defaults, overridden by the file's `environment` part, then by every option that is not None.

    Raises EvaluationError.
    """
    values: dict[str, Any] = {}
    if config is not None:
        environment = _environment(config, options.get("level") == "live")
        values = {ours: getattr(environment, theirs) for theirs, ours in _FROM_FILE.items()}
    values |= {name: value for name, value in options.items() if value is not None}
    try:
        settings = EvaluationSettings(**values)
    except ValidationError as error:
        raise EvaluationError(_explain(error, "options")) from error
    if settings.min_replicas > settings.max_replicas:
        raise EvaluationError(f"min_replicas {settings.min_replicas} is above max_replicas {settings.max_replicas}")
    return settings


def parts_of(path: Path | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parts `environment` and `agent` of a configuration file. Raises EvaluationError.

    The fields that only KISim's experiment has are left out, so that its file can also be evaluated.
    """
    if path is None:
        return {}, {}
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise EvaluationError(f"--config {path}: {error.strerror}") from error
    except ValueError as error:
        raise EvaluationError(f"--config {path}: not JSON: {error}") from error
    parts = ("environment", "agent")
    unknown = sorted(set(content) - set(parts) - KISIM_PARTS) if isinstance(content, dict) else ["not an object"]
    if unknown:
        raise EvaluationError(f"--config {path}: {', '.join(unknown)}: the parts are `environment` and `agent`")
    for part in parts:
        if not isinstance(content.get(part, {}), dict):
            raise EvaluationError(f"--config {path}: {part}: not an object; write its fields in braces")
    environment, agent = (
        {name: value for name, value in content.get(part, {}).items() if name not in KISIM_FIELDS[part]}
        for part in parts
    )
    return environment, agent


def _environment(path: Path, live: bool) -> Environment:
    """Read the `environment` part of a file; of a `live` one the cluster's own fields are checked later."""
    fields, _ = parts_of(path)
    if not live and (unknown := sorted(set(fields) - set(EnvironmentConfig.model_fields))):
        known = ", ".join(EnvironmentConfig.model_fields)
        raise EvaluationError(f"--config {path}: environment: {', '.join(unknown)}: no such field; there are {known}")
    try:
        return Environment(**fields)
    except ValidationError as error:
        raise EvaluationError(_explain(error, f"--config {path}: environment")) from error


def _explain(error: ValidationError, where: str) -> str:
    parts = (f"{'.'.join(map(str, item['loc']))} = {item['input']!r}: {item['msg']}" for item in error.errors())
    return f"{where}: " + "; ".join(parts)
