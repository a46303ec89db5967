"""Policies spread over several active operators: each shard is a Lease of its own, held by one of them.

A policy belongs to one shard for good (rendezvous hashing of its namespace and name), so only the holder of a shard
changes when an operator dies or joins. Every write is fenced by the deadline of its own shard's Lease, with the same
rules as for a single Lease.

Each operator also keeps a member Lease. The operators whose member Lease is renewed are alive, and none holds more than
its fair share of the shards: one that holds more hands a shard back, one that holds fewer takes free shards.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import math
import time
from collections.abc import Callable

from rlscaler_operator.cluster.cache import Key
from rlscaler_operator.cluster.kube import Kube, object_path
from rlscaler_operator.cluster.lease import API_VERSION, Lease
from rlscaler_operator.exceptions import KubeError
from rlscaler_operator.settings import Settings

log = logging.getLogger("rlscaler.shards")

MEMBER_LABEL = "rlscaler.io/member-of"
"""Label of an operator's member Lease; its value is the name of the shards' Lease."""

SHORTEST_SECONDS = 0.2
"""Shortest time between two reads of a lease that is about to expire."""

FORGET_AFTER = 10.0
"""Lease durations after which the Lease of a member that died is deleted."""


def lease_names(settings: Settings) -> list[str]:
    """Return the name of each shard's Lease; with one shard the Lease has the plain name."""
    if settings.shards == 1:
        return [settings.lease_name]
    return [f"{settings.lease_name}-{i}" for i in range(settings.shards)]


def shard_of(key: Key, shards: int) -> int:
    """Return the shard of a policy. With one more shard, only the policies that it takes over move."""
    if shards == 1:
        return 0
    return max(range(shards), key=lambda i: hashlib.blake2b(f"{key[0]}/{key[1]}/{i}".encode(), digest_size=8).digest())


class Members:
    """Counts the operators that are alive, by member Leases that each of them renews and no other takes."""

    def __init__(self, kube: Kube, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._kube, self._clock, self._seconds = kube, clock, settings.lease_seconds
        self._label = settings.lease_name
        self._collection = object_path(API_VERSION, "leases", settings.lease_namespace)
        self._seen: dict[str, tuple[str, float]] = {}
        digest = hashlib.blake2b(settings.identity.encode(), digest_size=6).hexdigest()
        self._name = f"{settings.lease_name}-member-{digest}"
        self._own = Lease(kube, settings, clock, name=self._name, labels={MEMBER_LABEL: settings.lease_name})

    async def count(self) -> int:
        """Renew the own member Lease, then count those whose record changed within a lease's duration.

        The time is measured by the own clock. Leases of members that died long ago are deleted. Raises KubeError.
        """
        await self._own.step()
        query = {"labelSelector": f"{MEMBER_LABEL}={self._label}"}
        listed = await self._kube.request("GET", self._collection, timeout_seconds=self._seconds / 3, **query)
        now, living = self._clock(), 0
        present = set()
        for item in listed.get("items", ()):
            name, version = item["metadata"]["name"], item["metadata"].get("resourceVersion", "")
            present.add(name)
            if self._seen.get(name, ("", 0.0))[0] != version:
                self._seen[name] = version, now
            age = now - self._seen[name][1]
            living += age < self._seconds and bool((item.get("spec") or {}).get("holderIdentity"))
            if age > FORGET_AFTER * self._seconds:
                await self._delete(name)
        self._seen = {name: seen for name, seen in self._seen.items() if name in present}
        return max(1, living)

    async def leave(self) -> None:
        """Delete the own member Lease."""
        await self._delete(self._name)

    async def _delete(self, name: str) -> None:
        with contextlib.suppress(KubeError):
            await self._kube.request("DELETE", f"{self._collection}/{name}", timeout_seconds=2.0)


class Shards:
    """The Leases of all shards as one operator sees them. With one shard, no members are counted."""

    def __init__(self, kube: Kube, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self.number, self._seconds = settings.shards, settings.lease_seconds
        self.leases = [Lease(kube, settings, clock, name=name) for name in lease_names(settings)]
        self._members = Members(kube, settings, clock) if self.number > 1 else None
        self._shard_of: dict[Key, int] = {}
        self._leaving: dict[Lease, asyncio.Task[None]] = {}
        self._write_timeout = settings.write_timeout_seconds

    @property
    def held(self) -> bool:
        """True while this process may act for any policy."""
        return any(lease.held for lease in self.leases)

    def holds(self) -> dict[int, int]:
        """Return the shards that this process may act for now, each with the term of its Lease."""
        return {i: lease.term for i, lease in enumerate(self.leases) if lease.held}

    def of(self, key: Key) -> Lease:
        """Return the Lease that a policy's writes are checked against."""
        return self.leases[self.shard(key)]

    def shard(self, key: Key) -> int:
        """Return the shard of a policy."""
        if key not in self._shard_of:
            self._shard_of[key] = shard_of(key, self.number)
        return self._shard_of[key]

    def forget(self, key: Key) -> None:
        self._shard_of.pop(key, None)

    async def run(self) -> None:
        """Acquire and renew the Leases until cancelled; then hand them all back."""
        try:
            while True:
                try:
                    await self._step()
                except KubeError as error:
                    log.warning("members: %s", error)
                except (ValueError, TypeError, KeyError, AttributeError) as error:
                    log.error("members: an object is not a Lease: %r; delete it", error)
                await asyncio.sleep(self._pause())
        finally:
            await asyncio.shield(self._leave())

    def _pause(self) -> float:
        """Return the seconds until the next step: a fifth of a lease, or less where another's lease expires before."""
        waits = [lease.expires_in() for lease in self.leases if not lease.held]
        return min([self._seconds / 5, *(max(SHORTEST_SECONDS, wait) for wait in waits if wait > 0)])

    async def _step(self) -> None:
        """Renew the held Leases first; then hand back those beyond the fair share, or take free ones."""
        held = [lease for lease in self.leases if lease.held]
        await asyncio.gather(*(lease.attempt() for lease in held))
        if self._members is None:
            if not held:
                await self.leases[0].attempt()
            return
        fair = math.ceil(self.number / await self._members.count())
        for lease in held[fair:]:
            self._hand_back(lease)
        for lease in self.leases:
            if lease not in held and lease not in self._leaving:
                # The Leases of other holders are read as well: that is how it is known when they expire.
                await lease.attempt(take=sum(lease.held for lease in self.leases) < fair)

    def _hand_back(self, lease: Lease) -> None:
        """Stop writing under a Lease at once, and release it when every write that is under way has ended."""
        lease.stop()

        async def later() -> None:
            await asyncio.sleep(min(self._write_timeout, self._seconds / 2))
            await lease.release()

        task = self._leaving[lease] = asyncio.create_task(later())
        task.add_done_callback(lambda _: self._leaving.pop(lease, None))

    async def _leave(self) -> None:
        for task in list(self._leaving.values()):
            task.cancel()
        await asyncio.gather(*(lease.release() for lease in self.leases))
        if self._members is not None:
            await self._members.leave()
