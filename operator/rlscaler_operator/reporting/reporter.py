"""Report of one tick of one policy: conditions and Events, status, audit line, metrics."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np

from rlscaler_core.api import Condition, Status
from rlscaler_core.api.status import SLOStatus
from rlscaler_core.api.status_memory import PodSizes
from rlscaler_core.decision.batch import Outcome
from rlscaler_core.decision.forecaster.memory import is_kept
from rlscaler_core.decision.forecaster.storage import to_text
from rlscaler_core.decision.types import POOLS, Decision, Params, State, observations
from rlscaler_core.decision.units import UNITS
from rlscaler_core.vertical.storage import to_text as to_text_of_sizes
from rlscaler_operator.actuation.apply import Applied
from rlscaler_operator.cluster.bodies import Deployment
from rlscaler_operator.cluster.events import Event, Events
from rlscaler_operator.records import audit, record
from rlscaler_operator.records.sizing import record_of
from rlscaler_operator.reporting import measures
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.reporting.publish import Publisher
from rlscaler_operator.reporting.stabilization import to_status
from rlscaler_operator.sensing.measure import missing_signals
from rlscaler_operator.settings import Settings
from rlscaler_operator.state import status
from rlscaler_operator.state.clock import unix_now
from rlscaler_operator.state.error_budget import counted_by, slo_status
from rlscaler_operator.state.findings import Findings, update
from rlscaler_operator.state.pod_sizes import status_of
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.report import Revisions

log = logging.getLogger("rlscaler.report")

Deployments = Mapping[str, Deployment | None]

RETRY_SECONDS = 5.0

FORECASTER_SECONDS = 900.0
"""Interval at which forecaster, pod sizes and error budget are put into the status: a restart loses no more."""

GOOD_WHEN_TRUE = {"Ready", "Active"}
"""Conditions that are good news when True; the others are bad news then."""

QUIET_REASONS = {"ModeShadow", "ModeOff", "NotNeeded", "NotPaused", "NoConflict", "NotActing", "Holding"}
"""Reasons for which no Event is posted."""


DECIDED_FIELDS = ("capacity", "costPerHour", "forecaster", "placement", "podSizes", "slo", "stabilization", "targets")
"""Fields of the status that follow from a decision."""


class Reporter:
    """Builds the report of each tick. Its memory of a policy is in `Policy.report`."""

    def __init__(self, settings: Settings, events: Events, metrics: Metrics, publisher: Publisher) -> None:
        self._events, self._metrics, self._publisher = events, metrics, publisher
        self._lease = settings.lease
        self.audit = audit.AuditLog(settings, metrics.audit_lost.inc)

    def close(self) -> None:
        self.audit.close()

    def stale(self, policy: Policy, now: float) -> bool:
        """Return True where a policy that is not running needs a report, at most once in `RETRY_SECONDS`."""
        if now - policy.report.reported_at < RETRY_SECONDS:
            return False
        outbox = policy.outbox
        unseen = outbox.status.get("observedGeneration") != policy.observed.generation
        answer = status.operator_status(self._lease, policy.observed.claim)
        unseen |= outbox.status.get("operator", {}).get("answered") != answer.answered
        # A report also removes `newPods` from the status, by which the size of new pods is set.
        return unseen or outbox.written_at == float("-inf") or bool(policy.observed.new_pods or outbox.lost)

    def report(
        self,
        policy: Policy,
        findings: Findings,
        outcome: Outcome | None,
        applied: Applied | None,
        deployments: Deployments,
        made_from: Revisions | None,
    ) -> None:
        """Report one tick; Events and status are written in the background.

        `made_from` are the revisions behind the findings; None where the next tick has to report again.
        """
        policy.report.reported_at = time.monotonic()
        now = datetime.now(UTC)
        before = policy.report.conditions
        policy.report.conditions, changed = update(before, findings, policy.observed.generation, now)
        if outcome is not None and outcome.decision is not None:
            self._record(policy, findings, outcome, outcome.decision, applied, now.timestamp())
        missing = self._missing(policy, outcome) if outcome is not None and outcome.decision is not None else []
        measures.measure(self._metrics, policy, outcome, missing, deployments)
        if applied is not None:
            measures.written(self._metrics, policy, applied)
        weights = applied.weights if applied is not None else None
        status = self._build(policy, outcome, deployments, weights, unix_now())
        self._publisher.publish(policy, status, self._news(policy, findings, before, changed, applied))
        policy.report.made_from = made_from

    def _record(
        self,
        policy: Policy,
        findings: Findings,
        outcome: Outcome,
        decision: Decision,
        applied: Applied | None,
        now: float,
    ) -> None:
        """Put a decision into status and audit log: every action, and sensing ticks with a change or a write."""
        kind, changes = outcome.entry.kind, bool((decision.desired != decision.base).any())
        if outcome.observation is not None:
            policy.report.observation = status.observation_status(
                outcome.observation, now, observations(outcome.entry.params)
            )
        wrote = applied is not None and any(write.applied for write in applied.writes.values())
        if kind != "action" and not changes and not wrote:
            return
        decision_id = audit.uuid7(now)
        in_force = applied is not None and applied.complete
        result = applied.result() if applied else ""
        params = outcome.entry.params
        policy.report.last = status.decision_status(decision_id, now, decision, params, in_force, result)
        policy.report.history = status.with_history(policy.report.history, policy.report.last)
        self._log(policy, outcome, decision_id, now, findings.conflict.reason if findings.conflict else None, applied)

    def unfinished(self, policy: Policy, outcome: Outcome | None) -> None:
        """Log a decision whose writes did not end, where it is not logged yet; the next tick reports."""
        policy.report.made_from = None
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
        if not self.audit.enabled:
            return
        promotion = None if policy.promotion.status is None else policy.promotion.status.state
        subject = record.Subject(*policy.key, policy.uid, policy.observed.generation, policy.spec.mode, promotion)
        missing = [signal for signal, _ in self._missing(policy, outcome)]
        sizing = policy.decision.sizing if outcome.entry.kind == "action" else None
        make = partial(record.line, decision_id, now, subject, outcome, missing, conflict, applied, finished=finished)
        self.audit.write(make if sizing is None else lambda: {**make(), "sizing": record_of(sizing)})

    def _missing(self, policy: Policy, outcome: Outcome) -> list[Any]:
        replicas = outcome.entry.samples.spec_replicas[0]
        present = outcome.entry.params.present[0]
        return missing_signals(
            policy.decision.readings,
            (bool(present[0]), bool(present[1])),
            (int(replicas[0]), int(replicas[1])),
            policy.spec.metrics.max_age_seconds,
        )

    def measure_quiet(self, policy: Policy, outcome: Outcome) -> None:
        """Update the policy's metrics after a tick without news."""
        measures.measure_quiet(self._metrics, policy, outcome, self._missing(policy, outcome))

    def _news(
        self,
        policy: Policy,
        findings: Findings,
        before: list[Condition],
        changed: list[Condition],
        applied: Applied | None,
    ) -> list[Event]:
        """Return the Events of one tick that are not repetitions."""
        known, about = {condition.type for condition in before}, policy.reference
        news: list[Event | None] = []
        for condition in changed:
            bad = (condition.status == "True") != (condition.type in GOOD_WHEN_TRUE)
            if not bad:
                if condition.type in known and condition.reason not in QUIET_REASONS:
                    news.append(self._events.admit(about, "Normal", condition.reason, condition.message))
                for old in before:
                    if old.type == condition.type:
                        self._events.forget(about, old.reason)
                self._events.forget(about, condition.reason)
            elif condition.reason not in QUIET_REASONS and condition.type != "Active":
                news.append(self._events.admit(about, "Warning", condition.reason, condition.message))
        problems = [*findings.warnings, *([findings.weights_problem] if findings.weights_problem else [])]
        news += [self._events.admit(about, "Warning", problem.reason, problem.message) for problem in problems]
        for pool, write in applied.writes.items() if applied else ():
            if write.applied:
                news.append(self._events.admit(about, "Normal", "Scaled", f"{pool} {write.message}"))
            elif write.outcome in ("Failed", "Refused"):
                reason = f"Scale{write.outcome}"
                news.append(self._events.admit(about, "Warning", reason, f"{pool} {write.message}"))
        resized = applied.sizes.patched if applied else ()
        news += [self._events.admit(about, "Normal", "Resized", text) for text in resized]
        return [event for event in news if event is not None]

    def _build(
        self,
        policy: Policy,
        outcome: Outcome | None,
        deployments: Deployments,
        weights: tuple[int, int] | None,
        now: float,
    ) -> dict[str, Any]:
        """Return the status; `weights` are the written ones, where they differ from those of the decision."""
        parts: dict[str, Any] = {
            "observed_generation": policy.observed.generation,
            "conditions": policy.report.conditions,
            "observation": policy.report.observation,
            "last_decision": policy.report.last,
            "history": policy.report.history,
            "originals": policy.ownership.originals,
            "learned": policy.decision.learned,
            "promotion": policy.promotion.status,
            "budget": policy.decision.membership,
            "operator": status.operator_status(self._lease, policy.observed.claim),
        }
        if policy.observed.parsed is not None:
            parts |= status.measured(policy.spec.slo.percentile, policy.decision.latency, policy.decision.actor)
        if policy.observed.parsed is not None and deployments:
            names = {pool: name for pool, name in zip(POOLS, policy.deployments, strict=True) if name}
            parts["targets"] = status.targets_status(names, deployments, policy.decision.desired)
        if outcome is not None and outcome.decision is not None:
            params, decision = outcome.entry.params, outcome.decision
            current = outcome.entry.samples.spec_replicas[0] * params.present[0]
            written = [deployment.replicas for deployment in deployments.values() if deployment is not None]
            if len(written) == 2:  # in the order of the pools, after the writes of this tick
                current = np.array(written)
            route = policy.spec.placement.http_route
            parts["cost_per_hour"] = round(float(current @ params.cost_per_hour[0]), 4)
            parts["placement"] = status.placement_status(
                int(decision.placement[0]),
                float(outcome.state.preference[0]),
                weights or decision.weights[0],
                route.name if route else None,
            )
            parts["capacity"] = status.capacity_status(params, outcome.state)
            parts["headroom"] = status.headroom_status(outcome.state)
            parts["forecaster"] = _kept_forecaster(policy, params, outcome.state, now)
            parts["pod_sizes"] = _kept_sizes(policy, now)
            parts["slo"] = _kept_slo(policy, outcome, now)
            parts["stabilization"] = to_status(
                outcome.state, params, now, {pool: d.replicas for pool, d in deployments.items() if d is not None}
            )
        built = Status(**{name: value for name, value in parts.items() if value is not None}).to_dict()
        if outcome is None:
            # Nothing was decided: the fields of the last decision stay.
            before = policy.outbox.status
            built = {name: before[name] for name in DECIDED_FIELDS if name in before} | built
        return built


def _kept_forecaster(policy: Policy, params: Params, state: State, now: float) -> str | None:
    """Return the state of the forecaster at most `FORECASTER_SECONDS` before `now` (Unix time)."""
    report, unit, written = policy.report, UNITS[params.unit[0]], policy.outbox.status
    if report.forecaster_unit != unit:
        report.forecaster = written.get("forecaster") if status.unit_of(written) == unit else None
        report.forecaster_unit, report.forecaster_at = unit, -math.inf
    if now - report.forecaster_at >= FORECASTER_SECONDS and is_kept(state.load_recent):
        report.forecaster, report.forecaster_at = to_text(state.load_recent[0], state.load_calendar[0]), now
    return report.forecaster


def _kept_sizes(policy: Policy, now: float) -> PodSizes | None:
    """Return the recommended pod sizes, with the usage seen at most `FORECASTER_SECONDS` before `now`."""
    report, sizing = policy.report, policy.decision.sizing
    if sizing is None:
        report.seen, report.seen_at = None, -math.inf
        return None
    if now - report.seen_at >= FORECASTER_SECONDS:
        report.seen, report.seen_at = to_text_of_sizes(sizing.after), now
    return status_of(sizing, report.seen)


def _kept_slo(policy: Policy, outcome: Outcome, now: float) -> SLOStatus | None:
    """Return the error budget that is left at most `FORECASTER_SECONDS` before `now` (Unix time).

    An edited objective, or one on another latency, shows at once.
    """
    report, slo = policy.report, policy.spec.slo
    before = report.slo
    edited = before is not None and (before.objective != slo.objective or counted_by(before) != counted_by(slo))
    if before is None or edited or now - report.slo_at >= FORECASTER_SECONDS:
        params, samples = outcome.entry.params, outcome.entry.samples
        report.slo = slo_status(params, outcome.state, samples, policy.decision.actor, policy.spec)
        report.slo_at = now
    return report.slo
