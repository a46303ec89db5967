"""One run of load on the installed service: its contender, Locust, and the records in the demo's form."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rlscaler_dev.cluster.readiness import wait_until
from rlscaler_dev.demo.operator import autoscalers_lack, policy_lacks
from rlscaler_dev.demo.recorder import Recorder
from rlscaler_dev.demo.records import Run
from rlscaler_dev.demo.results import ResultFolder
from rlscaler_dev.demo.screen import Screen, snapshot
from rlscaler_dev.demo.settings import CPU_POOL, GPU_POOL, HIGH_USERS, LOW_USERS
from rlscaler_dev.demo.settings import Settings as DemoSettings
from rlscaler_dev.demo.tails import LiveLoad, Tail
from rlscaler_dev.e2e.cluster import Cluster
from rlscaler_dev.e2e.installation import Installation
from rlscaler_dev.e2e.load import ClusterLoad
from rlscaler_dev.e2e.logs import OperatorLogs
from rlscaler_dev.e2e.settings import DEMO_NAMESPACE, Play, Settings

CONTENDER_SECONDS = 180.0
REFRESH_SECONDS = 1.0

Moment = Callable[[float], None]
"""Called about every second with the seconds since the load began."""


class Player:
    """Plays runs one after the other on one installation."""

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        installation: Installation,
        logs: OperatorLogs,
        say: Callable[[str], None],
    ) -> None:
        self._settings, self._cluster, self._installation = settings, cluster, installation
        self._logs, self._say = logs, say
        self.most_pods = 0
        """Most pods that ran at the same time in the demo's namespace."""
        self.pods_seen: set[str] = set()

    def play(self, play: Play, moment: Moment = lambda _: None) -> dict[str, Any]:
        """The summary of the run, whose folder is OUT/NAME. Raises DemoError."""
        demo = self._demo_settings(play)
        results = ResultFolder(demo.out)
        results.prepare()
        rl = play.contender == "rl"
        self._say(f"{play.name}: {play.duration_seconds} s, seed {demo.seed}")
        self._installation.reset()
        self._logs.to(results.audit if rl else None)
        with Recorder(self._cluster.kube, demo, results.data, results.audit if rl else None) as recorder:
            try:
                self._start(play, demo, recorder)
                self._drive(play, demo, results, recorder, moment)
            finally:
                self._stop(play)
        summary = results.write()
        self._say(
            f"{play.name}: {summary['requests']} requests, {summary['slo_violation_ratio']:.1%} late or failed, "
            f"p95 {summary['p95_ms']:.0f} ms, cost {summary['cost']:.3f}"
        )
        return summary

    def _demo_settings(self, play: Play) -> DemoSettings:
        settings = self._settings
        return DemoSettings(
            out=settings.out / play.name,
            pattern=play.pattern,
            duration_seconds=play.duration_seconds,
            interval_seconds=settings.interval_seconds,
            contender=play.contender,
            seed=settings.seed,
            gpu=replace(GPU_POOL, cold_start_seconds=settings.gpu_cold_start_seconds),
            cpu=replace(CPU_POOL, cold_start_seconds=settings.cpu_cold_start_seconds),
            namespace=DEMO_NAMESPACE,
        )

    def _start(self, play: Play, demo: DemoSettings, recorder: Recorder) -> None:
        """Let the contender scale; the policy has decided once before the load begins, both HPAs have their metrics."""
        if play.contender == "hpa":
            self._installation.change_demo("hpa.enabled=true")
            metrics = "both HorizontalPodAutoscalers' metrics"
            wait_until(lambda: not autoscalers_lack(recorder, demo), metrics, CONTENDER_SECONDS)
            return
        self._installation.apply_policy()
        wait_until(lambda: self._decided(recorder), "the policy's first decision, Ready", CONTENDER_SECONDS)

    def _decided(self, recorder: Recorder) -> bool:
        self._logs.pull()
        recorder.read_audit()
        return not policy_lacks(recorder)

    def _stop(self, play: Play) -> None:
        if play.contender == "hpa":
            self._installation.change_demo("hpa.enabled=false,load.enabled=false")
        else:
            self._installation.delete_policy()
            self._installation.change_demo("load.enabled=false")
        self._logs.to(None)

    def _drive(self, play: Play, demo: DemoSettings, results: ResultFolder, recorder: Recorder, moment: Moment) -> None:
        load = ClusterLoad(self._cluster.kube, results.data, _options(demo))
        values = (
            f"load.enabled=true,load.pattern={play.pattern},load.durationSeconds={play.duration_seconds},"
            f"load.seed={demo.seed},load.low={LOW_USERS:g},load.peak={HIGH_USERS:g}"
        )
        self._installation.change_demo(values)
        started_at = load.wait()
        recorder.begin_bill(started_at)
        Run.of(demo, self._cluster.info.server_version, started_at).write(results.data / "run.json")
        screen, live = Screen(demo.duration_seconds), LiveLoad(Tail(load.requests), demo.slo_ms)
        while not load.over:
            load.pull(started_at)
            self._logs.pull()
            recorder.read_audit()
            self._count_pods()
            elapsed = time.time() - started_at
            screen.show(elapsed, [snapshot(play.contender, elapsed, load.rate, live, recorder)])
            moment(elapsed)
            time.sleep(REFRESH_SECONDS)

    def _count_pods(self) -> None:
        running = [pod for pod in self._installation.pods() if pod["status"].get("phase") == "Running"]
        self.most_pods = max(self.most_pods, len(running))
        self.pods_seen |= {pod["metadata"]["uid"] for pod in running}


def _options(demo: DemoSettings) -> dict[str, object]:
    return {
        "pattern": demo.pattern,
        "duration": demo.duration_seconds,
        "seed": demo.seed,
        "low": LOW_USERS,
        "peak": HIGH_USERS,
    }
