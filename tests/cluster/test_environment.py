"""The live environment against a real control plane, the emulated service, Prometheus and Locust."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
from stable_baselines3.common.env_checker import check_env

from rlscaler_core.decision.rule import rule_of
from rlscaler_core.models import load_bundled
from rlscaler_dev.cluster import api
from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.demo.testbed import local_testbed
from rlscaler_live.environment import KubernetesEnv, LiveEnvironmentError
from rlscaler_live.environment import episode as episodes
from rlscaler_live.environment.load import LoadProcess
from rlscaler_live.kisim.env import make_kisim
from rlscaler_rl.baselines.hpa import Hpa, HpaSettings
from tests.harness.waiting import stalls, undisturbed, until

NAME = f"pytest-{os.getpid()}-environment"
SHORT = {"episode_duration": 20, "action_interval": 10, "patterns": ["spike"]}
MORE = np.array([4, 4, 1])
"""Two replicas more in both pools."""
WAY_MS = 250.0
"""What a request and its answer need at most between client and service on a busy machine."""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("environment")
    with local_testbed(folder, name=NAME, gpu_cold_start=(1.0, 2.0), cpu_cold_start=(0.2, 0.8)) as made:
        yield made | SHORT


@pytest.fixture
def kube(config: dict[str, Any]) -> Iterator[KubeClient]:
    with KubeClient.from_kubeconfig(Path(config["kubeconfig"])) as client:
        yield client


@pytest.fixture
def make(config: dict[str, Any]) -> Iterator[Any]:
    """Environments with changes of the configuration; all are closed in the end."""
    made: list[KubernetesEnv] = []

    def build(**changes: Any) -> KubernetesEnv:
        options = {name: changes.pop(name) for name in ("contract", "rule") if name in changes}
        made.append(KubernetesEnv(config | changes, **options))
        return made[-1]

    yield build
    for env in made:
        env.close()


def deployment(kube: KubeClient, name: str) -> dict[str, Any]:
    return kube.request("GET", f"/apis/apps/v1/namespaces/workloads/deployments/{name}")


def replicas(kube: KubeClient) -> tuple[int, int]:
    return tuple(deployment(kube, f"chat-{pool}")["spec"]["replicas"] for pool in ("gpu", "cpu"))


def weights(kube: KubeClient) -> list[int]:
    path = "/apis/gateway.networking.k8s.io/v1/namespaces/workloads/httproutes/chat"
    return [ref["weight"] for ref in kube.request("GET", path)["spec"]["rules"][0]["backendRefs"]]


@pytest.mark.long
def test_stable_baselines_accepts_it(make):
    check_env(make(episode_duration=100))


@pytest.fixture
def kisim(config: dict[str, Any]) -> Iterator[Any]:
    env = make_kisim(cluster=config | {"episode_duration": 60})
    yield env
    env.close()


def test_the_environment_of_kisim_changes_the_present_replicas_and_no_guard_does(kisim, kube):
    observation, begun = kisim.reset(options={"pattern": "ramp", "seed": 1})
    assert begun["replicas"] == (3, 3) == replicas(kube)
    assert kisim.observation_space.contains(observation)
    _, reward, _, truncated, info = kisim.step(np.array([0, 4, 1]))
    assert not truncated
    assert info["replicas"] == (1, 5) == replicas(kube)
    # A reactive floor would add replicas to a pool of one under this load, and a ceiling take idle ones.
    _, _, _, _, info = kisim.step(np.array([2, 2, 1]))
    assert info["replicas"] == (1, 5) == replicas(kube)
    assert np.isfinite(reward)
    assert kisim.intervals[-1].throughput > 0
    assert kisim.intervals[-1].p95_ms > 0


@pytest.mark.long
def test_stable_baselines_accepts_that_of_kisim(kisim):
    check_env(kisim)


@pytest.fixture
def each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the episodes' load write a row for every request."""
    command = LoadProcess._command
    monkeypatch.setattr(LoadProcess, "_command", lambda *given: [*command(*given), "--requests"])


def missed(folder: Path, limit_ms: float) -> float:
    """Percent of an episode's requests that its client got no answer to within `limit_ms` of their scheduled times."""
    sent = json.loads((folder / "load.json").read_text())["requests"]
    with (folder / "requests.csv").open() as file:
        rows = list(csv.DictReader(file))
    in_time = sum(row["outcome"] == "ok" and float(row["latency_ms"]) <= limit_ms for row in rows)
    return 100 * (1 - in_time / sent)


def test_an_episode_scales_measures_and_puts_everything_back(make, kube, each_request):
    before = replicas(kube), weights(kube)
    env = make()
    until(lambda: not env.reset(seed=1)[1]["unknown"], 90)  # a service that has just come has no rates yet

    def play() -> tuple[dict[str, Any], dict[str, Any]]:
        observation, begun = env.reset(seed=1)
        assert observation.shape == (40,)
        assert begun["unknown"] == []
        assert begun["spec_replicas"] == begun["ready_replicas"] == [1, 1]
        _, first, _, truncated, info = env.step(MORE)
        assert not truncated
        assert replicas(kube) == (3, 3)
        assert sum(weights(kube)) == 1000
        _, second, _, truncated, info = env.step(MORE)
        assert truncated
        assert first < 0 > second
        return begun, info

    # A pause of the machine is lateness for the client, who counts from the schedule, and none for the service.
    begun, info = undisturbed(play)

    folder = Path(begun["folder"])
    client = json.loads((folder / "load.json").read_text())
    assert info["requests"] == pytest.approx(client["requests"], rel=0.02)
    # A request reaches the service after its scheduled time, the later the busier the machine is, so the service may
    # count as in time what the client counts as late by no more than that.
    slo_ms, way_ms = client["slo_ms"], WAY_MS + client["dispatch_lag_p99_ms"]
    assert missed(folder, slo_ms + way_ms) - 1 <= info["late_percent"] <= missed(folder, slo_ms) + 1
    held = info["requests"] - info["in_time"] - info["late"] - info["dropped"] - info["queued"]
    assert held == pytest.approx(0, abs=1e-6)
    assert 50 < info["gpu_replica_seconds"] < 130
    assert 50 < info["cpu_replica_seconds"] < 130
    assert info["scale_ups"] >= 4  # the reactive floor may add its own

    env.close()
    assert (replicas(kube), weights(kube)) == before
    lease = kube.request("GET", "/apis/coordination.k8s.io/v1/namespaces/workloads/leases/rlscaler-environment-chat")
    assert not lease["spec"]["holderIdentity"]


@pytest.mark.parametrize("name", ["rule", "hpa"])
def test_other_controllers_play_an_episode(make, name):
    controller = load_bundled("rule") if name == "rule" else Hpa(HpaSettings(target=0.05))
    manifest = load_bundled("rule").manifest
    env = make(contract=manifest.contract, rule=rule_of(manifest), episode_duration=30)
    env.reset(options={"pattern": "spike", "seed": 2})
    rng, truncated, info = np.random.default_rng(0), False, {}
    with stalls() as lost:
        while not truncated:
            _, _, _, truncated, info = env.hand_over(controller, rng)
    assert info["scale_ups"] > 0
    assert info["requests"] > 500
    seconds = np.array([tick["second"] for tick in env.timeline])
    if lost.seconds <= 1.0:
        assert seconds == pytest.approx(np.arange(0, 31, 5), abs=4)
    assert len(seconds) >= 5  # a tick that comes too late for its time is left out
    assert (seconds > 5 * np.arange(len(seconds)) - 0.1).all()
    assert np.median(np.diff(seconds)) == pytest.approx(5, abs=0.5)


def has_series(config: dict[str, Any]) -> bool:
    query = {"query": "inference_requests_received_total"}
    answer = requests.get(f"{config['prometheus_url']}/api/v1/query", params=query, timeout=30).json()
    return bool(answer["data"]["result"])


def test_unknown_stays_unknown_and_an_episode_without_meters_ends_with_the_reason(make, config, monkeypatch):
    env = make(episode_duration=300)
    env.reset(seed=1)
    monkeypatch.setattr(episodes, "UNREACHABLE_SECONDS", 1.0)
    target = api.status(NAME).prometheus_targets_dir / "rlscaler-demo-service.json"
    content = target.read_text()
    target.unlink()

    def arrival_rate_after_a_step() -> float:
        with pytest.raises(LiveEnvironmentError, match="no series inference_requests_received_total"):
            env.step(MORE)
        return env.timeline[-1]["arrival_rate"]

    try:
        until(lambda: not has_series(config), 60)
        # Intervals that passed while the series went are made up for without sensing.
        until(lambda: np.isnan(arrival_rate_after_a_step()), 120)
    finally:
        target.write_text(content)
    until(lambda: has_series(config), 60)


def test_nobody_scales_a_service_together_with_an_environment(make, kube):
    path = "/apis/autoscaling/v2/namespaces/workloads/horizontalpodautoscalers"
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat-cpu"}
    kube.request("POST", path, {"metadata": {"name": "other"}, "spec": {"scaleTargetRef": target, "maxReplicas": 3}})
    try:
        with pytest.raises(LiveEnvironmentError, match="HPA other scales Deployment chat-cpu"):
            make().reset()
    finally:
        kube.request("DELETE", f"{path}/other")
    env = make()
    env.reset()
    with pytest.raises(LiveEnvironmentError, match="another environment scales this service"):
        make().reset()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"prometheus_url": "http://127.0.0.1:9"}, "environment.prometheus_url: http://127.0.0.1:9: Prometheus cannot"),
        ({"http_route": "other"}, "environment.http_route: there is no other in namespace workloads"),
        ({"service": "other"}, "no series inference_requests_received_total"),
        ({"service_url": "http://127.0.0.1:9"}, "environment.service_url: the load did not start"),
        ({"kubeconfig": "/nowhere"}, "cannot find a cluster in /nowhere"),
    ],
)
def test_what_cannot_be_used_is_named(make, changes, said):
    with pytest.raises(LiveEnvironmentError) as caught:
        make(**changes).reset()
    assert said in caught.value.message


def test_an_api_server_that_does_not_answer_is_named(make, config, tmp_path):
    content = Path(config["kubeconfig"]).read_text()
    server = api.status(NAME).server
    broken = tmp_path / "kubeconfig"
    broken.write_text(content.replace(server, "https://127.0.0.1:9"))
    with pytest.raises(LiveEnvironmentError, match="the cluster cannot be used"):
        make(kubeconfig=str(broken)).reset()
