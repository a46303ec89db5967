"""RLScalingBudget: an amount of one resource, or of several, that many policies share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from rlscaler_core.api.base import Label, LabelName, Model, Rule
from rlscaler_core.api.budget_members import (
    MAP_BY_NAME,
    NOTHING,
    RESOURCES,
    MemberShare,
    ResourceName,
    Terms,
    Units,
    terms_of,
)
from rlscaler_core.api.budget_status import BudgetStatus
from rlscaler_core.api.exceptions import InvalidBudgetError
from rlscaler_core.api.policy import Metadata, plain

BUDGET_KIND = "RLScalingBudget"
BUDGET_PLURAL = "rlscalingbudgets"

MEMBERS = 100
"""Most entries in `spec.members`."""

DEFAULT_RESOURCE = "nvidia.com/gpu"
"""Resource of a budget whose spec names none."""


class Lending(Model):
    """Lending of a guaranteed share while its member does not ask for it."""

    enabled: bool = True
    """Others may borrow it; without that it stays free."""
    reclaim_intervals: Annotated[int, Field(ge=1, le=100)] = 1
    """Intervals within which it is given back once its member asks for it; 1 is at once."""


class NodeSelection(Model):
    """Nodes of the cluster."""

    match_labels: Annotated[dict[LabelName, Label], Field(min_length=1, max_length=16)]
    """Labels that a node must have."""


class AmountFrom(Model):
    """Source of a counted amount."""

    nodes: NodeSelection
    """Allocatable resource of these nodes, less the requests of pods that are of no member. A node counts while it is
    Ready; of a cordoned one only the requests of members' pods count."""


class Resource(Model):
    """An amount of one resource."""

    name: ResourceName
    """Name of the shared resource. With `amountFrom`, or where a replica's units are read from pod templates, it is a
    resource of nodes, else a name for people."""
    amount: Units | None = None
    """Amount of the resource that all members have together."""
    amount_from: AmountFrom | None = None
    """Nodes to count the amount on, instead of stating it."""

    rules = (
        Rule(
            cel="has(self.amount) != has(self.amountFrom)",
            holds=lambda one: (one.amount is None) != (one.amount_from is None),
            message="name either amount or amountFrom, and not both",
            field="amount",
        ),
    )


class BudgetSpec(Model):
    """Amount, members and sharing rule of the budget."""

    resource: ResourceName | None = None
    """Name of the shared resource; a replica takes `unitsPerReplica` of it. With `amountFrom` it is a resource of
    nodes, else a name for people. Default: `nvidia.com/gpu`."""
    amount: Units | None = None
    """Amount of the resource that all members have together."""
    amount_from: AmountFrom | None = None
    """Nodes to count the amount on, instead of stating it."""
    resources: (
        Annotated[list[Resource], Field(min_length=1, max_length=RESOURCES, json_schema_extra=MAP_BY_NAME)] | None
    ) = None
    """All resources that are shared, in place of `resource`, `amount` and `amountFrom`. Members then state `resources`
    too."""
    pool: Literal["gpu", "cpu"] = "gpu"
    """The pool of each member whose replicas take it."""
    arbiter: Literal["MaxMinFair", "Priority"] = "MaxMinFair"
    """Sharing of the amount that is not guaranteed: `MaxMinFair` gives the next replica to the member that has least
    for its weight, of several resources by its dominant share: the largest part of the amount of any of them;
    `Priority` serves higher priorities first, and equal ones by weight."""
    interval_seconds: Annotated[int, Field(ge=5, le=300)] = 15
    """Seconds of one interval of `lending.reclaimIntervals`; grants follow the requests of every tick."""
    lending: Lending = Lending()
    """Lending of a guaranteed share while its member does not ask for it."""
    members: Annotated[
        list[MemberShare],
        Field(
            min_length=1,
            max_length=MEMBERS,
            json_schema_extra=MAP_BY_NAME,
        ),
    ]
    """Members that share the amount."""

    rules = (
        Rule(
            cel="has(self.resources) || has(self.amount) != has(self.amountFrom)",
            holds=lambda spec: spec.resources is not None or (spec.amount is None) != (spec.amount_from is None),
            message="name either amount or amountFrom, and not both",
            field="amount",
        ),
        Rule(
            cel="!has(self.resources) || !(has(self.resource) || has(self.amount) || has(self.amountFrom))",
            holds=lambda spec: (
                spec.resources is None or (spec.resource, spec.amount, spec.amount_from) == (None, None, None)
            ),
            message="beside resources there can be no resource, amount and amountFrom: move them into resources",
            field="resources",
        ),
        Rule(
            cel="self.members.all(m, has(self.resources) ? !(has(m.unitsPerReplica) || has(m.guaranteed) || "
            "has(m.ceiling)) : !has(m.resources))",
            holds=lambda spec: all(
                share.resources is None if spec.resources is None else not share.is_short for share in spec.members
            ),
            message="with spec.resources members state resources in place of unitsPerReplica, guaranteed and ceiling, "
            "and without it they do not: move them",
            field="members",
        ),
        Rule(
            cel="!has(self.resources) || self.members.all(m, !has(m.resources) || "
            "m.resources.all(x, self.resources.exists(r, r.name == x.name)))",
            holds=lambda spec: (
                {one.name for share in spec.members for one in share.resources or ()}
                <= {one.name for one in spec.shared}
            ),
            message="a member names a resource that is not in spec.resources: add it, or change members[].resources",
            field="members",
        ),
        Rule(
            cel="!has(self.amount) || self.members.map(m, has(m.guaranteed) ? double(m.guaranteed) : 0.0).sum() <= "
            "double(self.amount)",
            holds=lambda spec: spec.amount is None or not spec.overcommitted,
            message="the guarantees of members are more than amount: lower members[].guaranteed or raise amount",
            field="members",
        ),
        Rule(
            cel="!has(self.resources) || self.resources.all(r, !has(r.amount) || self.members.map(m, "
            "has(m.resources) ? m.resources.map(x, x.name == r.name && has(x.guaranteed) ? double(x.guaranteed) : 0.0)"
            ".sum() : 0.0).sum() <= double(r.amount))",
            holds=lambda spec: spec.resources is None or not spec.overcommitted,
            message="the guarantees of members are more than the amount of a resource: lower "
            "members[].resources[].guaranteed or raise resources[].amount",
            field="members",
        ),
    )

    @cached_property
    def shared(self) -> tuple[Resource, ...]:
        """All resources that are shared; the fields of one resource are the short form of a list of one."""
        if self.resources is not None:
            return tuple(self.resources)
        name = self.resource or DEFAULT_RESOURCE
        return (Resource.model_construct(name=name, amount=self.amount, amount_from=self.amount_from),)

    @property
    def overcommitted(self) -> str:
        """The first resource of which guarantees are more than its stated amount; empty where there is none."""
        terms = [self.terms(share) for share in self.members]
        for number, resource in enumerate(self.shared):
            if resource.amount is not None and sum(each[number].guaranteed for each in terms) > resource.amount:
                return resource.name
        return ""

    def terms(self, share: MemberShare) -> tuple[Terms, ...]:
        """The terms of a member, one for each of `shared`."""
        if self.resources is None:
            units = 1.0 if share.units_per_replica is None else share.units_per_replica
            return (terms_of(share, units),)
        if share.resources is None:
            return tuple(Terms(None, 0.0, math.inf) for _ in self.resources)
        stated = {resource.name: terms_of(resource, resource.units_per_replica) for resource in share.resources}
        return tuple(stated.get(resource.name, NOTHING) for resource in self.resources)


class RLScalingBudget(Model):
    """An amount of one resource, such as GPUs, or of several that many policies share."""

    api_version: Literal["rlscaler.io/v1alpha1"] = "rlscaler.io/v1alpha1"
    """Group and version of this representation of the object."""
    kind: Literal["RLScalingBudget"] = "RLScalingBudget"
    """Kind of the object."""
    metadata: Metadata = Metadata()
    """Standard object's metadata."""
    spec: BudgetSpec
    """Amount, members and sharing rule of the budget."""
    status: BudgetStatus = BudgetStatus()
    """Grants; written by the operator only."""


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
