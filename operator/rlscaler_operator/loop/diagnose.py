"""Diagnosing how a policy stands: missing targets and signals, other scalers of its targets, pauses and limits."""

from __future__ import annotations

import math
import time

import numpy as np

from rlscaler_core.decision.batch import Outcome
from rlscaler_core.decision.belief import believed, below_declared
from rlscaler_core.decision.types import POOLS, Flag
from rlscaler_core.decision.units import LOADS
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.kinds import for_kubectl, is_other, titled
from rlscaler_operator.cluster.kube import FIELD_MANAGER, Kube, object_path
from rlscaler_operator.exceptions import KubeError
from rlscaler_operator.sensing.measure import missing_signals, pauses
from rlscaler_operator.sensing.results import Reading
from rlscaler_operator.shadow.verdict import demoted, writes
from rlscaler_operator.state.clock import unix_now
from rlscaler_operator.state.findings import Findings, Problem
from rlscaler_operator.state.keda import keda_fallback
from rlscaler_operator.state.ownership import Conflict, ForeignWrites, declared, find_sizer, remedy, tool_of, who
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.registry import Registry

HOLDERS = {
    "HorizontalPodAutoscaler": ("autoscaling/v2", "horizontalpodautoscalers"),
    "ScaledObject": ("keda.sh/v1alpha1", "scaledobjects"),
    "VerticalPodAutoscaler": ("autoscaling.k8s.io/v1", "verticalpodautoscalers"),
    "RLScalingPolicy": ("rlscaler.io/v1alpha1", "rlscalingpolicies"),
}
"""API version and plural of the kinds of objects that can hold a target."""

ASK_AGAIN_SECONDS = 60.0
"""Pause between two checks whether the object of a conflict still exists."""


class Diagnostician:
    """Makes the findings that conditions are built from. It writes `Policy.ownership`."""

    def __init__(self, kube: Kube, cache: WatchCache, registry: Registry, lease: str = "") -> None:
        """`lease` is the name of the own Lease for operators with another one."""
        self._kube, self._cache, self._registry, self._lease = kube, cache, registry, lease

    async def diagnose(self, policy: Policy, outcome: Outcome | None) -> Findings:
        """Return the findings of this tick. `outcome` is None where nothing was decided."""
        if policy.observed.parsed is None:
            return Findings(mode="Auto", problems=[Problem("InvalidSpec", policy.observed.invalid)])
        findings = Findings(mode=policy.spec.mode)
        if not policy.running:
            return findings
        findings.problems = self._problems(policy)
        findings.acts = acts(policy)
        findings.other = await self._other(policy, findings)
        findings.by_cpu = keda_fallback(policy.facts.claim, self._cache)
        findings.waiting = self._registry.waiting(policy)
        findings.operator = policy.standing.other(policy.observed.claim, self._lease, time.monotonic())
        findings.declared = declared(policy.facts.claim, self._cache)
        findings.paused = pauses(policy.observed.annotations)[3]
        findings.promotion = policy.promotion.status
        if outcome is not None:
            self._diagnose_outcome(policy, outcome, findings)
        findings.off, findings.all_off = _off(policy), len(policy.decision.off) == len(policy.facts.targets)
        findings.limits += _refused(policy) + self._rollouts(policy)
        await self._sizers(policy, findings)
        if policy.decision.stream is not None:
            findings.limits += [Problem(*note) for note in policy.decision.stream.notes]
        if policy.decision.actor is not None and policy.decision.actor_error is not None:
            text = f"{policy.decision.actor_error}; the model that was loaded before goes on"
            findings.model = Problem(policy.decision.actor_error.reason, text)
        return findings

    def _problems(self, policy: Policy) -> list[Problem]:
        deployments = policy.deployments_in(self._cache)
        problems = [
            self._missing(str(policy.deployments[POOLS.index(pool)]), pool)
            for pool, deployment in deployments.items()
            if deployment is None
        ]
        if problems:
            return problems
        if len(policy.decision.off) == len(deployments):
            return problems
        if policy.decision.actor is None and policy.decision.actor_error is not None:
            problems.append(Problem(policy.decision.actor_error.reason, str(policy.decision.actor_error)))
        off = policy.decision.off
        present = (
            deployments.get("gpu") is not None and "gpu" not in off,
            deployments.get("cpu") is not None and "cpu" not in off,
        )
        replicas = tuple(d.replicas if (d := deployments.get(pool)) else 0 for pool in POOLS)
        missing = missing_signals(
            policy.decision.readings, present, (replicas[0], replicas[1]), policy.spec.metrics.max_age_seconds
        )
        return problems + _unknown(missing)

    def _missing(self, target: str, pool: str) -> Problem:
        if self._cache.kinds.of(target) is None:
            text = (
                f"{target} (spec.targets.{pool}) is of a kind that the operator does not watch: ask its administrator "
                "for targetKinds of the chart"
            )
            return Problem("TargetKindNotEnabled", text)
        field = f"spec.targets.{pool}.{'name' if is_other(target) else 'deployment'}"
        reason = "TargetMissing" if is_other(target) else "DeploymentMissing"
        return Problem(reason, f"{titled(target)} ({field}) does not exist: create it, or correct the name")

    def _rollouts(self, policy: Policy) -> list[Problem]:
        deployments = policy.deployments_in(self._cache)
        return [
            Problem(
                "RolloutInProgress",
                f"{titled(name)} is being rolled out: nothing is scaled down until its old pods are gone; see "
                f"kubectl -n {policy.key[0]} rollout status {for_kubectl(name)}",
            )
            for name, deployment in zip(filter(None, policy.deployments), deployments.values(), strict=True)
            if deployment is not None and deployment.rolling
        ]

    async def _other(self, policy: Policy, findings: Findings) -> Conflict | None:
        """Return the other scaler of the targets. Foreign writers are looked for where the policy writes."""
        ownership, conflict = policy.ownership, self._registry.conflict(policy, self._cache)
        if conflict is not None and self._may_ask(policy, conflict) and await self._is_gone(policy.key[0], conflict):
            conflict = self._registry.conflict(policy, self._cache)
        ownership.holder = None if conflict is None else conflict.holder
        if conflict is None and findings.acts:
            return self._foreign(policy, findings)
        for name, foreign in ownership.foreign.items():
            if (deployment := self._cache.deployments.get((policy.key[0], name))) is not None:
                foreign.adopt(deployment)
        return conflict

    def _may_ask(self, policy: Policy, conflict: Conflict) -> bool:
        """Return whether to check a conflict: a new one at once, a known one now and then, as its end may be missed."""
        now, ownership = time.monotonic(), policy.ownership
        if ownership.holder == conflict.holder and now - ownership.holder_asked_at < ASK_AGAIN_SECONDS:
            return False
        ownership.holder_asked_at = now
        return True

    async def _is_gone(self, namespace: str, conflict: Conflict) -> bool:
        """Return whether the object of a conflict is gone: an interrupted watch may have missed its deletion."""
        if conflict.holder is None:
            return False
        kind, name = conflict.holder
        try:
            await self._kube.get(object_path(*HOLDERS[kind], namespace, name))
        except KubeError as error:
            if error.status != 404:
                return False
            if kind == "RLScalingPolicy":
                self._registry.drop((namespace, name))
            elif kind == "VerticalPodAutoscaler":
                self._cache.verticals.drop((namespace, name))
            else:
                self._cache.autoscalers.drop(kind, (namespace, name))
            return True
        return False

    async def _sizers(self, policy: Policy, findings: Findings) -> None:
        """Find other sizers of pods that have a range; where the policy would size them, it leaves them alone."""
        asked_at = policy.ownership.sizers_asked_at
        for pool, key in policy.facts.targets:
            target, conflict = policy.spec.targets.pool(pool), find_sizer(key, self._cache)
            if target is None or target.resources is None or conflict is None or conflict.holder is None:
                continue
            now, last = time.monotonic(), asked_at.get(conflict.holder, -math.inf)
            if now - last >= ASK_AGAIN_SECONDS:
                asked_at[conflict.holder] = now
                if await self._is_gone(key[0], conflict):
                    continue
            if target.resources.mode == "InPlace" and findings.acts:
                instead = f"or set {_resources(pool)}.mode Recommend"
                text = f"{conflict.fact}, which are left to it: {conflict.remedy}, {instead}"
                findings.limits.append(Problem(conflict.reason, text))
                findings.sized_by[pool] = conflict
            else:
                text = f"{conflict.fact}; before mode Auto with {_resources(pool)}.mode InPlace {conflict.remedy}"
            findings.warnings.append(Problem(conflict.reason, text))

    def _foreign(self, policy: Policy, findings: Findings) -> Conflict | None:
        now = unix_now()
        for name in filter(None, policy.deployments):
            deployment = self._cache.deployments.get((policy.key[0], name))
            if deployment is None:
                continue
            foreign = policy.ownership.foreign.setdefault(name, ForeignWrites(deployment.replicas))
            manager = foreign.look(deployment, FIELD_MANAGER, policy.spec.interval_seconds, now)
            if manager is not None:
                text = f"{who(manager)} set {deployment.replicas} replicas of {titled(name)}: taken as the new base"
                text += f"; so that it does not happen again: {remedy(manager)}" if tool_of(manager) else ""
                findings.warnings.append(Problem("ReplicasAdopted", text))
            if (conflict := foreign.conflict(name, now)) is not None:
                return conflict
        return None

    def _diagnose_outcome(self, policy: Policy, outcome: Outcome, findings: Findings) -> None:
        params = believed(outcome.entry.params, outcome.state)
        unknown = np.isnan(params.requests_per_second[0]) & params.present[0]
        findings.capacity_unknown = tuple(pool for i, pool in enumerate(POOLS) if unknown[i])
        findings.capacity_fields = tuple(policy.spec.per_replica_field(pool) for pool in findings.capacity_unknown)
        findings.unit = policy.spec.capacity.unit
        findings.capacity_below = _below(policy, outcome)
        if outcome.decision is not None:
            flags = policy.decision.action_flags | int(outcome.decision.flags[0])
            findings.limits = _limits(policy, flags)
            findings.limits += self._stuck(policy, outcome) if flags & Flag.PENDING else []
        if policy.decision.action_flags & Flag.OUT_OF_ENVELOPE:
            findings.outside = policy.decision.outside or "not like the training of the model"
        if policy.decision.action_flags & Flag.FALLBACK:
            findings.fallback = self._why_fallback(policy, findings)
        findings.holding = bool(policy.decision.action_flags & Flag.HELD_UNKNOWN)

    def _stuck(self, policy: Policy, outcome: Outcome) -> list[Problem]:
        """Return why the replicas of a pool do not come up, in Kubernetes' words; a refused pod has none of its own."""
        samples, params, budget = outcome.entry.samples, outcome.entry.params, policy.decision.budget
        both = len(policy.facts.targets) == 2
        stuck = []
        for pool, key in policy.facts.targets:
            i = POOLS.index(pool)
            if samples.pending_seconds[0, i] <= params.pending_seconds[0, i]:
                continue
            target = self._cache.deployments.get(key)
            refused = "" if target is None else target.refused
            text = (
                f"pods of {titled(key[1])} do not come up within guards.pendingSeconds: "
                f"{'the other pool takes what they would have carried' if both else 'nothing replaces them'}; "
            )
            text += refused or self._cache.words(key) or f"see kubectl -n {key[0]} describe {for_kubectl(key[1])}"
            if budget and not refused:
                text += (
                    f"; where no node has room, RLScalingBudget {budget} grants more than there is: lower its "
                    f"amount, or count it with amountFrom"
                )
            stuck.append(Problem("PodsRefused" if refused else "PodsPending", text))
        return stuck

    def _why_fallback(self, policy: Policy, findings: Findings) -> Problem:
        behavior = policy.spec.fallback.behavior
        if demoted(policy.spec.mode, policy.promotion.status):
            return Problem("Demoted", "the HPA formula decides: see the condition Active")
        actor = policy.decision.actor
        by_rule = actor is not None and actor.manifest.lasting  # then its rule acts outside, and that is no fallback
        if policy.decision.action_flags & Flag.OUT_OF_ENVELOPE and not by_rule:
            return Problem(
                "OutOfEnvelope",
                f"fallback {behavior}: {findings.outside}",
            )
        if findings.problems:
            return Problem(findings.problems[0].reason, f"fallback {behavior}: see the condition Ready")
        return Problem("ActorFailed", f"fallback {behavior}: until the next action")


def _resources(pool: str) -> str:
    return f"spec.targets.{pool}.resources"


def acts(policy: Policy) -> bool:
    """Return whether decisions are to be written by mode and promotion. Before the first decision the spec says so."""
    if policy.promotion.status is None:
        return policy.spec.mode == "Auto" and policy.spec.promotion.require == "None"
    return writes(policy.spec.mode, policy.promotion.status)


def _unknown(missing: list[tuple[str, Reading]]) -> list[Problem]:
    """Return one problem for all signals that are unknown for one reason, so that its remedy is said once."""
    signals: dict[Problem, list[str]] = {}
    for signal, reading in missing:
        signals.setdefault(Problem(reading.reason, reading.message), []).append(signal)
    return [
        Problem(why.reason, f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} unknown: {why.message}")
        for why, names in signals.items()
    ]


def _off(policy: Policy) -> list[Problem]:
    """Return the pools that are turned off, and how to turn each on."""
    return [
        Problem(
            "ScalingDisabled",
            f"{titled(key[1])} has 0 replicas that rlscaler did not set: the {pool} pool is off; turn it on with "
            f"kubectl -n {key[0]} scale {for_kubectl(key[1])} --replicas=1",
        )
        for pool, key in policy.facts.targets
        if pool in policy.decision.off
    ]


def _below(policy: Policy, outcome: Outcome) -> Problem | None:
    """Return the pools whose measured capacity is below the declared one, with both numbers."""
    params, unit = outcome.entry.params, LOADS[policy.spec.capacity.unit]
    measured, declared = believed(params, outcome.state).requests_per_second[0], params.requests_per_second[0]
    texts = [
        f"a replica of {pool} carries {measured[i]:.2g} {unit} as measured, and spec."
        f"{policy.spec.per_replica_field(pool)} says {declared[i]:g}: decisions go by the measurement; set the field "
        "to it, or find out why replicas are slower"
        for i, pool in enumerate(POOLS)
        if below_declared(params, outcome.state)[0, i]
    ]
    return Problem("Measured", "; ".join(texts)) if texts else None


def _refused(policy: Policy) -> list[Problem]:
    """Return the targets whose replicas the API server refuses to set, in its words."""
    both, now = len(policy.facts.targets) == 2, time.monotonic()
    instead = "the other pool takes the rest" if both else "nothing replaces them"
    return [
        Problem("ScaleRefused", f"the API server refuses replicas: {refusal.words}; {instead} until it takes them")
        for name, refusal in policy.ownership.refusals.items()
        if name in policy.deployments and refusal.holds(now)
    ]


def _limits(policy: Policy, flags: int) -> list[Problem]:
    """Return the limits that keep the pools from the requested replicas, at this tick or at the last action."""
    limits, budgets, budget = [], policy.decision.budgets, policy.decision.budget
    if len(budgets) > 1:
        names = ", ".join(budgets)
        text = f"RLScalingBudgets {names} select this policy, and {budget} alone acts on it: take it out of all but one"
        limits.append(Problem("InSeveralBudgets", text))
    if budget and budget not in budgets:
        text = (
            f"RLScalingBudget {budget} selects this policy no more, and acts on it without a guarantee until no more "
            "than minReplicas run; an edit of the budget lets it go at once"
        )
        limits.append(Problem("BudgetLeft", text))
    if policy.decision.unguaranteed:
        text = (
            f"RLScalingBudget {budget}: the guarantees of all policies together exceed the amount, and those of others "
            "came first: raise the amount, or lower guarantees"
        )
        limits.append(Problem("GuaranteeNotGiven", text))
    if flags & Flag.GRANT_LIMITED and budget:
        text = f"RLScalingBudget {budget} grants no more: kubectl get rlsb {budget} -o yaml says why"
        limits.append(Problem("GrantLimited", text))
    if flags & Flag.BUDGET_LIMITED:
        text = "guards.budgetPerHour refuses what was asked for: raise it, or lower targets.*.minReplicas"
        limits.append(Problem("BudgetLimited", text))
    if flags & Flag.THROUGHPUT:
        text = (
            "more consumers processed less together, so the last scale-up was undone and none is added for ten "
            "minutes: see what they share, such as a database; rlscaler explain has the figures"
        )
        limits.append(Problem("ThroughputFell", text))
    return limits
