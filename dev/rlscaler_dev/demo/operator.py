"""The operator of a run as a process of its own, and the state in which a policy or an autoscaler scales."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rlscaler_dev.cluster import kubeconfig
from rlscaler_dev.cluster.api import ClusterInfo
from rlscaler_dev.cluster.kube import Json, KubeClient, has_condition, path_of
from rlscaler_dev.cluster.network import HOST, free_ports
from rlscaler_dev.cluster.prometheus import SCRAPE_INTERVAL_SECONDS
from rlscaler_dev.cluster.readiness import answers, wait_until
from rlscaler_dev.demo import manifests
from rlscaler_dev.demo.processes import Supervisor
from rlscaler_dev.demo.recorder import Recorder
from rlscaler_dev.demo.settings import NAMESPACE, Settings
from rlscaler_dev.generate.definition import BUDGET, POLICY

RLSCALER = (sys.executable, "-m", "rlscaler_live.cli")
"""The command line in a process of its own: the demo uses the operator as its users do."""

READY_SECONDS = 90.0


class Operator:
    """The operator as a process of its own, with the rights of its own ServiceAccount and no others."""

    def __init__(
        self,
        kube: KubeClient,
        cluster: ClusterInfo,
        supervisor: Supervisor,
        audit: Path,
        namespaces: Sequence[str] = (NAMESPACE,),
        budgets: bool = False,
        brokers: Sequence[str] = (),
    ) -> None:
        """`audit` is the file of its decision log, `namespaces` are those that it serves, and `brokers` (host:port)
        those of Kafka that policies may name."""
        self._kube, self._cluster, self._supervisor, self._audit = kube, cluster, supervisor, audit
        self._namespaces, self._budgets, self._brokers = namespaces, budgets, brokers
        self._kubeconfig = cluster.state_dir / "operator.kubeconfig"
        self._target: Path | None = None

    def install(self) -> None:
        """Install its CustomResourceDefinitions and grant it its roles."""
        kube = self._kube
        for definition in (POLICY.manifest(), *([BUDGET.manifest()] if self._budgets else [])):
            kube.apply(definition)
            wait_until(partial(_established, kube, definition), "the CRD's acceptance", READY_SECONDS)
        for access in manifests.access(self._namespaces, self._budgets):
            kube.apply(access)
        token = kube.token(manifests.OPERATOR_NAMESPACE, manifests.OPERATOR)
        kubeconfig.write(self._kubeconfig, kubeconfig.bearer(kube.server, kube.authority, token))

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        (health,) = free_ports(1)
        child = self._supervisor.start("operator", self._command(health))
        self._supervisor.wait_until(child, lambda: answers(f"http://{HOST}:{health}/readyz"), READY_SECONDS)
        self._target = self._cluster.add_scrape_target("rlscaler", f"{HOST}:{health}")

    def _command(self, port: int) -> list[str]:
        return [
            *(*RLSCALER, "operator", "run", "--kubeconfig", str(self._kubeconfig)),
            *(option for name in self._namespaces for option in ("--namespace", name)),
            *(("--budgets",) if self._budgets else ()),
            *(option for broker in self._brokers for option in ("--allow-kafka-server", broker)),
            *("--prometheus-url", str(self._cluster.prometheus_url), "--scrape-interval", str(SCRAPE_INTERVAL_SECONDS)),
            *("--metrics-port", str(port), "--audit-log", str(self._audit)),
            *("--lease-namespace", manifests.OPERATOR_NAMESPACE),
        ]

    def stop(self) -> None:
        if self._target:
            self._target.unlink(missing_ok=True)
        self._supervisor.stop("operator")
        self._kubeconfig.unlink(missing_ok=True)


def policy_lacks(recorder: Recorder) -> str:
    """Return the cause why the policy is not Ready or has not decided yet; empty = it has."""
    ready = recorder.conditions.get("Ready")
    if ready is None:
        return "the operator's first report"
    if ready.status != "True":
        return f"the policy to be Ready: {ready.message}"
    return "" if recorder.last_action else "the first decision"


def autoscalers_lack(recorder: Recorder, settings: Settings) -> str:
    """Return the HorizontalPodAutoscaler that has no metrics yet; empty = both have them."""
    for pool in settings.pools:
        status = recorder.autoscalers.get(pool.name, {})
        active = recorder.conditions.get(f"{pool.name} ScalingActive")
        if active is None or active.status != "True" or not any(status.get("currentMetrics") or []):
            why = active.message if active else "no report yet"
            return f"metrics of the HorizontalPodAutoscaler {pool.deployment}: {why}"
    return ""


def _established(kube: KubeClient, definition: Json) -> bool:
    return has_condition(kube.get(path_of(definition)), "Established")
