"""Kubernetes Events on a policy, never more than a few a minute."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import uuid4

from rlscaler_core.api import KIND
from rlscaler_operator.cluster.kube import Kube, object_path
from rlscaler_operator.cluster.rate_limiter import Lane, Lanes
from rlscaler_operator.exceptions import KubeError

log = logging.getLogger("rlscaler.events")

Type = Literal["Normal", "Warning"]
Event = dict[str, Any]
"""As it is sent."""

REPEAT_SECONDS = 600.0
"""The same Event is not posted again within this time."""

BURST = 10
REFILL_SECONDS = 20.0
"""A policy may post `BURST` Events of a type at once and one more each `REFILL_SECONDS`."""


@dataclass(slots=True)
class Limiter:
    """Which Events of one policy and type are posted: no repetitions, and a token bucket."""

    tokens: float = BURST
    _at: float = 0.0
    _posted: dict[tuple[str, str], float] = field(default_factory=dict)

    def allows(self, reason: str, message: str, now: float) -> bool:
        self._posted = {what: at for what, at in self._posted.items() if now - at < REPEAT_SECONDS}
        self.tokens = min(BURST, self.tokens + (now - self._at) / REFILL_SECONDS) if self._at else self.tokens
        self._at = now
        if (reason, message) in self._posted or self.tokens < 1:
            return False
        self.tokens -= 1
        self._posted[reason, message] = now
        return True

    def forget(self, reason: str) -> None:
        """The cause has gone: its return is news."""
        self._posted = {what: at for what, at in self._posted.items() if what[0] != reason}


@dataclass(frozen=True, slots=True)
class Reference:
    """The policy that an Event is about."""

    namespace: str
    name: str
    uid: str


class Events:
    """Posts Events; a failure to post is logged and nothing else."""

    def __init__(self, kube: Kube, lanes: Lanes, identity: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._kube, self._lanes, self._identity, self._clock = kube, lanes, identity, clock
        self._limiters: dict[str, dict[str, Limiter]] = {}
        """By policy and type: what is scaled often must not use up what warnings need."""

    def forget(self, reference: Reference, reason: str | None = None) -> None:
        """Drop what is remembered about a policy, or about one reason."""
        if reason is None:
            self._limiters.pop(reference.uid, None)
        else:
            for limiter in self._limiters.get(reference.uid, {}).values():
                limiter.forget(reason)

    async def post(self, about: Reference, type_: Type, reason: str, message: str) -> None:
        event = self.admit(about, type_, reason, message)
        if event is not None:
            await self.send(event)

    def admit(self, about: Reference, type_: Type, reason: str, message: str) -> Event | None:
        """The Event that is to be sent; None for a repetition and for one too many."""
        limiter = self._limiters.setdefault(about.uid, {}).setdefault(type_, Limiter())
        if not limiter.allows(reason, message, self._clock()):
            return None
        log.info("%s/%s: %s: %s", about.namespace, about.name, reason, message)
        return self._body(about, type_, reason, message)

    async def send(self, event: Event) -> None:
        """One that was admitted."""
        about = event["involvedObject"]
        try:
            async with self._lanes.enter(Lane.REPORT):
                await self._kube.create(object_path("v1", "events", about["namespace"]), event)
        except KubeError as error:
            name = f"{about['namespace']}/{about['name']}"
            log.warning("Event %s for %s was not posted: %s", event["reason"], name, error)

    def _body(self, about: Reference, type_: Type, reason: str, message: str) -> Event:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{about.name[:230]}.{uuid4().hex[:16]}", "namespace": about.namespace},
            "involvedObject": {
                "apiVersion": "rlscaler.io/v1alpha1",
                "kind": KIND,
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
