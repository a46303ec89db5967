"""Writer of Events and statuses, in the background.

A thousand statuses that wait for a slow API server would keep a thousand policies from their next ticks. A policy has
one writer at most, and of its waiting statuses only the newest is written.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter, Priority
from rlscaler_operator.cluster.events import Event, Events
from rlscaler_operator.cluster.kube import Kube, policy_path
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.exceptions import KubeError, LeaseLostError
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.registry import Registry
from rlscaler_operator.state.report import PendingReport
from rlscaler_operator.state.status import merge_patch, significant

log = logging.getLogger("rlscaler.publish")

Launch = Callable[[list[Policy], Coroutine[Any, Any, None]], None]
Json = dict[str, Any]


class Publisher:
    """Posts Events and writes statuses from the policies' outboxes."""

    def __init__(
        self,
        kube: Kube,
        shards: Shards,
        limiter: ConcurrencyLimiter,
        settings: Settings,
        registry: Registry,
        events: Events,
        metrics: Metrics,
        forget: Callable[[Key, str], None],
        launch: Launch,
    ) -> None:
        self._kube, self._shards, self._limiter, self._settings = kube, shards, limiter, settings
        self._registry, self._events, self._metrics = registry, events, metrics
        self._forget, self._launch = forget, launch

    def publish(self, policy: Policy, status: Json, events: list[Event]) -> None:
        """Put status and Events into the policy's outbox. After a failed write the policy's next tick reports again."""
        # Events of a status that waits still have to be posted, though the status itself is replaced by the newer one.
        waiting = policy.outbox.pending
        if waiting is None and not policy.outbox.writing and not events and not self._worth(policy, status):
            return
        policy.outbox.pending = PendingReport(status, [*(waiting.events if waiting else ()), *events])
        if not policy.outbox.writing:
            policy.outbox.writing = True
            self._launch([], self._empty_outbox(policy))

    async def _empty_outbox(self, policy: Policy) -> None:
        """Write the newest pending report until the outbox is empty."""
        written = True
        try:
            while (pending := policy.outbox.pending) is not None:
                policy.outbox.pending, written = None, False
                async with asyncio.timeout(self._settings.policy_deadline_seconds):
                    for event in pending.events:
                        await self._events.send(event)
                    written = await self._write(policy, pending.status)
        except Exception as error:
            if isinstance(error, TimeoutError):
                log.error("%s/%s: not reported within policyDeadlineSeconds", *policy.key)
            else:
                log.exception("%s/%s: the report failed", *policy.key)
            self._metrics.of(*policy.key).add(self._metrics.errors, 1)
        finally:
            policy.outbox.writing = False
            if not written:
                policy.report.made_from = None

    def _worth(self, policy: Policy, status: Json) -> bool:
        """Return True where the status has news, or the last write was long enough ago."""
        if significant(status) != significant(policy.outbox.status) or policy.outbox.misses(status):
            return True
        now = time.monotonic()
        if now - policy.outbox.written_at < self._settings.status_interval_seconds:
            return False
        if status != policy.outbox.status:
            return True
        policy.outbox.written_at = now
        return False

    async def _write(self, policy: Policy, status: Json) -> bool:
        """Write a status; return False where that fails."""
        path, lost = policy_path(policy.key, "status"), set[str]()
        try:
            async with self._limiter.slot(Priority.REPORT):
                if policy.observed.deleting or self._registry.get(policy.key) is not policy:
                    return True
                if policy.ownership.originals is not None:
                    # They may have been recorded after the report was made; the patch must not remove them again.
                    status["originals"] = policy.ownership.originals.to_dict()
                if not self._worth(policy, status):
                    return True
                # Parts that are lost during this write stay lost.
                lost, policy.outbox.lost = policy.outbox.lost, set()
                patch = merge_patch({n: part for n, part in policy.outbox.status.items() if n not in lost}, status)
                await self._shards.of(policy.key).patch(path, {"status": patch})
        except (KubeError, LeaseLostError) as error:
            if not (isinstance(error, KubeError) and error.status == 404 and await self._is_gone(policy)):
                log.warning("%s/%s: status was not written: %s", *policy.key, error)
            policy.outbox.lost |= lost
            self._metrics.status_writes.labels("Failed").inc()
            return False
        self._metrics.status_writes.labels("Written").inc()
        policy.outbox.status, policy.outbox.written_at = status, time.monotonic()
        return True

    async def _is_gone(self, policy: Policy) -> bool:
        """Forget a policy whose deletion an interrupted watch has missed; return True where it is deleted."""
        try:
            body = await self._kube.get(policy_path(policy.key))
        except KubeError as error:
            gone = error.status == 404
        else:
            # An object of the same name with another uid was made after the deletion.
            gone = body["metadata"].get("uid") != policy.uid
        if gone:
            self._forget(policy.key, policy.uid)
        return gone
