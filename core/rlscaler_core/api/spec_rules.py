"""Requirements that span several parts of the spec."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlscaler_core.api.base import Rule
from rlscaler_core.api.metrics import COUNT_RUNNING, COUNT_TOKENS, TIME_FIRST_TOKEN, TIME_OUTPUT_TOKEN


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


def _one_capacity(spec: Any, pool: str) -> bool:
    target = spec.targets.pool(pool)
    if target is None or target.requests_per_second is None:
        return True
    return spec.capacity.unit == "requests" and spec.capacity.per_replica is None


def _capacity_has_target(spec: Any, pool: str) -> bool:
    return getattr(spec.capacity.per_replica, pool, None) is None or spec.targets.pool(pool) is not None


def _counts(spec: Any, unit: str, presets: tuple[str, ...], without: bool) -> bool:
    if spec.capacity.unit != unit or "load" in spec.metrics.queries:
        return True
    return spec.metrics.preset in presets or (without and spec.metrics.preset is None)


def _weighs(spec: Any) -> bool:
    weights = spec.capacity.token_weights
    counted = spec.capacity.unit == "tokens" and "load" not in spec.metrics.queries
    return counted or (weights.prompt, weights.answer) == (1, 1)


def _times(spec: Any, signal: str, presets: tuple[str, ...]) -> bool:
    return spec.slo.signal != signal or spec.metrics.preset in presets


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
        Rule(
            cel=f"!has({target}) || !has({target}.requestsPerSecond) || "
            "(self.capacity.unit == 'requests' && !has(self.capacity.perReplica))",
            holds=lambda spec: _one_capacity(spec, pool),
            message=f"targets.{pool}.requestsPerSecond is in requests/s, and it excludes capacity.perReplica and every "
            f"unit but requests: remove it, and set capacity.perReplica.{pool} in its place",
            field=f"targets.{pool}.requestsPerSecond",
        ),
        Rule(
            cel=f"!has(self.capacity.perReplica) || !has(self.capacity.perReplica.{pool}) || has({target})",
            holds=lambda spec: _capacity_has_target(spec, pool),
            message=f"capacity.perReplica.{pool} needs targets.{pool}: remove it or add the target",
            field=f"capacity.perReplica.{pool}",
        ),
    )


_OWN_LOAD = "(has(self.metrics.queries) && 'load' in self.metrics.queries)"
"""CEL of a policy that brings a query for its load."""


def _preset_in(presets: tuple[str, ...]) -> str:
    """CEL of a policy with one of some presets."""
    return f"(has(self.metrics.preset) && self.metrics.preset in {list(presets)})"


def _signal_rule(signal: str, presets: tuple[str, ...]) -> Rule:
    return Rule(
        cel=f"self.slo.signal != '{signal}' || {_preset_in(presets)}",
        holds=lambda spec: _times(spec, signal, presets),
        message=f"signal {signal} needs a histogram of it, which the presets {', '.join(presets)} have: set "
        "metrics.preset to one of them, or signal to endToEnd",
        field="slo.signal",
    )


_TIME_BOTH = tuple(preset for preset in TIME_FIRST_TOKEN if preset in TIME_OUTPUT_TOKEN)


def _times_both(spec: Any) -> bool:
    if spec.slo.time_per_output_token_milliseconds is None:
        return True
    return spec.metrics.preset in _TIME_BOTH and "p95Latency" not in spec.metrics.queries


_BOTH_RULE = Rule(
    cel=f"!has(self.slo.timePerOutputTokenMilliseconds) || ({_preset_in(_TIME_BOTH)} && "
    "!(has(self.metrics.queries) && 'p95Latency' in self.metrics.queries))",
    holds=_times_both,
    message="timePerOutputTokenMilliseconds needs histograms of both latencies, which the presets "
    f"{', '.join(_TIME_BOTH)} have: set metrics.preset to one of them and remove p95Latency from metrics.queries, or "
    "remove timePerOutputTokenMilliseconds",
    field="slo.timePerOutputTokenMilliseconds",
)


_CAPACITY_RULES = (
    Rule(
        cel=f"self.capacity.unit != 'tokens' || {_OWN_LOAD} || {_preset_in(COUNT_TOKENS)}",
        holds=lambda spec: _counts(spec, "tokens", COUNT_TOKENS, without=False),
        message=f"unit tokens needs counters of tokens, which the presets {', '.join(COUNT_TOKENS)} have: set "
        "metrics.preset to one of them, bring a query of tokens/s in metrics.queries.load, or choose another unit",
        field="capacity.unit",
    ),
    Rule(
        cel=f"self.capacity.unit != 'concurrency' || {_OWN_LOAD} || !has(self.metrics.preset) || "
        f"{_preset_in(COUNT_RUNNING)}",
        holds=lambda spec: _counts(spec, "concurrency", COUNT_RUNNING, without=True),
        message="unit concurrency needs a gauge of the requests that run, which the presets "
        f"{', '.join(COUNT_RUNNING)} have: set metrics.preset to one of them, bring a query in metrics.queries.load, "
        "or choose another unit",
        field="capacity.unit",
    ),
    Rule(
        cel=f"self.capacity.unit != 'requests' || !{_OWN_LOAD}",
        holds=lambda spec: spec.capacity.unit != "requests" or "load" not in spec.metrics.queries,
        message="queries.load is for the units tokens and concurrency: call it queries.arrivalRate, or set "
        "capacity.unit",
        field="metrics.queries",
    ),
    Rule(
        cel="(self.capacity.tokenWeights.prompt == 1.0 && self.capacity.tokenWeights.answer == 1.0) || "
        f"(self.capacity.unit == 'tokens' && !{_OWN_LOAD})",
        holds=lambda spec: _weighs(spec),
        message="tokenWeights are of tokens that a preset counts: set unit to tokens, weigh the tokens of a query in "
        "queries.load itself, or remove tokenWeights",
        field="capacity.tokenWeights",
    ),
    _signal_rule("ttft", TIME_FIRST_TOKEN),
    _signal_rule("tpot", TIME_OUTPUT_TOKEN),
    _BOTH_RULE,
)


def _signal_excludes(cel: str, excludes: Callable[[Any], bool], message: str, field: str) -> Rule:
    """Make the rule that a policy with a signal of its own has no other thing: `cel` and `excludes` say it is there."""
    return Rule(
        cel=f"!has(self.signal) || !({cel})",
        holds=lambda spec: spec.signal is None or not excludes(spec),
        message=message,
        field=field,
    )


_STREAM_QUERIES = ("arrivalRate", "p95Latency", "load")

_STREAM_RULES = (
    _signal_excludes(
        "has(self.targets.gpu) && has(self.targets.cpu)",
        lambda spec: spec.targets.gpu is not None and spec.targets.cpu is not None,
        "a consumer group gives its members equal shares of the partitions, whatever they run on: with signal.kafka "
        "keep one target",
        "targets.cpu",
    ),
    _signal_excludes(
        "self.capacity.unit != 'requests'",
        lambda spec: spec.capacity.unit != "requests",
        "with signal.kafka the load is counted in messages: remove capacity.unit, and set what a consumer processes "
        "each second in requestsPerSecond or leave it out",
        "capacity.unit",
    ),
    _signal_excludes(
        "self.slo.signal != 'endToEnd'",
        lambda spec: spec.slo.signal != "endToEnd",
        "with signal.kafka the latency is how long messages wait: remove slo.signal",
        "slo.signal",
    ),
    _signal_excludes(
        "has(self.metrics.preset)",
        lambda spec: spec.metrics.preset is not None,
        "with signal.kafka load and latency are read from the brokers: remove metrics.preset",
        "metrics.preset",
    ),
    _signal_excludes(
        f"has(self.metrics.queries) && {list(_STREAM_QUERIES)}.exists(name, name in self.metrics.queries)",
        lambda spec: any(name in spec.metrics.queries for name in _STREAM_QUERIES),
        "with signal.kafka load and latency are read from the brokers: remove arrivalRate, p95Latency and load from "
        "metrics.queries",
        "metrics.queries",
    ),
    _signal_excludes(
        "has(self.placement.httpRoute)",
        lambda spec: spec.placement.http_route is not None,
        "consumers fetch their messages, no route brings them: with signal.kafka remove placement.httpRoute",
        "placement.httpRoute",
    ),
    _signal_excludes(
        "has(self.policy.bundled) && self.policy.bundled == 'ppo'",
        lambda spec: spec.policy.bundled == "ppo",
        "the network ppo was trained for services: with signal.kafka remove policy, or set policy.bundled to rule or "
        "streams",
        "policy",
    ),
    Rule(
        cel="has(self.signal) || !has(self.policy.bundled) || self.policy.bundled != 'streams'",
        holds=lambda spec: spec.signal is not None or spec.policy.bundled != "streams",
        message="the network streams was trained for consumers of a stream: set policy.bundled to rule or ppo, or add "
        "signal.kafka",
        field="policy.bundled",
    ),
    _signal_excludes(
        "self.promotion.require != 'None'",
        lambda spec: spec.promotion.require != "None",
        "Shadow's model of a service knows no partitions, so it gathers no evidence for consumers: with signal.kafka "
        "remove promotion.require",
        "promotion.require",
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
    *_CAPACITY_RULES,
    *_STREAM_RULES,
)
