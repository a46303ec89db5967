"""Optional APIs that are installed while the operator runs.

kopf looks once when a CRD changes, and the API server may serve the new API only a moment later.
"""

from __future__ import annotations

import asyncio
import logging

from rlscaler_operator.exceptions import KubeError
from rlscaler_operator.kube import Kube

log = logging.getLogger("rlscaler.discovery")

OPTIONAL = ("keda.sh/v1alpha1", "gateway.networking.k8s.io/v1")
LOOK_SECONDS = 10.0


class Discovery:
    """Sets `found` when an optional API appears."""

    def __init__(self, kube: Kube, found: asyncio.Event) -> None:
        self._kube, self._found = kube, found

    async def run(self) -> None:
        """Until cancelled."""
        known = await self._served()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            served = await self._served()
            for api in sorted(served - known):
                log.info("%s is installed now: watched from here on", api)
                self._found.set()
            known |= served

    async def _served(self) -> set[str]:
        served = set()
        for api in OPTIONAL:
            try:
                await self._kube.get(f"/apis/{api}")
                served.add(api)
            except KubeError as error:
                if error.status != 404:
                    log.debug("%s: %s", api, error)
        return served
