"""What one tenant, one disk or one slow list may do to the suggestion server, and to the pods of the others."""

from __future__ import annotations

import asyncio
import json
import logging
import math

import pytest
from aiohttp.test_utils import TestClient, TestServer

from rlscaler_core.placement.policies import Policy
from rlscaler_scheduler import cache as cache_module
from rlscaler_scheduler import intake
from rlscaler_scheduler.annotations import wishes
from rlscaler_scheduler.objects import LARGEST, PodFacts, amount, node_facts, number, pod_facts
from rlscaler_scheduler.overrides import Override, Overrides
from rlscaler_scheduler.server import Server
from rlscaler_scheduler.settings import Settings
from tests.harness.placed import RESOURCES, cache_of, look, node, pod

FAR = "rlscaler.io/latency-hard-ms"


def server_of(*nodes: dict, **settings: object) -> Server:
    made = Server(Settings(**settings))
    made.cache.set_nodes(list(nodes))
    made.cache.set_pods([])
    made.suggester.scoring_policies.set([])
    made.suggester.set_namespaces([])
    return made


def asked(name: str = "p", names=("a", "b"), annotations: dict | None = None, **requests: str) -> dict:
    return {"Pod": pod(name, annotations=annotations, **requests), "NodeNames": list(names)}


@pytest.mark.parametrize(
    "quantity", ["1e400", "1e306", "9999999999999999999999", "1e99999999", "nan", "inf", "x", "-5"]
)
@pytest.mark.parametrize("resource", ["cpu", "memory", "nvidia.com/gpu", "rlscaler.io/gpu-milli"])
def test_no_quantity_of_one_pod_spoils_the_counts(resource: str, quantity: str) -> None:
    cache = cache_of(node("a", gpus=2), node("b"))
    huge = pod("huge", on="a", cpu="1")
    huge["spec"]["containers"] *= 3
    huge["spec"]["containers"][0]["resources"]["requests"] = {resource: quantity}
    cache.change_pod(huge, False)
    cache.change_pod(pod("p", on="a", cpu="2", memory="1Gi"), False)
    cache.change_pod(huge, True)
    _, seen = look(cache, "a", "b")
    assert seen.requested.tolist() == [[2000.0, 1024.0], [0.0, 0.0]]
    assert seen.gpu_free[0].sum() == 2000


def test_quantities_are_finite_and_keep_their_sign() -> None:
    assert [amount(text) for text in ("1e400", "-1e400", "4Gi")] == [LARGEST, -LARGEST, 4 * 2**30]


@pytest.mark.parametrize("index", ["9" * 5000, "\u00b2", "\u0661", "-1", "", "1.0"])
def test_an_index_of_a_gpu_that_is_none_is_left_out(index: str) -> None:
    facts = pod_facts(pod("p", annotations={"rlscaler.io/gpu-index": index}, rlscaler_io__gpu_milli="500"), RESOURCES)
    assert facts.gpu_index == -1


@pytest.mark.parametrize("text", ["5_0", "\u0661\u0662", "\uff15", "0x10", "1e", "--1", "1 2", "infinity"])
def test_a_number_is_one_for_the_plugin_as_well(text: str) -> None:
    """strconv.ParseFloat takes none of these, or the plugin refuses them."""
    assert math.isnan(number(text))
    assert wishes({FAR: text}, {}, Policy.EE).problems


@pytest.mark.parametrize(
    "text", ["2100-01-01", "2100-01-01T00:00", "2100-01-01 00:00:00Z", "2100-W01-1", "2100-01-01T00:00:00", "2100"]
)
def test_an_end_that_rfc_3339_does_not_know_has_passed(text: str) -> None:
    body = node("a", latency="90")
    body["metadata"]["annotations"]["rlscaler.io/latency-until"] = text
    assert node_facts(body, RESOURCES).latency_until == -math.inf


def test_what_a_pod_asks_for_as_a_whole_takes_the_place_of_its_containers() -> None:
    body = pod("p", cpu="300m", memory="1Gi", nvidia_com__gpu="1")
    body["spec"] |= {"resources": {"requests": {"cpu": "2"}}, "overhead": {"cpu": "50m"}}
    facts = pod_facts(body, RESOURCES)
    assert (facts.cpu_milli, facts.memory_mib, facts.gpus) == (2050, 1024, 1)


def test_objects_that_cannot_be_read_are_left_out_alone(caplog) -> None:
    cache = cache_of(node("a"))
    broken = pod("broken", on="a")
    broken["spec"]["containers"] = 3
    with caplog.at_level(logging.WARNING):
        cache.set_pods([broken, pod("p", on="a", cpu="2")])
    assert look(cache, "a")[1].requested[0, 0] == 2000
    assert "pod shop/broken is left out" in caplog.text


def test_a_list_reads_only_pods_that_have_changed(monkeypatch) -> None:
    def seen(name: str, version: str, on: str = "a", **requests: str) -> dict:
        body = pod(name, on=on, **requests)
        body["metadata"]["resourceVersion"] = version
        return body

    cache = cache_of(node("a"), node("b"))
    cache.set_pods([seen(f"p{index}", "1", cpu="1") for index in range(5)])
    cache.change_pod(seen("new", "3", on=""), False)
    cache.assume(pod_facts(seen("new", "3", on=""), RESOURCES), "b")
    read: list[str] = []

    def counted(item: dict, resources: object) -> PodFacts:
        read.append(item["metadata"]["name"])
        return pod_facts(item, RESOURCES)

    monkeypatch.setattr(cache_module, "pod_facts", counted)
    cache.set_pods(
        [*(seen(f"p{index}", "1") for index in range(4)), seen("p4", "2", cpu="4"), seen("new", "3", on="b")]
    )
    assert read == ["p4", "new"]
    assert look(cache, "a", "b")[1].requested[:, 0].tolist() == [8000, 1000]
    assert not cache.assumed("new"), "it was assumed, and is seen now"


def test_nodes_that_share_an_address_are_told_apart_when_one_goes() -> None:
    def at(name: str) -> dict:
        body = node(name)
        body["status"]["addresses"] = [{"address": "10.0.0.1"}]
        return body

    cache = cache_of(at("new"), at("old"))
    assert cache.node_at("10.0.0.1") == "old"
    cache.change_node(at("old"), True)
    assert cache.node_at("10.0.0.1") == "new"
    cache.change_node(node("new"), False)
    assert cache.node_at("10.0.0.1") is None
    assert cache.node_at("new") == "new"


async def test_limits_of_namespaces_are_known_before_the_server_is_ready() -> None:
    server = server_of(node("a", latency="10"), node("b", latency="90"))
    server.suggester.namespaces_listed = False
    async with TestClient(TestServer(server.application())) as client:
        assert (await client.get("/readyz")).status == 503
        assert (await client.post("/filter", json=asked())).status == 503, "a strict extender waits"
        assert (await client.post("/prioritize", json=asked())).status == 200
        limited = {"metadata": {"name": "shop", "annotations": {FAR: "50"}}}
        server.suggester.set_namespaces([limited])
        answer = await (await client.post("/filter", json=asked())).json()
    assert answer["NodeNames"] == ["a"]
    assert list(answer["FailedAndUnresolvableNodes"]) == ["b"], "no pod is evicted for it"


async def test_calls_that_are_never_sent_whole_hold_up_no_limit(monkeypatch) -> None:
    monkeypatch.setattr(intake, "LONGEST_READ_SECONDS", 0.5)
    server = server_of(node("a", latency="99"), node("b", latency="99"), most_waiting=1)
    async with TestClient(TestServer(server.application())) as client:
        head = b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"
        idle = [await asyncio.open_connection(client.host, client.port) for _ in range(3)]
        for _, writer in idle:
            writer.write(head)
            await writer.drain()
        answer = await (await client.post("/filter", json=asked(annotations={FAR: "50"}))).json()
        assert answer["NodeNames"] == []
        for reader, writer in idle:
            assert b"408" in await reader.readline()
            writer.close()
        assert server._busy == 0


async def test_a_full_disk_costs_lines_and_no_suggestion(caplog) -> None:
    server = server_of(node("a"), node("b", "64"), decision_log="/dev/full")
    async with TestClient(TestServer(server.application())) as client:
        with caplog.at_level(logging.WARNING):
            for name in ("p", "q"):
                answer = await client.post("/prioritize", json=asked(name))
                assert {one["Host"]: one["Score"] for one in await answer.json()}["b"] == 10
        metrics = await (await client.get("/metrics")).text()
    assert "rlscaler_scheduler_unwritten_decisions_total 2.0" in metrics
    assert caplog.text.count("the decision log is not written (No space left on device)") == 1


async def test_a_look_at_a_suggestion_changes_nothing() -> None:
    server = server_of(node("a"), node("b", "64"))
    waiting = pod("p", cpu="4")
    server.cache.set_pods([waiting])
    async with TestClient(TestServer(server.application())) as client:
        await client.post("/prioritize", json={"Pod": waiting, "NodeNames": ["a", "b"]})
        before = (server.cache.counts, look(server.cache, "b")[1].requested.tolist())
        shown = await (await client.get("/suggestions?namespace=shop&pod=p")).json()
        assert shown["node"] == "b"
        assert (server.cache.counts, look(server.cache, "b")[1].requested.tolist()) == before
        default = asked("d")
        default["Pod"]["metadata"]["namespace"] = "default"
        await client.post("/prioritize", json=default)
        assert (await (await client.get("/suggestions?pod=d")).json())["namespace"] == "default"


async def test_a_wrong_annotation_is_quoted_in_part() -> None:
    server = server_of(node("a"), node("b"))
    async with TestClient(TestServer(server.application())) as client:
        long = {"rlscaler.io/latency-soft-ms": "x" * 200_000, "rlscaler.io/scoring-policy": "y" * 200_000}
        await client.post("/prioritize", json=asked(annotations=long))
        (shown,) = (await (await client.get("/suggestions")).json())["suggestions"]
        assert len(json.dumps(shown)) < 2000
        wanted = {"namespace": "shop", "pod": "q", "node": "none", "seconds": 60}
        server.suggester.overrides.put(Override(**wanted))
        await client.post("/prioritize", json=asked("q"))
        metrics = await (await client.get("/metrics")).text()
        assert "rlscaler_scheduler_ignored_annotations_total 2.0" in metrics, "an override is no annotation"


async def test_a_token_that_is_no_text_is_refused(tmp_path) -> None:
    (tmp_path / "token").write_text("secret")
    server = server_of(node("a"), token_file=tmp_path / "token")
    async with TestClient(TestServer(server.application())) as client:
        reader, writer = await asyncio.open_connection(client.host, client.port)
        writer.write(b"PUT /suggestions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xff\r\nContent-Length: 0\r\n\r\n")
        assert b"401" in await reader.readline()
        writer.close()


def test_the_override_that_came_last_is_the_newest() -> None:
    held = Overrides()
    for name in ("a", "b", "a"):
        held.put(Override(namespace="shop", pod="p", node=name, seconds=60))
    assert held.of("shop", "p")[0] == "a"
