"""Preflight of the objects that a policy names: Deployments, other scalers of them, the route, the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median

from rlscaler_operator.actuation.weights import read_splits
from rlscaler_operator.cli.checks import Check
from rlscaler_operator.cli.preflight.look import Look
from rlscaler_operator.cluster.bodies import Key, deployment_of_pod, start_seconds
from rlscaler_operator.cluster.cache import COLD_STARTS_NEEDED
from rlscaler_operator.cluster.kinds import for_kubectl, is_other, titled
from rlscaler_operator.cluster.kube import Json
from rlscaler_operator.state.ownership import AUTOSCALERS, SIZED, declared

IN_SHADOW = ", or set this policy to mode Shadow"
"""End of a remedy, pointless for a policy in Shadow."""


def check_targets(look: Look) -> Iterator[Check]:
    """Yield the checks of everything that the policy names in its namespace."""
    yield from _deployments(look)
    yield _conflict(look)
    if look.findings.by_cpu:
        yield Check("KEDA's HorizontalPodAutoscaler goes by this policy", look.findings.by_cpu, "keda")
    yield _owners(look)
    yield from _sizers(look)
    if look.policy.facts.backends is not None:
        yield _route(look)
    yield _model(look)
    if look.outcome is not None:
        yield _envelope(look)


def cold_starts(pods: list[Json], target: Key, of: Callable[[Json], Key | None] = deployment_of_pod) -> list[float]:
    """Return the seconds from creation to ready of the ready pods of a target; `of` returns the target of a pod."""
    starts = (start_seconds(pod) for pod in pods if of(pod) == target)
    return [seconds for seconds in starts if seconds is not None]


def _deployments(look: Look) -> Iterator[Check]:
    cache, spec = look.context.engine.cache, look.policy.spec
    deployments = look.policy.deployments_in(cache)
    for pool, key in look.policy.facts.targets:
        target, field = spec.targets.pool(pool), f"spec.targets.{pool}"
        deployment = deployments[pool]
        title = f"{titled(key[1])} ({field}.{'name' if is_other(key[1]) else 'deployment'})"
        if cache.kinds.of(key[1]) is None:
            text = "its kind is not scaled: add it to targetKinds of the chart, and to RLSCALER_TARGET_KINDS here"
            yield Check(title, text, f"deployment-{pool}")
            continue
        if deployment is None or target is None:
            names = ", ".join(sorted(name for space, name in cache.deployments if space == key[0]))
            text = f"it does not exist in {key[0]} (there are: {names or 'none'}): create it, or correct the name"
            yield Check(title, text, f"deployment-{pool}")
            continue
        title = f"{title}: {deployment.ready} of {deployment.replicas} replicas ready"
        trouble = ""
        if not target.min_replicas <= deployment.replicas <= target.max_replicas:
            trouble = (
                f"{deployment.replicas} replicas are not within {target.min_replicas} to {target.max_replicas}: Auto "
                f"brings them there; adjust {field}.minReplicas or maxReplicas"
            )
        elif pool in look.policy.decision.off:
            trouble = f"0 replicas turn the pool off: kubectl -n {key[0]} scale {for_kubectl(key[1])} --replicas=1"
        yield Check(title, trouble, f"deployment-{pool}", stops=False)
        yield _cold_start(look, pool, key)


def _cold_start(look: Look, pool: str, key: Key) -> Check:
    target, about = look.policy.spec.targets.pool(pool), f"cold-start-{pool}"
    starts = cold_starts(look.pods, key, look.context.engine.cache.target_of_pod)
    measured = f"{median(starts):.0f} s by pods that are ready now ({len(starts)})" if starts else ""
    declared = target.cold_start_seconds if target is not None else None
    if declared is None:
        title = f"cold start of {key[1]}: {measured or 'no pod says how long it took'}"
        trouble = (
            f"it is not set and is learned from {COLD_STARTS_NEEDED} pods that are seen to start: set "
            f"spec.targets.{pool}.coldStartSeconds{f': {median(starts):.0f}' if starts else ''}"
        )
        return Check(title, trouble, about, stops=False)
    title = f"cold start of {key[1]}: {declared:g} s are set" + (f", {measured}" if measured else "")
    trouble = ""
    # Within a factor of two the forecast looks ahead far enough; pods that start at once count as one second.
    if starts and not declared / 2 <= max(median(starts), 1.0) <= 2 * declared:
        trouble = f"the pods took {median(starts):.0f} s: correct spec.targets.{pool}.coldStartSeconds"
    return Check(title, trouble, about, stops=False)


def _conflict(look: Look) -> Check:
    title, other = "nothing else scales the targets", look.findings.other
    if other is None:
        return Check(title, about="conflict")
    if look.findings.acts:
        return Check(title, other.message, "conflict")
    remedy = other.remedy.removesuffix(IN_SHADOW)
    return Check(f"{other.fact}; in Shadow nothing is patched. Before mode Auto: {remedy}", about="conflict")


def _owners(look: Look) -> Check:
    """Check that no tool declares the replicas; an autoscaler is reported as a conflict already."""
    cache, claim = look.context.engine.cache, look.policy.facts.claim
    scaled = look.findings.other is not None
    names = [
        name
        for name in claim.deployments
        if (deployment := cache.deployments.get((claim.namespace, name))) is not None
        and not (scaled and deployment.manager.startswith(AUTOSCALERS))
    ]
    text = declared(claim._replace(deployments=tuple(names)), cache)
    return Check("no tool declares the replicas", text, "owners", stops=False)


def _sizers(look: Look) -> Iterator[Check]:
    """Check that nothing else sizes the pods of a policy that has a range for their size."""
    targets = (look.policy.spec.targets.pool(pool) for pool, _ in look.policy.facts.targets)
    if any(target is not None and target.resources is not None for target in targets):
        troubles = [warning.message for warning in look.findings.warnings if warning.reason == SIZED]
        yield Check("nothing else sizes the pods", "; ".join(troubles), "sizers", stops=False)


def _route(look: Look) -> Check:
    backends = look.policy.facts.backends
    assert backends is not None
    key, services = backends
    _, problem = read_splits(look.context.engine.cache, key, services)
    title = f"HTTPRoute {key[1]} splits between {services[0]} and {services[1]} (spec.placement.httpRoute)"
    return Check(title, problem.message if problem else "", "route")


def _model(look: Look) -> Check:
    decision, spec = look.policy.decision, look.policy.spec
    config_map, path = spec.policy.config_map, str(spec.policy.path)
    named = spec.bundled_policy or (f"ConfigMap {config_map.name}" if config_map else path)
    trouble = ""
    if decision.actor_error is not None:
        trouble = str(decision.actor_error)
    elif decision.actor is None and look.outcome is not None:
        trouble = "it was not loaded in time: try again"
    return Check(f"the model is there (spec.policy: {named})", trouble, "model")


def _envelope(look: Look) -> Check:
    outcome, actor = look.outcome, look.policy.decision.actor
    assert outcome is not None
    trouble, by_rule = "", actor is not None and actor.manifest.lasting
    if outcome.outside:
        behavior = look.policy.spec.fallback.behavior
        instead = "the forecast rule alone decides" if by_rule else f"spec.fallback.behavior {behavior} would decide"
        trouble = (
            f"{outcome.outside}; {instead}: name policy.bundled rule, or train for this service (`rlscaler train "
            "--for`)"
        )
    return Check("the service lies within the envelope of the model's training", trouble, "envelope", stops=not by_rule)
