"""The parts of a policy's status that another operator goes on from: values learned, originals, histories, requests."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rlscaler_core.api.base import Count, Reported, Time, Word
from rlscaler_core.decision.units import UnitName

EXPIRIES = 32
"""Entries kept per pool in `status.stabilization`."""


class PoolCounts(Reported):
    """One whole number for each pool; absent for a pool without target."""

    gpu: Count | None = None
    """Number of the GPU pool."""
    cpu: Count | None = None
    """Number of the CPU pool."""


class LearnedPool(Reported):
    """Learned values of one pool, for fields that the spec leaves open."""

    requests_per_second: Annotated[float, Field(gt=0)] | None = None
    """Requests per second that one replica answers, for the unit `requests`: lower confidence bound."""
    tokens_per_second: Annotated[float, Field(gt=0)] | None = None
    """The same in tokens, for the unit `tokens`."""
    concurrency: Annotated[float, Field(gt=0)] | None = None
    """Requests that one replica serves at the same time, for the unit `concurrency`."""
    cold_start_seconds: Annotated[float, Field(gt=0)] | None = None
    """Seconds from a pod's creation until it is ready."""
    samples: Annotated[int, Field(ge=0)] | None = None
    """Observations behind it."""

    def carried(self, unit: UnitName) -> float | None:
        """Return the capacity of a replica, in a unit; None where it was not learned."""
        capacity: float | None = getattr(self, LEARNED_IN[unit])
        return capacity


LEARNED_IN: dict[UnitName, str] = {
    "requests": "requests_per_second",
    "tokens": "tokens_per_second",
    "concurrency": "concurrency",
}
"""Where `LearnedPool` has the capacity of each unit."""


class Learned(Reported):
    """Learned values of both pools."""

    gpu: LearnedPool | None = None
    """About the GPU pool."""
    cpu: LearnedPool | None = None
    """About the CPU pool."""


class PodSizeStatus(Reported):
    """Recommended requests of each pod of a pool."""

    cpu: Word | None = None
    """CPU request, such as `500m`; absent where it is not sized or too little was seen."""
    memory: Word | None = None
    """Memory request, such as `768Mi`."""


class PodSizes(Reported):
    """Recommended requests of the pods, from their usage."""

    gpu: PodSizeStatus | None = None
    """The pods of the GPU pool."""
    cpu: PodSizeStatus | None = None
    """The pods of the CPU pool."""
    seen: Annotated[str, Field(max_length=16_384)] | None = None
    """Memory of the pods' usage, in base64; it outlives the operator, and is renewed every 15 minutes."""


class Originals(Reported):
    """Replicas and weights before the first change, for `restoreOnDelete`."""

    time: Time
    """When it was recorded."""
    replicas: PoolCounts
    """`spec.replicas` of the Deployments."""
    weights: PoolCounts | None = None
    """Weights of the HTTPRoute's backends as found."""


class Expiry(Reported):
    """A past recommendation or change that still counts for `behavior`."""

    value: Count
    """Replicas recommended, or replicas added (negative: removed)."""
    expires: Time
    """When it stops counting."""


class StabilizationPool(Reported):
    """Memory of `behavior` about one pool."""

    recommendations: list[Expiry] = Field(default_factory=list, max_length=EXPIRIES)
    """Recommendations within the stabilization windows."""
    changes: list[Expiry] = Field(default_factory=list, max_length=EXPIRIES)
    """Changes within the periods of the policies."""
    floor: Count | None = None
    """Replicas that the reactive floor asked for and that have not been ready yet."""


class Stabilization(Reported):
    """Memory of `behavior` across restarts of the operator."""

    gpu: StabilizationPool | None = None
    """About the GPU pool."""
    cpu: StabilizationPool | None = None
    """About the CPU pool."""
    budget_per_hour: Annotated[float, Field(ge=0)] | None = None
    """`guards.budgetPerHour` that the running replicas were last within; only a lower one lowers them."""


class BudgetMembership(Reported):
    """Report on this policy from the operator that acts for it to the one that shares an RLScalingBudget."""

    name: Word
    """The RLScalingBudget."""
    asked: Count | None = None
    """Replicas that the policy asks for; absent where that is not known."""
    held: Count
    """Replicas that run, were ordered or may be ordered by the last grant that was seen: so many it may have still."""
    round: Count | None = None
    """`status.round` of the budget when its grant was read last; absent where none was read yet."""
    acts: bool
    """Whether the policy keeps to its grant; one that does not act takes the replicas that run."""


class OperatorStatus(Reported):
    """The operator that acts for the policy, and another one that holds."""

    lease: Word
    """Namespace and name of the Lease of the operator that acts."""
    answered: Count | None = None
    """Number of the question that it has answered last."""
    asked_by: Word | None = None
    """Lease of another operator, which changes nothing and asks whether this one still acts."""
    asked: Count | None = None
    """Number of its last question."""
