"""One demo run from an empty machine to the result folder."""

from __future__ import annotations

import time
from typing import Any

from rlscaler_dev.demo.contenders import Contender, make_contender
from rlscaler_dev.demo.load import Load, demo_options
from rlscaler_dev.demo.processes import REFRESH_SECONDS, Supervisor, interruptible
from rlscaler_dev.demo.recorder import Recorder
from rlscaler_dev.demo.records import Run
from rlscaler_dev.demo.results import ResultFolder
from rlscaler_dev.demo.screen import Screen, snapshot
from rlscaler_dev.demo.settings import Settings
from rlscaler_dev.demo.tails import LiveLoad, Tail
from rlscaler_dev.demo.testbed import Cluster, Service, demo_service, session

FIRST_REPLICAS_SECONDS = 180.0
CONTENDER_SECONDS = 120.0


class Demo:
    """Runs once. Everything that it starts ends with it, whatever ends it."""

    def __init__(self, settings: Settings, screen: Screen) -> None:
        self._settings, self._screen = settings, screen
        self._results = ResultFolder(settings.out)

    def run(self) -> dict[str, Any]:
        """The summary. Raises DemoError, or Interrupted when a signal ended it; then there is no summary."""
        settings, screen, results = self._settings, self._screen, self._results
        load = Load(demo_options(settings), results.data)
        with (
            interruptible(lambda: screen.step("still stopping; one moment")),
            session(settings, results.logs, results.prepare, screen.step) as (cluster, supervisor),
        ):
            self._play(cluster, supervisor, load)
        summary = self._results.write()
        if warning := load.warning():
            self._screen.step(f"warning: {warning}")
        return summary

    def _play(self, cluster: Cluster, supervisor: Supervisor, load: Load) -> None:
        settings, screen = self._settings, self._screen
        screen.step(f"cluster {cluster.info.name}: Kubernetes {cluster.info.server_version} at {cluster.info.server}")
        contender = make_contender(settings, cluster.kube, cluster.info, supervisor, self._results)
        service = demo_service(settings, cluster.info, supervisor)
        cluster.create_workload()
        service.start()
        contender.install()
        service.wait()
        screen.step(f"emulated service at {service.url}, scraped by {cluster.info.prometheus_url}")
        audit = self._results.audit if settings.contender == "rl" else None
        with Recorder(cluster.kube, settings, self._results.data, audit) as recorder:
            screen.step("waiting for the first replicas: " + _cold_starts(settings))
            supervisor.wait_while(lambda: _missing_replicas(settings, recorder), FIRST_REPLICAS_SECONDS)
            screen.step(_introduction(settings))
            contender.start()
            supervisor.wait_while(lambda: _contender_lacks(contender, recorder), CONTENDER_SECONDS)
            self._drive(cluster, supervisor, load, service, recorder)
            contender.stop()
            service.stop()

    def _drive(
        self, cluster: Cluster, supervisor: Supervisor, load: Load, service: Service, recorder: Recorder
    ) -> None:
        """Send the load and show replicas and latencies until its end."""
        settings = self._settings
        self._screen.step(f"load: {settings.pattern}, {settings.duration_seconds} s, seed {settings.seed}, open loop")
        child = load.start(supervisor, service.url)
        started_at = load.begun(supervisor)
        Run.of(settings, cluster.info.server_version, started_at).write(self._results.data / "run.json")
        live = LiveLoad(Tail(load.requests), settings.slo_ms)
        with self._screen.table():
            while child.running:
                recorder.read_audit()
                self._screen.show(snapshot(settings, time.time() - started_at, load.rate, live, recorder))
                supervisor.check(apart_from=[child])
                time.sleep(REFRESH_SECONDS)
        if child.process.returncode:
            raise child.failure("ended before the load was over")
        supervisor.finish(load.name)
        self._screen.step("the load is over: stopping the contender, the service and the cluster")


def _contender_lacks(contender: Contender, recorder: Recorder) -> str:
    recorder.read_audit()
    return recorder.error or contender.waiting_for(recorder)


def _missing_replicas(settings: Settings, recorder: Recorder) -> str:
    if recorder.error:
        return recorder.error
    replicas = recorder.replicas
    for pool in settings.pools:
        counts = replicas[pool.name]
        if counts is None or counts.ready < pool.min_replicas or recorder.weights is None:
            return f"ready replicas of {pool.deployment}"
    return ""


def _cold_starts(settings: Settings) -> str:
    spans = (f"{pool.name} {pool.cold_start_seconds[0]:g}-{pool.cold_start_seconds[1]:g} s" for pool in settings.pools)
    return f"a cold start takes {', '.join(spans)}"


def _introduction(settings: Settings) -> str:
    if settings.contender == "hpa":
        return "contender: HorizontalPodAutoscalers at 80 % CPU and 80 % GPU utilization, upstream's default behavior"
    return f"contender: RLScalingPolicy in {settings.mode}, action interval {settings.interval_seconds} s"
