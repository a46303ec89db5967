"""From what runs to a policy that decides: `rlscaler init`, `preflight`, then a real operator."""

import json

import pytest
import yaml
from click.testing import CliRunner

from rlscaler_live.cli import main
from tests.harness import setup
from tests.harness.scraping import Counters, prometheus
from tests.harness.setup import REPOSITORY

HPA = {
    "minReplicas": 2,
    "maxReplicas": 8,
    "metrics": [
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}}
    ],
    "behavior": {"scaleDown": {"stabilizationWindowSeconds": 120}},
}
SLO_MS = 1000
"""What `init` guesses; the exporter's histogram has a bucket there."""


def target(name):
    return {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}}


@pytest.fixture(scope="module")
def rlscaler(cluster, world):
    """A command in the module's namespace, where Prometheus is reached and the tests' operators have their account."""

    def run(*words, code=0):
        words = [*words, "--kubeconfig", str(cluster.kubeconfig), "-n", world.namespace]
        if words[0] == "preflight":
            words += ["--prometheus-url", cluster.prometheus_url, "--scrape-interval", "2"]
            words += ["--operator", "default/rlscaler", "--lease-name", world.namespace]
        done = CliRunner(env={"COLUMNS": "200"}).invoke(main, words)
        assert done.exit_code == code, done.output
        return done.output

    return run


@pytest.fixture(scope="module")
def chat(world, wait, start):
    """A service with two pools and a HorizontalPodAutoscaler that run for a while, and an operator."""
    world.service("chat", rate=60)
    world.deployment("chat-gpu", "gpu", 2, gpus=1)
    world.deployment("chat-cpu", "cpu", 2)
    world.kube.request(
        "POST", world.path("horizontalpodautoscalers"), {"metadata": {"name": "chat"}, "spec": HPA | target("chat-cpu")}
    )
    wait(lambda: world.get("deployments", "chat-gpu")["status"].get("readyReplicas") == 2)
    wait(lambda: world.get("deployments", "chat-cpu")["status"].get("readyReplicas", 0) >= 2)
    start()
    return "chat"


def checks(rlscaler, path, code=0):
    """What preflight says of a file, by what each line is about."""
    found = json.loads(rlscaler("preflight", str(path), "-o", "json", code=code))
    assert found["ok"] == (code == 0)
    return {one["about"]: one for one in found["checks"]}


def write(path, **spec):
    """A policy of the service `chat`; `spec` replaces parts of it."""
    pools = {
        pool: {"deployment": f"chat-{pool}", "maxReplicas": 8, "requestsPerSecond": rps, "coldStartSeconds": 2}
        for pool, rps in (("gpu", 20), ("cpu", 4))
    }
    body = {
        "apiVersion": "rlscaler.io/v1alpha1",
        "kind": "RLScalingPolicy",
        "metadata": {"name": "chat"},
        "spec": {"targets": pools, "slo": {"latencyMilliseconds": SLO_MS}} | spec,
    }
    path.write_text(yaml.safe_dump(body))
    return path


@pytest.mark.smoke
def test_a_policy_is_written_checked_applied_and_decides(rlscaler, chat, world, wait, tmp_path):
    path = tmp_path / "chat.yaml"
    rlscaler("init", "--deployment", "chat-gpu", "--cpu", "chat-cpu", "--out", str(path))
    assert path.read_text().count("GUESS") >= 4
    # The operator has to have measured for as long as a rate's window.
    wait(lambda: "FAIL" not in CliOutput.of(rlscaler, path), 60)
    found = checks(rlscaler, path)
    assert {one["state"] for one in found.values()} <= {"ok", "warn"}
    assert found["arrival_rate"]["what"].startswith("arrival_rate is ")
    assert found["buckets"]["what"] == "the latency histogram has a bucket at the objective: 1 s"
    assert found["lease"]["state"] == found["permissions"]["state"] == found["accepted"]["state"] == "ok"
    assert found["gpu-nodes-gpu"]["state"] == "ok"
    assert "HPA chat scales Deployment chat-cpu" in found["conflict"]["what"]
    assert "carries" in found["capacity-gpu"]["what"], "no number is needed: capacity is measured"

    world.kube.request("POST", world.path("rlscalingpolicies"), yaml.safe_load(path.read_text()))
    wait(lambda: world.condition("chat", "Ready")[0] == "True", 60)
    wait(lambda: world.get("rlscalingpolicies", "chat")["status"].get("lastDecision"), 60)
    assert world.get("rlscalingpolicies", "chat")["spec"]["mode"] == "Shadow"


class CliOutput:
    """The text of preflight, whatever its exit code."""

    @staticmethod
    def of(rlscaler, path):
        try:
            return rlscaler("preflight", str(path))
        except AssertionError as error:
            return f"FAIL {error}"


def test_limits_and_behavior_come_from_the_hpa(rlscaler, chat):
    found = json.loads(rlscaler("init", "--from-hpa", "chat", "-o", "json"))
    cpu = found["policy"]["spec"]["targets"]["cpu"]
    assert (cpu["deployment"], cpu["minReplicas"], cpu["maxReplicas"]) == ("chat-cpu", 2, 8)
    assert "gpu" not in found["policy"]["spec"]["targets"], "its pods ask for no GPU"
    assert found["policy"]["spec"]["guards"] == {"targetUtilization": {"cpu": 70}}
    assert found["policy"]["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 120
    assert found["notes"]["spec.targets.cpu.maxReplicas"] == "From HorizontalPodAutoscaler chat."


def test_service_and_route_are_found_by_what_selects_the_pods(rlscaler, chat, world):
    core = f"/api/v1/namespaces/{world.namespace}/services"
    for pool in ("gpu", "cpu"):
        spec = {"selector": {"app": f"chat-{pool}"}, "ports": [{"port": 80}]}
        world.kube.request("POST", core, {"metadata": {"name": f"chat-{pool}-svc"}, "spec": spec})
    refs = [{"name": f"chat-{pool}-svc", "port": 80, "weight": 1} for pool in ("gpu", "cpu")]
    route = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "front"}}
    world.kube.request("POST", world.path("httproutes"), route | {"spec": {"rules": [{"backendRefs": refs}]}})
    try:
        found = json.loads(rlscaler("init", "--deployment", "chat-gpu", "--cpu", "chat-cpu", "-o", "json"))
    finally:
        world.delete("httproutes", "front")
    expected = {"name": "front", "gpuBackend": "chat-gpu-svc", "cpuBackend": "chat-cpu-svc"}
    assert found["policy"]["spec"]["placement"]["httpRoute"] == expected
    assert found["policy"]["metadata"]["name"] == "chat"


def test_an_objective_between_two_buckets(rlscaler, chat, tmp_path):
    between = checks(rlscaler, write(tmp_path / "p.yaml", slo={"latencyMilliseconds": 800}))["buckets"]
    assert between["state"] == "warn"
    assert "0.8 s lies between its bounds 0.75 and 1 s" in between["trouble"]
    assert "latencyMilliseconds to 750" in between["trouble"]


def test_in_auto_a_conflict_is_in_the_way(rlscaler, chat, tmp_path):
    found = checks(rlscaler, write(tmp_path / "p.yaml", mode="Auto"), code=1)["conflict"]
    assert found["state"] == "FAIL"
    assert "HPA chat scales Deployment chat-cpu: delete it" in found["trouble"]


def test_a_tool_that_owns_the_replicas_is_named_with_its_remedy(rlscaler, chat, world, tmp_path):
    world.patch("deployments", "chat-gpu", {"spec": {"replicas": 3}}, manager="argocd-controller")
    found = checks(rlscaler, write(tmp_path / "p.yaml"))["owners"]
    assert found["state"] == "warn"
    assert "Argo CD (argocd-controller) owns spec.replicas of Deployment chat-gpu" in found["trouble"]
    assert "ignoreDifferences" in found["trouble"]


def test_a_quota_that_does_not_last_and_too_few_gpus(rlscaler, chat, world, tmp_path, wait):
    path = f"/api/v1/namespaces/{world.namespace}/resourcequotas"
    hard = {"requests.nvidia.com/gpu": "4"}
    world.kube.request("POST", path, {"metadata": {"name": "gpus"}, "spec": {"hard": hard}})
    try:
        wait(lambda: (world.kube.request("GET", f"{path}/gpus").get("status") or {}).get("used"))
        found = checks(rlscaler, write(tmp_path / "p.yaml"), code=1)["quota"]
    finally:
        world.kube.request("DELETE", f"{path}/gpus")
    assert "ResourceQuota gpus: requests.nvidia.com/gpu has " in found["trouble"]
    assert "maxReplicas need " in found["trouble"]
    more = {"gpu": {"deployment": "chat-gpu", "maxReplicas": 40, "requestsPerSecond": 20}}
    nodes = checks(rlscaler, write(tmp_path / "p.yaml", targets=more))["gpu-nodes-gpu"]
    assert nodes["what"] == "2 nodes can take 16 pods of chat-gpu (1 nvidia.com/gpu each)"
    assert "spec.targets.gpu.maxReplicas is 40" in nodes["trouble"]


def test_an_account_without_rights_and_one_that_is_not_there(cluster, chat, kube, world, tmp_path):
    setup.permit(kube, f"only-{world.namespace}", "default")
    path = write(tmp_path / "p.yaml")

    def run(account):
        words = ["preflight", str(path), "-n", world.namespace, "--kubeconfig", str(cluster.kubeconfig)]
        words += ["--prometheus-url", cluster.prometheus_url, "--scrape-interval", "2", "--operator", account]
        done = CliRunner().invoke(main, [*words, "--lease-name", world.namespace, "-o", "json"])
        assert done.exit_code == 1, done.output
        return {one["about"]: one for one in json.loads(done.output)["checks"]}

    found = run(f"default/only-{world.namespace}")["permissions"]
    assert f"it may not get rlscalingpolicies.rlscaler.io in {world.namespace}" in found["trouble"]
    assert "install the chart" in run("default/nobody")["operator"]["trouble"]


def test_preflight_changes_nothing(rlscaler, chat, world, tmp_path):
    def seen():
        bodies = [world.get("deployments", f"chat-{pool}")["spec"] for pool in ("gpu", "cpu")]
        policies = world.kube.request("GET", world.path("rlscalingpolicies"))["items"]
        return bodies, [(one["metadata"]["name"], one["metadata"]["generation"]) for one in policies]

    before = seen()
    rlscaler("preflight", str(write(tmp_path / "p.yaml", metrics={"service": "chat"})))
    assert seen() == before


def test_a_server_is_known_by_its_image_and_read_by_its_preset(cluster, chat, world, wait, tmp_path):
    """Series recorded from vLLM, scraped with the labels of a pod that runs, as a PodMonitor gives them."""
    world.deployment("llm", "gpu", 1, gpus=1)
    container = {"name": "app", "image": "vllm/vllm-openai:v0.32", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    world.patch("deployments", "llm", {"spec": {"template": {"spec": {"containers": [container]}}}})
    wait(lambda: world.get("deployments", "llm")["status"].get("updatedReplicas") == 1)
    wait(lambda: len(world.pods("llm")) == 1 and world.get("deployments", "llm")["status"].get("readyReplicas") == 1)
    server = Counters()
    server.recorded(REPOSITORY / "tests/data/presets/vllm.txt")
    labels = {"namespace": world.namespace, "pod": world.pods("llm")[0]["metadata"]["name"], "container": "app"}
    path = tmp_path / "llm.yaml"
    here = ["--kubeconfig", str(cluster.kubeconfig), "-n", world.namespace]
    written = CliRunner().invoke(main, ["init", "--deployment", "llm", "--out", str(path), *here])
    assert written.exit_code == 0, written.output
    written = yaml.safe_load(path.read_text())
    assert written["spec"]["metrics"]["preset"] == "vllm"
    assert written["spec"].pop("capacity") == {"unit": "tokens"}
    written["spec"]["slo"] = {"latencyMilliseconds": 1000}
    in_requests = tmp_path / "requests.yaml"
    in_requests.write_text(yaml.safe_dump(written))
    try:
        with prometheus([(server.address, labels)]) as url:
            words = [
                "preflight",
                str(in_requests),
                *here,
                "--prometheus-url",
                url,
                "--scrape-interval",
                "1",
                "-o",
                "json",
            ]
            words += ["--operator", "default/rlscaler", "--lease-name", world.namespace]
            seen = wait(lambda: (done := CliRunner().invoke(main, words)).exit_code == 0 and done.output, 60)
            words[1] = str(path)
            tokens = wait(lambda: (done := CliRunner().invoke(main, words)).exit_code == 0 and done.output, 60)
    finally:
        server.close()
    found = {one["about"]: one for one in json.loads(seen)["checks"]}
    assert found["arrival_rate"]["state"] == found["p95_latency"]["state"] == "ok"
    assert found["gpu_utilization"]["what"].startswith("gpu_utilization is ")
    assert found["buckets"]["state"] == "ok", found["buckets"]
    found = {one["about"]: one for one in json.loads(tokens)["checks"]}
    assert "tokens/s, " in found["arrival_rate"]["what"]
    assert "ms (ttft, tpot of 150 ms as 2500), " in found["p95_latency"]["what"]
    assert found["buckets"]["what"] == "the ttft latency histogram has a bucket at the objective: 2.5 s"
    assert found["capacity-gpu"]["what"].endswith("replica of llm carries is measured once it is under load")
