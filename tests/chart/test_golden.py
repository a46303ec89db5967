"""What a change of the chart changes in what is installed: read the difference, then write it with UPDATE_GOLDEN=1."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from tests.chart.charts import SETS, Json, template

GOLDEN = Path(__file__).parent / "golden"

COPIES = {
    "CustomResourceDefinition": "spec",
    "ValidatingAdmissionPolicy": "spec",
    "ConfigMap": "data",
    "PrometheusRule": "spec",
}
"""Kind -> what is copied from elsewhere and compared with it in test_render.py."""


def shown(body: Json) -> Json:
    kind, name = body["kind"], body["metadata"]["name"]
    if kind in COPIES:
        return body | {COPIES[kind]: "copied"}
    return body | {"rules": "copied"} if kind.endswith("Role") and name.endswith("-operator") else body


@pytest.mark.parametrize("chosen", SETS)
def test_golden(helm, chosen):
    objects = [shown(body) for body in template(helm, *SETS[chosen])]
    objects.sort(key=lambda body: (body["kind"], body["metadata"].get("namespace", ""), body["metadata"]["name"]))
    text = yaml.safe_dump_all(objects, sort_keys=False, width=120)
    path = GOLDEN / f"{chosen}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text(), f"look at the difference, then: UPDATE_GOLDEN=1 pytest {Path(__file__).name}"
