"""The spec of RLScalingPolicy v1alpha1."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rlscaler_core.api.base import Model, ObjectName, Replicas, Rule, ServiceName
from rlscaler_core.api.behavior import Behavior
from rlscaler_core.api.capacity import Capacity
from rlscaler_core.api.kafka import Source
from rlscaler_core.api.metrics import Metrics
from rlscaler_core.api.spec_rules import SPEC_RULES
from rlscaler_core.api.targets import Targets
from rlscaler_core.decision.units import SignalName

Percent = Annotated[int, Field(ge=1, le=100)]


class SLO(Model):
    """The service-level objective that replicas are bought for."""

    latency_milliseconds: Annotated[int, Field(ge=1, le=600_000)]
    """Milliseconds within which a request counts as answered well."""
    signal: SignalName = "endToEnd"
    """Latency of the objective: `endToEnd`, from the arrival of a request to its whole answer; `ttft`, to the first
    token (presets `vllm`, `sglang`, `epp`); `tpot`, for each token after the first (presets `vllm`, `sglang`, `tgi`).
    A model of `policy` acts only for the latencies that its envelope names, the bundled network for `endToEnd`."""
    time_per_output_token_milliseconds: Annotated[int, Field(ge=1, le=600_000)] | None = None
    """Milliseconds for each token after the first, beside `latencyMilliseconds` to the first token (`signal: ttft`,
    presets `vllm`, `sglang`): a request that misses either is late. Decisions go by the worse of both latencies, each
    in share of its objective; default: the first token alone has an objective."""
    objective: Annotated[float, Field(ge=50, lt=100)] = 99
    """% of the requests that should be answered within `latencyMilliseconds` (and `timePerOutputTokenMilliseconds`),
    over 30 days, for the forecast rule, training for this service and the verdicts of `promotion`. A model decides for
    the objective that it was trained for: 99 the bundled one."""
    error_budget: Literal["Steer", "Observe"] = "Steer"
    """`Steer`: the forecast rule's price of a late request follows the share that is left of the late requests that
    `objective` allows over 30 days, within bounds and slowly; `Observe`: the share is only shown, the price stays."""
    percentile: Annotated[float, Field(ge=50, lt=100)] = 95
    """Percentile of the latency that `status.latency` shows. Decisions go by the 95th whatever is shown."""

    rules = (
        Rule(
            cel="!has(self.timePerOutputTokenMilliseconds) || self.signal == 'ttft'",
            holds=lambda slo: slo.time_per_output_token_milliseconds is None or slo.signal == "ttft",
            message="timePerOutputTokenMilliseconds goes with an objective on the first token: set signal to ttft, or "
            "remove timePerOutputTokenMilliseconds",
            field="timePerOutputTokenMilliseconds",
        ),
    )

    @property
    def steers(self) -> bool:
        """The error budget steers the price of late requests."""
        return self.error_budget == "Steer"


class ConfigMapKey(Model):
    """One key of a ConfigMap in the policy's namespace."""

    name: ObjectName
    """Name of the ConfigMap."""
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
    """Key that holds the manifest; the ONNX graph lies in `binaryData` beside it and is found by the digest that the
    manifest names, as `rlscaler publish` writes them."""


class PolicySource(Model):
    """Where the actor comes from; `bundled: ppo` where nothing is set, `bundled: rule` with `signal.kafka`."""

    bundled: Literal["ppo", "rule", "streams"] | None = None
    """An actor that comes with the operator: `ppo`, the network that moves a headroom in the plan of the forecast rule,
    `rule`, that rule without a network, or `streams`, the network for consumers of a stream (`signal.kafka`); default
    where neither `configMap` nor `path` is set: `ppo`, and `rule` with `signal.kafka`."""
    config_map: ConfigMapKey | None = None
    """A model in a ConfigMap of the policy's namespace."""
    path: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[^/].*$")] | None = None
    """A manifest under the operator's `--policy-dir`, as a relative path; the ONNX graph lies beside it and is found by
    the digest that the manifest names."""

    rules = (
        Rule(
            cel="[has(self.bundled), has(self.configMap), has(self.path)].filter(source, source).size() <= 1",
            holds=lambda policy: [policy.bundled, policy.config_map, policy.path].count(None) >= 2,
            message="bundled, configMap and path exclude each other: keep one of them",
            field="",
        ),
        Rule(
            cel="!has(self.path) || !self.path.split('/').exists(part, part == '..')",
            holds=lambda policy: policy.path is None or ".." not in policy.path.split("/"),
            message="path must stay below the operator's --policy-dir: remove '..'",
            field="path",
        ),
    )


class HTTPRouteRef(Model):
    """The Gateway API HTTPRoute (v1) whose backend weights follow the traffic preference."""

    name: ObjectName
    """Name of the HTTPRoute in the policy's namespace."""
    gpu_backend: ServiceName | None = None
    """Name of the backend Service of the GPU pool in the route's rules; default: the name of the GPU Deployment."""
    cpu_backend: ServiceName | None = None
    """Name of the backend Service of the CPU pool in the route's rules; default: the name of the CPU Deployment."""

    rules = (
        Rule(
            cel="!has(self.gpuBackend) || !has(self.cpuBackend) || self.gpuBackend != self.cpuBackend",
            holds=lambda route: route.gpu_backend is None or route.gpu_backend != route.cpu_backend,
            message="gpuBackend and cpuBackend name the same Service: each pool needs its own",
            field="cpuBackend",
        ),
    )


class PlacementTarget(Model):
    """Where the traffic split is applied; without it the weights are only published (status and annotation)."""

    http_route: HTTPRouteRef | None = None
    """The HTTPRoute whose backend weights follow the traffic preference; default: none, the weights are only published
    in the status and in the annotation `rlscaler.io/traffic-weights`."""


class PoolReplicas(Model):
    """A number of replicas for each pool."""

    gpu: Replicas | None = None
    """Replicas of the GPU Deployment."""
    cpu: Replicas | None = None
    """Replicas of the CPU Deployment."""


class Fallback(Model):
    """Scaling where a required signal stays unknown, the actor fails, or a model that moves no headroom is outside its
    envelope."""

    behavior: Literal["forecastRule", "hpaFormula", "currentReplicas", "currentReplicasIfHigher", "static"] = (
        "forecastRule"
    )
    """`forecastRule` sizes the pools for the load that is expected, as `policy: {bundled: rule}` does; `hpaFormula`
    scales by utilization as a HorizontalPodAutoscaler would, where utilization is known; both lower replicas as well,
    unless a required signal is unknown. `currentReplicas` keeps them; `currentReplicasIfHigher` keeps them or raises
    them to `replicas`; `static` sets `replicas`."""
    failure_threshold: Annotated[int, Field(ge=1, le=100)] = 3
    """Action intervals in a row with an unknown or a failure before the fallback acts; until then replicas are held."""
    replicas: PoolReplicas | None = None
    """Replicas for `static` and `currentReplicasIfHigher`, one number for each target."""

    rules = (
        Rule(
            cel="!(self.behavior in ['static', 'currentReplicasIfHigher']) || has(self.replicas)",
            holds=lambda fallback: not fallback.uses_replicas or fallback.replicas is not None,
            message="behavior static and currentReplicasIfHigher need replicas: set replicas.gpu and replicas.cpu for "
            "the targets you have",
            field="replicas",
        ),
        Rule(
            cel="self.behavior in ['static', 'currentReplicasIfHigher'] || !has(self.replicas)",
            holds=lambda fallback: fallback.uses_replicas or fallback.replicas is None,
            message="replicas only act with behavior static or currentReplicasIfHigher: remove replicas or change "
            "behavior",
            field="replicas",
        ),
    )

    @property
    def uses_replicas(self) -> bool:
        """The behavior needs `replicas`."""
        return self.behavior in ("static", "currentReplicasIfHigher")


class TargetUtilization(Model):
    """Utilization at which a replica counts as full."""

    gpu: Percent = 80
    """% of a GPU replica's capacity."""
    cpu: Percent = 80
    """% of a CPU replica's capacity."""


class Guards(Model):
    """Limits around the actor that hold whatever it asks for."""

    reactive_floor: bool = True
    """Raise replicas at once when the arrivals of the last sensing window need more than is desired."""
    ceiling: bool = True
    """Take back replicas that no load of the last `ceilingSeconds` would have needed, but for one. Nothing is taken
    back where the load was not known all that time, below the forecast or `minReplicas`, or faster than `behavior`
    allows."""
    ceiling_seconds: Annotated[int, Field(ge=60, le=86_400)] = 600
    """Seconds of measured load that the ceiling goes by."""
    target_utilization: TargetUtilization = TargetUtilization()
    """Utilization that the ceiling and the fallbacks aim at. The reactive floor and the forecast rule load replicas to
    1.15 times of it at three replicas of load; beyond, spare capacity grows with the square root of the load, to a
    quarter of its share at least (80 becomes 92, and 98 from 48 replicas of load on)."""
    budget_per_hour: Annotated[float, Field(gt=0, le=1_000_000_000)] | None = None
    """The most that both pools may cost, in currency units per hour; `minReplicas` wins over it; default: no limit."""
    pending_seconds: Annotated[int, Field(ge=1, le=7200)] | None = None
    """Seconds that a replica may be without a ready pod before it counts as stuck and the other pool takes its load;
    default: twice the cold start."""


class Promotion(Model):
    """Evidence from Shadow that Auto requires before it acts."""

    require: Literal["None", "Evidence"] = "None"
    """`None`: Auto acts at once; `Evidence`: Auto acts once Shadow was measurably better than the scaling before."""
    min_days: Annotated[int, Field(ge=1, le=90)] = 7
    """Days in Shadow that the evidence must cover."""


class Spec(Model):
    """Scaling of one service's replicas."""

    mode: Literal["Off", "Shadow", "Auto"] = "Shadow"
    """`Shadow` decides, scores and records but changes nothing; `Auto` acts; `"Off"` does neither (quote it: YAML reads
    a bare Off as false)."""
    interval_seconds: Annotated[int, Field(ge=10, le=300)] = 15
    """Seconds between two actions of the actor."""
    sense_seconds: Annotated[int, Field(ge=1, le=60)] = 5
    """Seconds between two looks at the metrics; in between actions only the reactive floor and the traffic weights
    move."""
    targets: Targets
    """The GPU and the CPU Deployment; one of the two may be left out."""
    capacity: Capacity = Capacity()
    """Unit of the load, and capacity of one replica in it; default: requests per second, as
    `targets.*.requestsPerSecond` says or as is learned."""
    slo: SLO
    """The service-level objective that replicas are bought for."""
    policy: PolicySource = PolicySource()
    """Where the actor comes from; default: the bundled `ppo`, with `signal.kafka` the bundled `rule`."""
    metrics: Metrics = Metrics()
    """Where the measurements come from and when they are too old to act on."""
    signal: Source | None = None
    """Consumers of a stream: production is the load, and how long messages wait is the latency; default: the load and
    the latency of requests, as `metrics` says."""
    placement: PlacementTarget = PlacementTarget()
    """Where the traffic split is applied."""
    behavior: Behavior | None = None
    """Limits on how fast replicas may change, in the fields of HorizontalPodAutoscaler v2; default: no window and no
    limit beyond two steps an action."""
    fallback: Fallback = Fallback()
    """Scaling where a required signal stays unknown, the actor fails, or a model that moves no headroom is outside its
    envelope."""
    guards: Guards = Guards()
    """Limits around the actor that hold whatever it asks for."""
    promotion: Promotion = Promotion()
    """Evidence from Shadow that Auto requires before it acts."""
    restore_on_delete: bool = False
    """Restore the replicas and traffic weights from before the first change when the policy is deleted."""

    rules = SPEC_RULES

    def per_replica(self, pool: str) -> float | None:
        """Return the capacity of a replica of the pool `gpu` or `cpu` in its unit; None: it is to be learned."""
        target = self.targets.pool(pool)
        if target is None:
            return None
        own: float | None = getattr(self.capacity.per_replica, pool, None)
        return own if own is not None else target.requests_per_second

    @property
    def bundled_policy(self) -> str | None:
        """Name of the bundled actor in use; None where the actor comes from a ConfigMap or a file."""
        source = self.policy
        if source.config_map is not None or source.path is not None:
            return None
        # The network for services was not trained for consumers of a stream.
        return source.bundled or ("ppo" if self.signal is None else "rule")

    def per_replica_field(self, pool: str) -> str:
        """The field that says it, below `spec`."""
        if self.capacity.unit == "requests" and self.capacity.per_replica is None:
            return f"targets.{pool}.requestsPerSecond"
        return f"capacity.perReplica.{pool}"

    def backend(self, pool: str) -> str | None:
        """The Service that stands for the pool `gpu` or `cpu` in the HTTPRoute; None without route or target."""
        route, target = self.placement.http_route, self.targets.pool(pool)
        if route is None or target is None:
            return None
        return {"gpu": route.gpu_backend, "cpu": route.cpu_backend}[pool] or target.object_name
