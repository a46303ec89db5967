"""Policies and budgets without a cluster, and everything that shares them."""

from __future__ import annotations

import math

from rlscaler_operator.loop.grants import Sharing
from rlscaler_operator.loop.wiring import build_engine
from rlscaler_operator.records.audit import AuditLog
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.budgets import BudgetRegistry


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

    def __init__(self, kube, settings, owner=None, leads=False):
        """`owner` names the budgets and policies of its shards, by default all; with `leads` it holds the Lease."""
        self.now, self.kube = 1000.0, kube
        self._engine = engine = build_engine(settings, kube)
        self.registry, self.cache, self.metrics = engine.registry, engine.cache, engine.metrics
        self.budgets = BudgetRegistry()
        if leads:
            engine.shards.leases[0]._deadline = math.inf
        reporter = engine.budgets.reporter
        self.sharing = Sharing(self.registry, self.cache, self.budgets, reporter, clock=lambda: self.now, owner=owner)

    @property
    def tasks(self):
        return list(self._engine.background.tasks)

    def write_to(self, path):
        """Share from now on with a decision log at `path`; return the log, which the test closes."""
        audit = AuditLog(Settings(audit_log=path))
        reporter = self.sharing._reporter
        self.sharing = Sharing(self.registry, self.cache, self.budgets, reporter, audit, lambda: self.now)
        return audit

    def binding(self, decided):
        """Return the grants that bind policies of a batch."""
        return {key: grant for key, grant in self.sharing.share_batch(decided).items() if grant.binds}

    def policy(self, body, running=1, mode="Auto", labels=None):
        body["spec"]["mode"] = mode
        body["metadata"]["labels"] = labels or {}
        policy = self.registry.put(body)
        self.budgets.set_labels(policy.key, labels or {})
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
