"""Reporting budgets: their status and conditions, Events and metrics."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rlscaler_core.api import GROUP, VERSION, Condition, set_condition
from rlscaler_core.api.budget import BUDGET_PLURAL, SHOWN, BudgetSpec, BudgetStatus, MemberShare, MemberStatus
from rlscaler_core.arbiter.arbitrate import jain
from rlscaler_core.arbiter.types import NO_MEMBER, Grants, Members, Reason
from rlscaler_core.decision.types import Float
from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter, Priority
from rlscaler_operator.cluster.events import Events
from rlscaler_operator.cluster.kube import Kube
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.exceptions import KubeError, LeaseLostError
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.budgets import Budget
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.status import merge_patch

log = logging.getLogger("rlscaler.budgets")

AGAIN_SECONDS = 60.0
"""A status that has not changed is written this often, which also tells a deletion that no watch reported."""

RETRY_SECONDS = 1.0
"""Shortest time between two writes of one budget's status."""

FAILED_SECONDS = 5.0
"""The same after one that failed."""

KEPT = "GuaranteesKept"

NO_POLICIES = ("NoPolicies", "no policy that is on has the namespace and the labels of a member: label the policies")
"""Reason and message of a budget that selects no policy."""

WHY = {
    Reason.ALL: "all that it asked for",
    Reason.CEILING: "its ceiling",
    Reason.AMOUNT: "that is the whole amount",
    Reason.TOO_FEW: "the amount is smaller than the guarantees that are asked for",
    Reason.RETURNING: "what it is due is still being returned by others",
    Reason.GUARANTEE: "another's guarantee",
    Reason.SHARE: "the others' shares",
}
"""Why a member got no more, in words."""


class Would(NamedTuple):
    """What would be granted if the policies that do not act did."""

    asked: Float
    """(M,) replicas that they would ask for; NaN for those that act, and where it is not known."""
    grants: Grants


class Shared(NamedTuple):
    """How a budget was shared."""

    name: str
    spec: BudgetSpec
    rows: Sequence[tuple[Key, MemberShare]]
    amount: float
    members: Members
    grants: Grants
    """`because` counts the rows of this budget."""
    begins: bool
    """An interval of the budget begins."""
    sharing_id: str = ""
    """ID of the record of it; empty where none is kept."""
    travels: bool = False
    """Whether some of the policies are of other shards, which read their grants in the status."""
    would: Would | None = None
    """None where all that are known to ask for something act."""

    def because(self, row: int) -> str:
        """Whose guarantee it is, as namespace/name; empty where there is none."""
        number = int(self.grants.because[row])
        return "" if number == NO_MEMBER else "/".join(self.rows[number][0])

    def text(self, row: int) -> str:
        """Say what a member asked for, what it was granted and why it was not more."""
        asked, reason = self.members.asked[row], Reason(int(self.grants.reason[row]))
        wanted = None if np.isnan(asked) else int(asked)
        return grant_text(self.name, wanted, int(self.grants.granted[row]), reason, self.because(row))

    def would_be(self, row: int) -> int | None:
        """Replicas that a policy that does not act would be granted; None where it acts, or its wish is not known."""
        known = self.would is not None and not np.isnan(self.would.asked[row])
        return int(self.would.grants.granted[row]) if self.would is not None and known else None

    def would_text(self, row: int) -> str:
        """Say what a policy that does not act would ask for and be granted."""
        assert self.would is not None
        return would_text(self.name, int(self.would.asked[row]), int(self.would.grants.granted[row]))


def grant_text(budget: str, asked: int | None, granted: int, reason: Reason, because: str) -> str:
    """Say what a member asked for, None = not known, what it was granted, and why it was not more."""
    why = f"{because}'s guarantee" if because else WHY[reason]
    wanted = "an unknown number" if asked is None else str(asked)
    return f"RLScalingBudget {budget}: asked {wanted}, granted {granted}: {why}"


def would_text(budget: str, asked: int, granted: int) -> str:
    """Say what a policy that does not act would ask for and be granted."""
    return f"RLScalingBudget {budget}: would ask {asked} and be granted {granted} if it acted"


def told_text(budget: str, told: MemberStatus) -> str:
    """Say the same as `grant_text` of a member whose grant was read in the status of its budget."""
    reason = next((one for one in Reason if _reason_name(one) == told.reason), Reason.SHARE)
    return grant_text(budget, told.asked, told.granted, reason, told.because or "")


def _reason_name(reason: Reason) -> str:
    return reason.name.title().replace("_", "")


class BudgetReporter:
    """Puts together what people and tools see of budgets, and writes it in the background."""

    def __init__(
        self,
        settings: Settings,
        kube: Kube,
        shards: Shards,
        limiter: ConcurrencyLimiter,
        events: Events,
        metrics: Metrics,
        gone: Callable[[str], None],
        launch: Callable[[list[Policy], Coroutine[Any, Any, None]], None],
    ) -> None:
        """`gone` is called with the name of a budget that is not there any more."""
        self._settings, self._kube, self._shards, self._limiter = settings, kube, shards, limiter
        self._events, self._metrics, self._gone, self._launch = events, metrics, gone, launch

    def report(
        self, budget: Budget, shared: Shared, several: Mapping[Key, tuple[str, ...]], poolless: Sequence[Key]
    ) -> None:
        """Report how a budget was shared; `several` are policies that other budgets select too, by their names."""
        problem = _problem(budget, several, poolless, bool(shared.rows))
        kept = not (shared.grants.reason == Reason.TOO_FEW).any()
        travelling: dict[Key, int] = {}
        if shared.travels:
            travelling = {
                key: int(granted) for (key, _), granted in zip(shared.rows, shared.grants.granted, strict=True)
            }
        found = (budget.generation, problem, kept, shared.amount, budget.uncounted, travelling)
        if found == budget.found and not shared.begins:
            return
        budget.conditions = self._conditions(budget, problem, kept)
        self._measure(shared)
        new = shared.travels and (not budget.published or budget.published[-1][1] != travelling)
        number = budget.round + new if shared.travels else None
        taken = self._publish(budget, status(budget, shared, number).to_dict())
        budget.found = found if taken else ()
        if taken and new:
            budget.publish(travelling)

    def unusable(self, budget: Budget) -> None:
        """Report a budget that is not shared, because it cannot be read or selects no policy."""
        problem = ("InvalidSpec", budget.invalid) if budget.invalid else NO_POLICIES
        if budget.spec is not None and budget.amount is None:
            problem = ("AmountUnknown", budget.uncounted or "its nodes have not been counted yet")
        budget.conditions, _ = set_condition(budget.conditions, "Ready", False, *problem, generation=budget.generation)
        none = BudgetStatus(observed_generation=max(budget.generation, 0), policies=0, conditions=budget.conditions)
        self._publish(budget, none.to_dict())
        self._metrics.forget_budget(budget.name)

    def forget(self, budget: Budget) -> None:
        """Remove the series of a budget that this process does not share any more, and begin anew with its Events."""
        self._metrics.forget_budget(budget.name)
        self._events.forget(budget.reference)

    def _conditions(self, budget: Budget, problem: tuple[str, str] | None, kept: bool) -> list[Condition]:
        now, generation = datetime.now(UTC), budget.generation
        reason, message = problem or ("Ready", "it acts on every policy that it selects")
        conditions, _ = set_condition(
            budget.conditions, "Ready", problem is None, reason, message, generation=generation, now=now
        )
        if budget.spec is not None and budget.spec.amount_from is not None:
            conditions, _ = set_condition(conditions, "AmountKnown", *_known(budget), generation=generation, now=now)
        else:
            conditions = [condition for condition in conditions if condition.type != "AmountKnown"]
        text = "the amount is enough for all guarantees that are asked for" if kept else _too_few(budget)
        result, changed = set_condition(
            conditions, KEPT, kept, "Enough" if kept else "TooFew", text, generation=generation, now=now
        )
        if not kept and changed:
            self._post(budget, "Warning", "GuaranteeNotKept", text)
        if problem is not None:
            self._post(budget, "Warning", reason, message)
        return result

    def _post(self, budget: Budget, type_: Any, reason: str, message: str) -> None:
        event = self._events.admit(budget.reference, type_, reason, message)
        if event is not None:
            self._launch([], self._events.send(event))

    def deleted(self, name: str, policies: Sequence[Policy]) -> None:
        """Tell the policies of a budget that is gone that they have their own limits again."""
        text = f"RLScalingBudget {name} is gone: only the policy's own limits hold"
        for policy in policies:
            event = self._events.admit(policy.reference, "Normal", "BudgetDeleted", text)
            if event is not None:
                self._launch([], self._events.send(event))

    def _measure(self, shared: Shared) -> None:
        units = shared.members.units
        granted = float((shared.grants.granted * units).sum())
        amounts = {
            "amount": shared.amount,
            "granted": granted,
            "borrowed": float((shared.grants.borrowed * units).sum()),
            "idle": max(0.0, shared.amount - granted),
        }
        replicas = {
            (*key, state): float(value)
            for i, (key, _) in enumerate(shared.rows)
            for state, value in (
                ("asked", shared.members.asked[i]),
                ("granted", shared.grants.granted[i]),
                ("borrowed", shared.grants.borrowed[i]),
                ("guaranteed", shared.grants.promised[i]),
                ("running", shared.members.current[i]),
            )
        }
        self._metrics.put_budget(shared.name, amounts, replicas)

    def _publish(self, budget: Budget, content: dict[str, Any]) -> bool:
        """Write a status in the background; False where it is too early for that."""
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
                lease = self._shards.of(("", budget.name))
                timeout = partial(lease.write_timeout, self._settings.write_timeout_seconds)
                patch = {"status": merge_patch(budget.written, content)}
                await self._kube.patch(path, patch, timeout_seconds=timeout)
                budget.written, budget.written_at = content, time.monotonic()
        except (KubeError, LeaseLostError, TimeoutError) as error:
            log.warning("RLScalingBudget %s: status was not written: %s", budget.name, error)
            budget.found, budget.tried_at = (), time.monotonic() + FAILED_SECONDS - RETRY_SECONDS
            if isinstance(error, KubeError) and error.status == 404:
                self._gone(budget.name)
        finally:
            budget.writing = False


def status(budget: Budget, shared: Shared, number: int | None = None) -> BudgetStatus:
    """Give the status of a budget that was just shared; `number` is that of the grants where other shards read them."""
    members, grants = shared.members, shared.grants
    granted = grants.granted * members.units
    asks = (members.asked > 0) | (grants.granted > 0)
    fairness = jain(granted[asks], members.weight[asks])
    return BudgetStatus(
        observed_generation=max(budget.generation, 0),
        amount=round(shared.amount, 6),
        round=number,
        nodes=None if budget.counted is None else budget.counted.nodes,
        counted_at=datetime.fromtimestamp(budget.counted.at, UTC) if budget.counted and budget.uncounted else None,
        granted=round(float(granted.sum()), 6),
        idle=round(max(0.0, shared.amount - float(granted.sum())), 6),
        borrowed=round(float((grants.borrowed * members.units).sum()), 6),
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
                would_be_granted=shared.would_be(i),
            )
            for i, (key, share) in enumerate(shared.rows[:SHOWN])
        ],
        conditions=budget.conditions,
    )


def _known(budget: Budget) -> tuple[bool, str, str]:
    """Status, reason and message of `AmountKnown`."""
    counted = budget.counted
    where = "" if counted is None else f"{counted.units:g} units on {counted.nodes} nodes"
    if budget.uncounted:
        return False, "NotCounted", f"{budget.uncounted}; until then it is the last count: {where}"
    return True, "Counted", where


def _too_few(budget: Budget) -> str:
    """Say what is too few, and the remedy."""
    counted, text = budget.counted, "the arbiter shares it among these guarantees and lends nothing"
    if counted is None:
        return f"spec.amount is smaller than the guarantees that are asked for; {text}: raise it, or lower guarantees"
    return (
        f"{counted.units:g} units on the {counted.nodes} nodes that spec.amountFrom counts are fewer than the "
        f"guarantees that are asked for; {text}: bring nodes back or add some, free what other pods hold there, or "
        f"lower guarantees"
    )


def _problem(
    budget: Budget, several: Mapping[Key, tuple[str, ...]], poolless: Sequence[Key], shares: bool
) -> tuple[str, str] | None:
    """Why a budget does not act on every policy that it selects; None where it does."""
    if several:
        key, names = next(iter(several.items()))
        more = f" and {len(several) - 1} more" if len(several) > 1 else ""
        text = f"policy {key[0]}/{key[1]}{more} is selected by RLScalingBudgets {', '.join(names)}, so none acts on it"
        return "PolicyInSeveralBudgets", f"{text}: change its labels, or the members of all but one"
    if poolless:
        assert budget.spec is not None
        names_ = ", ".join("/".join(key) for key in poolless[:3])
        return "NoSuchPool", f"{names_} has no {budget.spec.pool} target: change spec.pool or the members"
    return None if shares else NO_POLICIES
