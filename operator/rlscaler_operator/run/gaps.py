"""Objects that were deleted in a gap of a watch: kopf lists again after it, but reports no absence.

A HorizontalPodAutoscaler that is gone would hold its target for ever, and a pod that is gone would count as ready.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from itertools import count, islice

from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.kube import Kube, listed
from rlscaler_operator.exceptions import OperatorError
from rlscaler_operator.run.watched import POLICIES, Watched

log = logging.getLogger("rlscaler.watches")

DELETION_CHECK_SECONDS = 30.0
"""Longest time that the operator acts for a policy whose deletion was missed. Each check costs one request of metadata
for 500 policies."""

ROUND_SECONDS = 60.0
"""Time between two rounds of the other kinds. Each costs one request of metadata for 500 objects of each kind."""

CONFIRMED_AT_ONCE = 1000
"""Absent objects that are looked for by their names in one round; further ones wait for the next."""


class Gaps:
    """Forgets remembered objects that are there no more."""

    def __init__(self, kube: Kube, namespaces: tuple[str, ...], kinds: Iterable[Watched], seconds: float) -> None:
        """`seconds` pass between two rounds."""
        self._kube, self._namespaces, self._kinds, self._seconds = kube, namespaces, kinds, seconds

    async def run(self) -> None:
        """Look repeatedly until cancelled. A list that fails is tried again the next time."""
        for number in count(1):
            await asyncio.sleep(self._seconds)
            for kind in self._kinds:
                if number % kind.every == 0:
                    try:
                        await self.look(kind)
                    except (OperatorError, TimeoutError) as error:
                        log.warning("%s", error)

    async def look(self, kind: Watched) -> None:
        """List a kind and forget known objects that no longer exist. Raises OperatorError."""
        # Before the list begins: an object that is made during the list may be missing in it.
        absent = dict(kind.known())
        if absent:
            await self._strike(absent, kind, self._namespaces if kind.resource.namespaced else ())
        for key in islice(sorted(absent), CONFIRMED_AT_ONCE):
            # An object may have been made while a long list was read, and be known from its watch alone.
            single, name = {key: absent[key]}, key[1].removeprefix(kind.prefix)
            await self._strike(single, kind, tuple(filter(None, key[:1])), fieldSelector=f"metadata.name={name}")
            if single:
                log.info("%s %s/%s is gone: its deletion had not been seen", kind.resource.plural, *key)
                kind.forget(key, absent[key])

    async def _strike(
        self, absent: dict[Key, str], kind: Watched, namespaces: tuple[str, ...], **selectors: str
    ) -> None:
        """Take out the objects that exist."""
        resource, optional = kind.resource, kind.resource != POLICIES
        async for body in listed(
            self._kube,
            namespaces,
            kind.api_version,
            resource.plural,
            optional=optional,
            metadata_only=True,
            selectors=selectors,
        ):
            if absent.get(kind.key(body)) in ("", body["metadata"].get("uid", "")):
                del absent[kind.key(body)]
