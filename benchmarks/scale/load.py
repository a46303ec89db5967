"""The services' metrics: counters of a rate that all of them change at the same moment."""

from __future__ import annotations

import threading
import time

from rlscaler_dev.exposition import ExpositionServer

NAMESPACE = "bench"
LOW, HIGH = 1.0, 600.0
"""Requests/s of every service before and after the step. After it the first scrape is enough for the highest number of
replicas, so that each Deployment is written once."""

LATENCY_SECONDS = 0.2


class Load:
    """Serves `inference_requests_received_total` and its latency histogram of all services on one port."""

    def __init__(self, names: list[str]) -> None:
        self._rate, self._count, self._at = LOW, 0.0, time.monotonic()
        self._lock = threading.Lock()
        labels = [f'namespace="{NAMESPACE}",service="{name}",pool="cpu"' for name in names]
        self._series = [
            series
            for label in labels
            for series in (
                f"inference_requests_received_total{{{label}}}",
                f'inference_request_duration_seconds_bucket{{{label},le="{LATENCY_SECONDS}"}}',
                f'inference_request_duration_seconds_bucket{{{label},le="+Inf"}}',
                f"inference_request_duration_seconds_count{{{label}}}",
            )
        ]
        self._server = ExpositionServer(self.text)
        self.address = self._server.address

    def _advance(self) -> float:
        now = time.monotonic()
        self._count, self._at = self._count + self._rate * (now - self._at), now
        return self._count

    def text(self) -> str:
        """One scrape."""
        with self._lock:
            value = f" {self._advance():.3f}\n"
        return value.join(self._series) + value

    def step(self, rate: float) -> float:
        """Change the load to `rate` requests/s; the monotonic time of that."""
        with self._lock:
            self._advance()
            self._rate = rate
            return self._at

    def close(self) -> None:
        self._server.close()
