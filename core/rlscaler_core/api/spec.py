"""What a user asks for: the spec of RLScalingPolicy v1alpha1."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rlscaler_core.api.base import Model, ObjectName, Replicas, Rule, ServiceName
from rlscaler_core.api.behavior import Behavior
from rlscaler_core.api.metrics import Metrics
from rlscaler_core.api.spec_rules import SPEC_RULES
from rlscaler_core.api.targets import Targets

Percent = Annotated[int, Field(ge=1, le=100)]


class SLO(Model):
    """The service-level objective that replicas are bought for."""

    latency_milliseconds: Annotated[int, Field(ge=1, le=600_000)]
    """Milliseconds within which a request counts as answered well."""
    objective: Annotated[float, Field(ge=50, lt=100)] = 99
    """% of the requests that should be answered within `latencyMilliseconds`: what training for this service and the
    verdicts of `promotion` go by. A model decides for the objective that it was trained for: 99 the bundled one."""
    percentile: Annotated[float, Field(ge=50, lt=100)] = 95
    """Percentile of the latency that `status.latency` shows. Decisions go by the 95th whatever is shown."""


class ConfigMapKey(Model):
    """One key of a ConfigMap in the policy's namespace."""

    name: ObjectName
    """Name of the ConfigMap."""
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
    """Key that holds the manifest; the ONNX graph lies in `binaryData` beside it and is found by the digest that the
    manifest names, as `rlscaler publish` writes them."""


class PolicySource(Model):
    """Where the actor comes from; `bundled: ppo` where nothing is set."""

    bundled: Literal["ppo", "rule"] | None = None
    """An actor that comes with the operator: `ppo`, the trained network, or `rule`, the forecast rule without a
    network; default where neither `configMap` nor `path` is set: `ppo`."""
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

    @property
    def bundled_name(self) -> str | None:
        """The bundled actor in use; None where the actor comes from a ConfigMap or a file."""
        return self.bundled or ("ppo" if self.config_map is None and self.path is None else None)


class HTTPRouteRef(Model):
    """The Gateway API HTTPRoute (v1) whose backend weights follow the placement."""

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
    """The HTTPRoute whose backend weights follow the placement; default: none, the weights are only published in
    the status and in the annotation `rlscaler.io/traffic-weights`."""


class PoolReplicas(Model):
    """A number of replicas for each pool."""

    gpu: Replicas | None = None
    """Replicas of the GPU Deployment."""
    cpu: Replicas | None = None
    """Replicas of the CPU Deployment."""


class Fallback(Model):
    """What happens when a required signal stays unknown or the actor fails."""

    behavior: Literal["currentReplicas", "currentReplicasIfHigher", "static", "hpaFormula"] = "currentReplicas"
    """`currentReplicas` keeps them; `currentReplicasIfHigher` keeps them or raises them to `replicas`; `static` sets
    `replicas`; `hpaFormula` scales by utilization as a HorizontalPodAutoscaler would, where utilization is known."""
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
    target_utilization: TargetUtilization = TargetUtilization()
    """Utilization that the reactive floor and the fallback `hpaFormula` aim at."""
    budget_per_hour: Annotated[float, Field(gt=0, le=1_000_000_000)] | None = None
    """The most that both pools may cost, in currency units per hour; `minReplicas` wins over it; default: no limit."""
    pending_seconds: Annotated[int, Field(ge=1, le=7200)] | None = None
    """Seconds that pods may be pending before their pool grows no further and the other pool takes the need;
    default: twice the cold start."""


class Promotion(Model):
    """What a policy must show in Shadow before Auto acts."""

    require: Literal["None", "Evidence"] = "None"
    """`None`: Auto acts at once; `Evidence`: Auto acts once Shadow was measurably better than what ran before."""
    min_days: Annotated[int, Field(ge=1, le=90)] = 7
    """Days in Shadow that the evidence must cover."""


class Spec(Model):
    """How the replicas of one service are scaled."""

    mode: Literal["Off", "Shadow", "Auto"] = "Shadow"
    """`Shadow` decides, scores and records but changes nothing; `Auto` acts; `"Off"` does neither (quote it: YAML reads
    a bare Off as false)."""
    interval_seconds: Annotated[int, Field(ge=10, le=300)] = 30
    """Seconds between two actions of the actor."""
    sense_seconds: Annotated[int, Field(ge=1, le=60)] = 5
    """Seconds between two looks at the metrics; in between actions only the reactive floor and the traffic weights
    move."""
    targets: Targets
    """The GPU and the CPU Deployment; one of the two may be left out."""
    slo: SLO
    """The service-level objective that replicas are bought for."""
    policy: PolicySource = PolicySource()
    """Where the actor comes from; default: the bundled `ppo`."""
    metrics: Metrics = Metrics()
    """Where the measurements come from and when they are too old to act on."""
    placement: PlacementTarget = PlacementTarget()
    """Where the traffic split is applied."""
    behavior: Behavior | None = None
    """Limits on how fast replicas may change, in the fields of HorizontalPodAutoscaler v2; default: no window and no
    limit beyond two steps an action."""
    fallback: Fallback = Fallback()
    """What happens when a required signal stays unknown or the actor fails."""
    guards: Guards = Guards()
    """Limits around the actor that hold whatever it asks for."""
    promotion: Promotion = Promotion()
    """What the policy must show in Shadow before Auto acts."""
    restore_on_delete: bool = False
    """Put replicas and traffic weights back to what they were before the first change when the policy is deleted."""

    rules = SPEC_RULES

    def backend(self, pool: str) -> str | None:
        """The Service that stands for the pool `gpu` or `cpu` in the HTTPRoute; None without route or target."""
        route, target = self.placement.http_route, self.targets.pool(pool)
        if route is None or target is None:
            return None
        return {"gpu": route.gpu_backend, "cpu": route.cpu_backend}[pool] or target.deployment
