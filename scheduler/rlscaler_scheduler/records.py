"""Records of suggestions: the last ones in memory, a line for each in a file, and metrics."""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

log = logging.getLogger("rlscaler.scheduler")

KEPT = 200
"""Suggestions that `GET /suggestions` shows."""

BUCKETS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


class Records:
    """Every suggestion passes here once."""

    def __init__(self, path: Path | None) -> None:
        """Raises OSError where the file cannot be written."""
        self.last: deque[Mapping[str, Any]] = deque(maxlen=KEPT)
        self._file = path.open("a", encoding="utf-8") if path is not None else None
        self._failed = False
        self.registry = CollectorRegistry()
        self.suggestions = Counter(
            "rlscaler_scheduler_suggestions_total",
            "Suggestions by policy and by what decided: rule, network or override.",
            ("policy", "by"),
            registry=self.registry,
        )
        self.problems = Counter(
            "rlscaler_scheduler_ignored_annotations_total",
            "Annotations of pods that were ignored because they are wrong.",
            registry=self.registry,
        )
        self.unwritten = Counter(
            "rlscaler_scheduler_unwritten_decisions_total",
            "Lines of the decision log that could not be written.",
            registry=self.registry,
        )
        self.declined = Counter(
            "rlscaler_scheduler_declined_total",
            "Calls that were answered without an opinion, by reason: busy, not_ready, other_scheduler, too_large, "
            "unknown_caller, invalid, fault.",
            ("reason",),
            registry=self.registry,
        )
        self.open = Gauge(
            "rlscaler_scheduler_open",
            "1 where everyone may ask for suggestions: there is neither an authority of callers nor a token.",
            registry=self.registry,
        )
        self.unseen = Counter(
            "rlscaler_scheduler_unseen_pods_total",
            "Suggestions for pods that the watch did not show as pending: they count on no node until it does.",
            registry=self.registry,
        )
        self.seconds = Histogram(
            "rlscaler_scheduler_call_seconds",
            "Seconds that a call of kube-scheduler took, by verb.",
            ("verb",),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.breaker = Gauge(
            "rlscaler_scheduler_breaker_open",
            "1 while a policy's rule acts because its network was slow or failed.",
            ("policy",),
            registry=self.registry,
        )
        self.nodes = Gauge("rlscaler_scheduler_nodes", "Nodes that are known.", registry=self.registry)
        self.measured = Gauge(
            "rlscaler_scheduler_nodes_measured", "Nodes with fresh node metrics.", registry=self.registry
        )
        self.pods = Gauge(
            "rlscaler_scheduler_pods",
            "Pods on nodes, by whether the API server said so or they are assumed to be there.",
            ("state",),
            registry=self.registry,
        )

    def add(self, record: Mapping[str, Any], more: Mapping[str, Any], ignored: int) -> None:
        """Keep a suggestion, and write its line; `more` is in the line only, `ignored` are annotations that are wrong.

        A line that cannot be written is counted, and the log says so once: pods are placed all the same.
        """
        self.last.append(record)
        self.suggestions.labels(record["policy"], record["by"]).inc()
        self.problems.inc(ignored)
        if self._file is None:
            return
        try:
            self._file.write(json.dumps({**record, **more}) + "\n")
            self._file.flush()
            self._failed = False
        except OSError as error:
            self.unwritten.inc()
            if not self._failed:
                log.warning("the decision log is not written (%s); make room for it", error.strerror)
            self._failed = True

    def render(self) -> bytes:
        """Metrics in Prometheus's text format."""
        return generate_latest(self.registry)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
