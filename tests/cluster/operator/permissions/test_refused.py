"""What the operator's own token is refused, tried one by one on the real API server, and printed as a table."""

from __future__ import annotations

import requests

from tests.harness import setup
from tests.harness.attempts import ACCOUNT, OWN, THEIRS, Attempt, core
from tests.harness.requests_seen import Use, granted
from tests.harness.setup import REPOSITORY

RBAC = "/apis/rbac.authorization.k8s.io/v1"
CLUSTER_ADMIN = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
SUBJECT = {"kind": "ServiceAccount", "name": "tried", "namespace": "default"}
BINDING = {"metadata": {"name": "more"}, "roleRef": CLUSTER_ADMIN, "subjects": [SUBJECT]}
POD = {"metadata": {"name": "mine"}, "spec": {"containers": [{"name": "app", "image": "app"}]}}
IMAGE = {"spec": {"template": {"spec": {"containers": [{"name": "app", "image": "mine"}]}}}}
EVERYTHING = {"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}
TOKEN = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}

ATTEMPTS = (
    Attempt("read a Secret that it was not given", "GET", core(OWN, "secrets/theirs")),
    Attempt("list the Secrets of its namespace", "GET", core(OWN, "secrets")),
    Attempt("list the Secrets of the cluster", "GET", "/api/v1/secrets"),
    Attempt("change the Secret that it may read", "PATCH", core(OWN, "secrets/given"), {"data": {}}),
    Attempt("read a ConfigMap that it was not given", "GET", core(OWN, "configmaps/theirs")),
    Attempt("list the ConfigMaps of its namespace", "GET", core(OWN, "configmaps")),
    Attempt("create a ConfigMap", "POST", core(OWN, "configmaps"), {"metadata": {"name": "mine"}}),
    Attempt("change a ConfigMap", "PATCH", core(OWN, "configmaps/theirs"), {"data": {"a": "b"}}),
    Attempt("delete a ConfigMap", "DELETE", core(OWN, "configmaps/theirs")),
    Attempt("delete a Pod", "DELETE", core(OWN, "pods/any")),
    Attempt("evict a Pod", "POST", core(OWN, "pods/any/eviction"), {"metadata": {"name": "any"}}),
    Attempt("create a Pod", "POST", core(OWN, "pods"), POD),
    Attempt("change a Pod", "PATCH", core(OWN, "pods/any"), {"metadata": {"labels": {"a": "b"}}}),
    Attempt("resize a Pod", "PATCH", core(OWN, "pods/any/resize"), {"spec": {"containers": []}}),
    Attempt("run a command in a Pod", "POST", core(OWN, "pods/any/exec?command=sh")),
    Attempt("read a Pod's log", "GET", core(OWN, "pods/any/log")),
    Attempt("change a Deployment's image", "PATCH", f"/apis/apps/v1/namespaces/{OWN}/deployments/chat-gpu", IMAGE),
    Attempt("delete a Deployment", "DELETE", f"/apis/apps/v1/namespaces/{OWN}/deployments/chat-gpu"),
    Attempt(
        "scale a StatefulSet",
        "PATCH",
        f"/apis/apps/v1/namespaces/{OWN}/statefulsets/any/scale",
        {"spec": {"replicas": 0}},
    ),
    Attempt(
        "delete an autoscaler",
        "DELETE",
        f"/apis/autoscaling/v2/namespaces/{OWN}/horizontalpodautoscalers/any",
    ),
    Attempt(
        "change a VerticalPodAutoscaler",
        "PATCH",
        f"/apis/autoscaling.k8s.io/v1/namespaces/{OWN}/verticalpodautoscalers/any",
        {"spec": {"updatePolicy": {"updateMode": "Off"}}},
    ),
    Attempt("delete a policy", "DELETE", f"/apis/rlscaler.io/v1alpha1/namespaces/{OWN}/rlscalingpolicies/chat"),
    Attempt("read Events", "GET", core(OWN, "events")),
    Attempt(
        "read another namespace's policies", "GET", "/apis/rlscaler.io/v1alpha1/namespaces/{theirs}/rlscalingpolicies"
    ),
    Attempt("read another namespace's Deployments", "GET", f"/apis/apps/v1/namespaces/{THEIRS}/deployments"),
    Attempt(
        "scale another namespace's Deployment",
        "PATCH",
        f"/apis/apps/v1/namespaces/{THEIRS}/deployments/any/scale",
        {"spec": {"replicas": 0}},
    ),
    Attempt("read another namespace's Secret", "GET", core(THEIRS, "secrets/given")),
    Attempt("read the Pods of all namespaces", "GET", "/api/v1/pods"),
    Attempt(
        "take a Lease of the control plane",
        "PATCH",
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler",
        {"spec": {"holderIdentity": "mine"}},
    ),
    Attempt("give itself more rights in its namespace", "POST", f"{RBAC}/namespaces/{OWN}/rolebindings", BINDING),
    Attempt("make itself cluster-admin", "POST", f"{RBAC}/clusterrolebindings", BINDING),
    Attempt("widen its own role", "PATCH", f"{RBAC}/namespaces/{OWN}/roles/{ACCOUNT}-operator", EVERYTHING),
    Attempt("create a role", "POST", f"{RBAC}/namespaces/{OWN}/roles", {"metadata": {"name": "more"}, **EVERYTHING}),
    Attempt("act as another user", "GET", core(OWN, "pods"), None, (("Impersonate-User", "admin"),)),
    Attempt("get another account's token", "POST", core("default", "serviceaccounts/rlscaler/token"), TOKEN),
    Attempt("get a longer token of its own", "POST", core("default", f"serviceaccounts/{ACCOUNT}/token"), TOKEN),
    Attempt(
        "ask for a client certificate",
        "POST",
        "/apis/certificates.k8s.io/v1/certificatesigningrequests",
        {"metadata": {"name": "mine"}, "spec": {"request": "", "signerName": "a.b/c", "usages": ["client auth"]}},
    ),
    Attempt("read nodes", "GET", "/api/v1/nodes"),
    Attempt("reach a kubelet through the API server", "GET", "/api/v1/nodes/any/proxy/pods"),
    Attempt("list namespaces", "GET", "/api/v1/namespaces"),
    Attempt("create a namespace", "POST", "/api/v1/namespaces", {"metadata": {"name": "mine"}}),
    Attempt("read CustomResourceDefinitions", "GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"),
    Attempt(
        "change the policies' CustomResourceDefinition",
        "PATCH",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/rlscalingpolicies.rlscaler.io",
        {"metadata": {"labels": {"a": "b"}}},
    ),
    Attempt(
        "take a check of the API server away",
        "DELETE",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/any",
    ),
    Attempt(
        "change what is done to new Pods",
        "DELETE",
        "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies/rlscaler-new-pods",
    ),
    Attempt("add a webhook", "POST", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", {}),
    Attempt("profile the API server", "GET", "/debug/pprof/"),
)


def test_the_token_works_at_all(token, wait):
    """Rights that were just granted take a moment; without them the refusals below would say nothing."""
    wait(lambda: token(Attempt("read what it was given", "GET", core(OWN, "secrets/given")))[0] == 200)
    wait(lambda: token(Attempt("list", "GET", f"/apis/apps/v1/namespaces/{OWN}/deployments"))[0] == 200)
    scale = f"/apis/apps/v1/namespaces/{OWN}/deployments/chat-gpu/scale"
    assert token(Attempt("scale", "PATCH", scale, {"spec": {"replicas": 2}}))[0] == 200


def test_everything_else_is_refused(token, capsys):
    found = {attempt.what: token(attempt) for attempt in ATTEMPTS}
    with capsys.disabled():
        print("\n\n| tried with the operator's token | answer |\n|---|---|")
        for what, (status, _) in found.items():
            print(f"| {what} | {status} {requests.status_codes._codes[status][0]} |")
    assert {what: answer for what, answer in found.items() if answer[0] != 403} == {}


def test_the_documentation_has_the_same_table():
    text = (REPOSITORY / "docs" / "operator-permissions.md").read_text(encoding="utf-8")
    assert [attempt.what for attempt in ATTEMPTS if f"| {attempt.what} |" not in text] == []


def test_nothing_but_the_roles_is_allowed_on_any_resource(cluster, kube, token, world):
    """The API server's own list of what the token may do in the namespace."""
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview"}
    review["spec"] = {"namespace": world.namespace}
    status, _ = token(Attempt("ask", "POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", review))
    assert status == 201
    answer = requests.post(
        f"{cluster.server}/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        json=review,
        headers=dict(token._session.headers),
        verify=token._session.verify,
        timeout=30,
    ).json()["status"]
    assert not answer["incomplete"]
    may = granted(rule for rule in answer["resourceRules"] if not rule.get("resourceNames"))
    every_account = {use for use in may if use.group in ("authorization.k8s.io", "authentication.k8s.io")}
    assert may - every_account == granted(setup.shipped_roles()["rlscaler-operator"]["rules"])
    named = [rule for rule in answer["resourceRules"] if rule.get("resourceNames")]
    assert [(rule["resources"], rule["resourceNames"], rule["verbs"]) for rule in named] == [
        (["secrets"], ["given"], ["get"])
    ]
    assert Use("", "secrets", "get") not in may
