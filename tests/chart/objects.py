"""Where the release's objects are."""

from __future__ import annotations

from rlscaler_devcluster.exceptions import ApiError
from rlscaler_devcluster.kube import KubeClient
from tests.chart.charts import NAMESPACE, RELEASE

POLICIES = "/apis/rlscaler.io/v1alpha1/namespaces/workloads/rlscalingpolicies"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/rlscalingpolicies.rlscaler.io"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{RELEASE}"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}"
WAIT = ("--namespace", NAMESPACE, "--wait", "--timeout", "90s")
"""Options of every Helm command that acts on it."""


def absent(kube: KubeClient, path: str) -> bool:
    try:
        kube.get(path)
    except ApiError as error:
        return error.status == 404
    return False
