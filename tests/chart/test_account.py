"""Real operators under the account and with the permissions that the chart makes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rlscaler_dev.cluster.kube import KubeClient
from tests.chart import accounts
from tests.chart.charts import CHART, NAMESPACE, RELEASE
from tests.chart.objects import DEFINITION, LEASE, POLICIES, WAIT, delete, make_namespaces
from tests.harness.operators import Operator
from tests.harness.waiting import stays, until


@pytest.fixture(scope="module", params=["cluster-wide", "namespaced"])
def installed(request, live, kube: KubeClient, cluster, tmp_path_factory) -> Iterator[tuple[Any, ...]]:
    """The release; kubeconfig of its account, and the environment of its containers."""
    make_namespaces(kube)
    only = request.param == "namespaced"
    live.run("install", RELEASE, str(CHART), *WAIT, *(("--set", "watchNamespaces={workloads}") if only else ()))
    yield (
        accounts.kubeconfig(kube, cluster, tmp_path_factory.mktemp("account")),
        {"RLSCALER_NAMESPACES": "workloads"} if only else {},
    )
    live.run("uninstall", RELEASE, *WAIT)
    delete(kube, DEFINITION)


@pytest.fixture(scope="module")
def operator(installed, cluster, kube, tmp_path_factory) -> Iterator[Operator]:
    """One that holds the Lease, set up as the chart's containers are."""
    kubeconfig, environment = installed
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (accounts.SCOPE | environment).items():
            patch.setenv(name, value)
        one = Operator(kubeconfig, cluster.prometheus_url, tmp_path_factory.mktemp("operator"))
    until(lambda: accounts.holder(kube), 90)
    yield one
    one.stop()


@pytest.mark.parametrize("installed", ["namespaced"], indirect=True)
def test_verify_waits_for_an_operator_that_just_started(kube, cluster, installed, tmp_path, monkeypatch):
    """Right after `helm install` no operator holds the Lease: the first one takes it when it expires."""
    kubeconfig, environment = installed
    for name, value in (accounts.SCOPE | environment).items():
        monkeypatch.setenv(name, value)
    verify = ("verify", "--kubeconfig", str(kubeconfig), "--prometheus-url", cluster.prometheus_url)
    at_once = accounts.rlscaler(*verify)
    assert at_once.returncode == 1
    assert f"FAIL an operator holds the Lease {NAMESPACE}/{RELEASE}" in at_once.stdout
    one = Operator(kubeconfig, cluster.prometheus_url, tmp_path)
    try:
        patient = accounts.rlscaler(*verify, "--patience-seconds", "90")
        assert patient.returncode == 0, patient.stdout + patient.stderr
        assert "FAIL" not in patient.stdout
        nowhere = accounts.rlscaler(*verify, "--prometheus-url", "http://127.0.0.1:9", "--patience-seconds", "2")
        assert nowhere.returncode == 1
        assert "FAIL Prometheus answers at http://127.0.0.1:9" in nowhere.stdout
    finally:
        one.stop()


def test_operator_works_and_verify_says_so(operator, kube, cluster, installed):
    kubeconfig, environment = installed
    accounts.put_policy(kube, "works")
    until(lambda: kube.get(f"{POLICIES}/works").get("status", {}).get("conditions"))
    verify = ("verify", "--kubeconfig", str(kubeconfig), "--prometheus-url", cluster.prometheus_url)
    done = accounts.rlscaler(*verify, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAIL" not in done.stdout
    assert "acts that would be too much" in done.stdout
    print(done.stdout)
    accounts.drop_policy(kube, "works")
    assert "orbidden" not in operator.log.read_text()


@pytest.mark.parametrize("installed", ["namespaced"], indirect=True)
def test_the_lease_is_made_by_the_operator_and_made_again_after_it_was_deleted(operator, kube):
    """Argo CD applies no Lease, and `kubectl delete lease` takes it away."""
    kube.delete(LEASE)
    until(lambda: accounts.holder(kube), 60)
    assert "orbidden" not in operator.log.read_text()


@pytest.mark.parametrize("installed", ["namespaced"], indirect=True)
def test_verify_names_what_is_missing_and_what_is_too_much(kube, cluster, installed):
    kubeconfig, environment = installed
    group = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
    binding = kube.get(f"{group}/rolebindings/rlscaler-lease")
    kube.delete(f"{group}/rolebindings/rlscaler-lease")
    rules = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
    kube.request("POST", f"{group}/roles", {"metadata": {"name": "more"}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "more"}
    more = {"metadata": {"name": "more"}, "roleRef": role, "subjects": binding["subjects"]}
    kube.request("POST", f"{group}/rolebindings", more)
    verify = ("verify", "--kubeconfig", str(kubeconfig), "--url", "http://127.0.0.1:9")
    try:
        done = accounts.rlscaler(*verify, RLSCALER_PROMETHEUS_URL=cluster.prometheus_url, **environment)
    finally:
        kube.delete(f"{group}/rolebindings/more")
        kube.delete(f"{group}/roles/more")
        del binding["metadata"]["resourceVersion"]
        kube.request("POST", f"{group}/rolebindings", binding)
    assert done.returncode == 1
    assert f"it may not get leases.coordination.k8s.io {RELEASE} in {NAMESPACE}" in done.stdout
    assert f"it may also get secrets in {NAMESPACE}: remove" in done.stdout
    assert "FAIL the operator answers at http://127.0.0.1:9/readyz" in done.stdout


@pytest.mark.parametrize("installed", ["namespaced"], indirect=True)
def test_released_policies_stay_released_and_can_go(operator, kube, installed):
    """While the operator runs on, as it does until Helm has deleted it."""
    kubeconfig, environment = installed
    accounts.put_policy(kube, "kept", mode="Auto", restoreOnDelete=True)
    until(lambda: accounts.FINALIZER in accounts.finalizers(kube, "kept"), 60)
    done = accounts.rlscaler("release", "--kubeconfig", str(kubeconfig), **environment)
    assert done.returncode == 0, done.stderr
    assert "released workloads/kept" in done.stdout
    stays(lambda: accounts.finalizers(kube, "kept"), [], 3.0)
    accounts.drop_policy(kube, "kept")


@pytest.mark.parametrize("installed", ["namespaced"], indirect=True)
def test_release_of_nothing(kube, installed):
    kubeconfig, environment = installed
    before = kube.get(LEASE)
    done = accounts.rlscaler("release", "--kubeconfig", str(kubeconfig), **environment)
    assert done.returncode == 0, done.stderr
    assert "nothing to release" in done.stdout
    assert kube.get(LEASE)["spec"] == before["spec"]
