"""One tick of the operator for one policy, with its own cache, sensing, decision and diagnosis, that writes nothing.

So preflight reports the same as the operator would: nothing is computed here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlscaler_core.decision.batch import Entry, Outcome, decide_all
from rlscaler_operator.cluster.kube import Json, Kube, listed
from rlscaler_operator.loop.diagnose import Diagnostician
from rlscaler_operator.loop.sense import OwnAnswers
from rlscaler_operator.run.context import Context
from rlscaler_operator.run.watched import PODS
from rlscaler_operator.sensing.access import Access, access_of, own_access
from rlscaler_operator.sensing.measure import samples_of
from rlscaler_operator.sensing.queries import own_queries
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.findings import Findings
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.schedule import Due

LOOK_SECONDS = 1.0
"""Pause between two looks at the brokers."""

MODEL_SECONDS = 60.0
"""Longest wait for a model that is loaded and tried out."""


@dataclass(slots=True)
class Look:
    """Result of one tick."""

    context: Context
    policy: Policy
    access: Access
    findings: Findings
    outcome: Outcome | None
    """None where nothing could be decided: a Deployment is missing."""
    pods: list[Json]
    """All pods of the policy's namespace."""


async def look(kube: Kube, settings: Settings, body: Mapping[str, Any], prometheus_url: str | None) -> Look:
    """Read the namespace and decide once for the policy in `body`.

    `prometheus_url` is where Prometheus is reached from here, whatever the policy names; None = as the policy says.
    Raises OperatorError where the namespace may not be read.
    """
    context = Context(settings, kube)
    engine = context.engine
    await context.prime()
    pods = [pod async for pod in listed(kube, settings.namespaces, "v1", "pods")]
    for pod in pods:
        await context.take_in(context.kinds[PODS], pod)
    policy = engine.registry.put(body)
    await context.read_targets(body)
    try:
        access = await _access(context, policy, prometheus_url)
        outcome = await _decided(context, policy, access)
        findings = await Diagnostician(kube, engine.cache, engine.registry).diagnose(policy, outcome)
    except BaseException:
        await close(context)
        raise
    return Look(context, policy, access, findings, outcome, pods)


async def close(context: Context) -> None:
    await context.engine.sensing.close()


async def _access(context: Context, policy: Policy, prometheus_url: str | None) -> Access:
    """Return the access to Prometheus; Secrets that the policy names are read first."""
    engine = context.engine
    for _ in range(2):
        access = access_of(policy.spec.metrics, policy.key, engine.settings, engine.secrets)
        if access is not None:
            return access if prometheus_url is None or access.refused else replace(access, url=prometheus_url)
        await engine.secrets.refresh()
    text = "its Secrets were not read in time: try again"
    return Access(policy.spec.metrics.prometheus.url or "", refused=("SecretUnavailable", text))


async def _look_at_stream(context: Context, policy: Policy) -> None:
    """Ask the brokers twice: the production rate is the difference of two looks. Secrets are read in between."""
    for _ in range(2):
        looks: OwnAnswers = {}
        context.engine.sensing.look_at_streams([policy], looks)
        await asyncio.gather(*looks.values())
        await context.engine.secrets.refresh()
        await asyncio.sleep(LOOK_SECONDS)


async def _decided(context: Context, policy: Policy, access: Access) -> Outcome | None:
    """Ask Prometheus, prepare and decide, as a batch of one policy."""
    engine = context.engine
    answers = await engine.sensing.ask(access, [policy])
    if policy.spec.signal is not None:
        await _look_at_stream(context, policy)
    if policy.subject.queries:
        own = own_access(access, policy.spec.metrics, policy.key[0], engine.settings)
        sources, queries = engine.sensing.sources, own_queries(policy.subject)
        answers |= (await sources.ask_own(own.access, policy.key[0], queries, own.parameters)).answers
    at = time.monotonic()
    while (prepared := engine.preparer.prepare(policy, Due.ACTION, answers, time.monotonic() - at)) is not None:
        loading = policy.decision.actor is None and policy.decision.actor_error is None
        if not loading or time.monotonic() - at > MODEL_SECONDS:
            break
        await engine.config_maps.refresh()
        await asyncio.sleep(0.2)
    if prepared is None:
        return None
    samples = samples_of([prepared.samples])
    entry = Entry(prepared.params, prepared.state, samples, prepared.kind, prepared.actor, prepared.generation)
    (outcome,) = decide_all([entry])
    policy.decision.decided(outcome)
    return outcome
