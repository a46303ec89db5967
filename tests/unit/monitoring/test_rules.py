"""The alert rules as a file; that each fires when it should is promtool's to say (tests/cluster/test_rules.py)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from rlscaler_dev.generate.pages import page_name
from tests.harness.monitoring import RULES, exported

REPOSITORY = Path(__file__).parents[3]
TESTS = REPOSITORY / "tests" / "rules" / "rlscaler.yaml"
RUNBOOKS = "docs/operations/runbooks"


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


ALERTS = [rule for rule in rules() if "alert" in rule]


def test_rules_ask_only_for_metrics_that_exist() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    asked = {name for rule in rules() for name in re.findall(r"\brlscaler[_:][\w:]+", rule["expr"])}
    assert asked - recorded <= exported()
    assert recorded <= asked


def test_an_alert_says_how_bad_it_is_and_what_to_do() -> None:
    for rule in ALERTS:
        notes, page = rule["annotations"], page_name(rule["alert"]).removesuffix(".md")
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}, rule["alert"]
        assert set(notes) == {"summary", "description", "runbook"}, rule["alert"]
        assert notes["runbook"] == f"{RUNBOOKS}/{page}.md", rule["alert"]
        assert (REPOSITORY / notes["runbook"]).is_file(), rule["alert"]


def test_for_each_alert_it_is_tested_that_it_fires() -> None:
    expected = set()
    for test in yaml.safe_load(TESTS.read_text())["tests"]:
        for one in test.get("promql_expr_test", ()):
            if one["exp_samples"]:
                expected |= set(re.findall(r'alertname="(\w+)",alertstate="firing"', one["expr"]))
        expected |= {one["alertname"] for one in test.get("alert_rule_test", ()) if one["exp_alerts"]}
    assert expected == {rule["alert"] for rule in ALERTS}
