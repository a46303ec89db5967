import pytest

from rlscaler_operator.cluster.cache import Deployment, WatchCache
from rlscaler_operator.state.ownership import (
    NOT_ACTING,
    TOOLS,
    Claim,
    ForeignWrites,
    declared,
    find_conflict,
    tool_of,
)

OLD = Claim("2026-01-01T00:00:00Z", "ns", "old", ("chat-gpu", "chat-cpu"))
NEW = Claim("2026-01-02T00:00:00Z", "ns", "new", ("chat-cpu",))


def claims(*all_claims):
    found = {}
    for claim in all_claims:
        for name in claim.deployments:
            found.setdefault((claim.namespace, name), []).append(claim)
    return found


def hpa(target="chat-cpu", namespace="ns", kind="Deployment"):
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": target}
    return {"metadata": {"namespace": namespace, "name": "h"}, "spec": {"scaleTargetRef": reference}}


def test_an_hpa_on_a_target_is_a_conflict():
    cache = WatchCache()
    cache.put_autoscaler("HorizontalPodAutoscaler", hpa())
    conflict = find_conflict(NEW, claims(NEW), cache)
    assert conflict.reason == "HorizontalPodAutoscalerExists"
    assert "chat-cpu" in conflict.message


def test_an_hpa_elsewhere_is_none():
    cache = WatchCache()
    cache.put_autoscaler("HorizontalPodAutoscaler", hpa(namespace="other"))
    cache.put_autoscaler("HorizontalPodAutoscaler", hpa(kind="StatefulSet"))
    assert find_conflict(NEW, claims(NEW), cache) is None


def test_an_hpa_that_is_pointed_elsewhere_or_deleted_frees_the_target():
    cache = WatchCache()
    cache.put_autoscaler("HorizontalPodAutoscaler", hpa())
    cache.put_autoscaler("HorizontalPodAutoscaler", hpa(target="else"))
    assert find_conflict(NEW, claims(NEW), cache) is None
    cache.put_autoscaler("HorizontalPodAutoscaler", hpa())
    cache.drop_autoscaler("HorizontalPodAutoscaler", ("ns", "h"))
    assert find_conflict(NEW, claims(NEW), cache) is None


def test_the_older_policy_holds_the_target():
    others = claims(OLD, NEW)
    assert find_conflict(NEW, others, WatchCache()).holder == ("RLScalingPolicy", "old")
    assert find_conflict(OLD, others, WatchCache()) is None


def test_whoever_acts_goes_before_a_policy_in_shadow():
    shadow = OLD._replace(created=NOT_ACTING)
    assert find_conflict(shadow, claims(NEW), WatchCache()).holder == ("RLScalingPolicy", "new")
    assert find_conflict(NEW, claims(NEW), WatchCache()) is None


def deployment(replicas, manager):
    return Deployment("u", "1", replicas, replicas, manager)


def test_one_foreign_write_is_adopted_and_reported_once():
    writes = ForeignWrites(3)
    assert writes.look(deployment(5, "kubectl"), "rlscaler", 30, 111.0) == "kubectl"
    assert writes.look(deployment(5, "kubectl"), "rlscaler", 30, 112.0) is None
    assert writes.conflict("chat-cpu", 112.0) is None


def test_the_same_manager_twice_is_a_conflict_for_a_while():
    writes = ForeignWrites(3)
    writes.look(deployment(5, "kubectl"), "rlscaler", 30, 111.0)
    writes.written = 4
    writes.look(deployment(5, "kubectl"), "rlscaler", 30, 141.0)
    assert writes.conflict("chat-cpu", 142.0).reason == "ForeignWriter"
    assert writes.conflict("chat-cpu", 141.0 + 151.0) is None


def test_twice_with_a_long_time_between_is_no_conflict():
    writes = ForeignWrites(3)
    writes.look(deployment(5, "kubectl"), "rlscaler", 30, 111.0)
    writes.look(deployment(6, "kubectl"), "rlscaler", 30, 311.0)
    assert writes.conflict("chat-cpu", 312.0) is None


def test_our_own_writes_and_manifests_with_the_same_value_are_no_foreign_writes():
    writes = ForeignWrites(5)
    assert writes.look(deployment(5, "kubectl"), "rlscaler", 30, 111.0) is None
    assert writes.look(deployment(6, "rlscaler"), "rlscaler", 30, 131.0) is None
    assert writes.look(deployment(6, ""), "rlscaler", 30, 131.0) is None


@pytest.mark.parametrize(
    ("manager", "name"),
    [
        ("argocd-controller", "Argo CD"),
        ("argocd-application-controller", "Argo CD"),
        ("kustomize-controller", "Flux (Kustomization)"),
        ("helm-controller", "Flux (HelmRelease)"),
        ("helm", "Helm"),
        ("kubectl-client-side-apply", "kubectl apply"),
        ("HashiCorp", "Terraform"),
        ("Terraform", "Terraform"),
        ("pulumi-kubernetes-1a2b", "Pulumi"),
        ("kubectl", None),
        ("kubectl-edit", None),
    ],
)
def test_a_tool_is_known_by_its_field_manager(manager, name):
    tool = tool_of(manager)
    assert (tool.name if tool else None) == name


def test_a_conflict_names_the_tool_and_the_remedy():
    writes = ForeignWrites(5)
    for replicas, now in ((1, 0.0), (2, 30.0)):
        writes.look(deployment(replicas, "argocd-controller"), "rlscaler", 30, now)
    message = writes.conflict("chat-cpu", 31.0).message
    assert "Argo CD (argocd-controller)" in message
    assert "ignoreDifferences" in message
    assert all(tool.remedy for tool in TOOLS)


def test_a_tool_that_owns_the_replicas_is_named_before_it_sets_them_back():
    cache = WatchCache()
    cache.deployments["ns", "chat-cpu"] = deployment(3, "helm")
    assert find_conflict(NEW, claims(NEW), cache) is None
    assert "Helm (helm) owns spec.replicas of Deployment chat-cpu" in declared(NEW, cache)
    cache.deployments["ns", "chat-cpu"] = deployment(3, "kubectl")
    assert declared(NEW, cache) == ""
