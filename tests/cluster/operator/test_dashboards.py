"""A live operator, scraped by a real Prometheus: no panel is empty, and every alert finds what it looks at."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from rlscaler_dev.cluster.dashboards.ask import Source
from rlscaler_dev.cluster.dashboards.draw import draw
from rlscaler_dev.cluster.dashboards.model import Dashboard, load
from rlscaler_dev.cluster.network import HOST, free_ports
from rlscaler_dev.cluster.prometheus import SCRAPE_INTERVAL_SECONDS
from tests.harness.monitoring import DASHBOARDS, RULES

LIVE_SECONDS = 120.0
SELECTOR = re.compile(r"rlscaler[_:][\w:]+(?:{[^}]*})?")


@pytest.fixture(scope="module")
def source(cluster, start, world):
    """An operator with a policy that has to grow and whose route is missing, and with one that sees nothing."""
    (port,) = free_ports(1, [])
    start("--metrics-port", str(port))
    target = cluster.add_scrape_target("rlscaler", f"{HOST}:{port}")
    world.service("chat", rate=70)
    world.deployments("chat")
    world.policy("chat", policy={"bundled": "ppo"}, placement={"httpRoute": {"name": "nowhere"}})
    world.deployments("blind")
    world.policy("blind", policy={"bundled": "ppo"})
    yield Source(cluster.prometheus_url, 120.0, 4 * SCRAPE_INTERVAL_SECONDS)
    target.unlink()


def given(dashboard: Dashboard, world) -> dict[str, str]:
    values = {"namespace": world.namespace, "policy": "chat", "job": "rlscaler"}
    return {variable.name: values[variable.name] for variable in dashboard.variables}


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_no_panel_is_empty(source, world, wait, tmp_path, path: Path):
    dashboard = load(path)
    chosen = given(dashboard, world)

    def lacking():
        shown = list(source.show(dashboard, source.resolve(dashboard, chosen)))
        blank = [f"{one.panel.title}: no data" for one in shown if one.empty]
        silent = [f"{one.panel.title}: {target.expr}" for one in shown for target in one.unanswered]
        return (blank + silent) or shown

    shown = wait(lambda: (found := lacking()) and not isinstance(found[0], str) and found, LIVE_SECONDS)
    picture = tmp_path / f"{path.stem}.png"
    draw(dashboard, shown, chosen, picture)
    assert picture.stat().st_size > 50_000


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
