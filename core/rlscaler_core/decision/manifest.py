"""The JSON beside an actor's ONNX file: what it was made for, and how to tell that it is the right file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from rlscaler_core.decision.exceptions import ContractMismatchError, ModelError
from rlscaler_core.decision.forecast import GAINS, MEMORY_LIMIT_SECONDS
from rlscaler_core.decision.observation import CONTRACT_VERSION, NEUTRAL, ObservationContract
from rlscaler_core.decision.training_distribution import TrainingDistribution
from rlscaler_core.decision.types import CPU, GPU, OBSERVATIONS, Bool, Float, Observation, Params


def _ordered(bounds: tuple[float, float]) -> tuple[float, float]:
    if not bounds[0] <= bounds[1]:
        raise ValueError(f"lower bound {bounds[0]} above upper bound {bounds[1]}")
    return bounds


Range = Annotated[tuple[float, float], AfterValidator(_ordered)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ColdStart(_Model):
    """Seconds from a pod's creation until it is ready."""

    gpu: Range
    cpu: Range


class Envelope(_Model):
    """The conditions the actor was trained under; outside them it is not asked."""

    slo_ms: Range
    cold_start_seconds: ColdStart
    price_ratio: Range
    """Cost per hour of a GPU replica over that of a CPU replica; checked where both pools are there."""
    interval_seconds: Range
    rps_ratio: Range
    """Capacity of a GPU replica over that of a CPU replica; checked where both are there and known."""
    lag_seconds: Range
    """Age of the newest arrival sample when the actor acts; only the upper end counts, as fresher is no harm."""
    observation: TrainingDistribution | None = None
    """The distribution of the observations in training; None = not measured, and none is out of distribution."""

    def mask(self, params: Params, lag_seconds: Float | None = None, observation: Observation | None = None) -> Bool:
        """Say where (N,) a row is outside the envelope. What is not known (NaN) puts no row outside.

        `lag_seconds` (N,) is the age of the newest arrival sample.
        """
        values, bounds = self._measured(params, lag_seconds)
        outside: Bool = np.any((values < bounds[:, 0]) | (values > bounds[:, 1]), axis=1)
        if self.observation is not None and observation is not None:
            outside |= self.observation.mask(observation)
        return outside

    def outside(
        self, params: Params, lag_seconds: Float | None = None, observation: Observation | None = None
    ) -> tuple[Bool, list[str]]:
        """Give the mask (N,) and one reason a row: what is outside, its value and the bounds; '' for a row inside."""
        values, bounds = self._measured(params, lag_seconds)
        outside = self.mask(params, lag_seconds, observation)
        reasons = [STRANGE if is_outside else "" for is_outside in outside]
        outside_bounds = np.any((values < bounds[:, 0]) | (values > bounds[:, 1]), axis=1)
        for row in np.flatnonzero(outside_bounds):
            reasons[row] = "; ".join(
                f"{what} {value:g} is outside {low:g}..{high:g}"
                for what, value, (low, high) in zip(_MEASURED, values[row], bounds, strict=True)
                if value < low or value > high
            )
        return outside, reasons

    def _measured(self, params: Params, lag_seconds: Float | None) -> tuple[Float, Float]:
        """Give the measured values (N, len(_MEASURED)) and their bounds (len(_MEASURED), 2)."""
        both = params.present.all(axis=1)
        cost, rps = params.cost_per_hour, params.requests_per_second
        values = np.empty((len(params), len(_MEASURED)))
        values[:, 0] = params.slo_ms
        values[:, 1] = params.interval_seconds
        values[:, 2:4] = np.where(params.present, params.cold_start_seconds, np.nan)
        with np.errstate(divide="ignore", invalid="ignore"):
            values[:, 4] = np.where(both, cost[:, GPU] / cost[:, CPU], np.nan)
            values[:, 5] = np.where(both, rps[:, GPU] / rps[:, CPU], np.nan)
        values[:, 6] = np.nan if lag_seconds is None else np.where(np.isfinite(lag_seconds), lag_seconds, np.nan)
        cold, lag = self.cold_start_seconds, (-np.inf, self.lag_seconds[1])
        ranges = [self.slo_ms, self.interval_seconds, cold.gpu, cold.cpu, self.price_ratio, self.rps_ratio, lag]
        return values, np.array(ranges)


STRANGE = "the observation is unlike those of training"

_MEASURED = (
    "slo.latencyMilliseconds",
    "intervalSeconds",
    "targets.gpu.coldStartSeconds",
    "targets.cpu.coldStartSeconds",
    "costPerHour gpu/cpu",
    "requestsPerSecond gpu/cpu",
    "age of the arrival rate",
)


class Training(_Model):
    """Where the actor comes from."""

    model_config = ConfigDict(extra="allow", frozen=True)

    seed: int | None = None
    steps: int | None = None
    git_revision: str | None = None
    date: str | None = None
    versions: dict[str, str] = {}
    hyperparameters: dict[str, Any] = {}


class Normalisation(_Model):
    """The constants of `ObservationContract`, under the same names."""

    utilization_scale: float = Field(default=100.0, gt=0)
    latency_log_scale: float = Field(default=20.0, gt=0)
    throughput_scale: float = Field(default=100.0, gt=0)
    replicas_scale: float = Field(default=10.0, gt=0)
    clip: float = Field(default=3.0, gt=0)
    sees_time: bool = False


class RuleGains(_Model):
    """The forecast rule that a residual action is added to; fields and defaults as in `rule.RuleSettings`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    loading: float = Field(default=1.15, gt=0)
    horizon: float = Field(default=2.0, ge=0)
    trend: float = float(GAINS.trend)
    residual: float = float(GAINS.residual)
    peak: float = float(GAINS.peak)
    peak_seconds: float = Field(default=MEMORY_LIMIT_SECONDS, gt=0, le=MEMORY_LIMIT_SECONDS)


class Manifest(_Model):
    """What `decide` must know of an actor. `envelope` None means: act everywhere (simulation, rules, controls)."""

    contract_version: str = CONTRACT_VERSION
    name: str
    stack_size: int = Field(default=4, ge=1, le=64)
    residual: bool = False
    """The action is added to the forecast rule's replicas, not to `spec.replicas`."""
    rule: RuleGains = RuleGains()
    """The gains of the rule that the action is added to."""
    neutral: tuple[float, ...] = Field(default=NEUTRAL, min_length=len(OBSERVATIONS), max_length=len(OBSERVATIONS))
    normalisation: Normalisation = Normalisation()
    digest: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    """sha256 of the ONNX file, hexadecimal; empty where there is no file."""
    envelope: Envelope | None = None
    training: Training = Training()

    @property
    def contract(self) -> ObservationContract:
        return ObservationContract(stack_size=self.stack_size, neutral=self.neutral, **self.normalisation.model_dump())

    def mask(self, params: Params, lag_seconds: Float | None = None, observation: Observation | None = None) -> Bool:
        """Say where (N,) a row is outside the envelope; none is where the actor has no envelope."""
        if self.envelope is None:
            return np.zeros(len(params), np.bool_)
        return self.envelope.mask(params, lag_seconds, observation)

    def outside(
        self, params: Params, lag_seconds: Float | None = None, observation: Observation | None = None
    ) -> tuple[Bool, list[str]]:
        """Give the mask (N,) and one reason a row, '' for a row inside."""
        if self.envelope is None:
            return self.mask(params), [""] * len(params)
        return self.envelope.outside(params, lag_seconds, observation)

    @classmethod
    def parse(cls, text: str | bytes, source: str = "manifest") -> Self:
        """Read JSON. Raises ContractMismatchError for another contract version, ModelError for anything malformed."""
        try:
            body = json.loads(text)
        except ValueError as error:
            raise ModelError(f"{source}: not JSON ({error}); export the actor again") from error
        version = body.get("contract_version") if isinstance(body, dict) else None
        if version != CONTRACT_VERSION:
            raise ContractMismatchError(
                f"{source}: contract_version is {version!r} and this release reads {CONTRACT_VERSION!r}; "
                "use an actor trained with this release, or the release the actor was trained with"
            )
        try:
            return cls.model_validate(body)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            raise ModelError(f"{source}: {field}: {first['msg']}; export the actor again") from error

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file. Raises ModelError, and ContractMismatchError for another contract version."""
        try:
            text = Path(path).read_bytes()
        except OSError as error:
            raise ModelError(f"{path}: {error.strerror}; the manifest lies beside the ONNX file") from error
        return cls.parse(text, str(path))
