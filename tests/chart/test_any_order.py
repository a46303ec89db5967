"""Uninstalling in another order than one should: nothing hangs."""

from __future__ import annotations

from tests.chart import accounts
from tests.chart.charts import CHART, NAMESPACE, RELEASE
from tests.chart.kubectl import Kubectl
from tests.chart.objects import WAIT, absent
from tests.harness.operators import Operator
from tests.harness.waiting import until

FINALIZER = "rlscaler.io/restore"
CLUSTER_SCOPED = (
    "clusterrole",
    "clusterrolebinding",
    "validatingadmissionpolicy",
    "validatingadmissionpolicybinding",
    "crd",
)
"""What the chart's README says to delete where the namespace went without the release."""


def test_namespace_goes_before_the_release(live, kube, cluster, tmp_path, monkeypatch):
    """No hook runs then; the operator's last act lets go of the policies, and what is left can be deleted."""
    for name in (NAMESPACE, "workloads"):
        kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    live.run("install", RELEASE, str(CHART), *WAIT)
    for name, value in accounts.SCOPE.items():
        monkeypatch.setenv(name, value)
    operator = Operator(accounts.kubeconfig(kube, cluster, tmp_path), cluster.prometheus_url, tmp_path)
    until(lambda: accounts.holder(kube), 90)
    accounts.put_policy(kube, "left", mode="Auto", restoreOnDelete=True)
    until(lambda: FINALIZER in accounts.finalizers(kube, "left"), 60)
    # Stands for the operator's pod: pods are ended first, and until then the account keeps its permissions.
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    pod = {
        "metadata": {"name": "operator", "finalizers": ["test/hold"]},
        "spec": {"containers": [{"name": "a", "image": "a"}]},
    }
    kube.request("POST", pods, pod)
    kube.delete(f"/api/v1/namespaces/{NAMESPACE}")
    assert operator.stop() == 0, operator.log.read_text()
    assert accounts.finalizers(kube, "left") == []
    assert f"namespace {NAMESPACE} is being deleted: released workloads/left" in operator.log.read_text()
    json_patch = "application/json-patch+json"
    kube.request(
        "PATCH", f"{pods}/operator", [{"op": "remove", "path": "/metadata/finalizers"}], content_type=json_patch
    )
    until(lambda: absent(kube, f"/api/v1/namespaces/{NAMESPACE}"), 60)
    accounts.drop_policy(kube, "left")
    kubectl = Kubectl(cluster.kubeconfig)
    kubectl("delete", ",".join(CLUSTER_SCOPED), "-l", f"app.kubernetes.io/instance={RELEASE}")
    until(lambda: kubectl.labelled(f"app.kubernetes.io/instance={RELEASE}") == [])
