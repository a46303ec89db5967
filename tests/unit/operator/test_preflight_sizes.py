"""What preflight says of the size of pods, against a real HTTP server."""

from __future__ import annotations

import json

import pytest

from rlscaler_core.api import parse
from rlscaler_operator.cli.preflight.sizes import BINDINGS, POLICIES, check_sizes

REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews?fieldManager=rlscaler"
OURS = {"metadata": {"name": "b"}, "spec": {"policyName": "ours", "paramRef": {"selector": {}}}}
THEIRS = {"metadata": {"name": "b"}, "spec": {"policyName": "theirs", "paramRef": {"selector": {}}}}


def admission_policy(name, kind, version):
    return {"metadata": {"name": name}, "spec": {"paramKind": {"apiVersion": version, "kind": kind}}}


SIZES_PODS = admission_policy("ours", "RLScalingPolicy", "rlscaler.io/v1alpha1")
OTHERS = (admission_policy("theirs", "ConfigMap", "v1"), {"metadata": {"name": "plain"}, "spec": {}})


@pytest.fixture
def check(api_server, kube, policy_body):
    async def run(mode="InPlace", may=True, policies=(SIZES_PODS, *OTHERS), bindings=(OURS,)):
        body = policy_body()
        body["spec"]["targets"]["gpu"]["resources"] = {"mode": mode, "cpu": {"min": "1", "max": "2"}}
        api_server.answers[REVIEWS] = json.dumps({"status": {"allowed": may}})
        api_server.answers[POLICIES.format("v1")] = json.dumps({"items": list(policies)})
        api_server.answers[BINDINGS.format("v1")] = json.dumps({"items": list(bindings)})
        return {one.about: one for one in await check_sizes(kube, "rlscaler-system/rlscaler", parse(body))}

    return run


async def test_all_that_sizes_need_is_there(check):
    found = await check()
    assert {about: one.state for about, one in found.items()} == {"resize": "ok", "new-pods": "ok"}


async def test_of_a_policy_that_resizes_nothing_nothing_is_asked(check, api_server):
    assert await check("Recommend") == {}
    assert api_server.paths == []


async def test_a_right_that_is_missing_is_named_with_the_value_that_grants_it(check, api_server):
    found = await check(may=False)
    assert "patch pods/resize in ns: set operator.resize of the chart" in found["resize"].trouble
    assert found["resize"].state == "warn", "the policy scales all the same"
    users = {json.loads(sent)["spec"]["user"] for method, sent in api_server.sent if method == "POST"}
    assert users == {"system:serviceaccount:rlscaler-system:rlscaler"}


@pytest.mark.parametrize("missing", [{"policies": OTHERS}, {"bindings": [THEIRS]}, {"bindings": []}])
async def test_without_admission_policy_or_binding_new_pods_begin_as_their_template_says(check, missing):
    found = (await check(**missing))["new-pods"]
    assert "set operator.resizeNewPods" in found.trouble
    assert found.state == "warn"


async def test_a_cluster_that_is_too_old_for_it_is_said(check, api_server):
    api_server.status, api_server.text = 404, json.dumps({"message": "the server could not find it"})
    found = await check()
    assert "serves no MutatingAdmissionPolicies" in found["new-pods"].trouble
    assert found["resize"].trouble.startswith("not checked")
