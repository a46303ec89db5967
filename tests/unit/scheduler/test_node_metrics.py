"""Node metrics: from series to nodes, what is stale or missing, and the rule that balances by real use."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from rlscaler_live.cli import main
from rlscaler_scheduler.cache import Cache
from rlscaler_scheduler.explain import page
from rlscaler_scheduler.node_metrics import QUANTITY, QUERIES, readings, together
from rlscaler_scheduler.objects import pod_facts
from rlscaler_scheduler.overrides import Overrides
from rlscaler_scheduler.replay import inputs, repeat
from rlscaler_scheduler.settings import NODE_QUERIES, Settings
from rlscaler_scheduler.suggest import Suggester
from tests.harness.placed import RESOURCES, cache_of, node, pod, suggest

FACTS = pod_facts(pod("p"), RESOURCES)
LB = {"rlscaler.io/scoring-policy": "LB"}


def series(instance: str, age: float = 0.0, **values: float) -> list[dict]:
    """What Prometheus answers about one node."""
    told = {**values, "sampled": time.time() - age}
    return [{"metric": {"instance": instance, QUANTITY: name}, "value": [0, str(v)]} for name, v in told.items()]


def balanced(cache: Cache) -> Suggester:
    return Suggester(cache, Overrides(), Settings(prometheus_url="http://p", balance="use"), {})


def ask(suggester: Suggester, name: str = "p"):
    return suggest(suggester, pod_facts(pod(name, annotations=LB), RESOURCES), *suggester.cache.names())


def test_one_query_asks_for_all_and_each_can_be_replaced() -> None:
    assert tuple(QUERIES) == NODE_QUERIES
    query = together({"cpu": "my_cpu # by node"})
    assert 'label_replace((my_cpu # by node\n), "rlscaler_quantity", "cpu", "", "")' in query
    assert query.count("label_replace") == len(QUERIES)
    assert "node_cpu_seconds_total" not in query


def test_nodes_are_found_by_the_label_node_by_name_and_by_address() -> None:
    cache = cache_of(node("a"), node("b"), node("c"))
    with_address = node("b")
    with_address["status"]["addresses"] = [{"type": "InternalIP", "address": "10.0.0.2"}]
    cache.change_node(with_address, False)
    told = series("a:9100", cpu=0.5) + series("10.0.0.2:9100", cpu=0.25, disk=float("nan")) + series("x:9100", cpu=1)
    told += [
        {"metric": {**one["metric"], "node": "c", "instance": "10.9.9.9:1"}, "value": [0, "3"]} for one in told[:2]
    ]
    found = readings(told, cache.node_at)
    assert sorted(found) == ["a", "b", "c"]
    assert found["a"].values == {"cpu": 0.5}
    assert found["b"].values == {"cpu": 0.25}, "a value that is no number is left out"
    cache.change_node(node("b"), True)
    assert cache.node_at("10.0.0.2") is None


def test_real_use_decides_and_is_shown() -> None:
    cache = cache_of(node("a"), node("b"))
    cache.change_pod(pod("old", on="b", cpu="8"), False)
    suggester = balanced(cache)
    suggester.node_metrics.put(series("a:9100", cpu=0.9, memory=0.1) + series("b:9100", cpu=0.1, memory=0.2))
    suggester.node_metrics.put(series("a:9100", cpu=0.9, memory=0.1) + series("b:9100", cpu=0.1, memory=0.2, disk=0.3))
    found = ask(suggester)
    assert (found.chosen, found.rule, found.problems) == ("b", "least-used", ()), "a has fewer requests and is busy"
    shown = found.shown()["best"][0]
    assert shown["score"] == pytest.approx(1 - 0.2), "memory is fuller: 1 of 16 cores comes to .1, and no memory"
    assert shown["metrics"]["disk"] == 0.3
    assert shown["metrics"]["age_seconds"] < 60


def test_pods_of_a_burst_count_before_they_are_measured() -> None:
    cache = cache_of(node("a"), node("b"))
    suggester = balanced(cache)
    told = series("a:9100", cpu=0.30, memory=0.0) + series("b:9100", cpu=0.10, memory=0.0)
    suggester.node_metrics.put(told)
    chosen = []
    for index in range(8):
        found = ask(suggester, f"p{index}")
        cache.pending[found.facts.namespace, found.facts.name] = found.facts
        cache.assume(found.facts, found.chosen)
        chosen.append(found.chosen)
        if index == 5:
            suggester.node_metrics.put(told)
    assert chosen.count("b") > chosen.count("a") > 0


@pytest.mark.parametrize("stale", [{"age": 500.0, "cpu": 0.9, "memory": 0.1}, {"cpu": 0.9}, {"memory": 0.9}])
def test_a_node_without_fresh_metrics_counts_by_its_requests(stale) -> None:
    cache = cache_of(node("a"), node("b"))
    suggester = balanced(cache)
    suggester.node_metrics.put(series("a:9100", **stale) + series("b:9100", cpu=0.2, memory=0.2))
    found = ask(suggester)
    assert found.chosen == "a", "nothing is requested of it"
    assert found.problems == ("1 of 2 nodes have no fresh metrics: their requests count",)
    assert np.isnan(found.nodes.in_use[0]).all()
    assert not np.isnan(found.nodes.in_use[1]).any()


def test_without_any_metrics_the_rule_on_requests_acts_and_says_so() -> None:
    suggester = balanced(cache_of(node("a"), node("b")))
    suggester.node_metrics.put(series("a:9100", age=500, cpu=0.1, memory=0.1))
    found = ask(suggester)
    assert found.rule == "spread"
    assert found.problems == ("no node has fresh metrics: spread acts, by requests",)
    assert "metrics" not in found.shown()["best"][0]
    assert suggester.node_metrics.fresh == 0


def test_another_node_in_the_place_of_one_that_went_is_not_measured() -> None:
    cache = cache_of(node("a"))
    suggester = balanced(cache)
    suggester.node_metrics.put(series("a:9100", cpu=0.1, memory=0.1))
    cache.change_node(node("a"), True)
    cache.change_node(node("b"), False)
    assert np.isnan(ask(suggester).nodes.in_use).all()


def test_suggestions_by_use_are_replayed_and_explained() -> None:
    cache = cache_of(node("a"), node("b"))
    suggester = balanced(cache)
    suggester.node_metrics.put(series("a:9100", cpu=0.9, memory=0.1) + series("b:9100", cpu=0.25, memory=0.2))
    found = ask(suggester)
    record = {"time": 1.0, **found.shown(), "inputs": inputs(found)}
    again = repeat([json.dumps(record)], {})
    assert (again.same, again.different) == (1, [])
    console = Console(width=200)
    with console.capture() as shown:
        console.print(page(record))
    assert "CPU used" in shown.get()
    assert "25%" in shown.get()


def test_logs_from_before_nodes_were_measured_are_replayed() -> None:
    found = suggest(Suggester(cache_of(node("a"), node("b")), Overrides(), Settings(), {}), FACTS, "a", "b")
    record = {"time": 1.0, **found.shown(), "inputs": inputs(found)}
    del record["inputs"]["nodes"]["in_use"]
    assert repeat([json.dumps(record)], {}).same == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--balance", "use"], "needs prometheus_url"),
        (["--prometheus-credentials", "."], "prometheus_credentials needs prometheus_url"),
        (["--node-query", "swap", "1"], "'swap' is not one of"),
    ],
)
def test_options_that_cannot_be_are_refused(options, said) -> None:
    result = CliRunner().invoke(main, ["scheduler", "run", *options])
    assert result.exit_code == 2
    assert said in result.output
