"""The suggestion server and its kube-scheduler in the chart: off by default, and on a real API server when it is on."""

from __future__ import annotations

import json

import pytest
import yaml

from rlscaler_core.placement.policies import RULES_OF
from rlscaler_dev.cluster.kube import path_of
from rlscaler_dev.generate.definition import NODE_SCORING
from rlscaler_scheduler.configuration import configuration
from rlscaler_scheduler.settings import Settings
from tests.chart.charts import CHART, NAMESPACE, SETS, find, kinds, template, values
from tests.harness.helm import HelmError

ON = ("--set", "scheduler.enabled=true")
NAME = "rlscaler-scheduler"
PLUGIN = (
    "--set",
    "scheduler.mode=plugin",
    "--set",
    "scheduler.kubeScheduler.repository=registry.example.com/rlscaler-kube-scheduler",
)
METRICS = ("--set", "scheduler.nodeMetrics.prometheusUrl=https://prometheus.monitoring.svc:9443")


def told(helm, *options: str) -> dict:
    config = find(template(helm, *ON, *options), "ConfigMap", NAME)
    return yaml.safe_load(config["data"]["kube-scheduler.yaml"])


def test_nothing_of_it_is_there_by_default(helm):
    for chosen in SETS.values():
        assert not [body for body in template(helm, *chosen) if "scheduler" in body["metadata"]["name"]]


@pytest.mark.parametrize("version", ["1.33.1", "v1.33.1-eks-a1b2c3d", "v1.33.1-gke.1386000", "v1.33.1+k3s1"])
def test_the_image_of_kube_scheduler_is_of_the_release_that_the_cluster_is_made_from(helm, version):
    made = find(template(helm, *ON, "--kube-version", version), "Deployment", f"{NAME}-kube-scheduler")
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.k8s.io/kube-scheduler:v1.33.1"


def test_kube_scheduler_is_told_what_the_command_prints(helm):
    url = f"http://{NAME}.{NAMESPACE}.svc:8899"
    expected = configuration(url)
    expected["leaderElection"] |= {"resourceName": f"{NAME}-kube-scheduler", "resourceNamespace": NAMESPACE}
    assert told(helm) == expected
    assert told(helm, "--set", "scheduler.strict=true")["extenders"][0]["ignorable"] is False
    assert told(helm, "--set", "scheduler.wholeCluster=true") == configuration(url, whole_cluster=True)


def test_kube_scheduler_with_the_plugin_is_told_what_the_command_prints(helm):
    url = f"http://{NAME}.{NAMESPACE}.svc:8899"
    expected = configuration(url, plugin=True, timeout_ms=70, events=True)
    expected["leaderElection"] |= {"resourceName": f"{NAME}-kube-scheduler", "resourceNamespace": NAMESPACE}
    more = ("--set", "scheduler.timeoutMilliseconds=70", "--set", "scheduler.events=true")
    assert told(helm, *PLUGIN, *more) == expected
    pod = find(template(helm, *ON, *PLUGIN), "Deployment", f"{NAME}-kube-scheduler")["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"].startswith("registry.example.com/rlscaler-kube-scheduler:v1.")
    whole = ("--set", "scheduler.mode=plugin", "--set", "scheduler.wholeCluster=true")
    assert told(helm, *whole) == configuration(url, plugin=True, whole_cluster=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--set", "scheduler.mode=plugin"), r"scheduler\.kubeScheduler\.repository"),
        ((*PLUGIN, "--set", "scheduler.strict=true"), "the plugin enforces hard latencies without the server"),
        (("--set", "scheduler.tlsSecret=server"), r"scheduler\.clientSecret go together"),
        (("--set", "scheduler.callerTokenSecret=token"), r"is for scheduler\.mode=plugin"),
        (("--set", "scheduler.events=true"), r"set scheduler\.mode=plugin"),
        (("--set", "scheduler.mode=both"), "scheduler"),
        (("--set", "scheduler.nodeMetrics.balance=use"), r"needs scheduler\.nodeMetrics\.prometheusUrl"),
        (("--set", "scheduler.nodeMetrics.secret=s"), r"nodeMetrics\.prometheusUrl, which is empty"),
        (("--set", "scheduler.nodeMetrics.prometheusUrl=prometheus:9090"), "prometheusUrl"),
        ((*METRICS, "--set", "scheduler.nodeMetrics.queries.swap=1"), "queries"),
    ],
)
def test_modes_that_cannot_be_are_refused(helm, options, said):
    with pytest.raises(HelmError, match=said):
        template(helm, *ON, *options)


def test_the_server_reads_and_writes_nothing(helm):
    objects = template(helm, *ON)
    rules = find(objects, "ClusterRole", NAME)["rules"]
    assert all(set(rule["verbs"]) == {"list", "watch"} for rule in rules)
    named = {resource for rule in rules for resource in rule["resources"]}
    assert named == {"nodes", "pods", "namespaces", "nodescoringpolicies"}
    pod = find(objects, "Deployment", NAME)["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == NAME
    assert pod["securityContext"]["runAsNonRoot"]


def test_node_scoring_policies_come_with_it_and_the_plugin_may_read_them(helm):
    kind = "nodescoringpolicies.rlscaler.io"
    assert not [body for body in template(helm) if body["metadata"]["name"] == kind]
    assert find(template(helm, *ON), "CustomResourceDefinition", kind)["spec"] == NODE_SCORING.manifest()["spec"]
    off = ("--set", "crds.install=false")
    assert not [body for body in template(helm, *ON, *off) if body["metadata"]["name"] == kind]
    assert not [body for body in template(helm, *ON) if body["metadata"]["name"] == f"{NAME}-plugin"]
    for more, subject in (
        ((), f"{NAME}-kube-scheduler"),
        (("--set", "scheduler.wholeCluster=true"), "system:kube-scheduler"),
    ):
        objects = template(helm, *ON, *PLUGIN, *more)
        (rule,) = find(objects, "ClusterRole", f"{NAME}-plugin")["rules"]
        assert (rule["resources"], rule["verbs"]) == (["nodescoringpolicies"], ["list", "watch"])
        (named,) = find(objects, "ClusterRoleBinding", f"{NAME}-plugin")["subjects"]
        assert named["name"] == subject


def test_its_options_are_the_servers(helm):
    options = ("--set", "scheduler.modelConfigMap=nets", "--set", "scheduler.tokenSecret=token")
    pod = find(template(helm, *ON, *options), "Deployment", NAME)["spec"]["template"]["spec"]
    arguments = pod["containers"][0]["args"]
    assert arguments[:2] == ["scheduler", "run"]
    named = {word.removeprefix("--").split("=")[0].replace("-", "_") for word in arguments[2:]}
    assert named - {"scheduler_name"} <= set(Settings.model_fields)
    assert [volume["name"] for volume in pod["volumes"]] == ["models", "token"]


CERTIFICATES = ("--set", "scheduler.tlsSecret=server", "--set", "scheduler.clientSecret=caller")
TOKEN = ("--set", "scheduler.callerTokenSecret=caller-token")


@pytest.mark.parametrize("more", [(), PLUGIN, (*PLUGIN, *TOKEN), ("--set", "scheduler.wholeCluster=true")])
def test_kube_scheduler_shows_the_server_who_it_is(helm, more):
    objects = template(helm, *ON, *CERTIFICATES, *more)
    whole = more[-1:] == ("scheduler.wholeCluster=true",)
    folder = "/etc/kubernetes/rlscaler" if whole else "/etc/rlscaler-caller"
    expected = configuration(
        f"https://{NAME}.{NAMESPACE}.svc:8899",
        plugin=PLUGIN[1] in more,
        whole_cluster=whole,
        credentials=folder,
        token_file=f"{folder}/token" if TOKEN[1] in more else "",
    )
    told = yaml.safe_load(find(objects, "ConfigMap", NAME)["data"]["kube-scheduler.yaml"])
    assert told | {"leaderElection": None} == expected | {"leaderElection": None}
    server = find(objects, "Deployment", NAME)["spec"]["template"]["spec"]
    (container,) = server["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert f"--tls-folder={mounts['tls']}" in container["args"]
    assert (f"--caller-token-file={mounts.get('caller-token')}/token" in container["args"]) is (TOKEN[1] in more)
    assert {container[probe]["httpGet"]["scheme"] for probe in ("readinessProbe", "livenessProbe")} == {"HTTPS"}
    if not whole:
        pod = find(objects, "Deployment", f"{NAME}-kube-scheduler")["spec"]["template"]["spec"]
        assert {"name": "caller", "mountPath": folder, "readOnly": True} in pod["containers"][0]["volumeMounts"]
        named = [source["secret"]["name"] for source in pod["volumes"][1]["projected"]["sources"]]
        assert named == ["caller", *(["caller-token"] if TOKEN[1] in more else [])]


def test_a_server_that_asks_nobody_who_they_are_is_warned_of(helm):
    def notes(*options: str) -> str:
        text = helm.run("install", "rlscaler", str(CHART), "--namespace", NAMESPACE, "--dry-run=client", *ON, *options)
        return text.partition("NOTES:")[2]

    assert "Only its kube-scheduler reaches it" in notes()
    assert "Every pod of the cluster reaches it" in notes("--set", "scheduler.wholeCluster=true")
    assert "Every pod of the cluster reaches it" in notes("--set", "networkPolicy.enabled=false")
    assert "moves placements" not in notes(*CERTIFICATES)


def test_node_metrics_are_what_the_settings_read(helm, monkeypatch, tmp_path):
    names = {"cpu": "instance:node_cpu:ratio", "running_pods": 'kubelet_running_pods{job="kubelet"}'}
    told = {"secret": "seen", "balance": "use", "queries": names, "intervalSeconds": 15, "maxAgeSeconds": 90}
    options = values({"scheduler": {"nodeMetrics": told}}, tmp_path)
    objects = template(helm, *ON, *METRICS, *options)
    pod = find(objects, "Deployment", NAME)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert {"name": "prometheus", "secret": {"secretName": "seen"}} in pod["volumes"]
    (mount,) = (mount for mount in container["volumeMounts"] if mount["name"] == "prometheus")
    assert mount["readOnly"]
    for variable in container["env"]:
        monkeypatch.setenv(variable["name"], variable["value"])
    given = dict(word.removeprefix("--").split("=", 1) for word in container["args"][2:])
    settings = Settings(**{name.replace("-", "_"): text for name, text in given.items() if name != "scheduler-name"})
    assert settings.prometheus_url == "https://prometheus.monitoring.svc:9443"
    assert str(settings.prometheus_credentials) == mount["mountPath"]
    assert (settings.balance, settings.node_queries) == ("use", names)
    assert (settings.node_metrics_seconds, settings.node_metrics_age_seconds) == (15, 90)


def test_rules_are_what_the_settings_read(helm, monkeypatch, tmp_path):
    rules = {"EE": "least-extension", "EL": "latency-fit"}
    for metrics in ((), METRICS):
        objects = template(helm, *ON, *metrics, *values({"scheduler": {"rules": rules}}, tmp_path))
        (container,) = find(objects, "Deployment", NAME)["spec"]["template"]["spec"]["containers"]
        named = {variable["name"]: variable["value"] for variable in container["env"]}
        monkeypatch.setenv("RLSCALER_SCHEDULER_RULES", named["RLSCALER_SCHEDULER_RULES"])
        assert Settings().rules == rules


def test_the_chart_takes_the_rules_that_the_server_takes():
    schema = json.loads((CHART / "values.schema.json").read_text())
    known = schema["properties"]["scheduler"]["properties"]["rules"]["properties"]
    assert {name: tuple(one["enum"]) for name, one in known.items()} == {
        policy: rules for policy, rules in RULES_OF.items() if len(rules) > 1
    }


def test_the_network_lets_the_server_be_asked_and_ask_prometheus(helm):
    def ports(*options: str) -> list[int]:
        rules = find(template(helm, *ON, *options), "NetworkPolicy", NAME)["spec"]
        (peers,) = rules["ingress"]
        assert peers["ports"] == [{"port": "http", "protocol": "TCP"}]
        (caller,) = peers["from"]
        assert caller["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "kube-scheduler"
        return [port["port"] for rule in rules["egress"] for port in rule["ports"]]

    assert ports() == [53, 53, 443, 6443]
    assert ports(*METRICS) == [53, 53, 443, 6443, 9090, 9443]
    of_node = find(template(helm, *ON, "--set", "scheduler.wholeCluster=true"), "NetworkPolicy", NAME)["spec"]
    assert "from" not in of_node["ingress"][0], "no selector names a pod on the network of its node"
    operator = find(template(helm, *ON), "NetworkPolicy", "rlscaler")["spec"]["podSelector"]
    (apart,) = operator["matchExpressions"]
    assert (apart["operator"], apart["values"]) == ("NotIn", ["scheduler", "kube-scheduler"])


def test_the_whole_cluster_needs_no_second_kube_scheduler(helm):
    objects = template(helm, *ON, "--set", "scheduler.wholeCluster=true")
    names = [body["metadata"]["name"] for body in objects if body["kind"] == "Deployment"]
    assert names == ["rlscaler", NAME]
    assert "RoleBinding" in kinds(template(helm, *ON))


def test_the_real_api_server_takes_it_and_the_account_may_only_read(helm, cluster, kube):
    objects = template(helm, *ON, monitoring=False)
    mine = [body for body in objects if "scheduler" in body["metadata"]["name"]]
    kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    kube.apply_all([body for body in mine if body["metadata"].get("namespace") != "kube-system"])

    def may(account: str, verb: str, resource: str, group: str = "") -> bool:
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": f"system:serviceaccount:{NAMESPACE}:{account}",
                "resourceAttributes": {"verb": verb, "resource": resource, "group": group, "namespace": "default"},
            },
        }
        answer = kube.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(answer["status"].get("allowed"))

    assert may(NAME, "list", "nodes")
    assert may(NAME, "watch", "pods")
    assert may(NAME, "list", "nodescoringpolicies", "rlscaler.io")
    assert not may(NAME, "create", "nodescoringpolicies", "rlscaler.io")
    assert not may(NAME, "patch", "pods")
    assert not may(NAME, "create", "bindings")
    assert not may(NAME, "list", "secrets")
    assert not may(NAME, "create", "events", "events.k8s.io")
    assert may(f"{NAME}-kube-scheduler", "create", "bindings")
    assert may(f"{NAME}-kube-scheduler", "create", "events", "events.k8s.io"), (
        "the plugin's Events need no further right"
    )
    assert not may(f"{NAME}-kube-scheduler", "list", "secrets")
    for body in mine:
        if body["metadata"].get("namespace") != "kube-system":
            kube.delete(path_of(body))
