"""HorizontalPodAutoscalers of a service, read from a YAML file for the simulator."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rlscaler_core.api.spec import Spec
from rlscaler_core.api.targets import reference
from rlscaler_core.decision.types import CPU, GPU, POOLS
from rlscaler_rl.baselines.behavior import DEFAULT_SCALE_DOWN, DEFAULT_SCALE_UP, DISABLED, MAX, MIN, HpaPolicy, HpaRules
from rlscaler_rl.baselines.hpa import DEFAULT_UTILIZATION, TOLERANCE, HpaSettings
from rlscaler_rl.evaluation.errors import EvaluationError

KIND = "HorizontalPodAutoscaler"
SELECT = {"Max": MAX, "Min": MIN, "Disabled": DISABLED}


def read_hpas(path: Path, spec: Spec) -> HpaSettings:
    """Read the HPAs that scale a policy's Deployments, as `kubectl get hpa -o yaml` prints them.

    A pool without one keeps its replicas, as it does in the cluster. Raises EvaluationError naming the file, the
    object, the field and the remedy.
    """
    try:
        return _read(path, spec)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise EvaluationError(
            f"--hpa {path}: no {KIND} as the API server has it ({error!r}): give what `kubectl get hpa -o yaml` prints"
        ) from error


def _read(path: Path, spec: Spec) -> HpaSettings:
    names = {target.reference: i for i, pool in enumerate(POOLS) if (target := spec.targets.pool(pool)) is not None}
    hpas: dict[int, Mapping[str, Any]] = {}
    for body in _objects(path):
        target_ref = (body.get("spec") or {}).get("scaleTargetRef") or {}
        target_of = reference(
            target_ref.get("apiVersion") or "apps/v1",
            target_ref.get("kind") or "Deployment",
            target_ref.get("name", ""),
        )
        if (pool := names.get(target_of)) is not None:
            hpas[pool] = body
    if not hpas:
        raise EvaluationError(
            f"--hpa {path}: no {KIND} in it scales {' or '.join(names)} (spec.scaleTargetRef.name): name the file of "
            "`kubectl get hpa -o yaml`"
        )
    aims, scaled, lowest = [DEFAULT_UTILIZATION] * 2, [False, False], [0, 0]
    for pool, body in hpas.items():
        scaled[pool], aims[pool] = True, _target(body, path)
        lowest[pool] = int(body["spec"].get("minReplicas") or 1)
        _check_limit(body, path, spec, pool)
    rules = [_rules(body["spec"].get("behavior") or {}, path) for body in hpas.values()]
    tolerances = [_tolerance(body, path) for body in hpas.values()]
    if any(rule != rules[0] for rule in rules) or len(set(tolerances)) > 1:
        raise EvaluationError(
            f"--hpa {path}: its two HPAs differ in spec.behavior, and one for both is simulated: leave one of them out"
        )
    return HpaSettings(
        target=(aims[GPU], aims[CPU]),
        tolerance=tolerances[0],
        min_replicas=(lowest[GPU], lowest[CPU]),
        scaled=(scaled[GPU], scaled[CPU]),
        up=rules[0][0],
        down=rules[0][1],
    )


def _objects(path: Path) -> list[Mapping[str, Any]]:
    try:
        documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except (OSError, yaml.YAMLError, ValueError) as error:
        raise EvaluationError(f"--hpa {path}: not YAML that can be read: {' '.join(str(error).split())}") from error
    bodies = [body for body in documents if isinstance(body, dict)]
    bodies = [one for body in bodies for one in (body.get("items") or [body])]
    return [body for body in bodies if isinstance(body, dict) and body.get("kind") == KIND]


def _called(body: Mapping[str, Any], path: Path) -> str:
    return f"--hpa {path}: {KIND} {(body.get('metadata') or {}).get('name', '?')}"


def _target(body: Mapping[str, Any], path: Path) -> float:
    """Utilization that an HPA aims at, 0 to 1: the only kind of target that is simulated.

    Of several metrics the first one of the processor counts; memory follows the load of no request, and is left out.
    """
    spec = body["spec"]
    if (percent := spec.get("targetCPUUtilizationPercentage")) is not None:  # autoscaling/v1
        return float(percent) / 100
    if (metrics := spec.get("metrics")) is None:
        return DEFAULT_UTILIZATION
    for metric in metrics:
        resource = metric.get("resource") or metric.get("containerResource") or {}
        target = resource.get("target") or {"averageUtilization": resource.get("targetAverageUtilization")}  # v2beta1
        if (percent := target.get("averageUtilization")) is not None and resource.get("name") != "memory":
            return float(percent) / 100
    raise EvaluationError(
        f"{_called(body, path)}: spec.metrics has no averageUtilization of a processor, the only target that is "
        "simulated: leave --hpa out for an HPA at 80 %"
    )


def _tolerance(body: Mapping[str, Any], path: Path) -> float:
    """Tolerance of both directions, 0 to 1; one that differs by direction is not simulated."""
    behavior = body["spec"].get("behavior") or {}
    found = {_quantity((behavior.get(way) or {}).get("tolerance", TOLERANCE)) for way in ("scaleUp", "scaleDown")}
    if len(found) > 1:
        raise EvaluationError(
            f"{_called(body, path)}: spec.behavior has tolerances {' and '.join(f'{one:g}' for one in sorted(found))}, "
            "and one for both directions is simulated: make them equal"
        )
    return found.pop()


def _quantity(value: Any) -> float:
    """A Kubernetes quantity of thousandths (`5m`) or plain."""
    text = str(value)
    return float(text[:-1]) / 1000 if text.endswith("m") else float(text)


def _check_limit(body: Mapping[str, Any], path: Path, spec: Spec, pool: int) -> None:
    target, high = spec.targets.pool(POOLS[pool]), int(body["spec"]["maxReplicas"])
    assert target is not None
    if high != target.max_replicas:
        raise EvaluationError(
            f"{_called(body, path)}: spec.maxReplicas = {high}, and the policy has "
            f"spec.targets.{POOLS[pool]}.maxReplicas = {target.max_replicas}: make them equal, for like to like"
        )


def _rules(behavior: Mapping[str, Any], path: Path) -> tuple[HpaRules, HpaRules]:
    """Rules up and down; missing fields have Kubernetes' defaults."""
    try:
        up = _direction(behavior.get("scaleUp") or {}, DEFAULT_SCALE_UP)
        return up, _direction(behavior.get("scaleDown") or {}, DEFAULT_SCALE_DOWN)
    except (KeyError, TypeError, ValueError) as error:
        raise EvaluationError(f"--hpa {path}: spec.behavior: {error}: give what the API server prints") from error


def _direction(rules: Mapping[str, Any], default: HpaRules) -> HpaRules:
    window, policies = rules.get("stabilizationWindowSeconds"), rules.get("policies")
    return HpaRules(
        stabilization_seconds=default.stabilization_seconds if window is None else float(window),
        policies=default.policies
        if policies is None
        else tuple(HpaPolicy(one["type"], int(one["value"]), float(one["periodSeconds"])) for one in policies),
        select=SELECT[rules.get("selectPolicy") or "Max"],
    )
