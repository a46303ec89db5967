"""The searched part of a service's own spec, and its changes as a patch of the policy.

A point holds the names that it changes: a missing name keeps the policy's value, so the empty point is the user's own
spec.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from optuna.distributions import FloatDistribution, IntDistribution

from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.spec import SpecSettings, with_spec
from rlscaler_core.decision.types import CPU, GPU, POOLS
from rlscaler_rl.baselines.actors import Configured
from rlscaler_rl.evaluation.service_tuning.history import History
from rlscaler_rl.evaluation.service_tuning.service import UTILIZATION, Service, standing_fits
from rlscaler_rl.evaluation.tuning.contenders import CONTENDERS, Tunable
from rlscaler_rl.evaluation.tuning.spaces import SPEC, Point, Space
from rlscaler_rl.workloads import Part

OWN: Point = {}
MINIMUM = ("min_gpu", "min_cpu")
TARGET = "target_utilization"
KEPT = ("interval", "up_window")
"""A network is trained at the interval that the user acts at, and scaling up more slowly is never recommended."""

WINDOW_STEP = 15
STANDING = ((0.25, 0.25), (0.25, 0.75), (0.5, 0.25), (0.5, 0.75), (0.75, 0.0), (0.75, 0.5), (1.0, 0.25))
"""minReplicas that searches start from, GPU and CPU, as shares of the way from the user's to the most."""


def space_of(service: Service, history: History) -> Space:
    """Return `spaces.SPEC` for one service, without the names that stay as the user has them (`KEPT`).

    minReplicas go from the user's own to the number that carries the load in that pool alone; never above maxReplicas,
    nor above `fallback.replicas`, which must not lie below minReplicas.
    """
    params = service.params
    peak = max(history.peaks[part] for part in (Part.TRAIN, Part.TUNE)) / UTILIZATION
    space = {name: bounds for name, bounds in SPEC.items() if name not in KEPT}
    for index, name in enumerate(MINIMUM):
        low = int(params.min_replicas[0, index])
        most = [int(params.max_replicas[0, index]), math.ceil(peak / service.rps[index])]
        if service.fallback[index] is not None:
            most.append(int(service.fallback[index] or 0))
        space[name] = IntDistribution(low, max(min(most), low))
    own = own_point(service)
    target, window = SPEC[TARGET], SPEC["down_window"]
    assert isinstance(target, FloatDistribution)
    assert isinstance(window, IntDistribution)
    space[TARGET] = FloatDistribution(min(target.low, own[TARGET]), max(target.high, own[TARGET]))
    # The user's own window need not be a multiple of 15 s, and lies on the grid of the search.
    step = math.gcd(WINDOW_STEP, own["down_window"])
    space["down_window"] = IntDistribution(0, max(window.high, own["down_window"]), step=step)
    return space


def own_point(service: Service) -> Point:
    """The user's spec as a point; where the pools' targets differ, their mean stands for both."""
    params = service.params
    return {
        "min_gpu": int(params.min_replicas[0, GPU]),
        "min_cpu": int(params.min_replicas[0, CPU]),
        "reactive_floor": bool(params.reactive_floor[0]),
        "target_utilization": float(params.target_utilization[0][params.present[0]].mean()),
        "down_window": int(params.stabilization_seconds[0, 1]),
    }


def tunable(service: Service, history: History) -> Tunable:
    """The contender whose spec is searched; `around` puts a network inside."""
    return replace(
        CONTENDERS["ppo"], space=space_of(service, history), default=own_point(service), settings=settings_of
    )


def around(kind: Tunable, actor: ActorLike) -> Tunable:
    """The contender with that network inside, which keeps its envelope: outside of it the network is not asked."""
    return replace(kind, make=lambda chosen, rate: under(actor, chosen))


def under(actor: ActorLike, settings: SpecSettings) -> Configured:
    configured = Configured(actor, settings)
    configured.manifest = actor.manifest
    return configured


def starts(kind: Tunable) -> list[Point]:
    """The user's own spec, alone and over standing capacity."""
    bounds = [kind.space[name] for name in MINIMUM]
    points = [kind.default]
    for shares in STANDING:
        start = dict(kind.default)
        for name, bound, share in zip(MINIMUM, bounds, shares, strict=True):
            assert isinstance(bound, IntDistribution)
            start[name] = bound.low + round(share * (bound.high - bound.low))
        if start not in points:
            points.append(start)
    return points


def settings_of(point: Point) -> SpecSettings:
    """The spec as it is played, in steps that the custom resource knows; scaleUp stays as the user has it."""
    target = point.get(TARGET)
    window = point.get("down_window")
    return SpecSettings(
        min_replicas=(point.get("min_gpu", 0), point.get("min_cpu", 0)),
        reactive_floor=point.get("reactive_floor"),
        target_utilization=None if target is None else round(target, 2),
        scale_down_window_seconds=None if window is None else float(window),
    )


def with_point(service: Service, point: Point) -> Service:
    """The service under that spec."""
    return replace(service, params=with_spec(service.params, settings_of(point)))


def affordable(service: Service, point: Point) -> bool:
    """`service.standing_fits` under that spec."""
    return standing_fits(with_point(service, point).params)


def changes(service: Service, point: Point) -> Point:
    """Return the names of a point that differ from the user's own spec; a target that no floor aims at does not."""
    own, params = own_point(service), service.params
    differing = {name: point[name] for name in point if name != TARGET and point[name] != own[name]}
    if TARGET in point and point.get("reactive_floor", own["reactive_floor"]):
        target = round(point[TARGET], 2)
        if (np.round(params.target_utilization[0][params.present[0]], 2) != target).any():
            differing[TARGET] = target
    return differing


def patch(service: Service, point: Point) -> dict[str, Any]:
    """A merge patch of the RLScalingPolicy with the fields that differ; empty where none does."""
    params, differs = service.params, changes(service, point)
    spec: dict[str, Any] = {}
    for pool, name in zip(POOLS, MINIMUM, strict=True):
        if name in differs:
            spec.setdefault("targets", {})[pool] = {"minReplicas": differs[name]}
    guards: dict[str, Any] = {}
    if TARGET in differs:
        percent = round(100 * differs[TARGET])
        present, targets = params.present[0], np.round(100 * params.target_utilization[0])
        guards["targetUtilization"] = {
            pool: percent for i, pool in enumerate(POOLS) if present[i] and targets[i] != percent
        }
    if "reactive_floor" in differs:
        guards["reactiveFloor"] = differs["reactive_floor"]
    if guards:
        spec["guards"] = guards
    if "down_window" in differs:
        spec["behavior"] = {"scaleDown": {"stabilizationWindowSeconds": differs["down_window"]}}
    return {"spec": spec} if spec else {}


def without(point: Point, names: Iterable[str]) -> Point:
    """The point without `names`, which stay as the user has them."""
    dropped = set(names)
    return {name: value for name, value in point.items() if name not in dropped}
