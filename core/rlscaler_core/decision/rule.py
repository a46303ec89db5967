"""The forecast rule: replicas for an upper forecast of the load, GPU for the base and CPU for the rest.

It needs no network. In the residual mode a network's action is added to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.action import one_hot
from rlscaler_core.decision.error_budget import price_factor
from rlscaler_core.decision.floor import MANY, ROUNDING, whole_replicas
from rlscaler_core.decision.forecast import GAINS, MEMORY_LIMIT_SECONDS, Gains, upper_forecast
from rlscaler_core.decision.forecaster.memory import is_kept
from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.decision.partitions import drain, to_partitions
from rlscaler_core.decision.pooling import LOADING, pooled
from rlscaler_core.decision.readiness import Prices
from rlscaler_core.decision.situation import full_at, pays_for_starts
from rlscaler_core.decision.spec import SpecSettings
from rlscaler_core.decision.split import by_load
from rlscaler_core.decision.starts import held_load, prepared_loads, used_load
from rlscaler_core.decision.types import Bool, Float, Float32, Int, Params, Placement, Samples, State, either

if TYPE_CHECKING:
    from rlscaler_core.decision.actor import ActorLike

BY_LOAD = -1
"""The traffic is split by `split.by_load`."""

Value = Float | float
"""A setting: one value for all rows, or (N,) of them."""


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """Settings of the rule; every field is one value for all rows, or one for each row."""

    loading: Value = LOADING
    """Replicas are loaded this much above `targetUtilization` at the forecast, which is an upper one already; never
    above their whole capacity."""

    horizon: Value = 2.0
    """Cold starts that the forecast looks ahead."""

    trend: Value = GAINS.trend
    residual: Value = GAINS.residual
    peak: Value = GAINS.peak
    peak_seconds: Value = MEMORY_LIMIT_SECONDS
    """These four are as in `forecast.Gains`."""

    late_price: Value = 0.5
    """Replicas of the dearer pool that one percent of late requests is worth, before the error budget
    steers it (`error_budget`); 0: nothing that was learned is used."""

    caution: Value = 0.2
    """Share of a moment's requests that an unforeseen rise is taken to make late where capacity is missing."""

    jump_caution: Value = 0.15
    """The same of a jump that the calendar knows."""

    placement: Int | int = BY_LOAD
    """Split of the traffic: a traffic preference (`Placement`), or `BY_LOAD`."""

    lasting: bool = False
    """The steps of a network above the rule move the headroom in its plan (`headroom`), not the replicas at once."""

    spec: SpecSettings = field(default_factory=SpecSettings)
    """Fields of the policy's spec that the rule sets; `loading` is relative to the target utilization."""


DEFAULT_SETTINGS = RuleSettings()


class Plan(NamedTuple):
    """Replicas that the rule asks for."""

    replicas: Int  # (N, 2) not yet within limits
    load: Float  # (N,) the load that they carry, in the unit of the capacity; NaN where it is not known


class Rule:
    """The forecast rule behind the interface of an actor: no change asked for, on top of the rule's replicas.

    It reads SLO, capacity and cold start as they are, so it has no envelope.
    """

    manifest = Manifest(name="rule", stack_size=1, residual=True)

    def __init__(self, settings: RuleSettings = DEFAULT_SETTINGS) -> None:
        self.settings = settings

    def probabilities(self, stacked: Float32) -> Float32:
        """Return one-hot probabilities (N, 13): pools as the rule says, traffic as its settings say."""
        action = np.zeros((len(stacked), 3), np.int32)
        placement = np.asarray(self.settings.placement)
        action[:, 2] = np.where(placement == BY_LOAD, Placement.BALANCED, placement)
        return one_hot(action)

    @property
    def spec(self) -> SpecSettings:
        """Fields of the policy's spec that the settings change."""
        return self.settings.spec


def rule_of(manifest: Manifest) -> RuleSettings | None:
    """Return the rule that a network's action is added to; None where it is added to the present replicas."""
    if not manifest.residual:
        return None
    gains = manifest.rule.model_dump()
    if manifest.learned is None:
        return RuleSettings(**gains, late_price=0.0, placement=Placement.BALANCED, lasting=manifest.lasting)
    return RuleSettings(**gains, **manifest.learned.model_dump(), lasting=manifest.lasting)


def rule_under(actor: ActorLike) -> RuleSettings | None:
    """Return `rule_of` any actor; the rule itself has settings of its own, which may differ from row to row."""
    return actor.settings if isinstance(actor, Rule) else rule_of(actor.manifest)


def rule_replicas(params: Params, state: State, samples: Samples, settings: RuleSettings) -> Int:
    """Return the replicas (N, 2) of `rule_plan`."""
    return rule_plan(params, state, samples, settings).replicas


def rule_split(
    params: Params, state: State, samples: Samples, ready: Int, plan: Plan, settings: RuleSettings, placement: Int
) -> tuple[Bool, Int, Float]:
    """Return where (N,) the rule splits the traffic by the load of its plan, and traffic preference and factor (N,).

    `ready` (N, 2) are the replicas that answer, without those that are about to go. `placement` (N,) is the traffic
    preference of the action that is added to the rule: balanced leaves the split to the rule, a pool overrides it.
    """
    left = placement == Placement.BALANCED
    splits = params.split_by_load & (np.asarray(settings.placement) == BY_LOAD) & left
    if not splits.any():
        return splits, state.placement, state.preference
    return splits, *by_load(params, state.placement, state.preference, ready, samples.arrival_rate, plan.load)


def rule_plan(
    params: Params, state: State, samples: Samples, settings: RuleSettings, headroom: Float | None = None
) -> Plan:
    """Return the rule's replicas, and the load that they are for; `spec_replicas` where load or capacity are not known.

    The pool with the cheaper capacity (the base) carries whole replicas' worth of the forecast, the other the
    remainder and, where it is ready sooner, the load of base replicas that are still starting. For consumers of a
    stream the load includes the drain of their lag, and the busiest of the replicas has to carry its partitions.
    `headroom` (N, 2) is the capacity to plan over the one that the load needs; None: no more than that.
    """
    # Messages that come sooner than pods start wait: nothing is held ready for them, nor are their queues pooled.
    late_price = np.where(params.stream, 0.0, settings.late_price)
    learned = (late_price > 0) & is_kept(state.load_recent)
    cold = np.where(params.present, params.cold_start_seconds, 0.0)
    longest = np.maximum(cold[:, 0], cold[:, 1])
    gains = _gains(params, settings, longest)
    slow = upper_forecast(state.rate_time, state.rate_value, samples.time, settings.horizon * longest, gains)
    prices = Prices(late_price, settings.caution, settings.jump_caution)
    slow, staying = prepared_loads(params, state, samples, slow, prices)
    load = np.maximum(slow, samples.arrival_rate) + drain(params, samples)
    utilization = np.minimum(_per_row(settings.loading) * full_at(params), 1.0)
    utilization = np.where(_per_row(learned), pooled(utilization, load, params.requests_per_second), utilization)
    capacity = np.where(params.present, params.requests_per_second * utilization, 0.0)
    sized = np.isfinite(load) & ~either(np.isnan(capacity))
    planned = np.where(sized, load, np.nan)
    load, capacity = np.where(sized, load, 0.0), np.nan_to_num(capacity)
    usable = capacity > 0
    unit_price = np.where(usable, params.cost_per_hour / np.where(usable, capacity, 1.0), np.inf)
    base = np.where(unit_price[:, 0] <= unit_price[:, 1], 0, 1).astype(np.int32)
    # The headroom is of replicas: it must not make the other pool the cheaper one.
    capacity = capacity if headroom is None else capacity / headroom
    rows = np.arange(len(base), dtype=np.int32)
    held = held_load(params, state, samples, late_price * price_factor(params, state))
    held = np.fmax(held, np.where(pays_for_starts(params), staying, 0.0)[:, None])
    held = np.fmax(held, used_load(params, state, samples, load)[:, None])
    base_replicas, rest_replicas = _split(params, samples, load, held, capacity, base, rows)
    replicas = np.empty_like(samples.spec_replicas)
    replicas[rows, base] = base_replicas
    replicas[rows, 1 - base] = rest_replicas
    replicas = to_partitions(params, samples, planned, capacity, replicas, params.max_replicas)
    return Plan(np.where(sized[:, None], replicas, samples.spec_replicas), planned)


def _gains(params: Params, settings: RuleSettings, cold: Float) -> Gains:
    """Return how high above the history the forecast lies; `cold` (N,) are seconds of a cold start.

    Messages wait where requests would be late, so a stream's forecast is the expected load and no upper one, and a peak
    is expected to return for one cold start only: a consumer that goes later is back as soon.
    """
    gains = Gains(settings.trend, settings.residual, settings.peak, settings.peak_seconds)
    if not params.stream.any():
        return gains
    expected = Gains(settings.trend, 0.0, 1.0, np.minimum(settings.peak_seconds, cold))
    return Gains(*(np.where(params.stream, *pair) for pair in zip(expected, gains, strict=True)))


def _per_row(value: Value | Bool) -> NDArray[Any]:
    """Shape a setting so that it broadcasts with an (N, 2) array: () or (N, 1)."""
    column = np.asarray(value)
    return column[:, None] if column.ndim else column


def _split(
    params: Params, samples: Samples, load: Float, held: Float, capacity: Float, base: Int, rows: Int
) -> tuple[Int, Int]:
    """Return the replicas (N,) of the base pool and of the other, whose minimum is there anyway.

    Present replicas that the load `held` (N, 2) of their pool needs stay.
    """
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
    there = samples.spec_replicas
    needed = whole_replicas(_per(np.maximum(held[rows, base] - always * rest_unit, 0.0), base_unit))
    base_count = np.maximum(base_count, np.minimum(there[rows, base], needed))
    base_count = np.clip(base_count, params.min_replicas[rows, base], base_max)
    sooner = params.cold_start_seconds[rows, rest] < params.cold_start_seconds[rows, base]
    serving = np.where(sooner, np.minimum(samples.ready_replicas[rows, base], base_count), base_count)
    rest_count = whole_replicas(_per(np.maximum(load - serving * base_unit, 0.0), rest_unit))
    needed = whole_replicas(_per(np.maximum(held[rows, rest] - serving * base_unit, 0.0), rest_unit))
    rest_count = np.maximum(rest_count, np.minimum(there[rows, rest], needed))
    return base_count, np.minimum(rest_count, rest_max)


def _per(load: Float, unit: Float) -> Float:
    """Divide `load` by `unit`; 0 where the unit is 0 or NaN."""
    usable = unit > 0
    return np.where(usable, load / np.where(usable, unit, 1.0), 0.0)
