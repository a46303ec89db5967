"""A live operator, scraped by a real Prometheus: no panel is empty, and every alert finds what it looks at."""

from __future__ import annotations

import math
import re
from functools import partial
from itertools import chain

import pytest
import yaml

from rlscaler_dev.cluster.network import HOST, free_ports
from rlscaler_dev.cluster.prometheus import SCRAPE_INTERVAL_SECONDS, Prometheus
from tests.harness import setup
from tests.harness.load import RPS
from tests.harness.monitoring import DASHBOARDS, RULES, panels
from tests.harness.sized import RANGES, SMALL, seen

BUDGETS = "/apis/rlscaler.io/v1alpha1/rlscalingbudgets"
LIVE_SECONDS = 120.0
GROWING = ("chat", "search")
"""Policies that have to grow: one with a network, one with the forecast rule."""

RATE_INTERVAL = f"{4 * SCRAPE_INTERVAL_SECONDS}s"
VARIABLE = re.compile(r"\$\{?(\w+)\}?")
SELECTOR = re.compile(r"rlscaler[_:][\w:]+(?:{[^}]*})?")


@pytest.fixture(scope="module")
def source(cluster, kube, start, world, with_budgets):
    """An operator with two policies that have to grow and share a budget, of which one has a network and a route that
    is missing and the other's pods are resized, and with one that sees nothing."""
    (port,) = free_ports(1, [])
    for name in GROWING:
        world.service(name, rate=70).pods = 10
    world.deployments("chat")
    world.deployment("search-gpu", "gpu")
    world.deployment("search-cpu", "cpu", resources=SMALL)
    world.policy("chat", policy={"bundled": "ppo"}, placement={"httpRoute": {"name": "nowhere"}})
    common = {"maxReplicas": 10, "coldStartSeconds": 8}
    targets = {pool: {"deployment": f"search-{pool}", "requestsPerSecond": rps, **common} for pool, rps in RPS.items()}
    targets["cpu"]["resources"] = {"mode": "InPlace", **RANGES}
    world.policy("search", policy={"bundled": "rule"}, targets=targets)
    world.patch("rlscalingpolicies", "search", {"status": {"podSizes": seen()}}, "status")
    rules = setup.shipped_roles()["rlscaler-pod-resize"]["rules"]
    setup.grant(kube, "rlscaler", "resizes", rules, world.namespace)
    start("--budgets", "--resize", "--metrics-port", str(port))
    target = cluster.add_scrape_target("rlscaler", f"{HOST}:{port}")
    world.deployments("blind")
    world.policy("blind", policy={"bundled": "ppo"})
    members = [{"name": name, "namespace": world.namespace, "matchLabels": {"share": name}} for name in GROWING]
    for name in GROWING:
        world.patch("rlscalingpolicies", name, {"metadata": {"labels": {"share": name}}})
    budget = {"metadata": {"name": world.namespace}, "spec": {"amount": 20, "members": members, "intervalSeconds": 5}}
    kube.request("POST", BUDGETS, {"apiVersion": "rlscaler.io/v1alpha1", "kind": "RLScalingBudget"} | budget)
    yield Prometheus(cluster.prometheus_url)
    kube.delete(f"{BUDGETS}/{world.namespace}")
    target.unlink()


EVERY_PANEL = [pytest.param(panel, id=f"{path.stem}-{panel['title']}") for path in DASHBOARDS for panel in panels(path)]


@pytest.mark.parametrize("panel", EVERY_PANEL)
def test_no_panel_is_empty(source, world, wait, panel):
    """Each query may be empty for a network or for a rule, whose parts differ, and not for both."""
    variables = {"job": "rlscaler", "namespace": world.namespace, "__rate_interval": RATE_INTERVAL}

    def values(target) -> list[float]:
        ask = source.instant if target.get("instant") else partial(source.last, LIVE_SECONDS)
        every = [variables | {"policy": name} for name in GROWING]
        queries = [VARIABLE.sub(lambda match, given=given: given[match[1]], target["expr"]) for given in every]
        return [value for query in queries for series in ask(query) for value in series.values]

    def shown() -> bool:
        lists = [values(target) for target in panel["targets"]]
        return all(lists) and any(map(math.isfinite, chain.from_iterable(lists)))

    wait(shown, LIVE_SECONDS)


def test_a_blind_policy_is_seen_with_its_reason(source, world, wait):
    query = f'rlscaler_unknown_signals_total{{namespace="{world.namespace}", policy="blind"}} > 0'
    found = wait(lambda: source.instant(query), LIVE_SECONDS)
    assert ("arrival_rate", "SeriesAbsent") in {(one.labels["signal"], one.labels["reason"]) for one in found}


def alerts() -> list[dict[str, str]]:
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    recorded = {rule["record"]: rule["expr"] for rule in rules if "record" in rule}
    replaced = re.compile("|".join(map(re.escape, recorded)))
    expand = {
        rule["alert"]: replaced.sub(lambda m: f"({recorded[m[0]]})", rule["expr"]) for rule in rules if "alert" in rule
    }
    return [{"name": name, "expr": expr} for name, expr in expand.items()]


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["name"])
def test_an_alert_finds_what_it_looks_at(source, wait, alert):
    for selector in set(SELECTOR.findall(alert["expr"])):
        wait(lambda selector=selector: source.instant(selector), LIVE_SECONDS)
    source.instant(alert["expr"])


def test_alerts_that_should_be_pending_are_true(source, world, wait):
    """Without their `for`: the route that is missing, and the signals that nobody exports."""
    exprs = {alert["name"]: alert["expr"] for alert in alerts()}
    for name, policy in (("RLScalerPlacementFailing", "chat"), ("RLScalerMetricsUnknown", "blind")):
        found = wait(lambda name=name: source.instant(exprs[name]), LIVE_SECONDS)
        assert policy in {one.labels["policy"] for one in found if one.labels["namespace"] == world.namespace}
    wait(lambda: source.instant(exprs["RLScalerDown"]) == [], LIVE_SECONDS)
    assert source.instant(exprs["RLScalerLoopStuck"]) == []
