"""The budgets of one process: taking in their changes, hurrying their policies, and sharing the owned ones."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from rlscaler_core.api import GROUP, VERSION
from rlscaler_core.api.budget import BUDGET_PLURAL
from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.kube import Kube
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.loop.background import Launch
from rlscaler_operator.loop.budget_members import Owner
from rlscaler_operator.loop.count import NodeCounter
from rlscaler_operator.loop.grants import Sharing
from rlscaler_operator.loop.operators import RETRY_SECONDS, Questions
from rlscaler_operator.records.audit import AuditLog
from rlscaler_operator.reporting.budgets import BudgetReporter
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.budgets import Budget, BudgetRegistry
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.registry import Registry

log = logging.getLogger("rlscaler.budgets")


class SharedBudgets:
    """Keeps all budgets, and shares the budgets whose shard this process holds."""

    def __init__(
        self,
        settings: Settings,
        kube: Kube,
        cache: WatchCache,
        registry: Registry,
        shards: Shards,
        reporter: BudgetReporter,
        audit: AuditLog,
        questions: Questions,
        launch: Launch,
        acting: Callable[[], Mapping[int, int]],
        wake: Callable[[], None],
    ) -> None:
        """`acting` returns the shards that this process acts for, with their terms; `wake` wakes the engine's loop."""
        self._registry, self._shards, self.reporter = registry, shards, reporter
        self._questions, self._launch, self._acting, self._wake = questions, launch, acting, wake
        self._budgets = BudgetRegistry()
        self.sharing: Sharing | None = None
        """None where no budgets are shared."""
        if settings.budgets:
            owner = Owner(self._owns, self._decides)
            self.sharing = Sharing(registry, cache, self._budgets, reporter, audit, owner=owner)
        self.counter = NodeCounter(
            kube, cache, registry, self._budgets, lambda budget: self._owns(budget.name), self._hurry
        )

    def take_in_policy(self, key: Key, labels: Mapping[str, str], status: Mapping[str, Any] | None) -> None:
        """A policy is new or has changed: budgets select it by its labels, and another shard writes its request."""
        self._budgets.set_labels(key, labels)
        if not self._decides(key) and self._budgets.read_membership(key, status) and self._acting():
            self._wake()

    def forget_policy(self, key: Key) -> None:
        """A policy is gone."""
        self._budgets.set_labels(key, None)
        self._budgets.read_membership(key, None)

    def taken_over(self, new: Collection[int], lost: Collection[int]) -> None:
        """This process has begun and ceased to act for shards: its reports of their budgets may be outdated."""
        for budget in self._budgets:
            shard = self._shards.shard(_key(budget.name))
            if shard in new:
                budget.resume()
                self.counter.hurry()
            if shard in lost:
                budget.shared_at = None
            if shard in new or shard in lost:
                self.reporter.forget(budget)

    def take_in(self, body: Mapping[str, Any]) -> None:
        """A budget is new or has changed: the policies that it selects are due for a tick.

        The status was written by this process, or holds the grants by which another owner bounds policies of this one.
        """
        name = body["metadata"]["name"]
        before = self._budgets.get(name)
        generation = None if before is None else (before.uid, before.generation)
        grants = {} if before is None else before.status_members
        self._budgets.put(body)
        budget = self._budgets.get(name)
        assert budget is not None
        if generation != (budget.uid, budget.generation):
            self._hurry(budget)
            self.counter.hurry()
        elif not self._owns(name) and grants != budget.status_members:
            self._hurry(budget)

    def forget(self, name: str) -> None:
        """A budget is gone: its policies go back to their own limits at once."""
        budget = self._budgets.get(name)
        if budget is None:
            return
        policies = self._hurry(budget)
        self._budgets.drop(name)
        self.reporter.forget(budget)
        self.reporter.deleted(name, [policy for policy in policies if self._decides(policy.key)])
        self._shards.forget(_key(name))

    def names(self) -> list[str]:
        """Return the names of all known budgets."""
        return [budget.name for budget in self._budgets]

    def _hurry(self, budget: Budget) -> list[Policy]:
        """Make the policies of a budget due for a sensing tick soon, and return them."""
        policies = [p for key in self._budgets.policies_of(budget) if (p := self._registry.get(key)) is not None]
        for policy in policies:
            if policy.timing.schedule is not None:
                policy.timing.schedule.hurry(time.monotonic())
        self._wake()
        return policies

    def _owns(self, name: str) -> bool:
        """Return whether this process holds the shard of a budget, and no operator with another Lease shares it."""
        budget = self._budgets.get(name)
        return self._holds(name) and not (budget is not None and budget.standing.waiting)

    def _holds(self, name: str) -> bool:
        return self._shards.shard(_key(name)) in self._acting()

    def _decides(self, key: Key) -> bool:
        """Return whether this process holds the shard of a policy."""
        return self._shards.shard(key) in self._acting()

    def share(self) -> None:
        """Share the budgets with members of other shards, and report the budgets that cannot be shared."""
        for budget in self._budgets:
            if self._holds(budget.name):
                self.reporter.attempt(budget, partial(self._look, budget, time.monotonic()))
            if self._owns(budget.name):
                self.reporter.attempt(budget, partial(self._report_idle, budget))
        if self.sharing is not None and self._shards.number > 1:
            self.sharing.share_between()

    def _look(self, budget: Budget, now: float) -> None:
        """See whether an operator with another Lease shares a budget: this one then grants nothing, and asks it."""
        standing, claim, own = budget.standing, budget.claim, self._shards.lease
        if not self._budgets.policies_of(budget):
            # Nothing to share, and nothing to say about a budget that has its operator.
            standing.waiting = not standing.acts(claim, own)
            return
        verdict, waited = standing.look(claim, own, now), standing.waiting
        standing.waiting = verdict in ("wait", "ask")
        if waited != standing.waiting:
            log.info("RLScalingBudget %s: %s", budget.name, f"shared by {claim.lease}" if not waited else "taken over")
            budget.resume()
            self.reporter.forget(budget)
            self.counter.hurry()
        if verdict == "ask" and now >= budget.asked_again_at:
            budget.asked_again_at = now + RETRY_SECONDS
            path = f"/apis/{GROUP}/{VERSION}/{BUDGET_PLURAL}/{budget.name}/status"
            self._launch([], self._ask(budget, path))

    async def _ask(self, budget: Budget, path: str) -> None:
        remedy = "give budgets to one of them, or have it select no policies of namespaces of the other"
        await self._questions.ask(budget.standing, budget.claim, budget.reference, path, remedy)

    def _report_idle(self, budget: Budget) -> None:
        """Report why no tick shares a budget."""
        keys = self._budgets.policies_of(budget).keys() | budget.incumbents.keys()
        policies = [self._registry.get(key) for key in keys]
        if budget.amounts is None or not any(policy is not None and policy.running for policy in policies):
            self.reporter.unusable(budget)


def _key(budget: str) -> Key:
    """Return the key by which the shard of a budget is found; a budget has no namespace."""
    return "", budget
