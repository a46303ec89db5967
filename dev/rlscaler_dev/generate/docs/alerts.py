"""The page of the alerts, from the rule file that the chart ships."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from rlscaler_dev.generate.docs.markdown import code, plain, table

INTRODUCTION = """\
# Alerts

The chart installs these rules as a PrometheusRule where the cluster has that kind
([`helm/rlscaler/rules/rlscaler.yaml`](../operations/monitoring.md)). Each has a runbook.

"""


def render(rules: Path) -> str:
    """The page as Markdown. Raises OSError or yaml.YAMLError where the rule file cannot be read."""
    rows = [
        (
            f"[{rule['alert']}](../operations/runbooks/{page_name(rule['alert'])})",
            rule.get("labels", {}).get("severity", ""),
            rule.get("for", ""),
            plain(rule["annotations"]["summary"]),
        )
        for rule in alerts(rules)
    ]
    recorded = [(code(rule["record"]), code(rule["expr"])) for rule in _rules(rules) if "record" in rule]
    page = INTRODUCTION + table(["alert", "severity", "for", "fires when"], rows) + "\n"
    if recorded:
        page += "\n## Recorded series\n\n" + table(["name", "expression"], recorded) + "\n"
    return page


def alerts(rules: Path) -> list[dict[str, Any]]:
    """The alerting rules of the file."""
    return [rule for rule in _rules(rules) if "alert" in rule]


def page_name(alert: str) -> str:
    """The runbook's file: the alert's name in kebab case, with RLScaler, SLO and the like as one word."""
    words = re.findall(r"RLScaler|[A-Z]+(?![a-z])|[A-Z][a-z]*|[a-z]+|\d+", alert)
    return "-".join(words).lower() + ".md"


def _rules(path: Path) -> Iterator[dict[str, Any]]:
    for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]:
        yield from group["rules"]
