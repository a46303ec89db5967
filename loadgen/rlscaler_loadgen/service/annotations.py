"""Reports the use of the emulated pods to kwok, so that metrics-server and the real HPA see it.

kwok reads a pod's usage from two annotations. They are patched only on a change that matters, a few at a time: at most
one PATCH per pod and `PERIOD_SECONDS`.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

from kubernetes.aio import client

from rlscaler_loadgen.service.metrics import CPU_WINDOW_SECONDS, Usage, Workers, memory_bytes
from rlscaler_loadgen.service.watch import TRANSIENT, ApiError

logger = logging.getLogger(__name__)

CPU_ANNOTATION = "kwok.x-k8s.io/usage-cpu"
MEMORY_ANNOTATION = "kwok.x-k8s.io/usage-memory"
PERIOD_SECONDS = 5.0
THRESHOLD = 0.04
"""The smallest change worth a PATCH, as part of the request."""
AT_ONCE = 4


@dataclass
class UsageAnnotations:
    """Patches the usage of every replica onto its pod."""

    api: client.ApiClient
    namespace: str
    router: Workers
    usage: Usage
    _told: dict[str, tuple[float, float]] = field(default_factory=dict)

    async def run(self) -> None:
        """Patch changed annotations, every `PERIOD_SECONDS`, until cancelled."""
        while True:
            await asyncio.sleep(PERIOD_SECONDS)
            await self.patch_changes()

    async def patch_changes(self) -> int:
        """One round; how many pods were patched. A pod that cannot be patched is tried again next time."""
        limit = asyncio.Semaphore(AT_ONCE)
        for name in self._told.keys() - self.router.replicas.keys():
            del self._told[name]
        due = self._due()
        results = await asyncio.gather(*(self._patch(limit, name, *amounts) for name, amounts in due.items()))
        return sum(results)

    def _due(self) -> dict[str, tuple[float, float]]:
        """Cores and bytes by pod, of those that changed."""
        due = {}
        for name, replica in self.router.replicas.items():
            pod, busy = self.router.pods[name], self.usage.busy(name, CPU_WINDOW_SECONDS)
            if busy is None or pod.terminating:
                continue
            flavour = replica.flavour
            scale = pod.cores(flavour), pod.memory(flavour)
            amounts = busy * scale[0] * flavour.cpu_share, memory_bytes(pod, replica)
            told = self._told.get(name)
            if told is None or any(
                abs(new - old) > THRESHOLD * of for new, old, of in zip(amounts, told, scale, strict=True)
            ):
                due[name] = amounts
        return due

    async def _patch(self, limit: asyncio.Semaphore, name: str, cores: float, memory: float) -> bool:
        # metrics-server drops pods that have never used any CPU, and then the HPA knows nothing of an idle service.
        values = {CPU_ANNOTATION: f"{max(1, round(cores * 1000))}m", MEMORY_ANNOTATION: f"{round(memory / 2**20)}Mi"}
        async with limit:
            try:
                response = await client.CoreV1Api(self.api).patch_namespaced_pod_without_preload_content(
                    name,
                    self.namespace,
                    {"metadata": {"annotations": values}},
                    field_manager="rlscaler-service",
                    _content_type="application/merge-patch+json",
                    _request_timeout=PERIOD_SECONDS,
                )
                async with response:
                    if response.status not in (200, 404):
                        raise ApiError(f"pod {self.namespace}/{name}", response.status, await response.text())
            except TRANSIENT as error:
                logger.warning("usage annotation not patched: %s", error)
                return False
        self._told[name] = cores, memory
        return bool(response.status == 200)
