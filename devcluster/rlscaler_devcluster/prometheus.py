"""Prometheus's configuration: everything in the targets directory, every two seconds."""

from __future__ import annotations

from pathlib import Path

import yaml

SCRAPE_INTERVAL_SECONDS = 2


def write_config(path: Path, targets_dir: Path) -> None:
    """Write the configuration; a JSON or YAML file dropped into `targets_dir` is scraped within a few seconds.

    `honor_labels` keeps the namespace and pod that exporters report (cAdvisor, kube-state-metrics and DCGM style).
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
        "scrape_configs": [scrape],
    }
    path.write_text(yaml.safe_dump(config, sort_keys=False))
