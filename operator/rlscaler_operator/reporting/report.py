"""Reporting one tick of one policy: conditions and Events, status, audit line, metrics."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rlscaler_operator.api import PLURAL, Condition, Status
from rlscaler_operator.decisions import Outcome
from rlscaler_operator.exceptions import KubeError, LeaseLostError
from rlscaler_operator.kube import Kube, object_path
from rlscaler_operator.lanes import Lane, Lanes
from rlscaler_operator.policies import Policy
from rlscaler_operator.reporting import audit, findings, measures, record, status
from rlscaler_operator.reporting.events import Events
from rlscaler_operator.reporting.findings import Findings
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.reporting.stabilization import to_status
from rlscaler_operator.sensing.cache import Deployment, Key
from rlscaler_operator.sensing.measure import missing_signals
from rlscaler_operator.settings import Settings
from rlscaler_operator.shards import Shards
from rlscaler_rl.decision.types import POOLS, Decision

if TYPE_CHECKING:
    from rlscaler_operator.actuation.apply import Applied

log = logging.getLogger("rlscaler.report")

Found = Mapping[str, Deployment | None]

RETRY_SECONDS = 5.0

GOOD_WHEN_TRUE = {"Ready", "Active"}
"""Other conditions are bad news when True."""

QUIET_REASONS = {"ModeShadow", "ModeOff", "NotNeeded", "NotPaused", "NoConflict", "Holding"}
"""Reasons that are no news by themselves."""


class Reporter:
    """Writes what people and tools see. Keeps nothing but what is in the Policy."""

    def __init__(
        self,
        kube: Kube,
        shards: Shards,
        lanes: Lanes,
        settings: Settings,
        events: Events,
        metrics: Metrics,
        forget: Callable[[Key, str], None],
    ) -> None:
        self._forget = forget
        self._kube, self._shards, self._lanes, self._settings = kube, shards, lanes, settings
        self._events, self._metrics = events, metrics
        self._audit = audit.AuditLog(settings, metrics.audit_lost.inc)

    def close(self) -> None:
        self._audit.close()

    def stale(self, policy: Policy, now: float) -> bool:
        """Does a policy that is not running need a report? Not more than one in `RETRY_SECONDS`."""
        if now - policy.reported_at < RETRY_SECONDS:
            return False
        return policy.status.get("observedGeneration") != policy.generation or policy.written_at == float("-inf")

    async def report(
        self, policy: Policy, found: Findings, outcome: Outcome | None, applied: Applied | None, deployments: Found
    ) -> bool:
        """Report one tick. False where the status could not be written: it is tried again at the next one."""
        policy.reported_at = time.monotonic()
        now = datetime.now(UTC)
        before = policy.conditions
        policy.conditions, changed = findings.update(before, found, policy.generation, now)
        if outcome is not None and outcome.decision is not None:
            self._record(policy, found, outcome, outcome.decision, applied, now.timestamp())
        self.measure(policy, outcome, deployments)
        if applied is not None:
            measures.written(self._metrics, policy, applied)
        await self._post(policy, found, before, changed, applied)
        return await self._write(policy, outcome, deployments)

    def _record(
        self,
        policy: Policy,
        found: Findings,
        outcome: Outcome,
        decision: Decision,
        applied: Applied | None,
        now: float,
    ) -> None:
        """Keep and log every action, and what the floor changed between actions."""
        kind, changes = outcome.entry.kind, bool((decision.desired != decision.base).any())
        auto = policy.spec.mode == "Auto"
        if kind == "action" or changes or auto or not policy.desired:
            policy.desired = {pool: int(decision.desired[0, i]) for i, pool in enumerate(POOLS)}
        if outcome.observation is not None:
            policy.observation = status.observation_status(outcome.observation, now)
        if kind != "action" and not changes:
            return
        decision_id = audit.uuid7(now)
        in_force = applied is not None and applied.complete
        result = applied.result() if applied else ""
        params = outcome.entry.params
        policy.last = status.decision_status(decision_id, now, decision, params, in_force, result)
        policy.history = status.with_history(policy.history, policy.last)
        self._log(policy, outcome, decision_id, now, found.conflict.reason if found.conflict else None, applied)

    def unfinished(self, policy: Policy, outcome: Outcome | None) -> None:
        """Log a decision whose writes did not come to an end, where it is not logged yet."""
        if outcome is not None and outcome.decision is not None and not outcome.recorded:
            now = time.time()
            self._log(policy, outcome, audit.uuid7(now), now, None, None, finished=False)

    def _log(
        self,
        policy: Policy,
        outcome: Outcome,
        decision_id: str,
        now: float,
        conflict: str | None,
        applied: Applied | None,
        *,
        finished: bool = True,
    ) -> None:
        outcome.recorded = True
        if not self._audit.enabled:
            return
        promotion = None if policy.promotion is None else policy.promotion.state
        subject = record.Subject(*policy.key, policy.uid, policy.generation, policy.spec.mode, promotion)
        missing = [signal for signal, _ in self._missing(policy, outcome)]
        self._audit.write(
            partial(record.line, decision_id, now, subject, outcome, missing, conflict, applied, finished=finished)
        )

    def _missing(self, policy: Policy, outcome: Outcome) -> list[Any]:
        replicas = outcome.entry.samples.spec_replicas[0]
        present = outcome.entry.params.present[0]
        return missing_signals(
            policy.readings,
            (bool(present[0]), bool(present[1])),
            (int(replicas[0]), int(replicas[1])),
            policy.spec.metrics.max_age_seconds,
        )

    def measure(self, policy: Policy, outcome: Outcome | None, deployments: Found) -> None:
        """Bring the policy's own metrics up to date."""
        missing = self._missing(policy, outcome) if outcome is not None and outcome.decision is not None else []
        measures.measure(self._metrics, policy, outcome, missing, deployments)

    def measure_again(self, policy: Policy, outcome: Outcome) -> None:
        """The same after a tick that found nothing new."""
        measures.again(self._metrics, policy, outcome, self._missing(policy, outcome))

    async def _post(
        self,
        policy: Policy,
        found: Findings,
        before: list[Condition],
        changed: list[Condition],
        applied: Applied | None,
    ) -> None:
        known = {condition.type for condition in before}
        for condition in changed:
            bad = (condition.status == "True") != (condition.type in GOOD_WHEN_TRUE)
            if not bad:
                if condition.type in known and condition.reason not in QUIET_REASONS:
                    await self._events.post(policy.reference, "Normal", condition.reason, condition.message)
                for old in before:
                    if old.type == condition.type:
                        self._events.forget(policy.reference, old.reason)
                self._events.forget(policy.reference, condition.reason)
            elif condition.reason not in QUIET_REASONS and condition.type != "Active":
                await self._events.post(policy.reference, "Warning", condition.reason, condition.message)
        problems = [*found.warnings, *([found.placement_problem] if found.placement_problem else [])]
        for problem in problems:
            await self._events.post(policy.reference, "Warning", problem.reason, problem.message)
        for pool, write in applied.writes.items() if applied else ():
            if write.applied:
                await self._events.post(policy.reference, "Normal", "Scaled", f"{pool} {write.message}")
            elif write.outcome == "Failed":
                await self._events.post(policy.reference, "Warning", "ScaleFailed", f"{pool} {write.message}")

    def _build(self, policy: Policy, outcome: Outcome | None, deployments: Found, now: float) -> dict[str, Any]:
        parts: dict[str, Any] = {"observed_generation": policy.generation, "conditions": policy.conditions}
        parts |= {"observation": policy.observation, "last_decision": policy.last, "history": policy.history}
        parts |= {"originals": policy.originals, "learned": policy.learned, "promotion": policy.promotion}
        if policy.parsed is not None:
            parts |= status.measured(policy.spec.slo.percentile, policy.latency, policy.actor)
        if policy.parsed is not None and deployments:
            names = {pool: name for pool, name in zip(POOLS, policy.deployments, strict=True) if name}
            parts["targets"] = status.targets_status(names, deployments, policy.desired)
        if outcome is not None and outcome.decision is not None:
            params, decision = outcome.entry.params, outcome.decision
            current = outcome.entry.samples.spec_replicas[0] * params.present[0]
            if applied_now := [d.replicas for d in deployments.values() if d is not None]:
                current = np.array(applied_now) if len(applied_now) == 2 else current
            route = policy.spec.placement.http_route
            parts["cost_per_hour"] = round(float(current @ params.cost_per_hour[0]), 4)
            parts["placement"] = status.placement_status(
                int(decision.placement[0]), decision.weights[0], route.name if route else None
            )
            parts["stabilization"] = to_status(
                outcome.state, params, now, {pool: d.replicas for pool, d in deployments.items() if d is not None}
            )
        built = Status(**{name: value for name, value in parts.items() if value is not None}).to_dict()
        for name in ("costPerHour", "placement", "stabilization", "targets"):
            if outcome is None and name in policy.status and name not in built:
                built[name] = policy.status[name]
        return built

    async def _write(self, policy: Policy, outcome: Outcome | None, deployments: Found) -> bool:
        now = time.monotonic()
        built = self._build(policy, outcome, deployments, time.time())
        due = now - policy.written_at >= self._settings.status_interval_seconds
        if not due and status.significant(built) == status.significant(policy.status):
            return True
        patch = status.merge_patch(policy.status, built)
        if not patch:
            policy.written_at = now
            return True
        path = object_path("rlscaler.io/v1alpha1", PLURAL, *policy.key, "status")
        try:
            async with self._lanes.enter(Lane.REPORT):
                timeout = partial(self._shards.of(policy.key).write_timeout, self._settings.write_timeout_seconds)
                await self._kube.patch(path, {"status": patch}, timeout_seconds=timeout)
        except (KubeError, LeaseLostError) as error:
            if not (isinstance(error, KubeError) and error.status == 404 and await self._is_gone(policy)):
                log.warning("%s/%s: status was not written: %s", *policy.key, error)
            self._metrics.status_writes.labels("Failed").inc()
            return False
        self._metrics.status_writes.labels("Written").inc()
        policy.status, policy.written_at = built, now
        return True

    async def _is_gone(self, policy: Policy) -> bool:
        """A watch that was interrupted may have missed the deletion."""
        try:
            found = await self._kube.get(object_path("rlscaler.io/v1alpha1", PLURAL, *policy.key))
        except KubeError as error:
            gone = error.status == 404
        else:
            gone = found["metadata"].get("uid") != policy.uid
        if gone:
            self._forget(policy.key, policy.uid)
        return gone
