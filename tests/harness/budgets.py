"""Policies and budgets without a cluster, and everything that shares them."""

from __future__ import annotations

import asyncio
import math

from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter
from rlscaler_operator.cluster.events import Events
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.loop.share import Sharing
from rlscaler_operator.reporting.budgets import BudgetReporter
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.state.budgets import Budgets
from rlscaler_operator.state.registry import Registry


def budget_body(name="few", amount=4, members=({"name": "all"},), status=None, generation=1, **spec):
    return {
        "apiVersion": "rlscaler.io/v1alpha1",
        "kind": "RLScalingBudget",
        "metadata": {"name": name, "uid": name, "generation": generation},
        "spec": {"amount": amount, "members": list(members)} | spec,
        "status": status or {},
    }


class Bench:
    """Policies and budgets, and everything that shares them; time stands still until a test moves it."""

    def __init__(self, kube, settings, held=None, leads=False):
        """`held` says whose shards it holds, by default all; one that `leads` holds the Lease that writes need."""
        self.now = 1000.0
        self.registry, self.cache, self.budgets, self.metrics = Registry(), WatchCache(), Budgets(), Metrics()
        limiter = ConcurrencyLimiter(4)
        self.events = Events(kube, limiter, "test")
        self.tasks = []
        shards = Shards(kube, settings)
        if leads:
            shards.leases[0]._deadline = math.inf
        reporter = BudgetReporter(
            settings, kube, shards, limiter, self.events, self.metrics, self.budgets.drop, self.launch
        )
        self.sharing = Sharing(self.registry, self.cache, self.budgets, reporter, clock=lambda: self.now, held=held)

    def limits(self, decided):
        """What bounds the policies of a batch."""
        return self.sharing.share_batch(decided).limits

    def launch(self, _, work):
        self.tasks.append(asyncio.ensure_future(work))

    def policy(self, body, running=1, mode="Auto", labels=None):
        body["spec"]["mode"] = mode
        body["metadata"]["labels"] = labels or {}
        policy = self.registry.put(body)
        self.budgets.note(policy.key, labels or {})
        self.run(policy.key[1], running)
        return policy

    def run(self, name, replicas):
        """Have so many replicas run for a policy."""
        self.cache.put_deployment(
            {
                "metadata": {"namespace": "ns", "name": f"{name}-gpu", "uid": "d", "resourceVersion": "1"},
                "spec": {"replicas": replicas},
                "status": {"readyReplicas": replicas},
            }
        )
