"""Where the release's objects are, and what has to be there before it and gone after it."""

from __future__ import annotations

from typing import Any

from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.exceptions import ApiError
from tests.chart.charts import NAMESPACE, RELEASE
from tests.harness.waiting import until

POLICIES = "/apis/rlscaler.io/v1alpha1/namespaces/workloads/rlscalingpolicies"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/rlscalingpolicies.rlscaler.io"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{RELEASE}"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}"
SELECTOR = f"app.kubernetes.io/instance={RELEASE}"
WAIT = ("--namespace", NAMESPACE, "--wait", "--timeout", "90s")
"""Options of every Helm command that acts on it."""
RESTRICTED = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
"""Labels of a namespace."""


def make_namespaces(kube: KubeClient) -> None:
    """The release's, which takes nothing but restricted pods, and the policies'.

    An earlier release's Lease is not left there: its uninstallation may have taken it for a minute and a half.
    """
    for name, labels in ((NAMESPACE, RESTRICTED), ("workloads", {})):
        kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    kube.delete(LEASE)


def absent(kube: KubeClient, path: str) -> bool:
    try:
        kube.get(path)
    except ApiError as error:
        return error.status == 404
    return False


def delete(kube: KubeClient, path: str, seconds: float = 60.0) -> None:
    """And wait until it is gone."""
    kube.delete(path)
    until(lambda: absent(kube, path), seconds)


def keeps(after: Any, before: Any) -> bool:
    """Say whether everything that was set is as it was; later fields may have come with their defaults."""
    if isinstance(before, dict):
        return isinstance(after, dict) and all(name in after and keeps(after[name], before[name]) for name in before)
    return bool(after == before)
