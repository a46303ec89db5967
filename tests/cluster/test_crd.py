"""The custom resource on a real API server: what is filled in, refused, shown and kept apart."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client, config, dynamic
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from rlscaler_core.api import GROUP, PLURAL, VERSION, parse

ROOT = Path(__file__).parents[2]
REFUSED = yaml.safe_load((ROOT / "tests/data/refused_policies.yaml").read_text())
NAMESPACE = f"crd-{uuid.uuid4().hex[:8]}"
POLICIES = {"group": GROUP, "version": VERSION, "namespace": NAMESPACE, "plural": PLURAL}


@pytest.fixture(scope="module")
def api(cluster: Any) -> Iterator[client.ApiClient]:
    """A client of a cluster that knows the custom resource, with a namespace for this module."""
    with config.new_client_from_config(str(cluster.kubeconfig)) as connection:
        install(connection)
        core = client.CoreV1Api(connection)
        core.create_namespace({"metadata": {"name": NAMESPACE}})
        yield connection
        core.delete_namespace(NAMESPACE)


def install(connection: client.ApiClient) -> None:
    manifest = yaml.safe_load((ROOT / "crds/rlscalingpolicies.yaml").read_text())
    definitions = dynamic.DynamicClient(connection).resources.get(
        api_version="apiextensions.k8s.io/v1", kind="CustomResourceDefinition"
    )
    definitions.server_side_apply(
        body=manifest, name=manifest["metadata"]["name"], field_manager="tests", force_conflicts=True
    )
    served(connection)


@retry(
    retry=retry_if_exception_type(client.ApiException), stop=stop_after_delay(30), wait=wait_fixed(0.1), reraise=True
)
def served(connection: client.ApiClient) -> None:
    client.CustomObjectsApi(connection).list_cluster_custom_object(GROUP, VERSION, PLURAL)


@pytest.fixture
def objects(api: client.ApiClient) -> Iterator[client.CustomObjectsApi]:
    """Access to the policies of the test's namespace, which is empty afterwards."""
    access = client.CustomObjectsApi(api)
    yield access
    access.delete_collection_namespaced_custom_object(**POLICIES)


def policy(values: dict[str, Any] | None = None) -> dict[str, Any]:
    """The shortest policy with values set or removed (None)."""
    spec: dict[str, Any] = {
        "targets": {
            "gpu": {"deployment": "chat-gpu", "maxReplicas": 10},
            "cpu": {"deployment": "chat-cpu", "maxReplicas": 10},
        },
        "slo": {"latencyMilliseconds": 1000},
    }
    for path, value in (values or {}).items():
        *parents, last = path.split(".")
        place = spec
        for part in parents:
            place = place.setdefault(part, {})
        if value is None:
            del place[last]
        else:
            place[last] = value
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "RLScalingPolicy",
        "metadata": {"name": "chat", "namespace": NAMESPACE},
        "spec": spec,
    }


def refusal(objects: client.CustomObjectsApi, body: dict[str, Any]) -> dict[str, str]:
    """Field -> message of the API server's refusal."""
    with pytest.raises(client.ApiException) as caught:
        objects.create_namespaced_custom_object(**POLICIES, body=body)
    assert caught.value.status == 422, caught.value.body
    causes = json.loads(caught.value.body)["details"]["causes"]
    return {cause["field"]: cause["message"] for cause in causes}


@pytest.mark.smoke
def test_shortest_policy_is_stored_with_the_models_defaults(objects: client.CustomObjectsApi) -> None:
    stored = objects.create_namespaced_custom_object(**POLICIES, body=policy())
    assert stored["spec"]["mode"] == "Shadow"
    assert stored["spec"]["targets"]["gpu"] == {
        "deployment": "chat-gpu",
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "minReplicas": 1,
        "maxReplicas": 10,
        "costPerHour": 2.5,
    }
    assert stored["spec"]["fallback"] == {"behavior": "forecastRule", "failureThreshold": 3}
    assert parse(stored).spec == parse(policy()).spec


@pytest.mark.parametrize("example", sorted(path.name for path in (ROOT / "examples").glob("policy*.yaml")))
def test_examples_are_accepted_under_strict_validation(objects: client.CustomObjectsApi, example: str) -> None:
    body = yaml.safe_load((ROOT / "examples" / example).read_text())
    body["metadata"]["namespace"] = NAMESPACE
    body["metadata"]["name"] = example.removesuffix(".yaml")
    stored = objects.create_namespaced_custom_object(**POLICIES, body=body, field_validation="Strict")
    assert parse(stored).spec == parse(body).spec


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_field_and_remedy(objects: client.CustomObjectsApi, case: str) -> None:
    wrong = REFUSED[case]
    causes = refusal(objects, policy(wrong["set"]))
    named = [message for field, message in causes.items() if field.startswith(wrong["field"])]
    assert named, causes
    assert wrong["message"].lower() in " ".join(named).lower()


def test_edit_that_breaks_a_rule_is_refused(objects: client.CustomObjectsApi) -> None:
    objects.create_namespaced_custom_object(**POLICIES, body=policy({"targets.gpu.minReplicas": 4}))
    edit = {"spec": {"targets": {"gpu": {"maxReplicas": 3}}}}
    with pytest.raises(client.ApiException, match="lower minReplicas or raise maxReplicas"):
        objects.patch_namespaced_custom_object(**POLICIES, name="chat", body=edit)


def test_source_of_the_actor_can_be_changed_by_one_apply(
    api: client.ApiClient, objects: client.CustomObjectsApi
) -> None:
    resource = dynamic.DynamicClient(api).resources.get(api_version=f"{GROUP}/{VERSION}", kind="RLScalingPolicy")
    for values in ({}, {"policy": {"bundled": "rule"}}, {"policy": {"path": "chat.json"}}, {}):
        resource.server_side_apply(body=policy(values), name="chat", namespace=NAMESPACE, field_manager="user")
    assert objects.get_namespaced_custom_object(**POLICIES, name="chat")["spec"]["policy"] == {}


def test_unknown_field_is_refused_or_warned_about(objects: client.CustomObjectsApi) -> None:
    body = policy({"targets.gpu.maxreplicas": 5})
    with pytest.raises(client.ApiException, match=r'unknown field \\"spec.targets.gpu.maxreplicas\\"'):
        objects.create_namespaced_custom_object(**POLICIES, body=body, field_validation="Strict")
    stored, _, headers = objects.create_namespaced_custom_object_with_http_info(
        **POLICIES, body=body, field_validation="Warn"
    )
    assert "spec.targets.gpu.maxreplicas" in headers["Warning"]
    assert "maxreplicas" not in stored["spec"]["targets"]["gpu"]


def test_status_and_spec_are_written_apart(objects: client.CustomObjectsApi) -> None:
    created = objects.create_namespaced_custom_object(**POLICIES, body=policy() | {"status": {"costPerHour": 1}})
    assert "status" not in created
    edit = {"spec": {"mode": "Auto"}, "status": {"costPerHour": 3.125, "targets": {"gpu": {"deployment": "chat-gpu"}}}}
    stored = objects.patch_namespaced_custom_object_status(**POLICIES, name="chat", body=edit)
    assert stored["status"]["costPerHour"] == 3.125
    assert stored["spec"]["mode"] == "Shadow"
    assert stored["metadata"]["generation"] == created["metadata"]["generation"]
    stored = objects.patch_namespaced_custom_object(**POLICIES, name="chat", body={**edit, "status": None})
    assert stored["status"]["costPerHour"] == 3.125
    assert stored["metadata"]["generation"] == created["metadata"]["generation"] + 1


def full_status() -> dict[str, Any]:
    now = "2026-01-01T00:00:00Z"
    pools = {"gpu": 3, "cpu": 4}
    decision = {
        "id": "019b75c6-7c00-7000-8000-000000000000",
        "time": "2026-01-01T00:00:00.250000Z",
        "action": {"gpu": 1, "cpu": -2, "placement": "PreferGPU"},
        "base": pools,
        "desired": {"gpu": 4, "cpu": 2},
        "applied": True,
        "reasons": ["Floor"],
    }
    target = {"deployment": "chat-gpu", "current": 3, "ready": 2, "starting": 1, "desired": 4, "summary": "2/4"}
    signal = {"value": 412.0, "state": "Known", "ageSeconds": 2.5}
    signals = ["cpuUtilization", "gpuUtilization", "p95Latency", "throughput"]
    signals += [
        "headroom",
        "nearMisses",
        "gpuReplicas",
        "cpuReplicas",
        "loadTrend",
        "loadVariance",
        "forecastUtilization",
    ]
    expiry = {"value": -2, "expires": now}
    remembered = {"recommendations": [expiry], "changes": [expiry], "floor": 2}
    known = {"requestsPerSecond": 18.5, "coldStartSeconds": 44.0, "samples": 12}
    condition = {"message": "", "lastTransitionTime": now, "observedGeneration": 1}
    return {
        "observedGeneration": 1,
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "Deciding", **condition},
            {"type": "Active", "status": "True", "reason": "Acting", **condition},
            {"type": "Fallback", "status": "False", "reason": "ActorActs", **condition},
        ],
        "targets": {"gpu": target, "cpu": {**target, "deployment": "chat-cpu", "summary": "4/2"}},
        "headroom": {"gpu": {"percent": 17.6, "since": now}},
        "costPerHour": 10.0,
        "model": {"name": "ppo", "digest": "0" * 64},
        "observation": {"time": now, **dict.fromkeys(signals, signal)},
        "lastDecision": {**decision, "guards": [{"name": "floor", "after": pools}], "result": "patched"},
        "history": [decision] * 5,
        "learned": {"gpu": known, "cpu": known},
        "promotion": {"state": "NotRequired", "since": now, "days": 0, "message": "none required", "evidence": []},
        "placement": {"preference": "PreferGPU", "weights": {"gpu": 800, "cpu": 200}, "httpRoute": "chat"},
        "originals": {"time": now, "replicas": pools, "weights": pools},
        "stabilization": {"gpu": remembered, "cpu": remembered},
    }


def test_status_comes_back_as_it_was_written(objects: client.CustomObjectsApi) -> None:
    created = objects.create_namespaced_custom_object(**POLICIES, body=policy())
    status = parse(created | {"status": full_status()}).status
    assert status.to_dict() == full_status()
    stored = objects.patch_namespaced_custom_object_status(**POLICIES, name="chat", body={"status": status.to_dict()})
    assert stored["status"] == full_status()
    assert parse(stored).status == status


def test_wrong_status_is_refused(objects: client.CustomObjectsApi) -> None:
    objects.create_namespaced_custom_object(**POLICIES, body=policy())
    wrong = {"status": {"placement": {"preference": "Sideways", "weights": {"gpu": 1, "cpu": 1}}}}
    with pytest.raises(client.ApiException, match=r"status\.placement\.preference"):
        objects.patch_namespaced_custom_object_status(**POLICIES, name="chat", body=wrong)


def test_columns(api: client.ApiClient, objects: client.CustomObjectsApi) -> None:
    objects.create_namespaced_custom_object(**POLICIES, body=policy({"mode": "Auto"}))
    objects.patch_namespaced_custom_object_status(**POLICIES, name="chat", body={"status": full_status()})
    table = get(
        api, f"/apis/{GROUP}/{VERSION}/namespaces/{NAMESPACE}/{PLURAL}", "application/json;as=Table;v=v1;g=meta.k8s.io"
    )
    (row,) = table["rows"]
    columns = [(column["name"], column["priority"]) for column in table["columnDefinitions"]]
    shown = dict(zip((name for name, _ in columns), row["cells"], strict=True))
    assert [name for name, priority in columns if not priority] == [
        *("Name", "Mode", "State", "GPU", "CPU", "Placement", "P95", "Cost/h", "Ready", "Age")
    ]
    assert [name for name, priority in columns if priority] == ["Reason", "Fallback", "Promotion", "Model"]
    del shown["Age"]
    assert list(shown.values()) == [
        *("chat", "Auto", "Acting", "2/4", "4/2", "PreferGPU", 412, 10, "True"),
        *("Deciding", "False", "NotRequired", "ppo"),
    ]


def test_short_name_and_categories(api: client.ApiClient) -> None:
    resources = get(api, f"/apis/{GROUP}/{VERSION}")["resources"]
    (found,) = [resource for resource in resources if resource["name"] == PLURAL]
    assert found["shortNames"] == ["rlsp"]
    assert "autoscaling" in found["categories"]
    assert f"{PLURAL}/status" in [resource["name"] for resource in resources]


def test_explain_tells_units_and_defaults(api: client.ApiClient) -> None:
    """`kubectl explain` prints these descriptions."""
    document = get(api, f"/openapi/v3/apis/{GROUP}/{VERSION}")
    schema = document["components"]["schemas"]["io.rlscaler.v1alpha1.RLScalingPolicy"]
    gpu = schema["properties"]["spec"]["properties"]["targets"]["properties"]["gpu"]["properties"]
    assert gpu["costPerHour"]["description"] == "Cost of one replica, in currency units per hour. Default: 2.5."
    assert "Seconds from the creation of a pod" in gpu["coldStartSeconds"]["description"]


def get(api: client.ApiClient, path: str, accept: str = "application/json") -> dict[str, Any]:
    response = dynamic.DynamicClient(api).request("get", path, header_params={"Accept": accept}, serialize=False)
    answer: dict[str, Any] = json.loads(response.data)
    return answer
