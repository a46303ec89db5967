"""Locust in the cluster: started by an upgrade of the demo's release, its results copied while it runs."""

from __future__ import annotations

import json
import time
from pathlib import Path

from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.cluster.readiness import wait_until
from rlscaler_dev.demo.load import offered, write_offered
from rlscaler_dev.e2e.settings import DEMO_NAMESPACE, DEMO_RELEASE
from rlscaler_dev.exceptions import ApiError, DemoError
from rlscaler_loadgen.patterns import Float

FILES = ("started.json", "requests.csv", "load.csv", "load.json")
START_SECONDS = 240.0
AFTER_SECONDS = 90.0
"""Time after the load's last second in which its results may come."""
PROXY = f"/api/v1/namespaces/{DEMO_NAMESPACE}/services/{DEMO_RELEASE}-load:8089/proxy/results"
NOT_THERE = (404, 416, 500, 502, 503)
"""No such file yet, nothing new in it, or no pod answers for the Service at the moment."""


class ClusterLoad:
    """The results of one run of Locust in the cluster, as files in `data`.

    options: fields of `LoadSettings`, as the chart was told.
    """

    def __init__(self, kube: KubeClient, data: Path, options: dict[str, object]) -> None:
        self._kube, self._data, self._options = kube, data, options
        self.rate: Float = offered(options)

    @property
    def requests(self) -> Path:
        return self._data / "requests.csv"

    @property
    def over(self) -> bool:
        return (self._data / "load.json").exists()

    def wait(self) -> float:
        """Until the first second of the load: Unix seconds. Raises DemoError."""
        write_offered(self.rate, self._data)
        started = self._data / "started.json"

        def begun() -> bool:
            self._copy("started.json")
            return started.exists() and bool(started.read_text().strip())

        wait_until(begun, "the first second of Locust's load", START_SECONDS)
        return float(json.loads(started.read_text())["started_at"])

    def pull(self, started_at: float) -> None:
        """Copy the new rows. Raises DemoError when the results are overdue."""
        for name in FILES[1:3]:
            self._copy(name)
        if time.time() < started_at + len(self.rate):
            return
        self._copy("load.json")
        if self.over:
            for name in FILES[1:3]:
                self._copy(name)
        elif time.time() > started_at + len(self.rate) + AFTER_SECONDS:
            raise DemoError(f"Locust did not end its run: kubectl logs -n {DEMO_NAMESPACE} deploy/{DEMO_RELEASE}-load")

    def _copy(self, name: str) -> None:
        path = self._data / name
        have = path.stat().st_size if path.exists() else 0
        try:
            headers = {"Range": f"bytes={have}-", "Accept": "*/*", "Accept-Encoding": "identity"}
            answer = self._kube.open("GET", f"{PROXY}/{name}", headers=headers)
        except ApiError as error:
            if error.status in NOT_THERE:
                return
            raise
        if answer.content and (answer.status_code == 206 or not have):
            with path.open("ab") as file:
                file.write(answer.content)
