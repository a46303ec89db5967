"""Prometheus: its configuration (the targets directory and real pods, every two seconds), and queries of it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
import yaml

from rlscaler_dev.exceptions import DevClusterError

SCRAPE_INTERVAL_SECONDS = 2
QUERY_SECONDS = 30.0
_ANNOTATION = "__meta_kubernetes_pod_annotation_prometheus_io"


def write_config(path: Path, targets_dir: Path, kubeconfig: Path | None = None) -> None:
    """Write the configuration; a JSON or YAML file dropped into `targets_dir` is scraped within a few seconds.

    `honor_labels` keeps the namespace and pod that exporters report (cAdvisor, kube-state-metrics and DCGM style).
    kubeconfig: of a cluster with real pods; those with the annotation `prometheus.io/scrape` are discovered.
    """
    targets_dir.mkdir(parents=True, exist_ok=True)
    files = [str(targets_dir / f"*.{suffix}") for suffix in ("json", "yml", "yaml")]
    scrape = {
        "job_name": "files",
        "honor_labels": True,
        "file_sd_configs": [{"files": files, "refresh_interval": f"{SCRAPE_INTERVAL_SECONDS}s"}],
    }
    config = {
        "global": {
            "scrape_interval": f"{SCRAPE_INTERVAL_SECONDS}s",
            "scrape_timeout": f"{SCRAPE_INTERVAL_SECONDS}s",
            "evaluation_interval": "15s",
        },
        "scrape_configs": [scrape, *([_pods(kubeconfig)] if kubeconfig else [])],
    }
    path.write_text(yaml.safe_dump(config, sort_keys=False))


def _pods(kubeconfig: Path) -> dict[str, Any]:
    """Annotated pods that have an address, with the labels `namespace` and `pod`."""
    rules: list[dict[str, Any]] = [
        {"source_labels": [f"{_ANNOTATION}_scrape"], "regex": "true", "action": "keep"},
        {"source_labels": ["__meta_kubernetes_pod_phase"], "regex": "Running", "action": "keep"},
        {
            "source_labels": ["__meta_kubernetes_pod_ip", f"{_ANNOTATION}_port"],
            "regex": r"(.+);(\d+)",
            "replacement": "$1:$2",
            "target_label": "__address__",
        },
        {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
        {"source_labels": ["__meta_kubernetes_pod_name"], "target_label": "pod"},
    ]
    discovery = {"role": "pod", "kubeconfig_file": str(kubeconfig)}
    return {"job_name": "pods", "kubernetes_sd_configs": [discovery], "relabel_configs": rules}


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one series; `times` are Unix seconds."""

    labels: dict[str, str]
    times: list[float]
    values: list[float]


class Prometheus:
    """Queries of a running Prometheus. Every method raises DevClusterError where a query is refused."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._session = requests.Session()
        self._session.trust_env = False

    def instant(self, query: str) -> list[Series]:
        """Return the newest value of each series."""
        rows = self._query("query", query=query)
        return [Series(row["metric"], *_points([row["value"]])) for row in rows]

    def last(self, seconds: float, query: str) -> list[Series]:
        """Return the values of the last seconds, at most 240 a series."""
        now = time.time()
        rows = self._query("query_range", query=query, start=now - seconds, end=now, step=max(1.0, seconds / 240))
        return [Series(row["metric"], *_points(row["values"])) for row in rows]

    def _query(self, kind: str, **parameters: str | float) -> list[dict[str, Any]]:
        try:
            answer = self._session.post(f"{self._url}/api/v1/{kind}", data=parameters, timeout=QUERY_SECONDS)
            content = answer.json()
        except (requests.RequestException, ValueError) as error:
            raise DevClusterError(f"{self._url}: {error}; is it the URL of a Prometheus?") from error
        if content.get("status") != "success":
            raise DevClusterError(f"{content.get('error', answer.text)}: {parameters['query']}")
        return list(content["data"]["result"])


def _points(pairs: list[tuple[float, str]]) -> tuple[list[float], list[float]]:
    return [float(moment) for moment, _ in pairs], [float(value) for _, value in pairs]
