"""Acting under the account that the chart made, from outside of the cluster's pods."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from rlscaler_dev.cluster.api import ClusterInfo
from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_operator.cluster.lease import VACANT
from tests.chart.charts import NAMESPACE, RELEASE
from tests.chart.objects import LEASE, POLICIES, delete
from tests.harness.setup import write_kubeconfig

SCOPE = {"RLSCALER_LEASE_NAMESPACE": NAMESPACE, "RLSCALER_LEASE_NAME": RELEASE, "RLSCALER_LEASE_SECONDS": "5"}
"""As the chart's containers have it."""
FINALIZER = "rlscaler.io/restore"
DECISION = {
    "id": "019b75c6-7c00-7000-8000-000000000000",
    "time": "2026-01-01T00:00:00.250000Z",
    "action": {"gpu": 1, "cpu": -2, "placement": "PreferGPU"},
    "base": {"cpu": 4},
    "desired": {"cpu": 2},
    "applied": True,
    "reasons": ["Floor"],
}
"""In a status's history."""


def kubeconfig(kube: KubeClient, cluster: ClusterInfo, folder: Path) -> Path:
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3600},
    }
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{RELEASE}/token"
    token = kube.request("POST", path, request)["status"]["token"]
    return write_kubeconfig(folder / "account", cluster.kubeconfig, token)


def rlscaler(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command as the chart's Jobs and Pods run it."""
    command = [sys.executable, "-m", "rlscaler_live.cli", "operator", *arguments]
    env = os.environ | SCOPE | environment
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)


def holder(kube: KubeClient) -> str:
    """Which operator holds the Lease; empty where none does, or it is not there yet."""
    lease = kube.find(LEASE) or {}
    name = (lease.get("spec") or {}).get("holderIdentity", "")
    return "" if name == VACANT else name


def put_policy(kube: KubeClient, name: str, **spec: Any) -> None:
    for pool in ("gpu", "cpu"):
        labels = {"app": f"{name}-{pool}"}
        pod = {"containers": [{"name": "app", "image": "app"}]}
        template = {"metadata": {"labels": labels}, "spec": pod}
        deployment = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
        body = {"metadata": {"name": f"{name}-{pool}"}, "spec": deployment}
        kube.request("POST", "/apis/apps/v1/namespaces/workloads/deployments", body)
    targets = {
        pool: {"deployment": f"{name}-{pool}", "maxReplicas": 5, "requestsPerSecond": 5} for pool in ("gpu", "cpu")
    }
    body = {
        "apiVersion": "rlscaler.io/v1alpha1",
        "kind": "RLScalingPolicy",
        "metadata": {"name": name},
        "spec": {
            "targets": targets,
            "slo": {"latencyMilliseconds": 500},
            "senseSeconds": 1,
            "intervalSeconds": 10,
            **spec,
        },
    }
    kube.request("POST", POLICIES, body)


def drop_policy(kube: KubeClient, name: str) -> None:
    for pool in ("gpu", "cpu"):
        kube.delete(f"/apis/apps/v1/namespaces/workloads/deployments/{name}-{pool}")
    delete(kube, f"{POLICIES}/{name}")


def finalizers(kube: KubeClient, name: str) -> list[str]:
    return kube.get(f"{POLICIES}/{name}")["metadata"].get("finalizers") or []
