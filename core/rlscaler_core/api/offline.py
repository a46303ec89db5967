"""The parameters in a policy file, for tools that work without a cluster, such as training for one service."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rlscaler_core.api.base import KIND
from rlscaler_core.api.convert import to_params
from rlscaler_core.api.policy import RLScalingPolicy, parse
from rlscaler_core.decision.types import POOLS, Params

_GIVEN = {"coldStartSeconds": "cold_start_seconds", "costPerHour": "cost_per_hour"}
"""Fields whose default stands for a measurement that was not made."""


@dataclass(frozen=True, slots=True)
class OfflinePolicy:
    """One object in the decision function's terms."""

    name: str
    namespace: str
    params: Params
    """Parameters of one row, with the learned values of the status."""

    objective: float
    """Share of the requests, in %, that are to be answered within the SLO."""

    replicas: tuple[int, int] | None
    """Replicas of the GPU and the CPU pool as the operator last saw them; None where the status does not say."""

    assumed: tuple[str, ...]
    """The measurements that are neither set nor learned, each as `field = value`."""

    fallback: tuple[int | None, int | None]
    """`fallback.replicas` of the GPU and the CPU pool, which no minReplicas may exceed; None where it is not set."""


def read_policy(path: Path) -> OfflinePolicy:
    """Read the only RLScalingPolicy in a YAML file, as `read_object` does."""
    return about(read_object(path)[1])


def read_object(path: Path) -> tuple[dict[str, Any], RLScalingPolicy]:
    """Read the one RLScalingPolicy in a YAML file, as written or as `kubectl get -o yaml` prints it: plain and parsed.

    Raises ValueError (`InvalidPolicy` is one) naming the file or the object, the field and the remedy.
    """
    try:
        documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}; name a file with an {KIND}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    policies = [body for body in documents if isinstance(body, dict) and body.get("kind") == KIND]
    if len(policies) != 1:
        raise ValueError(f"{path}: holds {len(policies)} objects of kind {KIND}; exactly one is needed")
    metadata = policies[0].get("metadata")
    if not isinstance(metadata, dict) or not metadata.get("name"):
        raise ValueError(f"{path}: metadata.name is missing: give the {KIND} a name")
    return policies[0], parse(policies[0])


def about(policy: RLScalingPolicy) -> OfflinePolicy:
    """Return the service parameters of an object."""
    learned, fallback = policy.status.learned, policy.spec.fallback.replicas
    return OfflinePolicy(
        name=policy.metadata.name,
        namespace=policy.metadata.namespace or "default",
        params=to_params(policy.spec, learned),
        objective=policy.spec.slo.objective,
        replicas=_replicas(policy),
        assumed=tuple(_assumed(policy)),
        fallback=(getattr(fallback, "gpu", None), getattr(fallback, "cpu", None)),
    )


def _replicas(policy: RLScalingPolicy) -> tuple[int, int] | None:
    seen = []
    for pool in POOLS:
        reported = getattr(policy.status.targets, pool, None)
        known = None if reported is None else reported.current
        if known is None and policy.spec.targets.pool(pool) is not None:
            return None
        seen.append(known or 0)
    return seen[0], seen[1]


def _assumed(policy: RLScalingPolicy) -> list[str]:
    params, assumed = to_params(policy.spec, policy.status.learned), []
    for index, pool in enumerate(POOLS):
        target = policy.spec.targets.pool(pool)
        if target is None:
            continue
        for field, column in _GIVEN.items():
            learned = getattr(getattr(policy.status.learned, pool, None), column, None)
            if column not in target.model_fields_set and learned is None:
                assumed.append(f"targets.{pool}.{field} = {getattr(params, column)[0, index]:g}")
    return assumed
