"""Nodes of a churn test on a control plane of its own, with the real kube-scheduler."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rlscaler_core.placement.policies import Policy
from rlscaler_dev.cluster import objects
from rlscaler_dev.cluster.kube import KubeClient, collection
from rlscaler_dev.cluster.readiness import wait_until
from rlscaler_dev.placement import testbed
from rlscaler_dev.placement.churn import CPU_MILLI, HARD_MS, MEMORY_MIB, SIZE, SOFT_MS, Bed
from rlscaler_dev.placement.contenders import Contender
from rlscaler_scheduler.annotations import HARD, POLICY, SOFT
from rlscaler_scheduler.configuration import PROFILE
from rlscaler_scheduler.objects import LATENCY

NAMESPACE = "placement"
DEPLOYMENTS, PODS = collection("apps/v1", "Deployment", NAMESPACE), collection("v1", "Pod", NAMESPACE)
READY_SECONDS = 120.0
PARALLEL = 8
"""Requests at a time."""


def deployment(name: str, contender: Contender) -> dict[str, Any]:
    """One pod of the thesis by the scheduler of the contender; with limits of latency for EL alone."""
    body = testbed.pod(
        name,
        NAMESPACE,
        cpu=f"{CPU_MILLI}m",
        memory=f"{MEMORY_MIB}Mi",
        scheduler="default-scheduler" if contender.policy is None else PROFILE,
    )
    limits = {SOFT[0]: f"{SOFT_MS:g}", HARD[0]: f"{HARD_MS:g}"} if contender.policy is Policy.EL else {}
    policy = {} if contender.policy is None else {POLICY: str(contender.policy)}
    return objects.deployment(name, NAMESPACE, body["spec"], annotations=limits | policy)


class ControlPlane(Bed):
    """Nodes that kwok plays; the default kube-scheduler, and a second one that asks a suggestion server."""

    def __init__(self, kube: KubeClient, kubeconfig: Path, count: int) -> None:
        self.kube, self._kubeconfig, self.names = kube, kubeconfig, testbed.node_names(count)
        kube.create(objects.namespace(NAMESPACE))
        # A run that was killed leaves its Deployments on the cluster, and a larger one its nodes.
        self._clear()
        pool = "%2C".join(f"{label}%3D{value}" for label, value in testbed.POOL.items())
        for item in kube.get(f"/api/v1/nodes?labelSelector={pool}")["items"]:
            if item["metadata"]["name"] not in self.names:
                kube.delete(f"/api/v1/nodes/{item['metadata']['name']}")
        kube.apply_all(testbed.node(name, SIZE, None) for name in self.names)

    @contextmanager
    def placing(self, contender: Contender, folder: Path) -> Iterator[None]:
        with ExitStack() as stack:
            if contender.policy is not None:
                server = testbed.Suggestions(
                    self._kubeconfig, folder, *contender.options(), "--scheduler-name", PROFILE
                )
                stack.callback(server.stop)
                wait_until(server.ready, "the readiness of the suggestion server", READY_SECONDS)
                stack.enter_context(testbed.second_scheduler(self._kubeconfig, server.url, folder))
            stack.callback(self._clear)
            yield

    def tell(self, latency_ms: Mapping[str, float]) -> None:
        def write(name: str) -> None:
            # A merge costs the API server a fraction of an apply, and a jump changes most nodes.
            self.kube.merge(f"/api/v1/nodes/{name}", {"metadata": {"annotations": {LATENCY: str(latency_ms[name])}}})

        with ThreadPoolExecutor(PARALLEL) as pool:
            list(pool.map(write, latency_ms))

    def create(self, name: str, contender: Contender) -> None:
        self.kube.create(deployment(name, contender))

    def delete(self, name: str) -> None:
        self.kube.delete(f"{DEPLOYMENTS}/{name}")

    def pods(self) -> dict[str, str | None]:
        live = [pod for pod in self.kube.get(PODS)["items"] if not pod["metadata"].get("deletionTimestamp")]
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in live}

    def seconds(self) -> float:
        return time.monotonic()

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def _clear(self) -> None:
        for item in self.kube.get(DEPLOYMENTS)["items"]:
            self.delete(item["metadata"]["name"])
        wait_until(lambda: not self.kube.get(PODS)["items"], "the end of the pods", READY_SECONDS)
