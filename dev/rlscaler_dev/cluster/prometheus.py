"""Prometheus's configuration: everything in the targets directory, and real pods, every two seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

SCRAPE_INTERVAL_SECONDS = 2
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
