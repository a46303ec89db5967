"""KEDA's external scaler protocol over real gRPC connections."""

import datetime
import time
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest
from grpc_tools import protoc

import rlscaler_operator
from rlscaler_dev.cluster import pki
from rlscaler_dev.cluster.pki import Pki
from rlscaler_operator.exceptions import OperatorError
from rlscaler_operator.keda import external_scaler_pb2 as pb
from rlscaler_operator.keda import service
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.registry import Registry
from tests.harness import keda

SOURCES = Path(rlscaler_operator.__file__).parent.parent


@pytest.fixture
def registry(policy_body):
    """Policy ns/chat, for which 3 GPU replicas were just decided."""
    one = Registry()
    decided(one.put(policy_body()), 3)
    return one


def decided(policy, replicas):
    policy.decision.desired, policy.decision.read_at = {"gpu": replicas}, time.monotonic()


@pytest.fixture
async def start(registry):
    async with AsyncExitStack() as stack:

        async def run(**options):
            return await service.serve(Settings(external_scaler_port=0, **options), registry, stack)

        yield run


@pytest.fixture
async def client(start):
    async with grpc.aio.insecure_channel(f"127.0.0.1:{await start()}") as channel:
        yield keda.client(channel)


def ref(**metadata):
    return pb.ScaledObjectRef(name="chat", namespace="ns", scalerMetadata={"policy": "chat", "pool": "gpu", **metadata})


def reported(registry, replicas, age_seconds):
    """Another process decided, and this one only sees the status."""
    policy = registry.get(("ns", "chat"))
    policy.decision.read_at = 0.0
    then = datetime.datetime.fromtimestamp(time.time() - age_seconds, datetime.UTC)
    status = {"lastDecision": {"time": then.isoformat()}, "targets": {"gpu": {"desired": replicas}}}
    policy.observed.latest = {**policy.observed.latest, "status": status}


async def replicas(client, **metadata):
    spec = (await client.GetMetricSpec(ref(**metadata))).metricSpecs[0]
    asked = pb.GetMetricsRequest(scaledObjectRef=ref(**metadata), metricName=spec.metricName)
    value = (await client.GetMetrics(asked)).metricValues[0]
    assert value.metricName == spec.metricName
    assert value.metricValue == value.metricValueFloat
    return value.metricValueFloat / spec.targetSizeFloat, value.metricValue / spec.targetSize


async def refused(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details()


async def test_the_hpa_is_told_the_replicas_that_were_decided(client, registry):
    assert await replicas(client) == (3, 3)
    decided(registry.get(("ns", "chat")), 7)
    assert await replicas(client) == (7, 7)
    assert (await client.IsActive(ref())).result


async def test_a_pool_without_replicas_is_inactive(client, registry):
    decided(registry.get(("ns", "chat")), 0)
    assert await replicas(client) == (0, 0)
    assert not (await client.IsActive(ref())).result


async def test_a_process_that_does_not_act_answers_from_the_status(client, registry):
    reported(registry, 5, age_seconds=60)
    assert await replicas(client) == (5, 5)


@pytest.mark.parametrize("age_seconds", [601, 10_000])
async def test_what_is_too_old_is_unknown_and_not_0(client, registry, age_seconds):
    reported(registry, 5, age_seconds)
    code, text = await refused(client.GetMetrics(pb.GetMetricsRequest(scaledObjectRef=ref())))
    assert code == grpc.StatusCode.UNAVAILABLE
    assert "conditions say why" in text


async def test_before_the_first_decision_nothing_is_known(client, registry, policy_body):
    registry.put(policy_body("new"))
    assert (await refused(client.IsActive(ref(policy="new"))))[0] == grpc.StatusCode.UNAVAILABLE


async def test_a_policy_that_is_off_or_invalid_recommends_nothing(client, registry, policy_body):
    off, invalid = policy_body("off"), policy_body("bad")
    off["spec"]["mode"] = "Off"
    invalid["spec"]["targets"]["gpu"]["maxReplicas"] = 0
    for body in (off, invalid):
        decided(registry.put(body), 3)
    code, text = await refused(client.IsActive(ref(policy="off")))
    assert (code, "spec.mode" in text) == (grpc.StatusCode.UNAVAILABLE, True)
    code, text = await refused(client.IsActive(ref(policy="bad")))
    assert (code, "maxReplicas" in text) == (grpc.StatusCode.UNAVAILABLE, True)


@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        ({"policy": ""}, "'policy'"),
        ({"pool": "tpu"}, "'tpu'"),
        ({"pool": "cpu"}, "spec.targets.cpu"),
        ({"policy": "else"}, "ns/else does not exist"),
    ],
)
async def test_a_trigger_that_names_nothing_is_told(client, metadata, named):
    code, text = await refused(client.IsActive(ref(**metadata)))
    assert code == grpc.StatusCode.NOT_FOUND
    assert named in text
    stream = client.StreamIsActive(ref(**metadata))
    assert (await refused(stream.read()))[0] == grpc.StatusCode.NOT_FOUND


async def test_a_policy_of_another_namespace_is_out_of_reach(client):
    other = pb.ScaledObjectRef(name="chat", namespace="other", scalerMetadata={"policy": "chat", "pool": "gpu"})
    assert (await refused(client.IsActive(other)))[0] == grpc.StatusCode.NOT_FOUND


async def test_a_stream_tells_every_change_and_holds_what_is_unknown(client, registry, monkeypatch):
    monkeypatch.setattr(service, "STREAM_SECONDS", 0.01)
    policy = registry.get(("ns", "chat"))
    stream = client.StreamIsActive(ref())
    assert (await stream.read()).result
    policy.decision.read_at = float("-inf")
    decided(policy, 0)
    assert not (await stream.read()).result
    decided(policy, 2)
    assert (await stream.read()).result
    registry.drop(policy.key)
    assert (await refused(stream.read()))[0] == grpc.StatusCode.NOT_FOUND


async def test_a_port_in_use_is_an_error_that_names_the_option(start):
    port = await start()
    async with AsyncExitStack() as stack:
        with pytest.raises(OperatorError, match="--external-scaler-port"):
            await service.serve(Settings(external_scaler_port=port), Registry(), stack)


def certificate(folder: Path, name: str) -> Pki:
    """Put a certificate of localhost into `folder`; returns where it and its authority's are."""
    made = pki.create(folder / name)
    for path, copy in ((made.admin_cert, "tls.crt"), (made.admin_key, "tls.key")):
        (folder / copy).write_bytes(path.read_bytes())
    return made


async def answers(port, **credentials):
    channel = grpc.aio.secure_channel(f"localhost:{port}", grpc.ssl_channel_credentials(**credentials))
    async with channel:
        try:
            return (await keda.client(channel).IsActive(ref(), timeout=5)).result
        except grpc.aio.AioRpcError:
            return False


async def test_tls_with_a_certificate_that_is_rotated(start, tmp_path):
    old = certificate(tmp_path, "old").ca_cert.read_bytes()
    port = await start(external_scaler_tls_dir=tmp_path)
    assert await answers(port, root_certificates=old)
    new = certificate(tmp_path, "new").ca_cert.read_bytes()
    assert await answers(port, root_certificates=new)
    assert not await answers(port, root_certificates=old)
    (tmp_path / "tls.key").unlink()
    assert await answers(port, root_certificates=new)


async def test_with_a_ca_clients_have_to_show_a_certificate(start, tmp_path):
    server, mine = certificate(tmp_path, "server").ca_cert.read_bytes(), pki.create(tmp_path / "client")
    (tmp_path / "ca.crt").write_bytes(mine.ca_cert.read_bytes())
    port = await start(external_scaler_tls_dir=tmp_path)
    shown = {"private_key": mine.admin_key.read_bytes(), "certificate_chain": mine.admin_cert.read_bytes()}
    assert await answers(port, root_certificates=server, **shown)
    assert not await answers(port, root_certificates=server)


async def test_a_folder_without_a_key_is_an_error(start, tmp_path):
    certificate(tmp_path, "server")
    (tmp_path / "tls.key").unlink()
    with pytest.raises(OperatorError, match=r"tls\.key"):
        await start(external_scaler_tls_dir=tmp_path)


def test_the_messages_are_those_of_the_protocol(tmp_path):
    package = "rlscaler_operator/keda"
    outputs = [f"--{kind}={tmp_path}" for kind in ("python_out", "pyi_out")]
    assert protoc.main(["protoc", f"-I{SOURCES}", *outputs, f"{package}/external_scaler.proto"]) == 0
    for file in (tmp_path / package).iterdir():
        assert file.read_text() == (SOURCES / package / file.name).read_text(), f"{file.name}: make generate"
