"""Play one contender of the demo of tenants: a service and a load for each tenant, all at once."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlscaler_dev.cluster.kube import Json
from rlscaler_dev.demo import manifests as demo_manifests
from rlscaler_dev.demo.load import Load, write_trace
from rlscaler_dev.demo.operator import RLSCALER, Operator
from rlscaler_dev.demo.settings import Settings
from rlscaler_dev.demo.stage import Stage
from rlscaler_dev.demo.tenants import manifests
from rlscaler_dev.demo.tenants.manifests import Contender
from rlscaler_dev.demo.tenants.plan import GPUS, NAMESPACES, TENANTS, Tenant
from rlscaler_dev.demo.tenants.recorder import Recorder, recorder
from rlscaler_dev.demo.testbed import Service, fleet_options
from rlscaler_dev.exceptions import DemoError


@dataclass(frozen=True, slots=True)
class Play:
    """Load and service, which are the same for every contender."""

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


def replay(audit: Path) -> dict[str, Any]:
    """Decide and share again everything in a decision log, and return the tally. Raises DemoError where that fails."""
    done = subprocess.run([*RLSCALER, "replay", str(audit), "-o", "json"], capture_output=True, text=True, check=False)
    try:
        tally: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        raise DemoError(f"{audit}: not replayed: {done.stderr.strip()}") from error
    return {name: tally[name] for name in ("decisions", "same", "sharings", "sharingsSame")}


class TenantsStage(Stage[Recorder]):
    def __init__(self, *stage: Any) -> None:
        *common, self._this, self._contender = stage
        super().__init__(*common)
        if self._contender.autoscalers:
            self.condition = "ScalingActive"
        self.services = {tenant.name: self._service(tenant) for tenant in TENANTS}
        self._loads = {tenant.name: self._load(tenant) for tenant in TENANTS}

    @staticmethod
    def settings(this: Play, contender: Contender) -> Settings:
        return replace(Stage.settings(this, contender), gpu_autoscalers=contender.autoscalers)

    def run(self) -> None:
        super().run()
        if not self._contender.autoscalers:
            (self.results.data / "replay.json").write_text(json.dumps(replay(self.results.audit)))

    def operator(self) -> Operator | None:
        if self._contender.autoscalers:
            return None
        budgets = self._contender.arbiter is not None
        return Operator(self.kube, self.info, self.supervisor, self.results.audit, NAMESPACES, budgets=budgets)

    def create_workload(self) -> None:
        for namespace in NAMESPACES:
            self.kube.apply(demo_manifests.namespace(namespace))
        for tenant in TENANTS:
            self.kube.apply(demo_manifests.deployment(tenant.pool, tenant.namespace))

    def introduction(self) -> str:
        return f"{self._contender.title}: {len(TENANTS)} services in {len(NAMESPACES)} namespaces, {GPUS} GPUs"

    def recorder(self) -> Recorder:
        return recorder(self.kube, self.results.data)

    def replicas_missing(self, recorder: Recorder) -> str:
        counts = recorder.counts
        late = [tenant.name for tenant in TENANTS if tenant.name not in counts or counts[tenant.name].ready < 1]
        return f"the first replicas of {', '.join(late)}" if late else ""

    def scalers(self) -> list[Json]:
        """Return an autoscaler or a policy for each tenant, and the budget."""
        this, arbiter = self._this, self._contender.arbiter
        if self._contender.autoscalers:
            return [manifests.autoscaler(tenant, this.speed) for tenant in TENANTS]
        policies = [manifests.policy(tenant, this.interval_seconds, this.slo_ms) for tenant in TENANTS]
        return policies if arbiter is None else [*policies, manifests.budget(arbiter)]

    def drive(self, recorder: Recorder) -> None:
        """Send all loads at once, and print now and then the GPUs of each tenant, until they are over."""
        running = {name: load.start(self.supervisor, self.services[name].url) for name, load in self._loads.items()}
        begun = {name: load.begun(self.supervisor) for name, load in self._loads.items()}
        self.write_run(self._contender, self._this, begun)
        for seconds, line_is_due in self.progress(time.time()):
            if self.over(running):
                return
            if line_is_due:
                self.say(_line(seconds, recorder))

    def _service(self, tenant: Tenant) -> Service:
        options = fleet_options(tenant.name, tenant.namespace, [tenant.pool], self._this.seed, self._this.slo_ms)
        return Service(self.info, self.supervisor, options, f"service-{tenant.name}")

    def _load(self, tenant: Tenant) -> Load:
        this, folder = self._this, self.results.data / tenant.name
        folder.mkdir()
        trace = folder / "trace.csv"
        peak = write_trace(tenant.rate(this.duration_seconds, this.speed), trace)
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


def _line(seconds: float, recorder: Recorder) -> str:
    counts = recorder.counts
    held, pending = (sum(getattr(count, name) for count in counts.values()) for name in ("held", "pending"))
    tenants = "  ".join(f"{name} {c.held}" + (f"+{c.pending}" if c.pending else "") for name, c in counts.items())
    return f"{seconds:5.0f} s: {held:2d} of {GPUS} GPUs held, {pending} pods wait   {tenants}"
