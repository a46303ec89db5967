"""The forecast rule: replicas for an upper forecast of the load, GPU for the base and CPU for the rest.

It needs no network, and it is what the residual mode adds its action to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rlscaler_core.decision.action import one_hot
from rlscaler_core.decision.floor import MANY, ROUNDING, whole_replicas
from rlscaler_core.decision.forecast import GAINS, MEMORY_LIMIT_SECONDS, Gains, upper_forecast
from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.decision.spec import SpecSettings
from rlscaler_core.decision.types import Float, Float32, Int, Params, Placement, Samples, State, either

if TYPE_CHECKING:
    from rlscaler_core.decision.actor import ActorLike

Value = Float | float
"""A setting: one value for all rows, or (N,) of them."""


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """What may be tuned of the rule; every field is one value for all rows, or one for each row."""

    loading: Value = 1.15
    """Replicas are loaded this much above `targetUtilization` at the forecast, which is an upper one already; never
    above their whole capacity."""

    horizon: Value = 2.0
    """Cold starts that the forecast looks ahead."""

    trend: Value = GAINS.trend
    residual: Value = GAINS.residual
    peak: Value = GAINS.peak
    peak_seconds: Value = MEMORY_LIMIT_SECONDS
    """These four are as in `forecast.Gains`."""

    placement: Int | int = Placement.BALANCED
    """How traffic is split."""

    spec: SpecSettings = field(default_factory=SpecSettings)
    """What is set of the policy's spec; `loading` is relative to its target utilization."""


DEFAULT_SETTINGS = RuleSettings()


class Rule:
    """The forecast rule behind the interface of an actor: no change asked for, on top of the rule's replicas.

    It reads SLO, capacity and cold start as they are, so it has no envelope.
    """

    manifest = Manifest(name="rule", stack_size=1, residual=True)

    def __init__(self, settings: RuleSettings = DEFAULT_SETTINGS) -> None:
        self.settings = settings

    def probabilities(self, stacked: Float32) -> Float32:
        """Give one-hot probabilities (N, 13): pools as the rule says, traffic as its settings say."""
        action = np.zeros((len(stacked), 3), np.int32)
        action[:, 2] = self.settings.placement
        return one_hot(action)

    @property
    def spec(self) -> SpecSettings:
        """What the settings change of the policy's spec."""
        return self.settings.spec


def rule_of(manifest: Manifest) -> RuleSettings | None:
    """Give the rule that a network's action is added to; None where it is added to the present replicas."""
    return RuleSettings(**manifest.rule.model_dump()) if manifest.residual else None


def rule_under(actor: ActorLike) -> RuleSettings | None:
    """Give `rule_of` any actor; the rule itself has settings of its own, which may differ from row to row."""
    return actor.settings if isinstance(actor, Rule) else rule_of(actor.manifest)


def rule_replicas(params: Params, state: State, samples: Samples, settings: RuleSettings) -> Int:
    """Give the rule's replicas (N, 2), not yet within limits; `spec_replicas` where load or capacity are not known.

    The pool with the cheaper capacity (the base) carries whole replicas' worth of the forecast, the other the
    remainder and, where it is ready sooner, what base replicas that are still starting cannot carry yet.
    """
    utilization = np.minimum(_per_row(settings.loading) * params.target_utilization, 1.0)
    capacity = np.where(params.present, params.requests_per_second * utilization, 0.0)
    cold = np.where(params.present, params.cold_start_seconds, 0.0)
    ahead = settings.horizon * np.maximum(cold[:, 0], cold[:, 1])
    gains = Gains(settings.trend, settings.residual, settings.peak, settings.peak_seconds)
    slow = upper_forecast(state.rate_time, state.rate_value, samples.time, ahead, gains)
    load = np.maximum(slow, samples.arrival_rate)
    sized = np.isfinite(load) & ~either(np.isnan(capacity))
    load, capacity = np.where(sized, load, 0.0), np.nan_to_num(capacity)
    usable = capacity > 0
    unit_price = np.where(usable, params.cost_per_hour / np.where(usable, capacity, 1.0), np.inf)
    base = np.where(unit_price[:, 0] <= unit_price[:, 1], 0, 1).astype(np.int32)
    rows = np.arange(len(base), dtype=np.int32)
    base_replicas, rest_replicas = _split(params, samples, load, capacity, base, rows)
    replicas = np.empty_like(samples.spec_replicas)
    replicas[rows, base] = base_replicas
    replicas[rows, 1 - base] = rest_replicas
    return np.where(sized[:, None], replicas, samples.spec_replicas)


def _per_row(value: Value) -> Float:
    """Shape a setting so that it broadcasts with an (N, 2) array: () or (N, 1)."""
    column = np.asarray(value, np.float64)
    return column[:, None] if column.ndim else column


def _split(params: Params, samples: Samples, load: Float, capacity: Float, base: Int, rows: Int) -> tuple[Int, Int]:
    """Give the replicas (N,) of the base pool and of the other, whose minimum is there anyway."""
    rest = 1 - base
    base_unit, rest_unit = capacity[rows, base], capacity[rows, rest]
    base_cost, rest_cost = params.cost_per_hour[rows, base], params.cost_per_hour[rows, rest]
    base_max, rest_max = params.max_replicas[rows, base], params.max_replicas[rows, rest]
    always = params.min_replicas[rows, rest]
    carried = np.maximum(load - always * rest_unit, 0.0)
    whole = np.floor(_per(carried, base_unit) + ROUNDING)
    remainder = whole_replicas(_per(carried - whole * base_unit, rest_unit))
    dearer = (
        (rest_unit <= 0) | (remainder > rest_max - always) | ((remainder * rest_cost >= base_cost) & (remainder > 0))
    )
    base_count = np.where(dearer, whole_replicas(_per(carried, base_unit)), np.minimum(whole, MANY).astype(np.int32))
    base_count = np.clip(base_count, params.min_replicas[rows, base], base_max)
    sooner = params.cold_start_seconds[rows, rest] < params.cold_start_seconds[rows, base]
    serving = np.where(sooner, np.minimum(samples.ready_replicas[rows, base], base_count), base_count)
    rest_count = whole_replicas(_per(np.maximum(load - serving * base_unit, 0.0), rest_unit))
    return base_count, np.minimum(rest_count, rest_max)


def _per(load: Float, unit: Float) -> Float:
    """Divide `load` by `unit`; 0 where the unit is 0 or NaN."""
    usable = unit > 0
    return np.where(usable, load / np.where(usable, unit, 1.0), 0.0)
