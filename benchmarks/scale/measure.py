"""One measurement: a contender with some number of services on a fresh cluster."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import psutil
from benchmarks.scale.contenders import Contender
from benchmarks.scale.load import HIGH
from benchmarks.scale.objects import START
from benchmarks.scale.testbed import Testbed
from benchmarks.scale.watching import Growth

BASELINE_SECONDS = 20.0
STEP_SECONDS = 300.0
"""Longest wait for the last patch."""


@dataclass
class Result:
    """Measured figures: seconds, cores, MiB."""

    contender: str
    label: str
    policies: int
    react_seconds: list[float] = field(default_factory=list)
    """Seconds between the step and each Deployment's patch, ascending; those that never came are missing."""
    adopt_seconds: float = 0.0
    adopted: int = 0
    """Services that it had taken over by then."""
    restart_seconds: float | None = None
    standing: dict[str, Any] = field(default_factory=dict)
    lag: dict[str, float] = field(default_factory=dict)
    """Lateness of its loop while nothing changed, seconds."""
    machine_load: float = 0.0
    """Load average before it: figures of a busy machine are too high."""

    def percentile(self, share: float) -> float:
        """Percentile of the reaction, seconds; infinite where that many were never patched."""
        missing = self.policies - len(self.react_seconds)
        values = np.array(self.react_seconds + [np.inf] * missing)
        return float(np.quantile(values, share, method="inverted_cdf"))

    def to_json(self) -> dict[str, Any]:
        figures = {f"p{round(100 * share)}": self.percentile(share) for share in (0.5, 0.95, 1.0)}
        react = {name: round(value, 2) if math.isfinite(value) else None for name, value in figures.items()}
        return asdict(self) | {"react": react}


def measure(name: str, contender: Contender, testbed: Testbed, seconds: float, load: float) -> Result:
    """Adopt, stand for `seconds`, restart where that can be told, then the step."""
    result = Result(name, contender.label, len(testbed.services), machine_load=load)
    quiet = _requests_per_second(testbed, BASELINE_SECONDS)
    contender.prepare(testbed)
    began = time.monotonic()
    result.adopted = contender.adopt(testbed)
    result.adopt_seconds = round(time.monotonic() - began, 2)
    if seconds > 0:
        before = contender.lag()
        result.standing = standing(testbed, seconds, quiet)
        result.lag = lag(before, contender.lag())
    began = time.monotonic()
    if contender.restart(testbed):
        result.restart_seconds = round(time.monotonic() - began, 2)
    result.react_seconds = react(testbed)
    return result


def standing(testbed: Testbed, seconds: float, quiet: float) -> dict[str, Any]:
    """CPU time, memory and API requests while nothing changes. `quiet` are the requests/s without the contender."""
    watched = testbed.contender_processes()
    server = psutil.Process(testbed.info.processes["kube-apiserver"])
    before = {name: _cpu(process) for name, process in watched.items()}
    server_before, began = _cpu(server), time.monotonic()
    rate = _requests_per_second(testbed, seconds)
    elapsed = time.monotonic() - began
    testbed.contender_processes()
    cores = {name: (_cpu(process) - before[name]) / elapsed for name, process in watched.items()}
    memory = {name: process.memory_info().rss / 2**20 for name, process in watched.items()}
    return {
        "seconds": round(elapsed, 1),
        "cores": {name: round(value, 3) for name, value in cores.items()},
        "memory_mib": {name: round(value, 1) for name, value in memory.items()},
        "total_cores": round(sum(cores.values()), 3),
        "total_memory_mib": round(sum(memory.values()), 1),
        "api_server_cores": round((_cpu(server) - server_before) / elapsed, 3),
        "requests_per_second": round(rate - quiet, 2),
        "requests_per_second_without": round(quiet, 2),
    }


def lag(before: dict[float, float], after: dict[float, float]) -> dict[str, float]:
    """Upper bounds of p95, p99 and maximum, in seconds, of the events between two cumulative histograms."""
    counts = {bound: after[bound] - before.get(bound, 0.0) for bound in sorted(after)}
    total = counts.get(float("inf"), 0.0)
    if not total:
        return {}
    shares = {"p95": 0.95, "p99": 0.99, "max": 1.0}
    return {name: next(b for b, count in counts.items() if count >= share * total) for name, share in shares.items()}


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _requests_per_second(testbed: Testbed, seconds: float) -> float:
    before, began = testbed.api_requests(), time.monotonic()
    time.sleep(seconds)
    return (testbed.api_requests() - before) / (time.monotonic() - began)


def react(testbed: Testbed) -> list[float]:
    """Seconds from the step of load and CPU time to each Deployment's first patch."""
    watch = Growth(testbed.kube, START)
    try:
        at = testbed.step(HIGH, busy=True)
        watch.wait(lambda: len(watch.grown) == len(testbed.services), STEP_SECONDS)
        testbed.contender_processes()
        return sorted(round(seen - at, 3) for seen in watch.grown.values())
    finally:
        watch.close()
