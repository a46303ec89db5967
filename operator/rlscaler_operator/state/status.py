"""The status of a policy: putting it together, and deciding whether it is worth a write. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from rlscaler_core.api.headroom import HeadroomStatus, PoolHeadroom
from rlscaler_core.api.status import (
    HISTORY,
    Action,
    ByPool,
    CapacityStatus,
    DecisionStatus,
    GuardStep,
    LastDecision,
    Latency,
    ModelStatus,
    ObservationStatus,
    PlacementName,
    PlacementStatus,
    Signal,
    TargetsStatus,
    TargetStatus,
    Weights,
)
from rlscaler_core.api.status_memory import OperatorStatus, PoolCounts
from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.belief import believed
from rlscaler_core.decision.evidence import VALUE, VARIANCE
from rlscaler_core.decision.guards import STAGES
from rlscaler_core.decision.headroom import above
from rlscaler_core.decision.types import OBSERVATIONS, POOLS, Decision, Flag, Observation, Params, SignalState, State
from rlscaler_core.decision.units import UNITS
from rlscaler_operator.cluster.bodies import Deployment
from rlscaler_operator.sensing.results import Reading
from rlscaler_operator.state.operators import OperatorClaim

PLACEMENTS: tuple[PlacementName, ...] = ("PreferGPU", "Balanced", "PreferCPU")

SIGNAL_STATES = {
    SignalState.KNOWN: "Known",
    SignalState.NOT_APPLICABLE: "NotApplicable",
    SignalState.UNKNOWN: "Unknown",
}

Json = dict[str, Any]


def pool_counts(values: Any, params: Params) -> PoolCounts:
    """Return counts by pool from a row (2,); a pool without a target is absent."""
    return PoolCounts(**{pool: int(values[i]) for i, pool in enumerate(POOLS) if params.present[0, i]})


def decision_status(
    decision_id: str, time: float, decision: Decision, params: Params, applied: bool, result: str
) -> LastDecision:
    """Return `status.lastDecision` from the first row of `decision`, with the result of each guard."""
    action = decision.action[0]
    requested = None
    if action[2] >= 0:
        requested = Action(gpu=int(action[0]), cpu=int(action[1]), placement=PLACEMENTS[int(action[2])])
    return LastDecision(
        id=decision_id,
        time=datetime.fromtimestamp(time, UTC),
        action=requested,
        base=pool_counts(decision.base[0], params),
        desired=pool_counts(decision.desired[0], params),
        applied=applied,
        reasons=flag_names(int(decision.flags[0])),
        guards=[GuardStep(name=name, after=pool_counts(decision.trail[0, i], params)) for i, name in enumerate(STAGES)],
        result=result or None,
    )


def with_history(history: list[DecisionStatus], decision: LastDecision) -> list[DecisionStatus]:
    """Return the decisions that changed something, newest first."""
    # The history has the decisions that changed replicas; all others are in the decision log.
    if decision.desired == decision.base:
        return history
    short = DecisionStatus(**{name: getattr(decision, name) for name in DecisionStatus.model_fields})
    return [short, *history][:HISTORY]


def observation_status(observation: Observation, time: float, names: Sequence[str] = OBSERVATIONS) -> ObservationStatus:
    """Return the ten numbers of the first row, rounded for people."""
    signals: dict[str, Signal] = {}
    for i, name in enumerate(names):
        if name not in ObservationStatus.model_fields:
            continue
        value, age = float(observation.values[0, i]), float(observation.age_seconds[0, i])
        digits = 0 if name == "p95_latency" else 3
        signals[name] = Signal(
            value=round(value, digits) if math.isfinite(value) else None,
            state=SIGNAL_STATES[SignalState(int(observation.status[0, i]))],  # type: ignore[arg-type]
            age_seconds=round(age, 1) if math.isfinite(age) else None,
        )
    return ObservationStatus(time=datetime.fromtimestamp(time, UTC), **signals)


def targets_status(
    names: Mapping[str, str], deployments: Mapping[str, Deployment | None], desired: Mapping[str, int]
) -> TargetsStatus:
    """Return the status of each target by pool; of a Deployment that does not exist only the name."""
    targets = {}
    for pool, name in names.items():
        deployment = deployments.get(pool)
        if deployment is None:
            targets[pool] = TargetStatus(deployment=name)
            continue
        wanted = desired.get(pool, deployment.replicas)
        targets[pool] = TargetStatus(
            deployment=name,
            current=deployment.replicas,
            ready=deployment.ready,
            starting=max(0, deployment.replicas - deployment.ready),
            desired=wanted,
            summary=f"{deployment.ready}/{wanted}",
        )
    return TargetsStatus(**targets)


def placement_status(placement: int, factor: float, weights: Any, http_route: str | None) -> PlacementStatus:
    return PlacementStatus(
        preference=PLACEMENTS[placement],
        factor=None if PLACEMENTS[placement] == "Balanced" else factor,
        weights=Weights(gpu=int(weights[0]), cpu=int(weights[1])),
        http_route=http_route,
    )


def flag_names(flags: int) -> list[str]:
    """Return `HeldUnknown`, `Floor`, … in the order of the bits."""
    if not flags:
        return []
    return ["".join(part.title() for part in (flag.name or "").split("_")) for flag in Flag if flag and flags & flag]


def operator_status(own: str, claim: OperatorClaim) -> OperatorStatus:
    """Return `status.operator` of the operator of Lease `own`, with the answer to another operator's question."""
    answered = claim.asked if claim.asked_by != own else 0
    return OperatorStatus(lease=own, answered=answered or claim.answered or None)


def capacity_status(params: Params, state: State) -> CapacityStatus:
    """Return the capacity of a replica, of the first row; a pool without a target or a known capacity is absent."""
    unit, carried = UNITS[params.unit[0]], _by_pool(params, believed(params, state).requests_per_second[0])
    if not params.learns_capacity[0]:
        return CapacityStatus(unit=unit, gpu=carried.gpu, cpu=carried.cpu)
    percent = np.where(np.isfinite(state.belief[0, VALUE]), 100 * np.sqrt(state.belief[0, VARIANCE]), np.nan)
    return CapacityStatus(
        unit=unit,
        gpu=carried.gpu,
        cpu=carried.cpu,
        declared=_by_pool(params, params.requests_per_second[0]),
        uncertain_percent=_by_pool(params, percent),
    )


def headroom_status(state: State) -> HeadroomStatus | None:
    """Return the headroom of the first row; None where no network moves one."""
    pools = above(state)
    if pools is None:
        return None
    return HeadroomStatus(
        **{
            pool: PoolHeadroom(percent=round(value.percent, 1), since=datetime.fromtimestamp(value.since, UTC))
            for pool, value in pools.items()
        }
    )


def _by_pool(params: Params, values: Any) -> ByPool:
    """Return the known values of the pools that are there, by pool, to four digits."""
    pools = zip(POOLS, values, params.present[0], strict=True)
    return ByPool(**{pool: float(f"{value:.4g}") for pool, value, there in pools if there and math.isfinite(value)})


def unit_of(status: Mapping[str, Any]) -> str:
    """Return the unit of the load in a status; an earlier release counted requests."""
    return str((status.get("capacity") or {}).get("unit", "requests"))


def measured(percentile: float, latency: Reading | None, actor: ActorLike | None) -> Json:
    """Return `latency` and `model`; absent before the first tick and without an actor."""
    parts: Json = {}
    if latency is not None:
        value = round(latency.value) if latency.known else None
        parts["latency"] = Latency(percentile=percentile, milliseconds=value)
    if actor is not None:
        parts["model"] = ModelStatus(name=actor.manifest.name, digest=actor.manifest.digest or None)
    return parts


def significant(status: Json) -> Json:
    """Return the parts of a status that are worth a write at once: no measured values, and no times."""
    parts = {
        name: status.get(name)
        for name in ("observedGeneration", "model", "targets", "placement", "originals", "budget", "operator")
    }
    parts["conditions"] = sorted((c["type"], c["status"], c["reason"]) for c in status.get("conditions") or ())
    promotion = status.get("promotion") or {}
    parts["promotion"] = (promotion.get("state"), promotion.get("reason"), promotion.get("days"))
    last = status.get("lastDecision") or {}
    parts["decision"] = (last.get("desired"), last.get("reasons"), last.get("applied"))
    return parts


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> Json:
    """Return the merge patch (RFC 7396) from `old` to `new`; lists are replaced whole. Empty = equal."""
    patch: Json = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            inner = merge_patch(before, value)
            if inner:
                patch[name] = inner
        elif name not in old or before != value:
            patch[name] = value
    return patch
