"""The two objects that a policy scales: `spec.targets`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rlscaler_core.api.base import Model, ObjectName, Rule
from rlscaler_core.api.resources import PodResources

MaxReplicas = Annotated[int, Field(ge=1, le=10_000, json_schema_extra={"format": "int32"})]
MinReplicas = Annotated[int, Field(ge=0, le=10_000, json_schema_extra={"format": "int32"})]
StepSize = Annotated[int, Field(ge=1, le=10_000, json_schema_extra={"format": "int32"})]
Cost = Annotated[float, Field(gt=0, le=1_000_000)]
Capacity = Annotated[float, Field(gt=0, le=1_000_000)]
LONGEST_COLD_START = 3600
"""Longest cold start of a pod, in seconds."""

ColdStart = Annotated[float, Field(gt=0, le=LONGEST_COLD_START)]
StartCost = Annotated[float, Field(ge=0, le=86_400)]
Kind = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[A-Z][A-Za-z0-9]*$")]
ApiVersion = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^([-a-z0-9.]+/)?v[a-z0-9]+$")]

DEPLOYMENT = ("apps/v1", "Deployment")
"""API version and kind of the objects that `deployment` names."""


def reference(api_version: str, kind: str, name: str) -> str:
    """Return a reference that is unique among objects of all kinds: a Deployment's name, `kind.group/name` of others.

    kubectl takes it as a resource, but for a Deployment, which is `deployment/name` there.
    """
    group = api_version.rpartition("/")[0]
    if (group, kind.lower()) == ("apps", "deployment"):
        return name
    return f"{kind.lower()}{'.' if group else ''}{group}/{name}"


class Target(Model):
    """An object with replicas, and the range in which they may move."""

    kind: Kind = "Deployment"
    """Kind of the scaled object, such as `StatefulSet` or `Rollout`: any that has a scale subresource and that the
    operator's administrator has enabled (`targetKinds` of the chart)."""
    api_version: ApiVersion = "apps/v1"
    """API version of the kind, such as `argoproj.io/v1alpha1`."""
    deployment: ObjectName | None = None
    """Name of the Deployment in the policy's namespace; either this or `name`."""
    name: ObjectName | None = None
    """Name of the object of `kind` in the policy's namespace; either this or `deployment`."""
    min_replicas: MinReplicas = 1
    """The fewest replicas; 0 only where the other pool keeps at least 1."""
    max_replicas: MaxReplicas
    """The most replicas."""
    step_size: StepSize | None = None
    """Replicas that one step of an action adds or removes (an action is at most two steps); default:
    `maxReplicas` / 10, rounded up."""
    requests_per_second: Capacity | None = None
    """Requests per second that one ready replica can answer, as a first guess that measurements correct (see
    `capacity.trust`); default: measured under load, and until then nothing is scaled down and the reactive floor goes
    by utilization. It is `perReplica` of `capacity: {unit: requests}`; of the two one may be set."""
    cold_start_seconds: ColdStart | None = None
    """Seconds from the creation of a pod until it is ready; default: learned from the pods that were seen to
    start."""
    start_cost_seconds: StartCost | None = None
    """Seconds of its price that a start costs beside the time that the pod is there: the pull of the image before it,
    the drain after it. The rule holds a replica whose load may return for as long as that is cheaper than a new start.
    0 takes starts for free; default: 30 and two cold starts."""
    resources: PodResources | None = None
    """Sizing of its pods beside their number; default: none."""

    rules = (
        Rule(
            cel="has(self.deployment) != has(self.name)",
            holds=lambda target: (target.deployment is None) != (target.name is None),
            message="a target is named once: set deployment, or kind, apiVersion and name",
            field="",
        ),
        Rule(
            cel="!has(self.deployment) || (self.kind == 'Deployment' && self.apiVersion == 'apps/v1')",
            holds=lambda target: target.deployment is None or (target.api_version, target.kind) == DEPLOYMENT,
            message="deployment names a Deployment: for an object of another kind set name in its place",
            field="deployment",
        ),
        Rule(
            cel="self.minReplicas <= self.maxReplicas",
            holds=lambda target: target.min_replicas <= target.max_replicas,
            message="minReplicas must not exceed maxReplicas: lower minReplicas or raise maxReplicas",
            field="minReplicas",
        ),
        Rule(
            cel="!has(self.stepSize) || self.stepSize <= self.maxReplicas",
            holds=lambda target: target.step_size is None or target.step_size <= target.max_replicas,
            message="stepSize must not exceed maxReplicas: lower stepSize, or remove it for maxReplicas / 10",
            field="stepSize",
        ),
    )

    @property
    def object_name(self) -> str:
        """Name of the object, whatever its kind."""
        return self.deployment or self.name or ""

    @property
    def reference(self) -> str:
        """Return a reference that is unique among objects of all kinds; see the function `reference`."""
        return reference(self.api_version, self.kind, self.object_name)

    @property
    def step(self) -> int:
        """Replicas an action step: `stepSize`, or a tenth of `maxReplicas` rounded up."""
        return self.step_size if self.step_size is not None else -(-self.max_replicas // 10)


class GPUTarget(Target):
    """The object whose pods serve on GPUs, or on the dearer one of two kinds of GPUs."""

    cost_per_hour: Cost = 2.5
    """Cost of one replica, in currency units per hour."""


class CPUTarget(Target):
    """The object whose pods serve on CPUs, or on the cheaper one of two kinds of GPUs."""

    cost_per_hour: Cost = 0.625
    """Cost of one replica, in currency units per hour."""


_NAMED = (
    "self.{pool}.kind.lowerAscii() + '/' + (has(self.{pool}.deployment) ? self.{pool}.deployment : "
    "has(self.{pool}.name) ? self.{pool}.name : '')"
)
"""CEL of the reference of a target."""


class Targets(Model):
    """The objects that serve the same requests; one of the two may be left out."""

    gpu: GPUTarget | None = None
    """The object whose pods serve on GPUs, or on the dearer one of two kinds of GPUs."""
    cpu: CPUTarget | None = None
    """The object whose pods serve on CPUs, or on the cheaper one of two kinds of GPUs."""

    rules = (
        Rule(
            cel="has(self.gpu) || has(self.cpu)",
            holds=lambda targets: targets.gpu is not None or targets.cpu is not None,
            message="at least one target is needed: set gpu, cpu or both",
            field="",
        ),
        Rule(
            cel=f"!has(self.gpu) || !has(self.cpu) || {_NAMED.format(pool='gpu')} != {_NAMED.format(pool='cpu')}",
            holds=lambda targets: (
                targets.gpu is None
                or targets.cpu is None
                or (targets.gpu.kind.lower(), targets.gpu.object_name)
                != (targets.cpu.kind.lower(), targets.cpu.object_name)
            ),
            message="gpu and cpu name the same Deployment or the same object of another kind: name two, or leave one "
            "target out",
            field="cpu",
        ),
        Rule(
            cel="!has(self.gpu) || self.gpu.minReplicas >= 1 || (has(self.cpu) && self.cpu.minReplicas >= 1)",
            holds=lambda targets: _keeps_one(targets.gpu, targets.cpu),
            message="minReplicas 0 needs a minReplicas of at least 1 in the other pool: raise gpu.minReplicas or "
            "cpu.minReplicas to 1",
            field="gpu.minReplicas",
        ),
        Rule(
            cel="!has(self.cpu) || self.cpu.minReplicas >= 1 || (has(self.gpu) && self.gpu.minReplicas >= 1)",
            holds=lambda targets: _keeps_one(targets.cpu, targets.gpu),
            message="minReplicas 0 needs a minReplicas of at least 1 in the other pool: raise cpu.minReplicas or "
            "gpu.minReplicas to 1",
            field="cpu.minReplicas",
        ),
    )

    def pool(self, name: str) -> GPUTarget | CPUTarget | None:
        """The target of the pool `gpu` or `cpu`, None where it is left out."""
        return {"gpu": self.gpu, "cpu": self.cpu}[name]


def _keeps_one(target: Target | None, other: Target | None) -> bool:
    return target is None or target.min_replicas >= 1 or (other is not None and other.min_replicas >= 1)
