"""Reports on RLScalingBudgets: their status and conditions, Events and metrics."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from rlscaler_core.api import GROUP, VERSION, Condition, set_condition
from rlscaler_core.api.budget import BUDGET_PLURAL
from rlscaler_core.api.budget_status import BudgetStatus
from rlscaler_core.arbiter.types import Reason
from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter, Priority
from rlscaler_operator.cluster.events import Events, Reference, Type
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.exceptions import KubeError, LeaseLostError, ShareError
from rlscaler_operator.reporting.grants import of_resources, status
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.budgets import Budget
from rlscaler_operator.state.grants import BudgetGrants, Excluded
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.status import merge_patch, operator_status

log = logging.getLogger("rlscaler.budgets")

T = TypeVar("T")

AGAIN_SECONDS = 60.0
"""Interval at which an unchanged status is written: a 404 then reveals a deletion that no watch reported."""

RETRY_SECONDS = 1.0
"""Shortest time between two writes of one RLScalingBudget's status."""

FAILED_SECONDS = 5.0
"""Shortest time between a failed write and the next one."""

KEPT = "GuaranteesKept"

NO_POLICIES = ("NoPolicies", "no policy that is on has the namespace and the labels of a member: label the policies")
"""Reason and message of an RLScalingBudget that selects no policy."""


class BudgetReporter:
    """Builds status, conditions, Events and metrics of RLScalingBudgets, and writes them in the background."""

    def __init__(
        self,
        settings: Settings,
        shards: Shards,
        limiter: ConcurrencyLimiter,
        events: Events,
        metrics: Metrics,
        gone: Callable[[str], None],
        launch: Callable[[list[Policy], Coroutine[Any, Any, None]], None],
    ) -> None:
        """`gone` is called with the name of an RLScalingBudget that was deleted."""
        self._settings, self._shards, self._limiter = settings, shards, limiter
        self._events, self._metrics, self._gone, self._launch = events, metrics, gone, launch

    def report(self, budget: Budget, shared: BudgetGrants, excluded: Excluded) -> None:
        """Report the grants of a budget that was shared, and the policies on which it does not act."""
        members, granted, remote = shared.request.members, shared.grants.granted.tolist(), shared.has_remote_members
        lease, claim = self._settings.lease, budget.claim
        other = budget.standing.other(claim, lease, time.monotonic())
        problem = (
            _unreadable(budget) or _failed_of(budget) or _problem(budget, excluded, bool(members)) or _shared_by(other)
        )
        few = _too_few_of(shared)
        for_others = {m.key: replicas for m, replicas in zip(members, granted, strict=True)} if remote else {}
        inputs = (
            budget.generation,
            problem,
            few,
            shared.request.amounts,
            dict(budget.count_errors),
            for_others,
            claim.asked,
        )
        # Nothing that a person reads has changed; once an interval the figures are renewed all the same.
        if inputs == budget.reported and not shared.begins:
            return
        budget.conditions = self._conditions(budget, problem, few)
        self._measure(shared)
        new_round = remote and (not budget.published or budget.published[-1][1] != for_others)
        number = budget.round + new_round if remote else None
        content = status(shared, number, excluded.unguaranteed)
        content = content.model_copy(update={"operator": operator_status(lease, claim)})
        taken = self._publish(budget, content.to_dict())
        budget.reported = inputs if taken else ()
        if taken and new_round:
            budget.add_round(for_others)

    def unusable(self, budget: Budget) -> None:
        """Report an RLScalingBudget that is not shared, because it cannot be read or selects no policy."""
        problem = _unreadable(budget) or NO_POLICIES
        if not budget.invalid and budget.spec is not None and budget.amounts is None:
            why = [f"{name}: {text}" for name, text in budget.count_errors.items() if name not in budget.counts]
            problem = ("AmountUnknown", "; ".join(why) or "its nodes have not been counted yet")
        budget.conditions, _ = set_condition(budget.conditions, "Ready", False, *problem, generation=budget.generation)
        none = BudgetStatus(observed_generation=max(budget.generation, 0), policies=0, conditions=budget.conditions)
        self._publish(budget, none.to_dict())
        self._metrics.forget_budget(budget.name)

    def attempt(self, budget: Budget, work: Callable[[], T]) -> T | None:
        """Return the result of work for one RLScalingBudget; None where it failed, which is reported on it."""
        try:
            return work()
        except Exception as error:
            self.failed(budget, error)
            return None

    def failed(self, budget: Budget, error: Exception) -> None:
        """Report an RLScalingBudget that the operator failed to share, and leave its grants as they were written."""
        failed = ShareError(f"share RLScalingBudget {budget.name}", error)
        if str(budget.failed) != str(failed):
            log.exception("RLScalingBudget %s could not be shared", budget.name)
        self._metrics.loop_errors.inc()
        # What was reported before is not in force any more, so the next report is new.
        budget.failed, budget.reported, why = failed, (), f"{failed}; until then the replicas of its policies stay"
        budget.conditions, _ = set_condition(
            budget.conditions, "Ready", False, failed.reason, why, generation=budget.generation
        )
        self._post(budget.reference, "Warning", failed.reason, why)
        self._publish(budget, budget.written | BudgetStatus(conditions=budget.conditions).to_dict())

    def forget(self, budget: Budget) -> None:
        """Remove the series of an RLScalingBudget that this process does not share any more, and forget its Events."""
        self._metrics.forget_budget(budget.name)
        self._events.forget(budget.reference)

    def _conditions(self, budget: Budget, problem: tuple[str, str] | None, few: Sequence[str]) -> list[Condition]:
        """Return the new conditions; `few` are the resources that are too small for the requested guarantees."""
        now, generation = datetime.now(UTC), budget.generation
        reason, message = problem or ("Ready", "it acts on every policy that it selects")
        conditions, _ = set_condition(
            budget.conditions, "Ready", problem is None, reason, message, generation=generation, now=now
        )
        if budget.spec is not None and any(resource.amount_from is not None for resource in budget.spec.shared):
            conditions, _ = set_condition(conditions, "AmountKnown", *_known(budget), generation=generation, now=now)
        else:
            conditions = [condition for condition in conditions if condition.type != "AmountKnown"]
        text = _too_few(budget, few) if few else "the amount is enough for all guarantees that are asked for"
        result, changed = set_condition(
            conditions, KEPT, not few, "TooFew" if few else "Enough", text, generation=generation, now=now
        )
        if few and changed:
            self._post(budget.reference, "Warning", "GuaranteeNotKept", text)
        if problem is not None:
            self._post(budget.reference, "Warning", reason, message)
        return result

    def _post(self, about: Reference, type_: Type, reason: str, message: str) -> None:
        event = self._events.admit(about, type_, reason, message)
        if event is not None:
            self._launch([], self._events.send(event))

    def deleted(self, name: str, policies: Sequence[Policy]) -> None:
        """Post an Event to each policy of a deleted RLScalingBudget: only its own limits hold now."""
        for policy in policies:
            text = f"RLScalingBudget {name} is gone: only the policy's own limits hold"
            self._post(policy.reference, "Normal", "BudgetDeleted", text)

    def _measure(self, shared: BudgetGrants) -> None:
        amounts = {
            (resource.name, state): float(getattr(resource, state) or 0.0)
            for resource in of_resources(shared, {})
            for state in ("amount", "granted", "borrowed", "idle")
        }
        columns: dict[str, Any] = {
            "asked": shared.members.asked,
            "granted": shared.grants.granted,
            "borrowed": shared.grants.borrowed,
            "guaranteed": shared.grants.promised,
            "running": shared.members.current,
        }
        replicas = {
            (*member.key, state): float(column[i])
            for i, member in enumerate(shared.request.members)
            for state, column in columns.items()
        }
        self._metrics.put_budget(shared.request.budget.name, amounts, replicas)

    def _publish(self, budget: Budget, content: dict[str, Any]) -> bool:
        """Write a status in the background; return False where it is too early for that."""
        now = time.monotonic()
        if now - budget.written_at < AGAIN_SECONDS and content == budget.written:
            return True
        if budget.writing or now - budget.tried_at < RETRY_SECONDS:
            return False
        budget.writing, budget.tried_at = True, now
        self._launch([], self._write(budget, content))
        return True

    async def _write(self, budget: Budget, content: dict[str, Any]) -> None:
        path = f"/apis/{GROUP}/{VERSION}/{BUDGET_PLURAL}/{budget.name}/status"
        try:
            async with asyncio.timeout(self._settings.policy_deadline_seconds), self._limiter.slot(Priority.REPORT):
                patch = {"status": merge_patch(budget.written, content)}
                await self._shards.of(("", budget.name)).patch(path, patch)
                budget.written, budget.written_at = content, time.monotonic()
        except (KubeError, LeaseLostError, TimeoutError) as error:
            log.warning("RLScalingBudget %s: status was not written: %s", budget.name, error)
            budget.reported, budget.tried_at = (), time.monotonic() + FAILED_SECONDS - RETRY_SECONDS
            if isinstance(error, KubeError) and error.status == 404:
                self._gone(budget.name)
        finally:
            budget.writing = False


def _unreadable(budget: Budget) -> tuple[str, str] | None:
    """Return why the spec of an RLScalingBudget cannot be read; None where it can."""
    if not budget.invalid:
        return None
    text = "it limits no policy" if budget.spec is None else "the last one that could be read stays in force"
    return "InvalidSpec", f"{budget.invalid}; {text}"


def _failed_of(budget: Budget) -> tuple[str, str] | None:
    """Return why the requests of members are not known; None where all are."""
    if not budget.failed_members:
        return None
    error, *more = budget.failed_members.values()
    others = f"; {len(more)} other policies failed as well" if more else ""
    return error.reason, f"{error}{others}; until then what runs of it counts"


def _shared_by(other: str) -> tuple[str, str] | None:
    """Return the problem that an operator with another Lease has members of the RLScalingBudget, too."""
    if not other:
        return None
    text = f"the operator of Lease {other} has members of it, too, and grants them nothing: their replicas stay"
    return "OtherOperatorHolds", f"{text}; give budgets to one operator alone"


def _known(budget: Budget) -> tuple[bool, str, str]:
    """Return status, reason and message of the condition AmountKnown."""
    counts = budget.counts.items()
    where = ", ".join(f"{count.units:g} units of {name} on {count.nodes} nodes" for name, count in counts)
    if budget.count_errors:
        why = "; ".join(f"{name}: {text}" for name, text in budget.count_errors.items())
        return False, "NotCounted", f"{why}; until then it is the last count: {where}"
    return True, "Counted", where


def _too_few_of(shared: BudgetGrants) -> tuple[str, ...]:
    """Return the resources whose amount is smaller than the requested guarantees."""
    short = shared.grants.resource[shared.grants.reason == Reason.TOO_FEW]
    return tuple(shared.request.resources[number] for number in sorted(set(short.tolist())))


def _too_few(budget: Budget, few: Sequence[str]) -> str:
    """Return the message about resources that are too small, with the remedy."""
    where = ", ".join(
        f"{count.units:g} units of {name} on the {count.nodes} nodes that amountFrom counts"
        for name, count in budget.counts.items()
        if name in few
    )
    text = "the arbiter shares it among these guarantees and lends nothing of what they take"
    if not where:
        names = " and ".join(few)
        short = f"the amount of {names} is smaller than the guarantees that are asked for"
        return f"{short}; {text}: raise it, or lower guarantees"
    return (
        f"{where} are fewer than the guarantees that are asked for; {text}: bring nodes back or add some, free what "
        f"other pods hold there, or lower guarantees"
    )


def _problem(budget: Budget, excluded: Excluded, shares: bool) -> tuple[str, str] | None:
    """Return why an RLScalingBudget does not act on every policy that it selects; None where it does."""
    several, without_pool, without_units, left, unguaranteed = excluded
    if several:
        key, names = next(iter(several.items()))
        more = f" and {len(several) - 1} more" if len(several) > 1 else ""
        text = f"policy {key[0]}/{key[1]}{more} is selected by RLScalingBudgets {', '.join(names)}, and one alone acts"
        return "PolicyInSeveralBudgets", f"{text}: change its labels, or the members of all but one"
    if without_pool:
        assert budget.spec is not None
        names_ = ", ".join("/".join(key) for key in without_pool[:3])
        return "NoSuchPool", f"{names_} has no {budget.spec.pool} target: change spec.pool or the members"
    if without_units:
        names_ = ", ".join("/".join(key) for key in without_units[:3])
        text = f"the pod template of {names_} requests none of the resources"
        return "NoUnits", f"{text}: set requests there, or members[].resources[].unitsPerReplica"
    if unguaranteed:
        names_ = ", ".join("/".join(key) for key in unguaranteed[:3])
        text = f"{names_} goes without the guarantee of its entry: all guarantees together exceed the amount"
        return "GuaranteeNotGiven", f"{text}: raise it, lower guarantees, or select fewer policies"
    if left:
        names_ = ", ".join("/".join(key) for key in left[:3])
        text = f"{names_} is selected no more, and counts until it has given back its replicas"
        return "PolicyLeft", f"{text}: an edit of the budget lets it go at once"
    return None if shares else NO_POLICIES
