"""Grants of an RLScalingBudget for people: their texts, and the status of the RLScalingBudget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from rlscaler_core.api.budget import BudgetSpec
from rlscaler_core.api.budget_members import MemberShare
from rlscaler_core.api.budget_status import OF_ONE, SHOWN, BudgetStatus, MemberStatus, ResourceStatus
from rlscaler_core.arbiter.arbitrate import jain
from rlscaler_core.arbiter.resources import dominant
from rlscaler_core.arbiter.types import NO_MEMBER, NO_RESOURCE, Budgets, Grants, Members, Reason
from rlscaler_core.decision.types import Float
from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.state.budgets import Budget, Counted

WHY = {
    Reason.ALL: "all that it asked for",
    Reason.CEILING: "its ceiling of {resource}",
    Reason.AMOUNT: "that is the whole amount of {resource}",
    Reason.TOO_FEW: "the amount of {resource} is smaller than the guarantees that are asked for",
    Reason.RETURNING: "what it is due of {resource} is still being returned by others",
    Reason.GUARANTEE: "{because}'s guarantee of {resource}",
    Reason.SHARE: "the others' shares of {resource}",
}
"""Why a member was granted no more, in words."""


class Would(NamedTuple):
    """Grants as they would be if all policies acted."""

    asked: Float
    """(M,) replicas that policies in Shadow would request; NaN for acting policies, and where it is unknown."""
    grants: Grants


class Shared(NamedTuple):
    """One sharing of an RLScalingBudget."""

    name: str
    spec: BudgetSpec
    rows: Sequence[tuple[Key, MemberShare]]
    budget: Budgets
    """One row."""
    members: Members
    grants: Grants
    """`because` is a row of `rows`."""
    begins: bool
    """True where an interval of the RLScalingBudget begins."""
    sharing_id: str = ""
    """ID of its record; empty where there is no audit log."""
    travels: bool = False
    """Whether some of the policies belong to other shards, which read their grants in the status."""
    would: Would | None = None
    """None where all policies with a known request act."""

    @property
    def amounts(self) -> tuple[float, ...]:
        """Shared amount of each resource."""
        return tuple(self.budget.amount[0].tolist())

    @property
    def resources(self) -> tuple[str, ...]:
        """Names of the resources."""
        return tuple(resource.name for resource in self.spec.shared)

    def resource(self, row: int) -> str:
        """Return the resource that limits a member; empty where none does."""
        number = int(self.grants.resource[row])
        return "" if number == NO_RESOURCE else self.resources[number]

    def because(self, row: int) -> str:
        """Return the policy whose guarantee limits a member, as namespace/name; empty where none does."""
        number = int(self.grants.because[row])
        return "" if number == NO_MEMBER else "/".join(self.rows[number][0])

    def text(self, row: int) -> str:
        """Return a sentence with request and grant of a member, and why it was granted no more."""
        asked, reason = self.members.asked[row], Reason(int(self.grants.reason[row]))
        wanted = None if np.isnan(asked) else int(asked)
        return grant_text(
            self.name, wanted, int(self.grants.granted[row]), reason, self.because(row), self.resource(row)
        )

    def would_be(self, row: int) -> int | None:
        """Return the replicas that a policy in Shadow would be granted; None where it acts or has no known request."""
        known = self.would is not None and not np.isnan(self.would.asked[row])
        return int(self.would.grants.granted[row]) if self.would is not None and known else None

    def would_text(self, row: int) -> str:
        """Return a sentence with the request and the grant that a policy in Shadow would have."""
        assert self.would is not None
        return would_text(self.name, int(self.would.asked[row]), int(self.would.grants.granted[row]))


def grant_text(budget: str, asked: int | None, granted: int, reason: Reason, because: str, resource: str) -> str:
    """Return a sentence with request (None = unknown) and grant of a member, and why it was granted no more."""
    why = WHY[reason].format(because=because or "another", resource=resource or "the resource")
    wanted = "an unknown number" if asked is None else str(asked)
    return f"RLScalingBudget {budget}: asked {wanted}, granted {granted}: {why}"


def would_text(budget: str, asked: int, granted: int) -> str:
    """Return a sentence with the request and the grant that a policy in Shadow would have."""
    return f"RLScalingBudget {budget}: would ask {asked} and be granted {granted} if it acted"


def told_text(budget: str, told: MemberStatus) -> str:
    """Return the sentence of `grant_text` for a grant that was read in the status of the RLScalingBudget."""
    reason = next((reason for reason in Reason if _reason_name(reason) == told.reason), Reason.SHARE)
    return grant_text(budget, told.asked, told.granted, reason, told.because or "", told.resource or "")


def _reason_name(reason: Reason) -> str:
    return reason.name.title().replace("_", "")


def status(budget: Budget, shared: Shared, number: int | None = None) -> BudgetStatus:
    """Return the status of an RLScalingBudget; `number` is the round of the grants where other shards read them."""
    members, grants = shared.members, shared.grants
    asks = (members.asked > 0) | (grants.granted > 0)
    fairness = jain((grants.granted * dominant(shared.budget, members))[asks], members.weight[asks])
    amount = np.where(shared.budget.amount > 0, shared.budget.amount, np.inf)
    parts = grants.granted[:, None] * members.units / amount
    most = parts.argmax(axis=1)
    resources = of_resources(shared, budget.counted, budget.uncounted)
    return BudgetStatus(
        observed_generation=max(budget.generation, 0),
        summary=", ".join(map(_summary, resources)),
        resources=[] if shared.spec.resources is None else resources,
        round=number,
        **({name: getattr(resources[0], name) for name in OF_ONE} if shared.spec.resources is None else {}),
        fairness=None if np.isnan(fairness) else round(min(fairness, 1.0), 3),
        policies=len(members),
        members=[
            MemberStatus(
                namespace=key[0],
                policy=key[1],
                member=share.name,
                asked=None if np.isnan(members.asked[i]) else int(members.asked[i]),
                granted=int(grants.granted[i]),
                borrowed=int(grants.borrowed[i]),
                running=int(members.current[i]),
                starved_seconds=int(budget.starved.get(key, 0.0)),
                reason=_reason_name(Reason(int(grants.reason[i]))),
                because=shared.because(i) or None,
                resource=shared.resource(i) or None,
                dominant_resource=shared.resources[most[i]],
                dominant_share=round(min(float(parts[i, most[i]]), 1.0), 6),
                would_be_granted=shared.would_be(i),
            )
            for i, (key, share) in enumerate(shared.rows[:SHOWN])
        ],
        conditions=budget.conditions,
    )


def of_resources(
    shared: Shared, counted: Mapping[str, Counted], uncounted: Mapping[str, str] = MappingProxyType({})
) -> list[ResourceStatus]:
    """Return amount and grants of each resource; `counted` and `uncounted` are as in `Budget`."""
    units = shared.members.units
    granted, borrowed = (
        (many[:, None] * units).sum(axis=0) for many in (shared.grants.granted, shared.grants.borrowed)
    )
    rows = []
    for number, (name, amount) in enumerate(zip(shared.resources, shared.amounts, strict=True)):
        count, late = counted.get(name), name in uncounted
        rows.append(
            ResourceStatus(
                name=name,
                amount=round(amount, 6),
                nodes=None if count is None else count.nodes,
                counted_at=datetime.fromtimestamp(count.at, UTC) if count is not None and late else None,
                granted=round(float(granted[number]), 6),
                idle=round(max(0.0, amount - float(granted[number])), 6),
                borrowed=round(float(borrowed[number]), 6),
            )
        )
    return rows


def _summary(resource: ResourceStatus) -> str:
    borrowed = f" ({resource.borrowed:g} borrowed)" if resource.borrowed else ""
    return f"{resource.name} {resource.granted:g}/{resource.amount:g}{borrowed}"
