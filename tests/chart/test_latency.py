"""What measures latencies in the chart: off by default, and on a real API server bounded to its own node."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from urllib.parse import urlsplit

import pytest

from rlscaler_dev.cluster import kwok
from rlscaler_dev.cluster.kube import KubeClient, path_of
from rlscaler_dev.exceptions import ApiError
from rlscaler_dev.placement.testbed import Process
from rlscaler_scheduler.objects import LATENCY, LATENCY_UNTIL
from rlscaler_scheduler.settings import LatencySettings
from tests.chart.charts import NAMESPACE, SETS, find, kinds, template
from tests.harness.helm import HelmError
from tests.harness.setup import write_kubeconfig
from tests.harness.waiting import until

NAME = "rlscaler-latency"
ON = (
    "--set",
    "scheduler.latency.enabled=true",
    "--set",
    "scheduler.latency.targets.berlin=berlin.example.com:443",
    "--set",
    "scheduler.latency.targets.lyon=https://lyon.example.com/ping",
)


def mine(objects):
    return [body for body in objects if body["metadata"]["name"] == NAME]


def test_nothing_of_it_is_there_by_default(helm):
    for chosen in SETS.values():
        assert not mine(template(helm, *chosen))
    assert not mine(template(helm, "--set", "scheduler.enabled=true"))


def test_it_runs_on_every_node_and_is_told_where_users_are(helm):
    objects = template(helm, *ON)
    assert kinds(mine(objects)) == [
        "ClusterRole",
        "ClusterRoleBinding",
        "DaemonSet",
        "ServiceAccount",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ]
    pod = find(objects, "DaemonSet", NAME)["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == NAME
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["securityContext"]["runAsNonRoot"]
    (container,) = pod["containers"]
    assert container["args"][:2] == ["scheduler", "latency"]
    told = {one["name"]: one.get("value", "") for one in container["env"]}
    told.pop("RLSCALER_LATENCY_NODE")
    settings = {name.removeprefix("RLSCALER_LATENCY_").lower(): value for name, value in told.items()}
    read = LatencySettings(node="n", **settings)
    assert [target.name for target in read.targets] == ["berlin", "lyon"]
    assert read.port == container["ports"][0]["containerPort"]


def test_its_pods_are_not_those_of_the_operator(helm):
    objects = template(helm, *ON)
    labels = find(objects, "DaemonSet", NAME)["spec"]["template"]["metadata"]["labels"]
    operator = find(objects, "Deployment", "rlscaler")["spec"]["selector"]["matchLabels"]
    assert not operator.items() <= labels.items()
    assert find(objects, "DaemonSet", NAME)["spec"]["selector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (ON[:2], "name at least one address of users"),
        ((*ON[:2], "--set", "scheduler.latency.targets.a=nowhere"), "targets"),
        ((*ON, "--set", "scheduler.latency.expireSeconds=0"), "expireSeconds"),
    ],
)
def test_values_that_cannot_be_are_refused(helm, options, said):
    with pytest.raises(HelmError, match=said):
        template(helm, *options)


CONFINED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@pytest.fixture
def account(helm, cluster, kube, tmp_path) -> Iterator[tuple[KubeClient, object]]:
    """What the chart makes, and one pod of it on the node near: a client with its token, and the kubeconfig."""
    made = [body for body in mine(template(helm, *ON, monitoring=False)) if body["kind"] != "DaemonSet"]
    nodes = [kwok.node(name, "latency") for name in ("near", "far")]
    kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    kube.apply_all([*made, *nodes])
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "measures", "namespace": NAMESPACE},
        "spec": {
            "nodeName": "near",
            "serviceAccountName": NAME,
            "automountServiceAccountToken": False,
            # Other tests of charts leave the namespace restricted.
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "c", "image": "played", "securityContext": CONFINED}],
        },
    }
    kube.create(pod)
    uid = kube.get(path_of(pod))["metadata"]["uid"]
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "measures", "uid": uid}
    path = write_kubeconfig(tmp_path / "kubeconfig", cluster.kubeconfig, kube.token(NAMESPACE, NAME, bound))
    with KubeClient.from_kubeconfig(path) as client:
        yield client, path
    kube.delete(f"{path_of(pod)}?gracePeriodSeconds=0")
    for body in (*made, *nodes):
        kube.delete(path_of(body))


def answer(client: KubeClient, node: str, body) -> str:
    """Whose refusal it is; empty = it was taken. Nothing is kept."""
    path = f"/api/v1/nodes/{node}?dryRun=All"
    try:
        client.merge(path, body)
    except ApiError as error:
        if error.status == 422 and NAME in str(error):
            return "admission"
        return "rights" if error.status == 403 else str(error)
    return ""


def annotations(**said):
    return {"metadata": {"annotations": said}}


def test_the_account_writes_latencies_to_its_own_node_and_nothing_else(account, kube, cluster, tmp_path):
    client, _ = account
    latency = annotations(**{LATENCY: "12.5", LATENCY_UNTIL: "2030-01-01T00:00:00Z"})
    until(lambda: answer(client, "near", annotations(other="x")) == "admission", 120)
    assert answer(client, "near", latency) == ""
    assert answer(client, "far", latency) == "admission"
    assert answer(client, "near", {"metadata": {"labels": {"pool": "mine"}}}) == "admission"
    assert answer(client, "near", {"spec": {"unschedulable": True}}) == "admission"
    assert answer(client, "near", {"metadata": {"finalizers": ["theirs.example/one"]}}) == "admission"
    removed = annotations(**{"node.alpha.kubernetes.io/ttl": None})
    assert answer(client, "near", removed) == "admission"
    for method, path in (
        ("GET", "/api/v1/nodes"),
        ("GET", "/api/v1/nodes/near"),
        ("DELETE", "/api/v1/nodes/near"),
        ("PATCH", "/api/v1/nodes/near/status"),
        ("GET", "/api/v1/pods"),
        ("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets"),
    ):
        with pytest.raises(ApiError) as refused:
            client.request(method, path, {} if method == "PATCH" else None, content_type="application/merge-patch+json")
        assert refused.value.status == 403, (method, path)
    free = write_kubeconfig(tmp_path / "free", cluster.kubeconfig, kube.token(NAMESPACE, NAME))
    with KubeClient.from_kubeconfig(free) as anywhere:
        assert answer(anywhere, "near", latency) == "admission", "a token of no pod says of no node that it is its own"


def test_the_command_measures_and_writes_with_that_account(account, kube, cluster, tmp_path):
    _, kubeconfig = account
    options = ["--node", "near", "--target", f"api={urlsplit(cluster.server).netloc}", "--port", "0"]
    command = [sys.executable, "-m", "rlscaler_live.cli", "scheduler", "latency", "--kubeconfig", str(kubeconfig)]
    process = Process([*command, *options], tmp_path / "log")
    try:

        def said():
            assert process.process.poll() is None, process.log.read_text()
            return kube.get("/api/v1/nodes/near")["metadata"]["annotations"].get(LATENCY)

        assert float(until(said, 180)) > 0
        ends = kube.get("/api/v1/nodes/near")["metadata"]["annotations"][LATENCY_UNTIL]
        assert datetime.fromisoformat(ends) > datetime.now(UTC)
        assert LATENCY not in kube.get("/api/v1/nodes/far")["metadata"]["annotations"]
    finally:
        process.stop()
