"""Kubernetes Events about policies, at most a few a minute for each policy."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import uuid4

from rlscaler_core.api import GROUP, KIND, VERSION
from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter, Priority
from rlscaler_operator.cluster.kube import Kube, object_path
from rlscaler_operator.exceptions import KubeError

log = logging.getLogger("rlscaler.events")

Type = Literal["Normal", "Warning"]
Event = dict[str, Any]
"""JSON object that is sent to the API server."""

REPEAT_SECONDS = 600.0
"""Time within which the same Event is not posted again."""

BURST = 10
REFILL_SECONDS = 20.0
"""A policy may post `BURST` Events of a type at once and one more each `REFILL_SECONDS`."""


@dataclass(slots=True)
class EventFilter:
    """Filter of the Events of one policy and type: a token bucket that also refuses repetitions."""

    tokens: float = BURST
    _at: float = 0.0
    _posted: dict[tuple[str, str], float] = field(default_factory=dict)

    def allows(self, reason: str, message: str, now: float) -> bool:
        """Take a token and return True; return False for a repetition and for an empty bucket."""
        self._posted = {event: at for event, at in self._posted.items() if now - at < REPEAT_SECONDS}
        # The bucket refills with time; it is full at the first Event.
        self.tokens = min(BURST, self.tokens + (now - self._at) / REFILL_SECONDS) if self._at else self.tokens
        self._at = now
        if (reason, message) in self._posted or self.tokens < 1:
            return False
        self.tokens -= 1
        self._posted[reason, message] = now
        return True

    def forget(self, reason: str) -> None:
        """Forget the Events with this reason: its cause has ended, and its return is posted again."""
        self._posted = {event: at for event, at in self._posted.items() if event[0] != reason}


@dataclass(frozen=True, slots=True)
class Reference:
    """The RLScalingPolicy or RLScalingBudget that an Event is about."""

    namespace: str
    """Empty for an object of the whole cluster, whose Events are in namespace `default`."""
    name: str
    uid: str
    kind: str = KIND


class Events:
    """Posts Events. A failure is logged and has no other consequence."""

    def __init__(
        self, kube: Kube, limiter: ConcurrencyLimiter, identity: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._kube, self._limiter, self._identity, self._clock = kube, limiter, identity, clock
        self._filters: dict[str, dict[str, EventFilter]] = {}
        """Filters by uid and the Event's type: frequent scaling must not use up the tokens of warnings."""

    def forget(self, reference: Reference, reason: str | None = None) -> None:
        """Forget the posted Events about an object; with `reason`, only those with this reason."""
        if reason is None:
            self._filters.pop(reference.uid, None)
        else:
            for event_filter in self._filters.get(reference.uid, {}).values():
                event_filter.forget(reason)

    async def post(self, about: Reference, type_: Type, reason: str, message: str) -> None:
        """Post an Event if its filter allows it."""
        event = self.admit(about, type_, reason, message)
        if event is not None:
            await self.send(event)

    def admit(self, about: Reference, type_: Type, reason: str, message: str) -> Event | None:
        """Log an Event and return it for `send`; None where its filter refuses it."""
        event_filter = self._filters.setdefault(about.uid, {}).setdefault(type_, EventFilter())
        if not event_filter.allows(reason, message, self._clock()):
            return None
        log.info("%s/%s: %s: %s", about.namespace, about.name, reason, message)
        return self._body(about, type_, reason, message)

    async def send(self, event: Event) -> None:
        """Send an Event that `admit` returned."""
        about = event["involvedObject"]
        try:
            async with self._limiter.slot(Priority.REPORT):
                await self._kube.create(object_path("v1", "events", event["metadata"]["namespace"]), event)
        except KubeError as error:
            name = f"{about['namespace']}/{about['name']}"
            log.warning("Event %s for %s was not posted: %s", event["reason"], name, error)

    def _body(self, about: Reference, type_: Type, reason: str, message: str) -> Event:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{about.name[:230].rstrip('.-')}.{uuid4().hex[:16]}",
                "namespace": about.namespace or "default",
            },
            "involvedObject": {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": about.kind,
                "namespace": about.namespace,
                "name": about.name,
                "uid": about.uid,
            },
            "type": type_,
            "reason": reason,
            "message": message[:1024],
            "source": {"component": "rlscaler"},
            "reportingComponent": "rlscaler.io/operator",
            "reportingInstance": self._identity[:128],
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
