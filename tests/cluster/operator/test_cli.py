"""What people type: `rlscaler status`, `explain`, `pause`, `resume`, `promote`, and the columns of `kubectl get`."""

import json
import os
import subprocess
import sys

import pytest
import requests
import yaml
from click.testing import CliRunner

from rlscaler_dev.cluster import stamps
from rlscaler_dev.cluster.versions import TOOLS
from rlscaler_live.cli import main
from tests.harness import setup


@pytest.fixture(scope="module")
def kubeconfig(cluster, world, tmp_path_factory):
    """With the module's namespace as that of the context, as people have it."""
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["contexts"][0]["context"]["namespace"] = world.namespace
    path = tmp_path_factory.mktemp("kubeconfig") / "config"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture(scope="module")
def rlscaler(kubeconfig):
    def run(*words, code=0):
        done = CliRunner(env={"COLUMNS": "200", "KUBECONFIG": str(kubeconfig)}).invoke(
            main, [*words, "--kubeconfig", str(kubeconfig)]
        )
        assert done.exit_code == code, done.output
        return done.stdout if "json" in words else done.output

    return run


@pytest.fixture(scope="module")
def policy(start, world, wait):
    """In Shadow, decided for at least once."""
    world.service("chat", rate=60)
    world.deployments("chat")
    world.policy("chat", mode="Shadow")
    start()
    wait(lambda: world.get("rlscalingpolicies", "chat").get("status", {}).get("observation"), 60)
    wait(lambda: world.condition("chat", "Ready")[0] == "True")
    return "chat"


def test_a_table_of_policies_and_what_is_wrong_with_which(rlscaler, world, policy):
    world.policy("lost")
    said = rlscaler("status")
    assert said.splitlines()[0].split() == [
        *("POLICY", "MODE", "STATE", "GPU", "CPU", "PLACEMENT", "LATENCY", "COST/H", "READY", "AGE")
    ]
    row = next(line.split() for line in said.splitlines() if line.startswith("chat"))
    assert row[1:3] == ["Shadow", "ModeShadow"]
    assert "/1000" in said
    assert world.namespace in rlscaler("status", "-A")
    assert {item["metadata"]["name"] for item in json.loads(rlscaler("status", "-o", "json"))["items"]} >= {"chat"}


def test_one_policy_in_detail_and_its_newest_decision(rlscaler, policy):
    said = rlscaler("status", policy)
    assert "chat-gpu: " in said
    assert "ModeShadow" in said
    said = rlscaler("explain", policy)
    assert "asked for" in said
    assert "p95Latency" in said
    assert json.loads(rlscaler("explain", policy, "-o", "json"))["lastDecision"]["id"]


def test_what_is_not_there_is_said_with_what_is(rlscaler, policy, world):
    said = rlscaler("status", "caht", code=1)
    assert f"{world.namespace}/caht does not exist (there are: chat" in said
    assert rlscaler("status", "-n", "empty") == (
        "no RLScalingPolicy is here: another namespace is named with -n, all of them with -A\n"
    )


def test_promoted_it_acts_paused_it_stops_resumed_it_acts_again(rlscaler, policy, world, wait):
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat-gpu"}
    body = {"metadata": {"name": "theirs"}, "spec": {"scaleTargetRef": target, "maxReplicas": 3}}
    world.kube.request("POST", world.path("horizontalpodautoscalers"), body)
    wait(lambda: world.condition("chat", "Conflicted") == ("False", "NotActing"))
    assert "HPA theirs scales Deployment chat-gpu" in rlscaler("promote", policy, code=1)
    world.delete("horizontalpodautoscalers", "theirs")
    wait(lambda: world.condition("chat", "Conflicted") == ("False", "NoConflict"), 90)
    assert "is in mode Auto: replicas and traffic follow" in rlscaler("promote", policy)
    assert "is in mode Auto already" in rlscaler("promote", policy)
    assert json.loads(rlscaler("promote", policy, "-o", "json"))["spec"]["mode"] == "Auto"
    wait(lambda: world.condition("chat", "Active") == ("True", "Acting"), 60)

    assert "is held at gpu 3" in rlscaler("pause", policy, "--gpu", "3")
    wait(lambda: world.condition("chat", "Paused")[0] == "True")
    wait(lambda: world.replicas("chat")[0] == 3, 60)
    assert "keeps its replicas" in rlscaler("pause", policy)
    annotations = world.get("rlscalingpolicies", "chat")["metadata"]["annotations"]
    assert annotations["rlscaler.io/paused"] == "true"
    assert "rlscaler.io/paused-replicas-gpu" not in annotations, "one pause replaces another"
    assert "scales again (rlscaler.io/paused removed)" in rlscaler("resume", policy)
    assert "is not paused" in rlscaler("resume", policy)
    wait(lambda: world.condition("chat", "Paused")[0] == "False")
    assert "is not scaled down" in rlscaler("pause", policy, "--scale-down")
    held = json.loads(rlscaler("pause", policy, "-o", "json"))["metadata"]["annotations"]
    assert held["rlscaler.io/paused"] == "true"
    freed = json.loads(rlscaler("resume", policy, "-o", "json"))["metadata"].get("annotations") or {}
    assert "rlscaler.io/paused" not in freed


def test_a_pool_that_is_not_there_cannot_be_held(rlscaler, world):
    world.policy("half", targets={"cpu": {"deployment": "chat-cpu", "maxReplicas": 3}}, mode="Off")
    assert "half has no spec.targets.gpu" in rlscaler("pause", "half", "--gpu", "1", code=1)
    assert "exclude each other" in rlscaler("pause", "half", "--cpu", "1", "--scale-down", code=2)


def test_the_columns_of_kubectl_get(cluster, kube, world, policy, wait):
    token = setup.token(kube)
    headers = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io", "Authorization": f"Bearer {token}"}
    ca = str(cluster.state_dir / "pki" / "ca.crt")

    def row():
        path = cluster.server + world.path("rlscalingpolicies")
        table = requests.get(path, headers=headers, verify=ca, timeout=30).json()
        names = [column["name"] for column in table["columnDefinitions"]]
        shown = [column["name"] for column in table["columnDefinitions"] if not column["priority"]]
        assert shown == ["Name", "Mode", "State", "GPU", "CPU", "Placement", "P95", "Cost/h", "Ready", "Age"]
        cells = next(row["cells"] for row in table["rows"] if row["cells"][0] == "chat")
        return dict(zip(names, cells, strict=True))

    wait(lambda: row()["State"] == world.condition("chat", "Active")[1])
    wait(lambda: row()["Ready"] == "True")
    assert row()["Model"] == "rule"
    assert row()["Reason"] == "Ready"


def test_names_are_completed_from_the_cluster(kubeconfig, policy):
    program = "from rlscaler_live.cli import main; main(prog_name='rlscaler')"
    words = {"COMP_WORDS": "rlscaler pause ch", "COMP_CWORD": "2", "_RLSCALER_COMPLETE": "bash_complete"}
    environment = os.environ | words | {"KUBECONFIG": str(kubeconfig)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["plain,chat"]


@pytest.mark.skipif(not stamps.valid(TOOLS["kubectl"]), reason="kubectl is not built: `rlscaler cluster build kubectl`")
def test_kubectl_finds_the_plugin(kubeconfig, policy, world):
    kubectl = stamps.binary(TOOLS["kubectl"])
    scripts = os.path.dirname(sys.executable)
    environment = os.environ | {"KUBECONFIG": str(kubeconfig), "PATH": f"{scripts}:{os.environ['PATH']}"}

    def run(*words):
        done = subprocess.run([kubectl, *words], env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "kubectl-rlscale" in run("plugin", "list")
    assert policy in run("rlscale", "status")
    assert run("__complete", "rlscale", "status", "ch").splitlines() == ["chat", ":4"]
    assert "STATE" in run("get", "rlsp")
