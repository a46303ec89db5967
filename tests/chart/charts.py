"""Rendering the chart with the sets of values that everything here is tested with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from tests.harness.helm import Helm
from tests.harness.setup import REPOSITORY

CHART = REPOSITORY / "helm" / "rlscaler"
NAMESPACE = "rlscaler-system"
RELEASE = "rlscaler"

SETS: dict[str, tuple[str, ...]] = {
    "default": (),
    "namespaced": ("--values", str(CHART / "examples" / "namespaced.yaml")),
    "production": ("--values", str(CHART / "examples" / "production.yaml")),
}

MONITORING = tuple(f"monitoring.coreos.com/v1/{kind}" for kind in ("ServiceMonitor", "PodMonitor", "PrometheusRule"))

Json = dict[str, Any]


MUTATING = "admissionregistration.k8s.io/{}/MutatingAdmissionPolicy"
"""By the version of the API."""


def template(helm: Helm, *options: str, chart: Path = CHART, monitoring: bool = True) -> list[Json]:
    """The objects, hooks included, of a cluster with or without the Prometheus operator."""
    apis = [word for api in MONITORING for word in ("--api-versions", api)] if monitoring else []
    text = helm.run(
        "template", RELEASE, str(chart), "--namespace", NAMESPACE, "--kube-version", "1.36.3", *apis, *options
    )
    return [body for body in yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)) if body]


def values(content: Json, folder: Path) -> tuple[str, ...]:
    """Options that set these values."""
    path = folder / "values.yaml"
    path.write_text(json.dumps(content))
    return "--values", str(path)


def find(objects: list[Json], kind: str, name: str, namespace: str | None = None) -> Json:
    found = [
        body
        for body in objects
        if (body["kind"], body["metadata"]["name"]) == (kind, name)
        and namespace in (None, body["metadata"].get("namespace"))
    ]
    assert len(found) == 1, f"{len(found)} of {kind} {name}"
    return found[0]


def kinds(objects: list[Json]) -> list[str]:
    return sorted({body["kind"] for body in objects})
