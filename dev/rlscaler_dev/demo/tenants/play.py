"""Play one contender: start cluster, services, loads and autoscalers, and keep what they record."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlscaler_dev.cluster.kube import Json, KubeClient, has_condition, path_of
from rlscaler_dev.demo import manifests as demo_manifests
from rlscaler_dev.demo.contenders import RLSCALER, Operator
from rlscaler_dev.demo.load import Load
from rlscaler_dev.demo.processes import REFRESH_SECONDS, Child, Supervisor, interruptible
from rlscaler_dev.demo.records import versions
from rlscaler_dev.demo.results import ResultFolder
from rlscaler_dev.demo.settings import Settings
from rlscaler_dev.demo.tenants import manifests
from rlscaler_dev.demo.tenants.manifests import Contender
from rlscaler_dev.demo.tenants.plan import GPUS, NAMESPACES, TENANTS, Tenant, write_load
from rlscaler_dev.demo.tenants.recorder import Recorder
from rlscaler_dev.demo.testbed import Cluster, Service, fleet_options, session
from rlscaler_dev.exceptions import DemoError

LINE_SECONDS = 20.0
READY_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Play:
    """What every contender meets alike."""

    out: Path
    """Folder of the results; each contender has a folder of its own in it."""
    duration_seconds: int = 300
    speed: float = 12.0
    """Seconds of the recorded loads in one second of the demo."""
    interval_seconds: int = 10
    """Action interval of the policies."""
    seed: int = 1
    slo_ms: float = 1000.0
    cluster_name: str = "demo-tenants"


def play(this: Play, contender: Contender, say: Callable[[str], None]) -> None:
    """Play one contender from an empty machine to its raw records.

    Raises DemoError, or Interrupted when a signal ended it.
    """
    results = ResultFolder(this.out / contender.name)
    settings = Settings(
        out=results.out, contender="hpa" if contender.autoscalers else "rl", cluster_name=this.cluster_name
    )
    with (
        interruptible(lambda: say("still stopping; one moment")),
        session(settings, results.logs, results.prepare, say) as (cluster, supervisor),
    ):
        _Run(this, contender, cluster, supervisor, results, say).run()
    if not contender.autoscalers:
        (results.data / "replay.json").write_text(json.dumps(replay(results.audit)))


def replay(audit: Path) -> dict[str, Any]:
    """Decide and share again everything in a decision log; gives the tally. Raises DemoError where that fails."""
    done = subprocess.run([*RLSCALER, "replay", str(audit), "-o", "json"], capture_output=True, text=True, check=False)
    try:
        tally: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        raise DemoError(f"{audit}: not replayed: {done.stderr.strip()}") from error
    return {name: tally[name] for name in ("decisions", "same", "sharings", "sharingsSame")}


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
        self._this, self._contender, self._cluster, self._supervisor = this, contender, cluster, supervisor
        self._kube: KubeClient = cluster.kube
        self._results, self._say = results, say
        self._services = {tenant.name: self._service(tenant) for tenant in TENANTS}
        self._loads = {tenant.name: self._load(tenant) for tenant in TENANTS}

    def run(self) -> None:
        for namespace in NAMESPACES:
            self._kube.apply(demo_manifests.namespace(namespace))
        for tenant in TENANTS:
            self._kube.apply(demo_manifests.deployment(tenant.pool, tenant.namespace))
        for service in self._services.values():
            service.start()
        operator = None if self._contender.autoscalers else self._operator()
        if operator is not None:
            operator.install()
        for service in self._services.values():
            service.wait()
        self._say(f"{self._contender.title}: {len(TENANTS)} services in {len(NAMESPACES)} namespaces, {GPUS} GPUs")
        with Recorder(self._kube, self._results.data) as recorder:
            self._supervisor.wait_while(lambda: _not_ready(recorder), READY_SECONDS)
            self._kube.apply_all(self._scalers())
            if operator is not None:
                operator.start()
            self._supervisor.wait_while(self._lacks, READY_SECONDS)
            self._drive(recorder)
            if operator is not None:
                operator.stop()

    def _operator(self) -> Operator:
        return Operator(
            self._kube,
            self._cluster.info,
            self._supervisor,
            self._results.audit,
            NAMESPACES,
            budgets=self._contender.arbiter is not None,
        )

    def _service(self, tenant: Tenant) -> Service:
        options = fleet_options(tenant.name, tenant.namespace, [tenant.pool], self._this.seed, self._this.slo_ms)
        return Service(self._cluster.info, self._supervisor, options, f"service-{tenant.name}")

    def _load(self, tenant: Tenant) -> Load:
        this, folder = self._this, self._results.data / tenant.name
        folder.mkdir()
        trace = folder / "trace.csv"
        peak = write_load(tenant.rate(this.duration_seconds, this.speed), trace)
        options = {
            "pattern": "trace",
            "duration": this.duration_seconds,
            "seed": this.seed,
            "peak": peak,
            "trace": trace,
            "model": tenant.name,
            "slo_ms": this.slo_ms,
        }
        return Load(options, folder, f"load-{tenant.name}")

    def _scalers(self) -> list[Json]:
        """What scales: an autoscaler or a policy for each tenant, and the budget."""
        if self._contender.autoscalers:
            return [manifests.autoscaler(tenant, self._this.speed) for tenant in TENANTS]
        made = [manifests.policy(tenant, self._this.interval_seconds, self._this.slo_ms) for tenant in TENANTS]
        return made if self._contender.arbiter is None else [*made, manifests.budget(self._contender.arbiter)]

    def _lacks(self) -> str:
        """What is missing until the load may begin; empty = nothing."""
        wanted = "ScalingActive" if self._contender.autoscalers else "Ready"
        for thing in self._scalers():
            if not has_condition(self._kube.get(path_of(thing)), wanted):
                return f"{thing['kind']} {thing['metadata']['name']} to be {wanted}"
        return ""

    def _drive(self, recorder: Recorder) -> None:
        """Send all loads at once and say now and then who holds what, until they are over."""
        supervisor = self._supervisor
        running: dict[str, Child] = {
            name: load.start(supervisor, self._services[name].url) for name, load in self._loads.items()
        }
        begun = {name: load.begun(supervisor) for name, load in self._loads.items()}
        self._write_run(begun)
        began, line = time.monotonic(), 0.0
        while running:
            ended = [name for name, child in running.items() if not child.running]
            for name in ended:
                child = running.pop(name)
                if child.process.returncode:
                    raise child.failure("ended before the load was over")
                supervisor.finish(child.name)
            supervisor.check(apart_from=list(running.values()))
            if (now := time.monotonic() - began) >= line:
                line = (now // LINE_SECONDS + 1) * LINE_SECONDS
                self._say(_line(now, recorder))
            time.sleep(REFRESH_SECONDS)

    def _write_run(self, begun: dict[str, float]) -> None:
        this = self._this
        run = {
            "contender": self._contender.name,
            "title": self._contender.title,
            "begun": begun,
            "duration_seconds": this.duration_seconds,
            "speed": this.speed,
            "interval_seconds": this.interval_seconds,
            "seed": this.seed,
            "slo_ms": this.slo_ms,
            "server_version": self._cluster.info.server_version,
            "versions": versions(),
        }
        (self._results.data / "run.json").write_text(json.dumps(run, indent=1))


def _not_ready(recorder: Recorder) -> str:
    counts = recorder.counts
    late = [tenant.name for tenant in TENANTS if tenant.name not in counts or counts[tenant.name].ready < 1]
    return f"the first replicas of {', '.join(late)}" if late else ""


def _line(seconds: float, recorder: Recorder) -> str:
    counts = recorder.counts
    held, pending = (sum(getattr(one, name) for one in counts.values()) for name in ("held", "pending"))
    each = "  ".join(f"{name} {one.held}" + (f"+{one.pending}" if one.pending else "") for name, one in counts.items())
    return f"{seconds:5.0f} s: {held:2d} of {GPUS} GPUs held, {pending} pods wait   {each}"
