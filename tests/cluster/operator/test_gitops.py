"""What docs/guides/gitops.md says of tools that apply manifests from Git, beside a policy that acts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rlscaler_dev.exceptions import ApiError
from rlscaler_dev.generate.definition import POLICY

FLUX = "kustomize-controller"
LONGEST_ANNOTATION = 256 * 1024
"""Bytes that all annotations of an object may have together: `kubectl apply` keeps the manifest in one."""


def deployment(name: str, pool: str, replicas: int | None) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "selector": {"matchLabels": {"app": name}},
        "template": {
            "metadata": {"labels": {"app": name, "rlscaler.io/flavour": pool}},
            "spec": {
                "nodeSelector": {"pool": pool},
                "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
                "containers": [{"name": "app", "image": "app"}],
            },
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": spec | ({} if replicas is None else {"replicas": replicas}),
    }


def applied(world: Any, plural: str, body: dict[str, Any], force: bool = True) -> dict[str, Any]:
    """Server-side apply, as Flux does it: with force."""
    path = f"{world.path(plural, body['metadata']['name'])}?fieldManager={FLUX}&force={str(force).lower()}"
    return world.kube.request("PATCH", path, body, content_type="application/apply-patch+yaml")


def owners(body: dict[str, Any], *path: str) -> set[str]:
    """Field managers that own a field."""
    found = set()
    for entry in body["metadata"]["managedFields"]:
        place = entry.get("fieldsV1", {})
        for name in path:
            place = place.get(f"f:{name}") if place is not None else None
        if place is not None:
            found.add(entry["manager"])
    return found


def applied_and_grown(world: Any, wait: Any, name: str) -> None:
    """Apply a service with replicas in its manifests, and raise its load until the operator has scaled it."""
    load = world.service(name, rate=5)
    for pool, replicas in (("gpu", 1), ("cpu", 2)):
        applied(world, "deployments", deployment(f"{name}-{pool}", pool, replicas))
    world.policy(name)
    wait(lambda: world.condition(name, "Ready")[0] == "True", 60)
    load.rate = 60
    wait(lambda: world.replicas(name)[1] > 2, 60)


def test_a_line_that_is_taken_out_after_the_policy_acted_leaves_the_replicas(
    operator: Any, world: Any, wait: Any, stays: Any
) -> None:
    applied_and_grown(world, wait, "out")
    written = world.get("deployments", "out-cpu")
    assert owners(written, "spec", "replicas") == {"rlscaler"}, "its first write took the field over"
    for pool in ("gpu", "cpu"):
        applied(world, "deployments", deployment(f"out-{pool}", pool, None))
    held = world.replicas("out")
    stays(lambda: world.replicas("out") >= held, True, 8)
    assert world.condition("out", "Conflicted")[0] == "False"


def test_a_line_that_is_taken_out_before_falls_to_one_replica(operator: Any, world: Any) -> None:
    """Why the guide has an order: without another owner the API server sets its default."""
    applied(world, "deployments", deployment("early", "cpu", 4))
    applied(world, "deployments", deployment("early", "cpu", None))
    assert world.get("deployments", "early")["spec"]["replicas"] == 1


def test_a_line_that_stays_conflicts_or_fights_and_is_named(operator: Any, world: Any, wait: Any) -> None:
    applied_and_grown(world, wait, "stays")
    with pytest.raises(ApiError, match='conflict with "rlscaler"'):
        applied(world, "deployments", deployment("stays-cpu", "cpu", 2), force=False)

    def synced() -> bool:
        applied(world, "deployments", deployment("stays-cpu", "cpu", 2))
        return bool(world.condition("stays", "Conflicted") == ("True", "ForeignWriter"))

    wait(synced, 90)
    conditions = world.get("rlscalingpolicies", "stays")["status"]["conditions"]
    (said,) = [one["message"] for one in conditions if one["type"] == "Conflicted"]
    assert FLUX in said
    assert "spec.replicas" in said


def route(name: str, gpu: int, cpu: int) -> dict[str, Any]:
    refs = [{"name": f"{name}-{pool}", "port": 80, "weight": weight} for pool, weight in (("gpu", gpu), ("cpu", cpu))]
    api = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": name}}
    return api | {"spec": {"rules": [{"backendRefs": refs}]}}


def test_weights_that_are_applied_again_are_waited_for_and_not_fought(operator: Any, world: Any, wait: Any) -> None:
    world.service("split", rate=60)
    world.deployments("split", gpu=2, cpu=2)
    applied(world, "httproutes", route("split", 50, 50))
    world.policy("split", placement={"httpRoute": {"name": "split"}})
    wait(lambda: world.weights("split") != {"split-gpu": 50, "split-cpu": 50}, 90)
    written = world.get("httproutes", "split")
    assert "rlscaler" in owners(written, "spec", "rules"), "to Kubernetes all rules are one field"
    with pytest.raises(ApiError, match='conflict with "rlscaler"'):
        applied(world, "httproutes", route("split", 50, 50), force=False)

    def synced() -> bool:
        applied(world, "httproutes", route("split", 50, 50))
        return bool(world.condition("split", "Active")[1] == "HTTPRouteForeignWriter")

    wait(synced, 90)
    assert world.weights("split") == {"split-gpu": 50, "split-cpu": 50}, "the other tool's count meanwhile"
    assert "WeightsReplaced" in world.events("split")


def test_a_policy_that_is_applied_again_keeps_its_pause_and_its_status(operator: Any, world: Any, wait: Any) -> None:
    world.service("policy", rate=5)
    world.deployments("policy")
    targets = {
        pool: {"deployment": f"policy-{pool}", "maxReplicas": 5, "requestsPerSecond": 5} for pool in ("gpu", "cpu")
    }
    spec = {"mode": "Shadow", "targets": targets, "slo": {"latencyMilliseconds": 1000}}
    body = {
        "apiVersion": "rlscaler.io/v1alpha1",
        "kind": "RLScalingPolicy",
        "metadata": {"name": "policy"},
        "spec": spec,
    }
    applied(world, "rlscalingpolicies", body)
    wait(lambda: world.get("rlscalingpolicies", "policy").get("status", {}).get("promotion"), 60)
    annotations = {"rlscaler.io/paused": "true"}
    world.patch("rlscalingpolicies", "policy", {"metadata": {"annotations": annotations}}, manager="rlscaler-cli")
    world.patch("rlscalingpolicies", "policy", {"spec": {"mode": "Auto"}}, manager="rlscaler-cli")
    again = applied(world, "rlscalingpolicies", body)
    assert again["metadata"]["annotations"]["rlscaler.io/paused"] == "true"
    assert again["status"]["promotion"]["state"]
    assert again["spec"]["mode"] == "Shadow", "promote by a commit: what is declared comes back"


def test_the_definition_fits_into_the_annotation_of_kubectl_apply(world: Any) -> None:
    whole = json.dumps(POLICY.manifest(), separators=(",", ":"))
    assert len(whole) < LONGEST_ANNOTATION / 2
