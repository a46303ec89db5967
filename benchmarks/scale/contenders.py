"""Contenders: each is started, given its objects, and asked whether it has taken all of them over."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path

import requests
import yaml
from benchmarks.scale.objects import (
    AUTOSCALERS,
    POLICIES,
    SCALED_OBJECTS,
    autoscaler,
    create_all,
    names,
    policy,
    scaled_object,
)
from benchmarks.scale.testbed import SCRAPE_SECONDS, Testbed

from rlscaler_dev.cluster import keda, state
from rlscaler_dev.cluster.kube import has_condition
from rlscaler_dev.cluster.network import HOST, free_ports
from rlscaler_dev.cluster.readiness import wait_until
from rlscaler_dev.exceptions import StartError

REPOSITORY = Path(__file__).parents[2]
CRD = REPOSITORY / "crds" / "rlscalingpolicies.yaml"
PATIENCE_SECONDS = 1200.0
"""Longest wait until all is taken over; HPAs that never were active by then are left out, and this operator fails."""


class Contender(ABC):
    """One autoscaler with its settings."""

    def __init__(self, label: str) -> None:
        self.label = label

    @abstractmethod
    def prepare(self, testbed: Testbed) -> None:
        """Before its objects exist: definitions and processes."""

    @abstractmethod
    def adopt(self, testbed: Testbed) -> int:
        """Create its objects and wait until all are taken over; how many were, in the end."""

    def restart(self, testbed: Testbed) -> bool:
        """Kill it, start it again and wait until it has decided for all; False where that cannot be told."""
        return False

    def lag(self) -> dict[float, float]:
        """Return a cumulative histogram of the lateness of its loop, seconds -> count; empty where it exports none."""
        return {}


class Operator(Contender):
    """This operator."""

    def __init__(self, label: str, sense_seconds: int, shards: int = 1) -> None:
        super().__init__(label)
        self._sense_seconds, self._shards = sense_seconds, shards
        self._ports: list[int] = []

    def prepare(self, testbed: Testbed) -> None:
        testbed.kube.apply(yaml.safe_load(CRD.read_text()))
        wait_until(lambda: testbed.kube.get(POLICIES) is not None, "the CRD", 60)
        self._ports = free_ports(self._shards, state.ports_taken())
        for i in range(self._shards):
            self._start(testbed, i)
        wait_until(lambda: self._decided(testbed) >= 0, "the operator's start", 60)

    def _start(self, testbed: Testbed, i: int) -> None:
        command = [sys.executable, "-m", "rlscaler_live.cli", "operator", "run"]
        command += ["--kubeconfig", str(testbed.layout.kubeconfig), "--prometheus-url", testbed.layout.prometheus_url]
        command += ["--scrape-interval", str(SCRAPE_SECONDS), "--metrics-port", str(self._ports[i])]
        if self._shards > 1:
            command += ["--shards", str(self._shards)]
        testbed.run(f"operator-{i}", command)

    def adopt(self, testbed: Testbed) -> int:
        create_all(testbed.kube, POLICIES, [policy(name, self._sense_seconds) for name in testbed.services])
        self._wait_decided(testbed)
        wait_until(lambda: self._ready(testbed) == len(testbed.services), "Ready policies", PATIENCE_SECONDS, 0.5)
        return len(testbed.services)

    def _ready(self, testbed: Testbed) -> int:
        return len(names(testbed.kube, POLICIES, lambda body: has_condition(body, "Ready")))

    def restart(self, testbed: Testbed) -> bool:
        for i in range(self._shards):
            testbed.stop(f"operator-{i}")
            self._start(testbed, i)
        self._wait_decided(testbed)
        return True

    def _wait_decided(self, testbed: Testbed) -> None:
        wait_until(lambda: self._decided(testbed) >= len(testbed.services), "decisions", PATIENCE_SECONDS, 0.2)

    def _decided(self, testbed: Testbed) -> int:
        """Number of policies for which something was decided since the processes started."""
        return int(sum(self.metric(port, "rlscaler_policies_decided") for port in self._ports))

    def metric(self, port: int, name: str) -> float:
        text = requests.get(f"http://{HOST}:{port}/metrics", {"name[]": name}, timeout=10).text
        return next((float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} ")), 0.0)

    def lag(self) -> dict[float, float]:
        buckets: dict[float, float] = {}
        for port in self._ports:
            query = {"name[]": "rlscaler_loop_lag_seconds_bucket"}
            for line in requests.get(f"http://{HOST}:{port}/metrics", query, timeout=10).text.splitlines():
                if line.startswith("rlscaler_loop_lag_seconds_bucket"):
                    bound = float(line.partition('le="')[2].partition('"')[0])
                    buckets[bound] = buckets.get(bound, 0.0) + float(line.split()[-1])
        return buckets


class Bare(Contender):
    """No autoscaler: the most patches that this machine can send."""

    def prepare(self, testbed: Testbed) -> None:
        """There is nothing to define."""

    def adopt(self, testbed: Testbed) -> int:
        metrics = f"http://{testbed.load.address}/metrics"
        testbed.run("bare", [sys.executable, "-m", "benchmarks.scale.bare", str(testbed.layout.kubeconfig), metrics])
        return len(testbed.services)


class Hpa(Contender):
    """The HorizontalPodAutoscaler on CPU, with upstream's settings."""

    def prepare(self, testbed: Testbed) -> None:
        testbed.run_hpa_controller()

    def adopt(self, testbed: Testbed) -> int:
        create_all(testbed.kube, AUTOSCALERS, [autoscaler(name) for name in testbed.services])
        return _wait_active(testbed)


class Keda(Contender):
    """KEDA's operator and metrics adapter, and the HPA controller that acts on its objects."""

    def __init__(self, label: str, tuned: bool) -> None:
        super().__init__(label)
        self._tuned = tuned

    def prepare(self, testbed: Testbed) -> None:
        tuning = ("--concurrent-horizontal-pod-autoscaler-syncs=20", "--kube-api-qps=1000", "--kube-api-burst=2000")
        testbed.run_hpa_controller(*(tuning if self._tuned else ()))
        keda.start(testbed, self._tuned)

    def adopt(self, testbed: Testbed) -> int:
        window = _window_seconds()
        objects = [scaled_object(name, testbed.layout.prometheus_url, window) for name in testbed.services]
        create_all(testbed.kube, SCALED_OBJECTS, objects)
        return _wait_active(testbed)


def _window_seconds() -> int:
    """Seconds of the rate window that all use."""
    return round(max(10, 4 * SCRAPE_SECONDS))


def _wait_active(testbed: Testbed) -> int:
    """Until every HPA has read its metric once, as a thousand are not all active at one moment; how many have."""
    seen: set[str] = set()

    def all_seen() -> bool:
        seen.update(names(testbed.kube, AUTOSCALERS, lambda body: has_condition(body, "ScalingActive")))
        return len(seen) == len(testbed.services)

    with suppress(StartError):
        wait_until(all_seen, "active HPAs", PATIENCE_SECONDS, 1)
    return len(seen)


def contenders() -> dict[str, Contender]:
    """All by name, in the order of the table."""
    return {
        "bare": Bare("patch loop, no autoscaler"),
        "rlscaler": Operator("rlscaler, senseSeconds 1", 1),
        "rlscaler-sense5": Operator("rlscaler, senseSeconds 5 (default)", 5),
        "hpa": Hpa("HPA, CPU"),
        "keda": Keda("KEDA, default", tuned=False),
        "keda-tuned": Keda("KEDA, tuned", tuned=True),
        "rlscaler-shards3": Operator("rlscaler, 3 shards, senseSeconds 1", 1, shards=3),
    }
