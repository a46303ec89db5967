"""Requests, grants and loans of the policies that share a budget: the data that `loop.grants` passes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rlscaler_core.api.budget import BudgetSpec
from rlscaler_core.api.budget_members import MemberShare, Terms
from rlscaler_core.arbiter.types import NO_MEMBER, NO_RESOURCE, Budgets, Grants, Loans, Members, same_rows
from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.state.budgets import Budget
from rlscaler_operator.state.policy import Policy


class Request(NamedTuple):
    """The request of one member: a policy that shares a budget, and the replicas that it wants."""

    key: Key
    share: MemberShare
    """The entry of the budget's `members` that selects the policy."""
    policy: Policy
    terms: tuple[Terms, ...]
    """Guarantee and ceiling of each resource."""
    units: tuple[float, ...]
    """Units of each resource that one replica takes."""
    acts: bool
    """Whether the policy's decisions are written, so that its grant bounds them; else it requests running replicas."""
    running: int
    """Replicas that run, were ordered, or may be ordered by a grant that another shard still acts on."""
    replicas: float
    """Requested replicas; NaN = unknown."""
    replicas_if_acting: float
    """Replicas that a policy that does not act would request; NaN = unknown, or it acts."""
    remote: bool
    """Whether another shard decides for the policy."""
    minimum: int
    """Replicas that the policy requests at least if it acts."""


class BudgetRequest(NamedTuple):
    """The requests of all members of one budget, with everything else that their grants follow from."""

    budget: Budget
    spec: BudgetSpec
    amounts: tuple[float, ...]
    """Units of each resource that are shared."""
    members: list[Request]
    loans: Loans
    """The arbiter's memory of the members from the interval before."""

    @property
    def resources(self) -> tuple[str, ...]:
        """Names of the resources, in the order of the columns."""
        return tuple(resource.name for resource in self.spec.shared)

    def same(self, other: BudgetRequest) -> bool:
        """Return whether the grants of `other` follow from exactly the same inputs."""
        if self.budget is not other.budget or self.spec is not other.spec or self.amounts != other.amounts:
            return False
        return self.members == other.members and same_rows(self.loans, other.loans)


class BudgetGrants(NamedTuple):
    """The grants of all members of one budget, and the loans that follow from them; rows are the request's members."""

    request: BudgetRequest
    pool: Budgets
    """The budget as the arbiter sees it: one row."""
    members: Members
    grants: Grants
    """`because` counts the rows of this budget."""
    loans: Loans
    """The arbiter's memory from now on."""
    loans_before: Loans
    """The loans that these grants followed from, less the replicas that members gave up."""
    sharing_id: str = ""
    """ID of the record in the decision log; empty where no log is kept."""
    if_all_acted: Grants | None = None
    """The grants if the policies that do not act did; None where no such policy's request is known."""
    begins: bool = False
    """Whether an interval of the budget begins with these grants."""

    @property
    def has_remote_members(self) -> bool:
        """Return whether other shards decide for some members; they read their grants in the status of the budget."""
        return any(member.remote for member in self.request.members)

    def resource(self, row: int) -> str:
        """Return the name of the resource that keeps a member from one more replica; empty where there is none."""
        number = int(self.grants.resource[row])
        return "" if number == NO_RESOURCE else self.request.resources[number]

    def because(self, row: int) -> str:
        """Return the member whose guarantee is the reason, as namespace/name; empty where there is none."""
        number = int(self.grants.because[row])
        return "" if number == NO_MEMBER else "/".join(self.request.members[number].key)

    def granted_if_acting(self, row: int) -> int | None:
        """Return the grant that a policy that does not act would have; None where it acts or its request is unknown."""
        replicas = self.request.members[row].replicas_if_acting
        # NaN is the only number that differs from itself.
        return None if self.if_all_acted is None or replicas != replicas else int(self.if_all_acted.granted[row])


class Excluded(NamedTuple):
    """The policies that a budget selects and does not act on."""

    several: Mapping[Key, tuple[str, ...]]
    """Policies that other budgets select too, with the names of all of these budgets."""
    without_pool: Sequence[Key]
    """Policies without a target in the pool of the budget."""
    without_units: Sequence[Key]
    """Policies whose pods request none of its resources."""
    left: Sequence[Key] = ()
    """Policies that it selects no more and that have not given back their replicas."""
    unguaranteed: Sequence[Key] = ()
    """Policies without the guarantee of their entry, since all guarantees together would exceed the amount."""
