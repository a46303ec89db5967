"""Autoscalers of token services: the forecast rule on several loads, KEDA on several numbers of vLLM, and WVA."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from optuna.distributions import FloatDistribution, IntDistribution

from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.rule import DEFAULT_SETTINGS, Rule, RuleSettings
from rlscaler_core.decision.types import Int, Samples, State
from rlscaler_rl.baselines.behavior import DEFAULT_SCALE_DOWN, DEFAULT_SCALE_UP
from rlscaler_rl.baselines.contender import Value, column
from rlscaler_rl.baselines.hpa import Hpa, HpaSettings, average_value_replicas
from rlscaler_rl.evaluation.models import Loaded
from rlscaler_rl.evaluation.tuning.contenders import Tunable
from rlscaler_rl.evaluation.tuning.spaces import GAINS, Point, Space
from rlscaler_rl.simulation.tokens.looks import Signal


class KedaSignal(Hpa):
    """KEDA with its Prometheus scaler on one number of all replicas, with an AverageValue target."""

    own_metrics = False

    def recommend(self, samples: Samples, state: State, current: Int) -> Int:
        value = np.stack([samples.arrival_rate, np.full(len(samples), np.nan)], axis=1)
        return average_value_replicas(current, value, self.target, column(self.settings.tolerance))


@dataclass(frozen=True, slots=True)
class BacklogSettings(HpaSettings):
    """Targets of llm-d's token-aware ScaledObject; `target` is in seconds of prompts for each replica."""

    kv: Value = 0.8
    """KV cache in use of each replica."""


class KedaBacklog(KedaSignal):
    """llm-d's token-aware ScaledObject: seconds of prompts and KV caches in use, whichever asks for more replicas.

    Prompts count whole here, with the part that a prefix cache has; llm-d's count leaves this part out.
    Source: https://llm-d.ai/docs/dev/operations/autoscaling/token-aware.
    """

    settings: BacklogSettings

    def recommend(self, samples: Samples, state: State, current: Int) -> Int:
        held = np.stack([samples.cpu_utilization / 100, np.full(len(samples), np.nan)], axis=1)
        decode = average_value_replicas(current, held, column(self.settings.kv), column(self.settings.tolerance))
        return np.maximum(super().recommend(samples, state, current), decode)


@dataclass(frozen=True, slots=True)
class WvaSettings(HpaSettings):
    """Thresholds of WVA, and the HPA on its number."""

    rise: Value = 0.85
    """Demand over capacity, with replicas that start, above which replicas are added."""

    keep: Value = 0.7
    """Demand over the capacity of the ready replicas below which replicas are removed."""


class Wva(KedaSignal):
    """llm-d's workload-variant autoscaler 0.9 with one variant, and an HPA that follows its number of replicas.

    Source: https://github.com/llm-d/llm-d-workload-variant-autoscaler, internal/engines/pipeline.
    """

    settings: WvaSettings

    def recommend(self, samples: Samples, state: State, current: Int) -> Int:
        demand, ready = samples.arrival_rate[:, None], samples.ready_replicas
        missing = np.ceil(np.maximum(demand / column(self.settings.rise) - current, 0.0))
        spare = np.floor(np.maximum(ready - demand / column(self.settings.keep), 0.0))
        wanted = np.where(missing > 0, current + missing, np.maximum(current - spare, 1))
        return average_value_replicas(current, wanted, np.ones_like(wanted), column(self.settings.tolerance))


@dataclass(frozen=True, slots=True)
class Entry:
    """An autoscaler with the number that it reads."""

    tunable: Tunable
    signal: Signal
    learns: bool = False
    plain: bool = False
    """Tokens of prompts and answers count alike."""

    exact: bool = False
    """It knows the capacity exactly: a reference, and no rival."""

    fixed: bool = False
    """Its settings are the default ones, and are not tuned."""

    actor: ActorLike | None = None
    """A network in place of a contender with settings."""


RULE: Space = {name: GAINS[name] for name in ("loading", "horizon", "residual", "peak_seconds")}
RULE_DEFAULT: Point = {name: getattr(DEFAULT_SETTINGS, name) for name in RULE}


def _rule(name: str, label: str, signal: Signal, **more: Any) -> Entry:
    tunable = Tunable(
        name, label, RULE, RULE_DEFAULT, lambda point: RuleSettings(**point), lambda chosen, rate: Rule(chosen)
    )
    return Entry(tunable, signal, **more)


def _keda(name: str, label: str, signal: Signal, default: float, low: float, high: float) -> Entry:
    space: Space = {"target": FloatDistribution(low, high, log=True), "down_window": IntDistribution(0, 600, step=30)}

    def settings(point: Point) -> Any:
        down = replace(DEFAULT_SCALE_DOWN, stabilization_seconds=float(point["down_window"]))
        # Pairs, because a batch of settings is stacked by row.
        return HpaSettings((point["target"],) * 2, min_replicas=(0, 0), scaled=(True, True), down=down)

    begin = {"target": default, "down_window": 300}
    return Entry(Tunable(name, label, space, begin, settings, lambda chosen, rate: KedaSignal(chosen)), signal)


def _backlog() -> Entry:
    space: Space = {
        "target": FloatDistribution(0.05, 5.0, log=True),
        "kv": FloatDistribution(0.01, 0.95, log=True),
        "down_window": IntDistribution(0, 600, step=30),
    }

    def settings(point: Point) -> Any:
        down = replace(DEFAULT_SCALE_DOWN, stabilization_seconds=float(point["down_window"]))
        pools: Any = {"target": (point["target"],) * 2, "min_replicas": (0, 0), "scaled": (True, True)}
        return BacklogSettings(**pools, down=down, kv=point["kv"])

    begin = {"target": 1.0, "kv": 0.8, "down_window": 300}
    tunable = Tunable(
        "backlog", "KEDA on token backlog", space, begin, settings, lambda chosen, rate: KedaBacklog(chosen)
    )
    return Entry(tunable, "backlog")


def _wva() -> Entry:
    space: Space = {
        "rise": FloatDistribution(0.3, 1.3, log=True),
        "keep": FloatDistribution(0.4, 0.95),
        "up_window": IntDistribution(0, 240, step=30),
        "down_window": IntDistribution(0, 600, step=30),
    }

    def settings(point: Point) -> Any:
        down = replace(DEFAULT_SCALE_DOWN, stabilization_seconds=float(point["down_window"]))
        up = replace(DEFAULT_SCALE_UP, stabilization_seconds=float(point["up_window"]))
        pools: Any = {"target": (1.0, 1.0), "min_replicas": (0, 0), "scaled": (True, True)}
        return WvaSettings(**pools, up=up, down=down, rise=point["rise"], keep=point["keep"] * point["rise"])

    begin = {"rise": 0.85, "keep": 0.7 / 0.85, "up_window": 0, "down_window": 300}
    tunable = Tunable("wva", "WVA on saturation", space, begin, settings, lambda chosen, rate: Wva(chosen))
    return Entry(tunable, "saturation")


def network(loaded: Loaded) -> Entry:
    """Return a trained network over the rule on weighted tokens; none of its settings is tuned."""
    rule, name = ENTRIES[0], f"network {loaded.digest[:8]}"
    tunable = replace(rule.tunable, name=name, label=f"network {loaded.name}", space={}, default={})
    return replace(rule, tunable=tunable, actor=loaded.actor)


ENTRIES: tuple[Entry, ...] = (
    _rule("policy", "policy as it comes", "tokens", learns=True, fixed=True),
    _rule("weighted", "policy, tuned", "tokens", learns=True),
    _rule("declared", "rule, weighted tokens, declared capacity", "tokens"),
    _rule("plain", "rule, plain tokens", "tokens", plain=True),
    _rule("requests", "rule, requests/s", "requests"),
    _keda("waiting", "KEDA on waiting", "waiting", 5.0, 0.2, 50.0),
    _keda("in_flight", "KEDA on running + waiting", "in_flight", 16.0, 1.0, 250.0),
    _keda("kv", "KEDA on KV usage", "kv", 0.8, 0.01, 0.95),
    _backlog(),
    _wva(),
    _rule("mix", "rule, mix and capacity known", "mix", exact=True),
)
"""The first is the subject of comparisons: the forecast rule of a new policy, in weighted tokens and with a capacity
that it learns, without any tuning."""
