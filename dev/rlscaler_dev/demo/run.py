"""One demo run from an empty machine to the result folder."""

from __future__ import annotations

import time
from typing import Any

from rlscaler_dev.cluster.kube import Json
from rlscaler_dev.demo import manifests
from rlscaler_dev.demo.load import Load, demo_options
from rlscaler_dev.demo.operator import Operator, autoscalers_lack, policy_lacks
from rlscaler_dev.demo.processes import REFRESH_SECONDS
from rlscaler_dev.demo.recorder import Recorder
from rlscaler_dev.demo.records import Run
from rlscaler_dev.demo.results import ResultFolder
from rlscaler_dev.demo.screen import Screen, snapshot
from rlscaler_dev.demo.settings import Settings
from rlscaler_dev.demo.stage import Stage
from rlscaler_dev.demo.tails import LiveLoad, Tail
from rlscaler_dev.demo.testbed import demo_service


def play(settings: Settings, screen: Screen) -> dict[str, Any]:
    """Play the run and return its summary. Raises DemoError, or Interrupted when a signal ended it."""
    # A trace that cannot be read is refused before anything starts.
    load = Load(demo_options(settings), ResultFolder(settings.out).data)
    summary = Demo.play(settings, screen.step, settings, screen, load).write()
    if warning := load.warning():
        screen.step(f"warning: {warning}")
    return summary


class Demo(Stage[Recorder]):
    """Service with two pools, which a policy or two HorizontalPodAutoscalers scale."""

    def __init__(self, *stage: Any) -> None:
        *common, self._settings, self._screen, self._load = stage
        super().__init__(*common)
        self._service = demo_service(self._settings, self.info, self.supervisor)

    def run(self) -> None:
        """Play the run, and stop the service after the operator."""
        super().run()
        self._service.stop()

    def operator(self) -> Operator | None:
        if self._settings.contender == "hpa":
            return None
        return Operator(self.kube, self.info, self.supervisor, self.results.audit)

    def start_service(self) -> None:
        self.cluster.create_workload()
        self._service.start()

    def wait_for_service(self) -> None:
        self._service.wait()
        self.say(f"emulated service at {self._service.url}, scraped by {self.info.prometheus_url}")

    def introduction(self) -> str:
        settings = self._settings
        cold = ", ".join("{} {:g}-{:g} s".format(pool.name, *pool.cold_start_seconds) for pool in settings.pools)
        if settings.contender == "hpa":
            contender = "HorizontalPodAutoscalers at 80 % CPU and 80 % GPU utilization, upstream's default behavior"
        else:
            contender = f"RLScalingPolicy in {settings.mode}, action interval {settings.interval_seconds} s"
        return f"contender: {contender}; a cold start takes {cold}"

    def recorder(self) -> Recorder:
        audit = self.results.audit if self._settings.contender == "rl" else None
        return Recorder(self.kube, self._settings, self.results.data, audit)

    def replicas_missing(self, recorder: Recorder) -> str:
        replicas = recorder.replicas
        for pool in self._settings.pools:
            counts = replicas[pool.name]
            if counts is None or counts.ready < pool.min_replicas or recorder.weights is None:
                return recorder.error or f"ready replicas of {pool.deployment}"
        return ""

    def scalers(self) -> list[Json]:
        if self._settings.contender == "hpa":
            return manifests.autoscalers(self._settings)
        return [manifests.policy(self._settings)]

    def scalers_missing(self, recorder: Recorder) -> str:
        """Return the condition that the first decision waits for; empty = it was taken, or none is due."""
        recorder.read_audit()
        if recorder.error:
            return recorder.error
        if self._settings.contender == "hpa":
            return autoscalers_lack(recorder, self._settings)
        return "" if self._settings.mode == "Off" else policy_lacks(recorder)

    def drive(self, recorder: Recorder) -> None:
        """Send the load and show replicas and latencies until its end."""
        settings, load = self._settings, self._load
        self.say(f"load: {settings.pattern}, {settings.duration_seconds} s, seed {settings.seed}, open loop")
        child = load.start(self.supervisor, self._service.url)
        started_at = load.begun(self.supervisor)
        Run.of(settings, self.info.server_version, started_at).write(self.results.data / "run.json")
        live = LiveLoad(Tail(load.requests), settings.slo_ms)
        with self._screen.table():
            while child.running:
                recorder.read_audit()
                self._screen.show(snapshot(settings, time.time() - started_at, load.rate, live, recorder))
                self.supervisor.check(apart_from=[child])
                time.sleep(REFRESH_SECONDS)
        if child.process.returncode:
            raise child.failure("ended before the load was over")
        self.supervisor.finish(load.name)
        self.say("the load is over: stopping the contender, the service and the cluster")
