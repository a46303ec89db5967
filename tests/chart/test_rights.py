"""Rights that the chart grants: roles, admission policies and what they follow from."""

from __future__ import annotations

import pytest
import yaml

from rlscaler_operator.cluster.kinds import TargetKinds
from rlscaler_operator.settings import Settings
from tests.chart.charts import CHART, MUTATING, NAMESPACE, RELEASE, SETS, find, kinds, template, values
from tests.harness.helm import HelmError
from tests.harness.setup import REPOSITORY, shipped_roles


def shipped(name: str) -> list[dict]:
    """Rules of a role as they ship with the operator."""
    return shipped_roles()[name]["rules"]


def test_the_lease_is_the_operators_to_make(helm):
    """One that helm makes would be in the way of one that an operator made again while it was being deleted."""
    assert all("Lease" not in kinds(template(helm, *values)) for values in SETS.values())


def test_cluster_wide_role_is_the_operators(helm):
    objects = template(helm)
    role = find(objects, "ClusterRole", "rlscaler-operator")
    assert role["rules"] == shipped("rlscaler-operator")
    (subject,) = find(objects, "ClusterRoleBinding", "rlscaler-operator")["subjects"]
    assert subject == {"kind": "ServiceAccount", "name": RELEASE, "namespace": NAMESPACE}


def test_lease_role_makes_any_lease_and_changes_its_own_only(helm):
    """An installation without `create` would never act where no Lease is applied, as by Argo CD."""
    make, change, own = find(template(helm), "Role", "rlscaler-lease")["rules"]
    whole, same = shipped("rlscaler-lease")
    assert own == same
    assert make["verbs"] == ["create"]
    assert "resourceNames" not in make, "RBAC cannot bind create to a name"
    assert set(make["verbs"] + change["verbs"]) == set(whole["verbs"])
    for rule in (make, change):
        assert (rule["apiGroups"], rule["resources"]) == (whole["apiGroups"], whole["resources"])
    assert change["resourceNames"] == [RELEASE]
    sharded = find(template(helm, *SETS["production"]), "Role", "rlscaler-lease")["rules"]
    assert sharded == [whole, same, *shipped("rlscaler-shards")]


def test_watched_namespaces_get_roles_and_nothing_else_does(helm):
    objects = template(helm, *SETS["namespaced"])
    assert not {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"} & set(kinds(objects))
    for namespace in ("team-a", "team-b"):
        role = find(objects, "Role", "rlscaler-operator", namespace)
        assert role["rules"] == shipped("rlscaler-operator")
        (subject,) = find(objects, "RoleBinding", "rlscaler-operator", namespace)["subjects"]
        assert subject["namespace"] == NAMESPACE
    (rule,) = find(objects, "Role", "rlscaler-secrets", "team-a")["rules"]
    assert rule["resourceNames"] == ["prometheus-token"]
    assert rule["verbs"] == ["get"]
    assert {body["metadata"]["namespace"] for body in objects if body["metadata"]["name"] == "rlscaler-configmaps"} == {
        "team-a",
        "team-b",
    }


def test_entries_of_one_namespace_become_one_role(helm, tmp_path):
    entries = [{"namespace": "a", "names": ["one"]}, {"namespace": "a", "names": ["two", "one"]}]
    objects = template(helm, *values({"access": {"secrets": entries}}, tmp_path))
    assert find(objects, "Role", "rlscaler-secrets", "a")["rules"][0]["resourceNames"] == ["one", "two"]


@pytest.mark.parametrize("namespaces", [[], ["team-a"]])
def test_budgets_bring_their_definition_and_a_role_of_the_whole_cluster(helm, tmp_path, namespaces):
    chosen = {"operator": {"budgets": True}, "watchNamespaces": namespaces, "crds": {"install": True}}
    objects = template(helm, *values(chosen, tmp_path))
    assert find(objects, "CustomResourceDefinition", "rlscalingbudgets.rlscaler.io")["spec"]["scope"] == "Cluster"
    assert find(objects, "CustomResourceDefinition", "rlscalingpolicies.rlscaler.io")
    rules = find(objects, "ClusterRole", "rlscaler-budgets")["rules"]
    assert rules == shipped("rlscaler-budgets")
    (subject,) = find(objects, "ClusterRoleBinding", "rlscaler-budgets")["subjects"]
    assert subject["namespace"] == NAMESPACE
    container = find(objects, "Deployment", "rlscaler")["spec"]["template"]["spec"]["containers"][0]
    assert {"name": "RLSCALER_BUDGETS", "value": "true"} in container["env"]
    plain = template(helm)
    assert [body["metadata"]["name"] for body in plain if body["kind"] == "CustomResourceDefinition"] == [
        "rlscalingpolicies.rlscaler.io"
    ]


def test_pod_deletion_cost_adds_its_rule(helm, tmp_path):
    objects = template(helm, *values({"operator": {"podDeletionCost": True}}, tmp_path))
    rules = find(objects, "ClusterRole", "rlscaler-operator")["rules"]
    extra = shipped("rlscaler-pod-deletion-cost")
    assert rules == shipped("rlscaler-operator") + extra


def test_resize_adds_its_rule_and_says_so_to_the_operator(helm, tmp_path):
    objects = template(helm, *values({"operator": {"resize": True}}, tmp_path))
    rules = find(objects, "ClusterRole", "rlscaler-operator")["rules"]
    assert rules == shipped("rlscaler-operator") + shipped("rlscaler-pod-resize")
    container = find(objects, "Deployment", "rlscaler")["spec"]["template"]["spec"]["containers"][0]
    assert {"name": "RLSCALER_RESIZE", "value": "true"} in container["env"]
    assert "pods/resize" not in str(template(helm))


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
@pytest.mark.parametrize("namespaces", [[], ["team-a"]])
def test_new_pods_are_sized_where_the_api_is_there_and_both_values_are_set(helm, tmp_path, version, namespaces):
    chosen = {"operator": {"resize": True, "resizeNewPods": True}, "watchNamespaces": namespaces}
    objects = template(helm, *values(chosen, tmp_path), "--api-versions", MUTATING.format(version))
    policy = find(objects, "MutatingAdmissionPolicy", "rlscaler-new-pods")
    binding = find(objects, "MutatingAdmissionPolicyBinding", "rlscaler-new-pods")
    whole = admission((REPOSITORY / "admission" / "new-pods.yaml").read_text())
    assert policy["apiVersion"] == binding["apiVersion"] == f"admissionregistration.k8s.io/{version}"
    assert policy["spec"] == whole["MutatingAdmissionPolicy/rlscaler-new-pods"]
    matched = binding["spec"].pop("matchResources", None)
    assert binding["spec"] == whole["MutatingAdmissionPolicyBinding/rlscaler-new-pods"]
    assert (matched is not None) == bool(namespaces), "pods of other namespaces are not looked at"
    rules = find(objects, "Role" if namespaces else "ClusterRole", "rlscaler-operator")["rules"]
    resizes = shipped("rlscaler-pod-resize")
    assert rules == shipped("rlscaler-operator") + resizes, "no right is needed for new pods"
    container = find(objects, "Deployment", "rlscaler")["spec"]["template"]["spec"]["containers"][0]
    assert {"name": "RLSCALER_RESIZE_NEW_PODS", "value": "true"} in container["env"]


def test_without_the_api_nothing_of_new_pods_is_there_and_the_notes_say_so(helm, tmp_path):
    options = values({"operator": {"resize": True, "resizeNewPods": True}}, tmp_path)
    objects = template(helm, *options)
    assert not {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"} & set(kinds(objects))
    assert "RLSCALER_RESIZE_NEW_PODS" not in str(objects)
    notes = helm.run("install", "mine", str(CHART), "--dry-run=client", *options).partition("NOTES:")[2]
    assert "does not serve MutatingAdmissionPolicies" in notes


def test_new_pods_are_not_sized_unless_asked_for_and_only_with_resize(helm, tmp_path):
    api = ("--api-versions", MUTATING.format("v1"))
    for chosen in ({}, {"resize": True}):
        objects = template(helm, *values({"operator": chosen}, tmp_path), *api)
        assert "MutatingAdmissionPolicy" not in kinds(objects)
        assert "RLSCALER_RESIZE_NEW_PODS" not in str(objects)
    with pytest.raises(HelmError, match="resize is false"):
        template(helm, *values({"operator": {"resizeNewPods": True}}, tmp_path), *api)


def admission(text: str) -> dict[str, object]:
    """kind/name -> spec."""
    return {f"{body['kind']}/{body['metadata']['name']}": body["spec"] for body in yaml.safe_load_all(text)}


def test_admission_policies_are_those_of_the_repository(helm):
    names = ("operator.yaml", "rlscaler.yaml")
    whole = [admission((REPOSITORY / "admission" / name).read_text()) for name in names]
    rendered = [body for body in template(helm) if body["kind"].startswith("ValidatingAdmission")]
    assert admission(yaml.safe_dump_all(rendered)) == {name: spec for file in whole for name, spec in file.items()}


def test_own_writes_are_those_of_the_releases_account(helm):
    text = helm.run("template", "prod", str(CHART), "--namespace", "ops", "--show-only", "templates/admission.yaml")
    found = admission(text)
    policy = found["ValidatingAdmissionPolicy/prod-rlscaler-own-writes"]
    assert "'system:serviceaccount:ops:prod-rlscaler'" in policy["matchConditions"][0]["expression"]
    binding = found["ValidatingAdmissionPolicyBinding/prod-rlscaler-own-writes"]
    assert binding["policyName"] == "prod-rlscaler-own-writes"


def test_kinds_of_targets_come_with_their_rights_and_their_setting(helm, monkeypatch, tmp_path):
    kinds_of_targets = [
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "resource": "statefulsets"},
        {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "resource": "rollouts"},
    ]
    before = find(template(helm), "ClusterRole", f"{RELEASE}-operator")["rules"]
    objects = template(helm, *values({"targetKinds": kinds_of_targets}, tmp_path))
    added = [rule for rule in find(objects, "ClusterRole", f"{RELEASE}-operator")["rules"] if rule not in before]
    assert added == [
        {"apiGroups": [group], "resources": [resource], "verbs": verbs}
        for group, plural in (("apps", "statefulsets"), ("argoproj.io", "rollouts"))
        for resource, verbs in ((plural, ["get", "list", "watch"]), (f"{plural}/scale", ["get", "patch"]))
    ]
    deployment = find(objects, "Deployment", RELEASE)
    environment = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    found = {entry["name"]: entry.get("value") for entry in environment}
    monkeypatch.setenv("RLSCALER_TARGET_KINDS", found["RLSCALER_TARGET_KINDS"])
    assert [kind.prefix for kind in TargetKinds(Settings().target_kinds).others] == [
        "statefulset.apps/",
        "rollout.argoproj.io/",
    ]
