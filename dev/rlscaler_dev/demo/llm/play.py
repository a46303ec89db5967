"""Play one contender of the demo of model servers: emulated vLLM pods with their scaler, and a load."""

from __future__ import annotations

import json
from typing import Any

from rlscaler_dev.cluster.kube import Json
from rlscaler_dev.cluster.network import HOST, free_ports
from rlscaler_dev.cluster.readiness import answers
from rlscaler_dev.demo import manifests
from rlscaler_dev.demo.llm.plan import NAME, Contender, Play, deployment, scaler
from rlscaler_dev.demo.operator import RLSCALER, Operator
from rlscaler_dev.demo.pods import PodRecorder, Replicas
from rlscaler_dev.demo.records import REPLICA_COLUMNS
from rlscaler_dev.demo.settings import NAMESPACE
from rlscaler_dev.demo.stage import READY_SECONDS, Stage

Recorder = PodRecorder[Replicas]


class LlmStage(Stage[Recorder]):
    def __init__(self, *stage: Any) -> None:
        *common, this, contender = stage
        super().__init__(*common)
        self._this: Play = this
        self._contender: Contender = contender
        self._begin = self.results.data / "begin"

    def operator(self) -> Operator | None:
        if self._contender.query:
            return None
        return Operator(self.kube, self.info, self.supervisor, self.results.audit)

    def create_workload(self) -> None:
        """Create the Deployment, and start the process that stands for its pods, and KEDA where it scales."""
        self.kube.apply(manifests.namespace(NAMESPACE))
        self.kube.apply(deployment(self._this))
        (port,) = free_ports(1)
        this, data = self._this, self.results.data
        command = [
            *(*RLSCALER, "tokens", "emulate", "--kubeconfig", str(self.info.kubeconfig), "--namespace", NAMESPACE),
            *("--deployment", NAME, "--server", this.server, "--duration", str(this.duration_seconds)),
            *("--seed", str(this.seed), "--max-replicas", str(this.pool.max_replicas)),
            *("--metrics-port", str(port), "--begin", str(self._begin), "--out", str(data)),
        ]
        self._servers = self.supervisor.start("servers", command)
        self.supervisor.wait_until(self._servers, lambda: answers(f"http://{HOST}:{port}/metrics"), READY_SECONDS)
        self.info.add_scrape_target("rlscaler-demo-servers", f"{HOST}:{port}")
        if self._contender.query:
            self.start_keda()

    def introduction(self) -> str:
        return f"{self._contender.title}: {self._this.server}, the mix drifts and surges"

    def recorder(self) -> Recorder:
        columns = ("pool", *REPLICA_COLUMNS)
        return PodRecorder(
            self.kube, self.results.data / "replicas.csv", columns, Replicas.of, {(NAMESPACE, NAME): NAME}, NAMESPACE
        )

    def replicas_missing(self, recorder: Recorder) -> str:
        counts = recorder.counts.get(NAME)
        return "" if counts and counts.ready == counts.spec else "the first replicas"

    def scalers(self) -> list[Json]:
        facts = json.loads((self.results.data / "facts.json").read_text())
        return [scaler(self._contender, self._this, str(self.info.prometheus_url), facts)]

    def drive(self, recorder: Recorder) -> None:
        """Let the load begin, and print now and then the replicas, until every request has its outcome."""
        started = self.results.data / "started.json"
        self._begin.touch()
        self.supervisor.wait_until(self._servers, started.exists, READY_SECONDS)
        begun = float(json.loads(started.read_text())["started_at"])
        self.write_run(self._contender, self._this, begun)
        running = {"servers": self._servers}
        for seconds, line_is_due in self.progress(begun):
            if self.over(running):
                return
            if line_is_due:
                counts = recorder.counts[NAME]
                self.say(f"{seconds:5.0f} s: {counts.ready} of {counts.spec} replicas are ready")
