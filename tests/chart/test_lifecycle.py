"""Install, upgrade, roll back and uninstall on the real control plane; pods are played there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.generate.definition import POLICY as DEFINED
from tests.chart import accounts
from tests.chart.charts import CHART, NAMESPACE, RELEASE
from tests.chart.history import commits, files
from tests.chart.kubectl import Kubectl
from tests.chart.objects import (
    DEFINITION,
    DEPLOYMENT,
    LEASE,
    POLICIES,
    SELECTOR,
    WAIT,
    absent,
    delete,
    keeps,
    make_namespaces,
)
from tests.harness.waiting import until

DEFINITION_FILE = "crds/rlscalingpolicies.yaml"
POLICY = {
    "apiVersion": "rlscaler.io/v1alpha1",
    "kind": "RLScalingPolicy",
    "metadata": {"name": "chat"},
    "spec": {"targets": {"cpu": {"deployment": "chat-cpu", "maxReplicas": 5}}, "slo": {"latencyMilliseconds": 500}},
}


@pytest.fixture
def kubectl(cluster, live, kube: KubeClient) -> Iterator[Kubectl]:
    make_namespaces(kube)
    yield Kubectl(cluster.kubeconfig)
    try:
        live.run("uninstall", RELEASE, *WAIT, "--ignore-not-found")
    finally:
        delete(kube, DEFINITION)


def put_policy(kube: KubeClient) -> dict:
    until(lambda: kube.request("POST", POLICIES, POLICY))
    status = {"status": {"history": [accounts.DECISION], "costPerHour": 2.5}}
    return kube.merge(f"{POLICIES}/chat/status", status)


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """The chart as an earlier version had it: another image, a Lease, and less in the definition."""
    folder = tmp_path / "rlscaler"
    shutil.copytree(CHART, folder)
    chart = yaml.safe_load((folder / "Chart.yaml").read_text())
    (folder / "Chart.yaml").write_text(yaml.safe_dump(chart | {"version": "0.0.9", "appVersion": "0.0.9"}))
    crd = yaml.safe_load((folder / "files" / "crd.yaml").read_text())
    version = crd["spec"]["versions"][0]
    del version["additionalPrinterColumns"][5]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del spec["properties"]["promotion"]
    rules = spec["x-kubernetes-validations"]
    spec["x-kubernetes-validations"] = [rule for rule in rules if "self.promotion" not in rule["rule"]]
    (folder / "files" / "crd.yaml").write_text(yaml.safe_dump(crd))
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": RELEASE}}
    lease["metadata"] |= {"namespace": NAMESPACE, "labels": {"app.kubernetes.io/instance": RELEASE}}
    (folder / "templates" / "leases.yaml").write_text(yaml.safe_dump(lease))
    return folder


def test_install_upgrade_rollback_uninstall(live, kube, kubectl, earlier):
    live.run("install", RELEASE, str(earlier), *WAIT)
    assert kube.get(DEPLOYMENT)["status"]["readyReplicas"] == 2
    before = put_policy(kube)
    uids = {path: kube.get(path)["metadata"]["uid"] for path in (DEPLOYMENT, DEFINITION)}

    live.run("upgrade", RELEASE, str(CHART), *WAIT)
    properties = kube.get(DEFINITION)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    wanted = DEFINED.manifest()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    assert properties["spec"]["properties"].keys() == wanted["spec"]["properties"].keys()
    assert kube.get(DEPLOYMENT)["spec"]["template"]["spec"]["containers"][0]["image"] == "localhost/rlscaler:0.1.0"
    assert absent(kube, LEASE), "operators make it"
    assert {path: kube.get(path)["metadata"]["uid"] for path in uids} == uids
    after = kube.get(f"{POLICIES}/chat")
    assert (after["metadata"]["uid"], after["status"]) == (before["metadata"]["uid"], before["status"])

    live.run("rollback", RELEASE, "1", *WAIT)
    assert kube.get(f"{POLICIES}/chat")["status"] == before["status"]
    history = json.loads(live.run("history", RELEASE, "--namespace", NAMESPACE, "--output", "json"))
    assert [entry["chart"] for entry in history] == ["rlscaler-0.0.9", "rlscaler-0.1.0", "rlscaler-0.0.9"]

    live.run("uninstall", RELEASE, *WAIT)
    crd = "customresourcedefinition.apiextensions.k8s.io/rlscalingpolicies.rlscaler.io"
    until(lambda: kubectl.labelled(SELECTOR) == [crd])
    assert absent(kube, LEASE)
    assert kube.get(f"{POLICIES}/chat")["metadata"]["uid"] == before["metadata"]["uid"]
    assert live.run("list", "--all-namespaces", "--short").strip() == ""


def test_installed_again_over_what_was_kept(live, kube, kubectl):
    live.run("install", RELEASE, str(CHART), *WAIT)
    put_policy(kube)
    live.run("uninstall", RELEASE, *WAIT)
    live.run("install", RELEASE, str(CHART), *WAIT)
    assert kube.get(f"{POLICIES}/chat")["status"]["costPerHour"] == 2.5
    live.run("uninstall", RELEASE, *WAIT)


@pytest.fixture(params=["present", "first"])
def definition(request, tmp_path: Path) -> Path:
    """As it ships, or the first that API servers took, without the fields for evidence, model and latency."""
    if request.param == "present":
        return CHART.parents[1] / DEFINITION_FILE
    return files(commits(DEFINITION_FILE)[1], tmp_path, DEFINITION_FILE) / DEFINITION_FILE


def test_definition_applied_by_hand_is_taken_over(live, kube, kubectl, definition):
    kubectl("apply", "-f", str(definition))
    before = put_policy(kube)
    live.run("install", RELEASE, str(CHART), "--take-ownership", "--force-conflicts", *WAIT)
    assert kube.get(DEFINITION)["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert kube.get(DEFINITION)["spec"]["versions"][0]["schema"] == DEFINED.manifest()["spec"]["versions"][0]["schema"]
    after = kube.get(f"{POLICIES}/chat")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"] == before["status"]
    assert keeps(after["spec"], before["spec"])
    live.run("uninstall", RELEASE, *WAIT)


def test_without_the_prometheus_operator_the_notes_say_what_is_left_out(live, kube, kubectl):
    """And with it, the objects are there."""
    told = live.run("install", RELEASE, str(CHART), *WAIT)
    assert "Left out" not in told
    found = kubectl.labelled(SELECTOR)
    assert "servicemonitor.monitoring.coreos.com/rlscaler" in found
    assert "prometheusrule.monitoring.coreos.com/rlscaler-rlscaler" in found
    live.run("uninstall", RELEASE, *WAIT)
    live.run("uninstall", RELEASE, "--ignore-not-found", *WAIT)
