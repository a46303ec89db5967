"""Policies that were deleted while no watch was there to say so: kopf lists again after a gap, but names no absence."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from rlscaler_core.api import GROUP, PLURAL, VERSION
from rlscaler_operator.cluster.cache import Key
from rlscaler_operator.cluster.kube import Kube, listed
from rlscaler_operator.exceptions import OperatorError
from rlscaler_operator.state.registry import Registry

log = logging.getLogger("rlscaler.sweep")

SWEEP_SECONDS = 30.0
"""Longest time that a policy is acted for after its deletion was missed. One request of metadata for 500 policies."""


class Sweep:
    """Forgets policies that the API server does not have any more."""

    def __init__(
        self, kube: Kube, registry: Registry, namespaces: tuple[str, ...], forget: Callable[[Key, str], None]
    ) -> None:
        self._kube, self._registry, self._namespaces, self._forget = kube, registry, namespaces, forget

    async def run(self) -> None:
        """Until cancelled. What cannot be listed now is listed the next time."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                await self.sweep()
            except OperatorError as error:
                log.warning("%s", error)

    async def sweep(self) -> None:
        """Compare what was known before the list began with the list. Raises OperatorError."""
        known = {policy.key: policy.uid for policy in self._registry}
        there: dict[Key, str] = {}
        async for body in listed(self._kube, self._namespaces, f"{GROUP}/{VERSION}", PLURAL, metadata_only=True):
            metadata = body["metadata"]
            there[metadata.get("namespace", ""), metadata["name"]] = metadata.get("uid", "")
        for key, uid in known.items():
            if there.get(key) != uid:
                log.info("%s/%s is gone: its deletion had not been seen", *key)
                self._forget(key, uid)
