"""Measuring round trips over real sockets, writing them to the node, and not believing what is too old."""

from __future__ import annotations

import asyncio
import math
import socket
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import numpy as np
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from click.testing import CliRunner
from kubernetes.aio import client

from rlscaler_core.placement.policies import Policy
from rlscaler_live.cli import main
from rlscaler_scheduler import cache as caches
from rlscaler_scheduler.latency import Meter
from rlscaler_scheduler.objects import LATENCY, LATENCY_UNTIL, pod_facts
from rlscaler_scheduler.overrides import Overrides
from rlscaler_scheduler.probes import Target, measure
from rlscaler_scheduler.settings import LatencySettings, Settings
from rlscaler_scheduler.suggest import Suggester
from tests.harness.placed import RESOURCES, cache_of, look, node, pod, suggest

DELAY = 0.15
"""Seconds by which the delayed server answers late: far more than a busy machine adds to a median."""


@asynccontextmanager
async def serving(handler):
    """An HTTP server on loopback, and its address."""
    application = web.Application()
    application.add_routes([web.route("*", "/{path:.*}", handler)])
    async with TestServer(application, host="127.0.0.1") as server:
        yield f"127.0.0.1:{server.port}"


async def at_once(request):
    del request
    return web.Response(text="ok")


async def late(request):
    del request
    await asyncio.sleep(DELAY)
    return web.Response(status=503)


def nobody():
    """A port on which nobody listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{one.getsockname()[1]}"


def test_targets_are_read() -> None:
    assert Target.parse("berlin=b.example.com:443") == ("berlin", "b.example.com", 443, "")
    assert Target.parse("six=[::1]:80") == ("six", "::1", 80, "")
    assert Target.parse("web=https://b.example.com/ping?a=b") == (
        "web",
        "b.example.com",
        443,
        "https://b.example.com/ping?a=b",
    )


@pytest.mark.parametrize("text", ["", "berlin", "=b:1", "b=host", "b=host:x", "b=host:99999", "b=host:1/path", "b=:80"])
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write it as NAME=HOST:PORT or NAME=URL"):
        Target.parse(text)


async def test_a_delayed_server_is_as_far_as_its_delay() -> None:
    async with serving(late) as far, serving(at_once) as near:
        slow = await measure(Target.parse(f"far=http://{far}/"), 3, 10)
        quick = await measure(Target.parse(f"near=http://{near}/"), 3, 10)
        connected = await measure(Target.parse(f"near={far}"), 3, 10)
    assert slow >= 1000 * DELAY, "an answer of any status counts"
    assert 0 < quick < slow
    assert 0 < connected < slow, "a connection is open before the server answers anything"


async def test_single_late_answers_do_not_decide() -> None:
    asked = []

    async def now_and_then(request):
        asked.append(request)
        return await (late if len(asked) % 3 == 0 else at_once)(request)

    async with serving(now_and_then) as address:
        assert await measure(Target.parse(f"t=http://{address}/"), 7, 10) < 1000 * DELAY
    assert len(asked) == 1 + 7, "one to open the connection, and so many as are asked for"


async def test_who_does_not_answer_has_no_latency() -> None:
    async with serving(late) as address:
        assert math.isnan(await measure(Target.parse(f"t=http://{address}/"), 2, DELAY / 10))
    assert math.isnan(await measure(Target.parse(f"t={nobody()}"), 3, 5))
    assert math.isnan(await measure(Target.parse(f"t=http://{nobody()}/"), 3, 5))
    assert math.isnan(await measure(Target.parse("t=nowhere.invalid:80"), 1, 5))


class Api:
    """An API server that takes patches of nodes."""

    def __init__(self) -> None:
        self.status, self.patches, self.types = 200, [], []

    async def answer(self, request):
        self.types.append(request.content_type)
        if self.status == 200:
            self.patches.append((request.path, (await request.json())["metadata"]["annotations"]))
        return web.json_response({"kind": "Node", "metadata": {"name": "n"}}, status=self.status)


@pytest.fixture
async def api():
    made = Api()
    async with serving(made.answer) as address:
        made.address = address
        yield made


@asynccontextmanager
async def meter_of(api, *targets, clock):
    settings = LatencySettings(node="edge-1", targets=targets, samples=1)
    async with client.ApiClient(client.Configuration(host=f"http://{api.address}")) as connected:
        yield Meter(settings, client.CoreV1Api(connected), clock)


def metric(meter, name, **labels):
    return meter.measures.registry.get_sample_value(name, labels)


@pytest.mark.slow
async def test_the_farthest_target_is_written_with_its_end(api) -> None:
    async with (
        serving(late) as far,
        serving(at_once) as near,
        meter_of(api, f"far=http://{far}/", f"near={near}", clock=lambda: 1_000_000.0) as meter,
    ):
        await meter.round()
        far_ms = metric(meter, "rlscaler_scheduler_latency_milliseconds", target="far")
        near_ms = metric(meter, "rlscaler_scheduler_latency_milliseconds", target="near")
    ((path, said),) = api.patches
    assert path == "/api/v1/nodes/edge-1"
    assert api.types == ["application/merge-patch+json"]
    assert set(said) == {LATENCY, LATENCY_UNTIL}
    assert near_ms < far_ms == pytest.approx(float(said[LATENCY]), abs=0.001)
    assert datetime.fromisoformat(said[LATENCY_UNTIL]).timestamp() == 1_000_300.0
    assert metric(meter, "rlscaler_scheduler_latency_written_timestamp_seconds") == 1_000_000.0


async def test_it_is_written_again_when_it_has_moved_or_half_of_its_time_is_over(api, monkeypatch) -> None:
    now, found = [0.0], [20.0]

    async def measured(*_):
        return found[0]

    monkeypatch.setattr("rlscaler_scheduler.latency.measure", measured)
    async with meter_of(api, "t=users.example:443", clock=lambda: now[0]) as meter:
        writes = []
        for at, milliseconds in ((0, 20), (30, 21.5), (60, 22.5), (90, 22.5), (209, 22.5), (211, 22.5), (241, 0.2)):
            now[0], found[0] = at, milliseconds
            await meter.round()
            writes.append(len(api.patches))
    assert writes == [1, 1, 2, 2, 2, 3, 4]


async def test_what_a_target_does_not_answer_is_not_written(api) -> None:
    async with serving(at_once) as near, meter_of(api, f"near={near}", f"far={nobody()}", clock=lambda: 0.0) as meter:
        await meter.round()
    assert not api.patches
    assert math.isnan(metric(meter, "rlscaler_scheduler_latency_milliseconds", target="far"))
    assert metric(meter, "rlscaler_scheduler_latency_unanswered_total", target="far") == 1
    assert metric(meter, "rlscaler_scheduler_latency_unanswered_total", target="near") == 0


async def test_a_refused_write_is_counted_and_tried_again(api) -> None:
    async with serving(at_once) as near, meter_of(api, f"near={near}", clock=lambda: 0.0) as meter:
        api.status = 403
        await meter.round()
        assert metric(meter, "rlscaler_scheduler_latency_write_errors_total") == 1
        assert metric(meter, "rlscaler_scheduler_latency_written_timestamp_seconds") == 0
        api.status = 200
        await meter.round()
    assert len(api.patches) == 1


async def test_metrics_and_probes_are_served(api) -> None:
    async with (
        serving(at_once) as near,
        meter_of(api, f"near={near}", clock=lambda: 0.0) as meter,
        TestClient(TestServer(meter.application())) as served,
    ):
        assert (await served.get("/healthz")).status == 200
        assert (await served.get("/readyz")).status == 503
        await meter.round()
        assert (await served.get("/readyz")).status == 200
        assert 'rlscaler_scheduler_latency_milliseconds{target="near"}' in await (await served.get("/metrics")).text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--node", "n"), "targets"),
        (("--node", "n", "--target", "t"), "NAME=HOST:PORT"),
        (("--target", "t=h:1"), "node"),
        (("--node", "n", "--target", "t=h:1", "--interval", "60", "--expire", "90"), "twice interval_seconds"),
        (("--node", "n", "--target", "t=h:1", "--target", "t=i:1"), "the same name"),
    ],
)
def test_settings_that_cannot_be_are_refused(options, said) -> None:
    done = CliRunner().invoke(main, ["scheduler", "latency", *options])
    assert done.exit_code == 2
    assert said in done.output


def aged(name: str, latency: str, until: str | None) -> dict:
    made = node(name, latency=latency)
    if until is not None:
        made["metadata"]["annotations"][LATENCY_UNTIL] = until
    return made


def written(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_a_latency_is_believed_until_its_end(monkeypatch) -> None:
    now = [1_000.0]
    monkeypatch.setattr(caches.time, "time", lambda: now[0])
    ends = {"for-ever": None, "fresh": written(1_060), "old": written(999), "wrong": "soon", "empty": ""}
    cache = cache_of(*(aged(name, "20", until) for name, until in ends.items()))
    assert look(cache, *ends)[0] == ["empty", "for-ever", "fresh", "old", "wrong"]

    def believed():
        names, seen = look(cache, *ends)
        return {name for name, value in zip(names, seen.latency_ms, strict=True) if not np.isnan(value)}

    assert believed() == {"for-ever", "fresh"}
    now[0] = 1_061.0
    assert believed() == {"for-ever"}, "nobody has said so: its end has come"
    cache.change_node(aged("fresh", "30", written(1_120)), False)
    assert look(cache, "fresh")[1].latency_ms.tolist() == [30.0]


def test_half_of_the_nodes_without_a_value_come_last_and_are_not_refused(monkeypatch) -> None:
    monkeypatch.setattr(caches.time, "time", lambda: 1_000.0)
    names = [f"n{index}" for index in range(10)]
    fresh, old = written(1_060), written(900)
    nodes = [aged(name, str(10 * index + 5), fresh if index % 2 else old) for index, name in enumerate(names)]
    suggester = Suggester(cache_of(*nodes), Overrides(), Settings(policy=Policy.EL), {})
    wish = {"rlscaler.io/latency-soft-ms": "30", "rlscaler.io/latency-hard-ms": "60"}
    facts = pod_facts(pod("p", annotations=wish), RESOURCES)
    refused = suggester.refused(facts, names)
    assert set(refused) == {"n7", "n9"}, "75 and 95 ms; n6 and n8 are as far, and nobody knows it any more"
    found = suggest(suggester, facts, *[name for name in names if name not in refused])
    order = [found.names[index] for index in found.order]
    assert order[:3] == ["n1", "n3", "n5"], "15 ms is below the soft limit; 35 and 55 ms are below the hard one"
    assert set(order[3:]) == {"n0", "n2", "n4", "n6", "n8"}
