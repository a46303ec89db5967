"""What `rlscaler init` makes of objects, what preflight makes of quotas and nodes, and a client that cannot write."""

from typing import get_args

import pytest
import yaml
from kubernetes.aio.client import Configuration

from rlscaler_core.api import parse
from rlscaler_core.api.metrics import ServerName
from rlscaler_core.api.targets import GPUTarget
from rlscaler_operator.cli.init.guess import IMAGES, Seen, drafted
from rlscaler_operator.cli.preflight.room import check_pods, devices, fits, short_of
from rlscaler_operator.cluster.kube import ReadOnly
from rlscaler_operator.exceptions import KubeError


def deployment(name, replicas=2, gpus=0, **requests):
    resources = {"requests": requests, "limits": {"nvidia.com/gpu": str(gpus)} if gpus else {}}
    pod = {"containers": [{"name": "app", "resources": resources}]}
    template = {"metadata": {"labels": {"app": name}}, "spec": pod}
    return {"metadata": {"name": name}, "spec": {"replicas": replicas, "template": template}}


def scaled_object(**spec):
    trigger = {
        "serverAddress": "http://prometheus.monitoring:9090",
        "query": "sum(rate(my_total[1m]))",
        "threshold": "15",
    }
    spec = {"scaleTargetRef": {"name": "chat"}, "triggers": [{"type": "prometheus", "metadata": trigger}], **spec}
    return {"kind": "ScaledObject", "metadata": {"name": "chat"}, "spec": spec}


def seen(scaler=None, gpus=1, **more):
    return Seen("workloads", {"chat": deployment("chat", gpus=gpus)}, scaler, **more)


def test_address_query_and_limits_come_from_the_scaled_object():
    text = drafted(seen(scaled_object(minReplicaCount=0)), two_pools=False).yaml()
    spec = yaml.safe_load(text)["spec"]
    assert (spec["targets"]["gpu"]["minReplicas"], spec["targets"]["gpu"]["maxReplicas"]) == (1, 100)
    assert spec["metrics"]["prometheus"]["url"] == "http://prometheus.monitoring:9090"
    assert spec["metrics"]["queries"] == {"arrivalRate": "sum(rate(my_total[1m]))"}
    assert "adds a replica for each 15" in text
    assert "0 before: one pool has to keep a replica" in text
    assert "sets none: KEDA's default" in text


def test_a_constant_side_of_a_query_is_not_taken_over():
    scaler = scaled_object()
    scaler["spec"]["triggers"][0]["metadata"]["query"] = 'sum(rate(hits{app="chat"}[1m])) or vector(0)'
    draft = drafted(seen(scaler), two_pools=False)
    assert draft.fields["spec.metrics.queries.arrivalRate"] == 'sum(rate(hits{app="chat"}[1m]))'
    assert "Left out of it: `or vector(0)`" in draft.notes["spec.metrics.queries.arrivalRate"]


def test_every_draft_is_a_policy_and_every_guess_a_comment():
    draft = drafted(seen(gpus=0), two_pools=False)
    text = draft.yaml()
    assert parse(yaml.safe_load(text)).spec.targets.cpu.deployment == "chat"
    assert parse(yaml.safe_load(text)).spec.mode == "Shadow"
    flat = " ".join(line.strip().removeprefix("# ") for line in text.splitlines())
    for note in draft.notes.values():
        assert note in flat
    assert max(map(len, text.splitlines())) <= 120


def test_a_service_that_selects_the_pods_is_the_label_of_the_metrics():
    def service(name, **selector):
        return {"metadata": {"name": name}, "spec": {"selector": selector}}

    one = drafted(seen(services=[service("front", app="chat"), service("else", app="b")]), two_pools=False)
    assert one.fields["spec.metrics.service"] == "front"
    two = drafted(seen(services=[service("front", app="chat"), service("back", app="chat")]), two_pools=False)
    assert "spec.metrics.service" not in two.fields
    assert "front, back" in two.notes["spec.metrics.service"]


@pytest.mark.parametrize(
    ("image", "preset"),
    [("vllm/vllm-openai:v0.10", "vllm"), ("nvcr.io/nvidia/tritonserver:25.01-py3", "triton"), ("team/own:1", None)],
)
def test_the_preset_is_guessed_by_the_image(image, preset):
    one = seen()
    one.deployments["chat"]["spec"]["template"]["spec"]["containers"][0]["image"] = image
    draft = drafted(one, two_pools=False)
    assert draft.fields.get("spec.metrics.preset") == preset
    parse(draft.body())


@pytest.mark.parametrize("query", ["vllm:num_requests_waiting", "sum(rate(vllm:request_success_total[1m]))"])
def test_the_scaled_object_of_a_guide_for_vllm_becomes_a_policy_in_tokens_that_needs_no_number(query):
    scaler = scaled_object()
    scaler["spec"]["triggers"][0]["metadata"] |= {"query": query, "threshold": "5"}
    one = seen(scaler)
    one.deployments["chat"]["spec"]["template"]["spec"]["containers"][0]["image"] = "vllm/vllm-openai:v0.10"
    draft = drafted(one, two_pools=False)
    spec = parse(draft.body()).spec
    assert (spec.mode, spec.capacity.unit, spec.slo.signal) == ("Shadow", "tokens", "ttft")
    assert (spec.slo.latency_milliseconds, spec.slo.time_per_output_token_milliseconds) == (2500, 150)
    assert "requestsPerSecond" not in draft.yaml()


def test_every_preset_of_an_image_exists():
    assert set(IMAGES.values()) == set(get_args(ServerName))


REFUSED = {"type": "ReplicaFailure", "status": "True", "message": 'pods "chat" is forbidden: exceeded quota'}


@pytest.mark.parametrize(
    ("hard", "used", "short"),
    [
        ({"requests.nvidia.com/gpu": "10"}, {"requests.nvidia.com/gpu": "2"}, False),
        ({"requests.nvidia.com/gpu": "9"}, {"requests.nvidia.com/gpu": "2"}, True),
        ({"cpu": "8"}, {"cpu": "4"}, False),
        ({"requests.cpu": "7900m"}, {"requests.cpu": "4"}, True),
        ({"requests.memory": "2Gi"}, {}, False),
        ({"pods": "5"}, {"pods": "2"}, True),
    ],
)
def test_a_quota_has_to_last_for_the_replicas_that_are_not_there_yet(hard, used, short):
    target = GPUTarget(deployment="chat", max_replicas=10)
    # Four were asked for, and two of them have a pod.
    body = deployment("chat", 4, gpus=1, cpu="500m", memory="256Mi") | {"status": {"replicas": 2}}
    quota = {"metadata": {"name": "some"}, "status": {"hard": hard, "used": used}}
    found = list(short_of(quota, [(target, body)]))
    assert bool(found) == short, found


@pytest.mark.parametrize(
    ("status", "state", "words"),
    [
        ({"replicas": 3, "readyReplicas": 3}, "ok", ""),
        ({"replicas": 3, "readyReplicas": 1}, "warn", "2 of them are not ready"),
        ({"replicas": 2, "readyReplicas": 2}, "warn", "1 have none: see kubectl -n ns describe deployment/chat"),
        ({"conditions": [REFUSED]}, "FAIL", "3 have none: exceeded quota"),
    ],
)
def test_replicas_that_are_asked_for_are_held_against_the_pods_that_exist(status, state, words):
    check = check_pods(("ns", "chat"), deployment("chat", 3) | {"status": status})
    assert check.state == state
    assert words in check.trouble


def test_nodes_are_those_that_selector_and_taints_allow():
    pod = {"nodeSelector": {"pool": "gpu"}, "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}
    node = {
        "metadata": {"labels": {"pool": "gpu"}},
        "spec": {"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]},
    }
    assert fits(node, pod)
    assert not fits(node, pod | {"tolerations": []})
    assert not fits(node | {"metadata": {"labels": {"pool": "cpu"}}}, pod)
    assert not fits(node | {"spec": {"unschedulable": True}}, pod)
    assert fits({"metadata": {}, "spec": {"taints": [{"key": "a", "effect": "PreferNoSchedule"}]}}, {})
    assert devices(deployment("chat", gpus=2)) == {"nvidia.com/gpu": 2.0}
    assert devices(deployment("chat", cpu="1")) == {}


@pytest.mark.parametrize("method", ["POST", "PATCH", "PUT", "DELETE"])
async def test_a_client_that_reads_only_sends_no_write(method):
    kube = ReadOnly(Configuration())
    try:
        with pytest.raises(KubeError, match="this command changes nothing"):
            await kube.request(method, "/apis/apps/v1/namespaces/a/deployments/b", {})
    finally:
        await kube.close()


def hpa(*metrics, **spec):
    body = {"scaleTargetRef": {"name": "chat"}, "maxReplicas": 9, "metrics": list(metrics), **spec}
    return {"kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"}, "spec": body}


def resource(name, kind="Resource", **target):
    body = {"name": name, "target": target} | ({"container": "app"} if kind == "ContainerResource" else {})
    return {"type": kind, kind[0].lower() + kind[1:]: body}


CPU = resource("cpu", type="Utilization", averageUtilization=55)
OTHERS = [
    resource("memory", type="AverageValue", averageValue="500Mi"),
    resource("memory", type="Utilization", averageUtilization=70),
    resource("cpu", type="AverageValue", averageValue="500m"),
    {"type": "External", "external": {"metric": {"name": "queue_depth"}, "target": {"averageValue": "500m"}}},
    {"type": "Pods", "pods": {"metric": {"name": "http_requests_per_second"}, "target": {"averageValue": "1500m"}}},
    {"type": "Object", "object": {"metric": {"name": "hits"}, "describedObject": {"kind": "Ingress", "name": "i"}}},
]


@pytest.mark.parametrize("metric", OTHERS)
def test_every_metric_of_an_hpa_is_taken_over_or_commented(metric):
    text = drafted(seen(hpa(CPU, metric), gpus=0), two_pools=False).yaml()
    assert yaml.safe_load(text)["spec"]["guards"] == {"targetUtilization": {"cpu": 55}}
    assert text.count("NOT TAKEN OVER") == 1
    body = metric[metric["type"].lower()]
    assert f"metrics[1], {metric['type']}" in text
    assert body.get("name", body.get("metric", {}).get("name")) in text.partition("apiVersion")[0]


def test_what_of_an_hpa_counts_otherwise_is_commented():
    for metrics, gpus, part in (
        ([resource("cpu", "ContainerResource", averageUtilization=55)], 0, "not for app alone"),
        ([CPU], 1, "the pool of GPUs"),
        ([CPU, CPU], 0, "is set already"),
        ([resource("cpu", averageUtilization=250)], 0, "at most 100, and 250"),
        ([resource("cpu", averageUtilization="lots")], 0, "is no number"),
    ):
        draft = drafted(seen(hpa(*metrics), gpus=gpus), two_pools=False)
        assert [part in text for text in draft.lost] == [True]
    behavior = {"scaleDown": {"tolerance": "50m", "stabilizationWindowSeconds": 60}, "scaleUp": {"tolerance": 0.1}}
    draft = drafted(seen(hpa(behavior=behavior)), two_pools=False)
    assert draft.fields["spec.behavior"] == {"scaleDown": {"stabilizationWindowSeconds": 60}}
    assert [text.split(":")[1].strip() for text in draft.lost] == [
        "behavior.scaleDown.tolerance",
        "behavior.scaleUp.tolerance",
    ]


def test_every_trigger_and_field_of_a_scaled_object_is_taken_over_or_commented():
    query = {"serverAddress": "http://p:9090", "query": "sum(rate(a[1m]))", "threshold": "9"}
    secret = {"customHeaders": "Authorization=Bearer S3CRET", "ignoreNullValues": "false", "namespace": "x"}
    scaler = scaled_object(
        triggers=[
            {"type": "prometheus", "metadata": query | secret, "authenticationRef": {"name": "creds"}},
            {"type": "prometheus", "metadata": query | {"query": "sum(queue)"}},
            {"type": "cron", "metadata": {"start": "0 8 * * *", "desiredReplicas": "5"}},
            {"type": "rabbitmq", "metadata": {"queueName": "q", "hostFromEnv": "H", "password": "S3CRET"}},
            {"type": "cpu", "metricType": "Utilization", "metadata": {"value": "60"}},
        ],
        idleReplicaCount=0,
        fallback={"failureThreshold": 3, "replicas": 4},
        advanced={"scalingModifiers": {"formula": "a + b"}},
    )
    draft = drafted(seen(scaler, gpus=0), two_pools=False)
    assert draft.fields["spec.guards.targetUtilization.cpu"] == 60
    text = draft.yaml()
    for part in (
        "customHeaders",
        "ignoreNullValues",
        "namespace",
        "creds",
        "sum(queue)",
        "desiredReplicas",
        "rabbitmq",
        "idleReplicaCount",
        "fallback",
        "formula",
    ):
        assert sum(part in lost for lost in draft.lost) == 1, part
    assert "S3CRET" not in text
    assert max(map(len, text.splitlines())) <= 120
    parse(yaml.safe_load(text))


def test_a_query_that_is_no_rate_is_commented():
    trigger = {"type": "prometheus", "metadata": {"query": "sum(queue)", "threshold": "9"}}
    draft = drafted(seen(scaled_object(triggers=[trigger])), two_pools=False)
    assert "spec.metrics.queries.arrivalRate" not in draft.fields
    assert ["`sum(queue)`, threshold 9" in text for text in draft.lost] == [True]
