"""What a policy names outside itself: models, credentials, queries. On the real API server and Prometheus."""

import base64
import hashlib
import urllib.request
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import pytest
from click.testing import CliRunner

from rlscaler_core.models import load_bundled
from rlscaler_rl.evaluation.service_tuning.publish import publish
from tests.harness import hostile_models as hostile
from tests.harness import setup
from tests.harness.serving import Quiet, serving

GRAPH = (files("rlscaler_core.models") / "ppo.onnx").read_bytes()
MANIFEST = load_bundled("ppo").manifest
CORE = "/api/v1/namespaces"


@dataclass
class Gate:
    """Prometheus behind a bearer token that can be changed."""

    url: str = ""
    token: str = "first"


@pytest.fixture(scope="module")
def gate(cluster):
    one = Gate()

    class Handler(Quiet):
        def do_GET(self):  # noqa: N802
            if self.headers.get("Authorization") != f"Bearer {one.token}":
                self.answer(401, b"")
                return
            with urllib.request.urlopen(cluster.prometheus_url + self.path) as found:
                self.answer(found.status, found.read())

    with serving(Handler) as one.url:
        yield one


@pytest.fixture(scope="module")
def policy_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("policies")


@pytest.fixture(scope="module")
def operator(start, gate, policy_dir):
    options = ("--reload-seconds", "1", "--policy-dir", str(policy_dir), "--allow-prometheus-url", gate.url)
    return start(*options)


def write_model(folder: Path, name: str) -> Path:
    """A model folder as training leaves it; the same network under another name."""
    folder.mkdir(exist_ok=True)
    (folder / "policy.onnx").write_bytes(GRAPH)
    (folder / "manifest.json").write_text(MANIFEST.model_copy(update={"name": name}).model_dump_json())
    return folder


def model_of(world, policy):
    return world.get("rlscalingpolicies", policy).get("status", {}).get("model", {}).get("name")


def message(world, policy):
    conditions = world.get("rlscalingpolicies", policy)["status"]["conditions"]
    return next(c["message"] for c in conditions if c["type"] == "Ready")


def published(cluster, world, folder):
    options = ["--force", "--apply", "--name", "chat-policy", "--namespace", world.namespace]
    done = CliRunner().invoke(publish, [str(folder), *options, "--kubeconfig", str(cluster.kubeconfig)])
    assert done.exit_code == 0, done.output


def test_a_model_from_a_config_map_is_reloaded_and_garbage_leaves_the_last_good_one(
    operator, cluster, world, wait, tmp_path
):
    world.service("chat", rate=60)
    world.deployments("chat")
    world.policy("chat", policy={"configMap": {"name": "chat-policy", "key": "manifest.json"}})
    wait(lambda: world.condition("chat", "Ready") == ("False", "ConfigMapForbidden"))
    setup.obey(world.kube, message(world, "chat"))
    wait(lambda: world.condition("chat", "Ready") == ("False", "ConfigMapMissing"))
    published(cluster, world, write_model(tmp_path / "one", "one"))
    wait(lambda: model_of(world, "chat") == "one")
    wait(lambda: world.condition("chat", "Ready")[0] == "True")
    decided = wait(lambda: [r for r in operator.decisions("chat") if r["kind"] == "action" and r["action"]])
    assert decided[-1]["actor"]["name"] == "one"
    wait(lambda: sum(world.replicas("chat")) > 2)

    published(cluster, world, write_model(tmp_path / "one", "two"))
    wait(lambda: model_of(world, "chat") == "two")

    path = f"{CORE}/{world.namespace}/configmaps/chat-policy?fieldManager=rlscaler-publish"
    broken = {"binaryData": {"policy.onnx": base64.b64encode(GRAPH[: len(GRAPH) // 2]).decode()}}
    world.kube.merge(path, broken)
    wait(lambda: world.condition("chat", "ModelOutdated") == ("True", "ModelDigestMismatch"))
    wait(lambda: "ModelDigestMismatch" in world.events("chat"))
    before = len(operator.decisions("chat"))
    wait(lambda: [r for r in operator.decisions("chat")[before:] if r["kind"] == "action" and r["action"]])
    assert model_of(world, "chat") == "two"
    assert world.condition("chat", "Ready")[0] == "True"

    world.kube.request("DELETE", path)
    wait(lambda: world.condition("chat", "ModelOutdated") == ("True", "ConfigMapMissing"))
    published(cluster, world, write_model(tmp_path / "one", "three"))
    wait(lambda: model_of(world, "chat") == "three")
    wait(lambda: world.condition("chat", "ModelOutdated") == ("", ""))


def test_hostile_models_are_a_condition_and_delay_no_other_policy(operator, world, wait):
    world.service("good", rate=30)
    world.deployments("good")
    world.policy("good")
    wait(lambda: world.condition("good", "Ready")[0] == "True")
    hostiles = {make.__name__: bytes(make().SerializeToString()) for make in (hostile.loop, hostile.fill, hostile.slow)}
    for name, graph in hostiles.items():
        update = {"stack_size": 4, "digest": hashlib.sha256(graph).hexdigest()}
        config_map = {
            "metadata": {"name": name},
            "data": {"manifest.json": MANIFEST.model_copy(update=update).model_dump_json()},
            "binaryData": {"policy.onnx": base64.b64encode(graph).decode()},
        }
        world.kube.request("POST", f"{CORE}/{world.namespace}/configmaps", config_map)
        world.service(name, rate=30)
        world.deployments(name)
        world.policy(name, policy={"configMap": {"name": name, "key": "manifest.json"}})
    before = len(operator.decisions("good"))
    for name in hostiles:
        wait(lambda name=name: world.condition(name, "Ready") == ("False", "ConfigMapForbidden"))
        setup.obey(world.kube, message(world, name))
    for name in hostiles:
        wait(lambda name=name: world.condition(name, "Ready") == ("False", "ModelInvalid"))
    wait(lambda: len(operator.decisions("good")) > before + 2)
    assert operator.process.poll() is None
    late = [record["seconds"]["decide"] for record in operator.decisions("good")[before:] if record.get("seconds")]
    assert late
    assert max(late) < 0.5, "a decision waited for no trial"


def test_a_model_from_the_policy_dir(operator, world, wait, policy_dir):
    write_model(policy_dir / "search", "from a file")
    world.service("search", rate=5)
    world.deployments("search")
    world.policy("search", policy={"path": "search/manifest.json"})
    wait(lambda: model_of(world, "search") == "from a file")
    (policy_dir / "search" / "policy.onnx").write_bytes(b"garbage")
    wait(lambda: world.condition("search", "ModelOutdated") == ("True", "ModelDigestMismatch"))
    assert model_of(world, "search") == "from a file"


def secret(world, token):
    body = {"metadata": {"name": "prometheus"}, "data": {"token": base64.b64encode(token.encode()).decode()}}
    path = f"{CORE}/{world.namespace}/secrets"
    names = {item["metadata"]["name"] for item in world.kube.request("GET", path)["items"]}
    if "prometheus" in names:
        world.kube.merge(f"{path}/prometheus", body)
    else:
        world.kube.request("POST", path, body)


def test_a_credential_from_a_secret_and_its_rotation(operator, world, wait, stays, gate):
    world.service("auth", rate=60)
    world.deployments("auth")
    auth = {"bearerToken": {"name": "prometheus", "key": "token"}}
    secret(world, "first\n")
    world.policy("auth", metrics={"prometheus": {"url": gate.url, "auth": auth}})
    wait(lambda: world.condition("auth", "Ready") == ("False", "SecretForbidden"))
    setup.obey(world.kube, message(world, "auth"))
    wait(lambda: world.condition("auth", "Ready")[0] == "True")
    replicas = wait(lambda: (r := world.replicas("auth")) != (1, 1) and r)
    gate.token = "second"
    wait(lambda: world.condition("auth", "Ready") == ("False", "PrometheusUnauthorized"), 90)
    stays(lambda: sum(world.replicas("auth")) >= sum(replicas), True, 3)
    secret(world, "second")
    wait(lambda: world.condition("auth", "Ready")[0] == "True")
    world.kube.request("DELETE", f"{CORE}/{world.namespace}/secrets/prometheus")
    wait(lambda: world.condition("auth", "Ready") == ("False", "SecretMissing"))


def test_a_prometheus_that_is_not_allowed_is_not_asked(operator, world, wait):
    world.deployments("elsewhere")
    world.policy("elsewhere", metrics={"prometheus": {"url": "http://127.0.0.1:1"}})
    wait(lambda: world.condition("elsewhere", "Ready") == ("False", "PrometheusNotAllowed"))


def test_queries_of_the_users_own(operator, world, wait):
    load = world.service("own", rate=40)
    world.deployments("own")
    series = f'{{namespace="{world.namespace}",service="own"}}'
    queries = {
        "arrivalRate": f"2 * sum(rate(inference_requests_received_total{series}[10s]))",
        "p95Latency": "vector(123) # of no interest",
        "gpuUtilization": "vector(42)",
    }
    world.policy("own", metrics={"queries": queries}, slo={"latencyMilliseconds": 1000, "percentile": 50})
    wait(lambda: world.condition("own", "Ready")[0] == "True")
    wait(lambda: (r := world.replicas("own"))[0] * 20 + r[1] * 4 >= 80 / 0.8)
    status = lambda: world.get("rlscalingpolicies", "own")["status"]  # noqa: E731
    observation = wait(lambda: status().get("observation"))
    assert (observation["p95Latency"]["value"], observation["gpuUtilization"]["value"]) == (123, 42)
    assert status()["latency"]["percentile"] == 50
    assert 100 <= status()["latency"]["milliseconds"] <= 200
    load.fault = "absent"
    wait(lambda: world.condition("own", "Ready") == ("False", "SeriesAbsent"), 60)
    world.patch("rlscalingpolicies", "own", {"spec": {"metrics": {"queries": {"arrivalRate": "sum("}}}})
    wait(lambda: world.condition("own", "Ready") == ("False", "PrometheusError"))
