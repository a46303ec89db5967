"""A coordination.k8s.io Lease: of several operators one acts, and it knows until when it may.

The algorithm is client-go's: a lease is free when its record was not seen to change for its duration, by the observer's
own monotonic clock. There are two additions: the holder keeps a deadline against which every write is checked right
before it is sent, and it hands the lease back on shutdown.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from rlscaler_operator.cluster.kube import CONFLICT_ATTEMPTS, CONFLICTS, FIELD_MANAGER, Json, Kube, object_path
from rlscaler_operator.exceptions import KubeError, LeaseLostError, OperatorError
from rlscaler_operator.settings import Settings

log = logging.getLogger("rlscaler.lease")

API_VERSION = "coordination.k8s.io/v1"
MARGIN = 0.2
"""Share of the lease's duration that the holder leaves unused: clocks may run at different speeds."""


class Lease:
    """One Lease that this process acquires, renews and hands back."""

    def __init__(
        self,
        kube: Kube,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """`name` replaces the settings' name of the Lease; `labels` are given to an object that is created."""
        self._kube, self._clock, self._labels = kube, clock, dict(labels or {})
        self.identity = settings.identity
        self.seconds = settings.lease_seconds
        self._collection = object_path(API_VERSION, "leases", settings.lease_namespace)
        self._name, self._namespace = name or settings.lease_name, settings.lease_namespace
        self._deadline = float("-inf")
        self._seen: tuple[Any, ...] | None = None
        self._seen_at = float("-inf")
        self.term = 0
        """Number of times that this process became the holder. A missed deadline alone does not end a term."""
        self._duration = self.seconds
        self._held: Json | None = None
        """The object as this process last wrote it; None = this process is not the holder."""

    @property
    def held(self) -> bool:
        """True while this process may act."""
        return self._clock() < self._deadline

    def remaining_seconds(self) -> float:
        """Return the seconds left to act; 0 or less where the lease is not held."""
        return self._deadline - self._clock()

    def write_timeout(self, at_most: float) -> float:
        """Return the timeout of a write that is about to be sent: it ends before the lease may pass to another process.

        Raises LeaseLostError when there is no time left.
        """
        remaining = self.remaining_seconds()
        if remaining <= 0:
            raise LeaseLostError(f"the lease {self._namespace}/{self._name} is not held any more: nothing is written")
        return min(at_most, remaining)

    def expires_in(self) -> float:
        """Return the seconds until the record of another holder counts as expired; infinite before it was seen."""
        return self._seen_at + self._duration - self._clock() if self._seen is not None else float("inf")

    def stop(self) -> None:
        """Let nothing be written under the lease from now on; this process stays its holder until `release`."""
        self._deadline = float("-inf")

    async def attempt(self, take: bool = True) -> None:
        """Do a `step` and log its failure: the next step is the retry."""
        try:
            await self.step(take)
        except KubeError as error:
            log.warning("lease %s/%s: %s", self._namespace, self._name, error)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            log.error("lease %s/%s: not a Lease: %r; delete it", self._namespace, self._name, error)

    async def step(self, take: bool = True) -> None:
        """Read the lease; renew it where this process is the holder, and `take` it where it is free.

        Raises KubeError; ValueError, TypeError, KeyError or AttributeError where the object is not a Lease.
        """
        path = f"{self._collection}/{self._name}"
        try:
            lease = await self._kube.request("GET", path, timeout_seconds=self.seconds / 3)
        except KubeError as error:
            if error.status != 404:
                raise
            ours, self._held = self.held, None
            self.stop()
            # A Lease may have been deleted whose holder goes on until its own deadline.
            if take and (ours or self._seen is None or self.expires_in() <= 0):
                await self._write("POST", self._collection, self._body({}))
            return
        spec = lease.get("spec") or {}
        record = (spec.get("holderIdentity"), spec.get("renewTime"), lease["metadata"].get("resourceVersion"))
        holder = spec.get("holderIdentity")
        if record != self._seen:
            if holder not in (self.identity, "", None) and (self._seen is None or self._seen[0] != holder):
                log.info("standing by: %s holds the lease %s/%s", holder, self._namespace, self._name)
            self._seen, self._seen_at = record, self._clock()
        self._duration = float(spec.get("leaseDurationSeconds") or self.seconds)
        expired = self.expires_in() <= 0
        if holder != self.identity:
            self.stop()
            self._held = None
        if holder == self.identity or (take and (holder in ("", None) or expired)):
            await self._write("PUT", path, self._body(lease))

    def _body(self, lease: Json) -> Json:
        spec = dict(lease.get("spec") or {})
        now = _micro_time()
        if spec.get("holderIdentity") != self.identity:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + (1 if lease else 0)
        spec |= {"holderIdentity": self.identity, "leaseDurationSeconds": round(self.seconds), "renewTime": now}
        metadata = lease.get("metadata") or {"name": self._name, "namespace": self._namespace, "labels": self._labels}
        return {"apiVersion": API_VERSION, "kind": "Lease", "metadata": metadata, "spec": spec}

    async def _write(self, method: str, path: str, body: Json) -> None:
        """Send the record. A PUT carries the resourceVersion that was read: one of two candidates gets a conflict."""
        sent, new = self._clock(), self._held is None
        try:
            self._held = await self._kube.request(
                method, path, body, timeout_seconds=self.seconds / 3, fieldManager=FIELD_MANAGER
            )
        except KubeError as error:
            if error.status == 409:
                self._held = None
                return
            raise
        if not self.held:
            log.info("%s holds the lease %s/%s", self.identity, self._namespace, self._name)
        self.term += new
        self._deadline = sent + self.seconds * (1 - MARGIN)

    async def release(self) -> None:
        """Hand the lease back; nothing is written under it from now on."""
        self.stop()
        if self._held is None:
            return
        with contextlib.suppress(KubeError, KeyError, TypeError, ValueError):
            body = dict(self._held, spec=dict(self._held["spec"], holderIdentity=""))
            path = f"{self._collection}/{self._name}"
            await self._kube.request("PUT", path, body, timeout_seconds=2.0, fieldManager=FIELD_MANAGER)
            log.info("handed the lease %s/%s back", self._namespace, self._name)
        self._held = None


async def seize(kube: Kube, settings: Settings, name: str, seconds: int) -> None:
    """Become the holder of a Lease for `seconds`, no matter which process holds it; a Lease that is not there stays so.

    Raises OperatorError.
    """
    path = object_path(API_VERSION, "leases", settings.lease_namespace, name)
    for _ in range(CONFLICT_ATTEMPTS):
        try:
            lease = await kube.get(path)
            spec, now = dict(lease.get("spec") or {}), _micro_time()
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + 1
            spec |= {"holderIdentity": settings.identity, "leaseDurationSeconds": seconds}
            await kube.replace(path, {**lease, "spec": spec | {"acquireTime": now, "renewTime": now}})
        except KubeError as error:
            if error.status == 404:
                log.info("no Lease %s/%s: no operator acts by it", settings.lease_namespace, name)
                return
            if error.status not in CONFLICTS:
                raise
        else:
            log.info("took the Lease %s/%s for %d s", settings.lease_namespace, name, seconds)
            return
    raise OperatorError(f"Lease {settings.lease_namespace}/{name} changes faster than it can be taken: try again")


def _micro_time() -> str:
    """Return the present time as Kubernetes' MicroTime."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
