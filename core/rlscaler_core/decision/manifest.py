"""The manifest: the JSON beside an actor's ONNX file, with its envelope, its training and the digest of the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from rlscaler_core.decision.exceptions import ContractMismatchError, ModelError
from rlscaler_core.decision.forecast import GAINS, MEMORY_LIMIT_SECONDS
from rlscaler_core.decision.observation import CONTRACT_VERSION, NEUTRAL, RETRAIN, ObservationContract
from rlscaler_core.decision.readiness import Prices
from rlscaler_core.decision.training_distribution import TrainingDistribution
from rlscaler_core.decision.types import CPU, GPU, OBSERVATIONS, Bool, Float, Observation, Params
from rlscaler_core.decision.units import LOADS, SIGNALS, UNITS, SignalName, UnitName

EDGE = 1e-6
"""Share of a bound by which a value may pass it: the ratio of two capacities is rounded."""


def _ordered(bounds: tuple[float, float]) -> tuple[float, float]:
    if not bounds[0] <= bounds[1]:
        raise ValueError(f"lower bound {bounds[0]} above upper bound {bounds[1]}")
    return bounds


Range = Annotated[tuple[float, float], AfterValidator(_ordered)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PoolRanges(_Model):
    """One range for each pool."""

    gpu: Range
    cpu: Range


class Consumers(_Model):
    """The consumer groups that an actor was trained with; the rest of the envelope is about their consumers."""

    protocols: tuple[str, ...] = Field(min_length=1)
    """Assignors of the consumer groups: `range` and `cooperative-sticky`, or `consumer` for KIP-848."""
    partitions: Range
    """Partitions of the topic; more consumers have nothing to read."""


class Envelope(_Model):
    """The conditions the actor was trained under; outside them it is not asked."""

    slo_ms: Range
    cold_start_seconds: PoolRanges
    """Seconds from a pod's creation until it is ready."""
    max_replicas: PoolRanges
    """Range of `targets.*.maxReplicas`."""
    price_ratio: Range
    """Cost per hour of a GPU replica over that of a CPU replica; checked where both pools are there."""
    interval_seconds: Range
    rps_ratio: Range
    """Capacity of a GPU replica over that of a CPU replica; checked where both are there and known."""
    lag_seconds: Range
    """Age of the newest arrival sample when the actor acts; only the upper end counts, as fresher is no harm."""
    units: dict[UnitName, Range | None] = Field(default={"requests": None}, min_length=1)
    """Units of the load by their name in `capacity.unit`, each with the range of a replica's capacity in it;
    null = any, as the actor is fed loads as shares of the capacity."""
    signals: tuple[SignalName, ...] = Field(default=("endToEnd",), min_length=1)
    """The latencies that `slo_ms` was of, as `slo.signal` names them."""
    consumers: Consumers | None = None
    """The actor was trained for consumers of a stream, `signal.kafka`, and for nothing else; None = for services."""
    observation: TrainingDistribution | None = None
    """The distribution of the observations in training; None = not measured, and none is out of distribution."""

    def mask(self, params: Params, lag_seconds: Float | None = None, observation: Observation | None = None) -> Bool:
        """Return where (N,) a row is outside the envelope. An unknown value (NaN) puts no row outside.

        `lag_seconds` (N,) is the age of the newest arrival sample.
        """
        outside: Bool = np.any(self._beyond(params, lag_seconds), axis=1)
        outside |= ~self._trained(params)
        if self.observation is not None and observation is not None:
            outside |= self.observation.mask(observation)
        return outside

    def outside(
        self, params: Params, lag_seconds: Float | None = None, observation: Observation | None = None
    ) -> tuple[Bool, list[str]]:
        """Return the mask (N,) and one reason a row: the field, its value and its bounds; '' for a row inside."""
        values, bounds = self._measured(params, lag_seconds)
        outside = self.mask(params, lag_seconds, observation)
        reasons = [STRANGE if is_outside else "" for is_outside in outside]
        beyond = self._beyond(params, lag_seconds)
        for row in np.flatnonzero(beyond.any(axis=1)):
            reasons[row] = "; ".join(
                f"{name} {value:g} is outside {low:g}..{high:g}"
                for name, value, (low, high), is_beyond in zip(_MEASURED, values[row], bounds, beyond[row], strict=True)
                if is_beyond
            )
        for row in np.flatnonzero(~self._trained(params)):
            others = [reasons[row]] if beyond[row].any() else []
            reasons[row] = "; ".join([*self._untrained(params, int(row)), *others])
        return outside, reasons

    def _beyond(self, params: Params, lag_seconds: Float | None) -> NDArray[np.bool_]:
        """Return where (N, len(_MEASURED)) a value is outside its bounds, by more than the rounding of a ratio."""
        values, bounds = self._measured(params, lag_seconds)
        return np.asarray((values < bounds[:, 0] * (1 - EDGE)) | (values > bounds[:, 1] * (1 + EDGE)))

    def _trained(self, params: Params) -> Bool:
        """Return where (N,) the load is counted and the latency is taken as in training."""
        trained = np.zeros(len(params), np.bool_)
        for name, bounds in self.units.items():
            here = params.unit == UNITS.index(name)
            if bounds is not None:
                carried = params.requests_per_second
                within = (carried >= bounds[0]) & (carried <= bounds[1])
                here = here & (within | np.isnan(carried) | ~params.present).all(axis=1)
            trained |= here
        trained &= params.stream == (self.consumers is not None)
        return trained & np.isin(params.slo_signal, [SIGNALS.index(name) for name in self.signals])

    def _untrained(self, params: Params, row: int) -> list[str]:
        """Return a sentence on the load unit and latency signal of a row where they differ from training, or ''."""
        unit, signal = UNITS[params.unit[row]], SIGNALS[params.slo_signal[row]]
        reasons = []
        if params.stream[row] != (self.consumers is not None):
            reasons.append(OF_SERVICES if self.consumers is None else OF_CONSUMERS)
        if unit not in self.units:
            reasons.append(f"capacity.unit is {unit} and the model was trained for {' and '.join(self.units)}")
        elif (bounds := self.units[unit]) is not None:
            there = params.requests_per_second[row][params.present[row]]
            outside = [f"{value:g}" for value in there if value < bounds[0] or value > bounds[1]]
            if outside:
                carries = f"a replica carries {' and '.join(outside)} {LOADS[unit]}"
                reasons.append(f"{carries}, which is outside {bounds[0]:g}..{bounds[1]:g}")
        if signal not in self.signals:
            reasons.append(f"slo.signal is {signal} and the model was trained for {' and '.join(self.signals)}")
        return reasons

    def _measured(self, params: Params, lag_seconds: Float | None) -> tuple[Float, Float]:
        """Return the measured values (N, len(_MEASURED)) and their bounds (len(_MEASURED), 2)."""
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
        values[:, 7:9] = np.where(params.present, params.max_replicas, np.nan)
        cold, lag, size = self.cold_start_seconds, (-np.inf, self.lag_seconds[1]), self.max_replicas
        ranges = [self.slo_ms, self.interval_seconds, cold.gpu, cold.cpu, self.price_ratio, self.rps_ratio, lag]
        ranges += [size.gpu, size.cpu]
        return values, np.array(ranges)


OF_SERVICES = (
    "policy: the policy has signal.kafka and the model was trained for services; remove policy, or name a model that "
    "`rlscaler streams train` made"
)
OF_CONSUMERS = (
    "policy: the model was trained for consumers of a stream and the policy has no signal.kafka; name a model that "
    "`rlscaler train` made"
)

STRANGE = "the observation is unlike those of training"

_MEASURED = (
    "slo.latencyMilliseconds",
    "intervalSeconds",
    "targets.gpu.coldStartSeconds",
    "targets.cpu.coldStartSeconds",
    "costPerHour gpu/cpu",
    "requestsPerSecond gpu/cpu",
    "age of the arrival rate",
    "targets.gpu.maxReplicas",
    "targets.cpu.maxReplicas",
)


_OF_EARLIER_RELEASES = {
    "envelope.max_replicas": "a model of an earlier release does not say for how large pools it was trained: export it "
    'again, or state the range yourself, such as {"gpu": [5, 20], "cpu": [5, 20]} for one that began as the bundled one'
}
"""Remedy for a manifest without a field that earlier releases did not write."""


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
    replicas_scale: float = Field(default=10.0, gt=0)
    clip: float = Field(default=3.0, gt=0)


class RuleGains(_Model):
    """The forecast rule that a residual action is added to; fields and defaults as in `rule.RuleSettings`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    loading: float = Field(default=1.15, gt=0)
    horizon: float = Field(default=2.0, ge=0)
    trend: float = float(GAINS.trend)
    residual: float = float(GAINS.residual)
    peak: float = float(GAINS.peak)
    peak_seconds: float = Field(default=MEMORY_LIMIT_SECONDS, gt=0, le=MEMORY_LIMIT_SECONDS)


class LearnedPrices(_Model):
    """Prices of the rule under a network for its memory of a service; names and meanings as in `rule.RuleSettings`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    late_price: float = Field(gt=0)
    caution: float = Field(gt=0)
    jump_caution: float = Field(gt=0)


class Manifest(_Model):
    """Facts about an actor that `decide` needs. `envelope` None: act everywhere (simulation, rules, controls)."""

    contract_version: str = CONTRACT_VERSION
    name: str
    stack_size: int = Field(default=4, ge=1, le=64)
    residual: bool = False
    """The action is added to the forecast rule's replicas, not to `spec.replicas`."""
    lasting: bool = False
    """The steps of the replica heads move the headroom above the rule's plan (`headroom`), and no replicas at once."""
    rule: RuleGains = RuleGains()
    """The gains of the rule that the action is added to."""
    learned: LearnedPrices | None = None
    """The rule that the action is added to learns its service and splits the traffic by the load, and the network is
    shown that rule's forecast; None = both know the last three minutes, and the traffic is balanced, as in manifests of
    earlier releases."""
    neutral: tuple[float, ...] = Field(default=NEUTRAL, min_length=len(OBSERVATIONS), max_length=len(OBSERVATIONS))
    normalisation: Normalisation = Normalisation()
    digest: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    """sha256 of the ONNX file, hexadecimal; empty where there is no file."""
    envelope: Envelope | None = None
    training: Training = Training()

    @model_validator(mode="after")
    def _lasting_over_a_rule(self) -> Self:
        if self.lasting and not self.residual:
            raise ValueError("lasting: a headroom is above the plan of the rule, and residual is false; set it to true")
        return self

    @property
    def contract(self) -> ObservationContract:
        prices = None
        if self.learned is not None:
            prices = Prices(self.learned.late_price, self.learned.caution, self.learned.jump_caution)
        constants = self.normalisation.model_dump()
        return ObservationContract(stack_size=self.stack_size, neutral=self.neutral, prices=prices, **constants)

    def mask(self, params: Params, lag_seconds: Float | None = None, observation: Observation | None = None) -> Bool:
        """Return where (N,) a row is outside the envelope; none is where the actor has no envelope."""
        if self.envelope is None:
            return np.zeros(len(params), np.bool_)
        return self.envelope.mask(params, lag_seconds, observation)

    def outside(
        self, params: Params, lag_seconds: Float | None = None, observation: Observation | None = None
    ) -> tuple[Bool, list[str]]:
        """Return the mask (N,) and one reason a row, '' for a row inside."""
        if self.envelope is None:
            return self.mask(params), [""] * len(params)
        return self.envelope.outside(params, lag_seconds, observation)

    @classmethod
    def parse(cls, text: str | bytes, source: str = "manifest") -> Self:
        """Read JSON. Raises ContractMismatchError for another contract version, ModelError for anything malformed."""
        try:
            body = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ModelError(f"{source}: not JSON ({error}); export the actor again") from error
        version = body.get("contract_version") if isinstance(body, dict) else None
        if version != CONTRACT_VERSION:
            raise ContractMismatchError(
                f"{source}: contract_version is {version!r} and this release reads {CONTRACT_VERSION!r}; "
                f"{RETRAIN}, or use the release the actor was trained with"
            )
        try:
            return cls.model_validate(body)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            remedy = _OF_EARLIER_RELEASES.get(field, "export the actor again")
            raise ModelError(f"{source}: {field}: {first['msg']}; {remedy}") from error

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file. Raises ModelError, and ContractMismatchError for another contract version."""
        try:
            text = Path(path).read_bytes()
        except OSError as error:
            raise ModelError(f"{path}: {error.strerror}; the manifest lies beside the ONNX file") from error
        return cls.parse(text, str(path))
