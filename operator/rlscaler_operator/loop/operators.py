"""Policies that an operator with another Lease acts for: this one asks it now and then, and changes nothing."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter, Priority
from rlscaler_operator.cluster.events import Events, Reference
from rlscaler_operator.cluster.kube import policy_path
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.exceptions import KubeError, LeaseLostError
from rlscaler_operator.state.operators import OperatorClaim, Standing
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.registry import Registry

log = logging.getLogger("rlscaler.operators")

RETRY_SECONDS = 5.0
"""Pause after a question that could not be written."""


class Questions:
    """Asks in the status of an object whether the operator that acts on it is still there."""

    def __init__(self, shards: Shards, limiter: ConcurrencyLimiter, events: Events) -> None:
        self._shards, self._limiter, self._events = shards, limiter, events

    async def ask(self, standing: Standing, claim: OperatorClaim, about: Reference, path: str, remedy: str) -> bool:
        """Write a question, and an Event that names the operator that acts; return False where that fails."""
        own, number = self._shards.lease, max(claim.asked, claim.answered) + 1
        try:
            async with self._limiter.slot(Priority.REPORT):
                body = {"status": {"operator": {"askedBy": own, "asked": number}}}
                await self._shards.of((about.namespace, about.name)).patch(path, body)
        except (KubeError, LeaseLostError) as error:
            name = f"{about.kind} {about.namespace}/{about.name}"
            log.warning("%s: the operator of Lease %s was not asked: %s", name, claim.lease, error)
            return False
        standing.asked, standing.asked_at = number, time.monotonic()
        text = f"the operator of Lease {claim.lease} acts on it, and that of Lease {own} changes nothing: {remedy}"
        await self._events.post(about, "Warning", "OtherOperatorActs", text)
        return True


class OtherOperators:
    """Finds the policies that another operator acts for."""

    def __init__(
        self,
        questions: Questions,
        shards: Shards,
        registry: Registry,
        launch: Callable[[list[Policy], Coroutine[Any, Any, None]], None],
    ) -> None:
        self._questions, self._shards, self._registry, self._launch = questions, shards, registry, launch

    def stands_by(self, policy: Policy, now: float) -> bool:
        """Return whether nothing is to be done for a policy, since another operator acts; ask it where it is time."""
        standing, claim = policy.standing, policy.observed.claim
        verdict = standing.look(claim, self._shards.lease, now)
        if verdict == "act" and not standing.waiting:
            return False
        if verdict in ("act", "take"):
            log.info("%s/%s: taken over from the operator of Lease %s", *policy.key, claim.lease or "none")
            # What this process remembers of it is older than the status of the other operator.
            standing.waiting = False
            self._registry.adopt(policy).standing = standing
            return True
        standing.waiting, policy.timing.schedule = True, None
        if verdict == "ask":
            self._launch([policy], self._ask(policy))
        return True

    async def _ask(self, policy: Policy) -> None:
        path = policy_path(policy.key, "status")
        remedy = "take the namespace out of watchNamespaces of one of them, or uninstall it"
        claim, about = policy.observed.claim, policy.reference
        if not await self._questions.ask(policy.standing, claim, about, path, remedy):
            policy.timing.breaker.until = time.monotonic() + RETRY_SECONDS
