"""Objects through which the Gateway's data plane is used: its class, and a Service that leads pods to it."""

from __future__ import annotations

from typing import Any

from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.cluster.realnode.network import GATEWAY_CLASS, GATEWAY_METRICS_PORT, GATEWAY_PORT, NODE_IP

SERVICE, NAMESPACE = "traefik", "kube-system"
PORTS = {"web": GATEWAY_PORT, "metrics": GATEWAY_METRICS_PORT}


def manifests() -> list[dict[str, Any]]:
    """GatewayClass, Service and its EndpointSlice: Traefik is a process of the node, so no selector finds it."""
    metadata = {"name": SERVICE, "namespace": NAMESPACE}
    ports = [{"name": name, "port": port} for name, port in PORTS.items()]
    return [
        {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "GatewayClass",
            "metadata": {"name": GATEWAY_CLASS},
            "spec": {"controllerName": "traefik.io/gateway-controller"},
        },
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports}},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": metadata | {"labels": {"kubernetes.io/service-name": SERVICE}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [NODE_IP], "conditions": {"ready": True}}],
            "ports": ports,
        },
    ]


def accepted(client: KubeClient) -> bool:
    """Whether Traefik has taken up the class, which it does once it watches Gateways and routes."""
    found = client.get(f"/apis/gateway.networking.k8s.io/v1/gatewayclasses/{GATEWAY_CLASS}")
    conditions = found.get("status", {}).get("conditions", [])
    return any(entry["type"] == "Accepted" and entry["status"] == "True" for entry in conditions)
