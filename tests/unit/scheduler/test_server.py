"""The suggestion server without a cluster: objects, cache, overrides, breaker, and every HTTP answer."""

from __future__ import annotations

import json

import pytest
from aiohttp.test_utils import TestClient, TestServer
from click.testing import CliRunner

from rlscaler_live.cli import main
from rlscaler_scheduler.configuration import configuration
from rlscaler_scheduler.server import Server, load_networks
from rlscaler_scheduler.settings import SchedulerError, Settings
from tests.harness.placed import node, pod


@pytest.fixture
async def client(tmp_path):
    token = tmp_path / "token"
    token.write_text("secret")
    server = Server(Settings(token_file=token, scheduler_names=("rlscaler",), decision_log=tmp_path / "log"))
    server.cache.set_nodes([node("a", latency="10"), node("b", "64", latency="90"), node("c")])
    server.suggester.scoring_policies.set([])
    server.suggester.set_namespaces([])
    async with TestClient(TestServer(server.application())) as made:
        made.owner = server
        yield made


def call(name: str = "p", names=("a", "b", "c"), **annotations: str) -> dict:
    return {"Pod": pod(name, annotations=annotations), "NodeNames": list(names)}


async def test_without_a_list_of_pods_there_is_no_opinion(client) -> None:
    assert (await client.get("/readyz")).status == 503
    answer = await (await client.post("/prioritize", json=call())).json()
    assert {one["Score"] for one in answer} == {0}
    client.owner.cache.set_pods([])
    assert (await client.get("/readyz")).status == 200


async def test_prioritize_and_filter(client) -> None:
    client.owner.cache.set_pods([])
    answer = await (await client.post("/prioritize", json=call(names=["a", "new", "b"]))).json()
    assert [one["Host"] for one in answer] == ["a", "new", "b"]
    assert [one["Score"] for one in answer][1:] == [0, 10]
    assert answer[0]["Score"] < 10
    answer = await (await client.post("/filter", json=call(latencyHardConstraint="50"))).json()
    assert answer["NodeNames"] == ["a", "c"], "a node that was not measured is kept"
    assert "90 ms is above the hard limit 50 ms" in answer["FailedAndUnresolvableNodes"]["b"]
    whole = {"Pod": pod("p"), "Nodes": {"items": [node("a"), node("b")]}}
    answer = await (await client.post("/filter", json=whole)).json()
    assert [item["metadata"]["name"] for item in answer["Nodes"]["items"]] == ["a", "b"]
    shown = await (await client.get("/suggestions?namespace=shop&pod=p")).json()
    assert shown["node"] == "b"
    line = json.loads(client.owner.settings.decision_log.read_text().splitlines()[0])
    assert (line["pod"], line["policy"], line["by"]) == ("p", "EE", "rule")


async def test_pods_of_other_schedulers_get_no_opinion(client) -> None:
    client.owner.cache.set_pods([])
    other = call(latencyHardConstraint="1")
    other["Pod"]["spec"]["schedulerName"] = "default-scheduler"
    assert {one["Score"] for one in await (await client.post("/prioritize", json=other)).json()} == {0}
    assert (await (await client.post("/filter", json=other)).json())["NodeNames"] == ["a", "b", "c"]
    metrics = await (await client.get("/metrics")).text()
    assert 'rlscaler_scheduler_declined_total{reason="other_scheduler"} 2.0' in metrics


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"Pod": 3}', b'{"Pod": {"metadata": {}}}', b"\xff"])
async def test_what_is_no_call_is_refused(client, body: bytes) -> None:
    client.owner.cache.set_pods([])
    assert (await client.post("/prioritize", data=body)).status == 400
    assert (await client.get("/healthz")).status == 200


async def test_overrides_are_for_those_with_the_token(client) -> None:
    client.owner.cache.set_pods([pod("p")])
    wanted = {"namespace": "shop", "pod": "p", "node": "a", "seconds": 60}
    assert (await client.put("/suggestions", json=wanted)).status == 401
    owner = {"Authorization": "Bearer secret"}
    for wrong in ({"node": "a"}, wanted | {"seconds": "NaN"}, wanted | {"namespace": ""}, {"node": "a", "seconds": 1}):
        answer = await client.put("/suggestions", json=wrong, headers=owner)
        assert answer.status == 400, wrong
        assert (await answer.json())["error"]
    assert (await client.put("/suggestions", json=wanted, headers=owner)).status == 200
    shown = await (await client.get("/suggestions?namespace=shop&pod=p")).json()
    assert (shown["node"], shown["by"]) == ("a", "override")
    assert (await client.get("/suggestions?namespace=shop&pod=none")).status == 404
    away = {"node": "b", "avoid": True, "seconds": 60}
    assert (await client.put("/suggestions", json=away, headers=owner)).status == 200
    answer = await (await client.post("/prioritize", json=call("q"))).json()
    assert answer[1] == {"Host": "b", "Score": 0}


async def test_too_many_calls_at_once_are_answered_without_an_opinion(client) -> None:
    client.owner.cache.set_pods([])
    client.owner._busy = 1000
    assert {one["Score"] for one in await (await client.post("/prioritize", json=call())).json()} == {0}


def test_what_kube_scheduler_is_told() -> None:
    told = configuration("http://s:8899")
    (extender,) = told["extenders"]
    assert extender["ignorable"]
    assert extender["nodeCacheCapable"]
    assert extender["weight"] * 10 > 100 * (3 + 2 + 2 + 2 + 1 + 1 + 1), "a level outweighs all of the default scores"
    assert not configuration("http://s:8899", strict=True)["extenders"][0]["ignorable"]
    assert told["profiles"][0]["schedulerName"] == "rlscaler"
    assert configuration("x", whole_cluster=True)["profiles"][0]["schedulerName"] == "default-scheduler"


def test_what_kube_scheduler_with_the_plugin_is_told() -> None:
    told = configuration("http://s:8899", plugin=True, timeout_ms=70)
    (profile,) = told["profiles"]
    (enabled,) = profile["plugins"]["multiPoint"]["enabled"]
    assert enabled["weight"] > 100 * (3 + 2 + 2 + 2 + 1 + 1 + 1), "a level outweighs all of the default scores"
    assert profile["pluginConfig"][0]["args"]["timeoutMilliseconds"] == 70
    assert "extenders" not in told
    done = CliRunner().invoke(main, ["scheduler", "config", "--plugin", "--strict"])
    assert done.exit_code == 2
    assert "strict is for the extender" in done.output
    with pytest.raises(ValueError, match="events are written by the plugin"):
        configuration("http://s:8899", events=True)


async def test_a_network_for_other_features_is_said_and_the_rule_acts(tmp_path) -> None:
    described = {
        "contract": "placement/0",
        "policy": "EE",
        "columns": ["x"],
        "digest": "0",
        "trained_nodes": [1, 2],
        "steps": 1,
        "seed": 1,
    }
    (tmp_path / "EE.json").write_text(json.dumps(described))
    server = Server(Settings(model_dir=tmp_path))
    server.cache.set_nodes([node("a"), node("b", "64")])
    server.cache.set_pods([])
    server.suggester.scoring_policies.set([])
    server.suggester.set_namespaces([])
    async with TestClient(TestServer(server.application())) as made:
        answer = await (await made.post("/prioritize", json=call(names=("a", "b")))).json()
        assert {one["Host"]: one["Score"] for one in answer}["b"] == 10, "the rule opens the bigger node"
        said = await (await made.get("/suggestions?namespace=shop&pod=p")).json()
    assert said["by"] == "rule"
    (problem,) = said["problems"]
    assert "a network for policy EE of contract placement/0" in problem
    assert problem.endswith("train it again; until then the rule of EE acts")


def test_a_start_that_cannot_be_says_why(tmp_path) -> None:
    with pytest.raises(SchedulerError, match="name a folder that `rlscaler scheduler train` wrote"):
        load_networks(tmp_path)
    (tmp_path / "EE.json").write_text("{}")
    with pytest.raises(SchedulerError, match="no manifest of a placement network"):
        load_networks(tmp_path)
    empty = tmp_path / "token"
    empty.write_text("\n")
    with pytest.raises(SchedulerError, match="write a token into it"):
        Server(Settings(token_file=empty))
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("no: cluster")
    done = CliRunner().invoke(main, ["scheduler", "run", "--kubeconfig", str(kubeconfig), "--port", "0"])
    assert done.exit_code == 1
    assert "name a kubeconfig with --kubeconfig" in done.output
