"""The guards: the safety rules between the replicas that were asked for and those that are written.

`GUARDS` is the only list of them. `decide` runs it from top to bottom; the columns of `Decision.trail`, the flags,
the decision log, `rlscaler explain`, the metric of interventions and the documentation's table follow from its rows.
To add a guard, write its function and a row, and give `Flag` a bit for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import NamedTuple

import numpy as np

from rlscaler_core.decision.behavior import apply_behavior, remember_decision
from rlscaler_core.decision.belief import measuring
from rlscaler_core.decision.budget import keep_budget
from rlscaler_core.decision.ceiling import lower_to_load
from rlscaler_core.decision.floor import hpa_formula, pool_utilization, raise_to_load, whole_replicas
from rlscaler_core.decision.grant import keep_grant, note_grant
from rlscaler_core.decision.partitions import keep_partitions
from rlscaler_core.decision.rule import DEFAULT_SETTINGS, rule_replicas
from rlscaler_core.decision.situation import Situation, within_limits
from rlscaler_core.decision.tables import capacity_unknown, known
from rlscaler_core.decision.throughput import keep_throughput, note_raise
from rlscaler_core.decision.types import Bool, FallbackBehavior, Flag, Int, both, either


class Guard(NamedTuple):
    """One row of the table."""

    name: str
    apply: Callable[[Situation, Int], Int]
    """Takes the desired replicas (N, 2) so far and gives those that it leaves; it writes to neither array."""

    meaning: str
    """One sentence on the effect of the guard, for the documentation."""

    changes: Flag = Flag.NONE
    """The flag that `decide` sets in rows where the guard changed the replicas."""

    holds: Flag = Flag.NONE
    """The flags that the guard sets itself: it stood in the way, though it may have changed no replicas."""

    settle: Callable[[Situation, Int], None] | None = None
    """Called with the final replicas (N, 2) when all guards have run, for a guard that has to remember them."""


def hold_unknown(now: Situation, desired: Int) -> Int:
    """Hold the rows in doubt at their base, or let their fallback act; remove nothing of a capacity that is unknown or
    has just been declared."""
    if now.doubt is None:
        return desired
    _, failed, falls_back = now.doubt
    now.set_flag(Flag.HELD_UNKNOWN, failed & ~falls_back)
    now.set_flag(Flag.FALLBACK, falls_back)
    keeps = capacity_unknown(now.params) | measuring(now.params, now.state, now.samples)[:, None]
    allowed = np.where(keeps, np.maximum(desired, now.base), desired)
    allowed = np.where(failed[:, None], now.base, allowed)
    if falls_back.any():
        allowed = np.where(falls_back[:, None], _fallback(now, now.doubt.required_unknown), allowed)
    return allowed


def _fallback(now: Situation, required_unknown: Bool) -> Int:
    """Return the replicas (N, 2) wanted when the actor cannot decide; only `static` lowers them on unknown data.

    The forecast rule needs the capacity of a replica; where that is not known, the HPA formula may raise replicas.
    """
    params, samples, base = now.params, now.samples, now.base
    kind = params.fallback[:, None]
    utilization = pool_utilization(samples, known(params, samples))
    formula = hpa_formula(samples.ready_replicas, base, utilization, params.target_utilization)
    formula = np.where(required_unknown[:, None], np.maximum(formula, base), formula)
    choice = np.where(kind == FallbackBehavior.HPA_FORMULA, formula, base)
    by_rule = params.fallback == FallbackBehavior.FORECAST_RULE
    if by_rule.any():
        rule = rule_replicas(params, now.state, samples, DEFAULT_SETTINGS)
        rule = np.where(required_unknown[:, None], np.maximum(rule, base), rule)
        rule = np.where(now.capacity.unmeasured[:, None], np.maximum(formula, base), rule)
        choice = np.where(by_rule[:, None], rule, choice)
    higher = np.maximum(base, params.fallback_replicas)
    choice = np.where(kind == FallbackBehavior.CURRENT_REPLICAS_IF_HIGHER, higher, choice)
    choice = np.where(kind == FallbackBehavior.STATIC, params.fallback_replicas, choice)
    return np.asarray(np.where(params.present, choice, 0), np.int32)


def spill_pending(now: Situation, desired: Int) -> Int:
    """Turn the growth of a pool, as far as its stuck pods go, into as much capacity of the other pool.

    Stuck are pods that are pending for too long, not their pool: replicas beyond their number are tried. One replica
    for one replica where the capacity of either is not known. Where pods of both pools are stuck, neither takes over.
    Replicas that a pool was asked for earlier and that do not serve are left to the reactive floor.
    """
    samples = now.samples
    unready = np.maximum(now.base - samples.ready_replicas, 0)
    counted = np.where(samples.stuck_replicas >= 0, np.minimum(samples.stuck_replicas, unready), unready)
    stuck = np.where(samples.pending_seconds > now.params.pending_seconds, counted, 0).astype(np.int32, copy=False)
    if not stuck.any():
        return desired
    now.stuck = stuck
    now.set_flag(Flag.PENDING, either(stuck > 0))
    growth = np.minimum(np.maximum(desired - now.base, 0), stuck)
    if not growth.any():
        return desired
    unit = now.capacity.requests_per_second
    measured = both(unit > 0)[:, None]
    ratio = np.where(measured, unit / np.where(measured, unit[:, ::-1], 1.0), 1.0)
    taken = whole_replicas(growth * ratio)[:, ::-1]
    taking = now.params.present & (stuck == 0)
    return np.asarray(desired - growth + np.where(taking, taken, 0), np.int32)


def keep_limits(now: Situation, desired: Int) -> Int:
    """Keep the replicas between `minReplicas` and `maxReplicas`."""
    return within_limits(now.params, desired)


def keep_pause(now: Situation, wanted: Int) -> Int:
    """Hold the replicas of the pause annotations, still within the limits."""
    samples = now.samples
    if not (samples.paused.any() or samples.paused_scale_down.any()):
        return wanted
    held = np.where(samples.paused_replicas >= 0, samples.paused_replicas, now.base)
    desired = np.where(samples.paused_scale_down[:, None], np.maximum(wanted, now.base), wanted)
    desired = np.where(samples.paused[:, None], held, desired)
    return within_limits(now.params, desired).astype(np.int32, copy=False)


GUARDS = (
    Guard(
        "unknown",
        hold_unknown,
        "Holds the replicas, or lets the fallback act, where a required number is unknown, the actor failed or a model "
        "that moves no headroom is outside its envelope; removes no replica of unknown capacity, nor in the first five "
        "minutes in which a declared capacity is measured, as an HPA removes none in its first window.",
        holds=Flag.HELD_UNKNOWN | Flag.FALLBACK,
    ),
    Guard(
        "pending",
        spill_pending,
        "Moves the load of stuck pods to the other pool; their own pool is not frozen.",
        holds=Flag.PENDING,
    ),
    Guard(
        "ceiling",
        lower_to_load,
        "The ceiling: removes replicas beyond the need of the last `guards.ceilingSeconds`, but for one replica.",
        changes=Flag.CEILING,
    ),
    Guard(
        "grant",
        keep_grant,
        "Keeps a pool within the grant of its `RLScalingBudget`: no later guard grows it beyond that, and replicas "
        "beyond it are scaled down through `behavior`.",
        holds=Flag.GRANT_LIMITED,
        settle=note_grant,
    ),
    Guard(
        "behavior",
        apply_behavior,
        "Applies the windows and rates of `spec.behavior`, as an HPA does.",
        changes=Flag.BEHAVIOR,
        settle=remember_decision,
    ),
    Guard(
        "floor",
        raise_to_load,
        "The reactive floor: raises the replicas to the need of the present arrivals at `guards.targetUtilization`.",
        changes=Flag.FLOOR,
    ),
    Guard(
        "partitions",
        keep_partitions,
        "For consumers of a stream: no more than partitions have messages, of equally fast numbers the smallest, one "
        "rebalance after the other, and fewer only where the rest carries production and lag.",
        changes=Flag.PARTITIONS,
    ),
    Guard(
        "throughput",
        keep_throughput,
        "For consumers of a stream: undoes a scale-up after which they processed less together than before, and adds "
        "none for ten minutes.",
        changes=Flag.THROUGHPUT,
        settle=note_raise,
    ),
    Guard(
        "budget",
        keep_budget,
        "Refuses replicas that would cost more than `guards.budgetPerHour`.",
        holds=Flag.BUDGET_LIMITED,
    ),
    Guard("limits", keep_limits, "Keeps to `minReplicas` and `maxReplicas`.", changes=Flag.LIMITED),
    Guard("pause", keep_pause, "Keeps to the pause annotations.", changes=Flag.PAUSED),
)
"""All guards, in the order in which they run."""

STAGES = ("proposal", *(guard.name for guard in GUARDS))
"""The columns of `Decision.trail`: the replicas that were asked for, then those that each guard left."""

HOLDS = reduce(or_, (guard.holds for guard in GUARDS))
"""Every flag that says that a guard stood in the way, whether it changed replicas or not."""


def without(name: str) -> tuple[Guard, ...]:
    """Return the table without one row, to measure the worth of that guard; live decisions use the whole table."""
    return tuple(guard for guard in GUARDS if guard.name != name)
