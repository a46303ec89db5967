"""Manifests of what runs on the real node in its own tests."""

from __future__ import annotations

import json
from typing import Any

Json = dict[str, Any]

NAMESPACE = "node-test"
GATEWAY_API = "gateway.networking.k8s.io/v1"
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"

_POD = "__meta_kubernetes_pod"
SCRAPE_CONFIG = {
    "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
    "scrape_configs": [
        {
            "job_name": "pods",
            "kubernetes_sd_configs": [{"role": "pod", "namespaces": {"names": [NAMESPACE]}}],
            "relabel_configs": [
                {"source_labels": [f"{_POD}_container_port_name"], "regex": "web", "action": "keep"},
                {"source_labels": [f"{_POD}_name"], "target_label": "pod"},
            ],
        },
        {
            "job_name": "cadvisor",
            "scrape_interval": "5s",
            "scrape_timeout": "5s",
            "scheme": "https",
            "metrics_path": "/metrics/cadvisor",
            "authorization": {"credentials_file": f"{SERVICE_ACCOUNT}/token"},
            "tls_config": {"ca_file": f"{SERVICE_ACCOUNT}/ca.crt"},
            "kubernetes_sd_configs": [{"role": "node", "selectors": [{"role": "node", "label": "pool=real"}]}],
        },
        {
            "job_name": "by-name",
            "static_configs": [{"targets": [f"web.{NAMESPACE}.svc.cluster.local:9090"]}],
        },
    ],
}


def deployment(name: str, replicas: int, container: Json, **pod: Any) -> Json:
    """A Deployment with the label app=NAME."""
    labels = {"app": name}
    spec = {"terminationGracePeriodSeconds": 1, "containers": [{"name": "app", **container}], **pod}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def service(name: str) -> Json:
    """Port 9090 of a Deployment's pods."""
    spec = {"selector": {"app": name}, "ports": [{"name": "web", "port": 9090}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def prometheus(name: str, replicas: int = 1) -> Json:
    """Prometheus as a pod, with least privilege; also a program that answers HTTP."""
    container = {
        "image": "localhost/prometheus:1",
        "imagePullPolicy": "Never",
        "args": ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/data"],
        "ports": [{"name": "web", "containerPort": 9090}],
        "readinessProbe": {"httpGet": {"path": "/-/ready", "port": "web"}, "periodSeconds": 1},
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/prometheus"},
            {"name": "data", "mountPath": "/data"},
        ],
        "securityContext": {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    return deployment(
        name,
        replicas,
        container,
        serviceAccountName="prometheus",
        securityContext={
            "runAsNonRoot": True,
            "runAsUser": 65534,
            "fsGroup": 65534,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        volumes=[{"name": "config", "configMap": {"name": "prometheus"}}, {"name": "data", "emptyDir": {}}],
    )


def discovery() -> list[tuple[str, Json]]:
    """What Prometheus's pods need before them: configuration, identity, permissions. (Path, object.)"""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "node-test-prometheus"}
    rules = [
        {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]},
    ]
    core = f"/api/v1/namespaces/{NAMESPACE}"
    return [
        ("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}),
        (f"{core}/serviceaccounts", {"metadata": {"name": "prometheus"}}),
        (
            f"{core}/configmaps",
            {"metadata": {"name": "prometheus"}, "data": {"prometheus.yml": json.dumps(SCRAPE_CONFIG)}},
        ),
        (f"{rbac}/clusterroles", {"metadata": {"name": role["name"]}, "rules": rules}),
        (
            f"{rbac}/clusterrolebindings",
            {
                "metadata": {"name": role["name"]},
                "roleRef": role,
                "subjects": [{"kind": "ServiceAccount", "name": "prometheus", "namespace": NAMESPACE}],
            },
        ),
    ]


def gpu_pods(replicas: int) -> Json:
    """Pods that do nothing and ask for one GPU each."""
    container = {
        "image": "localhost/pause:1",
        "imagePullPolicy": "Never",
        "resources": {"requests": {"cpu": "1m"}, "limits": {"nvidia.com/gpu": 1}},
    }
    return deployment("gpu", replicas, container)


def gateway() -> Json:
    """One HTTP listener on Traefik's entrypoint."""
    listener = {"name": "http", "protocol": "HTTP", "port": 8000}
    spec = {"gatewayClassName": "traefik", "listeners": [listener]}
    return {"apiVersion": GATEWAY_API, "kind": "Gateway", "metadata": {"name": "web"}, "spec": spec}


def route(weights: dict[str, int]) -> Json:
    """Everything to the Services, by weight."""
    backends = [{"name": name, "port": 9090, "weight": weight} for name, weight in weights.items()]
    return {
        "apiVersion": GATEWAY_API,
        "kind": "HTTPRoute",
        "metadata": {"name": "web"},
        "spec": {"parentRefs": [{"name": "web"}], "rules": [{"backendRefs": backends}]},
    }
