"""One demo from an empty machine to its results: two copies of a service, each with a scaler, under one load."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from rlscaler_dev.cluster.kube import Json, path_of
from rlscaler_dev.demo import days, manifests
from rlscaler_dev.demo.load import Load, demo_options, write_trace
from rlscaler_dev.demo.operator import RLSCALER, Operator, autoscalers_lack, policy_lacks
from rlscaler_dev.demo.processes import REFRESH_SECONDS, Child
from rlscaler_dev.demo.recorder import Recorder
from rlscaler_dev.demo.records import Run
from rlscaler_dev.demo.screen import Screen, snapshot
from rlscaler_dev.demo.settings import COPIES, DAILY, HPA, POLICY, Settings
from rlscaler_dev.demo.stage import READY_SECONDS, Stage
from rlscaler_dev.demo.tails import LiveLoad, Tail
from rlscaler_dev.demo.testbed import demo_service

LOCUST_SECONDS = 3.0
"""Time that a load generator takes until it sends."""


def play(settings: Settings, screen: Screen) -> str:
    """Play both copies and return the sentence about them. Raises DemoError, or Interrupted when a signal ended it."""
    if settings.pattern != DAILY:
        # A trace that cannot be read is refused before anything starts.
        Load(demo_options(settings), settings.out)
    both = replace(settings, gpu_autoscalers=True, gpu_nodes=3)
    results = Demo.play(both, screen.step, settings, screen)
    text = results.write_copies()
    for name in COPIES:
        if warning := Load.warning_in(results.data / name):
            screen.step(f"warning, {name}: {warning}")
    return text


@dataclass(frozen=True, slots=True)
class Copy:
    """One of the two copies."""

    name: str
    settings: Settings
    data: Path
    load: Load

    @classmethod
    def of(cls, name: str, settings: Settings, data: Path, today: days.Days | None) -> Self:
        """The copy with its folder and load; `today` is the load of a daily pattern."""
        folder = data / name
        folder.mkdir()
        trace, peak = None, {}
        if today is not None:
            trace = folder / "trace.csv"
            peak = {"peak": write_trace(today.today, trace)}
        contender = "hpa" if name == HPA else "rl"
        own = replace(settings, namespace=COPIES[name], contender=contender)
        return cls(name, own, folder, Load(demo_options(own, trace, **peak), folder, f"load-{name}"))


Recorders = Mapping[str, Recorder]
"""Recorders by the name of their copy."""


class Demo(Stage[Recorders]):
    """Two copies of the service: one under HorizontalPodAutoscalers, one under a policy."""

    def __init__(self, *stage: Any) -> None:
        *common, self._settings, self._screen = stage
        super().__init__(*common)
        settings = self._settings
        self._days = days.make_days(settings.duration_seconds, settings.seed) if settings.pattern == DAILY else None
        self._copies = [Copy.of(name, settings, self.results.data, self._days) for name in COPIES]
        self.services = {
            copy.name: demo_service(copy.settings, self.info, self.supervisor, f"service-{copy.name}")
            for copy in self._copies
        }
        self._running: dict[str, Child] = {}
        self._begun: dict[str, float] = {}
        """Unix seconds of the begin of each load."""
        self._page: Child | None = None

    def start_scaling(self, operator: Operator | None, recorder: Recorders) -> None:
        """Begin the load before the operator, as after a failover under load, and wait for scalers and policy."""
        assert operator is not None
        self.supervisor.wait_while(lambda: self.scalers_missing(recorder), READY_SECONDS)
        # An operator that sees the load begin takes that for a jump from nothing, and expects such jumps later.
        self._begin_load(recorder)
        self._restore_memory()
        operator.start()
        self._show_page()
        self.supervisor.wait_while(lambda: self._policy_lacks(recorder), READY_SECONDS)

    def operator(self) -> Operator:
        return Operator(self.kube, self.info, self.supervisor, self.results.audit, [COPIES[POLICY]])

    def create_workload(self) -> None:
        for copy in self._copies:
            self.cluster.create_workload(copy.settings)

    def introduction(self) -> str:
        cold = ", ".join(
            "{} {:g}-{:g} s".format(pool.name.upper(), *pool.cold_start_seconds) for pool in self._settings.pools
        )
        return (
            "two copies of one service: hpa under HorizontalPodAutoscalers at 80 % CPU and 80 % GPU utilization, "
            f"rlscaler under an RLScalingPolicy that decides every {self._settings.interval_seconds} s; "
            f"a pod starts in: {cold}"
        )

    @contextmanager
    def recorder(self) -> Iterator[Recorders]:
        audit = {POLICY: self.results.audit}
        with ExitStack() as stack:
            yield {
                copy.name: stack.enter_context(Recorder(self.kube, copy.settings, copy.data, audit.get(copy.name)))
                for copy in self._copies
            }

    def replicas_missing(self, recorder: Recorders) -> str:
        self._start_first_pods()
        for copy in self._copies:
            seen = recorder[copy.name]
            for pool in self._settings.pools:
                counts = seen.counts.get(pool.name)
                if counts is None or counts.ready < pool.min_replicas or seen.weights is None:
                    return seen.error or f"ready replicas of {copy.settings.namespace}/{pool.deployment}"
        return ""

    def _start_first_pods(self) -> None:
        """Have the pods that are there before the load start at once: only later ones need their cold start."""
        at_once = {"rlscaler.io/cold-start-min": "0ms", "rlscaler.io/cold-start-max": "0ms"}
        for namespace in COPIES.values():
            for pod in self.kube.get(f"/api/v1/namespaces/{namespace}/pods")["items"]:
                if not at_once.items() <= pod["metadata"]["annotations"].items():
                    path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}"
                    patch = {"metadata": {"annotations": at_once}}
                    self.kube.merge(path, patch)

    def scalers(self) -> list[Json]:
        return [*manifests.autoscalers(self._copy(HPA).settings), manifests.policy(self._copy(POLICY).settings)]

    def scalers_missing(self, recorder: Recorders) -> str:
        """Return the metrics that the HorizontalPodAutoscalers wait for; empty = they work."""
        hpa = recorder[HPA]
        return hpa.error or autoscalers_lack(hpa, self._copy(HPA).settings)

    def _policy_lacks(self, recorder: Recorders) -> str:
        policy = recorder[POLICY]
        policy.read_audit()
        return policy.error or policy_lacks(policy)

    def _begin_load(self, recorder: Recorders) -> None:
        settings = self._settings
        if self._days:
            # The calendar that is learned has minutes, and the job's begin is not to be at the edge of one.
            earliest = time.time() + LOCUST_SECONDS
            time.sleep(days.begin_after(earliest, settings.duration_seconds) - earliest)
        self.say(
            f"load: {settings.pattern}, {settings.duration_seconds} s, seed {settings.seed}, the same for both copies"
        )
        for copy in self._copies:
            self._running[copy.name] = copy.load.start(self.supervisor, self.services[copy.name].url)
        for copy in self._copies:
            begun = self._begun[copy.name] = copy.load.begun(self.supervisor)
            Run.of(copy.settings, self.info.server_version, begun).write(copy.data / "run.json")
            recorder[copy.name].begin_bill(begun)

    def _restore_memory(self) -> None:
        """Put the memory of the days before into the policy's status, where a new leader finds it after a failover."""
        if self._days is None:
            self.say("rlscaler has never seen this load: it learns from now on")
            return
        settings = self._copy(POLICY).settings
        status = {"status": {"forecaster": days.memory(self._days, self._begun[POLICY], settings)}}
        path = f"{path_of(manifests.policy(settings))}/status"
        self.kube.merge(path, status)
        self.say(
            f"rlscaler has seen the hours around this time on the {days.DAYS_BEFORE} days before, with a job each day: "
            "its memory is restored from the policy's status, as after a failover"
        )

    def drive(self, recorder: Recorders) -> None:
        """Show both copies until the loads end."""
        begun, pages = self._begun, [self._page] if self._page else []
        lives = {copy.name: LiveLoad(Tail(copy.load.requests), self._settings.slo_ms) for copy in self._copies}
        with self._screen.table():
            while not self.over(self._running, apart_from=pages):
                recorder[POLICY].read_audit()
                now = time.time()
                self._screen.show(
                    now - begun[POLICY],
                    [
                        snapshot(c.name, now - begun[c.name], c.load.rate, lives[c.name], recorder[c.name])
                        for c in self._copies
                    ],
                )
                time.sleep(REFRESH_SECONDS)
        self.say("the load is over: stopping the scalers, the services and the cluster")

    def _copy(self, name: str) -> Copy:
        return next(copy for copy in self._copies if copy.name == name)

    def _show_page(self) -> None:
        """Print the command that shows the page of this demo, and open it where there is a display."""
        options = page_options(self.info.kubeconfig, self.info.prometheus_url, self.results.audit)
        self.say(f"a page to look at, while the demo runs: rlscaler {shlex.join(options)} --open")
        if has_display():
            self._page = self.supervisor.start("ui", [*RLSCALER, *options, "--port", "0", "--open"])


def page_options(kubeconfig: Path, prometheus_url: str | None, audit: Path) -> list[str]:
    """Return the `ui` command for a demo, without the name of the program."""
    prometheus = ["--prometheus-url", prometheus_url] if prometheus_url else []
    return ["ui", "--kubeconfig", str(kubeconfig), "-n", COPIES[POLICY], *prometheus, "--decision-log", str(audit)]


def has_display(environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> bool:
    """Return whether a browser can be shown."""
    return platform == "darwin" or bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))
