"""The cluster under the operator: nodes, GPUs, pods, targets, edits at the wrong moment, model files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.exceptions import ApiError
from tests.chaos.conftest import Line
from tests.chaos.trial import BUSY, CALM, Trial
from tests.harness.load import RPS
from tests.harness.models import write_model
from tests.harness.operators import Operator
from tests.harness.proxy import Proxy
from tests.harness.replicas import described
from tests.harness.waiting import looks, stays, until

NEVER = {"rlscaler.io/cold-start-min": "3600s", "rlscaler.io/cold-start-max": "3601s"}
GPUS = 16
"""Of the two GPU nodes together."""

pytestmark = pytest.mark.chaos


@pytest.fixture(scope="module")
def prometheus(proxy, cluster) -> Proxy:
    return proxy(cluster.prometheus_url)


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_model(folder)
    return folder


@pytest.fixture(scope="module")
def operator(start, prometheus, models) -> Operator:
    return start("--allow-prometheus-url", prometheus.url, "--model-dir", str(models))


@pytest.fixture(autouse=True)
def alive(operator: Operator) -> Iterator[None]:
    yield
    assert operator.process.poll() is None, operator.log.read_text()[-3000:]


def targets(service: str, gpu: int = 10, cpu: int = 10, **extra: int) -> dict:
    return {
        pool: {
            "deployment": f"{service}-{pool}",
            "maxReplicas": most,
            "requestsPerSecond": RPS[pool],
            "coldStartSeconds": {"gpu": 45, "cpu": 8}[pool],
            **extra,
        }
        for pool, most in (("gpu", gpu), ("cpu", cpu))
    }


def ready(world, name: str) -> int:
    return int(world.get("deployments", name)["status"].get("readyReplicas", 0))


def delete_pods(world, name: str) -> None:
    query = f"labelSelector=app%3D{name}&gracePeriodSeconds=0"
    world.kube.request("DELETE", f"/api/v1/namespaces/{world.namespace}/pods?{query}")


def crash(world, name: str) -> None:
    """Say of all pods that are not ready what the kubelet says of a container that ends at once, time after time."""
    pods = f"/api/v1/namespaces/{world.namespace}/pods"
    waiting = {"name": "app", "image": "app", "imageID": "", "ready": False, "restartCount": 7}
    status = {"containerStatuses": [waiting | {"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}
    for pod in world.kube.get(f"{pods}?labelSelector=app%3D{name}")["items"]:
        conditions = {c["type"]: c["status"] for c in pod["status"].get("conditions", ())}
        if conditions.get("Ready") != "True":
            path = f"{pods}/{pod['metadata']['name']}/status"
            try:
                world.kube.merge(path, {"status": status})
            except ApiError as error:
                if error.status != 404:  # the rollout has deleted it since it was listed
                    raise


def test_nodes_go_away(operator, world, replicas, kube: KubeClient, line: Line):
    """All GPU nodes are cordoned and their pods lost: the CPU pool takes the load, the GPU pool keeps its replicas."""
    line.fault = "cluster: GPU nodes gone, back later"
    load = world.service("nodes", rate=CALM)
    world.deployments("nodes", gpu=3, cpu=4)
    world.policy("nodes", senseSeconds=2, targets=targets("nodes", cpu=30))
    trial = Trial.settled(world, replicas, load, line)
    names = [f"/api/v1/nodes/gpu-{number}" for number in (1, 2)]
    try:
        for node in names:
            kube.merge(node, {"spec": {"unschedulable": True}})
        delete_pods(world, "nodes-gpu")
        until(lambda: ready(world, "nodes-gpu") == 0)
        until(lambda: replicas.now("nodes")[1] * RPS["cpu"] >= CALM, 60)
    finally:
        for node in names:
            kube.merge(node, {"spec": {"unschedulable": None}})
    until(lambda: ready(world, "nodes-gpu") >= 1, 60)
    trial.check(trial.followed(BUSY), allowed=CALM)


def test_gpus_are_exhausted(operator, world, replicas, kube: KubeClient, line: Line):
    """Somebody else's pods take the GPUs: what the GPU pool cannot get the CPU pool serves."""
    line.fault = "cluster: GPUs exhausted"
    world.deployment("squatter", "gpu", replicas=GPUS - 4, gpus=1)
    until(lambda: ready(world, "squatter") == GPUS - 4, 60)
    load = world.service("scarce", rate=CALM)
    world.deployment("scarce-gpu", "gpu", 3, gpus=1)
    world.deployment("scarce-cpu", "cpu", 4)
    guards = {"pendingSeconds": 5}
    world.policy("scarce", senseSeconds=2, targets=targets("scarce", gpu=16, cpu=40), guards=guards)
    trial = Trial.settled(world, replicas, load, line)
    load.rate = BUSY

    def served() -> bool:
        return ready(world, "scarce-gpu") * RPS["gpu"] + ready(world, "scarce-cpu") * RPS["cpu"] >= BUSY

    recovered = next((elapsed for elapsed in looks(90) if served()), None)
    world.delete("deployments", "squatter")
    trial.check(recovered)
    assert recovered is not None, "the CPU pool did not take the load"


def test_pods_crash_loop(operator, world, replicas, line: Line):
    """A release whose pods crash: the old ones carry on, the other pool grows, and no replica is taken away for it."""
    line.fault = "cluster: new pods crash-loop"
    load = world.service("loop", rate=CALM)
    world.deployments("loop", gpu=3, cpu=4)
    world.policy("loop", senseSeconds=2, targets=targets("loop", gpu=20, cpu=40))
    trial = Trial.settled(world, replicas, load, line)
    until(lambda: ready(world, "loop-cpu") >= 4)
    body = {"spec": {"template": {"metadata": {"annotations": NEVER}}}}
    world.patch("deployments", "loop-gpu", body)
    load.rate = BUSY
    recovered = trial.followed(BUSY)
    for _ in looks(15):
        crash(world, "loop-gpu")
    cured = {"spec": {"template": {"metadata": {"annotations": dict.fromkeys(NEVER)}}}}
    world.patch("deployments", "loop-gpu", cured)
    until(lambda: ready(world, "loop-gpu") >= 1, 60)
    trial.check(recovered)


def test_target_is_deleted_and_made_again(operator, world, replicas, line: Line):
    """It comes back with the one replica of its manifest: the other pool stays, and it is scaled up again."""
    line.fault = "cluster: a target deleted and made again"
    load = world.service("again", rate=CALM)
    world.deployments("again", gpu=3, cpu=4)
    world.policy("again", senseSeconds=2)
    trial = Trial.settled(world, replicas, load, line)
    cpu = trial.before[1]
    world.delete("deployments", "again-gpu")
    until(lambda: world.condition("again", "Ready") == ("False", "DeploymentMissing"))
    until(lambda: _gone(world, "again-gpu"))
    world.deployment("again-gpu", "gpu", 1)
    until(lambda: replicas.lowest("again", trial.begun)[0] == 1)
    recovered = trial.followed(CALM)
    until(lambda: world.condition("again", "Ready")[0] == "True")
    lowest = replicas.lowest("again", trial.begun)
    line.recovered_seconds, line.lowest, line.allowed = recovered, described(lowest), described((1, cpu))
    assert lowest[1] >= cpu
    assert world.condition("again", "Conflicted")[0] == "False"


def _gone(world, name: str) -> bool:
    try:
        world.get("deployments", name)
    except ApiError as error:
        return error.status == 404
    return False


def test_limits_are_edited_in_the_middle_of_a_tick(operator, world, replicas, prometheus: Proxy, line: Line):
    """The decision was made under the old limits: it is not written; the next one is made under the new ones."""
    line.fault = "cluster: maxReplicas lowered in the middle of a tick"
    load = world.service("edit", rate=CALM)
    world.deployments("edit", gpu=3, cpu=4)
    metrics = {"prometheus": {"url": prometheus.url}}
    world.policy("edit", senseSeconds=2, metrics=metrics)
    trial = Trial.settled(world, replicas, load, line)
    with prometheus.hold(lambda _: True, after=True) as hold:
        load.rate = 10 * BUSY
        assert hold.reached.wait(30)
        edited = {pool: {"maxReplicas": most} for pool, most in (("gpu", 4), ("cpu", 6))}
        world.patch("rlscalingpolicies", "edit", {"spec": {"targets": edited}})
        generation = world.get("rlscalingpolicies", "edit")["metadata"]["generation"]
        stays(lambda: replicas.now("edit"), trial.before, 1)
    recovered = next(elapsed for elapsed in looks(60, 0.1) if replicas.now("edit") == (4, 6))
    seen = replicas.of("edit", trial.begun)
    assert all(gpu <= max(4, trial.before[0]) and cpu <= max(6, trial.before[1]) for gpu, cpu in seen), seen
    trial.check(recovered)
    until(lambda: world.get("rlscalingpolicies", "edit")["status"]["observedGeneration"] == generation)


def test_model_file_is_replaced_by_garbage(operator, world, replicas, models: Path, line: Line):
    """In the middle of being written: the model that was loaded before goes on, and a good one is taken at once."""
    line.fault = "cluster: model file replaced by garbage"
    load = world.service("brain", rate=CALM)
    world.deployments("brain", gpu=3, cpu=4)
    world.policy("brain", senseSeconds=2, policy={"bundled": "ppo"})
    trial = Trial.settled(world, replicas, load, line)
    good = (models / "ppo.onnx").read_bytes()
    (models / "ppo.onnx").write_bytes(good[: len(good) // 2])
    until(lambda: "ModelInvalid" in world.events("brain"))
    assert world.condition("brain", "Ready")[0] == "True"
    (models / "ppo.onnx").write_bytes(b"\0" * 1000)
    recovered = trial.followed(BUSY)
    assert operator.decisions("brain")[-1]["actor"]["name"] == "still"
    (models / "ppo.onnx").write_bytes(good)
    trial.check(recovered)
