"""The chart with real containers: Helm's own test, a Secret that is missing, and uninstalling in either order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rlscaler_dev.cluster import api
from rlscaler_dev.cluster.api import ClusterInfo
from rlscaler_dev.cluster.images import make
from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.cluster.progress import ConsoleReporter
from rlscaler_dev.cluster.realnode.node import REAL
from tests.chart import accounts
from tests.chart.charts import CHART, NAMESPACE, RELEASE
from tests.chart.history import commits, files
from tests.chart.kubectl import Kubectl
from tests.chart.objects import DEFINITION, POLICIES, SELECTOR, absent, delete, make_namespaces
from tests.harness.control_plane import own_cluster
from tests.harness.helm import Helm, HelmError
from tests.harness.waiting import until

pytestmark = pytest.mark.e2e

WAIT = ("--namespace", NAMESPACE, "--wait", "--timeout", "180s")
PROMETHEUS = ("--set", "prometheus.url=http://prometheus.workloads.svc:9090")


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterInfo]:
    with own_cluster("chart", gpu_nodes=0, cpu_nodes=0, node=REAL) as started:
        yield started


@pytest.fixture(scope="module")
def kube(cluster: ClusterInfo) -> Iterator[KubeClient]:
    """With the operator's image on the node, and a Prometheus."""
    api.load_images(cluster.name, make.build(ConsoleReporter())["rlscaler"])
    with KubeClient.from_kubeconfig(cluster.kubeconfig) as client:
        make_namespaces(client)
        container = {
            "name": "prometheus",
            "image": "localhost/prometheus:1",
            "args": ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/data"],
            "volumeMounts": [
                {"name": "config", "mountPath": "/etc/prometheus"},
                {"name": "data", "mountPath": "/data"},
            ],
        }
        volumes = [{"name": "config", "configMap": {"name": "prometheus"}}, {"name": "data", "emptyDir": {}}]
        labels = {"app": "prometheus"}
        core = "/api/v1/namespaces/workloads"
        config = {"metadata": {"name": "prometheus"}, "data": {"prometheus.yml": "{}"}}
        pod = {"metadata": {"name": "prometheus", "labels": labels}}
        service = {"metadata": {"name": "prometheus"}, "spec": {"selector": labels, "ports": [{"port": 9090}]}}
        client.request("POST", f"{core}/configmaps", config)
        client.request("POST", f"{core}/pods", pod | {"spec": {"containers": [container], "volumes": volumes}})
        client.request("POST", f"{core}/services", service)
        until(lambda: client.get(f"{core}/pods/prometheus")["status"]["phase"] == "Running", 120)
        yield client


@pytest.fixture
def chart(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The present one; with the parameter "first" the first there was."""
    if not hasattr(request, "param"):
        return CHART
    return files(commits("helm/rlscaler/Chart.yaml")[0], tmp_path, "helm/rlscaler") / "helm" / "rlscaler"


@pytest.fixture
def installed(cluster: ClusterInfo, kube: KubeClient, chart: Path) -> Iterator[Helm]:
    make_namespaces(kube)
    helm = Helm(cluster.kubeconfig, ConsoleReporter())
    helm.run("install", RELEASE, str(chart), *WAIT, *PROMETHEUS)
    yield helm
    helm.run("uninstall", RELEASE, *WAIT, "--ignore-not-found")
    delete(kube, DEFINITION)


def restored_on_deletion(kube: KubeClient) -> None:
    accounts.put_policy(kube, "chat", mode="Auto", restoreOnDelete=True)
    until(lambda: accounts.FINALIZER in accounts.finalizers(kube, "chat"), 60)


def test_helm_test_and_a_secret_that_is_missing(installed, kube, cluster):
    told = installed.run("test", RELEASE, "--namespace", NAMESPACE)
    assert "Succeeded" in told
    assert absent(kube, f"/api/v1/namespaces/{NAMESPACE}/pods/{RELEASE}-verify")

    secret = ("--set", "externalScaler.enabled=true", "--set", "externalScaler.tlsSecret=not-there")
    quick = ("--namespace", NAMESPACE, "--wait", "--timeout", "15s")
    with pytest.raises(HelmError):
        installed.run("upgrade", RELEASE, str(CHART), "--reset-then-reuse-values", *secret, *quick)
    kubectl = Kubectl(cluster.kubeconfig)
    said, _ = kubectl("get", "events", "-n", NAMESPACE, "-o", "jsonpath={range .items[*]}{.message}{'\\n'}{end}")
    assert 'secret "not-there" not found' in said
    pods = kube.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
    states = [pod["status"]["containerStatuses"][0] for pod in pods]
    assert sorted(state["ready"] for state in states) == [False, True, True], "the old ones go on"
    assert {state["restartCount"] for state in states} == {0}
    installed.run("rollback", RELEASE, *WAIT)


@pytest.mark.parametrize("chart", ["first"], indirect=True)
def test_upgraded_from_the_first_chart(installed, kube, chart):
    """With the present image, and a value that makes other pods. The operator of that time: tests/chart."""
    restored_on_deletion(kube)
    history = {"history": [accounts.DECISION]}
    before = kube.merge(f"{POLICIES}/chat/status", {"status": history})
    pods = kube.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
    earlier = tuple(pod["metadata"]["name"] for pod in pods)
    assert accounts.holder(kube).startswith(earlier)
    changed = ("--set", "operator.statusIntervalSeconds=240")
    installed.run("upgrade", RELEASE, str(CHART), "--reset-then-reuse-values", *changed, *WAIT)
    until(lambda: (holder := accounts.holder(kube)) and not holder.startswith(earlier), 60)
    kube.merge(f"{POLICIES}/chat", {"spec": {"slo": {"latencyMilliseconds": 400}}})
    after = until(lambda: (p := kube.get(f"{POLICIES}/chat"))["status"].get("observedGeneration") == 2 and p, 60)
    for field in ("uid", "finalizers"):
        assert after["metadata"][field] == before["metadata"][field]
    assert after["status"]["history"] == [accounts.DECISION]
    accounts.drop_policy(kube, "chat")


def test_uninstalled_before_the_policies(installed, kube, cluster):
    restored_on_deletion(kube)
    installed.run("uninstall", RELEASE, *WAIT)
    assert accounts.finalizers(kube, "chat") == []
    crd = "customresourcedefinition.apiextensions.k8s.io/rlscalingpolicies.rlscaler.io"
    kubectl = Kubectl(cluster.kubeconfig)
    until(lambda: kubectl.labelled(SELECTOR) == [crd], 60)
    accounts.drop_policy(kube, "chat")


def test_namespace_deleted_before_the_release(installed, kube, cluster):
    restored_on_deletion(kube)
    delete(kube, f"/api/v1/namespaces/{NAMESPACE}", 120)
    assert accounts.finalizers(kube, "chat") == []
    accounts.drop_policy(kube, "chat")
    kinds = (
        "role,rolebinding,clusterrole,clusterrolebinding,validatingadmissionpolicy,validatingadmissionpolicybinding,crd"
    )
    kubectl = Kubectl(cluster.kubeconfig)
    kubectl("delete", "-A", "-l", SELECTOR, kinds)
    until(lambda: kubectl.labelled(SELECTOR) == [], 60)
    assert absent(kube, f"{POLICIES}/chat")
