"""What goes wrong: each cause has a condition and an Event, nothing is scaled down, and it heals without a restart."""

import shutil
import socket
import threading
from contextlib import suppress

import pytest

from rlscaler_dev.exceptions import ApiError
from tests.harness.models import write_model


class Forwarder:
    """A TCP port that is refused until `open` forwards it."""

    def __init__(self, port, target):
        self.port, self._target, self._listener = port, target, None

    def open(self):
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self):
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    @staticmethod
    def _pump(source, sink):
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    write_model(folder)
    shutil.copy(folder / "ppo.onnx", folder / "good")
    (folder / "ppo.onnx").write_bytes(b"not a model")
    return folder


@pytest.fixture(scope="module")
def port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def operator(start, models, port):
    return start("--model-dir", str(models), "--allow-prometheus-url", f"http://127.0.0.1:{port}")


def test_signals_that_go_bad_hold_the_replicas(operator, world, wait, stays):
    faults = {"absent": "SeriesAbsent", "nan": "NotANumber", "stale": "SampleStale", "half": "SeriesAbsent"}
    loads = {fault: world.service(fault, rate=60, dated=fault == "stale") for fault in faults}
    for fault in faults:
        world.deployments(fault, gpu=3, cpu=5)
        world.policy(fault, metrics={"maxAgeSeconds": 5})
    for fault in faults:
        wait(lambda fault=fault: world.condition(fault, "Ready")[0] == "True")
    for fault, load in loads.items():
        load.fault, load.rate = fault, 1
    for fault, reason in faults.items():
        wait(lambda fault=fault, reason=reason: world.condition(fault, "Ready") == ("False", reason))
        assert reason in world.events(fault)
    before = {fault: world.replicas(fault) for fault in faults}
    assert all(sum(replicas) >= 8 for replicas in before.values())
    stays(lambda: {fault: world.replicas(fault) for fault in faults}, before, 12)
    for fault in faults:
        record = operator.decisions(fault)[-1]
        assert "arrival_rate" in record["unknown_required"]
        assert {"HeldUnknown", "Fallback"} & set(record["flags"])
    for load in loads.values():
        load.fault = ""
    for fault in faults:
        wait(lambda fault=fault: world.condition(fault, "Ready")[0] == "True")
        wait(lambda fault=fault: sum(world.replicas(fault)) < sum(before[fault]))


def test_an_unreachable_prometheus_is_said_and_its_return_noticed(operator, world, cluster, wait, port):
    world.service("cut", rate=60)
    world.service("open", rate=5)
    for name in ("cut", "open"):
        world.deployments(name, gpu=2, cpu=2)
    world.policy("cut", metrics={"prometheus": {"url": f"http://127.0.0.1:{port}"}})
    world.policy("open", metrics={"prometheus": {"url": "http://127.0.0.1:9"}})
    wait(lambda: world.condition("cut", "Ready") == ("False", "PrometheusUnreachable"))
    wait(lambda: world.condition("open", "Ready") == ("False", "PrometheusNotAllowed"))
    assert "PrometheusUnreachable" in world.events("cut")
    assert world.replicas("cut") == (2, 2)
    host, target = cluster.prometheus_url.removeprefix("http://").split(":")
    forwarder = Forwarder(port, (host, int(target)))
    forwarder.open()
    wait(lambda: world.condition("cut", "Ready")[0] == "True")
    wait(lambda: world.replicas("cut") != (2, 2))
    forwarder.close()


def test_a_missing_deployment_is_said_and_its_creation_noticed(operator, world, wait):
    world.service("gone", rate=80)
    world.deployment("gone-gpu", "gpu")
    world.policy("gone")
    wait(lambda: world.condition("gone", "Ready") == ("False", "DeploymentMissing"))
    assert "DeploymentMissing" in world.events("gone")
    world.deployment("gone-cpu", "cpu")
    wait(lambda: world.condition("gone", "Ready")[0] == "True")
    wait(lambda: sum(world.replicas("gone")) > 2)


def test_a_bad_model_is_said_and_a_good_one_taken_without_a_restart(operator, world, models, wait):
    world.service("brain", rate=5)
    world.deployments("brain")
    world.policy("brain", policy={"bundled": "ppo"}, fallback={"failureThreshold": 1})
    wait(lambda: world.condition("brain", "Ready") == ("False", "ModelInvalid"))
    wait(lambda: world.condition("brain", "Fallback") == ("True", "ModelInvalid"))
    assert {"ModelInvalid"} <= world.events("brain")
    (models / "ppo.onnx").write_bytes((models / "good").read_bytes())
    wait(lambda: world.condition("brain", "Ready")[0] == "True")
    wait(lambda: world.condition("brain", "Fallback")[0] == "False")
    asked = operator.decisions("brain")[-1]
    assert asked["action"] == [0, 0, 1]
    assert asked["actor"]["name"] == "still"
    (models / "ppo.json").write_text((models / "ppo.json").read_text().replace("observation/v4", "observation/v9"))
    wait(lambda: "ModelContractMismatch" in world.events("brain"))
    assert world.condition("brain", "Ready")[0] == "True"


def test_unknown_capacity_is_a_condition_and_nothing_is_scaled_down(operator, world, wait, stays):
    world.service("new", rate=3)
    world.deployments("new", gpu=2, cpu=2)
    targets = {pool: {"deployment": f"new-{pool}", "maxReplicas": 10} for pool in ("gpu", "cpu")}
    world.policy("new", targets=targets, slo={"latencyMilliseconds": 1000, "objective": 95})
    wait(lambda: world.condition("new", "CapacityUnknown") == ("True", "NotMeasured"))
    wait(lambda: world.condition("new", "Ready")[0] == "True")
    stays(lambda: world.replicas("new"), (2, 2), 11)


def test_a_wrong_spec_is_refused_with_the_name_of_the_field(world):
    with pytest.raises(ApiError, match="intervalSeconds"):
        world.policy("wrong", intervalSeconds=5)
