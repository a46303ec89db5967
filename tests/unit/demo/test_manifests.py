"""What the demo creates: fit to the nodes of the local control plane, and the same bounds for both contenders."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rlscaler_dev.demo.manifests import (
    access,
    autoscalers,
    capacity_weights,
    deployment,
    http_route,
    operator_roles,
    policy,
    workload,
)
from rlscaler_dev.demo.settings import CPU_POOL, GPU_POOL, Settings

SETTINGS = Settings(out=Path("/results"))


def test_gpu_pods_ask_for_a_gpu_and_tolerate_the_taint_of_gpu_nodes() -> None:
    spec = deployment(GPU_POOL)["spec"]["template"]["spec"]
    assert spec["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert spec["nodeSelector"] == {"pool": "gpu"}
    assert spec["tolerations"][0]["key"] == "nvidia.com/gpu"


def test_cpu_pods_ask_for_no_gpu() -> None:
    spec = deployment(CPU_POOL)["spec"]["template"]["spec"]
    assert "limits" not in spec["containers"][0]["resources"]
    assert "tolerations" not in spec


def test_cold_starts_become_annotations_of_the_pods() -> None:
    metadata = deployment(replace(GPU_POOL, cold_start_seconds=(1.5, 3)))["spec"]["template"]["metadata"]
    assert metadata["annotations"] == {"rlscaler.io/cold-start-min": "1500ms", "rlscaler.io/cold-start-max": "3000ms"}
    assert metadata["labels"]["rlscaler.io/flavour"] == "gpu"


def test_first_weights_are_by_capacity() -> None:
    assert capacity_weights(SETTINGS) == (833, 167)
    backends = http_route(SETTINGS)["spec"]["rules"][0]["backendRefs"]
    assert [(backend["name"], backend["weight"]) for backend in backends] == [("chat-gpu", 833), ("chat-cpu", 167)]


def test_both_contenders_have_the_same_bounds_and_targets() -> None:
    targets = policy(SETTINGS)["spec"]["targets"]
    for autoscaler, pool in zip(autoscalers(SETTINGS), ("gpu", "cpu"), strict=True):
        assert autoscaler["spec"]["scaleTargetRef"]["name"] == targets[pool]["deployment"]
        assert autoscaler["spec"]["minReplicas"] == targets[pool]["minReplicas"]
        assert autoscaler["spec"]["maxReplicas"] == targets[pool]["maxReplicas"]


def test_a_policy_carries_interval_mode_and_slo() -> None:
    spec = policy(replace(SETTINGS, interval_seconds=10, mode="Shadow", slo_ms=500))["spec"]
    assert (spec["intervalSeconds"], spec["mode"], spec["slo"]) == (10, "Shadow", {"latencyMilliseconds": 500})


def test_objects_are_told_apart_by_kind_and_name() -> None:
    objects = [*workload(SETTINGS), *access(), policy(SETTINGS), *autoscalers(SETTINGS)]
    keys = [(thing["kind"], thing["metadata"].get("namespace"), thing["metadata"]["name"]) for thing in objects]
    assert len(set(keys)) == len(keys)


def test_the_operator_may_scale_but_not_edit_deployments_nor_read_secrets() -> None:
    rules = [rule for thing in access() for rule in thing.get("rules", [])]
    assert all("*" not in rule[part] for rule in rules for part in rule)
    writable = {resource for rule in rules for resource in rule["resources"] if {"patch", "update"} & {*rule["verbs"]}}
    assert "deployments/scale" in writable
    assert "deployments" not in writable
    assert "secrets" not in {resource for rule in rules for resource in rule["resources"]}


def test_every_rule_of_the_operator_is_granted_once_and_only_in_its_namespaces() -> None:
    roles = [thing for thing in access() if "rules" in thing]
    assert [role["rules"] for role in roles] == [role["rules"] for role in operator_roles()]
    assert {thing["kind"] for thing in access()} == {"Namespace", "ServiceAccount", "Role", "RoleBinding"}
