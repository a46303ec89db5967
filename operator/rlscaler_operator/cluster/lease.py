"""A coordination.k8s.io Lease: one of several operators acts, until a deadline that it knows.

The algorithm is client-go's: a lease is free when its record has not changed for its duration, by the observer's own
monotonic clock. There are three additions: the holder has a deadline against which every write is checked right before
it is sent; it hands the lease back on shutdown; and a Lease that does not exist is not free. It may have been deleted a
moment ago while its holder acts until its own deadline, so a process that has never seen it makes it `VACANT`, and all
processes wait for that record to expire as for any other.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from rlscaler_operator.cluster.kube import CONFLICT_ATTEMPTS, CONFLICTS, FIELD_MANAGER, Json, Kube, object_path
from rlscaler_operator.exceptions import KubeError, LeaseLostError, OperatorError
from rlscaler_operator.settings import Settings

log = logging.getLogger("rlscaler.lease")

API_VERSION = "coordination.k8s.io/v1"
FORBIDDEN = 403
MARGIN = 0.2
"""Share of the lease's duration that the holder does not use: clocks may run at different speeds."""

VACANT = "vacant"
"""Holder in a Lease that was missing. It never renews, so the first true holder follows after a whole duration, and a
former holder, which reads this record in place of its own, ends before."""


class _ConflictError(Exception):
    """Raised where another process wrote the Lease first."""


class Lease:
    """Lease that this process acquires, renews and hands back."""

    def __init__(
        self,
        kube: Kube,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        above: Lease | None = None,
        own: bool = False,
    ) -> None:
        """`name` replaces the settings' name of the Lease; a created object gets `labels`.

        Nothing is written under this lease while the lease `above` it is not held. No other process ever takes a lease
        that is the process's `own`.
        """
        self._kube, self._clock, self._labels = kube, clock, dict(labels or {})
        self._above, self._own = above, own
        self.identity = settings.identity
        self.seconds, self._write_seconds = settings.lease_seconds, settings.write_timeout_seconds
        self._collection = object_path(API_VERSION, "leases", settings.lease_namespace)
        self._name, self._namespace = name or settings.lease_name, settings.lease_namespace
        self._deadline = float("-inf")
        self._seen: tuple[Any, ...] | None = None
        self._seen_at = float("-inf")
        self.term = 0
        """Number of times that this process became the holder. A missed deadline alone does not end a term."""
        self._duration = self.seconds
        self.trouble = ""
        """Why it can be neither held nor watched, where waiting does not help; empty = no trouble."""
        self._held: Json | None = None
        """The object as last written by this process; None = this process is not the holder."""

    @property
    def held(self) -> bool:
        """True while this process may act."""
        return self.remaining_seconds() > 0

    @property
    def holder(self) -> str:
        """Name in the last record that was read; empty = none."""
        return str(self._seen[0] or "") if self._seen is not None else ""

    def remaining_seconds(self) -> float:
        """Return the seconds left to act; 0 or less where the lease is not held."""
        remaining = self._deadline - self._clock()
        return remaining if self._above is None else min(remaining, self._above.remaining_seconds())

    def write_timeout(self, at_most: float) -> float:
        """Return the timeout of a write: it ends before the lease may pass to another process.

        Raises LeaseLostError where no time is left.
        """
        remaining = self.remaining_seconds()
        if remaining <= 0:
            raise LeaseLostError(f"the lease {self._namespace}/{self._name} is not held any more: nothing is written")
        return min(at_most, remaining)

    async def patch(self, path: str, body: Any) -> Json:
        """Patch an object; the request ends before the lease may pass to another process.

        Raises KubeError; LeaseLostError where the lease is not held any more.
        """
        timeout = partial(self.write_timeout, self._write_seconds)
        return await self._kube.patch(path, body, timeout_seconds=timeout)

    def expires_in(self) -> float:
        """Return the seconds until the record of another holder counts as expired; infinite before it was read."""
        return self._seen_at + self._duration - self._clock() if self._seen is not None else float("inf")

    def stop(self) -> None:
        """Allow no more writes under the lease; this process stays its holder until `release`."""
        self._deadline = float("-inf")

    async def attempt(self, take: bool = True) -> None:
        """Do a `step` and log its failure; the next step is the retry."""
        try:
            await self.step(take)
            self.trouble = ""
        except KubeError as error:
            hint = "; grant what docs/operator-permissions.md lists" if error.status == FORBIDDEN else ""
            self.trouble = f"lease {self._namespace}/{self._name}: {error}{hint}" if hint else ""
            log.warning("lease %s/%s: %s%s", self._namespace, self._name, error, hint)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            self.trouble = f"lease {self._namespace}/{self._name}: not a Lease: {error!r}; delete it"
            log.error("%s", self.trouble)

    async def step(self, take: bool = True) -> None:
        """Read the lease; renew it where this process is the holder, and `take` it where it is free.

        A Lease that does not exist is made, whether it is to be taken or not.

        Raises KubeError; ValueError, TypeError, KeyError or AttributeError where the object is not a Lease.
        """
        path = f"{self._collection}/{self._name}"
        try:
            lease = await self._kube.request("GET", path, timeout_seconds=self.seconds / 3)
        except KubeError as error:
            if error.status != 404:
                raise
            await self._make(take)
            return
        spec = lease.get("spec") or {}
        holder, record = spec.get("holderIdentity"), _record(lease)
        if record != self._seen:
            if holder not in (self.identity, "", None) and self.holder != holder:
                log.info("standing by: %s holds the lease %s/%s", holder, self._namespace, self._name)
            self._seen, self._seen_at = record, self._clock()
        # The duration of the present holder counts, which may differ from the own one during a rollout.
        self._duration = float(spec.get("leaseDurationSeconds") or self.seconds)
        expired = self.expires_in() <= 0
        if holder != self.identity:
            self.stop()
            self._held = None
        if holder == self.identity or (take and (holder in ("", None) or expired)):
            await self._write("PUT", path, self._body(lease, self.identity))

    async def _make(self, take: bool) -> None:
        """Make the missing Lease, in the own name where no other process can be acting by it."""
        ours, self._held = self.held, None
        self.stop()
        if self._own or (take and (ours or self.expires_in() <= 0)):
            await self._write("POST", self._collection, self._body({}, self.identity))
        elif self._seen is None:
            body = self._body({}, VACANT)
            with contextlib.suppress(_ConflictError):
                lease = await self._send("POST", self._collection, body)
                self._seen, self._seen_at = _record(lease), self._clock()
                text = "the lease %s/%s was not there and is made: it is taken in %g s"
                log.info(text, self._namespace, self._name, self.seconds)

    def _body(self, lease: Json, holder: str) -> Json:
        spec = dict(lease.get("spec") or {})
        now = _micro_time()
        if spec.get("holderIdentity") != holder:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + (1 if lease else 0)
        spec |= {"holderIdentity": holder, "leaseDurationSeconds": round(self.seconds), "renewTime": now}
        metadata = lease.get("metadata") or {"name": self._name, "namespace": self._namespace, "labels": self._labels}
        return {"apiVersion": API_VERSION, "kind": "Lease", "metadata": metadata, "spec": spec}

    async def _write(self, method: str, path: str, body: Json) -> bool:
        """Send the record; return False where another process came first."""
        # A PUT carries the resourceVersion that was read, so one of two candidates gets a conflict. The deadline counts
        # from before the request: observers start their own clocks at the earliest then.
        sent, new = self._clock(), self._held is None
        try:
            self._held = await self._send(method, path, body)
        except _ConflictError:
            self._held = None
            return False
        self._seen, self._seen_at = _record(self._held), self._clock()
        if self._clock() >= self._deadline:
            log.info("%s holds the lease %s/%s", self.identity, self._namespace, self._name)
        self.term += new
        self._deadline = sent + self.seconds * (1 - MARGIN)
        return True

    async def _send(self, method: str, path: str, body: Json) -> Json:
        """Send a record and return the object. Raises KubeError, _ConflictError where another process wrote first."""
        try:
            return await self._kube.request(
                method, path, body, timeout_seconds=self.seconds / 3, fieldManager=FIELD_MANAGER
            )
        except KubeError as error:
            if error.status == 409:
                raise _ConflictError from error
            raise

    async def release(self) -> None:
        """Hand the lease back; no more writes are allowed under it."""
        self.stop()
        if self._held is None:
            return
        with contextlib.suppress(KubeError, KeyError, TypeError, ValueError):
            body = dict(self._held, spec=dict(self._held["spec"], holderIdentity=""))
            path = f"{self._collection}/{self._name}"
            await self._kube.request("PUT", path, body, timeout_seconds=2.0, fieldManager=FIELD_MANAGER)
            log.info("handed the lease %s/%s back", self._namespace, self._name)
        self._held = None


class SharedLease(Lease):
    """Lease that several processes hold together, under one name: each renews it, and others stand by."""

    def __init__(
        self, kube: Kube, settings: Settings, holders: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`holders` is the common name of these processes."""
        super().__init__(kube, settings, clock)
        self.identity = holders
        self._asked_at = float("-inf")

    @property
    def taken(self) -> bool:
        """True where other processes hold the Lease by the last record that was read."""
        return self.holder not in (self.identity, VACANT, "")

    async def step(self, take: bool = True) -> None:
        self._asked_at = self._clock()
        await super().step(take)

    async def _write(self, method: str, path: str, body: Json) -> bool:
        """Send the record; return False where another process came first, whose renewal counts as ours."""
        if await super()._write(method, path, body):
            return True
        # The other renewal is later than our read of the record before, so no stranger may take the Lease earlier than
        # a duration after that read.
        if await self.refresh():
            self._deadline = max(self._deadline, self._asked_at + self.seconds * (1 - MARGIN))
        return False

    async def refresh(self) -> bool:
        """Read the last record of any holder, for `release`; return False where strangers hold it. Raises KubeError."""
        lease = await self._kube.request("GET", f"{self._collection}/{self._name}", timeout_seconds=self.seconds / 3)
        if (lease.get("spec") or {}).get("holderIdentity") != self.identity:
            self._held = None
            return False
        self._held, self._seen, self._seen_at = lease, _record(lease), self._clock()
        return True


async def seize(kube: Kube, settings: Settings, name: str, seconds: int) -> None:
    """Become the holder of a Lease for `seconds`, whatever its holder; a missing Lease stays missing.

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


def _record(lease: Json) -> tuple[Any, ...]:
    """Return the fields that change with every renewal; the holder comes first."""
    spec = lease.get("spec") or {}
    return spec.get("holderIdentity"), spec.get("renewTime"), lease["metadata"].get("resourceVersion")


def _micro_time() -> str:
    """Return the present time as Kubernetes' MicroTime."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
