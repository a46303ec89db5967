"""KEDA's protocol, answered by operators on the real control plane; their decisions are taken again at the end."""

import subprocess
import sys

import grpc
import pytest

from rlscaler_operator.keda import external_scaler_pb2 as pb
from tests.harness import keda
from tests.harness.load import RPS


@pytest.fixture
def scaler(free_port):
    """A port for an operator, and a client of it."""
    with grpc.insecure_channel(f"127.0.0.1:{free_port}") as channel:
        yield free_port, keda.client(channel)


def recommended(client, world, pool, name="chat"):
    """Replicas, or None while the operator does not answer or does not know."""
    ref = pb.ScaledObjectRef(name="any", namespace=world.namespace, scalerMetadata={"policy": name, "pool": pool})
    try:
        return client.GetMetrics(pb.GetMetricsRequest(scaledObjectRef=ref), timeout=5).metricValues[0].metricValue
    except grpc.RpcError:
        return None


def carried(client, world):
    """Requests/s that the recommended replicas answer."""
    return sum((recommended(client, world, pool) or 0) * rps for pool, rps in RPS.items())


def test_keda_is_told_what_a_policy_in_shadow_would_do(start, world, wait, scaler):
    port, client = scaler
    load = world.service("chat", rate=5)
    world.deployments("chat", gpu=1, cpu=1)
    world.policy("chat", mode="Shadow")
    acting = start("--external-scaler-port", str(port))
    assert wait(lambda: recommended(client, world, "gpu") == 1)
    load.rate = 90
    wait(lambda: carried(client, world) >= 90)
    assert world.replicas("chat") == (1, 1)

    standby = start("--external-scaler-port", "0")
    wait(lambda: "external scaler for KEDA on" in standby.log.read_text())
    other = int(standby.log.read_text().split("external scaler for KEDA on 127.0.0.1:")[1].split()[0])
    with grpc.insecure_channel(f"127.0.0.1:{other}") as channel:
        second = keda.client(channel)
        assert wait(lambda: recommended(second, world, "cpu") == recommended(client, world, "cpu"))
    assert not standby.decisions("chat")

    acting.stop()
    replay = [sys.executable, "-m", "rlscaler_live.cli", "replay", str(acting.audit)]
    done = subprocess.run(replay, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "same" in done.stdout
