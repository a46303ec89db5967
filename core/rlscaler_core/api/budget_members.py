"""Members of an RLScalingBudget, and their terms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from rlscaler_core.api.base import Label, LabelName, Model, ObjectName, Rule

RESOURCES = 8
"""Most entries in `spec.resources`."""

Units = Annotated[float, Field(ge=0, le=1_000_000_000)]
"""An amount of a resource."""

UnitsPerReplica = Annotated[float, Field(gt=0, le=1_000_000)]
"""Units of a resource that one replica takes."""

ResourceName = Annotated[str, Field(min_length=1, max_length=316)]
"""Name of a resource of nodes, such as `cpu`, or a name for people."""

MAP_BY_NAME: dict[str, Any] = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}


class Terms(NamedTuple):
    """The terms of a member for one resource of its budget."""

    units: float | None
    """Units that a replica takes; 0 = none, None = the request of the pod template."""
    guaranteed: float
    ceiling: float
    """inf = any"""


NOTHING = Terms(0.0, 0.0, math.inf)
"""The terms for a resource that a member takes none of."""


_CEILING = Rule(
    cel="!has(self.ceiling) || (has(self.guaranteed) ? double(self.guaranteed) : 0.0) <= double(self.ceiling)",
    holds=lambda share: share.ceiling is None or share.ceiling >= (share.guaranteed or 0.0),
    message="ceiling is below guaranteed: raise ceiling or lower guaranteed",
    field="ceiling",
)


class ResourceShare(Model):
    """The share of a member in one resource."""

    name: ResourceName
    """One of `spec.resources`."""
    units_per_replica: UnitsPerReplica | None = None
    """Amount that one replica of the pool takes; default: the request of the pod template of the pool's target."""
    guaranteed: Units | None = None
    """Amount that each policy has whenever it asks for it; default: 0. A guarantee is the whole replicas for which the
    guarantees of all resources are enough, so it is stated for each of them or for none."""
    ceiling: Units | None = None
    """Largest amount of each policy; default: the whole amount."""

    rules = (_CEILING,)


class MemberShare(Model):
    """The share of the policies that one entry selects; each of them has it."""

    name: Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    """Name of the entry, unique in the budget."""
    namespace: ObjectName | None = None
    """Namespace of the policies; default: any."""
    match_labels: dict[LabelName, Label] = Field(default_factory=dict, max_length=16)
    """Labels that a policy must have; default: any. Of several entries that select a policy the first one counts."""
    units_per_replica: UnitsPerReplica | None = None
    """Amount of the resource that one replica of the pool takes, such as 2 where pods request two GPUs; default: 1."""
    guaranteed: Units | None = None
    """Amount that each policy has whenever it asks for it; default: 0. Where the guarantees of all policies together
    exceed the amount, a further policy of an entry goes without."""
    ceiling: Units | None = None
    """Largest amount of each policy; default: the whole amount."""
    resources: (
        Annotated[list[ResourceShare], Field(min_length=1, max_length=RESOURCES, json_schema_extra=MAP_BY_NAME)] | None
    ) = None
    """With `spec.resources`, in place of the three above: the share in each resource that a replica takes. Default: all
    of `spec.resources`, as the pod template requests them, with no guarantee."""
    weight: Annotated[float, Field(gt=0, le=1_000_000)] = 1.0
    """Share of the amount that is not guaranteed, against the other members' weights."""
    priority: Annotated[int, Field(ge=-1000, le=1000, json_schema_extra={"format": "int32"})] = 0
    """For the arbiter `Priority`: the higher goes first."""

    rules = (
        _CEILING,
        Rule(
            cel="!has(self.resources) || self.resources.all(r, has(r.guaranteed) && r.guaranteed > 0.0) || "
            "self.resources.all(r, !has(r.guaranteed) || r.guaranteed == 0.0)",
            holds=lambda share: len({bool(one.guaranteed) for one in share.resources or ()}) < 2,
            message="guaranteed has to be above 0 for all resources of the member or for none: state the others too",
            field="resources",
        ),
        Rule(
            cel="!has(self.resources) || !(has(self.unitsPerReplica) || has(self.guaranteed) || has(self.ceiling))",
            holds=lambda share: share.resources is None or not share.is_short,
            message="beside resources there are no unitsPerReplica, guaranteed and ceiling: move them into resources",
            field="resources",
        ),
    )

    @property
    def is_short(self) -> bool:
        """True where it states its share in the one resource of a budget."""
        return (self.units_per_replica, self.guaranteed, self.ceiling) != (None, None, None)

    def selects(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether a policy of this namespace and with these labels is a member."""
        there = all(labels.get(name) == value for name, value in self.match_labels.items())
        return there and self.namespace in (None, namespace)


def terms_of(share: MemberShare | ResourceShare, units: float | None) -> Terms:
    """The terms that a share states for one resource, of which a replica takes `units`."""
    return Terms(units, share.guaranteed or 0.0, math.inf if share.ceiling is None else share.ceiling)
