"""The status of RLScalingPolicy v1alpha1.

A field is absent where its value is not known; unknown is never written as 0.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.config import JsonDict

from rlscaler_core.api.base import Count, Reported, Text, Time, Word
from rlscaler_core.api.headroom import HeadroomStatus
from rlscaler_core.api.new_pods import NewPodSizes
from rlscaler_core.api.promotion import PromotionStatus
from rlscaler_core.api.status_memory import (
    BudgetMembership,
    Learned,
    OperatorStatus,
    Originals,
    PodSizes,
    PoolCounts,
    Stabilization,
)
from rlscaler_core.decision.units import SignalName, UnitName

MAP_BY_TYPE: JsonDict = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}

HISTORY = 5
"""Decisions kept in `status.history`."""

PlacementName = Literal["PreferGPU", "Balanced", "PreferCPU"]


class Condition(Reported):
    """One aspect of the policy's state, as `metav1.Condition`."""

    type: Annotated[str, Field(max_length=316)]
    """Name of the aspect, such as `Ready`, `Active`, `Fallback`, `Paused` or `Conflicted`."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")]
    """Why, in one CamelCase word."""
    message: Text = ""
    """Reason for people: the object, the field and the remedy."""
    last_transition_time: Time
    """When `status` last changed."""
    observed_generation: Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})] | None = None
    """Generation of the spec that this was found for."""


class TargetStatus(Reported):
    """Replicas of one Deployment."""

    deployment: Word
    """Name of the Deployment."""
    current: Count | None = None
    """`spec.replicas` of the Deployment as last read."""
    ready: Count | None = None
    """Replicas that are ready."""
    starting: Count | None = None
    """Replicas that exist and are not ready yet."""
    desired: Count | None = None
    """Replicas last decided upon; in Shadow those that would have been asked for."""
    summary: Word | None = None
    """`ready/desired`, for the table of `kubectl get`."""


class TargetsStatus(Reported):
    """Replicas of both Deployments."""

    gpu: TargetStatus | None = None
    """The GPU Deployment."""
    cpu: TargetStatus | None = None
    """The CPU Deployment."""


class Signal(Reported):
    """One number of the observation."""

    value: float | None = None
    """In the unit that the field names; absent while unknown or not applicable."""
    state: Literal["Known", "NotApplicable", "Unknown"]
    """`Known`; `NotApplicable` (such as the latency while nothing arrives); `Unknown` (stale, absent, not a number)."""
    age_seconds: Annotated[float, Field(ge=0)] | None = None
    """Age of the newest raw sample in seconds; absent when there never was one."""


class ObservationStatus(Reported):
    """The ten numbers that the last decision was taken on."""

    time: Time
    """When they were observed."""
    cpu_utilization: Signal | None = None
    """% of the CPU requests of the CPU pool's ready replicas."""
    headroom: Signal | None = None
    """Capacity that is planned above the need of the load, mean of the pools in %."""
    gpu_utilization: Signal | None = None
    """% of the GPU pool's ready replicas, mean."""
    p95_latency: Signal | None = None
    """95th percentile of the latency in milliseconds."""
    throughput: Signal | None = None
    """The load that arrives, rejected requests included, in % of the capacity of both pools at `maxReplicas`."""
    gpu_replicas: Signal | None = None
    """`spec.replicas` of the GPU Deployment."""
    cpu_replicas: Signal | None = None
    """`spec.replicas` of the CPU Deployment."""
    load_trend: Signal | None = None
    """Forecast of the arrivals against now, -1 to 1."""
    near_misses: Signal | None = None
    """Mean of the last half hour of how near the 95th percentile came to the objective: 0 below half of it, 1 at it."""
    load_variance: Signal | None = None
    """Coefficient of variation of the arrivals over the last minute, 0 to 1; only of consumers of a stream."""
    forecast_utilization: Signal | None = None
    """Constant on a live cluster."""


class Action(Reported):
    """The actor's action, in steps; absent placement = no actor ran."""

    gpu: Annotated[int, Field(ge=-2, le=2)]
    """Steps by which the GPU replicas should move."""
    cpu: Annotated[int, Field(ge=-2, le=2)]
    """Steps by which the CPU replicas should move."""
    placement: PlacementName | None = None
    """Pool that the traffic should prefer."""


class GuardStep(Reported):
    """Desired replicas after one guard."""

    name: Word
    """Name of the stage, in the order in which they run."""
    after: PoolCounts
    """Desired replicas when the stage was through."""


class DecisionStatus(Reported):
    """One decision in short."""

    id: Word
    """Identifier of the decision's record in the audit log."""
    time: Time
    """When it was taken."""
    action: Action | None = None
    """The actor's action; absent when no actor ran."""
    base: PoolCounts
    """Replicas that the action was added to."""
    desired: PoolCounts
    """Replicas decided upon."""
    applied: bool
    """Whether the Deployments were changed accordingly."""
    reasons: list[Word] = Field(default_factory=list, max_length=16)
    """Guards and circumstances that shaped the result."""


class LastDecision(DecisionStatus):
    """The newest decision, with the change of each guard."""

    guards: list[GuardStep] = Field(default_factory=list, max_length=16)
    """Desired replicas after each guard."""
    result: Text | None = None
    """Result of the write."""


class Weights(Reported):
    """Shares of the traffic, per mille."""

    gpu: Annotated[int, Field(ge=0, le=1000)]
    """Share of the GPU pool."""
    cpu: Annotated[int, Field(ge=0, le=1000)]
    """Share of the CPU pool."""


class Latency(Reported):
    """The latency that is displayed, over the rate window."""

    percentile: Annotated[float, Field(ge=0, le=100)]
    """`slo.percentile`."""
    milliseconds: Annotated[float, Field(ge=0)] | None = None
    """Absent while it is not known; with `slo.timePerOutputTokenMilliseconds` the worse of both latencies, in
    milliseconds of `slo.latencyMilliseconds`."""


class SLOStatus(Reported):
    """The error budget: the late requests that `slo.objective` allows over about 30 days, and how many there were."""

    objective: Annotated[float, Field(ge=0, le=100)]
    """`slo.objective`, which the budget is of."""
    budget_left: float | None = None
    """% of the budget that is left, below 0 where it is overspent; absent where the objective allows fewer than five
    late requests of those counted, and where none was counted for ten minutes though some may arrive: see `time`."""
    late_price: Annotated[float, Field(ge=0)] | None = None
    """Replicas of the dearer pool that one percent of late requests is worth now; absent for a model that does not go
    by it."""
    price_factor: Annotated[float, Field(gt=0)]
    """Factor of the error budget on the price of lateness: 1 = the price as it is set."""
    requests: Annotated[float, Field(ge=0)]
    """Requests counted; after 15 days one counts for a third."""
    late: Annotated[float, Field(ge=0)]
    """Those of them that were not answered within `latencyMilliseconds`, or missed `timePerOutputTokenMilliseconds`."""
    latency_milliseconds: Annotated[float, Field(gt=0)]
    """`slo.latencyMilliseconds` when they were counted; after an edit counting begins anew."""
    signal: SignalName = "endToEnd"
    """`slo.signal` when they were counted; after an edit counting begins anew."""
    time_per_output_token_milliseconds: Annotated[int, Field(gt=0)] | None = None
    """`slo.timePerOutputTokenMilliseconds` when they were counted; after an edit counting begins anew."""
    time: Time
    """When the newest of them were counted."""


class ModelStatus(Reported):
    """The actor that decides."""

    name: Word
    """As its manifest says."""
    digest: Annotated[str, Field(max_length=64)] | None = None
    """sha256 of the ONNX graph; absent where there is none."""


class PlacementStatus(Reported):
    """The traffic split in force."""

    preference: PlacementName
    """Pool that the traffic prefers."""
    factor: Annotated[float, Field(ge=1, le=4)] | None = None
    """Traffic that it gets for each unit of its capacity, where the other gets 1; absent: 4."""
    weights: Weights
    """Shares of the traffic, per mille."""
    http_route: Word | None = None
    """The HTTPRoute that carries the weights; absent when they are only published here."""


class ByPool(Reported):
    """A number of each pool."""

    gpu: Annotated[float, Field(ge=0)] | None = None
    """Number of the GPU pool."""
    cpu: Annotated[float, Field(ge=0)] | None = None
    """Number of the CPU pool."""


class CapacityStatus(Reported):
    """Capacity of one replica that decisions use."""

    unit: UnitName
    """`capacity.unit`."""
    gpu: Annotated[float, Field(gt=0)] | None = None
    """Believed capacity of a replica of the GPU pool; absent while it is not known."""
    cpu: Annotated[float, Field(gt=0)] | None = None
    """Believed capacity of a replica of the CPU pool; absent while it is not known."""
    declared: ByPool | None = None
    """The capacity in the spec that the belief began from; absent where the spec has none or is trusted."""
    uncertain_percent: ByPool | None = None
    """Standard deviation of the belief, in percent of it; absent where the spec is trusted."""


class Status(Reported):
    """Observations and actions of the operator; written by the operator only."""

    observed_generation: Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})] | None = None
    """Generation of the spec that this status belongs to."""
    conditions: list[Condition] = Field(default_factory=list, max_length=16, json_schema_extra=MAP_BY_TYPE)
    """`Ready` (the policy can decide), `Active` (it changes the Deployments), `Fallback`, `Paused`, `Conflicted`."""
    targets: TargetsStatus | None = None
    """Replicas of both Deployments."""
    cost_per_hour: Annotated[float, Field(ge=0)] | None = None
    """Cost of the replicas that exist now, in currency units per hour."""
    observation: ObservationStatus | None = None
    """Observations of the last decision."""
    latency: Latency | None = None
    """The latency at `slo.percentile`."""
    model: ModelStatus | None = None
    """The actor that decides; an older one where the condition `ModelOutdated` says so."""
    last_decision: LastDecision | None = None
    """The newest decision, with the change of each guard."""
    history: list[DecisionStatus] = Field(default_factory=list, max_length=HISTORY)
    """The last decisions that changed something, newest first."""
    capacity: CapacityStatus | None = None
    """Unit of the load, and capacity of one replica in it."""
    headroom: HeadroomStatus | None = None
    """Replicas above the plan of the forecast rule; absent for a policy whose actor moves none."""
    learned: Learned | None = None
    """Learned values of the pools, for fields that the spec leaves open."""
    promotion: PromotionStatus | None = None
    """Progress of the policy from Shadow to Auto."""
    placement: PlacementStatus | None = None
    """The traffic split in force."""
    originals: Originals | None = None
    """Replicas and weights before the first change."""
    forecaster: Annotated[str, Field(max_length=16_384)] | None = None
    """Memory of the forecaster, in base64; it outlives the operator, and is renewed every 15 minutes."""
    pod_sizes: PodSizes | None = None
    """Recommended requests of the pods, where the spec has a range for them."""
    new_pods: NewPodSizes | None = None
    """Requests of new pods; they are in force where the administrator has allowed it."""
    slo: SLOStatus | None = None
    """Rest of the error budget, and its factor on the price of a late request; renewed every 15 minutes."""
    stabilization: Stabilization | None = None
    """Memory of `behavior` across restarts of the operator."""
    operator: OperatorStatus | None = None
    """The operator that acts: of several with different Leases the others change nothing."""
    budget: BudgetMembership | None = None
    """Request to an RLScalingBudget that another shard shares; absent where one operator does both."""
