"""The two Deployments of a policy: `spec.targets`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rlscaler_core.api.base import Model, ObjectName, Rule

MaxReplicas = Annotated[int, Field(ge=1, le=10_000, json_schema_extra={"format": "int32"})]
MinReplicas = Annotated[int, Field(ge=0, le=10_000, json_schema_extra={"format": "int32"})]
StepSize = Annotated[int, Field(ge=1, le=10_000, json_schema_extra={"format": "int32"})]
Cost = Annotated[float, Field(gt=0, le=1_000_000)]
Capacity = Annotated[float, Field(gt=0, le=1_000_000)]
ColdStart = Annotated[float, Field(gt=0, le=3600)]


class Target(Model):
    """A Deployment and the range in which its replicas may move."""

    kind: Literal["Deployment"] = "Deployment"
    """Kind of the scaled object; only `Deployment` so far."""
    deployment: ObjectName
    """Name of the Deployment in the policy's namespace."""
    min_replicas: MinReplicas = 1
    """The fewest replicas; 0 only where the other pool keeps at least 1."""
    max_replicas: MaxReplicas
    """The most replicas."""
    step_size: StepSize | None = None
    """Replicas that one step of an action adds or removes (an action is at most two steps); default:
    `maxReplicas` / 10, rounded up."""
    requests_per_second: Capacity | None = None
    """Requests per second that one ready replica can answer; default: learned while utilization is 50 % or more.
    Set it: until it is known, nothing is scaled down and the reactive floor goes by utilization."""
    cold_start_seconds: ColdStart | None = None
    """Seconds from the creation of a pod until it is ready; default: learned from the pods that were seen to
    start."""

    rules = (
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
    def step(self) -> int:
        """Replicas an action step: `stepSize`, or a tenth of `maxReplicas` rounded up."""
        return self.step_size if self.step_size is not None else -(-self.max_replicas // 10)


class GPUTarget(Target):
    """The Deployment whose pods serve on GPUs."""

    cost_per_hour: Cost = 2.5
    """Cost of one replica, in currency units per hour."""


class CPUTarget(Target):
    """The Deployment whose pods serve on CPUs."""

    cost_per_hour: Cost = 0.625
    """Cost of one replica, in currency units per hour."""


class Targets(Model):
    """The Deployments that serve the same requests; one of the two may be left out."""

    gpu: GPUTarget | None = None
    """The Deployment whose pods serve on GPUs."""
    cpu: CPUTarget | None = None
    """The Deployment whose pods serve on CPUs."""

    rules = (
        Rule(
            cel="has(self.gpu) || has(self.cpu)",
            holds=lambda targets: targets.gpu is not None or targets.cpu is not None,
            message="at least one target is needed: set gpu, cpu or both",
            field="",
        ),
        Rule(
            cel="!has(self.gpu) || !has(self.cpu) || self.gpu.deployment != self.cpu.deployment",
            holds=lambda targets: (
                targets.gpu is None or targets.cpu is None or targets.gpu.deployment != targets.cpu.deployment
            ),
            message="gpu.deployment and cpu.deployment name the same Deployment: name two, or leave one target out",
            field="cpu.deployment",
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
