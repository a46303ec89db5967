"""The operator's own metrics, in a registry of their own. The help texts are the documentation, with units."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import generate_latest

from rlscaler_operator.reporting.series import LABELS, PerPolicy, PolicySeries, Series

STAGES = ("sense", "prepare", "decide", "compare", "judge", "write", "report")
"""Stages of a tick in their order; the first four handle a whole batch, and the judge stage diagnoses one policy."""

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

LAG_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

# Each counter would come with a second series for the time of its creation: at a thousand policies 40,000 of them.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """Series of the process, and of each policy that it acts for."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._series = PolicySeries()
        self.exists: Callable[[tuple[str, str]], bool] = lambda key: True
        """Returns whether a policy of this (namespace, name) is known."""
        ProcessCollector(registry=self.registry)
        self._of_the_process()
        self._of_budgets()
        self._of_what_is_seen()
        self._of_decisions()
        self._of_what_follows()
        self._of_the_objective()
        self.registry.register(self._series)
        self.build.labels(version("rlscaler")).set(1)
        self._stages = {stage: self.stage_seconds.labels(stage) for stage in STAGES}
        for result in ("Written", "Failed"):
            self.status_writes.labels(result)

    def _of_the_process(self) -> None:
        gauge, counter, histogram = self._kinds()
        self.build = gauge("rlscaler_build_info", "1; the label says the version.", ("version",))
        self.leader = gauge("rlscaler_leader", "1 where this process holds a lease and acts.")
        self.policies = gauge("rlscaler_policies", "Policies known to this process.")
        self.decided = gauge(
            "rlscaler_policies_decided", "Policies for which something was decided since this process acts."
        )
        self.turns = counter(
            "rlscaler_loop_turns", "Turns of the loop that looks who is due: at least one a second, on standby too."
        )
        self.lag = histogram(
            "rlscaler_loop_lag_seconds", "How late the loop looked at a due time.", buckets=LAG_SECONDS
        )
        self.stage_seconds = histogram(
            "rlscaler_tick_stage_seconds",
            "Time of one stage of a tick: sense (ask Prometheus) of a whole batch; prepare, decide, compare (step the "
            "virtual services) of up to 250 policies; judge, write and report of one.",
            ("stage",),
            buckets=SECONDS,
        )
        self.write_seconds = histogram(
            "rlscaler_scale_write_seconds", "Time of one scale request to the API server.", buckets=SECONDS
        )
        self.status_writes = counter(
            "rlscaler_status_writes", "Status writes by result: Written or Failed.", ("result",)
        )
        self.window = gauge("rlscaler_rate_window_seconds", "Rate window of the service's metrics, but for arrivals.")
        self.loop_errors = counter(
            "rlscaler_loop_errors",
            "Failures in work of the loop that belongs to no single policy: sharing budgets, comparing a batch. The "
            "loop goes on, and the log has the traceback.",
        )
        self.unreadable = counter(
            "rlscaler_unreadable_objects",
            "Objects of the cluster that the operator could not take in, by kind; the last readable one counts on.",
            ("kind",),
        )
        self.audit_lost = counter("rlscaler_audit_records_lost", "Decisions that are missing in the audit log.")

    def _of_budgets(self) -> None:
        gauge, _, _ = self._kinds()
        self._budgets: dict[str, Mapping[tuple[str, str, str], float]] = {}
        self._resources: dict[str, set[tuple[str, str]]] = {}
        self.budget_units = gauge(
            "rlscaler_budget_units",
            "Units of a resource of an RLScalingBudget by state: amount, granted, borrowed (beyond guarantees), idle.",
            ("budget", "resource", "state"),
        )
        self.budget_replicas = gauge(
            "rlscaler_budget_replicas",
            "Replicas of a policy that shares an RLScalingBudget by state: asked (NaN = unknown), granted, borrowed "
            "(granted beyond its guarantee), guaranteed (those of its guarantee that it asks for), running.",
            ("budget", "namespace", "policy", "state"),
        )

    def _of_what_is_seen(self) -> None:
        gauge, counter, _ = self._kinds()
        self.info = gauge(
            "rlscaler_policy_info",
            "1; the labels say mode, the service's name in the metrics, and name and sha256 of the model that decides.",
            (*LABELS, "mode", "service", "model", "digest"),
        )
        self.condition = gauge(
            "rlscaler_condition", "1 where the condition is True, 0 where it is not.", (*LABELS, "type")
        )
        self.observation = gauge(
            "rlscaler_observation",
            "The observation of the last action by name, in its own unit: *_utilization in %, p95_latency in "
            "milliseconds, throughput in % of what both pools answer at maxReplicas, *_replicas in replicas, the rest "
            "without unit; NaN = unknown.",
            (*LABELS, "name"),
        )
        self.signal = gauge(
            "rlscaler_signal",
            "What was measured last: arrival_rate in requests/s, or else in the unit of spec.capacity with "
            "request_rate in requests/s beside it; p95_latency in milliseconds, of two with an objective the worse in "
            "share of its own, as milliseconds of the first; *_utilization in %; NaN = unknown.",
            (*LABELS, "signal"),
        )
        self.age = gauge(
            "rlscaler_signal_age_seconds",
            "Age of the newest raw sample of a signal; +Inf = never seen.",
            (*LABELS, "signal"),
        )
        self.unknown = counter(
            "rlscaler_unknown_signals",
            "Sensing ticks at which a required signal was unknown, by the signal and why.",
            (*LABELS, "signal", "reason"),
        )
        self.replicas = gauge(
            "rlscaler_replicas",
            "Replicas by pool: current (spec.replicas), ready, desired; NaN where the Deployment does not exist.",
            (*LABELS, "pool", "state"),
        )
        self.limit = gauge(
            "rlscaler_replicas_limit", "minReplicas and maxReplicas of a pool.", (*LABELS, "pool", "bound")
        )
        self.pending = gauge(
            "rlscaler_pending_seconds",
            "For how long pods of a pool have not come up; 0 = there are none.",
            (*LABELS, "pool"),
        )
        self.pod_cpu = gauge(
            "rlscaler_pod_cpu_cores",
            "Cores that each pod of a pool should ask for where spec.targets has resources (recommended; NaN = not "
            "known), and that its running pods ask for in the mean where they are resized in place (set).",
            (*LABELS, "pool", "state"),
        )
        self.pod_memory = gauge(
            "rlscaler_pod_memory_bytes", "Bytes of memory, as rlscaler_pod_cpu_cores.", (*LABELS, "pool", "state")
        )
        self.resizes = counter(
            "rlscaler_pod_resizes",
            "Resizes of running pods by outcome: Taken (the API server took it), Refused (it did not), Failed (it is "
            "asked again), TakenBack (a kubelet did not do it, and the pod got back what it runs with).",
            (*LABELS, "pool", "outcome"),
        )
        self.cost = gauge(
            "rlscaler_cost_per_hour", "Cost of the replicas of a pool, in currency units an hour.", (*LABELS, "pool")
        )

    def _of_decisions(self) -> None:
        gauge, counter, _ = self._kinds()
        self.decisions = counter(
            "rlscaler_decisions",
            "Decisions by kind: action (the actor was asked) or floor (a sensing tick between two actions).",
            (*LABELS, "kind"),
        )
        self.probability = gauge(
            "rlscaler_action_probability",
            "Probability (0-1) of each action of the last action interval, by head: steps of gpu and cpu, and the "
            "placement; NaN where no actor ran.",
            (*LABELS, "head", "action"),
        )
        self.entropy = gauge(
            "rlscaler_action_entropy_ratio",
            "Entropy of a head's probabilities as a share of the highest possible: 0 = certain, 1 = any action is as "
            "good; NaN where no actor ran.",
            (*LABELS, "head"),
        )
        self.guards = counter(
            "rlscaler_guard_interventions",
            "Decisions in which a guard changed the replicas, or held them in the actor's place.",
            (*LABELS, "guard"),
        )
        self.weight = gauge("rlscaler_traffic_weight", "Share of the traffic, per mille.", (*LABELS, "pool"))

    def _of_what_follows(self) -> None:
        _, counter, _ = self._kinds()
        self.writes = counter(
            "rlscaler_scale_writes",
            "Scale writes by result: Applied, Conflict (the replicas were not what was decided upon), Missing (no such "
            "Deployment), LeaseLost, Refused (by the API server, such as an admission policy) or Failed.",
            (*LABELS, "pool", "result"),
        )
        self.placement_failures = counter(
            "rlscaler_placement_failures",
            "Ticks at which the traffic weights could not be put in force, by reason.",
            (*LABELS, "reason"),
        )
        self.errors = counter("rlscaler_policy_errors", "Ticks of a policy that failed.", LABELS)

    def _of_the_objective(self) -> None:
        gauge, counter, _ = self._kinds()
        self.slo_latency = gauge("rlscaler_slo_latency_seconds", "spec.slo.latencyMilliseconds, in seconds.", LABELS)
        self.slo_objective = gauge(
            "rlscaler_slo_objective_ratio", "spec.slo.objective as a share (0-1) of the requests.", LABELS
        )
        self.slo_requests = counter(
            "rlscaler_slo_requests", "Requests that arrived, measured once a rate window.", LABELS
        )
        self.slo_late = counter(
            "rlscaler_slo_late_requests",
            "Of them those not answered within the SLO's latency, refused ones included; where it lies between two "
            "bounds of the histogram, half of what lies there counts.",
            LABELS,
        )
        self.slo_budget_left = gauge(
            "rlscaler_slo_budget_left_ratio",
            "Share of the late requests that the objective allows over about 30 days which is left; below 0 it is "
            "overspent; NaN where too few requests were counted to say, or none for ten minutes while some arrive.",
            LABELS,
        )
        self.headroom = gauge(
            "rlscaler_headroom_ratio",
            "Capacity that is planned above the need of the load, as a part of it; 0 = as the forecast rule plans.",
            (*LABELS, "pool"),
        )
        self.late_price = gauge(
            "rlscaler_late_price_replicas",
            "Replicas of the dearer pool that one percent of late requests is worth to the forecast rule now; NaN for "
            "an actor that does not go by it.",
            LABELS,
        )
        self.forecast_held = gauge(
            "rlscaler_forecast_held_ratio",
            "Share (0-1) of the forecasts of the load that were not exceeded, by pool and by the share that should not "
            "be: of late, some days at most; NaN before the first forecast was over.",
            (*LABELS, "pool", "quantile"),
        )
        self.forecasts_judged = gauge(
            "rlscaler_forecasts_judged",
            "Forecasts of the load that are over and count in rlscaler_forecast_held_ratio.",
            (*LABELS, "pool"),
        )
        self.promotion = gauge(
            "rlscaler_promotion",
            "1 for the state that status.promotion is in: NotRequired, Collecting, Ready, Promoted or Demoted.",
            (*LABELS, "state"),
        )
        self.regret_cost = gauge(
            "rlscaler_regret_cost_percent",
            "Cost against the other side's in %, mean of the days that count and bounds of its confidence sequence; "
            "below 0 the policy is cheaper; NaN before there are enough days.",
            (*LABELS, "bound"),
        )
        self.regret_late = gauge(
            "rlscaler_regret_late_points",
            "Late requests against the other side's in percentage points, as rlscaler_regret_cost_percent.",
            (*LABELS, "bound"),
        )
        self.compared_requests = gauge(
            "rlscaler_compared_requests", "Requests of today (UTC) in the comparison of Shadow.", LABELS
        )
        self.compared_cost = gauge(
            "rlscaler_compared_cost",
            "Cost of today (UTC) in currency units: of the policy's replicas, and of the other side's.",
            (*LABELS, "side"),
        )
        self.compared_late = gauge(
            "rlscaler_compared_late_requests",
            "Late requests of today (UTC) by the model: under the policy, and on the other side.",
            (*LABELS, "side"),
        )

    def _kinds(self) -> tuple[Any, Any, partial[Histogram]]:
        """Return constructors of gauges, counters and histograms of this registry."""
        gauge, counter = partial(self._metric, Gauge, "gauge"), partial(self._metric, Counter, "counter")
        return gauge, counter, partial(Histogram, registry=self.registry)

    def _metric(
        self, class_: type[Gauge | Counter], kind: Any, name: str, documentation: str, labels: tuple[str, ...] = ()
    ) -> Any:
        """Return a metric; one with the labels of a policy is kept as plain numbers (`PerPolicy`)."""
        if labels[: len(LABELS)] != LABELS:
            return class_(name, documentation, labels, registry=self.registry)
        metric = PerPolicy(name, documentation, labels[len(LABELS) :], kind)
        self._series.metrics.append(metric)
        return metric

    def late(self, seconds: float) -> None:
        """Observe how many seconds after a due time the loop looked at it; a look before it counts as 0."""
        self.lag.observe(max(0.0, seconds))

    def stage(self, name: str) -> Any:
        """Return a context manager that measures the time of one of `STAGES`."""
        return self._stages[name].time()

    def render(self, names: Sequence[str] = ()) -> bytes:
        """Return all metrics, or the named series, in the text format. May be called in a thread."""
        return generate_latest(self.registry.restricted_registry(names) if names else self.registry)

    def put_budget(
        self, name: str, amounts: Mapping[tuple[str, str], float], replicas: Mapping[tuple[str, str, str], float]
    ) -> None:
        """Set the series of an RLScalingBudget: units by resource, state; replicas by namespace, policy, state."""
        for unused in self._resources.get(name, set()) - amounts.keys():
            self.budget_units.remove(name, *unused)
        for of_resource, value in amounts.items():
            self.budget_units.labels(name, *of_resource).set(value)
        self._resources[name] = set(amounts)
        for gone in self._budgets.get(name, {}).keys() - replicas.keys():
            self.budget_replicas.remove(name, *gone)
        for labels, value in replicas.items():
            self.budget_replicas.labels(name, *labels).set(value)
        self._budgets[name] = replicas

    def forget_budget(self, name: str) -> None:
        """Remove every series of an RLScalingBudget."""
        if name in self._budgets:
            self.put_budget(name, {}, {})
            del self._budgets[name], self._resources[name]

    def of(self, namespace: str, policy: str) -> Series:
        """Return the series of a policy; of one that is gone, series that nobody reads."""
        # A tick may end after its policy: what it counts then would stay for good, and fire alerts.
        return self._series.of((namespace, policy)) if self.exists((namespace, policy)) else Series({})

    def forget(self, namespace: str, policy: str) -> None:
        """Remove every series of a policy."""
        self._series.forget((namespace, policy))

    def keep(self, wanted: Callable[[tuple[str, str]], bool]) -> None:
        """Remove the series of all policies but the wanted: another operator acts for the rest and has newer values."""
        self._series.keep(wanted)
