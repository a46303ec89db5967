"""What the probes answer, over real HTTP."""

import contextlib
import socket
from types import SimpleNamespace

import aiohttp
import pytest
from kubernetes.aio.client import Configuration

from rlscaler_core.api import parse
from rlscaler_operator.cluster.kube import Kube
from rlscaler_operator.exceptions import OperatorError
from rlscaler_operator.loop.actors import Actors
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.run.context import Context
from rlscaler_operator.run.health import STUCK_SECONDS, Health, serve
from rlscaler_operator.settings import Settings
from tests.unit.api.conftest import shortest

STREAM = {
    "targets": {"gpu": {"deployment": "billing", "maxReplicas": 4}},
    "signal": {"kafka": {"bootstrapServers": ["kafka:9092"], "topics": ["orders"], "group": "billing"}},
}


@pytest.fixture
def port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def answers(health, port, *paths):
    async with contextlib.AsyncExitStack() as stack:
        await serve(Settings(metrics_port=port), Metrics(), health, stack)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        found = {}
        for path in paths:
            async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                found[path] = answer.status, await answer.text()
        return found


async def test_one_port_serves_metrics_and_probes(port):
    found = await answers(Health({"watches": lambda: ""}), port, "/metrics", "/healthz", "/readyz")
    assert found["/healthz"] == found["/readyz"] == (200, "ok\n")
    assert "rlscaler_leader" in found["/metrics"][1]


async def test_some_series_may_be_asked_for_alone(port):
    path = "/metrics?name[]=rlscaler_leader&name[]=rlscaler_status_writes_total"
    text = (await answers(Health({}), port, path))[path][1]
    named = {line.partition("{")[0].split()[0] for line in text.splitlines() if not line.startswith("#")}
    assert named == {"rlscaler_leader", "rlscaler_status_writes_total"}


async def test_every_part_that_is_not_ready_is_named(port):
    health = Health({"watches": lambda: "being read", "policy": lambda: "no such file", "other": lambda: ""})
    found = await answers(health, port, "/readyz", "/healthz")
    assert found["/readyz"] == (503, "watches: being read; policy: no such file\n")
    assert found["/healthz"][0] == 200, "a process that is not ready need not be started again"


async def test_a_port_that_is_taken_is_said(port):
    with socket.create_server(("127.0.0.1", port)), pytest.raises(OperatorError, match="choose another port"):
        await answers(Health({}), port)


def test_a_loop_that_stands_still_is_not_alive_and_one_that_has_not_begun_is():
    now = [0.0]
    health = Health({}, clock=lambda: now[0])
    now[0] = 10 * STUCK_SECONDS
    assert health.not_alive() == ""
    health.turn()
    now[0] += STUCK_SECONDS
    assert health.not_alive() == ""
    now[0] += 1
    assert "has not turned for 31 s" in health.not_alive()
    health.turn()
    assert health.not_alive() == ""


def test_the_bundled_policy_is_loaded_or_says_why_not(tmp_path):
    assert Actors(Settings(), None).bundled_trouble() == ""
    (tmp_path / "ppo.json").write_text("garbage")
    (tmp_path / "ppo.onnx").write_bytes(b"garbage")
    assert "ppo.json" in Actors(Settings(model_dir=tmp_path), None).bundled_trouble()


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "ppo"),
        ({"policy": {"bundled": "rule"}}, "rule"),
        (STREAM, "rule"),
        (STREAM | {"policy": {"bundled": "streams"}}, "streams"),
    ],
)
def test_a_policy_is_decided_by_the_network_for_services_or_by_the_actor_that_it_names(fields, name):
    body = shortest()
    body["spec"] |= fields
    policy = SimpleNamespace(key=("ns", "chat"), spec=parse(body).spec, decision=SimpleNamespace(actor=None))
    actor, error = Actors(Settings(), None).get(policy)
    assert error is None
    assert actor.manifest.name == name


async def test_a_process_is_ready_once_everything_was_read_and_the_watches_have_begun():
    kube = Kube(Configuration(host="http://127.0.0.1:1"))
    context = Context(Settings(), kube)
    assert "read for the first time" in context.health.not_ready()
    context.synced = True
    assert "no watch has begun" in context.health.not_ready()
    context.apis.insights.ready_resources.set()
    assert context.health.not_ready() == ""
    context.failure = ValueError("broken")
    assert "broken" in context.health.not_ready()
    await kube.close()
