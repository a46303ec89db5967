"""Wrong values are refused before anything is rendered, by the name of the key."""

from __future__ import annotations

import json

import pytest
import yaml

from rlscaler_dev.generate.chart import read_values
from tests.chart.charts import CHART, template, values
from tests.harness.helm import HelmError

REFUSED = yaml.safe_load((CHART.parents[1] / "tests" / "data" / "refused_values.yaml").read_text())


def test_refused_by_the_name_of_the_key(helm, tmp_path):
    for case, wrong in REFUSED.items():
        with pytest.raises(HelmError) as caught:
            template(helm, *values(wrong["values"], tmp_path))
        for name in wrong["names"]:
            assert name in str(caught.value), case


def objects(schema: dict, path: str = "") -> list[tuple[str, dict]]:
    found = [(path, schema)] if schema.get("type") == "object" else []
    for name, content in schema.get("properties", {}).items():
        found += objects(content, f"{path}.{name}")
    return found + (objects(schema["items"], f"{path}[]") if "items" in schema else [])


def test_every_map_is_closed_or_says_what_it_takes():
    """Open are only parts of Kubernetes objects, which the API server checks itself."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert {path for path, content in objects(schema) if "additionalProperties" not in content} == {
        ".affinity.nodeAffinity",
        ".affinity.podAffinity",
        ".affinity.podAntiAffinity",
        ".global",
        ".networkPolicy.externalScalerFrom[]",
        ".networkPolicy.extraEgress[]",
        ".networkPolicy.metricsFrom[]",
        ".operator.extraEnv[].valueFrom",
        ".resources.claims[]",
        ".scheduler.kubeScheduler.resources.claims[]",
        ".scheduler.latency.resources.claims[]",
        ".scheduler.resources.claims[]",
        ".topologySpreadConstraints[]",
    }


def test_every_default_is_described():
    described = {value.name for value in read_values((CHART / "values.yaml").read_text())}
    assert {"replicas", "image.repository", "monitoring.dashboards.labels", "resources"} <= described
