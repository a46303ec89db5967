"""Policies spread over several active operators: each shard is a Lease of its own, held by one operator.

A policy belongs to one shard for good (rendezvous hashing of its namespace and name), so only the holder of a shard
changes when an operator dies or joins. Every write is fenced by the deadline of its own shard's Lease, with the same
rules as for a single Lease.

Each operator also has a member Lease. Operators whose member Lease is renewed are alive, and none holds more than its
fair share of the shards: an operator with more hands a shard back, one with fewer takes free shards.

Another number of shards splits the policies otherwise. Two splits must never act at the same time while a rollout
replaces the operators of one by those of the other. So the plain Lease belongs to the split that acts: the operators of
one number hold it together, as `SharedLease`, and nothing is written under a shard's Lease without it. With one shard
it is the only Lease, and its holder blocks all operators with more. The others stand by until the last operator of the
old number has handed it back, or has not renewed it for its duration.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import math
import time
from collections.abc import Callable

from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.kube import Kube, object_path
from rlscaler_operator.cluster.lease import API_VERSION, Lease, SharedLease
from rlscaler_operator.exceptions import KubeError
from rlscaler_operator.settings import Settings

log = logging.getLogger("rlscaler.shards")

MEMBER_LABEL = "rlscaler.io/member-of"
"""Label of an operator's member Lease; its value is the name of the shards' Lease."""

SHARDS_LABEL = "rlscaler.io/shards"
"""Label of an operator's member Lease: its number of shards."""

SHORTEST_SECONDS = 0.2
"""Shortest time between two reads of a lease that is about to expire."""

FORGET_AFTER = 10.0
"""Lease durations after which the Lease of a dead member is deleted."""


def shard_names(settings: Settings) -> list[str]:
    """Return the name of each shard's Lease; with one shard the Lease has the plain name."""
    if settings.shards == 1:
        return [settings.lease_name]
    return [f"{settings.lease_name}-{i}" for i in range(settings.shards)]


def lease_names(settings: Settings) -> list[str]:
    """Return the names of all Leases that writes depend on."""
    return list(dict.fromkeys([settings.lease_name, *shard_names(settings)]))


def shard_of(key: Key, shards: int) -> int:
    """Return the shard of a policy."""
    if shards == 1:
        return 0
    # Rendezvous hashing: with one more shard only the policies that it takes over move.
    return max(range(shards), key=lambda i: hashlib.blake2b(f"{key[0]}/{key[1]}/{i}".encode(), digest_size=8).digest())


class Members:
    """Counts the live operators by member Leases, each of which one operator renews and no other takes."""

    def __init__(self, kube: Kube, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._kube, self._clock, self._seconds = kube, clock, settings.lease_seconds
        self._label, self._shards = settings.lease_name, str(settings.shards)
        self._collection = object_path(API_VERSION, "leases", settings.lease_namespace)
        self._seen: dict[str, tuple[str, float]] = {}
        self.registered = False
        """True once the own member Lease is there."""
        digest = hashlib.blake2b(settings.identity.encode(), digest_size=6).hexdigest()
        self._name = f"{settings.lease_name}-member-{digest}"
        labels = {MEMBER_LABEL: settings.lease_name, SHARDS_LABEL: self._shards}
        self._own = Lease(kube, settings, clock, name=self._name, labels=labels, own=True)

    async def count(self) -> int:
        """Renew the own member Lease, then count the members whose record changed within a lease's duration.

        Operators with another number of shards do not count. The time is measured by the own clock. Leases of members
        that died long ago are deleted. Raises KubeError.
        """
        await self._own.step()
        self.registered = True
        return await self._living()

    async def others(self) -> int:
        """Delete the own member Lease, then count the other members. Raises KubeError."""
        await self._delete(self._name)
        return await self._living()

    async def _living(self) -> int:
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
            same = (item["metadata"].get("labels") or {}).get(SHARDS_LABEL) == self._shards
            living += same and age < self._seconds and bool((item.get("spec") or {}).get("holderIdentity"))
            if age > FORGET_AFTER * self._seconds:
                await self._delete(name)
        self._seen = {name: seen for name, seen in self._seen.items() if name in present}
        return living

    async def _delete(self, name: str) -> None:
        with contextlib.suppress(KubeError):
            await self._kube.request("DELETE", f"{self._collection}/{name}", timeout_seconds=2.0)


class Shards:
    """The Leases of all shards as seen by one operator. With one shard there is one Lease, and no members."""

    def __init__(self, kube: Kube, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self.number, self._seconds = settings.shards, settings.lease_seconds
        self._split = SharedLease(kube, settings, f"{self.number} shards", clock) if self.number > 1 else None
        """The Lease of all operators with this number of shards; None with one shard."""
        self.leases = [Lease(kube, settings, clock, name=name, above=self._split) for name in shard_names(settings)]
        self._members = Members(kube, settings, clock) if self.number > 1 else None
        self._shard_of: dict[Key, int] = {}
        self._leaving: dict[Lease, asyncio.Task[None]] = {}
        self._write_timeout = settings.write_timeout_seconds
        self.lease = settings.lease

    @property
    def held(self) -> bool:
        """True while this process may act for any policy."""
        return any(lease.held for lease in self.leases)

    def trouble(self) -> str:
        """Return why a Lease can be neither held nor watched; empty = nothing is wrong."""
        return next((lease.trouble for lease in (self._split, *self.leases) if lease and lease.trouble), "")

    def holds(self) -> dict[int, int]:
        """Return the shards held by this process, each with the term of its Lease."""
        return {i: lease.term for i, lease in enumerate(self.leases) if lease.held}

    def of(self, key: Key) -> Lease:
        """Return the Lease under which a policy is written."""
        return self.leases[self.shard(key)]

    def shard(self, key: Key) -> int:
        """Return the shard of a policy."""
        if key not in self._shard_of:
            self._shard_of[key] = shard_of(key, self.number)
        return self._shard_of[key]

    def forget(self, key: Key) -> None:
        self._shard_of.pop(key, None)

    async def run(self) -> None:
        """Acquire and renew the Leases until cancelled; then hand all of them back."""
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
        leases = [*self.leases, *([self._split] if self._split is not None else ())]
        waits = [lease.expires_in() for lease in leases if not lease.held]
        soon = [max(SHORTEST_SECONDS, wait) for wait in waits if wait > 0]
        return min(self._seconds / 5, min(soon, default=math.inf))

    async def _step(self) -> None:
        """Renew the held Leases first; then hand back Leases beyond the fair share, or take free ones."""
        if self._split is None or self._members is None:
            await self.leases[0].attempt()
            return
        if not self._members.registered:
            # Register before joining the others: the last operator to leave must see this member.
            await self._members.count()
        await self._split.attempt()
        held = [lease for lease in self.leases if lease.held]
        if self._split.taken:
            await asyncio.gather(*(lease.release() for lease in self.leases))
        await asyncio.gather(*(lease.attempt() for lease in held))
        # Rounded up, so that no shard stays without a holder.
        fair = math.ceil(self.number / max(1, await self._members.count()))
        for lease in held[fair:]:
            self._hand_back(lease)
        for lease in self.leases:
            if lease not in held and lease not in self._leaving:
                # The Leases of other holders are read as well, to learn when they expire.
                few = sum(lease.held for lease in self.leases) < fair
                await lease.attempt(take=self._split.held and few)

    def _hand_back(self, lease: Lease) -> None:
        """Stop writing under a Lease at once, and release it when every write under way has ended."""
        lease.stop()

        async def later() -> None:
            await asyncio.sleep(min(self._write_timeout, self._seconds / 2))
            await lease.release()

        task = self._leaving[lease] = asyncio.create_task(later())
        task.add_done_callback(lambda _: self._leaving.pop(lease, None))

    async def _leave(self) -> None:
        """Hand all Leases back; the Lease of the split only as its last operator."""
        # The record of the split is read before the other members are counted: an operator that joins in between
        # renews it, and the record that was read can then not be handed back (its resourceVersion is old).
        for task in list(self._leaving.values()):
            task.cancel()
        await asyncio.gather(*(lease.release() for lease in self.leases))
        if self._split is not None and self._members is not None:
            with contextlib.suppress(KubeError, ValueError, TypeError, KeyError, AttributeError):
                ours = False
                with contextlib.suppress(KubeError):
                    ours = await self._split.refresh()
                if await self._members.others() == 0 and ours:
                    await self._split.release()
