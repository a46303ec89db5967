"""Grants of a budget for people: a sentence for each grant, and the status of the budget."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from types import MappingProxyType

import numpy as np

from rlscaler_core.api.budget_status import OF_ONE, SHOWN, BudgetStatus, MemberStatus, ResourceStatus
from rlscaler_core.arbiter.arbitrate import jain
from rlscaler_core.arbiter.types import Reason, dominant
from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.state.budgets import NodeCount
from rlscaler_operator.state.grants import BudgetGrants

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


def describe_grant(shared: BudgetGrants, row: int) -> str:
    """Return a sentence with the requested and the granted replicas of a member, and why it is not granted more."""
    requested, reason = shared.members.asked[row], Reason(int(shared.grants.reason[row]))
    return _sentence(
        shared.request.budget.name,
        None if np.isnan(requested) else int(requested),
        int(shared.grants.granted[row]),
        reason,
        shared.because(row),
        shared.resource(row),
    )


def describe_status_grant(budget: str, member: MemberStatus) -> str:
    """Return the sentence of `describe_grant` for a member whose grant was read in the status of its budget."""
    reason = next((reason for reason in Reason if _reason_name(reason) == member.reason), Reason.SHARE)
    return _sentence(budget, member.asked, member.granted, reason, member.because or "", member.resource or "")


def _sentence(budget: str, requested: int | None, granted: int, reason: Reason, because: str, resource: str) -> str:
    why = WHY[reason].format(because=because or "another", resource=resource or "the resource")
    wish = "an unknown number" if requested is None else str(requested)
    return f"RLScalingBudget {budget}: asked {wish}, granted {granted}: {why}"


def describe_if_acting(shared: BudgetGrants, row: int) -> str:
    """Return a sentence with the replicas that a policy that does not act would request and be granted."""
    assert shared.if_all_acted is not None
    requested = int(shared.request.members[row].replicas_if_acting)
    return if_acting_text(shared.request.budget.name, requested, int(shared.if_all_acted.granted[row]))


def if_acting_text(budget: str, requested: int, granted: int) -> str:
    """Return a sentence with the replicas that a policy that does not act would request and be granted."""
    return f"RLScalingBudget {budget}: would ask {requested} and be granted {granted} if it acted"


def _reason_name(reason: Reason) -> str:
    return reason.name.title().replace("_", "")


def status(shared: BudgetGrants, number: int | None = None, unguaranteed: Collection[Key] = ()) -> BudgetStatus:
    """Return the status of a budget that was just shared.

    `number` counts the rounds where other shards read grants; `unguaranteed` policies go without their guarantee.
    """
    budget, spec, members, grants = shared.request.budget, shared.request.spec, shared.members, shared.grants
    served = (members.asked > 0) | (grants.granted > 0)
    fairness = jain((grants.granted * dominant(shared.pool, members))[served], members.weight[served])
    amount = np.where(shared.pool.amount > 0, shared.pool.amount, np.inf)
    parts = grants.granted[:, None] * members.units / amount
    most = parts.argmax(axis=1)
    resources = of_resources(shared, budget.counts, budget.count_errors)
    return BudgetStatus(
        observed_generation=max(budget.generation, 0),
        summary=", ".join(map(_summary, resources)),
        resources=[] if spec.resources is None else resources,
        round=number,
        **({name: getattr(resources[0], name) for name in OF_ONE} if spec.resources is None else {}),
        fairness=None if np.isnan(fairness) else round(min(fairness, 1.0), 3),
        policies=len(members),
        members=[
            MemberStatus(
                namespace=member.key[0],
                policy=member.key[1],
                member=member.share.name,
                asked=None if np.isnan(members.asked[i]) else int(members.asked[i]),
                granted=int(grants.granted[i]),
                borrowed=int(grants.borrowed[i]),
                running=int(members.current[i]),
                unguaranteed=member.key in unguaranteed or None,
                starved_seconds=int(budget.starved_seconds.get(member.key, 0.0)),
                reason=_reason_name(Reason(int(grants.reason[i]))),
                because=shared.because(i) or None,
                resource=shared.resource(i) or None,
                dominant_resource=shared.request.resources[most[i]],
                dominant_share=round(min(float(parts[i, most[i]]), 1.0), 6),
                would_be_granted=shared.granted_if_acting(i),
            )
            for i, member in enumerate(shared.request.members[:SHOWN])
        ],
        conditions=budget.conditions,
    )


def of_resources(
    shared: BudgetGrants, counts: Mapping[str, NodeCount], count_errors: Mapping[str, str] = MappingProxyType({})
) -> list[ResourceStatus]:
    """Return the amount of each resource and the granted part; `counts` and `count_errors` are those of the budget."""
    granted, borrowed = (
        (replicas[:, None] * shared.members.units).sum(axis=0)
        for replicas in (shared.grants.granted, shared.grants.borrowed)
    )
    statuses = []
    for number, (name, amount) in enumerate(zip(shared.request.resources, shared.request.amounts, strict=True)):
        count, late = counts.get(name), name in count_errors
        statuses.append(
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
    return statuses


def _summary(status: ResourceStatus) -> str:
    """Return the granted part of a resource in a few words."""
    borrowed = f" ({status.borrowed:g} borrowed)" if status.borrowed else ""
    return f"{status.name} {status.granted:g}/{status.amount:g}{borrowed}"
