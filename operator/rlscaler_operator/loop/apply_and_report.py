"""The end of a tick for one policy: diagnose how it stands, write the decision where that is allowed, and report."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace

from rlscaler_core.decision.batch import Outcome
from rlscaler_operator.actuation.apply import Actuator, Applied
from rlscaler_operator.actuation.drain import Need, resumed
from rlscaler_operator.actuation.pod_sizes import Sizer, in_place
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.exceptions import FenceError, ShareError, SpecInvalidError
from rlscaler_operator.loop.diagnose import Diagnostician
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.reporting.reporter import Reporter
from rlscaler_operator.settings import Settings
from rlscaler_operator.shadow.verdict import writes
from rlscaler_operator.state.findings import Findings, Problem
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.registry import Registry

log = logging.getLogger("rlscaler.apply")


class Reconciler:
    """Brings the decision for one policy into the cluster. Its last findings are in the policy."""

    def __init__(
        self,
        settings: Settings,
        shards: Shards,
        cache: WatchCache,
        registry: Registry,
        metrics: Metrics,
        diagnostician: Diagnostician,
        actuator: Actuator,
        sizer: Sizer,
        reporter: Reporter,
    ) -> None:
        self._settings, self._shards, self._cache, self._registry = settings, shards, cache, registry
        self._metrics, self._diagnostician, self._actuator, self._reporter = metrics, diagnostician, actuator, reporter
        self._sizer = sizer

    def is_quiet(self, policy: Policy, outcome: Outcome) -> bool:
        """Return whether diagnosing, applying and reporting would find the same as last time.

        A thousand quiet policies are then a few array operations. Actions always take the whole way.
        """
        last = policy.report.made_from
        if (
            last is None
            or not policy.running
            or outcome.decision is None
            or outcome.entry.kind == "action"
            or outcome.moves
            or policy.outbox.lost
        ):
            return False
        if policy.traffic.pending or (policy.acts and in_place(policy)):
            return False
        if time.monotonic() - policy.outbox.written_at >= self._settings.status_interval_seconds:
            return False
        return last == self._registry.revisions(policy, self._cache)

    def pass_quiet(self, policy: Policy, outcome: Outcome) -> None:
        """Remember the decision state and update the metrics: a quiet policy needs no more."""
        policy.decision.state = outcome.state
        self._reporter.measure_quiet(policy, outcome)

    async def apply_and_report(self, policy: Policy, outcome: Outcome | None, error: Exception | None) -> None:
        """Write and report for one policy; its failure stays its own, and so does its slowness."""
        try:
            async with asyncio.timeout(self._settings.policy_deadline_seconds):
                try:
                    fine = await self._apply_and_report(policy, outcome, error)
                except SpecInvalidError:
                    await self.report_idle(policy)
                    fine = True
        except TimeoutError:
            log.error("%s/%s: not done within policyDeadlineSeconds", *policy.key)
            fine = False
        except Exception as failure:
            log.exception("%s/%s: the report failed", *policy.key)
            # Its condition alone: it is the report that has failed.
            findings = Findings(mode="Auto", problems=[_internal(failure)])
            self._reporter.report(policy, findings, None, None, {}, None)
            fine = False
        if fine:
            policy.timing.breaker.succeeded()
        else:
            # First the breaker: nothing below may keep a policy that fails from its pause.
            policy.timing.breaker.failed(time.monotonic())
            self._metrics.of(*policy.key).add(self._metrics.errors, 1)
            self._reporter.unfinished(policy, outcome)

    async def _apply_and_report(self, policy: Policy, outcome: Outcome | None, error: Exception | None) -> bool:
        """Diagnose, write and report; return False where something failed that is not the user's to correct."""
        error = error or (outcome.error if outcome is not None else None)
        if policy.observed.parsed is None or isinstance(error, SpecInvalidError):
            raise SpecInvalidError(policy.observed.invalid)
        # Before anything waits: what changes meanwhile, and what the writes change, is reported at the next tick.
        seen = self._registry.revisions(policy, self._cache)
        with self._metrics.stage("judge"):
            findings = await self._diagnostician.diagnose(policy, outcome)
        applied = made_from = None
        # A promotion that came during the diagnosis waits for the next one: that one looks for conflicts.
        may = findings.acts and writes(policy.spec.mode, policy.promotion.status) and findings.other is None
        if error is not None:
            # One traceback for a row of failures: a policy that fails for good would fill the log.
            again = policy.timing.breaker.failures > 0
            log.error("%s/%s: the tick failed: %s", *policy.key, error, exc_info=None if again else error)
            findings.problems.insert(0, _internal(error))
        elif outcome is not None and outcome.decision is not None:
            made_from = seen
            policy.decision.state = outcome.state
            if may and self._still_wanted(policy, outcome):
                with self._metrics.stage("write"):
                    applied = await self._apply(policy, outcome, findings)
                    await self._resize(policy, findings, applied)
                findings.weights_problem = applied.weights_problem
                findings.warnings += applied.warnings
            else:
                policy.traffic.pending, policy.traffic.follows = {}, False
            policy.decision.keep_desired(outcome, acts=policy.spec.mode == "Auto", pending=policy.traffic.pending)
        if not may:
            findings.warnings += await self._sizer.withdraw(policy)
        in_force = applied is None or (applied.complete and applied.weights_problem is None)
        if not in_force or findings.conflict is not None:
            made_from = None
        if self._registry.get(policy.key) is not policy:
            return True  # deleted meanwhile
        with self._metrics.stage("report"):
            self._reporter.report(policy, findings, outcome, applied, policy.deployments_in(self._cache), made_from)
        return error is None and not (applied is not None and applied.failed)

    async def _apply(self, policy: Policy, outcome: Outcome, findings: Findings) -> Applied:
        """Write the decision; between two actions also the replicas that an earlier decision left for later.

        An action decides anew, and so does an edit; pending replicas wait while a signal is unknown.
        """
        decision, traffic = outcome.decision, policy.traffic
        assert decision is not None
        if traffic.pending and outcome.entry.kind == "floor" and not findings.problems:
            same = traffic.generation == policy.observed.generation
            if same and (again := resumed(outcome, traffic.pending)) is not None:
                # The belief about each pool goes by the weights in force.
                decision, policy.decision.state = again, replace(outcome.state, weights=again.weights)
        return await self._actuator.apply(
            policy, decision, Need.of(outcome.entry.params, outcome.state, outcome.entry.samples)
        )

    async def _resize(self, policy: Policy, findings: Findings, applied: Applied) -> None:
        """Bring the pods nearer to the size that was decided, after the replicas.

        While the policy is paused, only sizes of new pods that must not be in force any more are taken away.
        """
        sizing = None if findings.paused else policy.decision.sizing
        sizes = await self._sizer.apply(policy, {} if sizing is None else sizing.sizes, findings.sized_by)
        applied.sizes = sizes
        findings.limits += sizes.problems
        findings.warnings += sizes.problems

    def _still_wanted(self, policy: Policy, outcome: Outcome) -> bool:
        """Return whether this is still the policy of the decision: it may have been edited or deleted meanwhile."""
        same = policy.running and policy.observed.generation == outcome.entry.generation
        same = same and policy.standing.acts(policy.observed.claim, self._shards.lease)
        return same and self._registry.get(policy.key) is policy and self._shards.of(policy.key).held

    async def report_idle(self, policy: Policy) -> None:
        """Report a policy that is switched off or invalid, once."""
        findings = await self._diagnostician.diagnose(policy, None)
        findings.warnings += await self._sizer.withdraw(policy)
        if self._registry.get(policy.key) is policy:
            self._reporter.report(policy, findings, None, None, {}, None)


def _internal(error: Exception) -> Problem:
    if isinstance(error, FenceError | ShareError):
        return Problem(error.reason, str(error))
    return Problem("InternalError", f"the operator failed: {error!r}")
