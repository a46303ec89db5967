"""The budgets of one process: what is new of them, which policies that concerns, and which of them it shares itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.kube import Kube
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.loop.count import NodeCounter
from rlscaler_operator.loop.members import Held
from rlscaler_operator.loop.share import Sharing
from rlscaler_operator.records.audit import AuditLog
from rlscaler_operator.reporting.budgets import BudgetReporter
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.budgets import Budget, Budgets
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.registry import Registry


class SharedBudgets:
    """Keeps the budgets, and shares those whose shard this process holds."""

    def __init__(
        self,
        settings: Settings,
        kube: Kube,
        cache: WatchCache,
        registry: Registry,
        shards: Shards,
        reporter: BudgetReporter,
        audit: AuditLog,
        acting: Callable[[], Mapping[int, int]],
        wake: Callable[[], None],
    ) -> None:
        """`acting` gives the shards that this process acts for, with their terms; `wake` has the loop look again."""
        self._registry, self._shards, self._reporter = registry, shards, reporter
        self._acting, self._wake = acting, wake
        self._budgets = Budgets()
        self.sharing: Sharing | None = None
        """None where no budgets are shared."""
        if settings.budgets:
            held = Held(self._shares, self._decides)
            self.sharing = Sharing(registry, cache, self._budgets, reporter, audit, held=held)
        self.counter = NodeCounter(
            kube, cache, registry, self._budgets, lambda one: self._shares(one.name), self._hurry
        )

    def take_in_policy(self, key: Key, labels: Mapping[str, str], status: Mapping[str, Any] | None) -> None:
        """A policy is new or has changed: budgets select it by its labels, and another shard writes its wishes."""
        self._budgets.note(key, labels)
        if not self._decides(key) and self._budgets.hear(key, status) and self._acting():
            self._wake()

    def forget_policy(self, key: Key) -> None:
        """A policy is gone."""
        self._budgets.note(key, None)
        self._budgets.hear(key, None)

    def taken_over(self, new: Collection[int], lost: Collection[int]) -> None:
        """This process has begun and ceased to act for shards: what it reported of their budgets may be outdated."""
        for budget in self._budgets:
            shard = self._shards.shard(_key(budget.name))
            if shard in new:
                budget.resume()
                self.counter.hurry()
            if shard in new or shard in lost:
                self._reporter.forget(budget)

    def take_in(self, body: Mapping[str, Any]) -> None:
        """A budget is new or has changed: the policies that it selects are due for a tick.

        Its status is ours, or it has the grants by which the shard that shares it bounds policies of this process.
        """
        name = body["metadata"]["name"]
        before = self._budgets.get(name)
        generation = None if before is None else (before.uid, before.generation)
        told = {} if before is None else before.told
        self._budgets.put(body)
        budget = self._budgets.get(name)
        assert budget is not None
        if generation != (budget.uid, budget.generation):
            self._hurry(budget)
            self.counter.hurry()
        elif not self._shares(name) and told != budget.told:
            self._hurry(budget)

    def forget(self, name: str) -> None:
        """A budget is gone: its policies go back to their own limits at once."""
        budget = self._budgets.get(name)
        if budget is None:
            return
        policies = self._hurry(budget)
        self._budgets.drop(name)
        self._reporter.forget(budget)
        self._reporter.deleted(name, [policy for policy in policies if self._decides(policy.key)])
        self._shards.forget(_key(name))

    def forget_all(self) -> None:
        """The API of budgets was removed."""
        for budget in self._budgets:
            self.forget(budget.name)

    def _hurry(self, budget: Budget) -> list[Policy]:
        """Have the policies of a budget decided for soon; gives them."""
        policies = [found for key in self._budgets.selected(budget) if (found := self._registry.get(key)) is not None]
        for policy in policies:
            if policy.timing.schedule is not None:
                policy.timing.schedule.hurry(time.monotonic())
        self._wake()
        return policies

    def _shares(self, name: str) -> bool:
        """Does this process hold the shard of a budget?"""
        return self._shards.shard(_key(name)) in self._acting()

    def _decides(self, key: Key) -> bool:
        """Does this process hold the shard of a policy?"""
        return self._shards.shard(key) in self._acting()

    def share(self) -> None:
        """Share what no tick of this process alone shares, and report what cannot be shared."""
        self._report_idle()
        if self.sharing is not None and self._shards.number > 1:
            self.sharing.share_between()

    def _report_idle(self) -> None:
        """Say of budgets that no tick shares why that is."""
        for budget in self._budgets:
            if not self._shares(budget.name):
                continue
            policies = [self._registry.get(key) for key in self._budgets.selected(budget)]
            if budget.amounts is None or not any(policy is not None and policy.running for policy in policies):
                self._reporter.unusable(budget)


def _key(budget: str) -> Key:
    """What the shard of a budget is found by; it is of no namespace."""
    return "", budget
