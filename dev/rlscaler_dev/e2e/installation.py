"""The operator and the demo's service on the cluster, as a user installs them."""

from __future__ import annotations

import json
import time
from importlib.metadata import version
from typing import Any
from urllib.parse import urlencode

from rlscaler_dev.cluster.kube import Json, KubeClient, collection, has_condition
from rlscaler_dev.cluster.readiness import wait_until
from rlscaler_dev.e2e.cluster import Cluster
from rlscaler_dev.e2e.logs import operator_pods
from rlscaler_dev.e2e.settings import (
    CRD,
    DEMO_NAMESPACE,
    DEMO_RELEASE,
    OPERATOR_NAMESPACE,
    OPERATOR_RELEASE,
    PROMETHEUS_IMAGE,
    SCRAPE_SECONDS,
    SERVICE,
    Settings,
)

HELM_TIMEOUT = "300s"
READY_SECONDS = 180.0
POOLS = {"gpu": f"{SERVICE}-gpu", "cpu": f"{SERVICE}-cpu"}
"""Pool -> Deployment."""
ROUTE = f"/apis/gateway.networking.k8s.io/v1/namespaces/{DEMO_NAMESPACE}/httproutes/{SERVICE}"
POLICY = f"/apis/rlscaler.io/v1alpha1/namespaces/{DEMO_NAMESPACE}/rlscalingpolicies/{SERVICE}"
PROMETHEUS = f"{DEMO_RELEASE}-prometheus"


class Installation:
    """Everything that is installed, and its state before a run."""

    def __init__(self, settings: Settings, cluster: Cluster) -> None:
        self._settings, self._cluster = settings, cluster
        self._commands, self._kube = cluster.commands, cluster.kube

    @property
    def kube(self) -> KubeClient:
        return self._kube

    def install(self) -> dict[str, float]:
        """Both charts, operator first; the seconds each took."""
        begin = time.monotonic()
        self.operator("install", "--create-namespace", "--set-string", f"image.tag={version('rlscaler')}")
        operator = time.monotonic() - begin
        begin = time.monotonic()
        (gpu_low, gpu_high), (cpu_low, cpu_high) = (
            self._settings.gpu_cold_start_seconds,
            self._settings.cpu_cold_start_seconds,
        )
        tags = ("--set-string", f"image.tag={version('rlscaler')},prometheus.image.tag={PROMETHEUS_IMAGE[1]}")
        values = [
            f"prometheus.image.repository={PROMETHEUS_IMAGE[0]}",
            f"gpu.coldStartSeconds.min={gpu_low:g},gpu.coldStartSeconds.max={gpu_high:g}",
            f"cpu.coldStartSeconds.min={cpu_low:g},cpu.coldStartSeconds.max={cpu_high:g}",
            f"gateway.enabled={json.dumps(self._settings.loads)}",
        ]
        self.demo("install", "--create-namespace", "--wait", *tags, *(part for v in values for part in ("--set", v)))
        demo = time.monotonic() - begin
        self._commands.run("helm", "test", OPERATOR_RELEASE, "-n", OPERATOR_NAMESPACE, "--logs")
        return {"operator": round(operator, 1), "demo": round(demo, 1)}

    def operator(self, verb: str, *arguments: str) -> None:
        """helm install or upgrade of the operator's chart; waits until it is ready."""
        values = [] if "--reuse-values" in arguments else [
            *("--set", f"prometheus.url=http://{PROMETHEUS}.{DEMO_NAMESPACE}:9090"),
            *("--set", f"prometheus.scrapeIntervalSeconds={SCRAPE_SECONDS}"),
            *("--set", "auditLog.enabled=true,auditLog.stdout=true"),
            *("--set", "operator.resize=true,operator.resizeNewPods=true"),
            *("--set-string", "podAnnotations.prometheus\\.io/scrape=true,podAnnotations.prometheus\\.io/port=8080"),
        ]  # fmt: skip
        self._helm(verb, OPERATOR_RELEASE, "rlscaler", OPERATOR_NAMESPACE, "--wait", *values, *arguments)

    def demo(self, verb: str, *arguments: str) -> None:
        """helm install or upgrade of the demo's chart."""
        self._helm(verb, DEMO_RELEASE, "rlscaler-demo", DEMO_NAMESPACE, *arguments)

    def change_demo(self, values: str) -> None:
        """Upgrade the demo with other values; replicas and weights stay, also while an autoscaler moves them."""
        self.demo("upgrade", "--reuse-values", "--force-conflicts", "--set", values)

    def _helm(self, verb: str, release: str, chart: str, namespace: str, *arguments: str) -> None:
        path = str(self._settings.charts / chart)
        self._commands.run("helm", verb, release, path, "-n", namespace, "--timeout", HELM_TIMEOUT, *arguments)

    def reset(self) -> None:
        """One replica of each pool and the first weights, for a run that begins like every other."""
        for deployment in POOLS.values():
            self._commands.run("kubectl", "scale", "-n", DEMO_NAMESPACE, f"deploy/{deployment}", "--replicas=1")
        first = [{"op": "replace", "path": f"/spec/rules/0/backendRefs/{i}/weight", "value": w}
                 for i, w in enumerate((833, 167))]  # fmt: skip
        self._commands.run(
            "kubectl", "patch", "httproute", SERVICE, "-n", DEMO_NAMESPACE, "--type=json", "-p", json.dumps(first)
        )
        wait_until(self._settled, "one replica of each pool and no load", READY_SECONDS)

    def _settled(self) -> bool:
        """One ready replica of each pool, and nothing of an earlier load."""
        pods: dict[str, list[Json]] = {}
        for pod in self.pods():
            pods.setdefault(pod["metadata"].get("labels", {}).get("app", ""), []).append(pod)
        alone = all(len(pods.get(name, [])) == 1 and _ready(pods[name][0]) for name in POOLS.values())
        return alone and not any(name.startswith(f"{DEMO_RELEASE}-load") for name in pods)

    def pods(self) -> list[Json]:
        """The pods of the demo."""
        return list(self._kube.get(collection("v1", "Pod", DEMO_NAMESPACE))["items"])

    def apply_policy(self) -> None:
        """Apply the policy as a user does; the interval is the run's, and there may be no route to place by."""
        self._commands.run("kubectl", "apply", "-f", str(self._settings.policy))
        placement: Json = {} if self._settings.loads else {"placement": None}
        patch = json.dumps({"spec": {"intervalSeconds": self._settings.interval_seconds, **placement}})
        self._commands.run("kubectl", "patch", "rlsp", SERVICE, "-n", DEMO_NAMESPACE, "--type=merge", "-p", patch)

    def delete_policy(self) -> None:
        self._commands.run("kubectl", "delete", "-f", str(self._settings.policy), "--ignore-not-found")

    def leader(self) -> str:
        """Name of the operator's pod that holds the Lease; empty = no pod that is to stay."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{OPERATOR_NAMESPACE}/leases/{OPERATOR_RELEASE}"
        holder = str(self._kube.get(path)["spec"].get("holderIdentity") or "")
        staying = (pod for pod in operator_pods(self._kube) if "deletionTimestamp" not in pod["metadata"])
        names = [pod["metadata"]["name"] for pod in staying]
        return next((name for name in names if holder.startswith(name)), "")

    def query(self, promql: str) -> list[Any]:
        """The result of an instant query of the Prometheus in the cluster."""
        service = f"/api/v1/namespaces/{DEMO_NAMESPACE}/services/{PROMETHEUS}:9090/proxy/api/v1/query"
        return list(self._kube.get(f"{service}?{urlencode({'query': promql})}")["data"]["result"])

    def uninstall(self) -> None:
        """The operator first, while its finalizer is on a policy; then the demo, the definition and the namespaces."""
        self.apply_policy()
        restore = json.dumps({"spec": {"restoreOnDelete": True}})
        self._commands.run("kubectl", "patch", "rlsp", SERVICE, "-n", DEMO_NAMESPACE, "--type=merge", "-p", restore)
        wait_until(lambda: bool(self._kube.get(POLICY)["metadata"].get("finalizers")), "a finalizer", READY_SECONDS)
        self._commands.run("helm", "uninstall", OPERATOR_RELEASE, "-n", OPERATOR_NAMESPACE, "--wait")
        self.delete_policy()
        self._commands.run("helm", "uninstall", DEMO_RELEASE, "-n", DEMO_NAMESPACE, "--wait")
        self._commands.run("kubectl", "delete", "crd", CRD, "--ignore-not-found", "--timeout=60s")
        self._commands.run("kubectl", "delete", "namespace", OPERATOR_NAMESPACE, DEMO_NAMESPACE, "--timeout=120s")


def _ready(pod: Json) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and has_condition(pod, "Ready")
