"""The part of a service's own spec that is searched, and how what was found reads as a patch of the policy.

A point holds what it changes: a name that it lacks is as the policy has it, so the empty point is the user's own spec.
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
from rlscaler_rl.evaluation.tuning.spaces import SPEC, Found, Space
from rlscaler_rl.workloads import Part

OWN: Found = {}
MINIMUM = ("min_gpu", "min_cpu")
TARGET = "target_utilization"
KEPT = ("interval", "up_window")
"""A network is trained at the interval that the user acts at, and scaling up more slowly is never recommended."""

WINDOW_STEP = 15
STANDING = ((0.25, 0.25), (0.25, 0.75), (0.5, 0.25), (0.5, 0.75), (0.75, 0.0), (0.75, 0.5), (1.0, 0.25))
"""minReplicas that searches start from, GPU and CPU, as shares of the way from the user's to the most."""


def space_of(service: Service, history: History) -> Space:
    """`spaces.SPEC` for one service, but for what stays as the user has it (`KEPT`).

    minReplicas go from the user's own to what carries the load in that pool alone; never above maxReplicas, nor above
    `fallback.replicas`, which must not lie below minReplicas.
    """
    params = service.params
    peak = max(history.peaks[part] for part in (Part.TRAIN, Part.TUNE)) / UTILIZATION
    made = {name: bounds for name, bounds in SPEC.items() if name not in KEPT}
    for index, name in enumerate(MINIMUM):
        low = int(params.min_replicas[0, index])
        most = [int(params.max_replicas[0, index]), math.ceil(peak / service.rps[index])]
        if service.fallback[index] is not None:
            most.append(int(service.fallback[index] or 0))
        made[name] = IntDistribution(low, max(min(most), low))
    own = own_point(service)
    target, window = SPEC[TARGET], SPEC["down_window"]
    assert isinstance(target, FloatDistribution)
    assert isinstance(window, IntDistribution)
    made[TARGET] = FloatDistribution(min(target.low, own[TARGET]), max(target.high, own[TARGET]))
    step = math.gcd(WINDOW_STEP, own["down_window"])
    made["down_window"] = IntDistribution(0, max(window.high, own["down_window"]), step=step)
    return made


def own_point(service: Service) -> Found:
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
    """What is searched around a network; `around` says which."""
    return replace(
        CONTENDERS["ppo"], space=space_of(service, history), default=own_point(service), settings=settings_of
    )


def around(kind: Tunable, actor: ActorLike) -> Tunable:
    """The contender with that network inside, which keeps its envelope: outside of it the network is not asked."""
    return replace(kind, make=lambda chosen, rate: under(actor, chosen))


def under(actor: ActorLike, settings: SpecSettings) -> Configured:
    made = Configured(actor, settings)
    made.manifest = actor.manifest
    return made


def starts(kind: Tunable) -> list[Found]:
    """The user's own spec, alone and over standing capacity."""
    bounds = [kind.space[name] for name in MINIMUM]
    found = [kind.default]
    for shares in STANDING:
        point = dict(kind.default)
        for name, bound, share in zip(MINIMUM, bounds, shares, strict=True):
            assert isinstance(bound, IntDistribution)
            point[name] = bound.low + round(share * (bound.high - bound.low))
        if point not in found:
            found.append(point)
    return found


def settings_of(found: Found) -> SpecSettings:
    """The spec as it is played, in steps that the custom resource knows; scaleUp stays as the user has it."""
    target = found.get(TARGET)
    window = found.get("down_window")
    return SpecSettings(
        min_replicas=(found.get("min_gpu", 0), found.get("min_cpu", 0)),
        reactive_floor=found.get("reactive_floor"),
        target_utilization=None if target is None else round(target, 2),
        scale_down_window_seconds=None if window is None else float(window),
    )


def with_point(service: Service, found: Found) -> Service:
    """The service under that spec."""
    return replace(service, params=with_spec(service.params, settings_of(found)))


def affordable(service: Service, found: Found) -> bool:
    """`service.standing_fits` under that spec."""
    return standing_fits(with_point(service, found).params)


def changes(service: Service, found: Found) -> Found:
    """What of a point differs from the user's own spec; a target that no floor aims at is none."""
    own, params = own_point(service), service.params
    made = {name: found[name] for name in found if name != TARGET and found[name] != own[name]}
    if TARGET in found and found.get("reactive_floor", own["reactive_floor"]):
        target = round(found[TARGET], 2)
        if (np.round(params.target_utilization[0][params.present[0]], 2) != target).any():
            made[TARGET] = target
    return made


def patch(service: Service, found: Found) -> dict[str, Any]:
    """A merge patch of the RLScalingPolicy with the fields that differ; empty where none does."""
    params, differs = service.params, changes(service, found)
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


def without(found: Found, names: Iterable[str]) -> Found:
    """The point without `names`, which stay as the user has them."""
    dropped = set(names)
    return {name: value for name, value in found.items() if name not in dropped}
