"""Messages are written to a topic, and a policy scales the containers that consume them."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlscaler_dev.cluster import objects
from rlscaler_dev.cluster.kube import has_condition, path_of
from rlscaler_dev.cluster.readiness import wait_until
from rlscaler_dev.demo.kafka import results
from rlscaler_dev.demo.kafka.draw import draw
from rlscaler_dev.demo.kafka.plan import GROUP, NAME, PARTITIONS, TOPIC, Play
from rlscaler_dev.demo.kafka.play import make_topic, progress
from rlscaler_dev.demo.kafka.recorder import Recorder, Waiting, write_rebalances
from rlscaler_dev.demo.kafka.results import Played
from rlscaler_dev.demo.results import ResultFolder
from rlscaler_dev.demo.stage import write_figures
from rlscaler_dev.e2e.cluster import Cluster
from rlscaler_dev.e2e.consumers import plan
from rlscaler_dev.e2e.consumers.observe import Collected, Group, most_agreed
from rlscaler_dev.e2e.consumers.plan import NAMESPACE
from rlscaler_dev.e2e.settings import Settings
from rlscaler_dev.exceptions import DemoError

READY_SECONDS = 180.0
DRAIN_SECONDS = 300.0
"""Time after the load in which the consumers may process the messages that still wait."""
LOOK_SECONDS = 1.0
LINE_SECONDS = 20.0
STOP_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Consumers:
    """Plays the part on a cluster with a broker, whose operator may ask it."""

    settings: Settings
    cluster: Cluster
    say: Callable[[str], None]

    def play(self) -> dict[str, Any]:
        """Play the part and return its figures. Raises DemoError, or StartError."""
        this = plan.play(self.settings.out / "consumers", self.settings.seed)
        folder = ResultFolder(this.out)
        folder.prepare()
        records = self.cluster.info.state_dir / "records"
        records.mkdir(mode=0o777, exist_ok=True)
        records.chmod(0o777)  # containers of consumers run as a user that the host does not know
        begun = self._on(this, folder.data, records)
        write_rebalances(str(self.cluster.info.prometheus_url), begun, folder.data)
        shutil.rmtree(records)
        return self._figures(this)

    def _on(self, this: Play, data: Path, records: Path) -> float:
        """Start everything, send the load, take it away; give the load's begin in Unix seconds."""
        kube, broker = self.cluster.kube, str(self.cluster.info.kafka)
        make_topic(broker, TOPIC, PARTITIONS)
        kube.apply(objects.namespace(NAMESPACE))
        kube.apply(plan.deployment(this, records))
        group = Group(kube, (NAMESPACE, NAME), broker, GROUP, data)
        with Recorder(kube, NAME, data, NAMESPACE) as recorder:
            wait_until(lambda: bool(group.look().ready), "the first consumer", READY_SECONDS)
            policy = plan.policy(this)
            kube.apply(policy)
            wait_until(
                lambda: has_condition(kube.get(path_of(policy)), "Ready"), "the policy on the stream", READY_SECONDS
            )
            begun = self._drive(this, data, Collected(records, data / "processed.csv"), group, recorder)
            wait_until(lambda: group.look().agree, "a group whose members are the ready pods", READY_SECONDS)
        group.close()
        most = most_agreed(group.seen)
        if most < 2:
            raise DemoError(f"the group never had more than {most} members that were the ready pods: see members.csv")
        (data / "run.json").write_text(json.dumps({**self._run(this, begun), "most_agreed": most}, indent=1) + "\n")
        self.cluster.commands.run("kubectl", "delete", "rlsp", NAME, "-n", NAMESPACE)
        self.cluster.commands.run("kubectl", "delete", "namespace", NAMESPACE, "--timeout=120s")
        return begun

    def _drive(self, this: Play, data: Path, collected: Collected, group: Group, recorder: Recorder) -> float:
        """Send the load, and wait until everything was processed."""
        waiting, started = Waiting(data / "produced.csv", data / "processed.csv"), data / "started.json"
        command = self.cluster.commands.command(
            *("rlscaler", "load", "produce", "--bootstrap-servers", str(self.cluster.info.kafka), "--topic", TOPIC),
            *("--pattern", this.pattern, "--duration", str(this.duration_seconds), "--seed", str(this.seed)),
            *("--low", f"{this.low:g}", "--peak", f"{this.peak:g}", "--skew", f"{this.skew:g}"),
            *("--out", str(data), "--started", str(started)),
        )
        self.say(f"consumers: {this.pattern} of {this.duration_seconds} s, up to {this.peak:g} messages/s")
        with (data / "producer.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as producer:
            try:
                wait_until(started.exists, "the first message", READY_SECONDS)
                begun = float(json.loads(started.read_text())["started_at"])
                line, until = 0.0, begun + this.duration_seconds + DRAIN_SECONDS
                while True:
                    running, now = producer.poll() is None, time.time()
                    collected.pull()
                    waiting.read()
                    if (not running and not waiting.messages) or now > until:
                        break  # the summary says how many are lost
                    group.look()
                    if now - begun >= line:
                        line += LINE_SECONDS
                        self.say(progress(now - begun, waiting.messages, waiting.lag_seconds(now), recorder))
                    time.sleep(LOOK_SECONDS)
            finally:
                producer.terminate()
                code = producer.wait(STOP_SECONDS)
        if code:
            raise DemoError(f"the producer ended with code {code}: {data / 'producer.log'}")
        collected.pull()
        return begun

    def _run(self, this: Play, begun: float) -> dict[str, Any]:
        return {
            "contender": "rlscaler",
            "title": plan.TITLE,
            "begun": begun,
            "pattern": this.pattern,
            "duration_seconds": this.duration_seconds,
            "protocol": this.protocol,
            "batch": this.batch,
            "commit_seconds": this.commit_seconds,
            "slo_ms": this.slo_ms,
            "seed": this.seed,
            "server_version": self.cluster.info.server_version,
        }

    def _figures(self, this: Play) -> dict[str, Any]:
        """Return the figures of the records. Raises DemoError where a message was lost or the lag stayed."""
        played = results.read(this.out)
        figures = results.figures(played)
        write_figures([figures], results.table([figures]), this.out)
        draw([played], [figures], this.out / "kafka.png")
        most = json.loads((this.out / "data" / "run.json").read_text())["most_agreed"]
        summary = {**asdict(figures), "most_members_that_were_ready_pods": most, **lag_summary(played)}
        self.say(
            f"consumers: {figures.messages} messages, {figures.lost} lost, up to {most} members, p95 lag "
            f"{figures.p95_lag_seconds} s, above the objective for {summary['seconds_above_objective']} s"
        )
        if figures.lost:
            raise DemoError(f"{figures.lost} of {figures.messages} messages were not processed: {this.out / 'data'}")
        if not summary["under_objective_at_end"]:
            raise DemoError(f"the lag was above the objective to the end: {this.out / 'kafka.png'}")
        return summary


def lag_summary(played: Played) -> dict[str, Any]:
    """Return the time that the lag was above the objective during the load, and whether it was below at the end."""
    seconds = played.seconds <= played.duration
    above = (played.lag() > played.slo_seconds)[seconds]
    times = played.seconds[seconds][above]
    return {
        "seconds_above_objective": int(np.sum(above)),
        "first_above_second": float(times[0]) if len(times) else None,
        "last_above_second": float(times[-1]) if len(times) else None,
        "under_objective_at_end": not bool(above[-1]),
    }
