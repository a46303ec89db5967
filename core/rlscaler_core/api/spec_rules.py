"""Requirements that span several parts of the spec."""

from __future__ import annotations

from typing import Any

from rlscaler_core.api.base import Rule


def _fallback_replicas(spec: Any, pool: str) -> int | None:
    replicas = spec.fallback.replicas
    return None if replicas is None else getattr(replicas, pool)


def _fallback_complete(spec: Any, pool: str) -> bool:
    if spec.fallback.replicas is None:
        return True
    return (_fallback_replicas(spec, pool) is None) == (spec.targets.pool(pool) is None)


def _fallback_in_range(spec: Any, pool: str) -> bool:
    replicas, target = _fallback_replicas(spec, pool), spec.targets.pool(pool)
    return replicas is None or target is None or target.min_replicas <= replicas <= target.max_replicas


def _backend_has_target(spec: Any, pool: str) -> bool:
    route = spec.placement.http_route
    return route is None or getattr(route, f"{pool}_backend") is None or spec.targets.pool(pool) is not None


def _pool_rules(pool: str) -> tuple[Rule, ...]:
    replicas, target = f"self.fallback.replicas.{pool}", f"self.targets.{pool}"
    backend = f"self.placement.httpRoute.{pool}Backend"
    return (
        Rule(
            cel=f"!has(self.fallback.replicas) || has({target}) == has({replicas})",
            holds=lambda spec: _fallback_complete(spec, pool),
            message=f"fallback.replicas.{pool} must be set exactly where targets.{pool} is: add or remove "
            f"fallback.replicas.{pool}",
            field=f"fallback.replicas.{pool}",
        ),
        Rule(
            cel=f"!has(self.fallback.replicas) || !has({replicas}) || !has({target}) || "
            f"({replicas} >= {target}.minReplicas && {replicas} <= {target}.maxReplicas)",
            holds=lambda spec: _fallback_in_range(spec, pool),
            message=f"fallback.replicas.{pool} must lie between targets.{pool}.minReplicas and maxReplicas: change it "
            "or widen the range",
            field=f"fallback.replicas.{pool}",
        ),
        Rule(
            cel=f"!has(self.placement.httpRoute) || !has({backend}) || has({target})",
            holds=lambda spec: _backend_has_target(spec, pool),
            message=f"placement.httpRoute.{pool}Backend needs targets.{pool}: remove {pool}Backend or add the target",
            field=f"placement.httpRoute.{pool}Backend",
        ),
    )


SPEC_RULES = (
    Rule(
        cel="self.senseSeconds <= self.intervalSeconds",
        holds=lambda spec: spec.sense_seconds <= spec.interval_seconds,
        message="senseSeconds must not exceed intervalSeconds: lower senseSeconds or raise intervalSeconds",
        field="senseSeconds",
    ),
    *_pool_rules("gpu"),
    *_pool_rules("cpu"),
)
