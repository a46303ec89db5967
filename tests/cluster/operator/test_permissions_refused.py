"""What the operator's own token is refused, tried one by one on the real API server, and printed as a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import requests
import yaml

from tests.harness import setup
from tests.harness.requests_seen import Use, granted
from tests.harness.setup import REPOSITORY

ACCOUNT = "tried"
MERGE = "application/merge-patch+json"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
OWN, THEIRS = "{own}", "{theirs}"
"""The namespace that the operator serves, and another one."""


class Attempt(NamedTuple):
    """Something that the operator must not be able to do."""

    what: str
    method: str
    path: str
    body: Any = None
    headers: tuple[tuple[str, str], ...] = ()


def core(namespace: str, rest: str) -> str:
    return f"/api/v1/namespaces/{namespace}/{rest}"


CLUSTER_ADMIN = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
SUBJECT = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "default"}
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


class Token:
    """Requests with the operator's token."""

    def __init__(self, cluster: Any, token: str, names: dict[str, str]) -> None:
        self._server, self._names, self._session = cluster.server, names, requests.Session()
        self._session.trust_env = False
        self._session.verify = str(cluster.state_dir / "pki" / "ca.crt")
        self._session.headers["Authorization"] = f"Bearer {token}"

    def __call__(self, attempt: Attempt) -> tuple[int, str]:
        path = attempt.path.format(**self._names)
        headers = {"Content-Type": MERGE if attempt.method == "PATCH" else "application/json", **dict(attempt.headers)}
        answer = self._session.request(
            attempt.method, self._server + path, json=attempt.body, headers=headers, timeout=30
        )
        return answer.status_code, answer.text

    def close(self) -> None:
        self._session.close()


@pytest.fixture(scope="module")
def theirs(kube) -> str:
    kube.request("POST", "/api/v1/namespaces", {"metadata": {"name": "not-served"}})
    return "not-served"


@pytest.fixture(scope="module")
def token(cluster, kube, world, theirs) -> Iterator[Token]:
    """May do what ships in one namespace, and read one Secret there."""
    setup.permit(kube, ACCOUNT, world.namespace)
    one = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["given"], "verbs": ["get"]}
    setup.grant(kube, ACCOUNT, "given", [one], world.namespace)
    for namespace in (world.namespace, theirs):
        for name in ("given", "theirs"):
            kube.request("POST", core(namespace, "secrets"), {"metadata": {"name": name}})
    world.deployments("chat")
    world.policy("chat", mode="Off")
    names = {"own": world.namespace, "theirs": theirs}
    tried = Token(cluster, setup.token(kube, account=ACCOUNT), names)
    yield tried
    tried.close()


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


@pytest.fixture(scope="module")
def own_writes(kube, world, token, wait):
    """The admission policy as it ships, for this test's account, and the right that needs it most."""
    account = f"system:serviceaccount:default:{ACCOUNT}"
    text = (REPOSITORY / "admission" / "operator.yaml").read_text(encoding="utf-8")
    paths = []
    for body in yaml.safe_load_all(text.replace("system:serviceaccount:rlscaler-system:rlscaler", account)):
        plural = {"ValidatingAdmissionPolicy": "policies", "ValidatingAdmissionPolicyBinding": "policybindings"}
        path = f"/apis/admissionregistration.k8s.io/v1/validatingadmission{plural[body['kind']]}"
        kube.request("POST", path, body)
        paths.append(f"{path}/{body['metadata']['name']}")
    marks = setup.shipped_roles()["rlscaler-pod-deletion-cost"]["rules"]
    setup.grant(kube, ACCOUNT, "marks", marks, world.namespace)
    pods = wait(lambda: kube.request("GET", core(world.namespace, "pods"))["items"])
    refs = [{"name": f"chat-{pool}", "port": 80, "weight": 1} for pool in ("gpu", "cpu")]
    route = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "chat"}}
    kube.request("POST", world.path("httproutes"), route | {"spec": {"rules": [{"backendRefs": refs}]}})
    yield pods[0]["metadata"]["name"]
    for path in paths:
        kube.delete(path)


FILTER = {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "x-user", "value": "admin"}]}}
MIRROR = {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "theirs", "port": 80}}}

HOSTILE_ROUTES = {
    "another Service": [("replace", "/spec/rules/0/backendRefs/0/name", "elsewhere")],
    "another port": [("replace", "/spec/rules/0/backendRefs/0/port", 8080)],
    "another namespace": [("add", "/spec/rules/0/backendRefs/0/namespace", "kube-system")],
    "another kind": [("add", "/spec/rules/0/backendRefs/0/kind", "ServiceImport")],
    "another group": [("add", "/spec/rules/0/backendRefs/0/group", "theirs.example")],
    "a backend's filter": [("add", "/spec/rules/0/backendRefs/0/filters", [FILTER])],
    "one backend more": [("add", "/spec/rules/0/backendRefs/-", {"name": "theirs", "port": 80, "weight": 1})],
    "one backend less": [("remove", "/spec/rules/0/backendRefs/1", None)],
    "no backends": [("remove", "/spec/rules/0/backendRefs", None)],
    "the order of backends": [
        ("replace", "/spec/rules/0/backendRefs/0/name", "chat-cpu"),
        ("replace", "/spec/rules/0/backendRefs/1/name", "chat-gpu"),
    ],
    "a rule's filter": [("add", "/spec/rules/0/filters", [FILTER])],
    "a mirror": [("add", "/spec/rules/0/filters", [MIRROR])],
    "a rule's timeouts": [("add", "/spec/rules/0/timeouts", {"request": "1ms"})],
    "a rule's matches": [("add", "/spec/rules/0/matches", [{"path": {"type": "Exact", "value": "/nowhere"}}])],
    "one rule more": [("add", "/spec/rules/-", {"backendRefs": [{"name": "theirs", "port": 80}]})],
    "no rules": [("remove", "/spec/rules", None)],
    "host names": [("add", "/spec/hostnames", ["elsewhere.example"])],
    "a Gateway": [("add", "/spec/parentRefs", [{"name": "public"}])],
    "a label": [("add", "/metadata/labels", {"a": "b"})],
    "an annotation": [("add", "/metadata/annotations", {"a": "b"})],
    "a finalizer": [("add", "/metadata/finalizers", ["theirs.example/one"])],
}
"""What a JSON patch of an HTTPRoute would change besides weights."""


def json_patch(path: str, steps: list[tuple[str, str, Any]]) -> Attempt:
    body = [{"op": op, "path": at} | ({} if op == "remove" else {"value": value}) for op, at, value in steps]
    kind = (("Content-Type", "application/json-patch+json"),)
    return Attempt("", "PATCH", f"{path}?dryRun=All&fieldManager=rlscaler", body, kind)


@pytest.mark.parametrize("what", HOSTILE_ROUTES)
def test_of_a_route_nothing_but_weights_is_changed(own_writes, token, world, wait, what):
    route = world.path("httproutes", "chat")
    weight = ("replace", "/spec/rules/0/backendRefs/0/weight", 7)
    wait(lambda: token(json_patch(route, [("add", "/metadata/labels", {"a": "b"})]))[0] == 422)
    assert token(json_patch(route, [weight]))[0] == 200
    for steps in (HOSTILE_ROUTES[what], [weight, *HOSTILE_ROUTES[what]]):
        status, text = token(json_patch(route, steps))
        assert (status, "rlscaler-own-writes" in text) == (422, True), text


@pytest.fixture(scope="module")
def policies(kube, world, own_writes):
    """Deployments of a policy in Auto, of one in Shadow and of none; and a namespace without policies."""
    for name in ("auto", "shadow", "free"):
        world.deployment(f"{name}-cpu", "cpu", 3)
    for name, mode in (("auto", "Auto"), ("shadow", "Shadow")):
        bounds = {"deployment": f"{name}-cpu", "minReplicas": 2, "maxReplicas": 5}
        world.policy(name, mode=mode, targets={"cpu": bounds})
    return own_writes


@pytest.mark.parametrize(
    ("deployment", "replicas", "allowed"),
    [
        ("auto-cpu", 5, True),
        ("auto-cpu", 2, True),
        ("auto-cpu", 6, False),
        ("auto-cpu", 1, False),
        ("auto-cpu", 0, False),
        ("shadow-cpu", 9, True),
        ("free-cpu", 0, True),
    ],
)
def test_replicas_stay_within_the_policies_that_name_the_deployment(
    policies, token, world, wait, deployment, replicas, allowed
):
    scale = world.path("deployments", deployment, "scale")
    beyond = json_patch(world.path("deployments", "auto-cpu", "scale"), [("replace", "/spec/replicas", 99)])
    wait(lambda: token(beyond)[0] == 422)
    status, text = token(json_patch(scale, [("add", "/spec/replicas", replicas)]))
    assert (status == 200) == allowed, text
    assert allowed or "RLScalingPolicy auto" in text


def test_a_pool_that_is_out_of_its_bounds_may_be_brought_back(policies, token, world, wait):
    scale = world.path("deployments", "auto-cpu", "scale")
    wait(lambda: token(json_patch(scale, [("replace", "/spec/replicas", 99)]))[0] == 422)
    for found, step, allowed in ((9, 7, True), (9, 10, False), (0, 1, True), (1, 0, False)):
        world.patch("deployments", "auto-cpu", {"spec": {"replicas": found}})
        steps = [("test", "/spec/replicas", found or None), ("add", "/spec/replicas", step)]
        assert (token(json_patch(scale, steps))[0] == 200) == allowed, (found, step)


def test_others_scale_what_they_like_with_or_without_a_policy_there(policies, kube, token, theirs, world, wait):
    """An HPA, say: what is refused to the operator is refused to nobody else."""
    too_many = json_patch(world.path("deployments", "auto-cpu", "scale"), [("replace", "/spec/replicas", 6)])
    wait(lambda: token(too_many)[0] == 422)
    labels = {"app": "alone"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "app"}]}}
    path = f"/apis/apps/v1/namespaces/{theirs}/deployments"
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    kube.request("POST", path, {"metadata": {"name": "alone"}, "spec": spec})
    for scale in (f"{path}/alone/scale", world.path("deployments", "auto-cpu", "scale")):
        most = {"spec": {"replicas": 1000}}
        found = kube.request("PATCH", f"{scale}?dryRun=All", most, content_type="application/merge-patch+json")
        assert found["spec"]["replicas"] == 1000


def test_the_scale_subresource_changes_nothing_else(policies, token, world):
    """What is said about the rest of a Deployment in a patch of its scale is dropped by the API server itself."""
    attempt = json_patch(
        world.path("deployments", "auto-cpu", "scale"),
        [("replace", "/spec/replicas", 4), ("add", "/metadata/labels", {"a": "b"}), ("add", "/spec/paused", True)],
    )
    status, _ = token(attempt._replace(path=attempt.path.replace("dryRun=All&", "")))
    assert status in (200, 400, 422)
    after = world.get("deployments", "auto-cpu")
    assert "a" not in after["metadata"].get("labels", {})
    assert "paused" not in after["spec"]


def test_what_rbac_cannot_bound_the_admission_policy_does(own_writes, token, world, wait):
    pod = core(OWN, f"pods/{own_writes}")
    policy, route = world.path("rlscalingpolicies", "chat"), world.path("httproutes", "chat")

    def change(path: str, body: Any, kind: str = MERGE) -> str:
        """Whose refusal it is; empty = it was taken."""
        attempt = Attempt("", "PATCH", f"{path}?dryRun=All&fieldManager=rlscaler", body, (("Content-Type", kind),))
        status, text = token(attempt)
        own = "rlscaler-own-writes" in text
        return "" if status == 200 else "ours" if status == 422 and own else f"{status} {text}"

    def weights(*names: str) -> Any:
        refs = [{"name": name, "port": 80, "weight": 700} for name in names]
        return {"spec": {"rules": [{"backendRefs": refs}]}}

    wait(lambda: change(pod, {"metadata": {"annotations": {"other": "x"}}}) == "ours")
    image = {"spec": {"containers": [{"name": "app", "image": "mine"}]}}
    assert change(pod, image, "application/strategic-merge-patch+json") == "ours"
    assert change(pod, {"metadata": {"labels": {"app": "other"}}}) == "ours"
    assert change(pod, {"metadata": {"ownerReferences": None}}) == "ours"
    assert change(policy, {"metadata": {"annotations": {"rlscaler.io/paused": "true"}}}) == "ours"
    assert change(policy, {"metadata": {"finalizers": ["theirs.example/one"]}}) == "ours"
    assert change(policy, {"spec": {"mode": "Auto"}}) == "ours"
    assert change(route, weights("chat-gpu", "elsewhere")) == "ours"
    assert change(route, {"spec": {"hostnames": ["elsewhere.example"]}}) == "ours"

    assert change(pod, {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-1000"}}}) == ""
    assert change(policy, {"metadata": {"finalizers": ["rlscaler.io/restore"]}}) == ""
    assert change(policy, {"metadata": {"annotations": {"rlscaler.io/traffic-weights": "gpu=1,cpu=999"}}}) == ""
    assert change(route, weights("chat-gpu", "chat-cpu")) == ""


@pytest.fixture(scope="module")
def sizes_new_pods(kube, world, own_writes, token, wait):
    """The right to write ConfigMaps, as it ships, and two of them: one that sizes new pods and one of somebody's."""
    rules = setup.shipped_roles()["rlscaler-new-pods"]["rules"]
    setup.grant(kube, ACCOUNT, "new-pods", rules, world.namespace)
    path = core(world.namespace, "configmaps")
    kube.request("POST", path, {"metadata": {"name": "theirs"}, "data": {"a": "b"}})
    wait(lambda: token(_config_map("other"))[0] == 422)


SIZES: dict[str, Any] = {
    "labels": {"rlscaler.io/pod-size": "true"},
    "ownerReferences": [
        {"apiVersion": "rlscaler.io/v1alpha1", "kind": "RLScalingPolicy", "name": "chat", "uid": "the-policys"}
    ],
}


def _config_map(name: str, **metadata: Any) -> Attempt:
    """Apply a ConfigMap (dry run)."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": {"cpu": "1"}}
    path = core(OWN, f"configmaps/{name}?dryRun=All&fieldManager=rlscaler&force=true")
    return Attempt("", "PATCH", path, body, (("Content-Type", "application/apply-patch+yaml"),))


@pytest.mark.parametrize(
    ("name", "metadata", "status"),
    [
        ("mine", SIZES, 201),
        ("mine", {}, 422),
        ("mine", {"labels": SIZES["labels"]}, 422),
        ("mine", SIZES | {"labels": {"rlscaler.io/pod-size": "false"}}, 422),
        ("theirs", SIZES, 422),
    ],
)
def test_of_config_maps_none_is_written_but_those_that_size_new_pods(sizes_new_pods, token, name, metadata, status):
    answer, text = token(_config_map(name, **metadata))
    assert answer == status, text
    assert answer == 201 or "rlscaler-own-config-maps" in text


def test_of_config_maps_none_is_deleted_or_read_but_those_that_size_new_pods(sizes_new_pods, kube, token, world):
    path = core(world.namespace, "configmaps")
    owner = SIZES["ownerReferences"][0] | {"uid": world.get("rlscalingpolicies", "chat")["metadata"]["uid"]}
    kube.request("POST", path, {"metadata": {"name": "ours", **SIZES, "ownerReferences": [owner]}})
    assert token(Attempt("", "DELETE", core(OWN, "configmaps/theirs")))[0] == 422
    assert token(Attempt("", "GET", core(OWN, "configmaps/ours")))[0] == 403
    assert token(Attempt("", "DELETE", core(OWN, "configmaps/ours")))[0] == 200
