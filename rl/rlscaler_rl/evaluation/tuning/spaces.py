"""Search spaces of all contenders, and the settings that a point of a space stands for.

A space is a dict of Optuna distributions. Bounds are those of the real systems' APIs, or narrower ones that suit
services of a few to a few dozen replicas; windows go up to the length of an episode.
"""

from __future__ import annotations

from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from rlscaler_core.decision.manifest import RuleGains
from rlscaler_core.decision.rule import BY_LOAD, DEFAULT_SETTINGS, RuleSettings
from rlscaler_core.decision.spec import SpecSettings
from rlscaler_core.decision.types import Placement
from rlscaler_rl.baselines.behavior import DISABLED, MAX, MIN, HpaPolicy, HpaRules
from rlscaler_rl.baselines.hindsight import HindsightSettings
from rlscaler_rl.baselines.hpa import HpaSettings
from rlscaler_rl.baselines.kpa import CONCURRENCY, RPS, KpaSettings
from rlscaler_rl.baselines.simple import StaticSettings

Space = dict[str, BaseDistribution]
Point = dict[str, Any]
"""One point of a space."""

PLACEMENTS = CategoricalDistribution([int(placement) for placement in Placement])
MIN_REPLICAS: Space = {"min_gpu": IntDistribution(1, 6), "min_cpu": IntDistribution(1, 10)}


def _seconds(high: int, step: int = 15, low: int = 0) -> IntDistribution:
    return IntDistribution(low, high, step=step)


_HPA_REST: Space = {
    "tolerance": FloatDistribution(0.0, 0.2),
    **MIN_REPLICAS,
    "up_window": _seconds(120),
    "up_pods": IntDistribution(1, 10),
    "up_percent": IntDistribution(10, 400, step=10),
    "up_period": _seconds(120, low=15),
    "up_select": CategoricalDistribution([MAX, MIN]),
    "down_window": _seconds(600),
    "down_pods": IntDistribution(1, 10),
    "down_percent": IntDistribution(5, 100, step=5),
    "down_period": _seconds(120, low=15),
    "down_select": CategoricalDistribution([MAX, MIN, DISABLED]),
    "placement": PLACEMENTS,
}

HPA: Space = {"target_gpu": FloatDistribution(0.2, 0.95), "target_cpu": FloatDistribution(0.2, 0.95), **_HPA_REST}
HPA_DEFAULT: Point = {
    "target_gpu": 0.8,
    "target_cpu": 0.8,
    "tolerance": 0.1,
    "min_gpu": 1,
    "min_cpu": 1,
    "up_window": 0,
    "up_pods": 4,
    "up_percent": 100,
    "up_period": 15,
    "up_select": MAX,
    "down_window": 300,
    "down_pods": 10,
    "down_percent": 100,
    "down_period": 15,
    "down_select": MAX,
    "placement": Placement.BALANCED.value,
}

KEDA: Space = {"target_gpu": FloatDistribution(0.3, 1.2), "target_cpu": FloatDistribution(0.3, 1.2), **_HPA_REST}


def hpa(point: Point) -> HpaSettings:
    up_pods = HpaPolicy("Pods", point["up_pods"], float(point["up_period"]))
    up_percent = HpaPolicy("Percent", point["up_percent"], float(point["up_period"]))
    down_pods = HpaPolicy("Pods", point["down_pods"], float(point["down_period"]))
    down_percent = HpaPolicy("Percent", point["down_percent"], float(point["down_period"]))
    return HpaSettings(
        target=(point["target_gpu"], point["target_cpu"]),
        tolerance=point["tolerance"],
        min_replicas=(point["min_gpu"], point["min_cpu"]),
        scaled=(True, True),
        up=HpaRules(float(point["up_window"]), (up_pods, up_percent), point["up_select"]),
        down=HpaRules(float(point["down_window"]), (down_pods, down_percent), point["down_select"]),
        placement=point["placement"],
    )


KPA: Space = {
    "metric": CategoricalDistribution([RPS, CONCURRENCY]),
    "target_gpu": FloatDistribution(0.2, 1.1),
    "target_cpu": FloatDistribution(0.2, 1.1),
    "stable_window": _seconds(300, step=6, low=6),
    "panic_window_percentage": FloatDistribution(1.0, 100.0),
    "panic_threshold_percentage": FloatDistribution(110.0, 1000.0, log=True),
    "max_scale_up_rate": FloatDistribution(1.05, 1000.0, log=True),
    "max_scale_down_rate": FloatDistribution(1.05, 10.0, log=True),
    "scale_down_delay": _seconds(600),
    **MIN_REPLICAS,
    "placement": PLACEMENTS,
}
KPA_DEFAULT: Point = {
    "metric": RPS,
    "target_gpu": 0.7,
    "target_cpu": 0.7,
    "stable_window": 60,
    "panic_window_percentage": 10.0,
    "panic_threshold_percentage": 200.0,
    "max_scale_up_rate": 1000.0,
    "max_scale_down_rate": 2.0,
    "scale_down_delay": 0,
    "min_gpu": 1,
    "min_cpu": 1,
    "placement": Placement.BALANCED.value,
}


def kpa(point: Point) -> KpaSettings:
    return KpaSettings(
        metric=point["metric"],
        target=(point["target_gpu"], point["target_cpu"]),
        stable_window_seconds=float(point["stable_window"]),
        panic_window_percentage=point["panic_window_percentage"],
        panic_threshold_percentage=point["panic_threshold_percentage"],
        max_scale_up_rate=point["max_scale_up_rate"],
        max_scale_down_rate=point["max_scale_down_rate"],
        scale_down_delay_seconds=float(point["scale_down_delay"]),
        min_scale=(point["min_gpu"], point["min_cpu"]),
        placement=point["placement"],
    )


INTERVALS = CategoricalDistribution([10, 15, 30])
"""Seconds between actions: the default of training, and shorter ones."""

SPEC: Space = {
    "interval": INTERVALS,
    "target_utilization": FloatDistribution(0.4, 1.0),
    "reactive_floor": CategoricalDistribution([True, False]),
    "up_window": _seconds(60),
    "down_window": _seconds(600),
    **MIN_REPLICAS,
}
"""Space of a policy's own spec, whichever actor it is around."""

SPEC_DEFAULT: Point = {
    "interval": 30,
    "target_utilization": 0.8,
    "reactive_floor": True,
    "up_window": 0,
    "down_window": 0,
    "min_gpu": 1,
    "min_cpu": 1,
}


def spec(point: Point) -> SpecSettings:
    return SpecSettings(
        interval_seconds=float(point["interval"]),
        min_replicas=(point["min_gpu"], point["min_cpu"]),
        reactive_floor=point["reactive_floor"],
        target_utilization=point["target_utilization"],
        scale_up_window_seconds=float(point["up_window"]),
        scale_down_window_seconds=float(point["down_window"]),
    )


GAINS: Space = {
    "loading": FloatDistribution(0.6, 1.6),
    "horizon": FloatDistribution(0.2, 4.0),
    "trend": FloatDistribution(0.0, 3.0),
    "residual": FloatDistribution(0.0, 5.0),
    "peak": FloatDistribution(0.3, 1.6),
    "peak_seconds": FloatDistribution(5.0, 180.0),
}
"""Space of the forecast rule's gains."""


def gains(point: Point) -> RuleGains:
    return RuleGains(**{name: point[name] for name in GAINS})


RULE_PLACEMENTS = CategoricalDistribution([BY_LOAD, *(int(placement) for placement in Placement)])

RULE: Space = {**GAINS, **SPEC, "placement": RULE_PLACEMENTS}
RULE_DEFAULT: Point = {**RuleGains().model_dump(), **SPEC_DEFAULT, "placement": BY_LOAD}


def rule(point: Point) -> RuleSettings:
    return RuleSettings(**gains(point).model_dump(), placement=point["placement"], spec=spec(point))


KNOWN_RULE: Space = {
    "loading": GAINS["loading"],
    "caution": FloatDistribution(0.03, 3.0, log=True),
    "jump_caution": FloatDistribution(0.03, 3.0, log=True),
    **SPEC,
    "placement": RULE_PLACEMENTS,
}
"""Space of the forecast rule on a service whose past it knows: the gains of its other forecast do not count there."""

KNOWN_RULE_DEFAULT: Point = {
    "loading": DEFAULT_SETTINGS.loading,
    "caution": DEFAULT_SETTINGS.caution,
    "jump_caution": DEFAULT_SETTINGS.jump_caution,
    **SPEC_DEFAULT,
    "placement": BY_LOAD,
}


def known_rule(point: Point) -> RuleSettings:
    return RuleSettings(
        loading=point["loading"],
        caution=point["caution"],
        jump_caution=point["jump_caution"],
        placement=point["placement"],
        spec=spec(point),
    )


STATIC: Space = {"ninths_gpu": IntDistribution(0, 9), "ninths_cpu": IntDistribution(0, 9), "placement": PLACEMENTS}
STATIC_DEFAULT: Point = {"ninths_gpu": 9, "ninths_cpu": 9, "placement": Placement.BALANCED.value}


def static(point: Point) -> StaticSettings:
    return StaticSettings((point["ninths_gpu"] / 9, point["ninths_cpu"] / 9), point["placement"])


HINDSIGHT: Space = {
    "target": FloatDistribution(0.4, 1.6),
    "lead": FloatDistribution(0.8, 2.5),
    "smooth": _seconds(91, step=2, low=1),
    "placement": PLACEMENTS,
}
HINDSIGHT_DEFAULT: Point = {"target": 0.85, "lead": 1.25, "smooth": 1, "placement": Placement.BALANCED.value}


def hindsight(point: Point) -> HindsightSettings:
    return HindsightSettings(point["target"], point["lead"], float(point["smooth"]), point["placement"])
