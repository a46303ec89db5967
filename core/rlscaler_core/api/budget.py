"""RLScalingBudget: an amount of one resource that many policies share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from rlscaler_core.api.base import Label, LabelName, Model, ObjectName, Reported, Rule, Time, Word
from rlscaler_core.api.exceptions import InvalidBudgetError
from rlscaler_core.api.policy import Metadata, plain
from rlscaler_core.api.status import MAP_BY_TYPE, Condition, Count

BUDGET_KIND = "RLScalingBudget"
BUDGET_PLURAL = "rlscalingbudgets"

MEMBERS = 100
"""Most entries in `spec.members`."""

SHOWN = 1000
"""Most policies in `status.members`."""

Units = Annotated[float, Field(ge=0, le=1_000_000_000)]
"""An amount of the resource."""


class Lending(Model):
    """What happens to a guaranteed share while its member does not ask for it."""

    enabled: bool = True
    """Others may borrow it; without that it stays free."""
    reclaim_intervals: Annotated[int, Field(ge=1, le=100)] = 1
    """Intervals within which it is given back once its member asks for it; 1 is at once."""


class MemberShare(Model):
    """The share of the policies that one entry selects; each of them has it."""

    name: Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    """Name of the entry, unique in the budget."""
    namespace: ObjectName | None = None
    """Namespace of the policies; default: any."""
    match_labels: dict[LabelName, Label] = Field(default_factory=dict, max_length=16)
    """Labels that a policy must have; default: any. Of several entries that select a policy the first one counts."""
    units_per_replica: Annotated[float, Field(gt=0, le=1_000_000)] = 1.0
    """How much of the resource one replica of the pool takes, such as 2 where its pods ask for two GPUs."""
    guaranteed: Units = 0.0
    """What each policy has whenever it asks for it."""
    ceiling: Units | None = None
    """What each policy has at most; default: the whole amount."""
    weight: Annotated[float, Field(gt=0, le=1_000_000)] = 1.0
    """Share of what is not guaranteed, against the other members' weights."""
    priority: Annotated[int, Field(ge=-1000, le=1000, json_schema_extra={"format": "int32"})] = 0
    """For the arbiter `Priority`: the higher goes first."""

    rules = (
        Rule(
            cel="!has(self.ceiling) || double(self.ceiling) >= double(self.guaranteed)",
            holds=lambda share: share.ceiling is None or share.ceiling >= share.guaranteed,
            message="ceiling is below guaranteed: raise ceiling or lower guaranteed",
            field="ceiling",
        ),
    )

    def selects(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Say whether a policy of this namespace and with these labels is a member."""
        there = all(labels.get(name) == value for name, value in self.match_labels.items())
        return there and self.namespace in (None, namespace)


class NodeSelection(Model):
    """Nodes of the cluster."""

    match_labels: Annotated[dict[LabelName, Label], Field(min_length=1, max_length=16)]
    """Labels that a node must have."""


class AmountFrom(Model):
    """Where the amount is counted."""

    nodes: NodeSelection
    """What these nodes have of `resource` for pods, less what pods hold there that are of no member. A node counts
    while it is Ready; of one that takes no new pods, what members hold there."""


class BudgetSpec(Model):
    """How much there is, and who shares it how."""

    resource: Annotated[str, Field(min_length=1, max_length=316)] = "nvidia.com/gpu"
    """What is shared; a replica takes `unitsPerReplica` of it. With `amountFrom` it is a resource of nodes, else a name
    for people."""
    amount: Units | None = None
    """How much of it all members have together."""
    amount_from: AmountFrom | None = None
    """Count that instead of stating it."""
    pool: Literal["gpu", "cpu"] = "gpu"
    """The pool of each member whose replicas take it."""
    arbiter: Literal["MaxMinFair", "Priority"] = "MaxMinFair"
    """How what is not guaranteed is shared: `MaxMinFair` gives the next replica to the member that has least for its
    weight; `Priority` serves higher priorities first, and equal ones by weight."""
    interval_seconds: Annotated[int, Field(ge=5, le=300)] = 15
    """Seconds of one interval of `lending.reclaimIntervals`; grants follow what is asked for at every tick."""
    lending: Lending = Lending()
    """What happens to a guaranteed share while its member does not ask for it."""
    members: Annotated[
        list[MemberShare],
        Field(
            min_length=1,
            max_length=MEMBERS,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ]
    """Who shares it."""

    rules = (
        Rule(
            cel="has(self.amount) != has(self.amountFrom)",
            holds=lambda spec: (spec.amount is None) != (spec.amount_from is None),
            message="name either amount or amountFrom, and not both",
            field="amount",
        ),
        Rule(
            cel="!has(self.amount) || self.members.map(m, double(m.guaranteed)).sum() <= double(self.amount)",
            holds=lambda spec: spec.amount is None or sum(share.guaranteed for share in spec.members) <= spec.amount,
            message="the guarantees of members are more than amount: lower members[].guaranteed or raise amount",
            field="members",
        ),
    )


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
    starved_seconds: Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})]
    """Seconds for which it was granted less than it asked for."""
    reason: Word
    """Why it got no more: `All` that it asked for, its `Ceiling`, the whole `Amount`, `TooFew` for all guarantees,
    `Returning` (a loan is on its way back), another's `Guarantee`, or the others' `Share`."""
    because: Word | None = None
    """Whose guarantee it is, as namespace/name."""
    would_be_granted: Count | None = None
    """Replicas that it would be granted if it acted; absent where it acts, and where it is not known what it would ask
    for."""


class BudgetStatus(Reported):
    """What the operator granted."""

    observed_generation: Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})] | None = None
    """Generation of the spec that was shared by."""
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
    """Jain's index of the units granted for each unit of weight, over the members that ask for any: 1 is even."""
    policies: Count | None = None
    """Number of policies that share it."""
    members: list[MemberStatus] = Field(default_factory=list, max_length=SHOWN)
    """The policies that share it, the first thousand by namespace and name."""
    conditions: list[Condition] = Field(default_factory=list, max_length=8, json_schema_extra=MAP_BY_TYPE)
    """`Ready`: the budget acts on every policy that it selects. `GuaranteesKept`: the amount is enough for all of the
    guarantees that are asked for. `AmountKnown`, with `amountFrom`: it could be counted."""


class RLScalingBudget(Model):
    """An amount of one resource, such as GPUs, that many policies share."""

    api_version: Literal["rlscaler.io/v1alpha1"] = "rlscaler.io/v1alpha1"
    """Group and version of this representation of the object."""
    kind: Literal["RLScalingBudget"] = "RLScalingBudget"
    """Kind of the object."""
    metadata: Metadata = Metadata()
    """Standard object's metadata."""
    spec: BudgetSpec
    """How much there is, and who shares it how."""
    status: BudgetStatus = BudgetStatus()
    """What the operator granted; written by the operator only."""


def parse_budget(body: Mapping[str, Any]) -> RLScalingBudget:
    """Parse an object as the API server returns it; a status that cannot be read counts as none.

    Raises:
        InvalidBudgetError: with the path and the remedy of every wrong field.
    """
    values: dict[str, Any] = plain(body)
    try:
        BudgetStatus.model_validate(values.get("status") or {}, by_alias=True, by_name=False)
    except ValidationError:
        values["status"] = {}
    try:
        return RLScalingBudget.model_validate(values, by_alias=True, by_name=False)
    except ValidationError as error:
        texts = [f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}" for detail in error.errors()]
        raise InvalidBudgetError("; ".join(texts)) from error
