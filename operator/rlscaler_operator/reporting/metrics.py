"""The operator's own metrics, in a registry of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

LABELS = ("namespace", "policy")

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

LAG_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5)


class Metrics:
    """Counters and gauges by policy; `forget` removes those of a deleted one."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._series: dict[tuple[str, str], dict[tuple[Any, ...], Any]] = {}
        self.leader = Gauge("rlscaler_leader", "1 where this process holds the lease.", registry=registry)
        self.policies = Gauge("rlscaler_policies", "Policies known to this process.", registry=registry)
        self.decided = Gauge(
            "rlscaler_policies_decided",
            "Policies for which something was decided since this process acts.",
            registry=registry,
        )
        self.lag = Histogram(
            "rlscaler_loop_lag_seconds",
            "How late the loop looked at a due time.",
            buckets=LAG_SECONDS,
            registry=registry,
        )
        self.window = Gauge("rlscaler_rate_window_seconds", "Rate window of the service's metrics.", registry=registry)
        self.sense_seconds = Histogram(
            "rlscaler_sense_seconds",
            "Time to query one Prometheus for all its policies.",
            buckets=SECONDS,
            registry=registry,
        )
        self.decide_seconds = Histogram(
            "rlscaler_decide_seconds", "Time to decide one batch of policies.", buckets=SECONDS, registry=registry
        )
        self.write_seconds = Histogram(
            "rlscaler_write_seconds", "Time of one scale write.", buckets=SECONDS, registry=registry
        )
        self.decisions = Counter("rlscaler_decisions", "Decisions taken.", (*LABELS, "kind"), registry=registry)
        self.writes = Counter(
            "rlscaler_scale_writes", "Scale writes by result.", (*LABELS, "result"), registry=registry
        )
        self.unknown = Counter(
            "rlscaler_unknown_signals",
            "Signals that were unknown when they were needed.",
            (*LABELS, "signal"),
            registry=registry,
        )
        self.audit_lost = Counter(
            "rlscaler_audit_records_lost", "Decisions that are missing in the audit log.", registry=registry
        )
        self.errors = Counter("rlscaler_policy_errors", "Ticks of a policy that failed.", LABELS, registry=registry)
        self.observation = Gauge(
            "rlscaler_observation",
            "The observation of the last decision; NaN = unknown.",
            (*LABELS, "name"),
            registry=registry,
        )
        self.age = Gauge(
            "rlscaler_signal_age_seconds",
            "Age of the newest raw sample of a signal.",
            (*LABELS, "signal"),
            registry=registry,
        )
        self.replicas = Gauge(
            "rlscaler_replicas",
            "Replicas by pool: current, ready, desired.",
            (*LABELS, "pool", "state"),
            registry=registry,
        )
        self.weight = Gauge(
            "rlscaler_traffic_weight", "Share of the traffic, per mille.", (*LABELS, "pool"), registry=registry
        )
        self.condition = Gauge(
            "rlscaler_condition", "1 where the condition is True.", (*LABELS, "type"), registry=registry
        )

    def late(self, seconds: float) -> None:
        """The loop looked at a due time so many seconds after it; before it counts as 0."""
        self.lag.observe(max(0.0, seconds))

    def render(self) -> bytes:
        """The text format."""
        return generate_latest(self.registry)

    def of(self, namespace: str, policy: str) -> Callable[..., Any]:
        """`of(metric, *further labels)` gives the policy's series; looking one up by its labels is slow."""
        series = self._series.setdefault((namespace, policy), {})

        def one(metric: Any, *labels: str) -> Any:
            child = series.get((metric, *labels))
            if child is None:
                child = series[metric, *labels] = metric.labels(namespace, policy, *labels)
            return child

        return one

    def forget(self, namespace: str, policy: str) -> None:
        """Remove every series of a policy."""
        self._series.pop((namespace, policy), None)
        for metric in vars(self).values():
            if getattr(metric, "_labelnames", ())[:2] == LABELS:
                metric.remove_by_labels({"namespace": namespace, "policy": policy})
