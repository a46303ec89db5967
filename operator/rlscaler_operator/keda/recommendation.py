"""Recommended replicas of a policy, or the reason why they are unknown. Pure."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from rlscaler_core.decision.types import POOLS
from rlscaler_operator.state.registry import Registry

LIVE_SECONDS = 30.0
"""Longest age of a decision by this process, or three sensing ticks where those are longer."""

UNREFRESHED_STATUSES = 2.0
"""Age at which a status is outdated, in intervals of the operator's status writes."""


class NoSuchPolicyError(Exception):
    """Raised where the policy does not exist, or the trigger's metadata do not name one."""


class NothingKnownError(Exception):
    """Raised where a policy has no recommendation: KEDA and the HPA then leave the replicas as they are."""


class TriggerTarget(NamedTuple):
    """Pool of a policy whose replicas a trigger asks for."""

    namespace: str
    policy: str
    pool: str


def target_of(namespace: str, metadata: Mapping[str, str]) -> TriggerTarget:
    """Return the pool named by the trigger's metadata `policy` and `pool`. Raises NoSuchPolicyError."""
    policy, pool = metadata.get("policy", ""), metadata.get("pool", "")
    if not policy:
        raise NoSuchPolicyError("the trigger's metadata have no 'policy': name an RLScalingPolicy of this namespace")
    if pool not in POOLS:
        raise NoSuchPolicyError(f"the trigger's metadata have pool {pool!r}: set it to {' or '.join(POOLS)}")
    return TriggerTarget(namespace, policy, pool)


def recommended(registry: Registry, target: TriggerTarget, now: float, status_interval_seconds: float) -> int:
    """Return the replicas of the pool as this process decided, else as the status of another process says.

    `now` is in Unix seconds. Raises NoSuchPolicyError, NothingKnownError.
    """
    policy = registry.get((target.namespace, target.policy))
    name = f"RLScalingPolicy {target.namespace}/{target.policy}"
    if policy is None or policy.observed.deleting:
        raise NoSuchPolicyError(f"{name} does not exist: create it, or correct the trigger's metadata")
    if policy.observed.parsed is None:
        raise NothingKnownError(policy.observed.invalid)
    if policy.spec.targets.pool(target.pool) is None:
        raise NoSuchPolicyError(f"{name} has no spec.targets.{target.pool}: correct the trigger's metadata")
    if policy.spec.mode == "Off":
        raise NothingKnownError(f"{name} is switched off: set spec.mode Shadow")
    fresh = time.monotonic() - policy.decision.read_at <= max(LIVE_SECONDS, 3 * policy.spec.sense_seconds)
    replicas = policy.decision.desired.get(target.pool) if fresh else None
    if replicas is None:
        replicas = _reported(policy.observed.latest.get("status") or {}, target.pool, now, status_interval_seconds)
    if replicas is None:
        raise NothingKnownError(f"{name}: nothing was decided lately; its conditions say why")
    return replicas


def _reported(status: Mapping[str, Any], pool: str, now: float, interval_seconds: float) -> int | None:
    decided = (status.get("lastDecision") or {}).get("time")
    replicas = ((status.get("targets") or {}).get(pool) or {}).get("desired")
    if decided is None or replicas is None:
        return None
    # A decision from the future was dated by a clock that was set back since: its age is not known.
    age = abs(now - datetime.fromisoformat(decided).timestamp())
    return int(replicas) if age <= UNREFRESHED_STATUSES * interval_seconds else None
