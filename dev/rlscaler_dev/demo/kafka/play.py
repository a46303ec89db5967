"""Play one contender of the demo of Kafka: a broker, consumers with their scaler, and a producer."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from rlscaler_dev.cluster.kube import Json
from rlscaler_dev.cluster.network import HOST, free_ports
from rlscaler_dev.cluster.readiness import answers
from rlscaler_dev.demo import manifests
from rlscaler_dev.demo.kafka.plan import GROUP, LOW, PARTITIONS, PEAK, TOPIC, Contender, Play, Scaler, scaler
from rlscaler_dev.demo.kafka.recorder import Recorder, Waiting, recorder, write_rebalances
from rlscaler_dev.demo.operator import RLSCALER, Operator
from rlscaler_dev.demo.pods import Replicas
from rlscaler_dev.demo.processes import Child
from rlscaler_dev.demo.settings import NAMESPACE, Settings
from rlscaler_dev.demo.stage import READY_SECONDS, Stage
from rlscaler_dev.exceptions import DemoError

TOPIC_SECONDS = 30.0
DRAIN_SECONDS = 300.0
"""Time after the load in which the consumers may process the messages that still wait."""


class KafkaStage(Stage[Recorder]):
    def __init__(self, *stage: Any) -> None:
        *common, self._this, self._contender = stage
        super().__init__(*common)
        if self._contender.scaler is Scaler.HPA:
            self.condition = "ScalingActive"
        self._broker = str(self.info.kafka)

    @staticmethod
    def settings(this: Play, contender: Contender) -> Settings:
        return replace(Stage.settings(this, contender), kafka=True)

    def operator(self) -> Operator | None:
        if self._contender.scaler is not Scaler.POLICY:
            return None
        return Operator(self.kube, self.info, self.supervisor, self.results.audit, brokers=[self._broker])

    def create_workload(self) -> None:
        """Create the topic and the Deployment, and start the process of the consumers, and KEDA where it scales."""
        make_topic(self._broker, TOPIC, PARTITIONS)
        self.kube.apply(manifests.namespace(NAMESPACE))
        self.kube.apply(manifests.deployment(self._this.pool))
        self._consume()
        if self._contender.scaler is Scaler.KEDA:
            self.start_keda()

    def introduction(self) -> str:
        group = f"group {GROUP} ({self._this.protocol})"
        return f"{self._contender.title}: topic {TOPIC} of {PARTITIONS} partitions, {group}"

    def recorder(self) -> Recorder:
        return recorder(self.kube, self._this.pool, self.results.data)

    def replicas_missing(self, recorder: Recorder) -> str:
        replicas = recorder.counts.get(self._this.pool.name)
        return "" if replicas and replicas.ready else "the first consumer"

    def scalers(self) -> list[Json]:
        return [scaler(self._contender, self._this, self._broker)]

    def drive(self, recorder: Recorder) -> None:
        """Send the load, and print now and then how many messages wait, until all were processed."""
        this, data = self._this, self.results.data
        waiting = Waiting(data / "produced.csv", data / "processed.csv")
        child, started = self._produce(), data / "started.json"
        self.supervisor.wait_until(child, started.exists, READY_SECONDS)
        begun = float(json.loads(started.read_text())["started_at"])
        self.write_run(self._contender, this, begun)
        for seconds, line_is_due in self.progress(begun):
            # Whether the producer runs is read first: messages that it wrote in between are then seen by `read`.
            running = child.running
            waiting.read()
            if (not running and not waiting.messages) or seconds > this.duration_seconds + DRAIN_SECONDS:
                break
            self.supervisor.check(apart_from=[child])
            if line_is_due:
                self.say(
                    progress(
                        seconds, waiting.messages, waiting.lag_seconds(time.time()), recorder.counts.get(this.pool.name)
                    )
                )
        if child.running or child.process.returncode:
            raise child.failure("did not write all of its messages")
        self.supervisor.finish(child.name)
        self._begun = begun

    def run(self) -> None:
        super().run()
        write_rebalances(str(self.info.prometheus_url), self._begun, self.results.data)
        self.supervisor.stop("consumers")

    def _consume(self) -> None:
        """Start the process of the consumers; they join the group as their pods become ready."""
        (port,) = free_ports(1)
        this = self._this
        command = [
            *(*RLSCALER, "service", "consumers", "--kubeconfig", str(self.info.kubeconfig)),
            *("--namespace", NAMESPACE, "--deployment", this.pool.deployment, "--metrics-port", str(port)),
            *("--bootstrap-servers", self._broker, "--topic", TOPIC, "--group", GROUP, "--protocol", this.protocol),
            *("--message-ms", f"{1000 / this.pool.requests_per_second:g}", "--seed", str(this.seed)),
            *("--records", str(self.results.data)),
        ]
        child = self.supervisor.start("consumers", command)
        self.supervisor.wait_until(child, lambda: answers(f"http://{HOST}:{port}/metrics"), READY_SECONDS)
        self.info.add_scrape_target("rlscaler-demo-consumers", f"{HOST}:{port}")

    def _produce(self) -> Child:
        this, data = self._this, self.results.data
        command = [
            *(*RLSCALER, "load", "produce", "--bootstrap-servers", self._broker, "--topic", TOPIC),
            *("--pattern", this.pattern, "--duration", str(this.duration_seconds), "--seed", str(this.seed)),
            *("--low", f"{LOW:g}", "--peak", f"{PEAK:g}", "--skew", f"{this.skew:g}"),
            *(("--trace", str(this.trace)) if this.trace else ()),
            *("--out", str(data), "--started", str(data / "started.json")),
        ]
        return self.supervisor.start("producer", command)


def make_topic(broker: str, name: str, partitions: int) -> None:
    """Make a topic. Raises DemoError where the broker does not."""
    admin = AdminClient({"bootstrap.servers": broker, "log_level": 2})  # its requests end when it is gone
    for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        try:
            future.result(TOPIC_SECONDS)
        except Exception as error:  # KafkaException, or TimeoutError
            raise DemoError(f"the topic {name} was not made: {error}") from error


def progress(seconds: float, messages: int, lag: float, replicas: Replicas | None) -> str:
    """Return a line with the messages that wait, the oldest of them for `lag` seconds, and the consumers."""
    consumers = "" if replicas is None else f"{replicas.ready} of {replicas.spec} consumers are ready"
    return f"{seconds:5.0f} s: {messages:6,d} messages wait, the oldest for {lag:5.1f} s   {consumers}"
