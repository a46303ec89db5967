"""What ends a tick for one policy: judge what was decided, write it where that is allowed, and report."""

from __future__ import annotations

import asyncio
import logging
import time

from rlscaler_core.decision.batch import Outcome
from rlscaler_operator.actuation.apply import Actuator
from rlscaler_operator.actuation.routes import ANNOTATION
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.loop.diagnose import Judge
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.reporting.report import Reporter
from rlscaler_operator.settings import Settings
from rlscaler_operator.shadow.verdict import writes
from rlscaler_operator.state.findings import Problem
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.registry import Registry

log = logging.getLogger("rlscaler.finish")


class Finisher:
    """Remembers nothing; what was found last is in the policies."""

    def __init__(
        self,
        settings: Settings,
        shards: Shards,
        cache: WatchCache,
        registry: Registry,
        metrics: Metrics,
        judge: Judge,
        actuator: Actuator,
        reporter: Reporter,
    ) -> None:
        self._settings, self._shards, self._cache, self._registry = settings, shards, cache, registry
        self._metrics, self._judge, self._actuator, self._reporter = metrics, judge, actuator, reporter

    def settled(self, policy: Policy, outcome: Outcome) -> bool:
        """Would judging, applying and reporting find just what they found last time?

        A thousand quiet policies are then a few array operations. Actions always take the whole way.
        """
        decision = outcome.decision
        if policy.settled is None or decision is None or outcome.entry.kind == "action":
            return False
        if time.monotonic() - policy.written_at >= self._settings.status_interval_seconds:
            return False
        return not outcome.moves and policy.settled == self._signature(policy, outcome)

    def measure_again(self, policy: Policy, outcome: Outcome) -> None:
        """All that a settled policy needs."""
        policy.state = outcome.state
        self._reporter.measure_again(policy, outcome)

    def _signature(self, policy: Policy, outcome: Outcome) -> tuple[object, ...]:
        """Everything that findings and writes of a tick that changes no replicas depend on."""
        decision, limit = outcome.decision, policy.spec.metrics.max_age_seconds
        assert decision is not None
        keys = [key for _, key in policy.facts.targets]
        backends = policy.facts.backends
        deployments = [self._cache.deployments.get(key) for key in keys]
        return (
            policy.generation,
            sorted(item for item in policy.annotations.items() if item[0] != ANNOTATION),
            tuple(policy.finalizers),
            [(d.replicas, d.ready, d.uid, d.manager, d.deleting, d.rolling) if d else None for d in deployments],
            [self._cache.autoscaler_of(*key) for key in keys],
            self._registry.rivals(policy),
            [(r.reason, r.age_seconds > limit) for r in policy.readings.values()],
            self._cache.routes.get(backends[0]) if backends else None,
            None if policy.actor_error is None else str(policy.actor_error),
            policy.learned,
            policy.fallback_flags | int(decision.flags[0]),
            int(decision.placement[0]),
            decision.weights[0].tolist(),
            None if policy.promotion is None else (policy.promotion.state, policy.promotion.reason),
        )

    async def finish(self, policy: Policy, outcome: Outcome | None, error: Exception | None) -> None:
        """Write and report for one policy; its failure stays its own, and so does its slowness."""
        policy.settled = None
        try:
            async with asyncio.timeout(self._settings.policy_deadline_seconds):
                fine = await self._finish(policy, outcome, error)
        except TimeoutError:
            log.error("%s/%s: not done within policyDeadlineSeconds", *policy.key)
            fine = False
        except Exception:
            log.exception("%s/%s: the report failed", *policy.key)
            fine = False
        if fine:
            policy.breaker.succeeded()
        else:
            self._reporter.unfinished(policy, outcome)
            self._metrics.of(*policy.key).add(self._metrics.errors, 1)
            policy.breaker.failed(time.monotonic())

    async def _finish(self, policy: Policy, outcome: Outcome | None, error: Exception | None) -> bool:
        """False where something failed that is not the user's to correct."""
        error = error or (outcome.error if outcome is not None else None)
        decided = outcome is not None and outcome.decision is not None and error is None
        with self._metrics.stage("judge"):
            findings = await self._judge.look(policy, outcome)
        signature = self._signature(policy, outcome) if decided and outcome is not None else None
        applied = None
        if error is not None:
            log.error("%s/%s: the tick failed", *policy.key, exc_info=error)
            findings.problems.insert(0, Problem("InternalError", f"the operator failed: {error!r}"))
        elif outcome is not None and outcome.decision is not None:
            policy.state = outcome.state
            may = writes(policy.spec.mode, policy.promotion) and findings.conflict is None
            if may and self._still(policy, outcome):
                with self._metrics.stage("write"):
                    applied = await self._actuator.apply(policy, outcome.decision)
                findings.placement_problem = applied.placement_problem
        with self._metrics.stage("report"):
            self._reporter.report(policy, findings, outcome, applied, policy.found(self._cache))
        in_force = applied is None or (applied.complete and applied.placement_problem is None)
        if in_force and findings.conflict is None:
            policy.settled = signature
        return error is None and not (applied is not None and applied.failed)

    def _still(self, policy: Policy, outcome: Outcome) -> bool:
        """Is this still the policy that was decided for? It may have been edited or deleted during the tick."""
        same = policy.running and policy.generation == outcome.entry.generation
        return same and self._shards.of(policy.key).held

    async def idle(self, policy: Policy) -> None:
        """A policy that is switched off or invalid: say so once."""
        findings = await self._judge.look(policy, None)
        self._reporter.report(policy, findings, None, None, {})
