"""The status of an RLScalingBudget: the operator's grants."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rlscaler_core.api.base import Count, Reported, Text, Time, Word
from rlscaler_core.api.budget_members import MAP_BY_NAME, RESOURCES
from rlscaler_core.api.status import MAP_BY_TYPE, Condition
from rlscaler_core.api.status_memory import OperatorStatus

SHOWN = 1000
"""Most policies in `status.members`."""

OF_ONE = ("amount", "nodes", "counted_at", "granted", "idle", "borrowed")
"""The fields of `ResourceStatus` that stand in `BudgetStatus` itself where a spec states one resource in short form."""


class MemberStatus(Reported):
    """One policy that shares the budget."""

    namespace: Word
    """Namespace of the policy."""
    policy: Word
    """Name of the policy."""
    member: Word
    """The entry of `spec.members` that selects it."""
    asked: Count | None = None
    """Replicas that it asks for; absent where that is not known."""
    granted: Count
    """Replicas that it may have."""
    borrowed: Count
    """Those of them that are beyond its guarantee."""
    running: Count
    """Replicas that run or were ordered."""
    unguaranteed: bool | None = None
    """True where it goes without the guarantee of its entry, since all guarantees together exceed the amount."""
    starved_seconds: Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})]
    """Seconds for which it was granted less than it asked for."""
    reason: Word
    """Why it got no more: `All` that it asked for, its `Ceiling`, the whole `Amount`, `TooFew` for all guarantees,
    `Returning` (a loan is on its way back), another's `Guarantee`, or the others' `Share`."""
    resource: Word | None = None
    """The resource of which there is no more for it; absent where it got all that it asked for."""
    dominant_resource: Word | None = None
    """The resource of whose amount it is granted the largest part."""
    dominant_share: Annotated[float, Field(ge=0, le=1)] | None = None
    """That part of its amount; `MaxMinFair` compares members by it, over their weights."""
    because: Word | None = None
    """Whose guarantee it is, as namespace/name."""
    would_be_granted: Count | None = None
    """Replicas that it would be granted if it acted; absent where it acts, and where its request is not known."""


class ResourceStatus(Reported):
    """One resource of several, and the granted part of it."""

    name: Word
    """Name of the resource."""
    amount: Annotated[float, Field(ge=0)] | None = None
    """Units that are shared."""
    nodes: Count | None = None
    """Nodes that they were counted on, with `amountFrom`."""
    counted_at: Time | None = None
    """When they were counted last, where that is not possible at the moment."""
    granted: Annotated[float, Field(ge=0)] | None = None
    """Units that are granted."""
    idle: Annotated[float, Field(ge=0)] | None = None
    """Units of the amount that are granted to no member."""
    borrowed: Annotated[float, Field(ge=0)] | None = None
    """Units that members have beyond their guarantees."""


class BudgetStatus(Reported):
    """Grants of the operator."""

    observed_generation: Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})] | None = None
    """Generation of the spec that was shared by."""
    summary: Text | None = None
    """Units granted of the amount of each resource, and those of them beyond guarantees, such as `nvidia.com/gpu 14/16
    (5 borrowed), cpu 96/128`."""
    resources: list[ResourceStatus] = Field(default_factory=list, max_length=RESOURCES, json_schema_extra=MAP_BY_NAME)
    """With `spec.resources`: amount and granted part of each resource. Without it the fields of the one resource stand
    below."""
    amount: Annotated[float, Field(ge=0)] | None = None
    """Units that are shared."""
    round: Count | None = None
    """Number of these grants, where other shards read them: it grows whenever others are written. A policy of another
    shard says by it which grants its operator has seen."""
    nodes: Count | None = None
    """Nodes that they were counted on, with `amountFrom`."""
    counted_at: Time | None = None
    """When they were counted last, where that is not possible at the moment."""
    granted: Annotated[float, Field(ge=0)] | None = None
    """Units that are granted."""
    idle: Annotated[float, Field(ge=0)] | None = None
    """Units of the amount that are granted to no member."""
    borrowed: Annotated[float, Field(ge=0)] | None = None
    """Units that members have beyond their guarantees."""
    fairness: Annotated[float, Field(ge=0, le=1)] | None = None
    """Jain's index of the dominant shares for each unit of weight, over the members that ask for any: 1 is even."""
    policies: Count | None = None
    """Number of policies that share it."""
    members: list[MemberStatus] = Field(default_factory=list, max_length=SHOWN)
    """The policies that share it, the first thousand by namespace and name."""
    operator: OperatorStatus | None = None
    """The operator that shares it: of several with different Leases the others grant nothing."""
    conditions: list[Condition] = Field(default_factory=list, max_length=8, json_schema_extra=MAP_BY_TYPE)
    """`Ready`: the budget acts on every policy that it selects. `GuaranteesKept`: the amount is enough for all of the
    guarantees that are asked for. `AmountKnown`, with `amountFrom`: it could be counted."""

    def of(self, resource: str) -> ResourceStatus | None:
        """Return the status of a resource, or that of the only one where they are not listed; None = there is none."""
        if self.resources or self.amount is None:
            return next((status for status in self.resources if status.name == resource), None)
        return ResourceStatus.model_construct(name=resource, **{name: getattr(self, name) for name in OF_ONE})
