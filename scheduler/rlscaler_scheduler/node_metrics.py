"""Real use of nodes, from node_exporter and the kubelet through Prometheus, in one query for all nodes.

A value stays valid for a while after its sample. Missing and stale values are left out, never 0.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlscaler_operator.exceptions import MetricsError
from rlscaler_operator.sensing.access import Access
from rlscaler_operator.sensing.prometheus import Prometheus
from rlscaler_scheduler.cache import Cache
from rlscaler_scheduler.connections import access
from rlscaler_scheduler.settings import SchedulerError, Settings

log = logging.getLogger("rlscaler.scheduler")

QUANTITY = "rlscaler_quantity"
"""Label that tells the parts of the query apart."""

SAMPLED = "sampled"
"""The part that gives the time of the newest sample of each node."""

QUERIES = {
    # A ratio of two rates: of a node that is new in Prometheus both are too low, and their ratio is right.
    "cpu": (
        '1 - sum by (instance, node) (rate(node_cpu_seconds_total{mode="idle"}[2m]))'
        " / sum by (instance, node) (rate(node_cpu_seconds_total[2m]))"
    ),
    "memory": (
        "1 - sum by (instance, node) (node_memory_MemAvailable_bytes)"
        " / sum by (instance, node) (node_memory_MemTotal_bytes)"
    ),
    "disk": (
        'max by (instance, node) (1 - node_filesystem_avail_bytes{mountpoint="/"}'
        ' / node_filesystem_size_bytes{mountpoint="/"})'
    ),
    "network_bytes_per_s": (
        'sum by (instance, node) (rate(node_network_receive_bytes_total{device!="lo"}[2m]))'
        ' + sum by (instance, node) (rate(node_network_transmit_bytes_total{device!="lo"}[2m]))'
    ),
    "tcp_connections": "sum by (instance, node) (node_netstat_Tcp_CurrEstab)",
    "running_pods": "sum by (instance, node) (kubelet_running_pods)",
    SAMPLED: "min by (instance, node) (timestamp(node_memory_MemAvailable_bytes))",
}
"""Each gives one series for each node: shares of 1, bytes per second, counts, and seconds since 1970."""


def together(queries: Mapping[str, str]) -> str:
    """One query for all: `queries` take the place of those of the same name."""
    parts = (QUERIES | dict(queries)).items()
    return " or ".join(f'label_replace(({promql}\n), "{QUANTITY}", "{name}", "", "")' for name, promql in parts)


class Reading(NamedTuple):
    """The values of one node, by the names in QUERIES, and when its samples were taken (seconds since 1970)."""

    values: Mapping[str, float]
    sampled: float


def readings(series: Sequence[Mapping[str, Any]], named: Callable[[str], str | None]) -> dict[str, Reading]:
    """Return the readings of an answer by the name of the node; values that are not finite are left out.

    :param series: of the answer. A node without a time of its samples has no reading.
    :param named: maps the label `node`, or `instance` without its port, to the name of a node, or None.
    """
    by_node: dict[str, dict[str, float]] = {}
    for sample in series:
        labels, value = sample["metric"], float(sample["value"][1])
        label = labels.get("node") or labels.get("instance", "").rpartition(":")[0] or labels.get("instance", "")
        name = named(label.strip("[]"))
        if name is not None and math.isfinite(value):
            by_node.setdefault(name, {})[labels[QUANTITY]] = value
    return {name: Reading(values, values.pop(SAMPLED)) for name, values in by_node.items() if SAMPLED in values}


class NodeMetrics:
    """The newest readings. Without a URL nothing is ever read."""

    def __init__(self, cache: Cache, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self._cache, self._settings, self._clock = cache, settings, clock
        self._held: dict[str, Reading] = {}
        self._error = ""
        self._access: Access | None = None
        """Address and credentials of the client."""
        self._client: Prometheus | None = None

    def put(self, series: Sequence[Mapping[str, Any]]) -> None:
        """Take over an answer of Prometheus."""
        new = readings(series, self._cache.node_at)
        self._held = {name: held for name, held in self._held.items() if self._fresh(held)} | new
        names = [name for name, reading in new.items() if {"cpu", "memory"} <= reading.values.keys()]
        shares = np.array([[new[name].values["cpu"], new[name].values["memory"]] for name in names])
        until = np.array([new[name].sampled + self._settings.node_metrics_age_seconds for name in names])
        self._cache.measured(names, shares.reshape(-1, 2), until)

    def of(self, name: str) -> dict[str, float]:
        """Fresh values of a node with their age in seconds; empty where there are none."""
        held = self._held.get(name)
        if held is None or not self._fresh(held):
            return {}
        return {**held.values, "age_seconds": round(max(self._clock() - held.sampled, 0.0), 1)}

    @property
    def fresh(self) -> int:
        """Nodes with fresh values."""
        return sum(map(self._fresh, self._held.values()))

    def _fresh(self, held: Reading) -> bool:
        return self._clock() - held.sampled < self._settings.node_metrics_age_seconds

    async def run(self) -> None:
        """Read for ever, if there is a Prometheus to read from. An error is logged when it changes."""
        if not self._settings.prometheus_url:
            return
        query = together(self._settings.node_queries)
        try:
            while True:
                try:
                    await self._read(query)
                    self._say(
                        "" if self._held else "Prometheus has no metrics of nodes that are known: see --node-query"
                    )
                except (MetricsError, SchedulerError, LookupError, ValueError, TypeError) as error:
                    self._say(f"node metrics cannot be read: {error}")
                await asyncio.sleep(self._settings.node_metrics_seconds)
        finally:
            if self._client is not None:
                await self._client.close()

    async def _read(self, query: str) -> None:
        """Ask once, by a new client where the credentials have changed."""
        wanted = access(self._settings.prometheus_url, self._settings.prometheus_credentials)
        if self._client is None or wanted != self._access:
            if self._client is not None:
                await self._client.close()
            self._client = Prometheus(wanted, timeout_seconds=self._settings.node_metrics_seconds / 2)
            self._access = wanted
        self.put(await self._client.instant(query))

    def _say(self, error: str) -> None:
        if error != self._error:
            log.warning("%s", error or "node metrics are read again")
            self._error = error
