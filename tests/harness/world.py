"""Objects in one namespace of the cluster."""

from __future__ import annotations

from typing import Any

from rlscaler_dev.cluster.kube import KubeClient
from tests.harness.load import RPS, Exporter, Load


class World:
    """Objects in one namespace of the cluster, and waiting for them."""

    def __init__(self, kube: KubeClient, namespace: str, exporter: Exporter) -> None:
        self.kube, self.namespace, self._exporter = kube, namespace, exporter
        kube.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})

    def path(self, plural: str, name: str = "", subresource: str = "") -> str:
        roots = {
            "rlscalingpolicies": "/apis/rlscaler.io/v1alpha1",
            "deployments": "/apis/apps/v1",
            "horizontalpodautoscalers": "/apis/autoscaling/v2",
            "httproutes": "/apis/gateway.networking.k8s.io/v1",
            "events": "/api/v1",
            "pods": "/api/v1",
            "resourcequotas": "/api/v1",
            "verticalpodautoscalers": "/apis/autoscaling.k8s.io/v1",
        }
        parts = [roots[plural], "namespaces", self.namespace, plural, name, subresource]
        return "/".join(part for part in parts if part)

    def service(self, name: str, rate: float, dated: bool = False, exporter: Exporter | None = None) -> Load:
        load = Load(self.namespace, name, rate, dated=dated)
        (exporter or self._exporter).loads.append(load)
        return load

    def deployment(
        self,
        name: str,
        pool: str,
        replicas: int = 1,
        gpus: int = 0,
        annotations: dict[str, str] | None = None,
        resources: dict[str, Any] | None = None,
    ) -> None:
        """`gpus` that each pod takes of its node; `annotations` of the pods, and `resources` of their container."""
        container: dict[str, Any] = {"name": "app", "image": "app", "resources": resources or {}}
        if gpus:
            container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
        pod = {
            "nodeSelector": {"pool": pool},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "containers": [container],
        }
        labels = {"app": name, "rlscaler.io/flavour": pool}
        template = {"metadata": {"labels": labels, "annotations": annotations or {}}, "spec": pod}
        spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
        self.kube.request("POST", self.path("deployments"), {"metadata": {"name": name}, "spec": spec})

    def deployments(self, service: str, gpu: int = 1, cpu: int = 1) -> None:
        self.deployment(f"{service}-gpu", "gpu", gpu)
        self.deployment(f"{service}-cpu", "cpu", cpu)

    def policy(self, name: str, **spec: Any) -> None:
        body = {
            "apiVersion": "rlscaler.io/v1alpha1",
            "kind": "RLScalingPolicy",
            "metadata": {"name": name},
            "spec": {
                "mode": "Auto",
                "intervalSeconds": 10,
                "senseSeconds": 1,
                "targets": {
                    pool: {
                        "deployment": f"{name}-{pool}",
                        "maxReplicas": 10,
                        "requestsPerSecond": RPS[pool],
                        "coldStartSeconds": {"gpu": 45, "cpu": 8}[pool],
                    }
                    for pool in ("gpu", "cpu")
                },
                "slo": {"latencyMilliseconds": 1000},
                "policy": {"bundled": "rule"},
                # A capacity that is learned removes no replica for five minutes.
                "capacity": {"trust": "declared"},
                **spec,
            },
        }
        self.kube.request("POST", self.path("rlscalingpolicies"), body)

    def vertical_autoscaler(self, name: str, deployment: str, mode: str) -> None:
        """A VerticalPodAutoscaler of a Deployment with this `updateMode`."""
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment}
        body = {
            "apiVersion": "autoscaling.k8s.io/v1",
            "kind": "VerticalPodAutoscaler",
            "metadata": {"name": name},
            "spec": {"targetRef": target, "updatePolicy": {"updateMode": mode}},
        }
        self.kube.request("POST", self.path("verticalpodautoscalers"), body)

    def get(self, plural: str, name: str) -> dict[str, Any]:
        return self.kube.request("GET", self.path(plural, name))

    def patch(self, plural: str, name: str, body: Any, subresource: str = "", manager: str = "test") -> None:
        path = f"{self.path(plural, name, subresource)}?fieldManager={manager}"
        self.kube.merge(path, body)

    def delete(self, plural: str, name: str) -> None:
        self.kube.request("DELETE", self.path(plural, name))

    def replicas(self, service: str) -> tuple[int, int]:
        return tuple(self.get("deployments", f"{service}-{pool}")["spec"]["replicas"] for pool in ("gpu", "cpu"))

    def pods(self, deployment: str) -> list[dict[str, Any]]:
        """Those that are not on their way out."""
        items = self.kube.request("GET", f"{self.path('pods')}?labelSelector=app%3D{deployment}")["items"]
        return [item for item in items if "deletionTimestamp" not in item["metadata"]]

    def condition(self, policy: str, type_: str) -> tuple[str, str]:
        conditions = self.get("rlscalingpolicies", policy).get("status", {}).get("conditions", [])
        return next(((c["status"], c["reason"]) for c in conditions if c["type"] == type_), ("", ""))

    def events(self, policy: str) -> set[str]:
        items = self.kube.request("GET", self.path("events"))["items"]
        return {item["reason"] for item in items if item["involvedObject"]["name"] == policy}

    def weights(self, route: str) -> dict[str, int]:
        refs = self.get("httproutes", route)["spec"]["rules"][0]["backendRefs"]
        return {ref["name"]: ref["weight"] for ref in refs}
