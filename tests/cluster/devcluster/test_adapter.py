"""The real HorizontalPodAutoscaler scales on GPU utilization that Prometheus holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from rlscaler_dev.cluster import api
from rlscaler_dev.cluster.api import ClusterInfo
from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.cluster.readiness import wait_until
from rlscaler_dev.exposition import ExpositionServer

from .objects import create, deployment, pods, ready, wait_ready

NAMESPACE, NAME = "default", "gpu-hpa"
AUTOSCALERS = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"


@pytest.fixture
def utilization(cluster: ClusterInfo) -> Iterator[list[str]]:
    """Have DCGM_FI_DEV_GPU_UTIL = 90 scraped for the pods whose names are put into the list."""
    names: list[str] = []

    def body() -> str:
        return "".join(f'DCGM_FI_DEV_GPU_UTIL{{namespace="{NAMESPACE}",pod="{pod}",gpu="0"}} 90\n' for pod in names)

    with closing(ExpositionServer(body)) as server:
        target = cluster.add_scrape_target("dcgm", server.address)
        yield names
        target.unlink()


def test_hpa_scales_on_gpu_utilization(cluster: ClusterInfo, utilization: list[str]) -> None:
    assert api.up(cluster.name, adapter=True).adapter
    with KubeClient.from_kubeconfig(cluster.kubeconfig) as client:
        create(client, NAMESPACE, deployment(NAME, 2, "gpu"))
        wait_ready(client, NAMESPACE, NAME, 2)
        utilization += [pod["metadata"]["name"] for pod in pods(client, NAMESPACE, NAME)]
        metric = {"name": "DCGM_FI_DEV_GPU_UTIL"}
        spec = {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME},
            "minReplicas": 1,
            "maxReplicas": 3,
            "metrics": [
                {"type": "Pods", "pods": {"metric": metric, "target": {"type": "AverageValue", "averageValue": "60"}}}
            ],
        }
        client.request("POST", AUTOSCALERS, {"metadata": {"name": NAME}, "spec": spec})
        try:
            # 90 % on each of two replicas against a target of 60 % asks for three.
            wait_until(lambda: ready(client, NAMESPACE, NAME) == 3, "a third replica", 90, interval_seconds=0.5)
        finally:
            client.delete(f"{AUTOSCALERS}/{NAME}")
            client.delete(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{NAME}")
