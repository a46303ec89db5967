"""Play one contender: start cluster, broker, consumers and what scales them, send the load, keep the records."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from rlscaler_dev.cluster import keda, state
from rlscaler_dev.cluster.api import ClusterInfo
from rlscaler_dev.cluster.kube import KubeClient, has_condition, path_of
from rlscaler_dev.cluster.network import HOST, free_ports
from rlscaler_dev.demo import manifests
from rlscaler_dev.demo.contenders import RLSCALER, Operator, answers
from rlscaler_dev.demo.kafka.live import Waiting
from rlscaler_dev.demo.kafka.plan import GROUP, NAME, PARTITIONS, TOPIC, Contender, Play, Scaler, scaler
from rlscaler_dev.demo.kafka.rebalances import write_rebalances
from rlscaler_dev.demo.kafka.recorder import Recorder
from rlscaler_dev.demo.processes import REFRESH_SECONDS, Child, Supervisor, interruptible
from rlscaler_dev.demo.records import versions
from rlscaler_dev.demo.results import ResultFolder
from rlscaler_dev.demo.settings import NAMESPACE, Settings
from rlscaler_dev.demo.testbed import Cluster, session
from rlscaler_dev.exceptions import DemoError

LINE_SECONDS = 20.0
READY_SECONDS = 180.0
TOPIC_SECONDS = 30.0
DRAIN_SECONDS = 300.0
"""How long after the load the consumers may take for what still waits."""


def play(this: Play, contender: Contender, say: Callable[[str], None]) -> None:
    """Play one contender from an empty machine to its raw records.

    Raises DemoError, or Interrupted when a signal ended it.
    """
    results = ResultFolder(this.out / contender.name)
    settings = Settings(out=results.out, cluster_name=this.cluster_name, kafka=True)
    with (
        interruptible(lambda: say("still stopping; one moment")),
        session(settings, results.logs, results.prepare, say) as (cluster, supervisor),
    ):
        _Run(this, contender, cluster, supervisor, results, say).run()


class _Run:
    """One contender on a cluster that is there."""

    def __init__(
        self,
        this: Play,
        contender: Contender,
        cluster: Cluster,
        supervisor: Supervisor,
        results: ResultFolder,
        say: Callable[[str], None],
    ) -> None:
        self._this, self._contender, self._supervisor = this, contender, supervisor
        self._info: ClusterInfo = cluster.info
        self._kube: KubeClient = cluster.kube
        self._results, self._say = results, say
        self._broker = str(cluster.info.kafka)
        self._scaler = scaler(contender, this, self._broker)

    def run(self) -> None:
        make_topic(self._broker, TOPIC, PARTITIONS)
        self._kube.apply(manifests.namespace(NAMESPACE))
        self._kube.apply(manifests.deployment(self._this.pool))
        self._consume()
        operator = self._operator() if self._contender.scaler is Scaler.POLICY else None
        if operator is not None:
            operator.install()
        if self._contender.scaler is Scaler.KEDA:
            self._say("starting KEDA")
            cluster = state.load(self._info.name)
            assert cluster is not None
            keda.start(keda.Running(cluster), tuned=False)
        this = self._this
        self._say(f"{self._contender.title}: topic {TOPIC} of {PARTITIONS} partitions, group {GROUP} ({this.protocol})")
        with Recorder(self._kube, this.pool.deployment, self._results.data) as recorder:
            self._supervisor.wait_while(lambda: _not_ready(recorder), READY_SECONDS)
            self._kube.apply(self._scaler)
            if operator is not None:
                operator.start()
            self._supervisor.wait_while(self._lacks, READY_SECONDS)
            begun = self._drive(recorder)
            if operator is not None:
                operator.stop()
        write_rebalances(str(self._info.prometheus_url), begun, self._results.data)
        self._supervisor.stop("consumers")

    def _consume(self) -> None:
        """Start the process of the consumers; they join as their pods become ready."""
        (port,) = free_ports(1)
        this = self._this
        command = [
            *(*RLSCALER, "service", "consumers", "--kubeconfig", str(self._info.kubeconfig)),
            *("--namespace", NAMESPACE, "--deployment", this.pool.deployment, "--metrics-port", str(port)),
            *("--bootstrap-servers", self._broker, "--topic", TOPIC, "--group", GROUP, "--protocol", this.protocol),
            *("--message-ms", f"{1000 / this.pool.requests_per_second:g}", "--batch", str(this.batch)),
            *("--commit-seconds", f"{this.commit_seconds:g}", "--seed", str(this.seed)),
            *("--records", str(self._results.data)),
        ]
        child = self._supervisor.start("consumers", command)
        self._supervisor.wait_until(child, lambda: answers(f"http://{HOST}:{port}/metrics"), READY_SECONDS)
        self._info.add_scrape_target("rlscaler-demo-consumers", f"{HOST}:{port}")

    def _produce(self) -> Child:
        this, data = self._this, self._results.data
        command = [
            *(*RLSCALER, "load", "produce", "--bootstrap-servers", self._broker, "--topic", TOPIC),
            *("--pattern", this.pattern, "--duration", str(this.duration_seconds), "--seed", str(this.seed)),
            *("--low", f"{this.low:g}", "--peak", f"{this.peak:g}", "--skew", f"{this.skew:g}"),
            *(("--trace", str(this.trace)) if this.trace else ()),
            *("--out", str(data), "--started", str(data / "started.json")),
        ]
        return self._supervisor.start("producer", command)

    def _operator(self) -> Operator:
        return Operator(self._kube, self._info, self._supervisor, self._results.audit, brokers=[self._broker])

    def _lacks(self) -> str:
        """What is missing until the load may begin; empty = nothing."""
        wanted = "ScalingActive" if self._contender.scaler is Scaler.HPA else "Ready"
        ready = has_condition(self._kube.get(path_of(self._scaler)), wanted)
        return "" if ready else f"{self._scaler['kind']} {NAME} to be {wanted}"

    def _drive(self, recorder: Recorder) -> float:
        """Send the load, say now and then what waits, until everything was processed; give the load's begin."""
        data = self._results.data
        waiting = Waiting(data / "produced.csv", data / "processed.csv")
        child, started = self._produce(), data / "started.json"
        self._supervisor.wait_until(child, started.exists, READY_SECONDS)
        begun = float(json.loads(started.read_text())["started_at"])
        self._write_run(begun)
        line, until = 0.0, begun + self._this.duration_seconds + DRAIN_SECONDS
        while True:
            running, now = child.running, time.time()
            waiting.read()
            if (not running and not waiting.messages) or now > until:
                break
            self._supervisor.check(apart_from=[child])
            if now - begun >= line:
                line = ((now - begun) // LINE_SECONDS + 1) * LINE_SECONDS
                self._say(progress(now - begun, waiting.messages, waiting.lag_seconds(now), recorder))
            time.sleep(REFRESH_SECONDS)
        if child.running or child.process.returncode:
            raise child.failure("did not write all of its messages")
        self._supervisor.finish(child.name)
        return begun

    def _write_run(self, begun: float) -> None:
        this = self._this
        run = {
            "contender": self._contender.name,
            "title": self._contender.title,
            "begun": begun,
            "pattern": this.pattern,
            "duration_seconds": this.duration_seconds,
            "interval_seconds": this.interval_seconds,
            "protocol": this.protocol,
            "batch": this.batch,
            "commit_seconds": this.commit_seconds,
            "skew": this.skew,
            "slo_ms": this.slo_ms,
            "seed": this.seed,
            "server_version": self._info.server_version,
            "versions": versions(),
        }
        (self._results.data / "run.json").write_text(json.dumps(run, indent=1) + "\n")


def make_topic(broker: str, name: str, partitions: int) -> None:
    """Make a topic. Raises DemoError where the broker does not."""
    admin = AdminClient({"bootstrap.servers": broker, "log_level": 2})  # its requests end when it is gone
    for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        try:
            future.result(TOPIC_SECONDS)
        except Exception as error:  # KafkaException, or TimeoutError
            raise DemoError(f"the topic {name} was not made: {error}") from error


def _not_ready(recorder: Recorder) -> str:
    replicas = recorder.replicas
    return "" if replicas and replicas.ready else "the first consumer"


def progress(seconds: float, messages: int, lag: float, recorder: Recorder) -> str:
    """A line of how many messages wait, the oldest of them for `lag` seconds, and of the consumers."""
    replicas = recorder.replicas
    consumers = "" if replicas is None else f"{replicas.ready} of {replicas.spec} consumers are ready"
    return f"{seconds:5.0f} s: {messages:6,d} messages wait, the oldest for {lag:5.1f} s   {consumers}"
