"""The page of one policy: charts from Prometheus, log and status, explained decisions, and what is missing."""

import json
import math
import re
import time

import pytest

from rlscaler_live.ui import chart
from rlscaler_live.ui.decisions import DecisionLog
from rlscaler_live.ui.overview import evidence_of
from rlscaler_live.ui.prometheus import Window, proxied
from rlscaler_live.ui.what_if import Change, played
from rlscaler_operator.exceptions import MetricsError
from tests.harness.page import Cluster, served

HERE = "/policies/ns/chat"
IN_CLUSTER = "/api/v1/namespaces/monitoring/services/prometheus:9090/proxy/api/v1/query_range"


@pytest.fixture(scope="module")
def log(decision_log):
    return decision_log(40, time.time() - 60)


def matrix(**series):
    """The answer of a Prometheus; names are `name_label_label`, values by time."""
    result = []
    for name, values in series.items():
        metric, _, label = name.partition("__")
        labels = {"signal": label} if metric.endswith("signal") else {}
        if metric.endswith("replicas"):
            labels = dict(zip(("pool", "state"), label.split("_"), strict=True))
        result.append({"metric": {"__name__": metric, **labels}, "values": [[t, str(v)] for t, v in values.items()]})
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


async def test_without_log_and_prometheus_the_page_says_what_is_missing(policy):
    async with served(Cluster([policy()])) as page:
        answer = json.loads(await page.get(f"{HERE}/series.json"))
        missing = "\n".join(answer["notes"])
        assert "--decision-log" in missing
        assert "names no Prometheus" in missing
        assert answer["tables"] == [{"time": [chart.seconds("2026-01-09T12:00:00Z")], "wanted_gpu": [4]}]
        assert json.loads(await page.get(f"{HERE}/hpa.json")) == {}


async def test_the_decision_log_gives_load_forecast_replicas_and_capacity(policy, log):
    async with served(Cluster([policy()]), decision_logs=(log,)) as page:
        answer = json.loads(await page.get(f"{HERE}/series.json?range=1h"))
        (table,) = answer["tables"]
        assert len(answer["decisions"]) == len(table["time"]) == 40
        assert table["load"][0] == pytest.approx(60)
        assert table["capacity"][0] == 40
        assert table["ready_gpu"][1:] == table["wanted_gpu"][:-1]
        assert any(table["high"])
        hpa = json.loads(await page.get(f"{HERE}/hpa.json"))["table"]
        assert len(hpa["hpa_gpu"]) == 40


async def test_a_click_explains_the_decision_of_that_moment(policy, log):
    async with served(Cluster([policy()]), decision_logs=(log,)) as page:
        times = json.loads(await page.get(f"{HERE}/series.json?range=1h"))["decisions"]
        text = await page.get(f"{HERE}/decision?at={times[7] + 10}")
        assert "Decision 0199aaaa-0000-7000-8000-000000000007" in text
        assert "Decided again, the same comes out." in text
        assert f"at={times[6]}" in text
        assert f"at={times[8]}" in text
        assert "000000000007" in await page.get(f"{HERE}?at={times[7]}"), "an address that is sent on shows the same"
        assert "000000000000" in await page.get(f"{HERE}/decision?at=1"), "before the first: the first"


@pytest.mark.parametrize("at", ["nan", "inf", "-1", "1e300", "x", ""])
async def test_a_time_that_is_none_is_the_newest_decision(policy, log, at):
    async with served(Cluster([policy()]), decision_logs=(log,)) as page:
        assert "0199aaaa-0000-7000-8000-000000000001" in await page.get(f"{HERE}/decision?at={at}")


async def test_a_damaged_or_foreign_log_is_a_note(policy, tmp_path, log):
    damaged = tmp_path / "audit.jsonl"
    damaged.write_text(
        '{"decision_id": "x"}\nno json\n' + log.read_text().replace('"name":"chat"', '"name":"other"')[:99]
    )
    async with served(Cluster([policy()]), decision_logs=(damaged,)) as page:
        assert "no decision of ns/chat" in await page.get(f"{HERE}/decision?at=1")
        assert "nothing that can be played" in await page.get(f"{HERE}/hpa.json")
        damaged.unlink()
        assert "does not exist" in await page.get(f"{HERE}/series.json")


async def test_prometheus_is_reached_through_the_api_server_with_the_users_rights(policy):
    body = policy()
    body["spec"]["metrics"] = {"prometheus": {"url": "http://prometheus.monitoring.svc:9090"}}
    cluster = Cluster([body])
    now = math.floor(time.time())
    cluster.answers[IN_CLUSTER] = matrix(
        rlscaler_signal__arrival_rate={now - 30: 20, now - 15: 30, now: "NaN"},
        rlscaler_replicas__gpu_ready={now - 30: 1, now - 15: 2, now: 2},
        rlscaler_replicas__gpu_desired={now: 3},
        rlscaler_slo_requests_total={now - 30: 100, now - 15: 200, now: 50},
        rlscaler_slo_late_requests_total={now - 30: 0, now - 15: 5, now: 0},
    )
    async with served(cluster) as page:
        (table,) = json.loads(await page.get(f"{HERE}/series.json"))["tables"]
        assert table["load"] == [20, 30, None]
        assert table["capacity"] == [20, 40, 40], "20 requests/s a replica"
        assert table["late"] == [None, 5, None], "a counter that began anew says nothing"
        cluster.forbidden[IN_CLUSTER] = 'cannot get resource "services/proxy"'
        assert "services/proxy" in await page.get(f"{HERE}/series.json")


@pytest.mark.parametrize("answer", [[], {"status": "error", "error": "bad"}, matrix(), {"status": "success"}])
async def test_an_answer_that_is_none_is_a_note(policy, answer):
    body = policy()
    body["spec"]["metrics"] = {"prometheus": {"url": "http://prometheus.monitoring.svc:9090"}}
    cluster = Cluster([body])
    cluster.answers[IN_CLUSTER] = answer
    async with served(cluster) as page:
        assert any(
            note.startswith("Prometheus: ") for note in json.loads(await page.get(f"{HERE}/series.json"))["notes"]
        )


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("http://prom:9090", "/api/v1/namespaces/ns/services/prom:9090/proxy"),
        ("https://prom.mon", "/api/v1/namespaces/mon/services/https:prom:443/proxy"),
        ("http://prom.mon.svc.cluster.local/prefix/", "/api/v1/namespaces/mon/services/prom:80/proxy/prefix"),
    ],
)
def test_the_url_of_a_service_is_a_path_below_the_api_server(url, path):
    assert proxied(url, "ns") == path


@pytest.mark.parametrize(
    "url",
    [
        *("http://prom.example.com.evil", "http://169.254.169.254", "file:///etc/passwd", "http://prom:x", "//prom"),
        *("http://prom/../../secrets", "http://prom/%2e%2e/secrets", "http://prom/delete?all=true", "http://[::1", ""),
    ],
)
def test_an_address_that_a_policy_names_and_that_is_no_service_is_not_asked(url):
    with pytest.raises(MetricsError, match="--prometheus-url"):
        proxied(url, "ns")


@pytest.mark.parametrize(
    ("at", "newest", "end"),
    [(None, None, 100_000), (99_000, None, 100_000), (50_000, None, 51_800), (None, 20_000, 20_180)],
)
def test_a_range_ends_now_or_holds_the_moment_that_is_looked_at(at, newest, end):
    assert chart.window("1h", 100_000, at, newest) == Window(end - 3600, end, 15)


def test_late_minutes_are_those_above_the_objective():
    table = {"time": [0, 60, 120, 180], "late": [None, 0.5, 2.0, None]}
    assert chart.late_minutes(table, 99) == (1, 2)
    assert chart.late_minutes({"time": [0]}, 99) is None


def test_a_changed_policy_is_judged_beside_the_policy_and_the_hpa_formula(log):
    decisions = DecisionLog([log])
    records = list(decisions.records("ns/chat"))
    ran, hpa, same, changed = played(records, decisions.actors, Change(min_gpu=5))
    assert [side.label for side in (ran, hpa, same, changed)] == ["as it ran", "HPA formula", "this policy", "changed"]
    assert ran.cost == pytest.approx(same.cost, rel=0.02), "the same rule on the same load"
    assert changed.gpu_hours > same.gpu_hours
    assert changed.late < same.late
    assert {side.requests for side in (ran, hpa, same, changed)} == {ran.requests}


def test_evidence_so_far(policy):
    assert evidence_of(policy()) == ("6 of 7 days", "cost -14 %")
    regret = {"costPercent": {"mean": -14.0}, "latePoints": {"mean": -0.1, "low": -0.3, "high": 0.1}}
    assert evidence_of(policy(promotion={"days": 9, "regret": regret})) == ("9 days", "cost -14 %, lateness equal")


async def test_what_if_shows_the_difference_and_the_yaml_to_copy(policy, log):
    async with served(Cluster([policy()]), decision_logs=(log,)) as page:
        text = await page.get(f"{HERE}/what-if?latency_ms=300&min_gpu=5")
        assert re.search(r"it would have cost \d+ % more, with [\d.]+ percentage points (fewer|more) late", text)
        assert "minReplicas: 5" in text
        assert "latencyMilliseconds&#34;:300" in text


@pytest.mark.parametrize(
    ("query", "trouble"),
    [
        ("", "nothing is changed"),
        ("latency_ms=nan", "spec.slo.latencyMilliseconds"),
        ("gpu_price=nan", "spec.targets.gpu.costPerHour"),
        ("gpu_price=-1", "from 0.001"),
        ("min_gpu=1.5", "a whole number"),
        ("min_gpu=<script>", "&lt;script&gt;"),
        ("min_gpu=3", "--decision-log"),
    ],
)
async def test_a_change_that_cannot_be_played_names_its_field(policy, query, trouble):
    async with served(Cluster([policy()])) as page:
        assert trouble in await page.get(f"{HERE}/what-if?{query}")


async def test_the_doctor_runs_preflight_and_says_what_it_may_not_read(policy):
    async with served(Cluster([policy()])) as page:
        text = await page.get(f"{HERE}/preflight")
        assert "CustomResourceDefinition" in text or "rlscalingpolicies" in text
        assert "Traceback" not in text
    async with served(Cluster([policy() | {"spec": {"mode": 7}}])) as page:
        assert "spec.targets" in await page.get(f"{HERE}/preflight")
